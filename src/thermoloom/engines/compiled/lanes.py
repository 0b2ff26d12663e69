"""Rows of steps in vector registers: the wires of one unit, a block of steps at a time.

A unit's states in a block of B steps are one row of B numbers, and so are its residuals. A wire
then is arithmetic between contiguous rows, without gathers, for any neighbours. Step k = q·P + p of
a block is number p·L + q of its row, so that vector p holds every P-th step. The causal sums over
earlier steps are P − 1 additions of vectors and one prefix sum over the lanes.

    row_forces    out(k) = Σ_j J_ij x_j(k)
    row_sweep     S_ij(k) = Σ_{l<k} u_ij(l),   u_ij = x_j r_i + r_j x_i,   added to both its ends:
                  sum_i(k) += x_j(k) S_ij(k),   sum_j(k) += x_i(k) S_ij(k)
    row_swept     out_i(k) = R⁰_i(k) − α sum_i(k)
    row_updates   J_ij ← J_ij − α Σ_k u_ij(k)
    turn          states of a path, step by step, transposed into rows

All rows are in one array: x_i is row 2i, R⁰_i row 2i + 1, next to each other because a wire needs
both; r_i is row ``first`` + ``stride``·i. Compilers do not generate this code from loops, so it is
written in LLVM; registers of any width work. ``begin`` … ``end`` are the wires of unit i in
``columns`` (the other end) and ``numbers`` (index of the coupling).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from thermoloom.engines.compiled.vector_registers import everywhere

LANES, VECTORS = 16, 4
BLOCK = LANES * VECTORS
"""B, steps of a block."""
AHEAD = 4
"""Wires by which rows are fetched ahead: neighbours lie anywhere in memory, and a block of a few
hundred units exceeds the second-level cache. ``columns`` has as many entries behind its last."""
_LINE = 16
"""Numbers in a line of the cache."""

_REAL, _INDEX, _SMALL = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_REAL, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_FAST = ("contract", "reassoc", "nsz")
"""A product and a sum may fuse, and sums may be reordered at compile time."""
Value = Any


def _order(lanes: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_SMALL, len(lanes)), lanes)


class _Rows:
    """Vector code on arrays of rows, for one intrinsic."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self._context, self.builder = context, builder
        self._signature, self._arguments = signature, arguments

    def data(self, position: int) -> Value:
        """Pointer to the first number of an array argument."""
        kind, value = self._signature.args[position], self._arguments[position]
        return self._context.make_array(kind)(self._context, self.builder, value).data

    def _vectors(self, data: Value, row: Value) -> list[Value]:
        first = self.builder.gep(data, [self.builder.mul(row, _INDEX(BLOCK))])
        first = self.builder.bitcast(first, _VECTOR.as_pointer())
        return [self.builder.gep(first, [_INDEX(vector)]) for vector in range(VECTORS)]

    def number(self, first: Value, stride: Value, unit: Value) -> Value:
        """first + stride · unit."""
        return self.builder.add(first, self.builder.mul(stride, unit))

    def load(self, data: Value, row: Value) -> list[Value]:
        return [self.builder.load(at, align=4) for at in self._vectors(data, row)]

    def pair(
        self, data: Value, first: Value, stride: Value, unit: Value
    ) -> tuple[list[Value], list[Value]]:
        """x and r of a unit."""
        x = self.load(data, self.number(_INDEX(0), _INDEX(2), unit))
        return x, self.load(data, self.number(first, stride, unit))

    def store(self, data: Value, row: Value, values: list[Value]) -> None:
        for at, value in zip(self._vectors(data, row), values, strict=True):
            self.builder.store(value, at, align=4)

    def entry(self, data: Value, position: Value) -> Value:
        """An index of 32 bits, widened."""
        return self.builder.sext(self.builder.load(self.builder.gep(data, [position])), _INDEX)

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.fadd(a, b, flags=_FAST)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c."""
        return self.add(self.builder.fmul(a, b, flags=_FAST), c)

    def everywhere(self, number: Value) -> Value:
        """A number in all lanes."""
        return everywhere(self.builder, number, LANES)

    def sums_before(self, value: Value, zeros: Value) -> Value:
        """Sum of the lanes before each lane."""
        prefix = self._moved(value, 1, zeros)
        for distance in (2**n for n in range(LANES.bit_length() - 1)):
            prefix = self.add(prefix, self._moved(prefix, distance, zeros))
        return prefix

    def _moved(self, value: Value, distance: int, zeros: Value) -> Value:
        """All lanes shifted up by ``distance``, zeros below."""
        lanes = [(p - distance) % (2 * LANES) for p in range(LANES)]
        return self.builder.shuffle_vector(value, zeros, _order(lanes))

    def hidden_zeros(self, value: Value) -> Value:
        """v − v: zeros that LLVM cannot see; for visible zeros it chooses slower shuffles."""
        return self.builder.fsub(value, value)

    def total(self, value: Value) -> Value:
        """Sum of all lanes, by halving."""
        half = LANES // 2
        while half:
            low, high = (
                self.builder.shuffle_vector(value, value, _order(list(range(first, first + half))))
                for first in (0, half)
            )
            value, half = self.add(low, high), half // 2
        return self.builder.extract_element(value, _SMALL(0))

    def fetch_row(self, data: Value, row: Value) -> None:
        """Prefetch a row, line by line."""
        first = self.builder.gep(data, [self.builder.mul(row, _INDEX(BLOCK))])
        for line in range(0, BLOCK, _LINE):
            self.fetch(self.builder.gep(first, [_INDEX(line)]))

    def fetch_pair(self, data: Value, first: Value, stride: Value, unit: Value) -> None:
        """Prefetch x and r of a unit."""
        self.fetch_row(data, self.number(_INDEX(0), _INDEX(2), unit))
        self.fetch_row(data, self.number(first, stride, unit))

    def ahead(self, others: Value, wire: Value) -> Value:
        """The unit at the other end of a later wire."""
        return self.entry(others, self.builder.add(wire, _INDEX(AHEAD)))

    def fetch(self, at: Value) -> None:
        """Prefetch the next read: steps of a path are too distant for the hardware prefetcher."""
        place = self.builder.bitcast(at, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _SMALL, _SMALL, _SMALL])
        routine = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        self.builder.call(routine, [place, _SMALL(0), _SMALL(3), _SMALL(1)])

    @contextmanager
    def sums(self, begin: Value, end: Value) -> Iterator[tuple[Value, list[Value]]]:
        """A loop over wires, with pointers to a row of sums initialized to 0."""
        places = [cgutils.alloca_once_value(self.builder, _ZERO) for _ in range(VECTORS)]
        loop = cgutils.for_range_slice(self.builder, begin, end, _INDEX(1), _INDEX, inc=True)
        with loop as (wire, _):
            yield wire, places

    def added(self, place: Value, a: Value, b: Value) -> None:
        """place ← place + a·b."""
        self.builder.store(self.multiply_add(a, b, self.builder.load(place)), place)

    def loaded(self, places: list[Value]) -> list[Value]:
        return [self.builder.load(place) for place in places]


@intrinsic
def turn(
    typingctx: Any, source: Any, width: Any, step: Any, unit: Any, vector: Any, second: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Vector ``vector`` of the rows of L units, from the L steps step, step + P, … of a path.

    Rows 2i, or 2i + 1 if ``second`` is 1, of the units from ``unit`` on.

    ``width``: units of the path. A square of L × L numbers is transposed in registers: in round n,
    pairs of vectors at a distance of 2ⁿ exchange every other 2ⁿ lanes.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        path, target = rows.data(0), rows.data(6)
        _, across, step, unit, which, second, _ = arguments
        square = []
        for lane in range(LANES):
            row = builder.mul(builder.add(step, _INDEX(lane * VECTORS)), across)
            at = builder.gep(path, [builder.add(row, unit)])
            square.append(builder.load(builder.bitcast(at, _VECTOR.as_pointer()), align=4))
            rows.fetch(builder.gep(at, [_INDEX(LANES)]))
        distance = 1
        while distance < LANES:
            low = [p ^ distance | LANES if p & distance else p for p in range(LANES)]
            high = [p | LANES if p & distance else p | distance for p in range(LANES)]
            for first in (p for p in range(LANES) if not p & distance):
                pair = square[first], square[first | distance]
                square[first], square[first | distance] = (
                    builder.shuffle_vector(*pair, _order(lanes)) for lanes in (low, high)
                )
            distance *= 2
        for lane, vector_of_unit in enumerate(square):
            row = rows.number(second, _INDEX(2), builder.add(unit, _INDEX(lane)))
            row = builder.mul(row, _INDEX(BLOCK))
            at = builder.gep(target, [builder.add(row, builder.mul(which, _INDEX(LANES)))])
            builder.store(vector_of_unit, builder.bitcast(at, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    at = types.int64
    return types.void(source, at, at, at, at, at, out), codegen


@intrinsic
def row_forces(
    typingctx: Any, data: Any, J: Any, columns: Any, numbers: Any, begin: Any, end: Any, out: Any
) -> Any:
    """out(k) = Σ_j J_ij x_j(k)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        all_rows, couplings, others, which, target = (rows.data(n) for n in (0, 1, 2, 3, 6))
        with rows.sums(arguments[4], arguments[5]) as (wire, sums):
            rows.fetch_row(all_rows, rows.number(_INDEX(0), _INDEX(2), rows.ahead(others, wire)))
            at = builder.gep(couplings, [rows.entry(which, wire)])
            coupling = rows.everywhere(builder.load(at))
            x_j = rows.load(all_rows, rows.number(_INDEX(0), _INDEX(2), rows.entry(others, wire)))
            for place, states in zip(sums, x_j, strict=True):
                rows.added(place, coupling, states)
        rows.store(target, _INDEX(0), rows.loaded(sums))
        return context.get_dummy_value()

    at = types.int64
    return types.void(data, J, columns, numbers, at, at, out), codegen


