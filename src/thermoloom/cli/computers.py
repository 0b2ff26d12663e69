"""One computer: ``settings``, ``train`` or ``solve``, then ``generate`` and ``show``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from thermoloom.cli.options import (
    AsJson,
    Assignments,
    Config,
    compile_now,
    emit,
    merged,
    path_of,
    say,
)
from thermoloom.config import Settings, settings_file
from thermoloom.errors import UserError

RunPath = Annotated[
    Path, typer.Argument(help="Run directory.", metavar="RUN", parser=path_of("RUN"))
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Run directory; by default found by the settings.",
        metavar="DIR",
        parser=path_of("--out"),
    ),
]


def settings() -> None:
    """Print every setting with its default and meaning, as a TOML file for --config."""
    print(settings_file())


def train(
    rule: Annotated[
        str | None, typer.Option(help="online (default), batch or delayed.", metavar="RULE")
    ] = None,
    period: Annotated[
        int | None, typer.Option(help="Steps between updates, for rule delayed.", metavar="M")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Training seed (default 101).")] = None,
    cycles: Annotated[int | None, typer.Option(help="Noising trajectories (default 300).")] = None,
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints.", min=0.0)
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a computer; run the same command again to continue an interrupted training."""
    options = {"rule": rule, "period": period, "seed": seed, "cycles": cycles}
    settings = Settings.from_dict(merged(config, assignments, {"training": options}))
    from thermoloom.presentation.terminal import progress
    from thermoloom.prototypes import load_prototypes
    from thermoloom.runs.jobs import check_run, train_runs, training_path
    from thermoloom.runs.patterns import named
    from thermoloom.runs.store import RunDirectory
    from thermoloom.training.trainer import Trainee

    prototypes = load_prototypes(settings.prototypes, settings.machine)
    settings = named(settings, prototypes)
    path = out or training_path(Path("results/runs"), settings)
    check_run(path, settings, prototypes)
    compile_now()
    total, began = settings.training.cycles, time.monotonic()
    title = f"{settings.training.rule}, seed {settings.training.seed}"
    taken = 0

    with progress(title, total, "cycles") as advance:

        def on_cycle(_: Path, trainee: Trainee) -> None:
            nonlocal taken
            taken += 1
            rate = taken * settings.machine.steps / (time.monotonic() - began)
            loss = f"loss {trainee.curve[-1][1]:.3f}" if trainee.curve else ""
            advance(trainee.cycle, f"{rate:,.0f} steps/s, {loss}")

        try:
            train_runs([(path, settings)], on_cycle, say, checkpoint_every, prototypes)
        except KeyboardInterrupt:
            say(f"stopped; {path} keeps what was done: run the same command again to go on")
            raise
    run = RunDirectory.open(path)
    results = {"run": str(path), "state": run.state, "reason": run.manifest.reason, **run.results}
    if run.state == "diverged":
        advice = "try a smaller learning rate (training.learning_rate_scale)"
        emit(as_json, results, [f"diverged: {run.manifest.reason}; {advice}", f"run   {path}"])
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


def generate(
    run: RunPath,
    samples: Annotated[int, typer.Option(help="Denoising trajectories.")] = 200,
    seed: Annotated[
        int | None, typer.Option(help="Generation seed; 90000 + training seed by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sample a trained computer and measure the heat that it gives off."""
    from thermoloom.feasibility import check_generation
    from thermoloom.measures.statistics import spread
    from thermoloom.presentation.terminal import progress
    from thermoloom.runs.jobs import archive_name, generate_run, settings_of
    from thermoloom.runs.store import RunDirectory

    settings = settings_of(RunDirectory.open(run)).updated(
        {"generation": {"samples": samples, "seed": seed}}
    )
    check_generation(settings.machine, samples)
    compile_now()
    total, done = samples * settings.machine.steps, 0
    with progress("generating", total, "sample-steps") as advance:

        def on_progress(more: int) -> None:
            nonlocal done
            done += more
            advance(done, f"{samples} samples")

        generated = generate_run(run, samples, settings.generation_seed, on_progress)
    heat, kT = spread(generated.heat), settings.machine.kT
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


def show(
    run: RunPath,
    samples: Annotated[int, typer.Option(help="Samples on the sheet.", min=1)] = 60,
    as_json: AsJson = False,
) -> None:
    """Draw the loss curve and a sheet of generated images as PNG."""
    from thermoloom.presentation.sheets import loss_curve, sample_sheet
    from thermoloom.runs.files import write_atomically
    from thermoloom.runs.jobs import archives, prototypes_of, read_archive, settings_of
    from thermoloom.runs.store import RunDirectory

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
        images = generated.visible(settings.machine)
        pictures["samples.png"] = sample_sheet(images, shape, heading, samples)
    for name, data in pictures.items():
        write_atomically(run / name, data)
    paths = [str(run / name) for name in pictures]
    emit(as_json, {"pictures": paths, "notes": notes}, [*paths, *notes])


def solve(
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Compute the optimum that training approaches: the least expected loss, without a path."""
    rule = {"training": {"rule": "optimum"}}
    settings = Settings.from_dict(merged(config, assignments, rule))
    from thermoloom.presentation.terminal import console
    from thermoloom.prototypes import load_prototypes
    from thermoloom.runs.jobs import solve_run, training_path
    from thermoloom.runs.patterns import named
    from thermoloom.runs.store import RunDirectory

    prototypes = load_prototypes(settings.prototypes, settings.machine)
    settings = named(settings, prototypes)
    path = out or training_path(Path("results/runs"), settings)
    with console().status("solving") as status:
        solve_run(
            path,
            settings,
            lambda step, size: status.update(f"solving: step {step}, relative gradient {size:.1e}"),
            prototypes,
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
