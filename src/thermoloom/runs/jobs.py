"""Training and generation that last: each in a run directory, each continued where it stopped.

RUN/prototypes.safetensors      what is learned
RUN/checkpoint-….safetensors    where training can go on
RUN/computer.safetensors        the trained parameters
RUN/curve.csv                   validation loss
RUN/samples-SEED-N.safetensors  an archive of generated samples
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.feasibility import check_learning, check_training
from thermoloom.generation import Generated, generate
from thermoloom.physics.action import path_loss
from thermoloom.physics.computer import Computer, EnergyParts
from thermoloom.prototypes import Prototypes, load_prototypes, unit_fields
from thermoloom.runs.formats import array_sha256
from thermoloom.runs.manifest import run_path
from thermoloom.runs.store import RunDirectory, finished_results, refuse_claimed
from thermoloom.theory.optimum import solve_optimum
from thermoloom.training.trainer import PARAMETERS, Trainee, train_together, validation_path

KIND = "training"
CHECKPOINT_SECONDS = 30.0
TRAINING_SECTIONS = ("physics", "prototypes", "training", "imperfections")
"""Sections that determine a trained computer; generation has no part in it."""

OnCycle = Callable[[Path, Trainee], None]
OnWarning = Callable[[str], None]


def training_settings(settings: Settings, prototypes: Prototypes) -> dict[str, Any]:
    """What identifies a training run: its settings and the very patterns it learns."""
    sections = {k: v for k, v in settings.as_dict().items() if k in TRAINING_SECTIONS}
    return sections | {"patterns": {"sha256": array_sha256(prototypes.patterns)}}


def training_path(folder: Path, settings: Settings) -> Path:
    """Where a training run lives in a results folder, found by its settings alone."""
    prototypes = load_prototypes(settings.prototypes, settings.physics)
    return run_path(folder, KIND, training_settings(settings, prototypes))


def check_run(path: Path, settings: Settings) -> None:
    """Refuse settings that cannot be learned, or not there; nothing is written."""
    prototypes = load_prototypes(settings.prototypes, settings.physics)
    fields = unit_fields(prototypes, settings.physics, settings.prototypes.projection_seed)
    check_learning(settings, fields)
    refuse_claimed(path, KIND, training_settings(settings, prototypes))


def train_runs(
    runs: Sequence[tuple[Path, Settings]],
    on_cycle: OnCycle | None = None,
    on_warning: OnWarning | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> None:
    """Train computers that share their noising paths, each in its run directory.

    Finished runs are left alone, interrupted ones go on from their last good checkpoint and end
    bit-identical to runs that were never interrupted. A diverged training is recorded as such.
    """
    settings = runs[0][1]
    prototypes = load_prototypes(settings.prototypes, settings.physics)
    fields = unit_fields(prototypes, settings.physics, settings.prototypes.projection_seed)
    for _, wanted in runs:
        check_training(wanted, fields)
    with ExitStack() as stack:
        active: list[tuple[RunDirectory, Trainee]] = []
        for path, wanted in runs:
            run = RunDirectory.create(path, KIND, training_settings(wanted, prototypes))
            stack.enter_context(run)
            if run.state not in ("done", "diverged"):
                active.append((run, _begin(run, wanted, prototypes)))
            for line in run.warnings:
                if on_warning:
                    on_warning(line)
        if active:
            _train(active, fields, on_cycle, checkpoint_seconds)


def solve_run(
    path: Path, settings: Settings, on_iteration: Callable[[int, float], None] | None = None
) -> None:
    """The computer of least expected loss (rule ``optimum``), as a run like any other."""
    prototypes = load_prototypes(settings.prototypes, settings.physics)
    fields = unit_fields(prototypes, settings.physics, settings.prototypes.projection_seed)
    identity = training_settings(settings, prototypes)
    if finished_results(path, KIND, identity) is not None:
        return
    check_run(path, settings)
    # solved before the directory is claimed: what has no solution leaves nothing behind
    optimum = solve_optimum(settings.physics, fields, progress=on_iteration)
    with RunDirectory.create(path, KIND, identity) as run:
        run.save_arrays("prototypes", {"patterns": prototypes.patterns}, _labels(prototypes))
        loss = path_loss(optimum.computer, settings.physics, validation_path(settings, fields))
        run.save_arrays("computer", optimum.computer.arrays)
        run.save_table(
            "curve", {"cycle": [0.0], "loss": [loss.full], "reduced_loss": [loss.reduced]}
        )
        run.finish(
            {
                "iterations": optimum.iterations,
                "seconds": optimum.seconds,
                "relative_gradient": optimum.relative_gradient,
                "expected_loss": optimum.expected_loss,
                "initial_expected_loss": optimum.initial_loss,
                "loss": loss.full,
                "reduced_loss": loss.reduced,
            }
        )


def _begin(run: RunDirectory, settings: Settings, prototypes: Prototypes) -> Trainee:
    """A trainee at the run's last good checkpoint, or at θ = 0."""
    if not run.has("prototypes.safetensors"):
        run.save_arrays("prototypes", {"patterns": prototypes.patterns}, _labels(prototypes))
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return Trainee.new(settings)
    return Trainee.restore(settings, checkpoint.arrays, checkpoint.cycle)


