"""The engine of kernels compiled by Numba, with counter-based streams, threads and BLAS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.engine import Learner as AnyLearner
from thermoloom.engine import Path
from thermoloom.engine.compiled.generation import generate as generate
from thermoloom.engine.compiled.learner import Learner
from thermoloom.engine.compiled.noising import drives_of, noising_path
from thermoloom.engine.compiled.path_terms import path_terms
from thermoloom.engine.compiled.quantized_learner import QuantizedLearner
from thermoloom.engine.compiled.residual_errors import residual_errors
from thermoloom.engine.compiled.update_noise import UpdateNoiseLearner, shared_noise
from thermoloom.engine.compiled.warmup import warm_up as warm_up
from thermoloom.errors import UserError
from thermoloom.machine.action import PathTerms
from thermoloom.machine.definition import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.precision import UNQUANTIZED

Float32 = NDArray[np.float32]


def path(
    machine: Machine,
    field: Float32,
    seed: int,
    number: int,
    word: Float32 | None = None,
    stream: str = "",
    reuse: Path | None = None,
) -> Path:
    """One noising trajectory, with the residuals that it would have at θ = 0."""
    states, drives = (None, None) if reuse is None else (reuse.states, reuse.prepared)
    states = noising_path(machine, field, seed, number, stream, states)
    return Path(machine, states, number, word, drives_of(machine, states, drives))


def terms(theta: Parameters, path: Path, field: Float32 | None = None) -> PathTerms:
    """Loss and path-action terms of a path: the products with J in float32, sums in float64."""
    return path_terms(theta, path.states, field, path.word)


class _LearnerOfSettings:
    """A learner with the residual errors that the settings ask for."""

    def __init__(self, settings: Settings, start: Parameters | None) -> None:
        self._settings = settings
        self._inner = _inner(settings, start)

    @property
    def parameters(self) -> Parameters:
        return self._inner.parameters

    def learn(self, path: Path) -> None:
        settings = self._settings
        errors = residual_errors(
            settings.machine, settings.imperfections, settings.training.seed, path.number
        )
        self._inner.learn(path, errors)


def _inner(
    settings: Settings, start: Parameters | None
) -> Learner | QuantizedLearner | UpdateNoiseLearner:
    machine, errors, rate = settings.machine, settings.imperfections, settings.learning_rate
    quantized, noisy = errors.bits != UNQUANTIZED, errors.update_noise > 0
    if quantized and noisy:
        raise UserError(
            f"imperfections.update_noise = {errors.update_noise}: not defined on a grid of "
            f"imperfections.bits = {errors.bits}; take bits = 32 or update_noise = 0"
        )
    if quantized:
        ranges = (errors.range_visible_hidden or 0.0, errors.range_hidden_hidden or 0.0)
        stochastic = errors.rounding == "stochastic"
        seed = settings.training.seed
        return QuantizedLearner(machine, rate, errors.bits, ranges, stochastic, seed, start)
    if noisy:
        noise = shared_noise(machine, settings.training.seed, settings.period)
        return UpdateNoiseLearner(
            machine, rate, errors.update_noise, noise, settings.period, start
        )
    return Learner(machine, rate, settings.period, start)


def learner(settings: Settings, start: Parameters | None = None) -> AnyLearner:
    """The learner that the settings ask for."""
    return _LearnerOfSettings(settings, start)
