"""Memory of the learner for a block of steps, and the division of units among threads."""

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
    """A range of the pieces that every group of units is divided into."""

    first: int
    last: int
    """End of the range, exclusive."""
    of: int
    """Number of all pieces."""


@inline
def share_of(thread, threads, pieces):  # type: ignore[no-untyped-def]
    """The range of pieces of one thread."""
    return Pieces(pieces * thread // threads, pieces * (thread + 1) // threads, pieces)


@inline
def range_of(pieces, edges):  # type: ignore[no-untyped-def]
    """First and last unit (or row) of a range of pieces; ``edges`` bound the pieces."""
    return edges[pieces.first], edges[pieces.last]


def unit_edges(n: int, pieces: int) -> Edges:
    """Edges of pieces of n units; all but the last piece are multiples of a vector."""
    vectors = -(-n // LANES)
    return np.minimum(LANES * (vectors * np.arange(pieces + 1) // pieces), n)


def row_edges(n: int, pieces: int, triangle: bool) -> Edges:
    """Edges of pieces of n rows of couplings with nearly equal areas, in a matrix or a triangle.

    Pieces start at tile edges. The middle edge is rounded less, so that the halves are even.
    """
    above = n * (np.arange(pieces + 1) / pieces) ** (0.5 if triangle else 1.0)
    edges = TALL * np.rint(above / TALL).astype(np.int64)
    half, middle = pieces // 2, min(FLAT * int(above[pieces // 2] / FLAT + 0.5), n)
    edges[:half] = np.minimum(edges[:half], middle)
    edges[half:] = np.clip(edges[half:], middle, n)
    edges[half], edges[pieces] = middle, n
    return edges


# Sums over all units must not depend on the threads. Each piece is therefore summed separately, and
# the pieces are added in a fixed order, (s₀ + s₁ + …) + (s_h + s_h₊₁ + …), half by half.


# Residuals and states of a block alternate as rows of one array per group of units: [R, X] for
# visible and [X, R] for hidden units. Any range of steps is then one matrix, as products need it.
# Kernels slice single rows, so that the compiler sees contiguous memory and vectorizes the loops.
# Products process full vectors of units or steps: rows are padded, and the padding is zero or
# ignored.


class Group(NamedTuple):
    """Memory for the N units of a group in a block of up to B steps."""

    first: int
    """Index of the group's first unit among all units."""
    edges: Edges
    """Bounds of the pieces among the group's units, (Q + 1,)."""
    pairs: Float32
    """(2B, N…): residuals and states of the block's steps, alternating."""
    r: int
    """Row of the residual among a step's two rows, 0 or 1; ``x`` is that of the state."""
    x: int
    turned_states: Float32
    """(N, B…): the states, transposed."""
    turned_forces: Float32
    """(T, N, B…): Σ_j J_ij x_j for rows i of the T coupling blocks whose rows are this group,
    transposed."""
    forces: Float32
    """(T, B, N…): the same by step; at least one block, zero where T = 0."""
    column_forces: Float32
    """(C, Q, B, N…): Σ_i J_ij x_i for columns j of the C coupling blocks whose columns are this
    group, by piece."""
    applied: Float32
    """(N,): Σ R∘X over the updates of the block so far."""
    coupled: bool
    """Whether the units are coupled to each other."""


class Products(NamedTuple):
    """Action of up to K steps of a block on up to K others, in Q pieces."""

    visible: Float32
    """(Q, 2K, K…): products of R_v and X_v with X_v over the units of each piece."""
    hidden: Float32
    """(Q, 2K, K…): products of X_h and R_h with X_h likewise."""
    sums: Float32
    """(Q, 2, K, 2K), per thread: both products over all units, transposed."""
    operators: Float32
    """(Q, 2, K, 2K), per thread: the matrices in front of [R_v, X_v] and [X_h, R_h]."""


class Work(NamedTuple):
    """Memory for a block."""

    visible: Group
    hidden: Group
    products: Products


class Rule(NamedTuple):
    """Constants of the learning rule and the wiring."""

    alpha: float
    """Learning rate."""
    constants: StepConstants
    period: int
    """M"""
    strip: int
    """Largest number of steps in a strip: a multiple of the period, or the complete path."""
    strips: int
    """Largest number of strips in a block."""
    pieces: int
    """Q"""
    vh: np.float32
    """1 where visible and hidden units are coupled, else 0; ``hh`` and ``vv`` within the groups."""
    hh: np.float32
    vv: np.float32
    one_v: np.float32
    """β: |clamped states|² that act on visible units, 1 for a bias and |word|² for labels."""
    one_h: np.float32


@inline
def rate_of(rule):  # type: ignore[no-untyped-def]
    """αc: how strongly an update changes later residuals."""
    return np.float32(rule.alpha * np.float64(rule.constants.c))


def row_length(columns: int) -> int:
    """Row stride in numbers: an odd number of vectors.

    Rows at a distance of a power of two would all map to the same few cache sets.
    """
    return LANES * (-(-columns // LANES) | 1)


def work_for(
    machine: Machine, strip: int, strips: int, period: int, pieces: int, pages: Pages
) -> Work:
    """Memory for blocks of up to ``strips`` strips.

    If ``strips`` > 1, one more strip fits, for the remainder of a window. A block of one period
    needs no memory for solving.
    """
    strips += strips > 1
    solved, steps, zeros = strip > period, strip * strips, pages.zeros
    vh, hh, vv = (
        bool(machine.wired(wire)) for wire in ("visible-hidden", "hidden-hidden", "visible-visible")
    )

    def group(name: str, r: int, coupled: bool, by_rows: int, by_columns: int) -> Group:
        where = machine.groups[name]
        n = where.stop - where.start
        length = row_length(n)
        transposed = (LANES * -(-n // LANES), row_length(steps + LANES))
        return Group(
            first=where.start,
            edges=unit_edges(n, pieces),
            pairs=zeros(2 * steps, length),
            r=r,
            x=1 - r,
            turned_states=zeros(*transposed),
            turned_forces=zeros(by_rows, *transposed),
            forces=zeros(max(1, by_rows), steps, length),
            column_forces=zeros(by_columns, pieces, steps, length),
            applied=zeros(length),
            coupled=coupled,
        )

    def products(k: int) -> Products:
        by_group = zeros(2, pieces, 2 * k, row_length(k))
        sums, operators = zeros(2, pieces, 2, k, 2 * k)
        return Products(by_group[0], by_group[1], sums, operators)

    return Work(
        visible=group("visible", 0, vv, vh + vv, int(vv)),
        hidden=group("hidden", 1, hh, int(hh), vh + hh),
        products=products(
            (strip << (strips - 1).bit_length()) // 2 if strips > 1 else strip * solved
        ),
    )
