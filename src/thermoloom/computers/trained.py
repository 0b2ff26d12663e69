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
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.action import path_loss
from thermoloom.machine.computer import Computer, EnergyParts
from thermoloom.prototypes import Prototypes, unit_fields
from thermoloom.runs.manifest import run_path
from thermoloom.runs.patterns import identified, named, patterns_of, read_patterns, save_patterns
from thermoloom.runs.store import (
    RunDirectory,
    finished_results,
    refuse_claimed,
    refuse_other_numerics,
)
from thermoloom.theory.optimum import solve_optimum
from thermoloom.training.trainer import PARAMETERS, Trainee, train_together, validation_path

KIND = "training"
CHECKPOINT_SECONDS = 30.0
TRAINING_SECTIONS = ("machine", "prototypes", "training", "imperfections")
"""Sections that determine a trained computer; generation has no part in it."""

OnCycle = Callable[[Path, Trainee], None]
OnWarning = Callable[[str], None]


def training_settings(settings: Settings) -> dict[str, Any]:
    """What identifies a training run: its settings, which name the very patterns it learns."""
    return {k: v for k, v in identified(settings).as_dict().items() if k in TRAINING_SECTIONS}


def training_path(folder: Path, settings: Settings) -> Path:
    """Where a training run lives in a results folder, found by its settings alone."""
    return run_path(folder, KIND, training_settings(settings))


def check_run(path: Path, settings: Settings, prototypes: Prototypes) -> None:
    """Refuse settings that cannot be learned, or not there; nothing is written."""
    check_learning(settings, unit_fields(prototypes, settings))
    refuse_claimed(path, KIND, training_settings(named(settings, prototypes)))


def train_runs(
    runs: Sequence[tuple[Path, Settings]],
    on_cycle: OnCycle | None = None,
    on_warning: OnWarning | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    prototypes: Prototypes | None = None,
) -> None:
    """Train computers that share their noising paths, each in its run directory.

    Finished runs are left alone, interrupted ones go on from their last good checkpoint and end
    bit-identical to runs that were never interrupted. A diverged training is recorded as such.
    ``prototypes``: what is learned; found by the settings if not given.
    """
    settings = runs[0][1]
    learned = patterns_of(settings, runs[0][0].parent) if prototypes is None else prototypes
    fields = unit_fields(learned, settings)
    for _, wanted in runs:
        check_training(wanted, fields)
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
            _train(active, fields, on_cycle, checkpoint_seconds)


def solve_run(
    path: Path,
    settings: Settings,
    on_iteration: Callable[[int, float], None] | None = None,
    prototypes: Prototypes | None = None,
) -> None:
    """The computer of least expected loss (rule ``optimum``), as a run like any other."""
    learned = patterns_of(settings, path.parent) if prototypes is None else prototypes
    fields = unit_fields(learned, settings)
    identity = training_settings(named(settings, learned))
    if finished_results(path, KIND, identity) is not None:
        return
    check_run(path, settings, learned)
    # solved before the directory is claimed: what has no solution leaves nothing behind
    optimum = solve_optimum(settings.machine, fields, progress=on_iteration)
    with RunDirectory.create(path, KIND, identity) as run:
        save_patterns(run, "prototypes", learned)
        loss = path_loss(optimum.computer, settings.machine, validation_path(settings, fields))
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
        save_patterns(run, "prototypes", prototypes)
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
    path_of = {id(trainee): run.path for run, trainee in active}
    left = list(active)

    def save(checkpoints: bool) -> None:
        """Write down what is finished and, if wanted, how far the others are."""
        for run, trainee in list(left):
            if trainee.finished:
                _finish(run, trainee)
                left.remove((run, trainee))
            elif checkpoints:
                run.save_checkpoint(trainee.cycle, trainee.arrays())

    saved = time.monotonic()
    try:
        for present in train_together([trainee for _, trainee in active], fields):
            with interrupts_deferred():
                for trainee in present:
                    if on_cycle:
                        on_cycle(path_of[id(trainee)], trainee)
                due = time.monotonic() - saved >= checkpoint_seconds
                save(checkpoints=due)
            saved = time.monotonic() if due else saved
    except KeyboardInterrupt:
        with interrupts_deferred():
            save(checkpoints=True)
        raise
    save(checkpoints=False)  # a checkpoint may have been the last cycle's


def _finish(run: RunDirectory, trainee: Trainee) -> None:
    run.save_table("curve", trainee.curve_columns())
    if trainee.diverged:
        run.diverged(trainee.cycle)
        return
    run.save_arrays("computer", trainee.computer.arrays)
    _, loss, reduced = trainee.curve[-1]
    run.finish({"cycles": trainee.cycle, "loss": loss, "reduced_loss": reduced})


# --- reading what training left ---------------------------------------------------------------


def settings_of(run: RunDirectory) -> Settings:
    """Settings of a training run; those of generation are the defaults."""
    if run.kind != KIND:
        raise UserError(f"{run.path}: holds a run of {run.kind}, not {KIND}")
    return Settings.from_dict({k: run.settings.get(k, {}) for k in TRAINING_SECTIONS})


def computer_of(run: RunDirectory) -> Computer:
    """The trained computer."""
    if run.state != "done":
        raise UserError(f"{run.path}: {_why_not_done(run)}")
    arrays = run.load_arrays("computer")
    return Computer(*(arrays[name] for name in PARAMETERS))


def _why_not_done(run: RunDirectory) -> str:
    """Why a training has no computer, and the way to one."""
    if run.state == "diverged":
        return (
            f"training diverged in cycle {run.results['cycle']}, so there is no computer; train "
            "another one at a smaller learning rate (training.learning_rate_scale)"
        )
    reason = f" ({run.manifest.reason})" if run.manifest.reason else ""
    command = "solve" if settings_of(run).training.rule == "optimum" else "train"
    return (
        f"training is not done (state: {run.state}{reason}); continue it with the same "
        f"thermoloom {command} command"
    )


def prototypes_of(run: RunDirectory) -> Prototypes:
    """The patterns that a run learned, as they were then."""
    return read_patterns(run, "prototypes")


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
    file = f"{name}.safetensors"
    if reader.has(file) and not reader.is_lost(file):
        return read_archive(reader, name)
    refuse_other_numerics(reader)
    computer = computer_of(reader)
    generated = generate(settings.machine, computer, samples, chosen, on_progress=on_progress)
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
