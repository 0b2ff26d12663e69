"""The online rule on the digit machine: one image per trajectory, from θ = 0, then sampled."""

from __future__ import annotations

import time
from typing import Any

from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import judged_samples
from thermoloom.studies.digits.styles import labelled_drive
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.predictions import online_stability, scatter_edge
from thermoloom.training.trainer import Trainee, train

SAVE_SECONDS = 60.0
"""Time between two saved states of a training, from which an interrupted one continues."""
COMPUTER = "computer"


def online_learning(job: Job, predecessor: str, noise: float | None = None) -> dict[str, Any]:
    """Train until ``training.cycles`` from the state that the run ``predecessor`` reached; sample.

    Without a predecessor, training begins at θ = 0.
    """
    settings, machine = job.settings, job.settings.machine
    drive = labelled_drive(job.patterns, machine)
    assert drive.words is not None  # the machine has labels
    trainee = _begin(job, predecessor)
    saved = time.monotonic()

    def after_cycle(_: list[Trainee]) -> None:
        nonlocal saved
        loss = trainee.curve[-1][1] if trainee.curve else None
        job.report(trainee.cycle, settings.training.cycles, loss)
        if time.monotonic() - saved > SAVE_SECONDS:
            _save(job.run, trainee)
            saved = time.monotonic()

    train([trainee], drive, after_cycle)
    _save(job.run, trainee)
    marginals = solve_marginals(machine, float(abs(drive.fields).max()))
    few = slice(len(job.patterns.targets))  # one pattern of each class
    stability = online_stability(machine, drive.fields[few], marginals, drive.words[few])
    results = {
        "cycles": trainee.cycle,
        "amplitude": machine.label_amplitude,
        "rate": settings.learning_rate_of(trainee.cycle),
        "edge": stability.safe_rate,
        "scatter_edge": scatter_edge(machine),
    }
    if trainee.diverged:
        return results | {"diverged": True}
    return results | judged_samples(job, trainee.parameters, noise)


def _begin(job: Job, predecessor: str) -> Trainee:
    """The saved state of this training, the final one of its predecessor, or θ = 0."""
    run = job.run
    if predecessor and not _has_state(run):
        run = RunDirectory.open(job.workdir / predecessor)
    if not _has_state(run):
        return Trainee.new(job.settings)
    cycle = run.load_metadata(COMPUTER)["cycle"]
    return Trainee.restore(job.settings, run.load_arrays(COMPUTER), cycle)


def _has_state(run: RunDirectory) -> bool:
    return run.has(f"{COMPUTER}.safetensors")


def _save(run: RunDirectory, trainee: Trainee) -> None:
    run.save_arrays(COMPUTER, trainee.arrays(), {"cycle": trainee.cycle})
