"""The studies: ``run NAME``, ``run FOLDER``, ``run all``, ``run --new``, ``report``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from thermoloom.cli.options import (
    Config,
    EngineOption,
    Values,
    compile_now,
    flag,
    merged,
    option,
    path_of,
    path_option,
    shell_word,
    takes,
)
from thermoloom.errors import UserError
from thermoloom.inputs import LARGEST_SEED, shown
from thermoloom.studies.discovery import headings, is_folder, names, study, write_skeleton

if TYPE_CHECKING:  # loads numpy; --help should not
    from thermoloom.runs.execution import Resources

MOST_SHARES = 10_000
"""Maximum number of seeds, and of shares of a job array."""


class _Studies(TyperGroup):
    """The studies of the package by name, and any other study by the path of its folder.

    Their commands are created when ``run`` is called: other commands need not look for studies.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [*names(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, name: str) -> Any:
        if command := super().get_command(ctx, name):  # ``all``
            return command
        question = next((h.question for h in headings() if h.name == name), None)
        if question is None:
            if ctx.resilient_parsing and not is_folder(name):  # completion of an unfinished name
                return None
            question = study(name).question
        app = typer.Typer(add_completion=False)
        app.command(name, cls=_NamesPresets)(_command(name, question))
        return typer.main.get_command(app)


run_app = typer.Typer(
    cls=_Studies, no_args_is_help=True, invoke_without_command=True,
    subcommand_metavar="STUDY [OPTIONS]",
    help="Run a built-in study by its name, or your own study: run FOLDER.",
)  # fmt: skip


@run_app.callback()
def run(
    ctx: typer.Context,
    new: Annotated[
        Path | None,
        typer.Option(help="Create a folder with a small study to start from.", metavar="FOLDER"),
    ] = None,
) -> None:
    if new is not None:
        write_skeleton(new)
        folder = ("" if new.is_absolute() else "./") + shell_word(new)
        typer.echo(f"wrote {new}; run it with: thermoloom run {folder} --preset quick")
        raise typer.Exit


Preset = Annotated[str | None, typer.Option(help="One of the study's presets.", metavar="PRESET")]
Out = Annotated[
    Path | None,
    path_option(
        "--out",
        "DIR",
        "Results folder; by default results for the presets paper and full, and results/PRESET for "
        "others.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        help="One setting, such as training.cycles=100 or study.path_seed=7; may be repeated.",
        metavar="KEY=VALUE",
    ),
]
Seeds = Annotated[
    str | None, typer.Option(help="Training seeds, such as 101-105 or 7,8,9.", metavar="SEEDS")
]
RESOURCES = {
    "workers": option(int, "Local processes; by default one per core.", "N"),
    "cluster": option(str, "Address of a Dask scheduler.", "ADDRESS"),
    "shared": option(
        bool, "The results folder is on a disk that all workers share.", "", "--shared-disk"
    ),
}
Share = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="For job arrays: run the I-th of N shares of the tasks, without writing tables.",
        metavar="I/N",
    ),
]