@intrinsic
def row_sweep(
    typingctx: Any, data: Any, first: Any, stride: Any, columns: Any, begin: Any, end: Any, i: Any,
    sums: Any,
) -> Any:  # fmt: skip
    """sum_i += Σ_j x_j S_ij and sum_j += x_i S_ij, in the rows from ``sums`` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        all_rows, others = rows.data(0), rows.data(3)
        _, first, stride, _, begin, end, i, sums = arguments
        x_i, r_i = rows.pair(all_rows, first, stride, i)
        zeros = rows.hidden_zeros(x_i[0])
        with rows.sums(begin, end) as (wire, sum_i):
            j, later = rows.entry(others, wire), rows.ahead(others, wire)
            rows.fetch_pair(all_rows, first, stride, later)
            rows.fetch_row(all_rows, builder.add(sums, later))
            x_j, r_j = rows.pair(all_rows, first, stride, j)
            before, total = [], _ZERO
            for p in range(VECTORS):
                before.append(total)
                product = builder.fmul(r_j[p], x_i[p], flags=_FAST)
                total = rows.add(total, rows.multiply_add(x_j[p], r_i[p], product))
            of_lanes = rows.sums_before(total, zeros)
            sum_j = rows.load(all_rows, builder.add(sums, j))
            for p, place in enumerate(sum_i):
                moved = rows.add(of_lanes, before[p])
                rows.added(place, moved, x_j[p])
                sum_j[p] = rows.multiply_add(moved, x_i[p], sum_j[p])
            rows.store(all_rows, builder.add(sums, j), sum_j)
        at = builder.add(sums, i)
        vectors = zip(rows.load(all_rows, at), rows.loaded(sum_i), strict=True)
        rows.store(all_rows, at, [rows.add(*pair) for pair in vectors])
        return context.get_dummy_value()

    at = types.int64
    return types.void(data, at, at, columns, at, at, at, at), codegen


@intrinsic
def row_swept(
    typingctx: Any, data: Any, first: Any, stride: Any, i: Any, sums: Any, other_sums: Any,
    rate: Any, norms: Any,
) -> Any:  # fmt: skip
    """out_i = R⁰_i − rate · sum_i, written to row ``sums`` + i.

    sum_i is the sum of rows ``sums`` + i and ``other_sums`` + i.
    ``norms`` at 2i and 2i + 1 become Σ_k (out_i − r_i)² and Σ_k out_i².
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        all_rows, squares = rows.data(0), rows.data(7)
        _, first, stride, i, sums, other_sums, rate, _ = arguments
        partial_sums = [rows.load(all_rows, builder.add(at, i)) for at in (sums, other_sums)]
        start = rows.load(all_rows, rows.number(_INDEX(1), _INDEX(2), i))
        back = rows.everywhere(builder.fneg(rate))
        residuals = [
            rows.multiply_add(back, rows.add(a, b), r_0)
            for a, b, r_0 in zip(*partial_sums, start, strict=True)
        ]
        change = size = _ZERO
        for value, old in zip(residuals, rows.pair(all_rows, first, stride, i)[1], strict=True):
            moved = builder.fsub(value, old, flags=_FAST)
            change = rows.multiply_add(moved, moved, change)
            size = rows.multiply_add(value, value, size)
        rows.store(all_rows, builder.add(sums, i), residuals)
        for place, norm in enumerate((change, size)):
            at = builder.add(builder.mul(i, _INDEX(2)), _INDEX(place))
            builder.store(rows.total(norm), builder.gep(squares, [at]))
        return context.get_dummy_value()

    at = types.int64
    return types.void(data, at, at, at, at, at, types.float32, norms), codegen


