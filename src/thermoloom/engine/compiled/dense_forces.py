"""Σ_j J_ij x_j of many states at once where whole groups of units are coupled, J held fixed.

A library arranges J for its registers in every call, which takes a fifth of the time of a product
with fifty states. Here that is done once: the columns of J lie in panels as wide as a few vector
registers, and a tile of states is multiplied with a stretch of a panel, all sums in registers.

A state's sum runs over the units in order, a stretch of them at a time, so it is the same to the
bit whatever other states there are, and its round-off is that of a sum of ``STRETCH`` terms.
Compilers do not find this by themselves, so a tile is written in LLVM's language.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from thermoloom.engine.compiled.aligned_memory import aligned
from thermoloom.engine.compiled.compiling import copy, inner, jit
from thermoloom.engine.compiled.vector_registers import everywhere
from thermoloom.machine.parameters import Parameters

Float32 = NDArray[np.float32]

VECTORS = 2
LANES, TALL = (16, 10) if binding.get_host_cpu_features().get("avx512f") else (8, 5)
"""Numbers in a vector, and states in the tallest tile: its sums fill the registers there are."""
FLAT = 5
WIDTH = VECTORS * LANES
"""Columns in a panel."""
STRETCH = 256
"""Terms that are added up in a register: a stretch of a panel stays in the nearest caches."""

_REAL, _INDEX = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_REAL, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_FAST = ("contract",)
"""A product and a sum may be one instruction; the order of sums stays."""


def _tile(height: int) -> Any:
    """The product of so many states with a stretch of a panel, for kernels."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        x, panel, out = (
            context.make_array(kinds[n])(context, builder, arguments[n]) for n in (0, 3, 4)
        )
        _, row, column, _, _, to, begins = arguments

        def rows(array: Any, first: Any) -> list[Any]:
            """Where the numbers of the tile's states begin."""
            stride = builder.sdiv(builder.extract_value(array.strides, 0), _INDEX(4))
            places = (builder.mul(builder.add(row, _INDEX(r)), stride) for r in range(height))
            return [builder.gep(array.data, [builder.add(place, first)]) for place in places]

        def vectors(place: Any) -> list[Any]:
            place = builder.bitcast(place, _VECTOR.as_pointer())
            return [builder.gep(place, [_INDEX(v)]) for v in range(VECTORS)]

        states = rows(x, column)
        sums = [[cgutils.alloca_once_value(builder, _ZERO) for _ in range(VECTORS)] for _ in states]
        with cgutils.for_range(builder, builder.extract_value(panel.shape, 0)) as loop:
            at = builder.gep(panel.data, [builder.mul(loop.index, _INDEX(WIDTH))])
            couplings = [builder.load(place, align=4) for place in vectors(at)]
            for state, totals in zip(states, sums, strict=True):
                number = everywhere(builder, builder.load(builder.gep(state, [loop.index])), LANES)
                for total, coupling in zip(totals, couplings, strict=True):
                    product = builder.fmul(number, coupling, flags=_FAST)
                    builder.store(builder.fadd(builder.load(total), product, flags=_FAST), total)
        for place, totals in zip(rows(out, to), sums, strict=True):
            for target, total in zip(vectors(place), totals, strict=True):
                before = builder.select(begins, _ZERO, builder.load(target, align=4))
                builder.store(builder.fadd(before, builder.load(total)), target, align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typingctx: Any, x: Any, row: Any, column: Any, panel: Any, out: Any, to: Any, begins: Any
    ) -> Any:
        """Sums of the states from ``row`` on over the units from ``column`` on.

        They are put into the columns of ``out`` from ``to`` on, or added where nothing ``begins``.
        """
        at = types.int64
        return types.void(x, at, at, panel, out, at, types.boolean), codegen

    return tile


_tall, _flat, _single = (_tile(height) for height in (TALL, FLAT, 1))


@inner
def _add_stretch(x, column, panel, out, to, begins):  # type: ignore[no-untyped-def]
    """out[:, to …] ← (out +) x[:, column …] panel, tile after tile."""
    row = 0
    while row + TALL <= x.shape[0]:
        _tall(x, row, column, panel, out, to, begins)
        row += TALL
    while row + FLAT <= x.shape[0]:
        _flat(x, row, column, panel, out, to, begins)
        row += FLAT
    while row < x.shape[0]:
        _single(x, row, column, panel, out, to, begins)
        row += 1


@jit
def _multiply(x, column, panels, out, first, last):  # type: ignore[no-untyped-def]
    """out[:, first:last] = x[:, column …] J for J in ``panels``."""
    margin = np.empty((x.shape[0], WIDTH), np.float32)
    for p in range(panels.shape[0]):
        to = first + p * WIDTH
        inside = to + WIDTH <= last
        for k in range(0, panels.shape[1], STRETCH):
            panel = panels[p, k : k + STRETCH]
            if inside:
                _add_stretch(x, column + k, panel, out, to, k == 0)
            else:
                _add_stretch(x, column + k, panel, margin, 0, k == 0)
        if not inside:
            for row in range(x.shape[0]):
                copy(margin[row], out[row, to:last])


def in_panels(matrix: Float32) -> Float32:
    """The columns of a matrix (K, n) in panels (P, K, WIDTH), the last one filled up with zeros."""
    rows, columns = matrix.shape
    panels = aligned(-(-columns // WIDTH), rows, WIDTH)
    for panel, first in zip(panels, range(0, columns, WIDTH), strict=True):
        own = matrix[:, first : first + WIDTH]
        panel[:, : own.shape[1]] = own
        panel[:, own.shape[1] :] = 0
    return panels


class DenseForces:
    """Σ_j J_ij x_j over the free units of one stage of θ: one product for each group of units."""

    def __init__(self, theta: Parameters, stage: int, sign: int = 1) -> None:
        """``sign`` = −1: with J_ji = −J_ij."""
        machine, vector = theta.machine, theta.vector[stage]
        self._products: list[tuple[int, Float32 | None, slice]] = []
        for group, where in machine.groups.items():
            partners = {}
            for block, transposed in theta.layout.partners(group):
                J = block.matrix(vector)
                other = block.rows if transposed else block.columns
                partners[other] = sign * J if transposed else J.T
            others = [name for name in machine.groups if name in partners]
            whole = [partners[name] for name in others]
            panels = in_panels(np.concatenate(whole)) if whole else None
            begin = machine.groups[others[0]].start if others else 0
            self._products.append((begin, panels, where))

    def __call__(self, x: Float32, out: Float32) -> None:
        """For states x (S, N) into ``out``."""
        for begin, panels, where in self._products:
            if panels is None:
                out[:, where] = 0
            else:
                _multiply(x, begin, panels, out, where.start, where.stop)
