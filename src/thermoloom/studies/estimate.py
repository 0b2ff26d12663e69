"""Estimate time and disk space of studies, from rates measured on this machine within seconds.

    time ≈ [Σ_computers cycles · K · t(learner) + Σ_samples K · t(generation)] / workers
           + a constant for every study

Finished work does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thermoloom.computers.pattern_store import identified
from thermoloom.engines import engine
from thermoloom.generation import generate, samples_together
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.settings import Settings
from thermoloom.studies.case import ended, trained_path
from thermoloom.studies.gather import has_archive, order_of
from thermoloom.studies.study import Plan, Study
from thermoloom.threads import threads
from thermoloom.training.trainer import Trainee

PROBE_STEPS = 216
"""Steps of the short trajectories on which rates are measured: whole blocks of the learner."""
OVERHEAD = 8.0
"""Seconds per study for starting workers, tables, figures and page."""


@dataclass(frozen=True)
class Estimate:
    """Remaining trainings and samples, with the seconds and bytes that they take."""

    trainings: int
    samples: int
    seconds: float
    bytes: int


def estimate(plans: Sequence[tuple[Study, Plan]], folder: Path, workers: int) -> Estimate:
    """Time and disk space for these studies in a results folder.

    A training that several studies need counts once, and finished work does not count.
    """
    trainings: dict[Path, Settings] = {}
    samples: dict[tuple[Path, str], Settings] = {}
    overhead = 0.0
    for study, wanted in plans:
        plan = replace(wanted, settings=identified(wanted.settings))  # loads the patterns once
        computers = study.computers(plan, folder, sampled=True)
        models = [(trained_path(folder, model), model) for model in computers]
        to_train = {path: model for path, model in models if ended(path) is None}
        to_sample = {(p, order_of(m).archive): m for p, m in models if not _is_sampled(p, m)}
        trainings |= to_train
        samples |= to_sample
        overhead += OVERHEAD if to_train or to_sample else 0.0
    rates = _Rates()
    seconds = sum(
        model.training.cycles * model.machine.steps * rates.training(model)
        for model in _separate_trainings(trainings.values())
    )
    seconds += sum(
        model.generation.samples * model.machine.generation_steps * rates.generation(model.machine)
        for model in samples.values()
    )
    disk = sum(_training_bytes(model.machine) for model in trainings.values())
    disk += sum(8 * m.generation.samples * m.machine.units for m in samples.values())
    count = sum(model.generation.samples for model in samples.values())
    return Estimate(len(trainings), count, seconds / workers + overhead, disk)


def _separate_trainings(models: Iterable[Settings]) -> Iterable[Settings]:
    """Computers that cost a training: of those that differ only in update noise, one."""
    return {
        (model.without_update_noise, model.imperfections.update_noise > 0): model
        for model in models
    }.values()


def _is_sampled(path: Path, model: Settings) -> bool:
    run = ended(path)
    return run is not None and has_archive(run, model)


def _training_bytes(machine: Machine) -> int:
    """The trained parameters and two checkpoints."""
    return 3 * 4 * machine.stages * layout(machine).size


class _Rates:
    """Seconds per step, measured on one thread, once per kind of learner and size."""

    def __init__(self) -> None:
        self._measured: dict[object, float] = {}

    def training(self, model: Settings) -> float:
        """Seconds per learner and step; the path's share, a few per cent, is left out."""
        errors = model.imperfections
        kind = (
            model.machine,
            model.training.rule,
            errors.bits < UNQUANTIZED,
            errors.rounding if errors.bits < UNQUANTIZED else "",
            errors.update_noise > 0,
        )
        if model.solved:
            return 0.0
        if kind not in self._measured:
            self._measured[kind] = _time_training(model)
        return self._measured[kind]

    def generation(self, machine: Machine) -> float:
        """Seconds per sample and step."""
        if machine not in self._measured:
            self._measured[machine] = _time_generation(machine)
        return self._measured[machine]


def _short(machine: Machine, most: int) -> Machine:
    """The same machine with few steps, in windows of equal length."""
    steps = max(machine.stages, min(most, machine.steps))
    return replace(machine, duration=steps * machine.dt, windows=())


def _time_training(model: Settings) -> float:
    machine = _short(model.machine, PROBE_STEPS)
    short = replace(model, machine=machine)
    if model.training.period is not None:
        period = min(model.period, machine.steps)
        short = short.updated({"training": {"period": period}})
    field = np.ones(machine.units, np.float32)
    word = label_word(machine, 0) if machine.labels else None
    with threads(1):
        path = engine().path(machine, field, 0, 0, word)
        learner, theta = Trainee.new(short).learner, Parameters.zeros(machine)
        state = learner.init(theta)
        learner.update(theta, state, path)
        began = time.perf_counter()
        learner.update(theta, state, path)
        return (time.perf_counter() - began) / machine.steps


def _time_generation(machine: Machine) -> float:
    short = _short(machine, 40)
    samples = samples_together()
    with threads(1):
        theta = Parameters.zeros(short)
        generate(theta, 1, 0)
        began = time.perf_counter()
        generate(theta, samples, 0)
        return (time.perf_counter() - began) / (samples * short.steps)
