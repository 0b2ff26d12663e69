"""Rows of steps in vector registers: the wires of one unit, a block of steps at a time.

A unit's states in a block of B steps are one row of B numbers, in P vectors of L lanes, and so are
its residuals. A wire is then arithmetic between contiguous rows, without gathers, for any
neighbours. Step k = q·P + p of a block is number p·L + q of its row, so vector p holds every P-th
step. The causal sums over
earlier steps are P − 1 additions of vectors and one prefix sum over the lanes.

    row_forces    out(k) = Σ_j J_ij x_j(k)
    row_sweep     S_ij(k) = Σ_{l<k} u_ij(l),   u_ij = x_j r_i + r_j x_i,   added to both its ends:
                  sum_i(k) += x_j(k) S_ij(k),   sum_j(k) += x_i(k) S_ij(k)
    row_updates   J_ij ← J_ij − α Σ_k u_ij(k)

All rows are in one array: x_i is row 2i, R⁰_i row 2i + 1, next to each other because a wire needs
both; r_i is row ``first`` + ``stride``·i. Compilers do not generate this code from loops, so it is
written in LLVM; registers of any width work. ``begin`` … ``end`` are the wires of unit i in
``columns`` (the other end) and ``numbers`` (index of the coupling).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import cgutils

from thermoloom.engines.compiled.compiling import Value, llvm_code
from thermoloom.engines.compiled.tiles import (
    INDEX,
    LANES,
    SMALL,
    ZERO,
    everywhere,
    fetch,
    order,
    vectors,
)

VECTORS = 4
BLOCK = LANES * VECTORS
"""B, steps of a block."""
AHEAD = 4
"""Wires by which rows are fetched ahead: neighbours lie anywhere in memory, and a block of a few
hundred units exceeds the second-level cache. ``columns`` is padded by this many entries."""
_LINE = 16
"""Numbers in a line of the cache."""
_FAST = ("contract", "reassoc", "nsz")
"""A product and a sum may fuse, and sums may be reordered at compile time."""


class _Rows:
    """Code for the rows of an array."""

    def __init__(self, builder: Any, data: Value, first: Value = None, stride: Value = None):
        self.builder, self._data, self._first, self._stride = builder, data, first, stride

    def x(self, unit: Value) -> Value:
        """Pointer to the states of a unit."""
        return self.at(self.builder.mul(INDEX(2), unit))

    def r(self, unit: Value) -> Value:
        """Pointer to the residuals of a unit."""
        return self.at(self.builder.add(self._first, self.builder.mul(self._stride, unit)))

    def at(self, row: Value) -> Value:
        """Pointer to a row."""
        return self.builder.gep(self._data, [self.builder.mul(row, INDEX(BLOCK))])

    def load(self, *starts: Value) -> list[list[Value]]:
        """The vectors of rows."""
        load = self.builder.load
        return [[load(at, align=4) for at in vectors(self.builder, p, VECTORS)] for p in starts]

    def store(self, start: Value, values: list[Value]) -> None:
        for at, value in zip(vectors(self.builder, start, VECTORS), values, strict=True):
            self.builder.store(value, at, align=4)

    def fetch(self, *starts: Value) -> None:
        """Prefetch rows, line by line."""
        for start in starts:
            for line in range(0, BLOCK, _LINE):
                fetch(self.builder, self.builder.gep(start, [INDEX(line)]))

    def entry(self, data: Value, position: Value, ahead: int = 0) -> Value:
        """A 32-bit index, widened, of a wire or of the one that many wires ``ahead``."""
        if ahead:
            position = self.builder.add(position, INDEX(ahead))
        return self.builder.sext(self.builder.load(self.builder.gep(data, [position])), INDEX)

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.fadd(a, b, flags=_FAST)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c."""
        return self.add(self.builder.fmul(a, b, flags=_FAST), c)

    def sums_before(self, value: Value, zeros: Value) -> Value:
        """Sum of the lanes before each lane."""
        prefix = self._moved(value, 1, zeros)
        for distance in (2**n for n in range(LANES.bit_length() - 1)):
            prefix = self.add(prefix, self._moved(prefix, distance, zeros))
        return prefix

    def _moved(self, value: Value, distance: int, zeros: Value) -> Value:
        """All lanes shifted up by ``distance``, zeros below."""
        lanes = [(p - distance) % (2 * LANES) for p in range(LANES)]
        return self.builder.shuffle_vector(value, zeros, order(lanes))

    def total(self, value: Value) -> Value:
        """Sum of all lanes, by halving."""
        half = LANES // 2
        while half:
            low, high = (
                self.builder.shuffle_vector(value, value, order(list(range(first, first + half))))
                for first in (0, half)
            )
            value, half = self.add(low, high), half // 2
        return self.builder.extract_element(value, SMALL(0))

    @contextmanager
    def sums(self, begin: Value, end: Value) -> Iterator[tuple[Value, list[Value]]]:
        """A loop over wires, with pointers to a row of sums initialized to 0."""
        places = [cgutils.alloca_once_value(self.builder, ZERO) for _ in range(VECTORS)]
        loop = cgutils.for_range_slice(self.builder, begin, end, INDEX(1), INDEX, inc=True)
        with loop as (wire, _):
            yield wire, places

    def accumulate(self, place: Value, a: Value, b: Value) -> None:
        """place ← place + a·b."""
        self.builder.store(self.multiply_add(a, b, self.builder.load(place)), place)


