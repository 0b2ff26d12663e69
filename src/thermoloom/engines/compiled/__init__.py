"""Compiled engine: Numba kernels with counter-based streams, threads and BLAS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Learner as AnyLearner
from thermoloom.engines import Lesson, Path, State
from thermoloom.engines import usual_terms as terms
from thermoloom.engines.compiled.device_learner import DeviceLearner
from thermoloom.engines.compiled.foreign_potentials import portable_if_foreign
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import LongStates, drives_of, noising_path
from thermoloom.engines.compiled.quantized_learner import QuantizedLearner
from thermoloom.engines.compiled.residual_errors import residual_errors
from thermoloom.engines.compiled.sampling import GROUP as GROUP
from thermoloom.engines.compiled.sampling import generate as generate_compiled
from thermoloom.engines.compiled.sparse_learner import SparseLearner
from thermoloom.engines.compiled.stage_learner import StageLearner
from thermoloom.engines.compiled.update_noise import NoiseResponse
from thermoloom.engines.compiled.warmup import warm_up as warm_up
from thermoloom.engines.noisy_learner import NoisyLearner
from thermoloom.feasibility import has_long_paths, path_memory, size_memory
from thermoloom.machine.action import PathLoss
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quadratic_loss import QuadraticLoss
from thermoloom.machine.quantization import Grid
from thermoloom.machine.wires import few_wires, wires
from thermoloom.settings import Settings
from thermoloom.streams import Purpose

Float32 = NDArray[np.float32]


def training_memory(machine: Machine) -> dict[str, int]:
    """Bytes of one training. The watched loss needs one matrix of all pairs of units, and two more
    for each stage. A machine with few wires needs lists of their ends instead, and five rows of a
    block of steps for every unit. Eight arrays have the size of a path: the training and the
    validation path, their drives, errors, and sums of these.
    """
    stages = machine.stages + len(machine.development)
    pairs = 4 * (2 * stages + 1) * machine.units**2
    if few_wires(machine):
        pairs = 160 * len(wires(machine)) + 1600 * machine.units
    return size_memory(machine, pairs) | path_memory(machine, 8)


@portable_if_foreign
def path(
    machine: Machine,
    field: Float32,
    seed: int,
    number: int,
    word: Float32 | None = None,
    purpose: Purpose = "training",
    reuse: Path | None = None,
) -> Path:
    """Simulate one noising trajectory.

    The path holds its residuals at θ = 0 if units or stages differ, or if ``reuse`` holds them.
    """
    if has_long_paths(machine):
        return Path(machine, LongStates(machine, field, seed, number, purpose), number, word)
    states, drives = (None, None) if reuse is None else (reuse.states, reuse.prepared)
    states = noising_path(machine, field, seed, number, purpose, states)
    prepared = None
    if _uneven(machine) or drives is not None:
        prepared = drives_of(machine, states, drives)
    return Path(machine, states, number, word, prepared)


def _uneven(machine: Machine) -> bool:
    """Whether the onsite potential of V_θ differs from the reference potential of equal units."""
    return isinstance(machine, BuiltMachine) or bool(machine.generating)


def watch(path: Path) -> Callable[[Parameters], PathLoss]:
    """The loss on this path as a function of θ, as a quadratic form where that is cheaper."""
    machine = path.machine
    shortest = min(last - first for first, last in machine.stage_windows)
    if machine.units <= shortest and not (isinstance(machine, BuiltMachine) or few_wires(machine)):
        return QuadraticLoss(machine, path.states, path.word)
    return lambda theta: PathLoss(*terms(theta, path)[:2])


@dataclass
class _LearnerOfSettings(AnyLearner):
    """The rule of the settings, with their residual errors, on their device."""

    settings: Settings
    inner: Any = field(compare=False)

    def update(self, theta: Parameters, state: State, path: Path) -> Lesson:
        built, rate = self.settings.built, self.settings.learning_rate_of(path.number)
        learned = self.learn(theta, path, rate)
        if isinstance(built, BuiltMachine):
            learned = built.drifted_parameters(learned)
        return learned, {}

    def learn(self, theta: Parameters, path: Path, rate: float) -> Any:
        """θ after one noising path at this rate, on a device before its couplings drift."""
        settings, built = self.settings, self.settings.built
        if path.prepared is None and _uneven(built):  # not made by ``path``
            path = replace(path, prepared=drives_of(built, path.states))
        errors = residual_errors(
            settings.machine, settings.imperfections, settings.training.seed, path.number
        )
        return self.inner.learn(theta, path, errors, rate=rate)


class _ResponseOfSettings(_LearnerOfSettings):
    """Response of θ to unit update noise, for the rule and the device of the settings."""

    def learn(self, theta: Parameters, path: Path, rate: float) -> Any:
        return self.inner.learn(theta, path, rate)


def _inner(settings: Settings) -> StageLearner:
    machine, errors, rate = settings.machine, settings.imperfections, settings.learning_rate
    if isinstance(settings.built, BuiltMachine) and settings.device.couples:
        return DeviceLearner(settings.built, rate, settings.period)
    if grid := Grid.of(machine, errors):
        return QuantizedLearner(machine, rate, grid, settings.training.seed)
    if machine.sparse:
        return SparseLearner(machine, rate, settings.period)
    return Learner(machine, rate, settings.period)


@portable_if_foreign
def learner(settings: Settings) -> AnyLearner:
    """The learner of these settings."""
    noiseless, amplitude = settings.without_update_noise, settings.imperfections.update_noise
    clean = _LearnerOfSettings(noiseless, _inner(noiseless))
    if not amplitude:
        return clean
    response = _ResponseOfSettings(noiseless, NoiseResponse(noiseless))
    return NoisyLearner(clean, response, amplitude)


generate = portable_if_foreign(generate_compiled)
