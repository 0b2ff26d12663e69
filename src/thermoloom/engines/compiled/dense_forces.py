"""Forces Σ_j J_ij x_j on many states at once, for completely coupled groups and fixed J.

BLAS repacks J in every call, which takes a fifth of the time of a product with fifty states. Here J
is packed once: its columns lie in panels as wide as a few vector registers, and a tile of states is
multiplied with a stretch of a panel, with all sums in registers.

A state's sum runs over the units in order, one stretch at a time. Its bits therefore do not depend
on the other states, and its round-off is that of a sum of ``STRETCH`` terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.compiling import copy, jit
from thermoloom.engines.compiled.tiles import LANES, WIDE, Extent, Operand, address, products
from thermoloom.machine.parameters import Parameters

Float32 = NDArray[np.float32]

VECTORS, TALL, FLAT = (2, 10, 5) if WIDE else (1, 5, 5)
"""Vectors and states in a tile; groups of samples are multiples of its states."""
WIDTH = VECTORS * LANES
"""Columns in a panel."""
STRETCH = 256
"""Terms summed in a register: a stretch of a panel stays in the first-level cache."""

_add_product = products(TALL, FLAT, VECTORS)
_ONE = np.float32(1)


@jit
def _multiply(x, column, panels, out, first, last):  # type: ignore[no-untyped-def]
    """out[:, first:last] = x[:, column …] J for J in ``panels``."""
    margin, terms = np.empty((x.shape[0], WIDTH), np.float32), panels.shape[1]
    for p in range(panels.shape[0]):
        to = first + p * WIDTH
        inside = to + WIDTH <= last
        sums = Operand(address(margin, 0), WIDTH, 0, 0)
        if inside:
            sums = Operand(address(out, to), out.strides[0] // 4, 0, 0)
        for k in range(0, terms, STRETCH):
            states = Operand(address(x, column + k), x.strides[0] // 4, 0, 1)
            couplings = Operand(address(panels, (p * terms + k) * WIDTH), 0, 0, WIDTH)
            extent = Extent(x.shape[0], 1, min(STRETCH, terms - k), k == 0)
            _add_product(states, couplings, sums, extent, _ONE)
        if not inside:
            for row in range(x.shape[0]):
                copy(margin[row], out[row, to:last])


def in_panels(matrix: Float32) -> Float32:
    """The columns of a matrix (K, n) in panels (P, K, WIDTH), the last one padded with zeros."""
    rows, columns = matrix.shape
    panels = Pages().zeros(-(-columns // WIDTH), rows, WIDTH)
    for panel, first in zip(panels, range(0, columns, WIDTH), strict=True):
        block = matrix[:, first : first + WIDTH]
        panel[:, : block.shape[1]] = block
    return panels


class DenseForces:
    """Σ_j J_ij x_j over the free units of one stage of θ: one product per group of units."""

    def __init__(self, theta: Parameters, stage: int, sign: int = 1) -> None:
        """``sign`` = −1: couplings are antisymmetric, J_ji = −J_ij."""
        machine, vector = theta.machine, theta.vector[stage]
        self._products: list[tuple[int, Float32 | None, slice]] = []
        for group, where in machine.groups.items():
            partners = {}
            for block, transposed in theta.layout.partners(group):
                J = block.dense(vector, sign)
                other = block.rows if transposed else block.columns
                partners[other] = sign * J if transposed else J.T
            others = [name for name in machine.groups if name in partners]
            matrices = [partners[name] for name in others]
            panels = in_panels(np.concatenate(matrices)) if matrices else None
            begin = machine.groups[others[0]].start if others else 0
            self._products.append((begin, panels, where))

    def __call__(self, x: Float32, out: Float32) -> None:
        """Forces on states x (S, N), into ``out``."""
        for begin, panels, where in self._products:
            if panels is None:
                out[:, where] = 0
            else:
                _multiply(x, begin, panels, out, where.start, where.stop)
