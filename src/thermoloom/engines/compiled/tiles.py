"""Products of matrices inside kernels, tile by tile, without copies or packing.

    add_product    C[r, :] (+)= s Σ_f Σ_k A[r, f, k] B[f, k, :]      r = 0, 1, …;  one vector wide
    transpose      B ← Aᵀ
    add_forces_of_rows    f_j += Σ_i n_ij y_i,   f_i += Σ_j n_ij y_j     for a few rows of integers

The sums of a tile of C are in vector registers, and numbers of A are multiplied with vectors of B.
Rows of B and C must therefore be contiguous; A may have any strides. The order of a sum does not
depend on its tile. Compilers do not generate this code from loops, so it is written in LLVM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import config
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features

from thermoloom.engines.compiled.compiling import Value, inner, llvm_code

_FEATURES = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
WIDE = "+avx512f" in _FEATURES.split(",")
"""Whether kernels are compiled for AVX-512, by this processor or ``NUMBA_CPU_FEATURES``."""
LANES = 16
"""Numbers in a vector: one register of AVX-512, or two of AVX2."""
TALL, FLAT = (16, 4) if WIDE else (6, 3)
"""Rows of the tiles: the sums of a tall tile fill the registers. With fewer than FLAT rows,
products wait for the latency of each other."""
ROWS = 4
"""Rows of ``add_forces_of_rows``."""

REAL, INDEX, SMALL = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(REAL, LANES)
ZERO = ir.Constant(VECTOR, [0.0] * LANES)
_FAST = ("contract",)
"""A product and a sum may fuse; the order of sums is fixed."""


class Operand(NamedTuple):
    """Address and strides of A, B or C."""

    address: int
    """Address of the first number."""
    row: int
    """Stride of r in numbers; ``far`` is that of f, ``near`` that of k."""
    far: int
    near: int


class Extent(NamedTuple):
    """Size of a product."""

    rows: int
    far: int
    """Range of f; ``near`` is that of k."""
    near: int
    begins: bool
    """Whether the product overwrites C; otherwise it is added."""


def everywhere(builder: Any, number: Value) -> Value:
    """A vector with one number in all lanes."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, SMALL(0))
    return builder.shuffle_vector(first, first, order([0] * LANES))


def order(lanes: list[int]) -> ir.Constant:
    """Lanes as the argument of a shuffle."""
    return ir.Constant(ir.VectorType(SMALL, len(lanes)), lanes)


def vectors(builder: Any, place: Value, count: int) -> list[Value]:
    """Pointers to ``count`` adjacent vectors."""
    first = builder.bitcast(place, VECTOR.as_pointer())
    return [builder.gep(first, [INDEX(v)]) for v in range(count)]


def fetch(builder: Any, place: Value) -> None:
    """Prefetch a line of the cache."""
    place = builder.bitcast(place, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, SMALL, SMALL, SMALL])
    routine = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(routine, [place, SMALL(0), SMALL(3), SMALL(1)])


@llvm_code
def address(builder: Any, array: Value, number: Value) -> Value:
    """Address of a number in an array; does not keep the array alive.

    Products take addresses, because for arrays they would be compiled once per type of array.
    """
    return builder.ptrtoint(builder.gep(array, [number]), INDEX)


def products(tall: int, flat: int, count: int) -> Any:
    """C ← (C +) s A B in tiles of ``tall``, ``flat`` and single rows, ``count`` vectors wide."""

    @llvm_code
    def product(builder: Any, a: Any, b: Any, c: Any, extent: Any, scale: Value) -> None:
        extent[3] = builder.trunc(extent[3], ir.IntType(1))
        scale, first = everywhere(builder, scale), INDEX(0)
        for height in (tall, flat, 1):
            rest = builder.srem(builder.sub(extent[0], first), INDEX(height))
            last = builder.sub(extent[0], rest)
            loop = cgutils.for_range_slice(builder, first, last, INDEX(height), INDEX, inc=True)
            with loop as (row, _):
                _add_tile(builder, a, b, c, extent, scale, row, height, count)
            first = last

    return product


def _add_tile(
    builder: Any, a: Any, b: Any, c: Any, extent: Any, scale: Any, above: Any, height: int,
    count: int,
) -> None:  # fmt: skip
    """Rows ``above`` … ``above`` + height of C."""

    def begin(operand: list[Any]) -> Any:
        return builder.inttoptr(operand[0], REAL.as_pointer())

    def rows(operand: list[Any]) -> list[Any]:
        first = builder.gep(begin(operand), [builder.mul(operand[1], above)])
        return [builder.gep(first, [builder.mul(operand[1], INDEX(r))]) for r in range(height)]

    _, far, near, begins = extent
    numbers, factors_at = rows(a), begin(b)
    sums = [[cgutils.alloca_once_value(builder, ZERO) for _ in range(count)] for _ in numbers]
    with cgutils.for_range(builder, far) as outer:
        skipped = builder.mul(outer.index, a[2])
        here = [builder.gep(row, [skipped]) for row in numbers]
        there = builder.gep(factors_at, [builder.mul(outer.index, b[2])])
        with cgutils.for_range(builder, near) as loop:
            a_k, b_k = (builder.mul(loop.index, operand[3]) for operand in (a, b))
            places = vectors(builder, builder.gep(there, [b_k]), count)
            factors = [builder.load(place, align=4) for place in places]
            for row, totals in zip(here, sums, strict=True):
                number = everywhere(builder, builder.load(builder.gep(row, [a_k])))
                for total, factor in zip(totals, factors, strict=True):
                    _accumulate(builder, total, number, factor)
    for place, totals in zip(rows(c), sums, strict=True):
        for target, total in zip(vectors(builder, place, count), totals, strict=True):
            before = builder.select(begins, ZERO, builder.load(target, align=4))
            term = builder.fmul(scale, builder.load(total), flags=_FAST)
            builder.store(builder.fadd(before, term, flags=_FAST), target, align=4)


