"""Memory in which the learner works on a block of steps; how units are shared out to threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.compiling import inline
from thermoloom.engines.compiled.tiles import FLAT, LANES, TALL
from thermoloom.machine.action import StepConstants
from thermoloom.machine.machine import Machine

Float32 = NDArray[np.float32]
Edges = NDArray[np.int64]


class Pieces(NamedTuple):
    """Some of the pieces that every group of units is cut into, side by side."""

    first: int
    last: int
    """One after the last of them."""
    of: int
    """How many there are."""


@inline
def share_of(thread, threads, pieces):  # type: ignore[no-untyped-def]
    """The pieces of one thread."""
    return Pieces(pieces * thread // threads, pieces * (thread + 1) // threads, pieces)


@inline
def piece(number, pieces):  # type: ignore[no-untyped-def]
    """One of them."""
    return Pieces(number, number + 1, pieces)


@inline
def range_of(pieces, edges):  # type: ignore[no-untyped-def]
    """Units or rows of some pieces, given where all pieces begin and the last one ends."""
    return edges[pieces.first], edges[pieces.last]


def unit_edges(n: int, pieces: int) -> Edges:
    """Pieces of n units: whole vectors, but for the last ones."""
    vectors = -(-n // LANES)
    return np.minimum(LANES * (vectors * np.arange(pieces + 1) // pieces), n)


def row_edges(n: int, pieces: int, triangle: bool) -> Edges:
    """Pieces of n rows of couplings, of nearly equal areas of a matrix or of a lower triangle.

    They begin between tiles, but for halves, which are as even as can be.
    """
    above = n * (np.arange(pieces + 1) / pieces) ** (0.5 if triangle else 1.0)
    edges = TALL * np.rint(above / TALL).astype(np.int64)
    half, middle = pieces // 2, min(FLAT * int(above[pieces // 2] / FLAT + 0.5), n)
    edges[:half] = np.minimum(edges[:half], middle)
    edges[half:] = np.clip(edges[half:], middle, n)
    edges[half], edges[pieces] = middle, n
    return edges


# Sums over all units must not depend on the threads. So each piece is added up by itself, and the
# sums of the pieces of either half follow each other, (s₀ + s₁ + …) + (s_h + s_h₊₁ + …). A thread
# that has all of a half adds up its pieces in one place, the first of them; where there are more
# threads than halves, every piece has a place of its own, and the order is kept by whoever reads.


@inline
def half_of(number, pieces):  # type: ignore[no-untyped-def]
    """Where the half begins that a piece is in."""
    return 0 if number < pieces // 2 else pieces // 2


@inline
def place_of(number, pieces, threads):  # type: ignore[no-untyped-def]
    """Where the sums of a piece go."""
    return half_of(number, pieces) if threads <= 2 else number


# Residuals and states of a block lie in alternate rows of one array for each group of units, [R, X]
# of the visible and [X, R] of the hidden ones. So those of any stretch of steps are one matrix,
# which is what products need. Kernels take slices of rows of whole arrays: then the compiler sees
# that they start at 0 and are contiguous, and loops run in vectors. Products work on whole vectors
# of units or steps: rows are longer, and what is beyond their end is zero or not looked at.


class Group(NamedTuple):
    """Memory for the N units of a group in a block of up to B steps, in strips of up to S."""

    first: int
    """Where the group begins among all units."""
    edges: Edges
    """Units at which pieces begin, and the last one ends, (Q + 1,)."""
    pairs: Float32
    """(2B, N…): residuals and states of the block's steps in turns."""
    r: int
    """Which of a step's two rows is the residual, 0 or 1; likewise x, the state."""
    x: int
    turned_states: Float32
    """(N, B…): the states again, unit by unit."""
    turned_forces: Float32
    """(T, N, B…): Σ_j J_ij x_j of rows i of couplings between groups and within this one, T of
    them, unit by unit."""
    forces: Float32
    """(T, B, N…): the same step by step; of one that is zero where there are no rows."""
    column_forces: Float32
    """(C, Q, B, N…): Σ_i J_ij x_i of columns j of couplings between groups and within this one, C
    of them, by pieces."""
    sums: Float32
    """(S, N…): the brackets of the equations of a strip."""
    applied: Float32
    """(N,): Σ R∘X of the strips that are solved."""
    coupled: bool
    """Whether the units are coupled to each other."""


