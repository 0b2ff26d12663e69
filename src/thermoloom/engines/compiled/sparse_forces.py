"""Forces Σ_j J_ij x_j on many states at once, wire by wire.

States are transposed, so that a wire adds one contiguous row to another, for any wiring. A sum runs
in the order of its unit's wires and does not depend on the other states. Cost: 2 FLOP per wire,
direction and state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import fast_jit
from thermoloom.engines.compiled.tiles import transpose
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import wiring

Float32 = NDArray[np.float32]

AT_ONCE = 64
"""States whose forces are computed together."""


@fast_jit
def _forces(start, columns, couplings, x, out):  # type: ignore[no-untyped-def]
    """out (S, N) = Σ_j J_ij x_j for states x (S, N)."""
    states = np.empty((x.shape[1], x.shape[0]), np.float32)
    sums = np.zeros_like(states)
    transpose(x, states)
    for i in range(sums.shape[0]):
        total = sums[i]
        for wire in range(start[i], start[i + 1]):
            coupling, other = couplings[wire], states[columns[wire]]
            for state in range(total.size):
                total[state] += coupling * other[state]
    transpose(sums, out)


class SparseForces:
    """Σ_j J_ij x_j over the free units of one stage of θ."""

    def __init__(self, theta: Parameters, stage: int, sign: int = 1) -> None:
        """``sign`` = −1: couplings are antisymmetric, J_ji = −J_ij."""
        wired = wiring(theta.machine)
        couplings = theta.vector[stage, wired.numbers].astype(np.float32, copy=False)
        self._couplings = couplings if sign > 0 else np.where(wired.in_row, couplings, -couplings)
        self._columns, self._start = wired.others, wired.start

    def __call__(self, x: Float32, out: Float32) -> None:
        """Forces on states x (S, N), into ``out``."""
        for first in range(0, len(x), AT_ONCE):
            group = slice(first, first + AT_ONCE)
            _forces(self._start, self._columns, self._couplings, x[group], out[group])
