"""Products of matrices inside kernels, tile after tile, nothing copied or arranged.

    C[r, :] (+)= s Σ_f Σ_k A[r, f, k] B[f, k, :]      r = 0, 1, …;  as many columns as a vector has

The sums of a tile of C are in vector registers, and numbers of A are multiplied with whole vectors
of B. So rows of B and C are contiguous, while A may lie in memory as it will. The order of a sum
does not depend on the tile that it is in. Compilers do not find this by themselves, so it is
written in LLVM's language.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from thermoloom.engine.compiled.compiling import inner
from thermoloom.engine.compiled.vector_registers import everywhere

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8
"""Numbers in a vector."""
TALL, FLAT = (16 if WIDE else 8), 4
"""Rows of the tiles: with fewer than FLAT, products would wait for each other."""

_INDEX, _SMALL = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_FAST = ("contract",)
"""A product and a sum may be one instruction; the order of sums stays."""


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where an array begins."""
    return context.make_array(kind)(context, builder, array).data


def _vectors(builder: Any, place: Any, count: int) -> list[Any]:
    """The vectors side by side from a place on."""
    first = builder.bitcast(place, _VECTOR.as_pointer())
    return [builder.gep(first, [_INDEX(v)]) for v in range(count)]


def tile(height: int, vectors: int = 1) -> Any:
    """The product above for so many rows and vectors, for kernels."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        operands = []
        for kind, argument in zip(signature.args[:3], arguments, strict=False):
            array, *numbers = cgutils.unpack_tuple(builder, argument)
            operands.append([_data(context, builder, kind[0], array), *numbers])
        (a, a_at, a_row, a_far, a_near), (b, b_at, b_far, b_near), (c, c_at, c_row) = operands
        above, far, near, scale, begins = arguments[3:]

        def rows(first: Any, at: Any, stride: Any) -> list[Any]:
            places = (builder.mul(stride, builder.add(above, _INDEX(r))) for r in range(height))
            return [builder.gep(first, [builder.add(at, place)]) for place in places]

        numbers, b = rows(a, a_at, a_row), builder.gep(b, [b_at])
        sums = [
            [cgutils.alloca_once_value(builder, _ZERO) for _ in range(vectors)] for _ in numbers
        ]
        with cgutils.for_range(builder, far) as outer:
            skipped = builder.mul(outer.index, a_far)
            here = [builder.gep(row, [skipped]) for row in numbers]
            there = builder.gep(b, [builder.mul(outer.index, b_far)])
            with cgutils.for_range(builder, near) as loop:
                a_k, b_k = (builder.mul(loop.index, stride) for stride in (a_near, b_near))
                places = _vectors(builder, builder.gep(there, [b_k]), vectors)
                factors = [builder.load(place, align=4) for place in places]
                for row, totals in zip(here, sums, strict=True):
                    number = everywhere(builder, builder.load(builder.gep(row, [a_k])), LANES)
                    for total, factor in zip(totals, factors, strict=True):
                        product = builder.fmul(number, factor, flags=_FAST)
                        found = builder.fadd(builder.load(total), product, flags=_FAST)
                        builder.store(found, total)
        scale = everywhere(builder, scale, LANES)
        for place, totals in zip(rows(c, c_at, c_row), sums, strict=True):
            for target, total in zip(_vectors(builder, place, vectors), totals, strict=True):
                before = builder.select(begins, _ZERO, builder.load(target, align=4))
                more = builder.fmul(scale, builder.load(total), flags=_FAST)
                builder.store(builder.fadd(before, more, flags=_FAST), target, align=4)
        return context.get_dummy_value()

    @intrinsic
    def product(
        typingctx: Any,
        a: Any,
        b: Any,
        c: Any,
        above: Any,
        far: Any,
        near: Any,
        scale: Any,
        begins: Any,
    ) -> Any:
        """Arguments as of ``add_product``, for the tile below so many rows."""
        n = types.int64
        return types.void(a, b, c, n, n, n, types.float32, types.boolean), codegen

    return product


_tall, _flat, _single = (tile(height) for height in (TALL, FLAT, 1))


@inner
def add_product(a, b, c, rows, far, near, scale, begins):  # type: ignore[no-untyped-def]
    """C ← (C +) s A B, a vector wide, with

    a = (array, first, to the next row, to the next f, to the next k), b = (array, first, to the
    next f, to the next k), c = (array, first, to the next row), counted in numbers.
    """
    row = 0
    while row + TALL <= rows:
        _tall(a, b, c, row, far, near, scale, begins)
        row += TALL
    while row + FLAT <= rows:
        _flat(a, b, c, row, far, near, scale, begins)
        row += FLAT
    while row < rows:
        _single(a, b, c, row, far, near, scale, begins)
        row += 1


@intrinsic
def _transpose_tile(
    typingctx: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, b_row: Any
) -> Any:
    """LANES × LANES numbers of ``a``, transposed, into ``b``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = (_data(context, builder, signature.args[n], arguments[n]) for n in (0, 3))

        def places(first: Any, at: Any, stride: Any) -> list[Any]:
            each = (builder.add(at, builder.mul(stride, _INDEX(r))) for r in range(LANES))
            return [_vectors(builder, builder.gep(first, [place]), 1)[0] for place in each]

        rows = [builder.load(place, align=4) for place in places(a, *arguments[1:3])]
        bit = 1
        while bit < LANES:  # blocks of this size beside the diagonal change places
            for upper in (r for r in range(LANES) if not r & bit):
                pair = rows[upper], rows[upper | bit]
                above = [j if not j & bit else LANES + (j ^ bit) for j in range(LANES)]
                below = [j | bit if not j & bit else LANES + j for j in range(LANES)]
                for row, order in ((upper, above), (upper | bit, below)):
                    chosen = ir.Constant(ir.VectorType(_SMALL, LANES), order)
                    rows[row] = builder.shuffle_vector(*pair, chosen)
            bit *= 2
        for place, row in zip(places(b, *arguments[4:]), rows, strict=True):
            builder.store(row, place, align=4)
        return context.get_dummy_value()

    n = types.int64
    return types.void(a, n, n, b, n, n), codegen


@inner
def transpose(a, b):  # type: ignore[no-untyped-def]
    """b ← aᵀ for matrices whose rows are contiguous."""
    rows, columns = a.shape
    a_row, b_row = a.strides[0] // 4, b.strides[0] // 4
    whole_rows, whole_columns = rows // LANES * LANES, columns // LANES * LANES
    for i in range(0, whole_rows, LANES):
        for j in range(0, whole_columns, LANES):
            _transpose_tile(a, i * a_row + j, a_row, b, j * b_row + i, b_row)
    for i in range(rows):
        for j in range(whole_columns if i < whole_rows else 0, columns):
            b[j, i] = a[i, j]
