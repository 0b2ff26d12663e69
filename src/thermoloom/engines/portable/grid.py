"""Couplings on a grid of b bits: every update moves them by whole levels.

    J = nΔ,   Δ = A_max/(2^(b−1) − 1),   y = −α (r_i x_j′ + r_j x_i′)/Δ
    nearest      n → n + round(y)
    stochastic   n → n + ⌊y + u⌋,   u = (128 m + l + ½)/2²³ uniform in (0, 1)

clipped to the grid, at every step. J_vh and J_hh are on grids; biases and label couplings are not.
Of u, 16 bits m are its own and seven bits l are common to a row. Words are those of the compiled
engine; levels differ where round-off crosses the boundary between two.
"""

from __future__ import annotations

import numpy as np

from thermoloom.engines.portable.couplings import Blocks
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.machine.quantization import ON_GRID, Grid, top_level
from thermoloom.streams import philox


def uniforms(library: NumPy, visible: int, hidden: int, keys: Array, counter: Array) -> list[Array]:
    """u of J_vh and J_hh in one step of a trajectory; that of J_hh is the same both ways.

    Eight Philox counters serve a tile of 4 rows and 16 columns. Each has two columns, one half of a
    word for each row and column. ``counter``: step and trajectory.
    """
    xp, tiles, first = library.xp, -(-hidden // 16), -(-visible // 4)
    rows = library.array(np.arange(first + -(-hidden // 4)), library.word)
    pairs = library.array(np.arange(len(rows) * tiles * 8), library.word)
    words = philox(library, keys, (pairs, *counter, 0 * pairs))
    common = philox(library, keys, (rows, *counter, 0 * rows + 1))
    two_words = [words[i : i + 2] for i in (0, 2)]
    halves = [[(w >> shift) & 0xFFFF for w in two] for two in two_words for shift in (0, 16)]
    m = xp.stack([xp.stack(pair, -1).reshape(len(rows), tiles * 16) for pair in halves], 1)
    bits = m * 128 + (xp.stack(common, -1) >> 25)[:, :, None]
    u = (library.cast(bits.reshape(len(rows) * 4, -1), library.real) + 0.5) * 2.0**-23
    lower = xp.tril(u[first * 4 :][:hidden, :hidden], -1)
    return [u[:visible, :hidden], lower + lower.T]


def moved(
    library: NumPy, grid: Grid, J: Blocks, change: Blocks, wires: Blocks, keys: Array,
    counter: Array,
) -> Blocks:  # fmt: skip
    """J − change, by whole levels where couplings are on a grid."""
    xp, top, following = library.xp, top_level(grid.bits), {n: J[n] - change[n] for n in J}
    visible, hidden = J[ON_GRID[0]].shape[-2:]
    u = uniforms(library, visible, hidden, keys, counter) if grid.stochastic else [None, None]
    for name, largest, threshold in zip(ON_GRID, grid.ranges, u, strict=True):
        down = change[name] * (top / largest)
        move = -xp.round(down) if threshold is None else xp.floor(threshold - down)
        level = xp.round(J[name] * (top / largest)) + move
        level = xp.clip(level, -top, top) * (largest / top)
        following[name] = level * wires[name] if name in wires else level
    return following
