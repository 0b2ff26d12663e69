"""What experiments will take: time and disk, from rates measured here in a few seconds.

    time ≈ [Σ_computers cycles · K · t(learner) + Σ_samples K · t(generation)] / workers
           + what every experiment takes besides

What is done already does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thermoloom.config import Settings
from thermoloom.machine.definition import Machine
from thermoloom.experiments.models import RUNS
from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.generation import GROUP, generate
from thermoloom.machine.computer import Computer
from thermoloom.runs.jobs import archive_name, training_path
from thermoloom.runs.manifest import MANIFEST, read_manifest
from thermoloom.runs.patterns import identified
from thermoloom.threads import threads
from thermoloom.training.learner import drive
from thermoloom.training.noising import noising_path
from thermoloom.training.trainer import make_learner

PROBE_STEPS = 216
"""Steps of the short trajectories on which rates are measured: whole blocks of the learner."""
BESIDES = 8.0
"""Seconds of an experiment for starting workers, tables, figures and page."""


@dataclass(frozen=True)
class Estimate:
    """What is left to do."""

    trainings: int
    samples: int
    seconds: float
    bytes: int


def estimate(chosen: Sequence[tuple[Experiment, Plan]], folder: Path, workers: int) -> Estimate:
    """Time and disk for these experiments in a results folder; a training that several need counts
    once, and work that is done does not.
    """
    left: dict[Path, Settings] = {}
    samples: dict[tuple[Path, str], Settings] = {}
    besides = 0.0
    for experiment, wanted in chosen:
        plan = replace(wanted, settings=identified(wanted.settings))  # loads the patterns once
        models = _by_path(folder, models_of(experiment, plan))
        to_train = {path: model for path, model in models if not _is_done(path)}
        to_sample = {(p, _archive(m)): m for p, m in models if not _has(p, _archive(m))}
        left |= to_train
        samples |= to_sample
        besides += BESIDES if to_train or to_sample else 0.0
    rates = _Rates()
    work = sum(
        model.training.cycles * model.machine.steps * rates.training(model)
        for model in left.values()
    )
    work += sum(
        model.generation.samples * model.machine.steps * rates.generation(model.machine)
        for model in samples.values()
    )
    disk = sum(_training_bytes(model.machine) for model in left.values())
    disk += sum(8 * m.generation.samples * m.machine.units for m in samples.values())
    count = sum(model.generation.samples for model in samples.values())
    return Estimate(len(left), count, work / workers + besides, disk)


def models_of(experiment: Experiment, plan: Plan) -> list[Settings]:
    """Computers that an experiment trains and samples, those of later tasks included."""
    tasks = experiment.tasks(plan)
    named = [model for task in tasks for model in task.arguments.get("models", [])]
    foreseen = experiment.foreseen(plan) if experiment.foreseen else []
    return [Settings.from_dict(model) for model in named] + foreseen


def _by_path(folder: Path, models: Iterable[Settings]) -> list[tuple[Path, Settings]]:
    return [(training_path(folder / RUNS, model), model) for model in models]


def _archive(model: Settings) -> str:
    return archive_name(model.generation_seed, model.generation.samples)


def _is_done(path: Path) -> bool:
    return (path / MANIFEST).exists() and read_manifest(path).state in ("done", "diverged")


def _has(path: Path, archive: str) -> bool:
    return _is_done(path) and f"{archive}.safetensors" in read_manifest(path).files


def _training_bytes(machine: Machine) -> int:
    """The trained parameters and two checkpoints."""
    return 3 * 4 * machine.hidden * (machine.units + 1)


class _Rates:
    """Seconds a step, measured on one thread, once for each kind of learner and size."""

    def __init__(self) -> None:
        self._known: dict[object, float] = {}

    def training(self, model: Settings) -> float:
        """Of one learner and step; a share of the path is left out, it is a few percent."""
        chosen = model.imperfections
        kind = (
            model.machine,
            model.training.rule,
            chosen.bits < 32,
            chosen.rounding if chosen.bits < 32 else "",
            chosen.update_noise > 0,
        )
        if model.training.rule == "optimum":
            return 0.0
        if kind not in self._known:
            self._known[kind] = _time_training(model)
        return self._known[kind]

    def generation(self, machine: Machine) -> float:
        """Of one sample and step."""
        if machine not in self._known:
            self._known[machine] = _time_generation(machine)
        return self._known[machine]


def _short(machine: Machine) -> Machine:
    return replace(machine, duration=min(PROBE_STEPS, machine.steps) * machine.dt)


def _time_training(model: Settings) -> float:
    machine = _short(model.machine)
    short = replace(model, machine=machine)
    if model.training.rule == "delayed":
        period = min(model.period, machine.steps)
        short = short.updated({"training": {"period": period}})
    field = np.ones(machine.units, np.float32)
    with threads(1):
        path = noising_path(machine, field, 0, 0)
        drives = drive(machine, path)
        learner = make_learner(short)
        learner.learn(path, None, drives)
        began = time.perf_counter()
        learner.learn(path, None, drives)
        return (time.perf_counter() - began) / machine.steps


def _time_generation(machine: Machine) -> float:
    short = replace(machine, duration=min(40, machine.steps) * machine.dt)
    with threads(1):
        computer = Computer.zeros(short)
        generate(short, computer, 1, 0)
        began = time.perf_counter()
        generate(short, computer, GROUP, 0)
        return (time.perf_counter() - began) / (GROUP * short.steps)
