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
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.wires import adjacency

Float32 = NDArray[np.float32]

FEW = 1 / 8
"""Largest fraction of wired pairs for which single wires are used. Above it, products of dense
matrices are faster."""
AT_ONCE = 64
"""States whose forces are computed together."""


def few_wires(machine: Machine) -> bool:
    """Whether this machine's forces are summed wire by wire."""
    blocks = [block for block in layout(machine).blocks if block.mask is not None]
    pairs = sum(block.size // (2 if block.symmetric else 1) for block in blocks)
    return bool(blocks) and sum(block.edges for block in blocks) <= FEW * pairs


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

    def __init__(self, theta: Parameters, stage: int) -> None:
        machine = theta.machine
        joined = adjacency(machine)
        couplings = np.zeros(joined.shape, np.float32)
        for block in theta.layout.blocks:
            if block.mask is not None:
                rows, columns = machine.groups[block.rows], machine.groups[block.columns]
                matrix = block.of(theta.vector[stage])
                couplings[rows, columns] = matrix
                couplings[columns, rows] = matrix.T
        self._couplings = couplings[joined]
        self._columns = np.nonzero(joined)[1].astype(np.int32)
        self._start = np.concatenate([[0], np.cumsum(joined.sum(axis=1))]).astype(np.int64)

    def __call__(self, x: Float32, out: Float32) -> None:
        """Forces on states x (S, N), into ``out``."""
        for first in range(0, len(x), AT_ONCE):
            group = slice(first, first + AT_ONCE)
            _forces(self._start, self._columns, self._couplings, x[group], out[group])
