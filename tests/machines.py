"""Shared scenarios: machines of every wiring, small enough to check by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from thermoloom.engines import Learner, Path, engine
from thermoloom.engines.compiled.noising import drives_of
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import WIRES, Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.training.trainer import OnCycle, Trainee, train

SMALL = {"visible": 12, "hidden": 8, "duration": 0.2}

MACHINES = {
    "paper": Machine(**SMALL),
    "labels": Machine(**SMALL, labels=3),
    "everything": Machine(**SMALL, labels=3, wiring=WIRES, biases=("visible", "hidden")),
    "stages": Machine(**SMALL, stages=3),
    "all stages": Machine(
        **SMALL,
        labels=3,
        label_amplitude=1.7,
        wiring=WIRES,
        biases=("visible", "hidden"),
        stages=2,
        windows=(0.3, 1.0),
    ),
    "restricted": Machine(**SMALL, wiring=("visible-hidden",), biases=()),
    "apart": Machine(**SMALL, wiring=("visible-visible", "hidden-hidden"), biases=("visible",)),
    "labels only": Machine(**SMALL, labels=2, wiring=("visible-label",), biases=()),
}
"""Machines by their special feature."""

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


def random_parameters(
    machine: Machine, scale: float = 0.3, seed: int = 0, dtype: type = np.float64
) -> Parameters:
    """Random θ of the right symmetry."""
    rng = np.random.default_rng(seed)
    theta = Parameters.zeros(machine, np.float64)
    theta.vector[:] = scale * rng.normal(size=theta.vector.shape)
    for block in theta.layout.blocks:
        if block.doubled:
            view = block.of(theta.vector)
            view[...] = np.tril(view, -1) + np.swapaxes(np.tril(view, -1), 1, 2)
    return theta.astype(dtype)


def some_word(machine: Machine, requested: int = 1) -> np.ndarray | None:
    return label_word(machine, requested) if machine.labels else None


def some_fields(machine: Machine, count: int = 3, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, machine.units)).astype(np.float32)


def some_path(machine: Machine, number: int = 0, seed: int = 1) -> Path:
    """A noising path of the machine, with a word where it has labels."""
    field = some_fields(machine)[number % 3]
    return engine().path(machine, field, seed, number, some_word(machine))


def path_of(
    machine: Machine, states: np.ndarray, number: int = 0, word: np.ndarray | None = None
) -> Path:
    """Any states as a path of the machine."""
    return Path(machine, states, number, word, drives_of(machine, states))


def learned_once(learner: Learner, theta: Parameters, path: Path) -> Parameters:
    """θ after one path, from the first state of the learner."""
    return learner.update(theta, learner.init(theta), path)[0]


def trained(
    settings: Settings,
    fields: np.ndarray,
    words: np.ndarray | None = None,
    start: Parameters | None = None,
    on_cycle: OnCycle | None = None,
) -> Trainee:
    """A computer trained to the end, alone."""
    trainee = Trainee.new(settings, start)
    train([trainee], Drive(fields, words), on_cycle)
    return trainee


def relative_difference(found: Parameters, reference: Parameters) -> float:
    """Largest difference of any parameter, relative to the largest of its block."""
    return max(
        float(np.abs(found[name] - reference[name]).max() / np.abs(reference[name]).max())
        for name in reference.arrays
    )