def _accumulate(builder: Any, place: Value, a: Value, b: Value) -> None:
    """place ← place + a·b."""
    product = builder.fmul(a, b, flags=_FAST)
    builder.store(builder.fadd(builder.load(place), product, flags=_FAST), place)


_product = products(TALL, FLAT, 1)


@inner
def add_product(a, b, c, extent, scale):  # type: ignore[no-untyped-def]
    """C ← (C +) s A B, one vector wide."""
    _product(a, b, c, extent, scale)


@llvm_code
def add_forces_of_rows(
    builder: Any, codes: Value, columns: Value, row: Value, count: Value, y: Value, column: Value,
    f: Value,
) -> None:  # fmt: skip
    """f_j += Σ_i n_ij y_i and f_i += Σ_j n_ij y_j for the integers n_ij of ROWS rows from ``row``.

    The rows have ``columns`` numbers, of which ``count`` vectors are used; column 0 is that of unit
    ``column``. A row's lanes are summed separately, then added in pairs.
    """
    kind, units = ir.VectorType(codes.type.pointee, LANES), []
    for r in range(ROWS):
        i = builder.add(row, INDEX(r))
        start = builder.gep(codes, [builder.mul(columns, i)])
        y_i = everywhere(builder, builder.load(builder.gep(y, [i])))
        units.append((i, start, y_i, cgutils.alloca_once_value(builder, ZERO)))
    with cgutils.for_range(builder, count) as loop:
        k = builder.mul(loop.index, INDEX(LANES))
        (at_y,), (at_f,) = (
            vectors(builder, builder.gep(data, [builder.add(column, k)]), 1) for data in (y, f)
        )
        y_j, f_j = builder.load(at_y, align=4), cgutils.alloca_once(builder, VECTOR)
        builder.store(builder.load(at_f, align=4), f_j)
        for _, start, y_i, f_i in units:
            at_codes = builder.bitcast(builder.gep(start, [k]), kind.as_pointer())
            n = builder.sitofp(builder.load(at_codes, align=2), VECTOR)
            _accumulate(builder, f_j, n, y_i)
            _accumulate(builder, f_i, n, y_j)
        builder.store(builder.load(f_j), at_f, align=4)
    for i, _, _, f_i in units:
        total, distance = builder.load(f_i), 1
        while distance < LANES:
            turned = order([(lane + distance) % LANES for lane in range(LANES)])
            turned = builder.shuffle_vector(total, total, turned)
            total, distance = builder.fadd(total, turned), 2 * distance
        target = builder.gep(f, [i])
        total = builder.extract_element(total, SMALL(0))
        builder.store(builder.fadd(builder.load(target), total), target)


@llvm_code
def transpose_tile(
    builder: Any, a: Value, a_at: Value, a_row: Value, b: Value, b_at: Value, b_row: Value
) -> None:
    """LANES × LANES numbers of ``a``, transposed, into ``b``.

    The tile to the right is prefetched: rows of a path are too distant for the hardware prefetcher.
    """

    def rows_of(first: Value, at: Value, stride: Value) -> list[Value]:
        offsets = (builder.add(at, builder.mul(stride, INDEX(r))) for r in range(LANES))
        return [builder.gep(first, [offset]) for offset in offsets]

    rows = []
    for start in rows_of(a, a_at, a_row):
        rows.append(builder.load(*vectors(builder, start, 1), align=4))
        fetch(builder, builder.gep(start, [INDEX(LANES)]))
    bit = 1
    while bit < LANES:  # exchange off-diagonal blocks of this size
        for upper in (r for r in range(LANES) if not r & bit):
            pair = rows[upper], rows[upper | bit]
            above = [j if not j & bit else LANES + (j ^ bit) for j in range(LANES)]
            below = [j | bit if not j & bit else LANES + j for j in range(LANES)]
            for row, lanes in ((upper, above), (upper | bit, below)):
                rows[row] = builder.shuffle_vector(*pair, order(lanes))
        bit *= 2
    for start, row in zip(rows_of(b, b_at, b_row), rows, strict=True):
        builder.store(row, *vectors(builder, start, 1), align=4)


@inner
def transpose(a, b):  # type: ignore[no-untyped-def]
    """b ← aᵀ for matrices whose rows are contiguous."""
    rows, columns = a.shape
    a_row, b_row = a.strides[0] // 4, b.strides[0] // 4
    tiled_rows, tiled_columns = rows // LANES * LANES, columns // LANES * LANES
    for i in range(0, tiled_rows, LANES):
        for j in range(0, tiled_columns, LANES):
            transpose_tile(a, i * a_row + j, a_row, b, j * b_row + i, b_row)
    for i in range(rows):
        for j in range(tiled_columns if i < tiled_rows else 0, columns):
            b[j, i] = a[i, j]
