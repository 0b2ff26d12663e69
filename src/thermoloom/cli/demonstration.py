"""The command ``demo``: a page on which noise turns into digits."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import Annotated

from thermoloom.cli.options import AsJson, EngineOption, compile_now, emit, flag, path_option, say
from thermoloom.errors import UserError
from thermoloom.inputs import is_folder


def demo(
    out: Annotated[
        Path, path_option("--out", "FILE", "The page to write, or a folder for it.")
    ] = Path("results/demo.html"),
    open_page: Annotated[bool, flag("--open", "Show the page in a browser.")] = False,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Write a page on which noise turns into digits: a first look, in seconds."""
    if is_folder("--out", out) or not out.suffix:
        out = out / "index.html"
    _check(out)
    from thermoloom.demo.demo_page import build_demo
    from thermoloom.demo.demo_samples import draw_demo, solve_demo
    from thermoloom.presentation.terminal import console
    from thermoloom.runs.files import write_atomically, write_error

    compile_now([], learning=False)
    with console().status("solving a ten-digit machine") as status:
        optimum = solve_demo(
            on_iteration=lambda step, size: status.update(
                f"solving a ten-digit machine: step {step}, relative gradient {size:.1e}"
            )
        )
    say(f"solved a machine of {optimum.parameters.machine.units} units in {optimum.seconds:.1f} s")
    with console().status("generating"):
        drawn = draw_demo(optimum.parameters)
    samples, correct = len(drawn["requested"]), int((drawn["requested"] == drawn["seen"]).sum())
    say(f"generated {samples} samples in {drawn['seconds']:.1f} s")
    solved = {"seconds": optimum.seconds, "iterations": optimum.iterations}
    page = build_demo(drawn, solved).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(out.parent, error) from None
    write_atomically(out, page)
    heat = float(drawn["stage_heat"].sum(axis=1).mean())
    numbers = {"samples": samples, "correct_class": correct, "mean_heat": heat}
    emit(
        as_json,
        {"page": str(out.absolute()), **numbers},
        [
            f"recognized  {correct} of {samples} as the correct class",
            f"mean heat   {heat:.1f} E0 = {heat / drawn['kT']:.0f} kT",
            f"page        {out.absolute()}",
            *([] if open_page else ["open it in a browser, or use thermoloom demo --open"]),
        ],
    )
    if open_page and not webbrowser.open(out.absolute().as_uri()):
        say("no browser found; open the page yourself")


def _check(out: Path) -> None:
    """Refuse a path that cannot be written, before anything is computed."""
    from thermoloom.runs.manifest import refuse_file_of_run

    if is_folder("--out", out):
        raise UserError(f"--out {out}: is a folder; remove it, or name another file")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {out}: the page is HTML; name a file that ends in .html")
    refuse_file_of_run(out)
    nearest = next(folder for folder in out.absolute().parents if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: no permission to write in {nearest}; choose another folder")
