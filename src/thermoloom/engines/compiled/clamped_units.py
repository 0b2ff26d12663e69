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

    def __init__(self, machine: Machine, clamp: Clamp, seed: int, first: int, last: int) -> None:
        self.units = np.flatnonzero(clamp.mask)
        self.moves = clamp.follow
        clamped_states = clamp.of_samples(first, last)
        if not clamp.follow:
            self._held = clamped_states
            return
        paths = []
        field = np.zeros(machine.visible, np.float32)
        with threads(1):
            for sample, fields in enumerate(clamped_states, start=first):
                field[self.units] = fields
                path = noising_path(machine, field, seed, sample, purpose="clamp")
                paths.append(path[::-1, self.units])
        self._paths = np.stack(paths)

    def at(self, step: int) -> Float32:
        """States of the clamped units after ``step`` steps of generation; fixed after t_f."""
        return self._paths[:, min(step, self._paths.shape[1] - 1)] if self.moves else self._held

    def place(self, x: Float32, step: int) -> None:
        x[:, self.units] = self.at(step)


class Pulled:
    """A displacement Δc of the clamped units c that follows the move Δf of the free units.

    work   V(f′, c′) − V(f′, c) = Δc·(∇_cV(f′, c′) − ½ J_cc Δc)
    heat   the gradient after the step contains c′; the excess ½ Δf·J_fc Δc is subtracted
    """

    def __init__(self, clamped: ClampedUnits, step: int, coupling: Float32) -> None:
        self._units = clamped.units
        self._displacement = (clamped.at(step + 1) - clamped.at(step)).astype(np.float64)
        self._before = coupling[:, clamped.units].astype(np.float64)

    def enter(
        self,
        within: Any,
        coupling: Float32,
        bias: Float32,
        heat: Float64,
        work: Float64,
    ) -> None:
        """Add work and heat from Σ_j J_ij x_j after the step; ``within``: J among visible units,
        dense or sparse, or None.
        """
        units, displacement = self._units, self._displacement
        after = coupling[:, units].astype(np.float64)
        self_coupling: Float64 = np.zeros(len(displacement))
        if within is not None:
            among = within[np.ix_(units, units)].astype(np.float64)
            self_coupling = ((displacement @ among) * displacement).sum(axis=1)
        work += (displacement * (after + bias[:, units])).sum(axis=1) - 0.5 * self_coupling
        heat += 0.5 * ((displacement * (after - self._before)).sum(axis=1) - self_coupling)