@intrinsic
def row_updates(
    typingctx: Any, data: Any, first: Any, stride: Any, columns: Any, numbers: Any, begin: Any,
    end: Any, i: Any, rate: Any, J: Any,
) -> Any:  # fmt: skip
    """J_ij ← J_ij − rate · Σ_k u_ij(k)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        all_rows, others, which, couplings = (rows.data(n) for n in (0, 3, 4, 9))
        _, first, stride, _, _, _, _, i, _, _ = arguments
        x_i, r_i = rows.pair(all_rows, first, stride, i)
        with rows.sums(arguments[5], arguments[6]) as (wire, _):
            rows.fetch_pair(all_rows, first, stride, rows.ahead(others, wire))
            x_j, r_j = rows.pair(all_rows, first, stride, rows.entry(others, wire))
            total = _ZERO
            for p in range(VECTORS):
                total = rows.multiply_add(x_j[p], r_i[p], total)
                total = rows.multiply_add(r_j[p], x_i[p], total)
            at = builder.gep(couplings, [rows.entry(which, wire)])
            moved = builder.fmul(arguments[8], rows.total(total))
            builder.store(builder.fsub(builder.load(at), moved), at)
        return context.get_dummy_value()

    at = types.int64
    return types.void(data, at, at, columns, numbers, at, at, at, types.float32, J), codegen
