"""Training in a run directory; an interrupted training continues where it stopped.

RUN/patterns.safetensors        the patterns
RUN/checkpoint-….safetensors    states from which training can continue
RUN/computer.safetensors        the trained parameters
RUN/curve.csv                   validation loss
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from thermoloom.computers.learning import solve_computer
from thermoloom.computers.pattern_store import (
    identified,
    named,
    patterns_of,
    read_patterns,
    save_patterns,
)
from thermoloom.errors import UserError
from thermoloom.feasibility import require_memory, size_memory
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive, check_labels, drive_of, unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.files import reading
from thermoloom.runs.formats import array_of
from thermoloom.runs.manifest import run_path
from thermoloom.runs.store import RunDirectory, finished_results, refuse_claimed
from thermoloom.settings import Settings, current_names
from thermoloom.training.checks import check_learning, check_training
from thermoloom.training.trainer import CURVE, Trainee, check_cycles, train

KIND = "training"
PATTERNS, OLD_PATTERNS = "patterns", "prototypes"
"""Name of the learned patterns in a run, and their name before 0.2."""
MEMORY = "memory"
"""Name of the learning rule's state in a finished run; most rules have none."""
CHECKPOINT_SECONDS = 30.0
TRAINING_SECTIONS = ("machine", "patterns", "training", "imperfections", "device", "solver")
"""Sections that determine a computer; generation does not."""
NOT_SOLVED = ("training", "imperfections")
"""Sections on which a solved computer does not depend."""

OnCycle = Callable[[Path, Trainee], None]
OnWarning = Callable[[str], None]


def training_settings(settings: Settings) -> dict[str, Any]:
    """The identity of a training run: its settings, which name the patterns it learns.

    A solved computer has no training, only the validation path of its loss.
    """
    sections = identified(settings).as_dict()
    identity = {name: sections[name] for name in TRAINING_SECTIONS if name in sections}
    if not settings.solved:
        return identity
    solved = {name: values for name, values in identity.items() if name not in NOT_SOLVED}
    return solved | {"training": {"validation_seed": settings.training.validation_seed}}


def training_path(folder: Path, settings: Settings) -> Path:
    """Path of a training run in a results folder, derived from its settings alone."""
    return run_path(folder, KIND, training_settings(settings))


def check_run(path: Path, settings: Settings, patterns: Patterns) -> None:
    """Refuse settings with which nothing can be learned, and a path that is taken.

    Nothing is written.
    """
    check_learning(settings, Drive(unit_fields(patterns, settings.machine)))
    check_labels(patterns, settings.machine)
    refuse_claimed(path, KIND, training_settings(named(settings, patterns)))


def train_runs(
    runs: Sequence[tuple[Path, Settings]],
    on_cycle: OnCycle | None = None,
    on_warning: OnWarning | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    patterns: Patterns | None = None,
) -> None:
    """Train computers that share their noising paths, each in its run directory.

    Finished runs are skipped. Interrupted ones continue from their last good checkpoint and end
    bit-identical to runs that were never interrupted. A diverged training is recorded as such.
    ``patterns``: the patterns to learn; by default those of the settings.
    """
    settings = runs[0][1]
    learned = patterns_of(settings, runs[0][0].parent) if patterns is None else patterns
    drive = drive_of(learned, settings.machine)
    for _, wanted in runs:
        check_training(wanted, drive)
    with ExitStack() as stack:
        active: list[tuple[RunDirectory, Trainee]] = []
        for path, wanted in runs:
            run = RunDirectory.create(path, KIND, training_settings(named(wanted, learned)))
            stack.enter_context(run)
            if run.state not in ("done", "diverged"):
                active.append((run, _begin(run, wanted, learned)))
            for line in run.warnings:
                if on_warning:
                    on_warning(line)
        if active:
            _train(active, drive, on_cycle, checkpoint_seconds)


def solve_run(
    path: Path,
    settings: Settings,
    on_iteration: Callable[[int, float], None] | None = None,
    patterns: Patterns | None = None,
) -> None:
    """Solve for the computer of least expected loss and store it as a run."""
    learned = patterns_of(settings, path.parent) if patterns is None else patterns
    identity = training_settings(named(settings, learned))
    if finished_results(path, KIND, identity) is not None:
        return
    check_run(path, settings, learned)
    # solved before the directory is claimed: settings without a solution leave nothing behind
    computer = solve_computer(settings, learned, on_iteration)
    solution, curve = computer.solution, computer.curve
    assert solution is not None
    with RunDirectory.create(path, KIND, identity) as run:
        save_patterns(run, PATTERNS, learned)
        run.save_arrays("computer", solution.parameters.arrays)
        run.save_table("curve", curve)
        run.finish(
            {
                "iterations": solution.iterations,
                "seconds": solution.seconds,
                "relative_gradient": solution.relative_gradient,
                "expected_loss": solution.expected_loss,
                "initial_expected_loss": solution.initial_loss,
                "expected_heat": solution.expected_heat,
                **{key: float(curve[key][0]) for key in ("loss", "reduced_loss")},
            }
        )


