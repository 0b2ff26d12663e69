"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′),   b_a ← b_a − α Σ r_a      every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is
linear in θ and an update is a masked rank-2 change, so the residuals of a block of B steps
obey, with c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where
the update of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

U is strictly causal, so this is solved strip by strip of S steps. What earlier strips do to a
strip follows at once. Within a strip R = R⁰ − αc V [R⁰, X], and V, a matrix over its steps alone,
follows from the products of X with [R⁰, X] row by row; only the last term, which is N times
smaller than the others, is taken with R⁰ in place of R. Then θ takes one rank-2B update. All of it
is matrix–matrix work: 4.2 MFLOP a step for 784 + 512 units and a tenth more for the strips.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof
from numpy.typing import NDArray

from thermoloom.engine import Diverged, Path
from thermoloom.engine.compiled.aligned_memory import paged_zeros
from thermoloom.engine.compiled.barrier import new_barrier, wait_for_all
from thermoloom.engine.compiled.compiling import copy, fast_inner, inline, inner, jit, residual
from thermoloom.engine.compiled.linear_algebra import blas, multiply, multiply_symmetric
from thermoloom.machine.action import StepConstants, step_constants
from thermoloom.machine.definition import Machine
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.threads import in_threads, thread_count

Float32 = NDArray[np.float32]

BLOCK_STEPS = 72
"""Longest block of several updates, B: one product with the couplings, one update of them."""
STRIP_STEPS = 24
"""Longest strip of a block, S: shorter ones need less work, but make flatter matrices."""
TOLERANCE = 1e-7
"""Largest estimated error of a strip's residuals, relative, both root mean square. A strip that
may have a larger one is halved."""
MOST_PIECES = 8
"""The units are worked on in a number of pieces that depends on the machine alone, by as many
threads as there are, up to this number: so θ does not depend on the threads."""
UNITS_IN_PIECE = 640
"""As many, about: products of thinner pieces are slower."""


