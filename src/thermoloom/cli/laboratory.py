"""The command ``lab``: an interactive page, served on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thermoloom.cli.options import EngineOption, flag, path_of, say
from thermoloom.errors import UserError
from thermoloom.interrupts import interrupts_wind_up

if TYPE_CHECKING:
    from thermoloom.computers.computer import Computer

PORT = 8377


def lab(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="Run directory, or a file that computer.save wrote; if left out, the lab solves a "
            "ten-digit machine on the bundled images.",
            metavar="RUN",
            parser=path_of("RUN"),
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 selects any free one.", min=0, max=65535)
    ] = PORT,
    open_page: Annotated[bool, flag("--open", "Show the page in a browser.")] = False,
    engine: EngineOption = None,
) -> None:
    """Serve an interactive page: run, teach, damage and inspect a computer; complete images."""
    try:
        from thermoloom.lab.server import listening, serve
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn", "websockets", "anyio"):
            raise
        raise UserError(f"lab: {missing} is not installed; pip install 'thermoloom[lab]'") from None
    prepare = _solved if run is None else _loaded(run)
    with listening(port) as sock:
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        print(address, flush=True)
        say("the lab is open at this address; Ctrl-C closes it")
        interrupts_wind_up()
        if open_page and not webbrowser.open(address):
            say("no browser found; open the address yourself")
        with contextlib.suppress(KeyboardInterrupt):
            serve(sock, prepare)
    say("the lab is closed")
    sys.stdout.flush()
    os._exit(0)  # do not wait for threads that still compile or compute: they write nothing


def _loaded(run: Path) -> Callable[[Callable[[str], None]], Computer]:
    """Load the computer at once, so that a RUN without one is refused before the lab opens."""
    from thermoloom.computers.computer_files import load

    computer = load(run)
    if computer.unfinished:
        say(computer.unfinished)
    return lambda _: computer


def _solved(say: Callable[[str], None]) -> Computer:
    """Solve the machine of the demo."""
    from thermoloom.computers.learning import solve_computer
    from thermoloom.demo.demo_samples import DIGITS, MACHINE, TOLERANCE
    from thermoloom.patterns.patterns import load_patterns
    from thermoloom.settings import Settings

    say("solving a ten-digit machine")
    return solve_computer(
        Settings(MACHINE, DIGITS).updated({"solver": {}}),
        load_patterns(DIGITS, MACHINE),
        lambda step, size: say(
            f"solving a ten-digit machine: step {step}, relative gradient {size:.1e}"
        ),
        TOLERANCE,
    )
