"""Couplings of free units in panels: updated and multiplied with states in place.

    J_ij ← J_ij − α Σ_k (r_i x_j′ + r_j x_i′)     over the steps of one block, then
    f_i = Σ_j J_ij x_j′,   f_j = Σ_i J_ij x_i′     for the steps of the next block

A panel holds all rows i of LANES columns j, the numbers in a vector. The update and both products
read J in this layout, so J is never rearranged, and the forces of a panel are computed while it is
in the cache. Each share of the rows belongs to one thread.

Of couplings within a group only the lower triangle is stored, with complete squares, a panel wide,
on the diagonal. Their upper halves equal the lower ones to round-off and only contribute to forces;
the lower triangle holds the learned couplings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.block_memory import Edges, Float32, range_of, row_edges
from thermoloom.engines.compiled.compiling import copy, inner, loops
from thermoloom.engines.compiled.tiles import (
    LANES,
    Extent,
    Operand,
    add_product,
    address,
    transpose,
)

STRETCH = 200
"""Largest number of rows of a panel updated at once: they stay in the first-level cache."""
TOGETHER = 16
"""Panels processed together: they stay in the second-level cache."""
LONGEST = 128
"""Largest number of steps summed in a register."""
ONE = np.float32(1)


class Panels(NamedTuple):
    """Couplings between the units of two groups, or within one."""

    couplings: Float32
    """(P, rows, LANES)"""
    held: Float32
    """Updates held until the end of their period, same layout; no rows if none are held."""
    rows: int
    """The group of the rows, 0: visible, 1: hidden; ``columns`` is that of the columns."""
    columns: int
    within: bool
    edges: Edges
    """Bounds of the pieces among the rows, (Q + 1,)."""


def panels_for(
    pages: Pages, sizes: tuple[int, int], ends: tuple[int, int], pieces: int, holding: bool
) -> Panels:
    """Memory for couplings between groups of these ``sizes``, and for held updates."""
    rows, columns = (sizes[group] for group in ends)
    count, rows = -(-columns // LANES), rows if columns else 0
    couplings, held = pages.zeros(count, rows, LANES), pages.zeros(count, rows * holding, LANES)
    within = ends[0] == ends[1]
    return Panels(couplings, held, *ends, within, row_edges(rows, pieces, within))


@inner
def _change(alpha, steps, rows, columns, couplings, p, low, high):  # type: ignore[no-untyped-def]
    """J ← J − α Σ (r_i x_j + x_i r_j) in rows low … high of a panel."""
    m, n = rows.pairs.shape[1], columns.pairs.shape[1]
    out = Operand(address(couplings, (p * couplings.shape[1] + low) * LANES), LANES, 0, 0)
    for first in range(0, steps, LONGEST):
        count, at = min(LONGEST, steps - first), 2 * first * n + p * LANES
        of_rows = address(rows.pairs, 2 * first * m + low)
        if rows.r == columns.x:  # rows [R, X] of one group pair with rows [X, R] of the other
            row_factors = Operand(of_rows, 1, 0, m)
            column_factors = Operand(address(columns.pairs, at), 0, 0, n)
            extent = Extent(high - low, 1, 2 * count, False)
        else:
            row_factors = Operand(of_rows, 1, m, 2 * m)
            column_factors = Operand(address(columns.pairs, at + n), 0, -n, 2 * n)
            extent = Extent(high - low, 2, count, False)
        add_product(row_factors, column_factors, out, extent, -alpha)


@inner
def _columns_feel(path, rows, couplings, p, low, high, out):  # type: ignore[no-untyped-def]
    """f_j on the columns of a panel from its rows low … high."""
    states = Operand(address(path, rows.first + low), path.shape[1], 0, 1)
    factors = Operand(address(couplings, (p * couplings.shape[1] + low) * LANES), 0, 0, LANES)
    forces = Operand(address(out, p * LANES), out.shape[1], 0, 0)
    add_product(states, factors, forces, Extent(path.shape[0], 1, high - low, True), ONE)


@inner
def _rows_feel(steps, out, columns, couplings, p, end, low, high):  # type: ignore[no-untyped-def]
    """f_i on rows low … high from the columns of panels p … end."""
    distance, to, length = couplings.shape[1] * LANES, out.shape[1], columns.turned_states.shape[1]
    numbers = Operand(address(couplings, p * distance + low * LANES), LANES, distance, 1)
    extent = Extent(high - low, end - p, LANES, p == 0)
    for k in range(0, steps, LANES):
        first = address(columns.turned_states, p * LANES * length + k)
        states = Operand(first, 0, LANES * length, length)
        forces = Operand(address(out, low * to + k), to, 0, 0)
        add_product(numbers, states, forces, extent, ONE)


@loops
def _apply(held, couplings, p, low, high):  # type: ignore[no-untyped-def]
    """Apply held updates in rows low … high of a panel."""
    for i in range(low, high):
        row, change = couplings[p, i], held[p, i]
        for j in range(LANES):
            row[j] += change[j]
            change[j] = 0


@inner
def _change_panel(alpha, solved, closes, rows, columns, panels, p, low, high):  # type: ignore[no-untyped-def]
    """Update rows low … high of a panel; held updates only once their period ``closes``."""
    holding = panels.held.shape[1] > 0
    changed = panels.held if holding else panels.couplings
    for k in range(low, high, STRETCH):
        _change(alpha, solved, rows, columns, changed, p, k, min(k + STRETCH, high))
    for i in range(low, min(high, (p + 1) * LANES) if panels.within else low):
        changed[p, i, i - p * LANES] = 0
    if holding and closes:
        _apply(panels.held, panels.couplings, p, low, high)


@inner
def change_and_feel(share, alpha, solved, closes, path, rows, columns, panels):  # type: ignore[no-untyped-def]
    """Update a share's couplings with the ``solved`` steps of the last block, then compute the
    forces along the next ``path``. ``closes``: whether the last block ends a period.

    Processes the rows of a piece in a few panels at a time, while they are in the cache.
    """
    steps, couplings, within = path.shape[0], panels.couplings, panels.within
    # couplings within a group come after those between groups
    forces = columns.column_forces[columns.column_forces.shape[0] - 1 if within else 0]
    of_rows = rows.turned_forces[rows.turned_forces.shape[0] - 1 if within else 0]
    for number in range(share.first, share.last):
        low, high = panels.edges[number], panels.edges[number + 1]
        out = forces[number, :steps]
        for first in range(0, couplings.shape[0], TOGETHER):
            end = min(first + TOGETHER, couplings.shape[0])
            for p in range(first, end):
                top = max(low, p * LANES) if within else low
                if solved > 0:
                    _change_panel(alpha, solved, closes, rows, columns, panels, p, top, high)
                _columns_feel(path, rows, couplings, p, top, max(top, high), out)
            if not within:
                _rows_feel(steps, of_rows, columns, couplings, first, end, low, high)
                continue
            for square in range(max(low // LANES, first + 1), (high + LANES - 1) // LANES):
                top, bottom = max(low, square * LANES), min(high, (square + 1) * LANES)
                _rows_feel(steps, of_rows, columns, couplings, first, min(end, square), top, bottom)


@inner
def fill(share, matrix, panels):  # type: ignore[no-untyped-def]
    """Copy a share's couplings from a matrix into panels."""
    couplings, within = panels.couplings, panels.within
    low, high = range_of(share, panels.edges)
    for p in range(couplings.shape[0]):
        start, stop = p * LANES, min((p + 1) * LANES, matrix.shape[1])
        for i in range(max(low, start) if within else low, high):
            copy(matrix[i, start:stop], couplings[p, i, : stop - start])
            for j in range(stop - start, LANES):
                couplings[p, i, j] = 0


@inner
def take(share, panels, learned):  # type: ignore[no-untyped-def]
    """Copy a share's couplings into a matrix, both triangles within a group; True if finite."""
    couplings, within = panels.couplings, panels.within
    low, high = range_of(share, panels.edges)
    finite = True
    for p in range(couplings.shape[0]):
        start, stop = p * LANES, min((p + 1) * LANES, learned.shape[1])
        for i in range(max(low, start) if within else low, high):
            row, out = couplings[p, i], learned[i, start : min(stop, i) if within else stop]
            for j in range(out.size):
                finite &= np.isfinite(row[j])
                out[j] = row[j]
        if within:
            for i in range(max(low, start), min(high, stop)):
                learned[i, i] = 0
                for j in range(start, i):
                    learned[j, i] = learned[i, j]
            below = min(max(low, stop), high)
            transpose(couplings[p, below:high, : stop - start], learned[start:stop, below:high])
    return finite
