"""The frame of all learners: θ′ = learn(θ, path), stage by stage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Diverged, Path
from thermoloom.engines.compiled.noising import start_of
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters

Float32 = NDArray[np.float32]


class Window(NamedTuple):
    """The steps of one stage."""

    stage: int
    first: int
    """Number of the first step."""
    last: int
    """Number of the last step, exclusive."""
    path: Path
    errors: Float32 | None
    """Added to the residuals of the path, (K, N)."""

    @property
    def states(self) -> Float32:
        """(W + 1, N)"""
        states: Float32 = self.path.states[self.first : self.last + 1]
        return states

    @property
    def start(self) -> Float32:
        """Residuals at θ = 0 plus errors, (W, N)."""
        return start_of(self.path, self.errors, self.first, self.last)


class StageLearner:
    """A learning rule, with working memory but no state. Stages are learned separately.

    Subclasses learn one stage, into a copy of θ; an exception leaves θ unchanged.
    """

    def __init__(self, machine: Machine, learning_rate: float, period: int = 1) -> None:
        self.machine = machine
        self.learning_rate = learning_rate
        self.period = period

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        """Write one stage of θ after its window into ``learned``, flat; True if it is finite."""
        raise NotImplementedError

    def learn(
        self,
        theta: Parameters,
        path: Path,
        errors: Float32 | None = None,
        change: Float32 | None = None,
        rate: float | None = None,
    ) -> Parameters:
        """θ after one noising path.

        ``errors`` E (K, N) are added to the residuals before updates are formed; ``change`` is
        added to θ at the end; ``rate`` replaces α on this path.
        """
        machine, shape = self.machine, (self.machine.steps + 1, self.machine.units)
        if path.states.shape != shape:
            raise ValueError(f"a path of shape {path.states.shape}; this machine has {shape}")
        alpha = float(self.learning_rate if rate is None else rate)
        learned, finite = np.array(theta.vector, np.float32), True
        for stage, steps in enumerate(machine.stage_windows):
            window = Window(stage, *steps, path, errors)
            finite &= self.learn_stage(theta, window, alpha, learned[stage])
        if change is not None:
            learned += change
            finite &= bool(np.isfinite(learned).all())
        if not finite:
            raise Diverged("couplings are no longer finite")
        return theta.with_vector(learned)