class Products(NamedTuple):
    """What some steps of a block do to others, K of them to K at most, in Q pieces."""

    visible: Float32
    """(Q, 2K, K…): products of R_v and X_v with X_v, over the units of pieces."""
    hidden: Float32
    """(Q, 2K, K…): products of X_h and R_h with X_h likewise."""
    sums: Float32
    """(Q, 2, K, 2K), for each thread: both, over all units, transposed."""
    operators: Float32
    """(Q, 2, K, 2K), for each thread: the matrices in front of [R_v, X_v] and [X_h, R_h]."""


class Work(NamedTuple):
    """Memory for a block."""

    visible: Group
    hidden: Group
    within: Products
    """Of the steps of a strip with each other."""
    across: Products
    """Of some strips with later ones."""
    squares: NDArray[np.float64]
    """(Q, 3): Σ change², Σ R² and Σ D² of each piece's units in a strip."""


class Rule(NamedTuple):
    """Numbers of the rule and of the wiring."""

    alpha: float
    """Learning rate."""
    constants: StepConstants
    period: int
    """M"""
    strip: int
    """Most steps in a strip: a multiple of the period, or the whole path."""
    strips: int
    """Most strips in a block."""
    pieces: int
    """Q"""
    tolerance: float
    vh: np.float32
    """1 where visible and hidden units are coupled, else 0; likewise hh and vv."""
    hh: np.float32
    vv: np.float32
    one_v: np.float32
    """β: |clamped states|² that visible units see, 1 of a bias and |word|² of labels."""
    one_h: np.float32


@inline
def rate_of(rule):  # type: ignore[no-untyped-def]
    """αc: how strongly an update changes later residuals."""
    return np.float32(rule.alpha * np.float64(rule.constants.c))


def row_length(columns: int) -> int:
    """Numbers from row to row: an odd number of vectors. At a distance of a power of two, the rows
    of a column would all fall into the same few places of the cache.
    """
    return LANES * (-(-columns // LANES) | 1)


def work_for(
    machine: Machine, strip: int, strips: int, period: int, pieces: int, pages: Pages
) -> Work:
    """Memory for blocks of up to ``strips`` strips, and one more where there are several: what is
    left of a window. A block of one period is not solved at all.
    """
    strips += strips > 1
    solved, steps, zeros = strips > 1 or strip > period, strip * strips, pages.zeros
    vh, hh, vv = (
        bool(machine.wired(wire)) for wire in ("visible-hidden", "hidden-hidden", "visible-visible")
    )

    def group(name: str, r: int, coupled: bool, by_rows: int, by_columns: int) -> Group:
        where = machine.groups[name]
        n = where.stop - where.start
        length = row_length(n)
        turned = (LANES * -(-n // LANES), row_length(steps + LANES))
        return Group(
            first=where.start,
            edges=unit_edges(n, pieces),
            pairs=zeros(2 * steps, length),
            r=r,
            x=1 - r,
            turned_states=zeros(*turned),
            turned_forces=zeros(by_rows, *turned),
            forces=zeros(max(1, by_rows), steps, length),
            column_forces=zeros(by_columns, pieces, steps, length),
            sums=zeros(strip if solved else 0, length),
            applied=zeros(length),
            coupled=coupled,
        )

    def products(k: int) -> Products:
        each = zeros(2, pieces, 2 * k, row_length(k))
        sums, operators = zeros(2, pieces, 2, k, 2 * k)
        return Products(each[0], each[1], sums, operators)

    return Work(
        visible=group("visible", 0, vv, vh + vv, int(vv)),
        hidden=group("hidden", 1, hh, int(hh), vh + hh),
        within=products(strip if solved else 0),
        across=products((strip << (strips - 1).bit_length()) // 2 if strips > 1 else 0),
        squares=np.empty((pieces, 3)),
    )