@llvm_code
def row_forces(
    builder: Any, data: Value, J: Value, columns: Value, numbers: Value, begin: Value, end: Value,
    out: Value,
) -> None:  # fmt: skip
    """out(k) = Σ_j J_ij x_j(k)."""
    rows = _Rows(builder, data)
    with rows.sums(begin, end) as (wire, sums):
        rows.fetch(rows.x(rows.entry(columns, wire, AHEAD)))
        coupling = builder.load(builder.gep(J, [rows.entry(numbers, wire)]))
        coupling = everywhere(builder, coupling)
        (x_j,) = rows.load(rows.x(rows.entry(columns, wire)))
        for place, states in zip(sums, x_j, strict=True):
            rows.accumulate(place, coupling, states)
    rows.store(out, [builder.load(place) for place in sums])


@llvm_code
def row_sweep(
    builder: Any, data: Value, first: Value, stride: Value, columns: Value, begin: Value,
    end: Value, i: Value, sums: Value,
) -> None:  # fmt: skip
    """sum_i += Σ_j x_j S_ij and sum_j += x_i S_ij, in the rows that start at ``sums``."""
    rows = _Rows(builder, data, first, stride)
    x_i, r_i = rows.load(rows.x(i), rows.r(i))
    # v − v: zeros that LLVM cannot see; for visible zeros it chooses slower shuffles
    zeros = builder.fsub(x_i[0], x_i[0])
    with rows.sums(begin, end) as (wire, sum_i):
        j, later = rows.entry(columns, wire), rows.entry(columns, wire, AHEAD)
        rows.fetch(rows.x(later), rows.r(later), rows.at(builder.add(sums, later)))
        x_j, r_j = rows.load(rows.x(j), rows.r(j))
        before, total = [], ZERO
        for p in range(VECTORS):
            before.append(total)
            product = builder.fmul(r_j[p], x_i[p], flags=_FAST)
            total = rows.add(total, rows.multiply_add(x_j[p], r_i[p], product))
        of_lanes = rows.sums_before(total, zeros)
        place_j = rows.at(builder.add(sums, j))
        (sum_j,) = rows.load(place_j)
        for p, place in enumerate(sum_i):
            moved = rows.add(of_lanes, before[p])
            rows.accumulate(place, moved, x_j[p])
            sum_j[p] = rows.multiply_add(moved, x_i[p], sum_j[p])
        rows.store(place_j, sum_j)
    place_i = rows.at(builder.add(sums, i))
    (earlier,) = rows.load(place_i)
    added = zip(earlier, sum_i, strict=True)
    rows.store(place_i, [rows.add(total, builder.load(place)) for total, place in added])


@llvm_code
def row_updates(
    builder: Any, data: Value, first: Value, stride: Value, columns: Value, numbers: Value,
    begin: Value, end: Value, i: Value, rate: Value, J: Value,
) -> None:  # fmt: skip
    """J_ij ← J_ij − rate · Σ_k u_ij(k)."""
    rows = _Rows(builder, data, first, stride)
    x_i, r_i = rows.load(rows.x(i), rows.r(i))
    with rows.sums(begin, end) as (wire, _):
        later = rows.entry(columns, wire, AHEAD)
        rows.fetch(rows.x(later), rows.r(later))
        j, total = rows.entry(columns, wire), ZERO
        x_j, r_j = rows.load(rows.x(j), rows.r(j))
        for p in range(VECTORS):
            total = rows.multiply_add(x_j[p], r_i[p], total)
            total = rows.multiply_add(r_j[p], x_i[p], total)
        at = builder.gep(J, [rows.entry(numbers, wire)])
        change = builder.fmul(rate, rows.total(total))
        builder.store(builder.fsub(builder.load(at), change), at)
