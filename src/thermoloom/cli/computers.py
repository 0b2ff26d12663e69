"""Commands on one computer: ``settings``, ``train`` or ``solve``, then ``generate``, ``show``."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermoloom.cli.options import (
    AsJson,
    Assignments,
    Config,
    EngineOption,
    Values,
    compile_now,
    emit,
    flag,
    merged,
    option,
    path_of,
    path_option,
    say,
    shell_word,
    takes,
    wired,
)
from thermoloom.errors import UserError
from thermoloom.inputs import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from thermoloom.machine.machine import Machine
    from thermoloom.patterns.patterns import Patterns
    from thermoloom.settings import Settings

ComputerPath = Annotated[
    Path,
    typer.Argument(
        help="Run directory, or a file that computer.save wrote.",
        metavar="RUN",
        parser=path_of("RUN"),
    ),
]
Out = Annotated[
    Path | None,
    path_option("--out", "DIR", "Run directory; by default derived from the settings."),
]
MACHINE = {
    "stages": option(int, "Windows of the noising path, each with its own parameters (default 1)."),
    "labels": option(int, "Label units, one per class that can be requested (default 0)."),
    "styles": option(
        int, "Label units per class; generation draws one of them at random (default 1)."
    ),
    "code": option(
        str, "Code of the hidden units: projection (default), copy, signs, clusters or given.",
        "CODE",
    ),
    "topology": option(
        str, "Which units are wired: complete (default), grid, moore, random or edges.", "TOPOLOGY"
    ),
    "radius": option(
        int, "Longest wire of a grid or moore neighbourhood, in sites of the sheet.", "R"
    ),
    "degree": option(int, "Mean number of wires per unit in a random topology.", "D"),
    "edges": option(
        Path, "List of wires: two units on each line (visible first, counted from 0), or .npy.",
        "FILE", "--edges",
    ),
}  # fmt: skip
"""Settings of [machine] among the options of ``train`` and ``solve``."""
TRAINING = {
    "rule": option(
        str, "Learning rule: online (default), batch, delayed or module:object.", "RULE"
    ),
    "period": option(int, "Steps between updates, for rules other than online and batch.", "M"),
    "seed": option(int, "Training seed (default 101)."),
    "cycles": option(int, "Training cycles, each one noising trajectory (default 300)."),
}
SOLVER = {
    "heat_weight": option(
        float, "Weight of the expected heat (in kT), which is added to the loss (default 0)."
    ),
    "ridge": option(float, "Weight ρ of a penalty ½ρ|θ|², which is added to the loss (default 0)."),
}


def settings() -> None:
    """Print every setting with its default and meaning, as a TOML file for --config."""
    from thermoloom.settings import settings_file

    print(settings_file())


@takes("training", TRAINING)
@takes("machine", MACHINE)
def train(
    training: dict[str, Any],
    machine: dict[str, Any],
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints.", min=0.0)
    ] = 30.0,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Train a computer; run the same command again to continue an interrupted training."""
    options = {"training": training, "machine": wired(machine)}
    settings, patterns, path = _learning(config, assignments, options, out)
    from thermoloom.computers.training_runs import check_run, train_runs
    from thermoloom.presentation.terminal import progress
    from thermoloom.runs.store import RunDirectory
    from thermoloom.training.trainer import Trainee

    check_run(path, settings, patterns)
    compile_now([settings], generating=False)
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
            train_runs([(path, settings)], on_cycle, say, checkpoint_every, patterns)
        except KeyboardInterrupt:
            say(f"stopped; {path} has a checkpoint: run the same command again to continue")
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
            *_wires(settings.machine),
            f"cycles            {run.results['cycles']}",
            f"validation loss   {run.results['loss']:.4f} per step",
            f"  minus squared increments   {run.results['reduced_loss']:.4f}",
            f"next: thermoloom generate {shell_word(path)}",
        ],
    )


def _learning(
    config: Path | None, assignments: list[str] | None, options: Values, out: Path | None
) -> tuple[Settings, Patterns, Path]:
    """Settings that name the content of their patterns, the patterns, and the run directory."""
    from thermoloom.settings import Settings

    settings = Settings.from_dict(merged(config, assignments, options))
    from thermoloom.computers.pattern_store import named
    from thermoloom.computers.training_runs import training_path
    from thermoloom.patterns.patterns import load_patterns

    patterns = load_patterns(settings.patterns, settings.machine)
    settings = named(settings, patterns)
    return settings, patterns, out or training_path(Path("results/runs"), settings)


def _wires(machine: Machine) -> list[str]:
    """Size of the wiring, for machines whose wiring is not complete."""
    from thermoloom.machine.wires import measure

    if not machine.sparse:
        return []
    wiring = measure(machine)
    return [
        f"wires             {wiring.wires:,}, {wiring.degree:.1f} per unit; "
        f"length {wiring.length:,}, mean {wiring.mean_length:.1f}, longest {wiring.longest}; "
        f"{wiring.drive_lines:,} drive lines"
    ]


