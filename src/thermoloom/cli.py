"""The command line: arguments in, calls to the rooms behind it, results out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from thermoloom.cli_experiments import add_experiment_commands
from thermoloom.config import Settings, parse_assignment, read_toml
from thermoloom.errors import UserError

app = typer.Typer(
    help="Simulate, train and measure generative thermodynamic computers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="TOML file with settings.", metavar="FILE")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="One setting, such as physics.kT=0.2.", metavar="KEY=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
RunPath = Annotated[Path, typer.Argument(help="Run directory.", metavar="RUN")]


def assemble(
    config: Path | None, assignments: list[str] | None, overrides: dict[str, dict[str, Any]]
) -> Settings:
    """Defaults, then the TOML file, then --set, then options of their own, checked as a whole."""
    merged: dict[str, dict[str, Any]] = {}
    layers = [read_toml(config)] if config else []
    layers += [parse_assignment(text) for text in assignments or []]
    layers.append({k: {n: v for n, v in e.items() if v is not None} for k, e in overrides.items()})
    for layer in layers:
        for section, entries in layer.items():
            known = merged.setdefault(section, {})
            if not isinstance(entries, dict):
                raise UserError(f"{section}: expected a table [{section}] of settings")
            known.update(entries)
    return Settings.from_dict(merged)


def say(text: str) -> None:
    """A line for people, on standard error."""
    from thermoloom.presentation.progress import console

    console().print(text, highlight=False, soft_wrap=True)


def emit(as_json: bool, results: dict[str, Any], lines: list[str]) -> None:
    """Results on standard output: JSON for machines, or lines for people."""
    from thermoloom.runs.store import jsonable

    text = json.dumps(jsonable(results), indent=2) if as_json else "\n".join(lines)
    print(text)


@app.command()
def train(
    rule: Annotated[
        str | None, typer.Option(help="online, batch or delayed.", metavar="RULE")
    ] = None,
    period: Annotated[
        int | None, typer.Option(help="Steps between updates, for rule delayed.", metavar="M")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Training seed.")] = None,
    cycles: Annotated[int | None, typer.Option(help="Noising trajectories.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default found by the settings.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints.", min=0.0)
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a computer; run the same command again to continue an interrupted training."""
    options = {"rule": rule, "period": period, "seed": seed, "cycles": cycles}
    settings = assemble(config, assignments, {"training": options})
    from thermoloom.kernels import compile_kernels
    from thermoloom.presentation.progress import compiling, progress
    from thermoloom.runs.jobs import train_runs, training_path
    from thermoloom.runs.store import RunDirectory
    from thermoloom.training.trainer import Trainee

    path = out or training_path(Path("results/runs"), settings)
    with compiling():
        compile_kernels()
    total, began = settings.training.cycles, time.monotonic()
    title = f"{settings.training.rule}, seed {settings.training.seed}"
    taken = 0

    with progress(title, total, "cycles") as advance:

        def on_cycle(_: Path, trainee: Trainee) -> None:
            nonlocal taken
            taken += 1
            rate = taken * settings.physics.steps / (time.monotonic() - began)
            loss = f"loss {trainee.curve[-1][1]:.3f}" if trainee.curve else ""
            advance(trainee.cycle, f"{rate:,.0f} steps/s, {loss}")

        try:
            train_runs([(path, settings)], on_cycle, say, checkpoint_every)
        except KeyboardInterrupt:
            say(f"stopped; {path} keeps what was done: run the same command again to go on")
            raise
    run = RunDirectory.open(path)
    results = {"run": str(path), "state": run.state, "reason": run.manifest.reason, **run.results}
    if run.state == "diverged":
        emit(as_json, results, [f"diverged: {run.manifest.reason}", f"run   {path}"])
        raise typer.Exit(1)
    emit(
        as_json,
        results,
        [
            f"run               {path}",
            f"cycles            {run.results['cycles']}",
            f"validation loss   {run.results['loss']:.4f} per step",
            f"  minus squared increments   {run.results['reduced_loss']:.4f}",
            f"next: thermoloom generate {path}",
        ],
    )


