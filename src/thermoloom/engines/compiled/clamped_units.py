"""Clamped visible units in generation: their states at each step, and the work of moving them."""

from __future__ import annotations

from typing import Any

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

    def pull(
        self, step: int, within: Any, before: Float64, after: Float64, bias: Float32
    ) -> tuple[Float64, Float64]:
        """Heat and work of a displacement Δc of the clamped units c, after the move Δf of the free.

        work   V(f′, c′) − V(f′, c) = Δc·(∇_cV(f′, c′) − ½ J_cc Δc)
        heat   the gradient after the step contains c′; the excess ½ Δf·J_fc Δc is subtracted

        ``before``, ``after``: Σ_j J_ij x_j of the clamped units around the step; ``within``: J
        among visible units, dense or sparse, or None.
        """
        displacement = (self.at(step + 1) - self.at(step)).astype(np.float64)
        self_coupling: Float64 = np.zeros(len(displacement))
        if within is not None:
            among = within[np.ix_(self.units, self.units)].astype(np.float64)
            self_coupling = ((displacement @ among) * displacement).sum(axis=1)
        work = (displacement * (after + bias)).sum(axis=1) - 0.5 * self_coupling
        heat = 0.5 * ((displacement * (after - before)).sum(axis=1) - self_coupling)
        return heat, work