def _train(
    active: list[tuple[RunDirectory, Trainee]],
    fields: NDArray[np.float32],
    on_cycle: OnCycle | None,
    checkpoint_seconds: float,
) -> None:
    run_of = {id(trainee): run for run, trainee in active}
    saved = time.monotonic()
    finished: set[int] = set()
    try:
        for present in train_together([trainee for _, trainee in active], fields):
            for trainee in present:
                if on_cycle:
                    on_cycle(run_of[id(trainee)].path, trainee)
                if trainee.finished:
                    _finish(run_of[id(trainee)], trainee)
                    finished.add(id(trainee))
            if time.monotonic() - saved >= checkpoint_seconds:
                _save_unfinished(active, finished)
                saved = time.monotonic()
    except KeyboardInterrupt:
        _save_unfinished(active, finished)
        raise
    for run, trainee in active:  # a checkpoint may have been the last cycle's
        if id(trainee) not in finished:
            _finish(run, trainee)


def _save_unfinished(active: list[tuple[RunDirectory, Trainee]], finished: set[int]) -> None:
    for run, trainee in active:
        if id(trainee) not in finished:
            run.save_checkpoint(trainee.cycle, trainee.arrays())


def _finish(run: RunDirectory, trainee: Trainee) -> None:
    run.save_table("curve", trainee.curve_columns())
    if trainee.diverged:
        run.diverged(trainee.cycle)
        return
    run.save_arrays("computer", trainee.computer.arrays)
    _, loss, reduced = trainee.curve[-1]
    run.finish({"cycles": trainee.cycle, "loss": loss, "reduced_loss": reduced})


def _labels(prototypes: Prototypes) -> dict[str, Any]:
    return {
        "labels": list(prototypes.labels),
        "shape": list(prototypes.shape) if prototypes.shape else None,
        "classes": list(prototypes.classes),
    }


# --- reading what training left ---------------------------------------------------------------


def settings_of(run: RunDirectory) -> Settings:
    """Settings of a training run; those of generation are the defaults."""
    if run.kind != KIND:
        raise UserError(f"{run.path}: holds a run of {run.kind}, not {KIND}")
    return Settings.from_dict({k: run.settings[k] for k in TRAINING_SECTIONS})


def computer_of(run: RunDirectory) -> Computer:
    """The trained computer."""
    if run.state != "done":
        reason = f" ({run.manifest.reason})" if run.manifest.reason else ""
        raise UserError(
            f"{run.path}: training is not done (state: {run.state}{reason}); "
            "continue it with the same thermoloom train command"
        )
    arrays = run.load_arrays("computer")
    return Computer(*(arrays[name] for name in PARAMETERS))


def prototypes_of(run: RunDirectory) -> Prototypes:
    """The patterns that a run learned, as they were then."""
    patterns = run.load_arrays("prototypes")["patterns"]
    labels = run.load_metadata("prototypes")
    shape = tuple(labels["shape"]) if labels["shape"] else None
    return Prototypes(patterns, tuple(labels["labels"]), shape, tuple(labels["classes"]))


# --- generation ----------------------------------------------------------------------------------

_PARTS = ("onsite", "visible_hidden", "hidden_hidden", "bias")


def archive_name(seed: int, samples: int) -> str:
    return f"samples-{seed}-{samples}"


def generate_run(
    path: Path,
    samples: int,
    seed: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Generated:
    """Samples of a trained run, from its archive if they are there, else generated and kept."""
    reader = RunDirectory.open(path)
    settings = settings_of(reader).updated({"generation": {"samples": samples, "seed": seed}})
    chosen = settings.generation_seed
    name = archive_name(chosen, samples)
    if reader.has(f"{name}.safetensors"):
        return read_archive(reader, name)
    computer = computer_of(reader)
    generated = generate(settings.physics, computer, samples, chosen, on_progress=on_progress)
    with RunDirectory.open(path, write=True) as run:
        run.save_arrays(name, _archive_arrays(generated), {"seed": chosen, "samples": samples})
    return generated


def _archive_arrays(generated: Generated) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        "initial_states": generated.initial_states,
        "final_states": generated.final_states,
        "heat": generated.heat,
    }
    for moment in ("initial", "final"):
        energy = getattr(generated, f"{moment}_energy")
        arrays |= {f"{moment}_{part}": getattr(energy, part) for part in _PARTS}
    return arrays


def read_archive(run: RunDirectory, name: str) -> Generated:
    """Stored samples, checked against their SHA-256."""
    arrays = run.load_arrays(name)
    initial, final = (
        EnergyParts(*(arrays[f"{moment}_{part}"] for part in _PARTS))
        for moment in ("initial", "final")
    )
    no_snapshots = np.empty((0, 0, arrays["final_states"].shape[1]), np.float32)
    return Generated(arrays["initial_states"], arrays["final_states"], initial, final, no_snapshots)


def archives(run: RunDirectory) -> list[str]:
    """Names of the sample archives of a run, in the order they were made."""
    names = [name.removesuffix(".safetensors") for name in run.manifest.files]
    return [name for name in names if name.startswith("samples-")]
