"""Products of matrices inside kernels, tile by tile, without copies or packing.

    C[r, :] (+)= s Σ_f Σ_k A[r, f, k] B[f, k, :]      r = 0, 1, …;  one vector of columns

The sums of a tile of C are in vector registers, and numbers of A are multiplied with vectors of B.
So rows of B and C are contiguous, while A may have any strides. The order of a sum does not depend
on its tile. Compilers do not generate this code from loops, so it is written in LLVM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from thermoloom.engines.compiled.compiling import inner
from thermoloom.engines.compiled.vector_registers import everywhere

_FEATURES = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
WIDE = "+avx512f" in _FEATURES.split(",")
"""Whether kernels are compiled for AVX-512, by this processor or ``NUMBA_CPU_FEATURES``."""
LANES = 16
"""Numbers in a vector: one register of AVX-512, or two of AVX2."""
TALL, FLAT = (16, 4) if WIDE else (6, 3)
"""Rows of the tiles: the sums of a tall tile fill the registers. With fewer than FLAT rows,
products wait for the latency of each other."""

_INDEX, _SMALL = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_FAST = ("contract",)
"""A product and a sum may fuse; the order of sums is fixed."""


class Operand(NamedTuple):
    """Address and strides of A, B or C."""

    address: int
    """Of the first number."""
    row: int
    """Stride of r in numbers; likewise far for f and near for k."""
    far: int
    near: int


class Extent(NamedTuple):
    """Size of a product."""

    rows: int
    far: int
    """Range of f; likewise near for k."""
    near: int
    begins: bool
    """Whether the product overwrites C or is added to it."""


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Pointer to the first number of an array."""
    return context.make_array(kind)(context, builder, array).data


@intrinsic
def address(typingctx: Any, array: Any, number: Any) -> Any:
    """Address of a number in an array; does not keep the array alive.

    Products take addresses, because for arrays they would be compiled once per type of array.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = _data(context, builder, signature.args[0], arguments[0])
        return builder.ptrtoint(builder.gep(first, [arguments[1]]), _INDEX)

    return types.int64(array, types.int64), codegen


def _vectors(builder: Any, place: Any, count: int) -> list[Any]:
    """Pointers to ``count`` adjacent vectors."""
    first = builder.bitcast(place, _VECTOR.as_pointer())
    return [builder.gep(first, [_INDEX(v)]) for v in range(count)]


def products(tall: int, flat: int, vectors: int) -> Any:
    """An intrinsic for C ← (C +) s A B, ``vectors`` wide, in tiles of ``tall`` or ``flat`` rows."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *tuples, scale = arguments
        a, b, c, extent = (cgutils.unpack_tuple(builder, each) for each in tuples)
        extent[3] = builder.trunc(extent[3], ir.IntType(1))
        scale, first = everywhere(builder, scale, LANES), _INDEX(0)
        for height in (tall, flat, 1):
            rest = builder.srem(builder.sub(extent[0], first), _INDEX(height))
            last = builder.sub(extent[0], rest)
            loop = cgutils.for_range_slice(builder, first, last, _INDEX(height), _INDEX, inc=True)
            with loop as (row, _):
                _add_tile(builder, a, b, c, extent, scale, row, height, vectors)
            first = last
        return context.get_dummy_value()

    @intrinsic
    def product(typingctx: Any, a: Any, b: Any, c: Any, extent: Any, scale: Any) -> Any:
        return types.void(a, b, c, extent, types.float32), codegen

    return product


def _add_tile(
    builder: Any, a: Any, b: Any, c: Any, extent: Any, scale: Any, above: Any, height: int,
    vectors: int,
) -> None:  # fmt: skip
    """Rows ``above`` … ``above`` + height of C."""

    def begin(operand: list[Any]) -> Any:
        return builder.inttoptr(operand[0], ir.FloatType().as_pointer())

    def rows(operand: list[Any]) -> list[Any]:
        first = builder.gep(begin(operand), [builder.mul(operand[1], above)])
        return [builder.gep(first, [builder.mul(operand[1], _INDEX(r))]) for r in range(height)]

    _, far, near, begins = extent
    numbers, factors_at = rows(a), begin(b)
    sums = [[cgutils.alloca_once_value(builder, _ZERO) for _ in range(vectors)] for _ in numbers]
    with cgutils.for_range(builder, far) as outer:
        skipped = builder.mul(outer.index, a[2])
        here = [builder.gep(row, [skipped]) for row in numbers]
        there = builder.gep(factors_at, [builder.mul(outer.index, b[2])])
        with cgutils.for_range(builder, near) as loop:
            a_k, b_k = (builder.mul(loop.index, operand[3]) for operand in (a, b))
            places = _vectors(builder, builder.gep(there, [b_k]), vectors)
            factors = [builder.load(place, align=4) for place in places]
            for row, totals in zip(here, sums, strict=True):
                number = everywhere(builder, builder.load(builder.gep(row, [a_k])), LANES)
                for total, factor in zip(totals, factors, strict=True):
                    product = builder.fmul(number, factor, flags=_FAST)
                    updated = builder.fadd(builder.load(total), product, flags=_FAST)
                    builder.store(updated, total)
    for place, totals in zip(rows(c), sums, strict=True):
        for target, total in zip(_vectors(builder, place, vectors), totals, strict=True):
            before = builder.select(begins, _ZERO, builder.load(target, align=4))
            term = builder.fmul(scale, builder.load(total), flags=_FAST)
            builder.store(builder.fadd(before, term, flags=_FAST), target, align=4)


_product = products(TALL, FLAT, 1)


@inner
def add_product(a, b, c, extent, scale):  # type: ignore[no-untyped-def]
    """C ← (C +) s A B, one vector wide."""
    _product(a, b, c, extent, scale)


@intrinsic
def _transpose_tile(
    typingctx: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, b_row: Any
) -> Any:
    """LANES × LANES numbers of ``a``, transposed, into ``b``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = (_data(context, builder, signature.args[n], arguments[n]) for n in (0, 3))

        def places(first: Any, at: Any, stride: Any) -> list[Any]:
            offsets = (builder.add(at, builder.mul(stride, _INDEX(r))) for r in range(LANES))
            return [_vectors(builder, builder.gep(first, [offset]), 1)[0] for offset in offsets]

        rows = [builder.load(place, align=4) for place in places(a, *arguments[1:3])]
        bit = 1
        while bit < LANES:  # exchange off-diagonal blocks of this size
            for upper in (r for r in range(LANES) if not r & bit):
                pair = rows[upper], rows[upper | bit]
                above = [j if not j & bit else LANES + (j ^ bit) for j in range(LANES)]
                below = [j | bit if not j & bit else LANES + j for j in range(LANES)]
                for row, order in ((upper, above), (upper | bit, below)):
                    lanes = ir.Constant(ir.VectorType(_SMALL, LANES), order)
                    rows[row] = builder.shuffle_vector(*pair, lanes)
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
    tiled_rows, tiled_columns = rows // LANES * LANES, columns // LANES * LANES
    for i in range(0, tiled_rows, LANES):
        for j in range(0, tiled_columns, LANES):
            _transpose_tile(a, i * a_row + j, a_row, b, j * b_row + i, b_row)
    for i in range(rows):
        for j in range(tiled_columns if i < tiled_rows else 0, columns):
            b[j, i] = a[i, j]