@app.command()
def generate(
    run: RunPath,
    samples: Annotated[int, typer.Option(help="Denoising trajectories.")] = 200,
    seed: Annotated[
        int | None, typer.Option(help="Generation seed; 90000 + training seed by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sample a trained computer and measure the heat that it gives off."""
    from thermoloom.kernels import compile_kernels
    from thermoloom.measures.statistics import spread
    from thermoloom.presentation.progress import compiling, progress
    from thermoloom.runs.jobs import archive_name, generate_run, settings_of
    from thermoloom.runs.store import RunDirectory

    settings = settings_of(RunDirectory.open(run)).updated(
        {"generation": {"samples": samples, "seed": seed}}
    )
    with compiling():
        compile_kernels()
    total, done = samples * settings.physics.steps, 0
    with progress("generating", total, "sample-steps") as advance:

        def on_progress(more: int) -> None:
            nonlocal done
            done += more
            advance(done, f"{samples} samples")

        generated = generate_run(run, samples, settings.generation_seed, on_progress)
    heat, kT = spread(generated.heat), settings.physics.kT
    name = archive_name(settings.generation_seed, samples)
    sem = None if heat.sem is None else heat.sem
    results = {
        "run": str(run),
        "archive": str(run / f"{name}.safetensors"),
        "samples": samples,
        "seed": settings.generation_seed,
        "mean_heat": heat.mean,
        "sd_heat": heat.sd,
        "sem_heat": sem,
        "mean_heat_kT": heat.mean / kT,
    }
    spread_text = "" if sem is None else f" ± {sem:.2f} (standard error over trajectories)"
    emit(
        as_json,
        results,
        [
            f"archive     {results['archive']}",
            f"mean heat   {heat.mean:.2f} E0{spread_text} = {heat.mean / kT:.1f} kT",
            f"next: thermoloom show {run}",
        ],
    )


@app.command()
def show(
    run: RunPath,
    samples: Annotated[int, typer.Option(help="Samples on the sheet.", min=1)] = 60,
    as_json: AsJson = False,
) -> None:
    """Draw the loss curve and a sheet of generated images as PNG."""
    from thermoloom.presentation.sheets import loss_curve, sample_sheet
    from thermoloom.runs.jobs import archives, prototypes_of, read_archive, settings_of
    from thermoloom.runs.store import RunDirectory, write_atomically

    directory = RunDirectory.open(run)
    settings = settings_of(directory)
    if not directory.has("curve.csv"):
        raise UserError(f"{run}: training is not done; continue it with thermoloom train")
    title = f"{settings.training.rule}, seed {settings.training.seed}"
    pictures = {"loss.png": loss_curve(directory.load_table("curve"), title)}
    names, shape = archives(directory), prototypes_of(directory).shape
    notes = []
    if not names:
        notes.append(f"no samples yet: thermoloom generate {run}")
    elif shape is None:
        notes.append("the visible layer is no image, so there is no sheet of samples")
    else:
        generated = read_archive(directory, names[-1])
        heading = f"{title}: {names[-1]}, mean heat {generated.heat.mean():.1f} E0"
        images = generated.visible(settings.physics)
        pictures["samples.png"] = sample_sheet(images, shape, heading, samples)
    for name, data in pictures.items():
        write_atomically(run / name, data)
    paths = [str(run / name) for name in pictures]
    emit(as_json, {"pictures": paths, "notes": notes}, [*paths, *notes])


@app.command()
def solve(
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default found by the settings.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Compute the optimum that training approaches: the least expected loss, without a path."""
    settings = assemble(config, assignments, {"training": {"rule": "optimum"}})
    from thermoloom.presentation.progress import console
    from thermoloom.runs.jobs import solve_run, training_path
    from thermoloom.runs.store import RunDirectory

    path = out or training_path(Path("results/runs"), settings)
    with console().status("solving") as status:
        solve_run(
            path,
            settings,
            lambda step, size: status.update(f"solving: step {step}, relative gradient {size:.1e}"),
        )
    results = RunDirectory.open(path).results
    emit(
        as_json,
        {"run": str(path), **results},
        [
            f"run               {path}",
            f"conjugate gradients   {results['iterations']} steps, {results['seconds']:.1f} s, "
            f"relative gradient {results['relative_gradient']:.1e}",
            f"expected loss     {results['expected_loss']:.4f} per step "
            f"({results['initial_expected_loss']:.4f} at θ = 0)",
            f"validation loss   {results['loss']:.4f} per step",
            f"next: thermoloom generate {path}",
        ],
    )


runs_app = typer.Typer(help="What is in a results folder.", invoke_without_command=True)
app.add_typer(runs_app, name="runs")
Folder = Annotated[Path, typer.Option("--folder", help="Results folder.", metavar="DIR")]


@runs_app.callback()
def list_runs(
    context: typer.Context, folder: Folder = Path("results"), as_json: AsJson = False
) -> None:
    """List runs: id, kind, state, age, size and the settings that tell them apart."""
    if context.invoked_subcommand:
        return
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from thermoloom.runs import catalog

    found = catalog.list_runs(folder)
    if as_json:
        emit(True, {"runs": [asdict(run) for run in found]}, [])
        return
    table = Table("run", "kind", "state", "age", "size", "settings that differ", box=None)
    table.columns[0].no_wrap = True
    for run in found:
        telling = {k: v for k, v in run.settings.items() if not k.startswith("patterns.")}
        told = ", ".join(f"{key.partition('.')[2]}={value}" for key, value in telling.items())
        age, size = catalog.readable_age(run.age), catalog.readable_bytes(run.bytes)
        name = str(run.path.relative_to(folder))
        table.add_row(name, run.kind, run.state, age, size, told)
    Console().print(table if found else f"{folder}: no runs")


@runs_app.command("verify")
def verify_runs(folder: Folder = Path("results"), as_json: AsJson = False) -> None:
    """Check every array and file against its recorded SHA-256; exit code 1 if any is damaged."""
    from dataclasses import asdict

    from thermoloom.runs import catalog

    report = catalog.verify(folder)
    lines = [f"damaged: {damage.file}: {damage.what}" for damage in report.damaged]
    lines += [f"skipped: {line}" for line in report.skipped]
    size = catalog.readable_bytes(report.bytes)
    lines.append(f"{report.runs} runs, {report.files} files, {size}: {len(report.damaged)} damaged")
    emit(as_json, asdict(report), lines)
    if report.damaged:
        raise typer.Exit(1)


@runs_app.command("prune")
def prune_runs(
    folder: Folder = Path("results"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove what can be recomputed: checkpoints of finished runs, leftovers of killed ones."""
    from thermoloom.runs import catalog

    items = catalog.prunable(folder)
    if not items:
        print(f"{folder}: nothing to remove")
        return
    for item in items:
        print(f"{item.file}  {catalog.readable_bytes(item.bytes)}  {item.why}")
    total = catalog.readable_bytes(sum(item.bytes for item in items))
    if not yes and not typer.confirm(f"remove these {len(items)} files, {total}?"):
        print("nothing removed")
        return
    print(f"freed {catalog.readable_bytes(catalog.prune(items))}")


add_experiment_commands(app)


def main() -> None:
    """Entry point: user errors as one line and exit code 2, interruption as 130."""
    try:
        app()
    except UserError as error:
        say(f"[red]error:[/red] {_escaped(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        if str(interruption):
            say(_escaped(str(interruption)))
        sys.exit(130)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