def generate(
    run: ComputerPath,
    samples: Annotated[int, typer.Option(help="Samples to generate.")] = 200,
    seed: Annotated[
        int | None, typer.Option(help="Generation seed; 90000 + training seed by default.")
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            help="Class to generate, or several in turn, such as 3 or 0,1,2; by default all "
            "classes in turn.",
            metavar="CLASS",
        ),
    ] = None,
    clamp: Annotated[
        Path | None,
        path_option(
            "--clamp", "IMAGE", "Image (PNG or .npy) with some known pixels, to be completed."
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        path_option(
            "--mask", "MASK", "Image of the same size, white (.npy: not 0) where pixels are known."
        ),
    ] = None,
    hold: Annotated[
        bool,
        flag("--hold", "Hold known pixels still, instead of moving them as in training."),
    ] = False,
    assignments: Assignments = None,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Sample a trained computer and measure the heat it releases.

    With --set machine.kT=0.2, the computer runs under conditions other than those of its training;
    with --set device.dead=0.1, on an imperfect device.
    """
    from thermoloom.computers.computer_files import (
        archive_path,
        learning_at,
        samples_of,
        unfinished_note,
    )
    from thermoloom.computers.conditions import under
    from thermoloom.computers.sample_archives import SampleRequest
    from thermoloom.generation import check_generation
    from thermoloom.machine.energy import label_word
    from thermoloom.patterns.clamps import clamp_of, read_mask, read_picture
    from thermoloom.presentation.terminal import progress

    settings, patterns, _ = learning_at(run)
    trained_on, conditions = settings.device, _conditions(assignments)
    settings = settings.updated({"generation": {"samples": samples, "seed": seed}})
    settings = settings.updated({"device": conditions.get("device", {})})
    settings = under(settings, conditions.get("machine", {}))
    machine = settings.machine
    check_generation(settings.built, samples)
    requested = _class_numbers(classes)
    if requested is not None:
        label_word(machine, requested)
    known = None
    if clamp is None and (mask is not None or hold):
        raise UserError(f"{'--hold' if mask is None else '--mask'}: needs --clamp IMAGE")
    if clamp is not None and mask is None:
        raise UserError("--clamp: needs --mask MASK, which is white where pixels are known")
    if clamp is not None and mask is not None:
        image, light = read_picture("--clamp", clamp), read_mask("--mask", mask)
        known = clamp_of(machine, patterns, image, samples, light, hold)
    device = None if settings.device == trained_on else settings.device
    others = conditions.get("machine", {})
    order = SampleRequest(samples, settings.generation_seed, requested, known, device, others)
    compile_now([settings], learning=False)
    total, done = samples * machine.generation_steps, 0
    with progress("generating", total, "sample-steps") as advance:

        def on_progress(new_steps: int) -> None:
            nonlocal done
            done += new_steps
            advance(done, f"{samples} samples")

        generated = samples_of(run, order, on_progress)
    archive = archive_path(run, order)
    results = {
        "run": str(run),
        "archive": str(archive),
        "samples": samples,
        "seed": settings.generation_seed,
        **_energy("heat", generated.heat, machine.kT),
    }
    lines = [f"archive     {archive}", _energy_line("heat", generated.heat, machine.kT)]
    if note := unfinished_note(run):
        results["unfinished"] = note
        lines.insert(0, note)
    error = float(generated.discretization_error.mean())
    if math.isfinite(error):
        results["mean_discretization_error"] = error
        lines.append(f"  discretization error {error:+.3f} E0 (heat summed along the steps − heat)")
    if machine.switches or known is not None or settings.device.non_reciprocity:
        results |= _energy("work", generated.work, machine.kT)
        lines.append(_energy_line("work", generated.work, machine.kT))
    emit(as_json, results, [*lines, f"next: thermoloom show {shell_word(run)}"])


def _conditions(assignments: list[str] | None) -> Values:
    """Settings of machine and device from --set; training has fixed all others."""
    values = merged(None, assignments, {})
    for section, entries in values.items():
        if section not in ("machine", "device"):
            key = f"{section}.{next(iter(entries))}"
            raise UserError(
                f"--set {key}: fixed by training; generate accepts settings of machine and device"
            )
    return values


def _class_numbers(texts: list[str] | None) -> tuple[int, ...] | None:
    """Whole numbers from texts such as ``3`` and ``0,1,2``."""
    if texts is None:
        return None
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UserError(f"--class {shown(','.join(texts))}: expected classes such as 3 or 0,1,2")
    return tuple(int(part) for part in parts)


def _energy(name: str, values: NDArray[np.float64], kT: float) -> dict[str, float | None]:
    """Mean, standard deviation and standard error over the samples."""
    from thermoloom.measures.statistics import estimate_mean

    estimate = estimate_mean(values)
    return {
        f"mean_{name}": estimate.mean,
        f"sd_{name}": estimate.sd,
        f"sem_{name}": estimate.sem,
        f"mean_{name}_kT": estimate.mean / kT,
    }


def _energy_line(name: str, values: NDArray[np.float64], kT: float) -> str:
    energy = _energy(name, values, kT)
    sem, mean = energy[f"sem_{name}"], energy[f"mean_{name}"]
    error = "" if sem is None else f" ± {sem:.2f} (standard error over trajectories)"
    return f"mean {name}   {mean:.2f} E0{error} = {energy[f'mean_{name}_kT']:.1f} kT"


def show(
    run: ComputerPath,
    samples: Annotated[int, typer.Option(help="Samples on the sheet.", min=1)] = 60,
    movie: Annotated[
        bool,
        flag("--movie", "Also write an animation of noise turning into images (GIF)."),
    ] = False,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw the loss curve and a sheet of generated images with their requested classes, as PNG."""
    from thermoloom.computers.computer_files import (
        beside,
        latest_samples,
        learning_at,
        unfinished_note,
    )
    from thermoloom.presentation.image_sheet import png, sample_figure
    from thermoloom.presentation.loss_curve import loss_curve
    from thermoloom.runs.files import write_atomically

    settings, patterns, curve = learning_at(run)
    title = f"{settings.training.rule}, seed {settings.training.seed}"
    title = "solved" if settings.solved else title
    title += f", {note}" if (note := unfinished_note(run)) else ""
    pictures = {"loss.png": loss_curve(curve, title)} if len(curve["cycle"]) > 1 else {}
    latest, notes = latest_samples(run), []
    if latest is None:
        notes.append(f"no samples yet: thermoloom generate {shell_word(run)}")
    elif patterns.shape is None:
        notes.append("the visible layer is not an image, so there is no sheet of samples")
    else:
        name, generated, requested = latest
        heading = f"{title}: {name}, mean heat {generated.heat.mean():.1f} E0"
        states = generated.final_states[:, : settings.machine.visible]
        images = patterns.scale.data(settings.machine, states)
        names = None if requested is None else patterns.names_of(requested)
        sheet = sample_figure(images, patterns.shape, heading, samples, names)
        pictures["samples.png"] = png(sheet)
    if movie and patterns.shape is None:
        notes.append("the visible layer is not an image, so there is no movie")
    elif movie:
        pictures["movie.gif"] = _movie(run, patterns.shape)
    for name, data in pictures.items():
        write_atomically(beside(run, name), data)
    paths = [str(beside(run, name)) for name in pictures]
    emit(as_json, {"pictures": paths, "notes": notes}, [*paths, *notes])


def _movie(run: Path, shape: Sequence[int] | None) -> bytes:
    """Animation of ten samples from noise to image, one per class where there are labels."""
    import numpy as np

    from thermoloom.computers.computer_files import open_computer
    from thermoloom.generation import trajectories
    from thermoloom.presentation.movie import FRAMES, SHOWN, animation

    computer = open_computer(run)
    assert shape is not None
    settings = computer.settings
    compile_now([settings], learning=False)
    frames = np.linspace(0, settings.machine.generation_steps, FRAMES).round().astype(int).tolist()
    animated = trajectories(computer.parameters, SHOWN, settings.generation_seed, frames)
    images = animated.states[..., : settings.machine.visible]
    return animation(images, shape, animated.heat.mean(axis=0), settings.machine.kT)


@takes("machine", MACHINE)
@takes("solver", SOLVER)
def solve(
    machine: dict[str, Any],
    solver: dict[str, Any],
    out: Out = None,
    config: Config = None,
    assignments: Assignments = None,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Compute the optimum that training approaches, exactly and without a trajectory."""
    options: Values = {"solver": solver, "machine": wired(machine)}
    settings, patterns, path = _learning(config, assignments, options, out)
    from thermoloom.computers.training_runs import solve_run
    from thermoloom.presentation.terminal import console
    from thermoloom.runs.store import RunDirectory

    with console().status("solving") as status:
        solve_run(
            path,
            settings,
            lambda step, size: status.update(f"solving: step {step}, relative gradient {size:.1e}"),
            patterns,
        )
    results = RunDirectory.open(path).results
    heat, kT, expected = results.get("expected_heat"), settings.machine.kT, []
    if heat is not None:
        expected = [f"expected heat     {heat:.2f} E0 = {heat / kT:.1f} kT, on the reverse path"]
    emit(
        as_json,
        {"run": str(path), **results},
        [
            f"run               {path}",
            *_wires(settings.machine),
            f"conjugate gradients   {results['iterations']} steps, {results['seconds']:.1f} s, "
            f"relative gradient {results['relative_gradient']:.1e}",
            f"expected loss     {results['expected_loss']:.4f} per step "
            f"({results['initial_expected_loss']:.4f} at θ = 0)",
            *expected,
            f"validation loss   {results['loss']:.4f} per step",
            f"next: thermoloom generate {shell_word(path)}",
        ],
    )
