"""Couplings on a grid in vector registers: four rows of codes are updated in one pass.

With p = α r/Δ, the codes n_ij of rows i to i + 3 go through one update and act on the next state y:

    move_nearest       n ← clip(n − round(d)),   d = p_i x_j + p_j x_i
    move_stochastic    n ← clip(n + ⌊u − d⌋)
    both               f_i ← f_i + Σ_j n_ij y_j,   f_j ← f_j + Σ_i n_ij y_i

Four rows share the vectors of their columns (p_j, x_j, y_j, f_j), and a tile of 4 rows and 16
columns takes its 64 uniforms from eight Philox counters that never leave the registers:

    u = (128 m + l + ½)/2²³      m: 16 bits per coupling, l: seven bits per row

The tile of rows 4q … 4q + 3 and columns 16b … 16b + 15 of B in a row has the counters
(8 (qB + b) + i, step, trajectory, 0), i = 0 … 7. Row 4q + s takes m in column 16b + 2i + t from the
lower (s even) or upper half of word 2⌊s/2⌋ + t of counter i. Each u is uniform to 2⁻²³, symmetric
about ½ and never 0 or 1; two of a row are correlated by less than 2⁻³².

d, ⌊ ⌋, round and clip are exact IEEE operations, so that a reference can reproduce them; sums of
forces may run in any fixed order. Compilers do not generate this code from loops, so it is written
in LLVM; registers of any width work.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from thermoloom.engines.compiled.streams import PHILOX
from thermoloom.engines.compiled.vector_registers import everywhere

ROWS, LANES = 4, 16
"""Rows and columns of a tile."""

_REAL, _INDEX, _SMALL = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_REALS, _WORDS = ir.VectorType(_REAL, LANES), ir.VectorType(_SMALL, LANES)
_PAIRS = ir.VectorType(_INDEX, LANES // 2)
_ZERO = ir.Constant(_REALS, [0.0] * LANES)
_FAST = ("contract", "reassoc", "nsz")
_M0, _M1, _W0, _W1 = PHILOX
_LOW = 0xFFFFFFFF
Value = Any


def _all(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


class _Tile:
    """Code for four rows of codes, for one intrinsic.

    Its arguments: codes, first row, number of full vectors of columns, whether the diagonal of
    J_hh follows, slot of the first column, p, x, y and f by slot, the top level; and for stochastic
    rounding the shared bits of each row, key, trajectory and step.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self._context, self._builder = context, builder
        arrays = [
            context.make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        self._codes, self._row, self._full_vectors, self._triangle, self._column = arrays[:5]
        self._columns = builder.extract_value(self._codes.shape, 1)
        self._moves, self._x, self._next, self._forces = (array.data for array in arrays[5:9])
        self._top = self._everywhere(arrays[9])
        self._bottom = self._everywhere(builder.fneg(arrays[9]))
        of_rows = [builder.add(self._row, _INDEX(s)) for s in range(ROWS)]
        self._of_rows = of_rows
        self._rows = [
            tuple(
                self._everywhere(self._at(data, i)) for data in (self._moves, self._x, self._next)
            )
            for i in of_rows
        ]
        self._random = arrays[10:]
        if self._random:
            low, key, trajectory, step = self._random
            self._low = [self._everywhere(self._at(low.data, i)) for i in of_rows]
            self._keys = builder.trunc(key, _SMALL), self._trunc_upper(key)
            self._trajectory, self._step = trajectory, step

    def _trunc_upper(self, key: Value) -> Value:
        return self._builder.trunc(self._builder.lshr(key, _INDEX(32)), _SMALL)

    def _at(self, data: Value, position: Value) -> Value:
        return self._builder.load(self._builder.gep(data, [position]))

    def _everywhere(self, value: Value, lanes: int = LANES) -> Value:
        return everywhere(self._builder, value, lanes)

    def _vector(self, data: Value, position: Value) -> Value:
        """Pointer to a vector in an array of numbers."""
        at = self._builder.gep(data, [position])
        kind = ir.VectorType(data.type.pointee, LANES)
        return self._builder.bitcast(at, kind.as_pointer())

    def _of_columns(self, data: Value, first: Value) -> Value:
        at = self._vector(data, self._builder.add(self._column, first))
        return self._builder.load(at, align=4)

    def _call(self, name: str, value: Value) -> Value:
        kind, name = ir.FunctionType(_REALS, [_REALS]), f"llvm.{name}.v{LANES}f32"
        routine = cgutils.get_or_insert_function(self._builder.module, kind, name)
        return self._builder.call(routine, [value])

    def _less(self, a: Value, b: Value) -> Value:
        return self._builder.select(self._builder.fcmp_ordered("<", a, b), a, b)

    def _greater(self, a: Value, b: Value) -> Value:
        return self._builder.select(self._builder.fcmp_ordered(">", a, b), a, b)

    def _added(self, place: Value, a: Value, b: Value) -> None:
        """place ← place + a·b."""
        product = self._builder.fmul(a, b, flags=_FAST)
        sum_ = self._builder.fadd(self._builder.load(place), product, flags=_FAST)
        self._builder.store(sum_, place)

    def _words(self, vector: Value) -> list[Value]:
        """The four words of the eight counters of a tile, each in the lower half of 64 bits."""
        b = self._builder
        tiles = b.udiv(self._columns, _INDEX(LANES))
        number = b.add(b.mul(b.udiv(self._row, _INDEX(ROWS)), tiles), vector)
        first = self._everywhere(b.mul(number, _INDEX(8)), 8)
        c0 = b.add(first, ir.Constant(_PAIRS, list(range(8))))
        c1, c2 = self._everywhere(self._step, 8), self._everywhere(self._trajectory, 8)
        c3 = _all(_PAIRS, 0)
        low, half = _all(_PAIRS, _LOW), _all(_PAIRS, 32)
        k0, k1 = self._keys
        for _ in range(10):
            p0 = b.mul(b.and_(c0, low), _all(_PAIRS, _M0))
            p1 = b.mul(b.and_(c2, low), _all(_PAIRS, _M1))
            wide0, wide1 = (self._everywhere(b.zext(k, _INDEX), 8) for k in (k0, k1))
            c0, c1 = b.xor(b.xor(b.lshr(p1, half), c1), wide0), p1
            c2, c3 = b.xor(b.xor(b.lshr(p0, half), c3), wide1), p0
            k0, k1 = b.add(k0, _SMALL(_W0)), b.add(k1, _SMALL(_W1))
        return [c0, c1, c2, c3]

    def _draw(self, vector: Value) -> None:
        for word, place in zip(self._words(vector), self._drawn, strict=True):
            self._builder.store(word, place)

    def _uniforms(self, words: list[Value]) -> list[Value]:
        """Uniforms u of four rows."""
        b = self._builder
        lower = ir.Constant(_WORDS, [LANES * (lane % 2) + lane // 2 * 2 for lane in range(LANES)])
        uniforms = []
        for s in range(ROWS):
            pair = (b.bitcast(word, _WORDS) for word in words[s // 2 * 2 : s // 2 * 2 + 2])
            both = b.shuffle_vector(*pair, lower)
            shifted = b.lshr(both, _all(_WORDS, 9)) if s % 2 else b.shl(both, _all(_WORDS, 7))
            bits = b.or_(b.and_(shifted, _all(_WORDS, 0xFFFF << 7)), self._low[s])
            one_to_two = b.bitcast(bits, _REALS)
            uniforms.append(b.fsub(one_to_two, _all(_REALS, 1 - 2.0**-24)))
        return uniforms

    def _moved(self, n: Value, d: Value, u: Value | None) -> Value:
        b = self._builder
        if u is None:
            n = b.fsub(n, self._call("rint", d))
        else:
            n = b.fadd(n, self._call("floor", b.fsub(u, d)))
        return self._less(self._greater(n, self._bottom), self._top)

    def _tile(self, vector: Value, sums: list[Value], diagonal: bool) -> None:
        b = self._builder
        first = b.mul(vector, _INDEX(LANES))
        p, x, y = (self._of_columns(data, first) for data in (self._moves, self._x, self._next))
        uniforms = [None] * ROWS
        if self._random:
            # the next tile's words are drawn here, so that draws and moves overlap
            uniforms = self._uniforms([b.load(place) for place in self._drawn])
            self._draw(b.add(vector, _INDEX(1)))
        others = cgutils.alloca_once_value(b, _ZERO)
        b.store(self._of_columns(self._forces, first), others)
        stored = ir.VectorType(self._codes.data.type.pointee, LANES)
        for s, (p_i, x_i, y_i) in enumerate(self._rows):
            begin = b.add(b.mul(self._of_rows[s], self._columns), first)
            at = self._vector(self._codes.data, begin)
            codes = b.load(at, align=2)
            wide = b.sext(codes, _WORDS) if stored != _WORDS else codes
            d = b.fadd(b.fmul(p_i, x), b.fmul(p, x_i))
            n = self._moved(b.sitofp(wide, _REALS), d, uniforms[s])
            if diagonal:
                n = b.select(self._before(first, s), n, _ZERO)
            integers = b.fptosi(n, _WORDS)
            b.store(b.trunc(integers, stored) if stored != _WORDS else integers, at, align=2)
            self._added(others, n, y_i)
            self._added(sums[s], n, y)
        at = self._vector(self._forces, b.add(self._column, first))
        b.store(b.load(others), at, align=4)

    def _before(self, first: Value, s: int) -> Value:
        """Mask of the columns of a vector that are before the diagonal of J_hh in this row."""
        b = self._builder
        columns = ir.Constant(ir.VectorType(_INDEX, LANES), list(range(LANES)))
        row = b.sub(b.sub(self._of_rows[s], self._column), first)
        return b.icmp_signed("<", columns, self._everywhere(row))

    def pass_over(self) -> None:
        b = self._builder
        sums = [cgutils.alloca_once_value(b, _ZERO) for _ in range(ROWS)]
        if self._random:
            self._drawn = [cgutils.alloca_once(b, _PAIRS) for _ in range(4)]
            self._draw(_INDEX(0))
        loop = cgutils.for_range_slice(
            b, _INDEX(0), self._full_vectors, _INDEX(1), _INDEX, inc=True
        )
        with loop as (vector, _):
            self._tile(vector, sums, diagonal=False)
        with b.if_then(b.icmp_signed("!=", self._triangle, _INDEX(0))):
            self._tile(self._full_vectors, sums, diagonal=True)
        for i, place in zip(self._of_rows, sums, strict=True):
            at = b.gep(self._forces, [i])
            b.store(b.fadd(b.load(at), self._total(b.load(place))), at)

    def _total(self, value: Value) -> Value:
        """Sum of all lanes."""
        for distance in (2**n for n in range(LANES.bit_length() - 1)):
            order = [(lane + distance) % LANES for lane in range(LANES)]
            turned = self._builder.shuffle_vector(value, value, ir.Constant(_WORDS, order))
            value = self._builder.fadd(value, turned, flags=_FAST)
        return self._builder.extract_element(value, _SMALL(0))


def _codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    _Tile(context, builder, signature, arguments).pass_over()
    return context.get_dummy_value()


@intrinsic
def move_nearest(
    typingctx: Any, codes: Any, row: Any, full_vectors: Any, triangle: Any, column: Any,
    moves: Any, x: Any, next_x: Any, forces: Any, top: Any,
) -> Any:  # fmt: skip
    """Move rows ``row`` … ``row`` + 3 by rounding to the nearest level, and add up their forces."""
    at, real = types.int64, types.float32
    return types.void(codes, at, at, at, at, moves, x, next_x, forces, real), _codegen


@intrinsic
def move_stochastic(
    typingctx: Any, codes: Any, row: Any, full_vectors: Any, triangle: Any, column: Any,
    moves: Any, x: Any, next_x: Any, forces: Any, top: Any, low: Any, key: Any, trajectory: Any,
    step: Any,
) -> Any:  # fmt: skip
    """Move rows ``row`` … ``row`` + 3 with stochastic rounding, and add up their forces."""
    at, real, key = types.int64, types.float32, types.uint64
    return types.void(codes, at, at, at, at, moves, x, next_x, forces, real, low, key, at, at), (
        _codegen
    )
