"""The experiments: ``run NAME``, ``run all``, ``report``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from thermoloom.cli.options import Config, Values, compile_now, merged, path_of
from thermoloom.errors import UserError
from thermoloom.experiments import MOST_SEEDS, NAMES, TOGETHER, experiment
from thermoloom.inputs import LARGEST_SEED, shown

if TYPE_CHECKING:  # loads numpy; --help should not
    from thermoloom.runs.execution import Resources

run_app = typer.Typer(
    help="Run an experiment of the paper, or one beyond it.", no_args_is_help=True
)

Preset = Annotated[str, typer.Option(help="One of the experiment's presets.", metavar="PRESET")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Results folder.",
        metavar="DIR",
        show_default="results, or results/PRESET of a preset that is not full size",
        parser=path_of("--out"),
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        help="One setting, such as training.cycles=100 or experiment.path_seed=7.",
        metavar="KEY=VALUE",
    ),
]
Seeds = Annotated[
    str | None, typer.Option(help="Training seeds, such as 101-105 or 7,8,9.", metavar="SEEDS")
]
Workers = Annotated[
    int | None, typer.Option(help="Local processes; by default one per core.", metavar="N")
]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler.", metavar="ADDRESS")
]
Share = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="For job arrays: run share I of N of the tasks, without making tables.",
        metavar="I/N",
    ),
]
Shared = Annotated[bool, typer.Option("--shared-disk", help="All workers see the results folder.")]


QUESTIONS = {
    "comparison": "Figures 1-3: do online-trained computers release less heat?",
    "prototypes": "Fifteen prototypes: does it persist with more patterns?",
    "noise": "Figure 4: where may errors enter, and how large may they be?",
    "precision": "Figure 5: how many bits to store, how many to train?",
    "controls": "Figure 6: how fast may a computer learn, and how late may it be updated?",
    "theory": "Beyond the paper: what is the optimum, and what does it explain?",
    "ledger": "Beyond the paper: what is the heat of an image spent on?",
    "frontier": "Beyond the paper: what is the least heat at every loss?",
    "wiring": "Beyond the paper: what does a wire buy?",
    "digits": "Beyond the paper: can a machine draw all ten digits on demand?",
    "devices": "Beyond the paper: how unequal may devices be, and what can learning mend?",
}


class _NamesPresets(TyperCommand):
    """Help that names the presets there are; experiments are loaded only when it is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        names = TOGETHER if self.name == "all" else (self.name or "",)
        known = [experiment(name).presets for name in names]
        common = [preset for preset in known[0] if all(preset in each for each in known)]
        (option,) = (option for option in self.params if option.name == "preset")
        cast(Any, option).help = f"Size of the experiment: {', '.join(common)}."
        super().format_help(ctx, formatter)


def _folder(preset: str) -> Path:
    """Results folder by preset: a quick look never gets in the way of the full experiment."""
    return Path("results") if preset in ("paper", "full") else Path("results") / preset


def _command(name: str) -> Callable[..., None]:
    """``run NAME``: the same options for every experiment."""

    def command(
        preset: Preset = "paper",
        out: Out = None,
        seeds: Seeds = None,
        config: Config = None,
        assignments: Assignments = None,
        workers: Workers = None,
        cluster: Cluster = None,
        shared: Shared = False,
        share: Share = None,
    ) -> None:
        from thermoloom.runs.execution import Resources

        values = plan_values(config, assignments, seeds)
        folder = out or _folder(preset)
        if share is not None:
            own = parse_share(share)
            run_share(name, preset, values, folder, Resources(workers, cluster, shared), own)
            return
        run_experiment(name, preset, values, folder, Resources(workers, cluster, shared))

    command.__doc__ = QUESTIONS[name]
    return command


for _name in NAMES:
    run_app.command(_name, cls=_NamesPresets)(_command(_name))


@run_app.command("all", cls=_NamesPresets)
def run_all(
    preset: Preset = "paper",
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    workers: Workers = None,
    cluster: Cluster = None,
    shared: Shared = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a long run.")] = False,
) -> None:
    """Run all experiments except digits and wiring; states the time needed first."""
    from thermoloom.experiments.estimate import estimate
    from thermoloom.experiments.run import check
    from thermoloom.runs.catalog import readable_bytes
    from thermoloom.runs.execution import Resources

    resources = Resources(workers, cluster, shared)
    folder = out or _folder(preset)
    values = plan_values(config, assignments, None)
    chosen = [(experiment(name), experiment(name).plan(preset, values)) for name in TOGETHER]
    for one, plan in chosen:
        check(one, plan, folder, resources)
    compile_now([model for one, plan in chosen for model in one.models(plan)])
    needed = estimate(chosen, folder, resources.processes)
    typer.echo(
        f"to do: {needed.trainings} trainings and {needed.samples:,} samples, about "
        f"{max(1, round(needed.seconds / 60))} min and {readable_bytes(needed.bytes)} in {folder}",
        err=True,
    )
    if sys.stdin.isatty() and needed.seconds > 600 and not yes:
        typer.confirm("go on?", abort=True)
    failed: list[str] = []
    for name in TOGETHER:
        typer.echo(f"--- {name} ---", err=True)
        try:
            run_experiment(name, preset, values, folder, resources)
        except typer.Exit:
            failed.append(name)
    from thermoloom.presentation.report import write_report

    drawn = [name for name in TOGETHER if name not in failed]
    typer.echo(f"report of all  {write_report(folder, kept=drawn).path}")
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def plan_values(config: Path | None, assignments: list[str] | None, seeds: str | None) -> Values:
    """What differs from a preset: the TOML file, then --set, then --seeds."""
    from thermoloom.experiments.plan import SECTION

    own = {} if seeds is None else {SECTION: {"seeds": parse_seeds(seeds)}}
    return merged(config, assignments, own, SECTION)


