"""Couplings on a grid: four rows of codes are moved by one update and act on the next state.

With p = α r/Δ, the codes n_ij of rows i to i + 3 go through one update and act on the next state y:

    nearest       n ← clip(n − round(d)),   d = p_i x_j + p_j x_i
    stochastic    n ← clip(n + ⌊u − d⌋)
    both          f_i ← f_i + Σ_j n_ij y_j,   f_j ← f_j + Σ_i n_ij y_i

A tile of 4 rows and 16 columns takes its 64 uniforms from eight Philox counters:

    u = (128 m + l + ½)/2²³      m: 16 bits per coupling, l: seven bits per row

The tile of rows 4q … 4q + 3 and columns 16b … 16b + 15 of B in a row has the counters
(8 (qB + b) + i, step, trajectory, 0), i = 0 … 7. Row 4q + s takes m in column 16b + 2i + t from the
lower (s even) or upper half of word 2⌊s/2⌋ + t of counter i, and l from the upper bits of word s of
counter (q, step, trajectory, 1). Each u is uniform to 2⁻²³, symmetric about ½ and never 0 or 1; any
two u of a row are correlated by less than 2⁻³².

d, ⌊ ⌋, round and clip are exact IEEE operations, so that a reference can reproduce them; sums of
forces have a fixed order. Loops use few arrays, since compilers do not vectorize others.
"""

from __future__ import annotations

import numpy as np

from thermoloom.engines.compiled.compiling import inline, jit, pair_update
from thermoloom.engines.compiled.streams import HALF, LOW, philox
from thermoloom.engines.compiled.tiles import LANES, ROWS, add_forces_of_rows

_ONE_BITS = np.uint32(0x3F800000)
"""1 in float32."""
_UPPER_BITS, _SEVEN, _NINE = np.uint32(0xFFFF << 7), np.uint32(7), np.uint32(9)
_BELOW_ONE = np.float32(1 - 2.0**-24)


@jit
def _draw_words(key, trajectory, step, first, upper, lower):  # type: ignore[no-untyped-def]
    """Words of the counters from ``first`` on, for the upper and the lower two rows of a tile.

    Two words share 64 bits, so that, read as 32-bit words, they are in the order of the columns.
    """
    c1, c2 = np.uint64(step), np.uint64(trajectory)
    for i in range(upper.size):
        w0, w1, w2, w3 = philox(key, np.uint64(first + i), c1, c2, np.uint64(0))
        upper[i] = (w0 & LOW) | (w1 << HALF)
        lower[i] = (w2 & LOW) | (w3 << HALF)


@inline
def _clip(level, top):  # type: ignore[no-untyped-def]
    level = level if level > -top else -top
    return np.int32(level if level < top else top)


@jit
def _move_nearest(i, p, x, others, top, codes):  # type: ignore[no-untyped-def]
    """Move row i by one update, to the nearest levels."""
    p_i, x_i, p, x = p[i], x[i], p[others], x[others]
    for j in range(codes.size):
        d = pair_update(p_i, x_i, p[j], x[j])
        codes[j] = _clip(np.float32(codes[j]) - np.rint(d), top)


@inline
def _uniform(m, low):  # type: ignore[no-untyped-def]
    """u from m, moved up by seven bits, and the bits of 1 + l/2²³ in float32."""
    return np.uint32((m & _UPPER_BITS) | low).view(np.float32) - _BELOW_ONE


@jit
def _move_stochastic(i, p, x, others, top, codes, next_codes, words, low, next_low):  # type: ignore[no-untyped-def]
    """Move rows i and i + 1, which share their words, by one update, up or down at random."""
    p_i, x_i, p_next, x_next, p, x = p[i], x[i], p[i + 1], x[i + 1], p[others], x[others]
    for j in range(codes.size):
        d, u = pair_update(p_i, x_i, p[j], x[j]), _uniform(words[j] << _SEVEN, low)
        codes[j] = _clip(np.float32(codes[j]) + np.floor(u - d), top)
        d, u = pair_update(p_next, x_next, p[j], x[j]), _uniform(words[j] >> _NINE, next_low)
        next_codes[j] = _clip(np.float32(next_codes[j]) + np.floor(u - d), top)


@jit
def move_rows(rows, codes, column, top, moves, x, next_x, forces, stream):  # type: ignore[no-untyped-def]
    """Move the couplings of some rows by one update and sum their forces on the next state.

    ``moves`` (p) and ``forces`` (in units of Δ) have a row each for J_vh and J_hh; ``column`` is
    the slot of the first column. ``stream``: key, trajectory and step, and whether the rounding is
    stochastic.
    """
    key, trajectory, step, stochastic = stream
    tiles, half = codes.shape[1] // LANES, LANES // 2
    drawn, low = np.empty((2, tiles * half), np.uint64), np.empty(ROWS, np.uint32)
    words = drawn.view(np.uint32)
    forces[:] = 0
    for row in range(rows[0], rows[1], ROWS):
        tensor, q = 0 if row < column else 1, row // ROWS
        vectors = tiles if tensor == 0 else (row - column) // LANES + 1
        width, others = vectors * LANES, slice(column, column + vectors * LANES)
        p, f = moves[tensor], forces[tensor]
        if stochastic:
            upper, lower = drawn[0, : vectors * half], drawn[1, : vectors * half]
            _draw_words(key, trajectory, step, half * q * tiles, upper, lower)
            common = philox(key, np.uint64(q), np.uint64(step), np.uint64(trajectory), np.uint64(1))
            for s in range(ROWS):
                low[s] = _ONE_BITS | np.uint32((common[s] & LOW) >> np.uint64(25))
            for s in range(0, ROWS, 2):
                pair = codes[row + s, :width], codes[row + s + 1, :width]
                random = words[s // 2], low[s], low[s + 1]
                _move_stochastic(row + s, p, x, others, top, *pair, *random)
        else:
            for i in range(row, row + ROWS):
                _move_nearest(i, p, x, others, top, codes[i, :width])
        if tensor == 1:
            for i in range(row, row + ROWS):
                codes[i, i - column : width] = 0
        add_forces_of_rows(codes, codes.shape[1], row, vectors, next_x, column, f)