def pieces_of(machine: Machine) -> int:
    """How many pieces the units of a machine are cut into: two of 784 + 512."""
    return min(max(2, machine.units // UNITS_IN_PIECE), MOST_PIECES)


class _Piece(NamedTuple):
    """One of the pieces that every group of units is cut into."""

    number: int
    of: int
    """How many there are."""


# Residuals and states of a block lie in alternate rows of one array for each group of units, [R, X]
# of the visible and [X, R] of the hidden ones. So those of any stretch of steps are one matrix,
# which is what products need. Kernels take slices of rows of whole arrays: then the compiler sees
# that they start at 0 and are contiguous, and loops run in vectors.


class _Group(NamedTuple):
    """Memory for the N units of a group in a block of up to B steps, in strips of up to S."""

    first: int
    """Where the group begins among all units."""
    pairs: Float32
    """(2B, N): residuals and states of the block's steps in turns."""
    r: int
    """Which of a step's two rows is the residual, 0 or 1; likewise x, the state."""
    x: int
    forces: Float32
    """(Q, B, N): Σ_j J_ij x_j, split by the pieces that hold the couplings."""
    sums: Float32
    """(B, N): the brackets of the equations above."""
    applied: Float32
    """(N,): Σ R∘X of the strips that are solved."""
    coupled: bool
    """Whether the units are coupled to each other."""


class _Products(NamedTuple):
    """What some steps of a block do to others, K of them to K at most, in Q pieces."""

    visible: Float32
    """(Q, K, 2K): products of X_v with R_v and X_v, over the units of each piece."""
    hidden: Float32
    """(Q, K, 2K): products of X_h with X_h and R_h likewise."""
    sums: Float32
    """(Q, 2, K, 2K), for each thread: both, over all units."""
    operators: Float32
    """(Q, 2, K, 2K), for each thread: the matrices in front of [R_v, X_v] and [X_h, R_h]."""


class _Work(NamedTuple):
    """Memory for a block."""

    visible: _Group
    hidden: _Group
    within: _Products
    """Of the steps of a strip with each other."""
    across: _Products
    """Of some strips with later ones."""
    squares: NDArray[np.float64]
    """(Q, 3): Σ change², Σ R² and Σ D² of each piece's units in a strip."""


def _work(machine: Machine, strip: int, strips: int, period: int, pieces: int) -> _Work:
    """Memory for blocks of up to ``strips`` strips; a block of one period is not solved at all."""

    def memory(*shape: int) -> Float32:
        return np.empty(shape, np.float32)

    solved = strips > 1 or strip > period

    def group(name: str, r: int, sources: int) -> _Group:
        where, coupled = machine.groups[name], machine.wired(f"{name}-{name}")
        n, steps = where.stop - where.start, strip * strips
        return _Group(
            first=where.start,
            pairs=memory(2 * steps, n),
            r=r,
            x=1 - r,
            forces=memory(sources, steps, n),
            sums=memory(steps if solved else 0, n),
            applied=memory(n),
            coupled=bool(coupled),
        )

    def products(steps: int) -> _Products:
        each = memory(2, pieces, steps, 2 * steps)
        sums, operators = memory(2, pieces, 2, steps, 2 * steps)
        return _Products(each[0], each[1], sums, operators)

    return _Work(
        visible=group("visible", 0, 1 + pieces * machine.wired("visible-visible")),
        hidden=group("hidden", 1, pieces),
        within=products(strip if solved else 0),
        across=products((strip << (strips - 1).bit_length()) // 2 if strips > 1 else 0),
        squares=np.empty((pieces, 3)),
    )


class _Rule(NamedTuple):
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


class _Blocks(NamedTuple):
    """Couplings of free units as they lie in θ of one stage; a block that is not wired is empty."""

    visible_hidden: Float32
    hidden_hidden: Float32
    visible_visible: Float32


class _Theta(NamedTuple):
    """θ of one stage as kernels use it: a copy, so that nothing is changed by half.

    Each piece has rows of its own, which no other thread touches. Of couplings within a group they
    are rows of the lower triangle; only its squares on the diagonal, one a piece, are mirrored.
    """

    between: Float32
    """J_vh, (N_v, N_h) with longer rows, or nothing."""
    hidden: Float32
    """J_hh, (N_h, N_h) with longer rows, or nothing."""
    visible: Float32
    """J_vv, (N_v, N_v) with longer rows, or nothing."""
    bias: Float32
    """b_i + Σ_l J_il x_l, (N,)."""


@inline
def _units(piece, n):  # type: ignore[no-untyped-def]
    """Range of the units of a piece."""
    return n * piece.number // piece.of, n * (piece.number + 1) // piece.of


@inline
def _triangle(piece, n):  # type: ignore[no-untyped-def]
    """Range of the rows of a piece in a lower triangle: of equal area for all."""
    low, high = np.sqrt(piece.number / piece.of), np.sqrt((piece.number + 1) / piece.of)
    return int(n * low + 0.5), int(n * high + 0.5)


@inner
def _forces_within(piece, routines, x, couplings, out):  # type: ignore[no-untyped-def]
    """out += J x of a piece's rows of a lower triangle, on their units and on those before."""
    low, high = _triangle(piece, couplings.shape[0])
    own, before = couplings[low:high, low:high], couplings[low:high, :low]
    multiply(routines, 1.0, x[:, low:high], own, 1.0, out[:, low:high])
    multiply(routines, 1.0, x[:, :low], before.T, 1.0, out[:, low:high])
    multiply(routines, 1.0, x[:, low:high], before, 1.0, out[:, :low])


@inner
def _forces(piece, routines, path, theta, rule, work):  # type: ignore[no-untyped-def]
    """Σ_j J_ij x_j′ by the couplings that a piece holds."""
    steps, n_v, n_h = path.shape[0], work.visible.pairs.shape[1], work.hidden.pairs.shape[1]
    v, v_end = _units(piece, n_v)
    x_v, x_h = path[:, :n_v], path[:, n_v:]
    of_v = work.visible.forces[0, :steps, v:v_end]
    of_h = work.hidden.forces[piece.number, :steps, :]
    if rule.vh:
        couplings = theta.between[v:v_end, :n_h]
        multiply(routines, 1.0, x_h, couplings.T, 0.0, of_v)
        multiply(routines, 1.0, x_v[:, v:v_end], couplings, 0.0, of_h)
    else:
        of_v[:] = 0
        of_h[:] = 0
    if rule.hh:
        _forces_within(piece, routines, x_h, theta.hidden[:, :n_h], of_h)
    if rule.vv:
        of_v = work.visible.forces[1 + piece.number, :steps, :]
        of_v[:] = 0
        _forces_within(piece, routines, x_v, theta.visible[:, :n_v], of_v)


@inner
def _start_residuals(piece, path, start, bias, constants, group):  # type: ignore[no-untyped-def]
    """X′ and R⁰ = start + c (J x′ + b) of a piece's units into the block."""
    low, high = _units(piece, group.pairs.shape[1])
    before = group.first + low
    b = bias[before : group.first + high]
    for k in range(path.shape[0]):
        force = group.forces[0, k, low:high]
        for source in range(1, group.forces.shape[0]):
            more = group.forces[source, k, low:high]
            for i in range(force.size):
                force[i] += more[i]
        s, out = start[k, before : group.first + high], group.pairs[2 * k + group.r, low:high]
        for i in range(out.size):
            out[i] = residual(constants, s[i], force[i] + b[i])
        copy(path[k, before : group.first + high], group.pairs[2 * k + group.x, low:high])


@fast_inner
def _begin(piece, first, last, period, rate, group):  # type: ignore[no-untyped-def]
    """R⁰ ← R⁰ + D in a group coupled to itself, D = 2 αc (U(R∘X))∘X, which keeps J_ii = 0.

    For a piece's units in a strip. Earlier strips count with their R, the strip's own steps with
    R⁰. Returns Σ D² of the latter.
    """
    low, high = _units(piece, group.pairs.shape[1])
    seen, pending = np.zeros(high - low, np.float32), np.zeros(high - low, np.float32)
    factor, earlier, size = np.float32(2) * rate, group.applied[low:high], np.float64(0)
    if first == 0:
        earlier[:] = 0
    for k in range(first, last):
        r, x = group.pairs[2 * k + group.r, low:high], group.pairs[2 * k + group.x, low:high]
        if (k - first) % period == 0:
            for i in range(r.size):
                seen[i] += pending[i]
                pending[i] = 0
        row_size = np.float32(0)
        for i in range(r.size):
            own = factor * seen[i] * x[i]
            row_size += own * own
            r[i] += own + factor * earlier[i] * x[i]
            pending[i] += r[i] * x[i]
        size += row_size
    return size


@fast_inner
def _subtract(piece, first, last, rate, group):  # type: ignore[no-untyped-def]
    """R ← R − αc·sums for a piece's units; returns Σ change² and Σ R²."""
    low, high = _units(piece, group.pairs.shape[1])
    change = size = np.float64(0)
    for k in range(first, last):
        f, r = group.sums[k - first, low:high], group.pairs[2 * k + group.r, low:high]
        row_change = row_size = np.float32(0)
        for i in range(r.size):
            difference = rate * f[i]
            r[i] -= difference
            row_change += difference * difference
            row_size += r[i] * r[i]
        change += row_change
        size += row_size
    return change, size


@inner
def _end(piece, first, last, group):  # type: ignore[no-untyped-def]
    """applied ← applied + Σ R∘X of a strip."""
    low, high = _units(piece, group.pairs.shape[1])
    total = group.applied[low:high]
    for k in range(first, last):
        r, x = group.pairs[2 * k + group.r, low:high], group.pairs[2 * k + group.x, low:high]
        for i in range(total.size):
            total[i] += r[i] * x[i]


@inner
def _products(piece, routines, first, last, low, high, group, out):  # type: ignore[no-untyped-def]
    """Products of the states of steps first … last with residuals and states of low … high."""
    begin, end = _units(piece, group.pairs.shape[1])
    states = group.pairs[2 * first + group.x : 2 * last : 2, begin:end]
    other = group.pairs[2 * low : 2 * high, begin:end]
    found = out[piece.number, : last - first, : 2 * (high - low)]
    multiply(routines, 1.0, states, other.T, 0.0, found)


@inner
def _add_pieces(steps, width, products, out):  # type: ignore[no-untyped-def]
    """The products of ``steps`` steps over all units."""
    for k in range(steps):
        total = out[k, :width]
        copy(products[0, k, :width], total)
        for piece in range(1, products.shape[0]):
            more = products[piece, k, :width]
            for m in range(width):
                total[m] += more[m]


@fast_inner
def _operators(first, low, high, steps, rule, products, thread):  # type: ignore[no-untyped-def]
    """Matrices by which steps low … high of the block act on the ``steps`` ones from ``first`` on.

    Columns in the order of the rows of [R_v, X_v] and [X_h, R_h], masked by U. Steps that act on
    each other (first = low) do so with all that follows: row k is that of the residuals
    R_l = R⁰_l − αc V_l·[R⁰, X] with the rows V_l before it, so that R of the strip is solved at
    once but for what keeps J_ii = 0.
    """
    of_v, of_h = products.sums[thread, 0], products.sums[thread, 1]
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    _add_pieces(steps, 2 * (high - low), products.visible, of_v)
    _add_pieces(steps, 2 * (high - low), products.hidden, of_h)
    rate, together = _rate(rule), first == low
    for k in range(steps):
        # updates of these steps are already applied at step k
        seen = min((first + k) // rule.period * rule.period, high) - low
        on_v[k, : 2 * (high - low)] = 0
        on_h[k, : 2 * (high - low)] = 0
        x_v, x_h, v, h = of_v[k], of_h[k], on_v[k], on_h[k]
        for m in range(seen):
            cross_v, gram_v = x_v[2 * m], x_v[2 * m + 1]
            gram_h, cross_h = x_h[2 * m], x_h[2 * m + 1]
            gram_on_v = rule.vh * gram_h + rule.vv * gram_v + rule.one_v
            gram_on_h = rule.hh * gram_h + rule.vh * gram_v + rule.one_h
            if together:
                before_v, before_h = on_v[m], on_h[m]
                change_v = change_h = np.float32(0)
                for j in range(2 * m):
                    change_v += before_v[j] * x_v[j]
                    change_h += before_h[j] * x_h[j]
                    v[j] -= rate * gram_on_v * before_v[j]
                    h[j] -= rate * gram_on_h * before_h[j]
                cross_v -= rate * change_v
                cross_h -= rate * change_h
            v[2 * m] += gram_on_v
            v[2 * m + 1] += rule.vh * cross_h + rule.vv * cross_v
            h[2 * m] += rule.hh * cross_h + rule.vh * cross_v
            h[2 * m + 1] += gram_on_h


@inner
def _brackets(piece, routines, operator, low, high, group):  # type: ignore[no-untyped-def]
    """sums ← operator · residuals and states of steps low … high, for a piece's units."""
    begin, end = _units(piece, group.pairs.shape[1])
    by = group.pairs[2 * low : 2 * high, begin:end]
    multiply(routines, 1.0, operator, by, 0.0, group.sums[: operator.shape[0], begin:end])


@inner
def _act(thread, threads, barrier, routines, first, last, low, high, rule, products, work):  # type: ignore[no-untyped-def]
    """Brackets of steps first … last by what steps low … high do to them, into ``sums``."""
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        _products(p, routines, first, last, low, high, work.visible, products.visible)
        _products(p, routines, first, last, low, high, work.hidden, products.hidden)
    wait_for_all(threads, barrier)
    _operators(first, low, high, last - first, rule, products, thread)
    operators = products.operators[thread, :, : last - first, : 2 * (high - low)]
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        _brackets(p, routines, operators[0], low, high, work.visible)
        _brackets(p, routines, operators[1], low, high, work.hidden)


@inner
def _solve(thread, threads, barrier, routines, steps, strip, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of a block, strip by strip, in place. False if a strip is too long for that.

    Once n strips are solved, the last w of them act on the next w, with w the largest power of two
    that divides n: so every strip has felt all earlier ones when its turn comes, and most of
    that in large products.
    """
    rate = _rate(rule)
    for first in range(0, steps, strip):
        last = min(first + strip, steps)
        if not _solve_strip(thread, threads, barrier, routines, first, last, rule, work):
            return False
        for number in range(thread, rule.pieces, threads):
            p = _Piece(number, rule.pieces)
            if work.visible.coupled:
                _end(p, first, last, work.visible)
            if work.hidden.coupled:
                _end(p, first, last, work.hidden)
        solved = first // strip + 1
        reach = strip * (solved & -solved)
        if last < steps:
            low, end = last - reach, min(last + reach, steps)
            products = work.across
            _act(thread, threads, barrier, routines, last, end, low, last, rule, products, work)
            for number in range(thread, rule.pieces, threads):
                p = _Piece(number, rule.pieces)
                _subtract(p, last, end, rate, work.visible)
                _subtract(p, last, end, rate, work.hidden)
    return True


@inline
def _solve_strip(thread, threads, barrier, routines, first, last, rule, work):  # type: ignore[no-untyped-def]
    """What the steps of a strip do to each other; whether that is right to the tolerance.

    D of its own steps was found with R⁰ in place of R. So its relative error is that of R⁰, and
    what is left is the product of both changes. A strip of one period is exact.
    """
    rate, period, sums = _rate(rule), rule.period, work.squares
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        sums[number] = 0
        if work.visible.coupled:
            sums[number, 2] += _begin(p, first, last, period, rate, work.visible)
        if work.hidden.coupled:
            sums[number, 2] += _begin(p, first, last, period, rate, work.hidden)
    if last - first <= period:
        wait_for_all(threads, barrier)
        return True
    _act(thread, threads, barrier, routines, first, last, first, last, rule, work.within, work)
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        of_v = _subtract(p, first, last, rate, work.visible)
        of_h = _subtract(p, first, last, rate, work.hidden)
        sums[number, 0] += of_v[0] + of_h[0]
        sums[number, 1] += of_v[1] + of_h[1]
    wait_for_all(threads, barrier)
    change = size = diagonal = 0.0
    for number in range(rule.pieces):
        change += sums[number, 0]
        size += sums[number, 1]
        diagonal += sums[number, 2]
    if change == 0:
        return True
    # NaN makes strips as short as a period; ``learn`` will find it in θ
    return change <= 0.25 * size and np.sqrt(change * diagonal) <= rule.tolerance * size


@inline
def _rate(rule):  # type: ignore[no-untyped-def]
    """αc: how strongly an update changes later residuals."""
    return np.float32(rule.alpha * np.float64(rule.constants.c))


@inner
def _mirror(square):  # type: ignore[no-untyped-def]
    """The lower triangle of a square into the upper one; the diagonal becomes zero."""
    tile, n = 32, square.shape[0]  # a tile of both triangles stays in the cache
    for row in range(0, n, tile):
        row_end = min(row + tile, n)
        for column in range(0, row_end, tile):
            for b in range(column, min(column + tile, row_end)):
                for a in range(max(row, b + 1), row_end):
                    square[b, a] = square[a, b]
    for a in range(n):
        square[a, a] = 0


@inner
def _apply_within(piece, routines, alpha, group, steps, couplings):  # type: ignore[no-untyped-def]
    """J ← J − α (RᵀX + XᵀR) within a group: a piece's rows of the lower triangle."""
    low, high = _triangle(piece, couplings.shape[0])
    r = group.pairs[group.r : 2 * steps : 2]
    x = group.pairs[group.x : 2 * steps : 2]
    own, before = couplings[low:high, low:high], couplings[low:high, :low]
    multiply_symmetric(routines, -alpha, x[:, low:high], r[:, low:high], 1.0, own)
    _mirror(own)
    multiply(routines, -alpha, x[:, low:high].T, r[:, :low], 1.0, before)
    multiply(routines, -alpha, r[:, low:high].T, x[:, :low], 1.0, before)


@inner
def _apply_bias(piece, steps, rate, group, bias):  # type: ignore[no-untyped-def]
    """b ← b − αβ Σ r for a piece's units of a group."""
    low, high = _units(piece, group.pairs.shape[1])
    own = bias[group.first + low : group.first + high]
    for k in range(steps):
        r = group.pairs[2 * k + group.r, low:high]
        for i in range(own.size):
            own[i] -= rate * r[i]


@inner
def _apply(piece, routines, steps, rule, work, theta):  # type: ignore[no-untyped-def]
    """θ ← θ − α (RᵀX + XᵀR, …) of a piece: one rank-2B update for each array."""
    n_v, n_h = work.visible.pairs.shape[1], work.hidden.pairs.shape[1]
    v, v_end = _units(piece, n_v)
    rx, xr = work.visible.pairs[: 2 * steps, v:v_end], work.hidden.pairs[: 2 * steps]
    alpha = rule.alpha
    if rule.vh:
        multiply(routines, -alpha, rx.T, xr, 1.0, theta.between[v:v_end, :n_h])
    if rule.hh:
        _apply_within(piece, routines, alpha, work.hidden, steps, theta.hidden[:, :n_h])
    if rule.vv:
        _apply_within(piece, routines, alpha, work.visible, steps, theta.visible[:, :n_v])
    _apply_bias(piece, steps, np.float32(alpha) * rule.one_v, work.visible, theta.bias)
    _apply_bias(piece, steps, np.float32(alpha) * rule.one_h, work.hidden, theta.bias)


@inner
def _copy(piece, source, target):  # type: ignore[no-untyped-def]
    """A piece's rows of a matrix into a wider one."""
    low, high = _units(piece, source.shape[0])
    for i in range(low, high):
        copy(source[i], target[i, : source.shape[1]])


@inner
def _copy_triangle(piece, source, target):  # type: ignore[no-untyped-def]
    """A piece's rows of a lower triangle into a wider matrix, with its square mirrored."""
    low, high = _triangle(piece, source.shape[0])
    for i in range(low, high):
        copy(source[i, :high], target[i, :high])


@inline
def _fill(piece, given, theta):  # type: ignore[no-untyped-def]
    """A piece of the couplings of a stage into the copy that kernels work on."""
    _copy(piece, given.visible_hidden, theta.between)
    _copy_triangle(piece, given.hidden_hidden, theta.hidden)
    _copy_triangle(piece, given.visible_visible, theta.visible)


@inner
def _take_back(piece, source, target):  # type: ignore[no-untyped-def]
    """A piece's rows of the wider matrix into one that they fill; whether all are finite."""
    low, high = _units(piece, target.shape[0])
    finite = True
    for i in range(low, high):
        own, out = source[i, : target.shape[1]], target[i]
        for j in range(out.size):
            finite &= np.isfinite(own[j])
            out[j] = own[j]
    return finite


@inner
def _take_triangle(piece, source, target):  # type: ignore[no-untyped-def]
    """The same of a lower triangle, both halves of the target."""
    low, high = _triangle(piece, target.shape[0])
    finite = True
    for i in range(low, high):
        own, out = source[i, :high], target[i, :high]
        for j in range(out.size):
            finite &= np.isfinite(own[j])
            out[j] = own[j]
    tile = 32
    for row in range(low, high, tile):
        for column in range(0, low, tile):
            for j in range(column, min(column + tile, low)):
                for i in range(row, min(row + tile, high)):
                    target[j, i] = source[i, j]
    return finite


@inline
def _take(piece, theta, learned):  # type: ignore[no-untyped-def]
    """A piece of the copy back into θ of the stage; whether all of it is finite."""
    finite = _take_back(piece, theta.between, learned.visible_hidden)
    finite &= _take_triangle(piece, theta.hidden, learned.hidden_hidden)
    return finite & _take_triangle(piece, theta.visible, learned.visible_visible)


@jit
def _learn(thread, threads, barrier, routines, after, start, given, theta, rule, work, learned):  # type: ignore[no-untyped-def]
    """One thread's share of a window: its pieces of every block, in step with the others.

    Returns whether what it learned is finite, and the length that strips had in the end, which is
    less than planned where θ changes fast: there blocks are shortened too.
    """
    # np.int64: kernels would be compiled once more for the constant 0
    first, solved, strip = 0, np.int64(0), rule.strip
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        _fill(p, given, theta)
    while first < after.shape[0] or solved > 0:
        last = min(first + strip * rule.strips, after.shape[0])
        x, r = after[first:last], start[first:last]
        for number in range(thread, rule.pieces, threads):
            p = _Piece(number, rule.pieces)
            if solved > 0:
                _apply(p, routines, solved, rule, work, theta)
            _forces(p, routines, x, theta, rule, work)
        wait_for_all(threads, barrier)
        for number in range(thread, rule.pieces, threads):
            p = _Piece(number, rule.pieces)
            _start_residuals(p, x, r, theta.bias, rule.constants, work.visible)
            _start_residuals(p, x, r, theta.bias, rule.constants, work.hidden)
        solved = np.int64(0)
        if last - first <= rule.period:
            wait_for_all(threads, barrier)
        elif not _solve(thread, threads, barrier, routines, last - first, strip, rule, work):
            strip = rule.period * max(1, strip // rule.period // 2)
            continue
        first, solved = last, last - first
    finite = True
    for number in range(thread, rule.pieces, threads):
        p = _Piece(number, rule.pieces)
        finite &= _take(p, theta, learned)
    return finite, strip


def compile_strips(machine: Machine) -> None:
    """Compile what solves the strips of a block, as ``_learn`` calls it: a third of all."""
    own, steps, strip = Learner(machine, learning_rate=1.0), 1, 1
    arguments = (0, 1, new_barrier(), blas(), steps, strip, own._rule, own._memory)
    _solve.compile(tuple(map(typeof, arguments)))


class Learner:
    """θ′ = learn(θ, path): the rule, with memory to work in but no state of its own.

    Kernels work on a copy of θ, so a path is learned or, whatever is raised, it is not.
    """

    def __init__(
        self,
        machine: Machine,
        learning_rate: float,
        period: int = 1,
        block_steps: int = BLOCK_STEPS,
        strip_steps: int = STRIP_STEPS,
        pieces: int | None = None,
    ) -> None:
        self.machine = machine
        pieces = pieces_of(machine) if pieces is None else pieces
        self.shortest_strip = 0
        """Steps in a strip at the end of the latest path, the least of all stages."""
        longest = max(last - first for first, last in machine.stage_windows)
        strip = min(period * max(1, min(strip_steps, block_steps) // period), longest)
        strips = max(1, min(block_steps, longest) // strip)
        vh, hh, vv = (
            np.float32(machine.wired(wire))
            for wire in ("visible-hidden", "hidden-hidden", "visible-visible")
        )
        self._rule = _Rule(
            alpha=float(learning_rate),
            # what the potential does is in the path already: no kernel here depends on it
            constants=step_constants(machine)._replace(onsite=None),
            period=period,
            strip=strip,
            strips=strips,
            pieces=pieces,
            tolerance=TOLERANCE,
            vh=vh,
            hh=hh,
            vv=vv,
            one_v=np.float32(0),
            one_h=np.float32(0),
        )
        self._memory = _work(machine, strip, strips, period, pieces)
        self._scratch = _Theta(
            padded(machine.visible, machine.hidden) if vh else padded(0, 0),
            padded(machine.hidden, machine.hidden) if hh else padded(0, 0),
            padded(machine.visible, machine.visible) if vv else padded(0, 0),
            np.empty(machine.units, np.float32),
        )

    def learn(
        self,
        theta: Parameters,
        path: Path,
        errors: Float32 | None = None,
        change: Float32 | None = None,
        rate: float | None = None,
    ) -> Parameters:
        """θ after one noising path.

        ``errors`` E (K, N) are added to the residuals before updates are formed; ``change`` is
        added to θ at the end. An incomplete last period of a window is applied at its end.
        ``rate``: α on this path, where it is another one.
        """
        rule = self._rule if rate is None else self._rule._replace(alpha=float(rate))
        check_path(self.machine, path)
        start, word = path.prepared if errors is None else path.prepared + errors, path.word
        given = np.ascontiguousarray(theta.vector, np.float32)
        learned = np.empty_like(given)
        finite, strips = True, []
        for stage, (first, last) in enumerate(self.machine.stage_windows):
            bias = effective_bias(theta, stage, word)
            self._scratch.bias[:] = bias
            steps = path.states[first + 1 : last + 1], start[first:last]
            found = self._learn_window(rule, *steps, word, given[stage], learned[stage])
            strips += [strip for _, strip in found]
            change_of_bias = self._scratch.bias - bias
            finite &= all(of_share for of_share, _ in found)
            finite &= bool(np.isfinite(change_of_bias).all())
            share_of_clamped(theta, change_of_bias, stage, word, learned[stage])
        if change is not None:
            learned += change
            finite &= bool(np.isfinite(learned).all())
        if not finite:
            raise Diverged("couplings are no longer finite")
        self.shortest_strip = min(strips)
        return theta.with_vector(learned)

    def _learn_window(
        self,
        rule: _Rule,
        after: Float32,
        start: Float32,
        word: Float32 | None,
        given: Float32,
        learned: Float32,
    ) -> list[tuple[bool, int]]:
        """Couplings of free units after the steps of one window; returns what ``_learn`` does."""
        squares = clamped_squares(self.machine, word)
        rule = rule._replace(
            one_v=np.float32(squares["visible"]), one_h=np.float32(squares["hidden"])
        )
        count = min(thread_count(), rule.pieces)
        barrier = new_barrier()
        work = (after, start, self._blocks(given), self._scratch, rule, self._memory)
        shares = [
            (thread, count, barrier, blas(), *work, self._blocks(learned))
            for thread in range(count)
        ]
        return in_threads(_learn, shares, barrier)

    def _blocks(self, vector: Float32) -> _Blocks:
        form, nothing = layout(self.machine), np.empty((0, 0), np.float32)
        return _Blocks(
            *(form[name].of(vector) if name in form else nothing for name in _Blocks._fields)
        )


def check_path(machine: Machine, path: Path) -> None:
    """Refuse a path that is not one of this machine."""
    if path.states.shape != (machine.steps + 1, machine.units):
        raise ValueError(
            f"a path of shape {path.states.shape}; this machine has "
            f"{(machine.steps + 1, machine.units)}"
        )


def padded(rows: int, columns: int) -> Float32:
    """Room for a matrix, its rows 16 floats longer than a multiple of 32: at a distance of a power
    of two, the rows of a column would all fall into the same few places of the cache.
    """
    longer = 32 * (columns // 32 + 1) + 16 if columns else 0
    return paged_zeros(rows * longer).reshape(rows, longer)


def clamped_squares(machine: Machine, word: Float32 | None) -> dict[str, float]:
    """β: Σ x² of the clamped units that each group is wired to: its bias, and the label units."""
    label = 0.0 if word is None else float(np.square(word, dtype=np.float64).sum())
    return {
        group: (group in machine.biases) + label * machine.wired(f"{group}-label")
        for group in machine.groups
    }


def share_of_clamped(
    theta: Parameters, change: Float32, stage: int, word: Float32 | None, out: Float32
) -> None:
    """Biases and label couplings of a stage, flat into ``out``, after b_i + Σ_l J_il x_l has
    changed by ``change`` (N,): shared out as the rule has it, in proportion to 1 and x_l.
    """
    machine = theta.machine
    squares = clamped_squares(machine, word)
    for block in theta.layout.blocks:
        if block.columns in ("one", "label"):
            clamped = word if block.columns == "label" else None
            states = np.ones(1, np.float32) if clamped is None else clamped
            share = np.outer(change[machine.groups[block.rows]], states / squares[block.rows])
            block.matrix(out)[...] = block.matrix(theta.vector[stage]) + share
