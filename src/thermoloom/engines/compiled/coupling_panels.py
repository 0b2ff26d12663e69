"""Couplings of free units in panels, changed and felt where they lie.

    J_ij ← J_ij − α Σ_k (r_i x_j′ + r_j x_i′)     over the steps of one block, then
    f_i = Σ_j J_ij x_j′,   f_j = Σ_i J_ij x_i′     for the steps of the next one

A panel has as many columns j as a vector has numbers and all rows i, one below the other: that is
how products want J, as the matrix that is changed, as the one whose vectors are added up and as the
one whose numbers are multiplied with vectors. So nothing is ever arranged anew, and a panel is felt
while it is still in the cache. Each share has rows of its own, which no other thread touches.

Of couplings within a group the lower triangle is kept, with the squares on its diagonal, a panel
wide, whole: what is above the diagonal there agrees with what is below to round-off and is only
felt; the lower triangle is what is learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.block_memory import (
    Edges,
    Float32,
    place_of,
    range_of,
    row_edges,
)
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
"""Most rows of a panel that are changed at once: they stay in the nearest cache."""
TOGETHER = 16
"""Panels that are worked on at once: they stay in the next one."""
LONGEST = 128
"""Steps that are added up in a register."""
ONE = np.float32(1)


class Panels(NamedTuple):
    """Couplings between the units of two groups, or within one."""

    couplings: Float32
    """(P, rows, LANES)"""
    held: Float32
    """Changes that wait for the end of their period, likewise; no rows where none do."""
    within: bool
    edges: Edges
    """Rows at which pieces begin, and the last one ends, (Q + 1,)."""


def panels_for(
    pages: Pages, rows: int, columns: int, within: bool, pieces: int, holding: bool
) -> Panels:
    """Room for couplings, and for changes that wait."""
    rows, count = rows if columns else 0, -(-columns // LANES)
    room, held = pages.zeros(count, rows, LANES), pages.zeros(count, rows * holding, LANES)
    return Panels(room, held, within, row_edges(rows, pieces, within))


@inner
def _change(alpha, steps, rows, columns, couplings, p, low, high):  # type: ignore[no-untyped-def]
    """J ← J − α Σ (r_i x_j + x_i r_j) in rows low … high of a panel."""
    m, n = rows.pairs.shape[1], columns.pairs.shape[1]
    out = Operand(address(couplings, (p * couplings.shape[1] + low) * LANES), LANES, 0, 0)
    for first in range(0, steps, LONGEST):
        count, at = min(LONGEST, steps - first), 2 * first * n + p * LANES
        of_rows = address(rows.pairs, 2 * first * m + low)
        if rows.r == columns.x:  # [R, X] of one group go with [X, R] of the other, row by row
            left, right = Operand(of_rows, 1, 0, m), Operand(address(columns.pairs, at), 0, 0, n)
            extent = Extent(high - low, 1, 2 * count, False)
        else:
            left = Operand(of_rows, 1, m, 2 * m)
            right = Operand(address(columns.pairs, at + n), 0, -n, 2 * n)
            extent = Extent(high - low, 2, count, False)
        add_product(left, right, out, extent, -alpha)


@inner
def _columns_feel(path, rows, couplings, p, low, high, begins, out):  # type: ignore[no-untyped-def]
    """f_j of the columns of a panel by its rows low … high."""
    states = Operand(address(path, rows.first + low), path.shape[1], 0, 1)
    factors = Operand(address(couplings, (p * couplings.shape[1] + low) * LANES), 0, 0, LANES)
    forces = Operand(address(out, p * LANES), out.shape[1], 0, 0)
    add_product(states, factors, forces, Extent(path.shape[0], 1, high - low, begins), ONE)


@inner
def _rows_feel(steps, out, columns, couplings, p, end, low, high):  # type: ignore[no-untyped-def]
    """f_i of rows low … high by the columns of panels p … end."""
    distance, to, length = couplings.shape[1] * LANES, out.shape[1], columns.turned_states.shape[1]
    numbers = Operand(address(couplings, p * distance + low * LANES), LANES, distance, 1)
    extent = Extent(high - low, end - p, LANES, p == 0)
    for k in range(0, steps, LANES):
        first = address(columns.turned_states, p * LANES * length + k)
        states = Operand(first, 0, LANES * length, length)
        forces = Operand(address(out, low * to + k), to, 0, 0)
        add_product(numbers, states, forces, extent, ONE)


@inner
def _pieces_are_felt(share, threads, path, rows, panels, p, begins, forces):  # type: ignore[no-untyped-def]
    """f_j of the columns of a panel by a share's rows: one sum for each piece, in its place.

    ``begins``: whether a place begins with the first of its pieces, or has felt others already.
    """
    for number in range(share.first, share.last):
        low, high = panels.edges[number], panels.edges[number + 1]
        top, place = (
            max(low, p * LANES) if panels.within else low,
            place_of(number, share.of, threads),
        )
        fresh = begins and place == number
        if top < high or fresh:
            out = forces[place, : path.shape[0]]
            _columns_feel(path, rows, panels.couplings, p, top, max(top, high), fresh, out)


@loops
def _apply(held, couplings, p, low, high):  # type: ignore[no-untyped-def]
    """What waited for the end of its period, in rows low … high of a panel."""
    for i in range(low, high):
        own, change = couplings[p, i], held[p, i]
        for j in range(LANES):
            own[j] += change[j]
            change[j] = 0


@inner
def change_and_feel(share, threads, alpha, solved, closes, path, rows, columns, panels):  # type: ignore[no-untyped-def]
    """A share's couplings after the ``solved`` steps of the block before, which ``closes`` a period
    or not, and what units feel by them on the next ``path``.
    """
    low, high = range_of(share, panels.edges)
    steps, couplings, within = path.shape[0], panels.couplings, panels.within
    holding = panels.held.shape[1] > 0
    changed = panels.held if holding else couplings
    # couplings within a group follow those with another one, in the same place or one of their own
    kinds, apart = columns.column_forces.shape[0], threads > 2
    forces = columns.column_forces[kinds - 1 if within and apart else 0]
    begins = apart or kinds == 1 or not within
    of_rows = rows.turned_forces[rows.turned_forces.shape[0] - 1 if within else 0]
    for first in range(0, couplings.shape[0], TOGETHER):
        end = min(first + TOGETHER, couplings.shape[0])
        for p in range(first, end):
            top = max(low, p * LANES) if within else low
            for k in range(top, high if solved > 0 else top, STRETCH):
                _change(alpha, solved, rows, columns, changed, p, k, min(k + STRETCH, high))
            for i in range(top, min(high, (p + 1) * LANES) if within else top):
                changed[p, i, i - p * LANES] = 0
            if holding and closes and solved > 0:
                _apply(panels.held, couplings, p, top, high)
            _pieces_are_felt(share, threads, path, rows, panels, p, begins, forces)
        if not within:
            _rows_feel(steps, of_rows, columns, couplings, first, end, low, high)
            continue
        for square in range(max(low // LANES, first + 1), (high + LANES - 1) // LANES):
            top, bottom = max(low, square * LANES), min(high, (square + 1) * LANES)
            _rows_feel(steps, of_rows, columns, couplings, first, min(end, square), top, bottom)


@inner
def fill(share, given, panels):  # type: ignore[no-untyped-def]
    """A share's couplings into panels."""
    couplings, within = panels.couplings, panels.within
    low, high = range_of(share, panels.edges)
    for p in range(couplings.shape[0]):
        left, right = p * LANES, min((p + 1) * LANES, given.shape[1])
        for i in range(max(low, left) if within else low, high):
            copy(given[i, left:right], couplings[p, i, : right - left])
            for j in range(right - left, LANES):
                couplings[p, i, j] = 0
            if panels.held.shape[1] > 0:
                for j in range(LANES):
                    panels.held[p, i, j] = 0


@inner
def take(share, panels, learned):  # type: ignore[no-untyped-def]
    """A share's couplings back into a matrix, within a group both halves; are they finite?"""
    couplings, within = panels.couplings, panels.within
    low, high = range_of(share, panels.edges)
    finite = True
    for p in range(couplings.shape[0]):
        left, right = p * LANES, min((p + 1) * LANES, learned.shape[1])
        for i in range(max(low, left) if within else low, high):
            own, out = couplings[p, i], learned[i, left : min(right, i) if within else right]
            for j in range(out.size):
                finite &= np.isfinite(own[j])
                out[j] = own[j]
        if within:
            for i in range(max(low, left), min(high, right)):
                learned[i, i] = 0
                for j in range(left, i):
                    learned[j, i] = learned[i, j]
            below = min(max(low, right), high)
            transpose(couplings[p, below:high, : right - left], learned[left:right, below:high])
    return finite