class _NamesPresets(TyperCommand):
    """Help that names the presets; studies are loaded only when it is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        studies = names(together=True) if self.name == "all" else [self.name or ""]
        presets = [study(name).presets for name in studies]
        common = [preset for preset in presets[0] if all(preset in each for each in presets)]
        (option,) = (option for option in self.params if option.name == "preset")
        cast(Any, option).help = f"Size of the study: {', '.join(common)}."
        super().format_help(ctx, formatter)


def _folder(preset: str | None) -> Path:
    """Results folder of a preset; a quick run never shares a folder with the full study."""
    return Path("results") if preset in (None, "paper", "full") else Path("results") / preset


def _command(name: str, question: str) -> Callable[..., None]:
    """``run NAME``: the same options for every study."""

    @takes("resources", RESOURCES)
    def command(
        preset: Preset = None,
        out: Out = None,
        seeds: Seeds = None,
        config: Config = None,
        assignments: Assignments = None,
        *,
        resources: dict[str, Any],
        share: Share = None,
        engine: EngineOption = None,
    ) -> None:
        from thermoloom.runs.execution import Resources

        values = plan_values(config, assignments, seeds)
        folder = out or _folder(preset)
        if share is not None:
            run_share(name, preset, values, folder, Resources(**resources), parse_share(share))
        else:
            run_study(name, preset, values, folder, Resources(**resources))

    command.__doc__ = question
    return command


@run_app.command("all", cls=_NamesPresets)
@takes("resources", RESOURCES)
def run_all(
    preset: Preset = None,
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    *,
    resources: dict[str, Any],
    yes: Annotated[bool, flag("--yes", "Do not ask before a long run.")] = False,
    engine: EngineOption = None,
) -> None:
    """Estimate how long all studies on the paper's machine take, then run them."""
    from thermoloom.runs.catalog import readable_bytes
    from thermoloom.runs.execution import Resources
    from thermoloom.studies.estimate import estimate
    from thermoloom.studies.run import check

    available = Resources(**resources)
    folder = out or _folder(preset)
    values = plan_values(config, assignments, None)
    plans = [(record := study(name), record.plan(preset, values)) for name in names(together=True)]
    for record, plan in plans:
        check(record, plan, folder, available)
    compile_now([model for record, plan in plans for model in record.computers(plan, folder)])
    needed = estimate(plans, folder, available.processes)
    typer.echo(
        f"to do: {needed.trainings} training runs and {needed.samples:,} samples, about "
        f"{max(1, round(needed.seconds / 60))} min and {readable_bytes(needed.bytes)} in {folder}",
        err=True,
    )
    if sys.stdin.isatty() and needed.seconds > 600 and not yes:
        typer.confirm("continue?", abort=True)
    failed: list[str] = []
    for name in names(together=True):
        typer.echo(f"--- {name} ---", err=True)
        try:
            run_study(name, preset, values, folder, available)
        except typer.Exit:
            failed.append(name)
    from thermoloom.studies.report import write_report

    drawn = [name for name in names(together=True) if name not in failed]
    typer.echo(f"report on all studies  {write_report(folder, drawn).path}")
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def plan_values(config: Path | None, assignments: list[str] | None, seeds: str | None) -> Values:
    """Changes to a preset: from the TOML file, then --set, then --seeds."""
    from thermoloom.studies.study import SECTION

    options = {} if seeds is None else {SECTION: {"seeds": parse_seeds(seeds)}}
    return merged(config, assignments, options, SECTION)


def parse_seeds(text: str) -> list[int]:
    """Seeds from ``101-105``, ``7,8,9`` or a mixture of both."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not _is_seed(low) or (dash and not _is_seed(high)):
            raise UserError(f"--seeds {shown(text)}: expected seeds such as 101-105 or 7,8,9")
        seeds = range(int(low), int(high if dash else low) + 1)
        if not seeds:
            raise UserError(f"--seeds {shown(text)}: {low}-{high} is empty; write {high}-{low}")
        if len(numbers) + len(seeds) > MOST_SHARES:
            raise UserError(f"--seeds {shown(text)}: more than {MOST_SHARES:,} seeds")
        numbers += seeds
    return numbers


def _is_seed(text: str) -> bool:
    """Whether a text is plain ASCII digits (``²`` is a digit too), few enough for a seed."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_SEED))


def parse_share(text: str) -> tuple[int, int]:
    """``2/5``: the second of five shares."""
    number, _, count = text.partition("/")
    if not (_is_seed(number) and _is_seed(count) and 1 <= int(number) <= int(count) <= MOST_SHARES):
        raise UserError(f"--task {shown(text)}: expected a share such as 2/5, from 1/5 to 5/5")
    return int(number), int(count)


