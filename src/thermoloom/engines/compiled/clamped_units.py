"""Clamped visible units in generation: their states at each step, and the work of moving them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.noising import noising_path
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.machine import Machine
from thermoloom.threads import threads

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


class ClampedUnits:
    """States of the clamped units of a group of samples at each step of generation."""

    def __init__(self, machine: Machine, clamp: Clamp, seed: int, samples: range) -> None:
        self.units = np.flatnonzero(clamp.mask)
        self.moves = clamp.follow
        clamped_states = clamp.of_samples(samples.start, samples.stop)
        if not clamp.follow:
            self._held = clamped_states
            return
        paths = []
        field = np.zeros(machine.visible, np.float32)
        with threads(1):
            for sample, fields in zip(samples, clamped_states, strict=True):
                field[self.units] = fields
                path = noising_path(machine, field, seed, sample, purpose="clamp")
                paths.append(path[::-1, self.units])
        self._paths = np.stack(paths)

    def at(self, step: int) -> Float32:
        """States of the clamped units after ``step`` steps of generation; fixed after t_f."""
        return self._paths[:, min(step, self._paths.shape[1] - 1)] if self.moves else self._held

    def place(self, x: Float32, step: int) -> None:
        x[:, self.units] = self.at(step)
