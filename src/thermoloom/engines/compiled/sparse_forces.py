"""Σ_j J_ij x_j of many states at once where wires are few.

States lie unit by unit while they are added up, so that a wire adds one row of numbers to another:
contiguous, whoever is wired to whom. A state's sum is in the order of its unit's wires, whatever
else is computed with it. Cost: 2 FLOP a wire, direction and state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import fast_jit
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.wires import adjacency

Float32 = NDArray[np.float32]

FEW = 1 / 8
"""Part of all pairs of coupled groups up to which wires are taken one by one: beyond it, products
of whole matrices are faster."""
AT_ONCE = 64
"""States that are added up together."""
_TILE = 16


def few_wires(machine: Machine) -> bool:
    """Whether this machine's forces are added up wire by wire."""
    blocks = [block for block in layout(machine).blocks if block.mask is not None]
    pairs = sum(block.size // (2 if block.symmetric else 1) for block in blocks)
    return bool(blocks) and sum(block.edges for block in blocks) <= FEW * pairs


@fast_jit
def _transpose(source, target):  # type: ignore[no-untyped-def]
    rows, columns = source.shape
    for row in range(0, rows, _TILE):
        for column in range(0, columns, _TILE):
            for i in range(row, min(row + _TILE, rows)):
                for j in range(column, min(column + _TILE, columns)):
                    target[j, i] = source[i, j]


@fast_jit
def _add_up(start, columns, values, x, out):  # type: ignore[no-untyped-def]
    """out_i = Σ_j J_ij x_j for rows x_j, out_i of states."""
    for i in range(out.shape[0]):
        total = out[i]
        total[:] = 0
        for wire in range(start[i], start[i + 1]):
            coupling, other = values[wire], x[columns[wire]]
            for state in range(total.size):
                total[state] += coupling * other[state]


class SparseForces:
    """Σ_j J_ij x_j over the free units of one stage of θ."""

    def __init__(self, theta: Parameters, stage: int) -> None:
        machine = theta.machine
        joined = adjacency(machine)
        couplings = np.zeros(joined.shape, np.float32)
        for block in theta.layout.blocks:
            if block.mask is not None:
                rows, columns = machine.groups[block.rows], machine.groups[block.columns]
                own = block.of(theta.vector[stage])
                couplings[rows, columns] = own
                couplings[columns, rows] = own.T
        self._values = couplings[joined]
        self._columns = np.nonzero(joined)[1].astype(np.int32)
        self._start = np.concatenate([[0], np.cumsum(joined.sum(axis=1))]).astype(np.int64)

    def __call__(self, x: Float32, out: Float32) -> None:
        """For states x (S, N) into ``out``."""
        for first in range(0, len(x), AT_ONCE):
            some = x[first : first + AT_ONCE]
            states = np.empty(some.shape[::-1], np.float32)
            sums = np.empty_like(states)
            _transpose(some, states)
            _add_up(self._start, self._columns, self._values, states, sums)
            _transpose(sums, out[first : first + AT_ONCE])