def _begin(run: RunDirectory, settings: Settings, patterns: Patterns) -> Trainee:
    """A trainee at the run's last good checkpoint, or at θ = 0."""
    if not run.has(f"{PATTERNS}.safetensors"):
        save_patterns(run, PATTERNS, patterns)
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return Trainee.new(settings)
    with reading(run.path / checkpoint.name, "; remove it"):
        if checkpoint.cycle > settings.training.cycles:
            raise ValueError(f"this training has {settings.training.cycles} cycles")
        return Trainee.restore(settings, checkpoint.arrays, checkpoint.cycle)


def _train(
    active: list[tuple[RunDirectory, Trainee]],
    drive: Drive,
    on_cycle: OnCycle | None,
    checkpoint_seconds: float,
) -> None:
    path_of = {id(trainee): run.path for run, trainee in active}
    unfinished = list(active)

    def save(checkpoints: bool) -> None:
        """Save finished computers and, on request, checkpoints of the others."""
        for run, trainee in list(unfinished):
            if trainee.finished:
                _finish(run, trainee)
                unfinished.remove((run, trainee))
            elif checkpoints:
                run.save_checkpoint(trainee.cycle, trainee.arrays())

    saved = time.monotonic()

    def after_cycle(present: list[Trainee]) -> None:
        nonlocal saved
        for trainee in present:
            if on_cycle:
                on_cycle(path_of[id(trainee)], trainee)
        due = time.monotonic() - saved >= checkpoint_seconds
        save(checkpoints=due)
        saved = time.monotonic() if due else saved

    try:
        train([trainee for _, trainee in active], drive, after_cycle)
    except KeyboardInterrupt:
        with interrupts_deferred():
            save(checkpoints=True)
        raise
    save(checkpoints=False)  # a run may have continued from a checkpoint of its last cycle


def _finish(run: RunDirectory, trainee: Trainee) -> None:
    run.save_table("curve", trainee.curve_columns())
    if trainee.diverged:
        run.diverged(trainee.cycle)
        return
    run.save_arrays("computer", trainee.parameters.arrays)
    if trainee.reached.state:
        run.save_arrays(MEMORY, dict(trainee.reached.state))
    _, loss, reduced = trainee.curve[-1]
    run.finish({"cycles": trainee.cycle, "loss": loss, "reduced_loss": reduced})


# --- reading a training run -------------------------------------------------------------------


def settings_of(run: RunDirectory) -> Settings:
    """Settings of a training run; those of generation are the defaults."""
    if run.kind != KIND:
        raise UserError(f"{run.path}: contains a run of {run.kind}, not {KIND}")
    sections = current_names(run.settings)
    return Settings.from_dict({k: sections[k] for k in TRAINING_SECTIONS if k in sections})


def parameters_of(run: RunDirectory) -> Parameters:
    """θ of a trained computer, on the device that it was trained for."""
    if run.state != "done":
        raise UserError(f"{run.path}: {why_not_done(run)}")
    with reading(run.path / "computer.safetensors"):
        return stored_parameters(settings_of(run), run.load_arrays("computer"))


def stored_parameters(settings: Settings, arrays: Mapping[str, Any]) -> Parameters:
    """θ from the arrays of a file, if it fits into memory."""
    require_memory(size_memory(settings.machine))
    return Parameters.from_stored(settings.built, arrays)


def curve_of(run: RunDirectory) -> dict[str, NDArray[Any]]:
    """The validation curve of a run."""
    columns = run.load_table("curve")
    with reading(run.path / "curve.csv"):
        return stored_curve(columns)


def stored_curve(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """A validation curve from the columns of a file, or ValueError."""
    points = len(columns[CURVE[0]])
    curve = {name: array_of(columns, name, "float64", points) for name in CURVE}
    check_cycles(curve[CURVE[0]])
    return curve


def unfinished(run: RunDirectory) -> Trainee | None:
    """The last checkpoint of an interrupted or running training, else None."""
    if run.state in ("done", "diverged") or run.kind != KIND:
        return None
    checkpoint = run.latest_checkpoint()
    if checkpoint is None or not checkpoint.cycle:
        return None
    with reading(run.path / checkpoint.name, "; remove it"):
        return Trainee.restore(settings_of(run), checkpoint.arrays, checkpoint.cycle)


def why_not_done(run: RunDirectory) -> str:
    """Why a training has no computer, and how to obtain one."""
    if run.state == "diverged":
        return (
            f"training diverged in cycle {run.results['cycle']}, so there is no computer; train "
            "another one at a smaller learning rate (training.learning_rate_scale)"
        )
    reason = f" ({run.manifest.reason})" if run.manifest.reason else ""
    command = "solve" if settings_of(run).solved else "train"
    return (
        f"training is not done (state: {run.state}{reason}); continue it with the same "
        f"thermoloom {command} command"
    )


def learned_patterns(run: RunDirectory) -> Patterns:
    """The patterns that a run has learned, as stored in it."""
    before = run.has(f"{OLD_PATTERNS}.safetensors")
    return read_patterns(run, OLD_PATTERNS if before else PATTERNS)