def run_share(
    name: str,
    preset: str | None,
    values: Values,
    folder: Path,
    resources: Resources,
    share: tuple[int, int],
) -> None:
    """Run one share of a study's tasks and print how to continue when all shares are done."""
    record = study(name)
    plan = record.plan(preset, values)
    from thermoloom.runs.progress import progress_for
    from thermoloom.studies.run import check, compute_share

    check(record, plan, folder, resources)
    compile_now(record.computers(plan, folder))
    done = compute_share(record, plan, folder, share, resources, progress_for())
    for line in dict.fromkeys(done.warnings):
        typer.echo(f"note: {line}", err=True)
    number, count = share
    typer.echo(f"share {number} of {count} done: {done.summary['tasks']} task(s) in {folder}")
    typer.echo(
        "once all shares are done, run this command without --task to write tables and report"
    )
    _print_failures(done.failures)


def run_study(
    name: str, preset: str | None, values: Values, folder: Path, resources: Resources
) -> None:
    """Run a study and print its results and timing; exit code 1 if a task failed."""
    began = time.monotonic()
    record = study(name)
    plan = record.plan(preset, values)
    from thermoloom.runs.progress import progress_for
    from thermoloom.runs.store import RunDirectory
    from thermoloom.studies.report import write_page, write_report
    from thermoloom.studies.run import check, compute

    check(record, plan, folder, resources)
    compile_now(record.computers(plan, folder))
    compiled = time.monotonic()
    progress = progress_for()

    def so_far(run: RunDirectory, summary: dict[str, Any]) -> None:
        seeds = summary["interim"]
        page = write_page(run, pdf=False).path
        progress.note(f"{seeds['seeds']} of {seeds['of']} pairs so far: {page}")

    done = compute(record, plan, folder, resources, progress, so_far)
    for line in dict.fromkeys(done.warnings):
        typer.echo(f"note: {line}", err=True)
    if done.summary:
        report = write_report(done.path)
        seconds = done.seconds | report.seconds
        typer.echo("\n".join(result_lines(done.summary)))
        typer.echo("\n".join(time_lines(done.summary, seconds, compiled - began)))
        typer.echo(f"report  {report.path}")
    _print_failures(done.failures)


def _print_failures(failed: list[str]) -> None:
    """Print the failed tasks and exit with code 1 if there are any."""
    if failed:
        typer.echo(f"{len(failed)} task(s) failed:", err=True)
        for line in failed:
            typer.echo(f"  {line}", err=True)
        raise typer.Exit(1)


def result_lines(summary: dict[str, Any]) -> list[str]:
    """The headline numbers, the tally of verdicts and notes on missing results, for a terminal."""
    from thermoloom.studies.verdicts import tally

    lines = []
    for row in summary["quantities"]:
        if row["value"] is None:
            continue
        bounds = row["interval"]
        spec = row["digits"]
        here = f"{row['value']:{spec}} {row['unit']}".strip()
        between = "" if bounds is None else f" [{bounds[0]:{spec}}, {bounds[1]:{spec}}]"
        verdict = f"  ({row['verdict']})" if row["verdict"] else ""
        lines.append(f"{row['label']:<46} {here}{between}{verdict}")
    verdicts = tally({k: count for k, count in summary["verdicts"].items() if k != "all"})
    lines += [f"statements: {verdicts}"] if verdicts else []
    return [*lines, *(f"note: {line}" for line in summary.get("missing", ()))]


def time_lines(summary: dict[str, Any], seconds: dict[str, float], before: float) -> list[str]:
    """Timing: work by stage over all processes, then elapsed time of this process."""
    work = summary["timing"]
    stages = ", ".join(f"{stage} {spent:.1f} s" for stage, spent in work.items())
    clock = {"start": before} | seconds
    waited = ", ".join(f"{stage} {spent:.1f} s" for stage, spent in clock.items())
    return [
        f"work    {stages}; total {sum(work.values()):.1f} s over all processes",
        f"elapsed {waited}; total {sum(clock.values()):.1f} s",
    ]


# --- report -------------------------------------------------------------------------------------


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Results folder, or the folder of one study in it.",
            metavar="DIR",
            parser=path_of("DIR"),
        ),
    ],
) -> None:
    """Redraw the figures and rewrite the report from saved tables."""
    from thermoloom.studies.report import write_report

    typer.echo(write_report(folder).path)