def parse_seeds(text: str) -> list[int]:
    """``101-105`` and ``7,8,9``, also together, as whole numbers."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not _is_seed(low) or (dash and not _is_seed(high)):
            raise UserError(f"--seeds {shown(text)}: expected seeds such as 101-105 or 7,8,9")
        seeds = range(int(low), int(high if dash else low) + 1)
        if not seeds:
            raise UserError(f"--seeds {shown(text)}: {part.strip()} runs backwards")
        if len(found) + len(seeds) > MOST_SEEDS:
            raise UserError(f"--seeds {shown(text)}: more than {MOST_SEEDS:,} seeds")
        found += seeds
    return found


def _is_seed(text: str) -> bool:
    """Plain digits (² is a digit too, and no number), few enough for a seed."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_SEED))


def parse_share(text: str) -> tuple[int, int]:
    """``2/5``: the second of five shares."""
    number, _, count = text.partition("/")
    if not (_is_seed(number) and _is_seed(count) and 1 <= int(number) <= int(count) <= MOST_SEEDS):
        raise UserError(f"--task {shown(text)}: expected a share such as 2/5, from 1/5 to 5/5")
    return int(number), int(count)


def run_share(
    name: str,
    preset: str,
    values: Values,
    folder: Path,
    resources: Resources,
    share: tuple[int, int],
) -> None:
    """One share of an experiment's tasks, and how to go on once all are done."""
    chosen = experiment(name)
    plan = chosen.plan(preset, values)
    from thermoloom.experiments.run import check, compute_share
    from thermoloom.runs.progress import progress_for

    check(chosen, plan, folder, resources)
    compile_now(chosen.models(plan))
    done = compute_share(chosen, plan, folder, share, resources, progress_for())
    for line in dict.fromkeys(done.warnings):
        typer.echo(f"note: {line}", err=True)
    number, count = share
    typer.echo(f"share {number} of {count} done: {done.summary['tasks']} task(s) in {folder}")
    typer.echo("once all shares are done, run this without --task for tables and report")
    _tell_failures(done.failures)


def run_experiment(
    name: str, preset: str, values: Values, folder: Path, resources: Resources
) -> None:
    """Run, say what came out and where the time went; exit code 1 if a task failed."""
    began = time.monotonic()
    chosen = experiment(name)
    plan = chosen.plan(preset, values)
    from thermoloom.experiments.run import check
    from thermoloom.presentation.report import write_page, write_report
    from thermoloom.reproduction import reproduce
    from thermoloom.runs.progress import progress_for
    from thermoloom.runs.store import RunDirectory

    check(chosen, plan, folder, resources)
    compile_now(chosen.models(plan))
    compiled = time.monotonic()
    progress = progress_for()

    def so_far(run: RunDirectory, summary: dict[str, Any]) -> None:
        seeds = summary["interim"]
        page = write_page(run, pdf=False).path
        progress.note(f"{seeds['seeds']} of {seeds['of']} pairs so far: {page}")

    done = reproduce(chosen, plan, folder, resources, progress, so_far)
    for line in dict.fromkeys(done.warnings):
        typer.echo(f"note: {line}", err=True)
    if done.summary:
        report = write_report(done.path)
        seconds = done.seconds | report.seconds
        typer.echo("\n".join(result_lines(done.summary)))
        typer.echo("\n".join(time_lines(done.summary, seconds, compiled - began)))
        typer.echo(f"report  {report.path}")
    _tell_failures(done.failures)


def _tell_failures(failed: list[str]) -> None:
    """Exit code 1 if there are any."""
    if failed:
        typer.echo(f"{len(failed)} task(s) failed:", err=True)
        for line in failed:
            typer.echo(f"  {line}", err=True)
        raise typer.Exit(1)


def result_lines(summary: dict[str, Any]) -> list[str]:
    """The headline numbers and the tally of verdicts, for a terminal."""
    from thermoloom.presentation.verdicts import tally

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
    found = tally({k: count for k, count in summary["verdicts"].items() if k != "all"})
    return [*lines, f"the paper's statements: {found}"] if found else lines


def time_lines(summary: dict[str, Any], seconds: dict[str, float], before: float) -> list[str]:
    """Where the time went: work by stage over all processes, then this process by the clock."""
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
            help="An experiment or a results folder.", metavar="DIR", parser=path_of("DIR")
        ),
    ],
) -> None:
    """Draw the figures and write the report again, from saved tables."""
    from thermoloom.presentation.report import write_report

    typer.echo(write_report(folder).path)
