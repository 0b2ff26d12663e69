"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′),   b_a ← b_a − α Σ r_a      every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is
linear in θ and an update is a masked rank-2 change, so the residuals of a block of B steps
obey, with c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where
the update of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

U is strictly causal, so this is solved strip by strip of S steps: what earlier strips do to a
strip follows at once, and what its own steps do to each other by sweeps from R = R⁰, exact after
S sweeps and converged to float32 round-off in two or three. Then θ takes one rank-2B update. All
of it is matrix–matrix work: 4.2 MFLOP a step for 784 + 512 units and about a fifth more for the
strips.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine import Diverged, Path
from thermoloom.engine.compiled.barrier import new_barrier, wait_for_all
from thermoloom.engine.compiled.compiling import fast_jit, jit, residual
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
"""Longest strip of a block, S: shorter ones sweep less, but make flatter matrices."""
TOLERANCE = 1e-7
"""Largest estimated error of a strip's residuals, relative, both root mean square."""
MOST_SWEEPS = 8
"""A strip that needs more is halved."""
PIECES = 2
"""The units are always worked on in this many pieces, on as many threads as there are, up to
this number: so θ does not depend on the threads."""


# Residuals and states of a block lie in alternate rows of one array for each kind of unit, [R_v,
# X_v] and [X_h, R_h]. So those of any stretch of steps are one matrix, which is what products need.
# Kernels take slices of rows of whole arrays: then the compiler sees that they start at 0 and are
# contiguous, and loops run in vectors.


@jit
def _start_residuals(path, start, forces, bias, before, low, high, constants, x, r, pairs):  # type: ignore[no-untyped-def]
    """x ← path and r ← residual under the forces and biases, for units low … high of a group.

    The group begins after ``before`` units; ``x`` and ``r`` tell which of the two rows of a step in
    ``pairs`` is which.
    """
    b = bias[before + low : before + high]
    for k in range(path.shape[0]):
        s, f = start[k, before + low : before + high], forces[k, low:high]
        out = pairs[2 * k + r, low:high]
        for i in range(out.size):
            out[i] = residual(constants, s[i], f[i] + b[i])
        pairs[2 * k + x, low:high] = path[k, before + low : before + high]


@fast_jit
def _correct(start, sums, low, high, rate, r, pairs):  # type: ignore[no-untyped-def]
    """r ← start − rate·sums for units low … high; returns Σ change² and Σ r²."""
    change = np.float64(0)
    size = np.float64(0)
    for k in range(start.shape[0]):
        s, f, out = start[k, low:high], sums[k, low:high], pairs[2 * k + r, low:high]
        row_change = np.float32(0)
        row_size = np.float32(0)
        for i in range(out.size):
            new = s[i] - rate * f[i]
            difference = new - out[i]
            row_change += difference * difference
            row_size += new * new
            out[i] = new
        change += row_change
        size += row_size
    return change, size


@fast_jit
def _correct_coupled(start, sums, low, high, period, rate, x, r, pairs):  # type: ignore[no-untyped-def]
    """The same for a group that is coupled to itself: −2 (U(R∘X))∘X keeps J_ii = 0."""
    applied = np.zeros(high - low, np.float32)
    pending = np.zeros(high - low, np.float32)
    for k in range(start.shape[0]):
        f, state, old = sums[k, low:high], pairs[2 * k + x, low:high], pairs[2 * k + r, low:high]
        if k % period == 0:
            for i in range(old.size):
                applied[i] += pending[i]
                pending[i] = 0
        for i in range(old.size):
            f[i] -= np.float32(2) * applied[i] * state[i]
            pending[i] += old[i] * state[i]
    return _correct(start, sums, low, high, rate, r, pairs)


@jit
def _begin(sums, low, high, rate, r, pairs, start):  # type: ignore[no-untyped-def]
    """start ← r ← r − rate·sums: R⁰ of a strip once the earlier ones have acted on it."""
    for k in range(start.shape[0]):
        f, out, first = sums[k, low:high], pairs[2 * k + r, low:high], start[k, low:high]
        for i in range(out.size):
            out[i] -= rate * f[i]
            first[i] = out[i]


@jit
def _begin_coupled(sums, applied, low, high, rate, x, r, pairs, start):  # type: ignore[no-untyped-def]
    """The same for a group coupled to itself; ``applied`` is Σ R∘X of the earlier strips."""
    for k in range(start.shape[0]):
        f, state, seen = sums[k, low:high], pairs[2 * k + x, low:high], applied[low:high]
        for i in range(f.size):
            f[i] -= np.float32(2) * seen[i] * state[i]
    _begin(sums, low, high, rate, r, pairs, start)


@jit
def _end_coupled(low, high, x, r, pairs, applied):  # type: ignore[no-untyped-def]
    """applied ← applied + Σ R∘X of a strip."""
    total = applied[low:high]
    for k in range(pairs.shape[0] // 2):
        state, residual = pairs[2 * k + x, low:high], pairs[2 * k + r, low:high]
        for i in range(total.size):
            total[i] += residual[i] * state[i]


@jit
def _mirror(couplings, before, low, high):  # type: ignore[no-untyped-def]
    """Rows low … high of a lower triangle into the upper one; the diagonal becomes zero.

    The triangle begins at row ``before`` of the array.
    """
    tile = 32  # a tile of both triangles stays in the cache
    for row in range(low, high, tile):
        row_end = min(row + tile, high)
        for column in range(0, row_end, tile):
            for b in range(column, min(column + tile, row_end)):
                first = max(row, b + 1)
                image = couplings[before + b, first : max(first, row_end)]
                for i in range(image.size):
                    image[i] = couplings[before + first + i, b]
    for a in range(low, high):
        couplings[before + a, a] = 0


class _Work(NamedTuple):
    """Memory for a block of up to B steps in strips of up to S."""

    rx_visible: Float32
    """(2B, N_v): R_v and X_v in turns."""
    xr_hidden: Float32
    """(2B, N_h): X_h and R_h in turns."""
    start_v: Float32
    """(S, N_v): R⁰_v of a strip."""
    start_h: Float32
    """(S, N_h): R⁰_h of a strip."""
    sums_v: Float32
    """(B, N_v): forces at first, then the brackets of the equations above."""
    sums_h: Float32
    applied_v: Float32
    """(N_v,): Σ R_v∘X_v of the strips that are solved."""
    applied_h: Float32
    gram: Float32
    """(2, S, B): X_hX_hᵀ and X_vX_vᵀ, a strip's steps with all up to them."""
    cross: Float32
    """(2, PIECES, S, B): X_hR_hᵀ and X_vR_vᵀ likewise, over each piece's units."""
    operator: Float32
    """(PIECES, 2, S, 2B), for each thread: the matrices in front of [R_v, X_v] and [X_h, R_h]."""
    squares: NDArray[np.float64]
    """(PIECES, 2): Σ change² and Σ r² of each piece's last sweep."""


def _work(machine: Machine, steps: int, strip: int, period: int) -> _Work:
    """Memory for blocks of up to ``steps`` steps; a block of one period has no strips."""
    n_v, n_h = machine.visible, machine.hidden
    few, wide = (strip, steps) if steps > period else (0, 0)

    def memory(*shape: int) -> Float32:
        return np.empty(shape, np.float32)

    return _Work(
        rx_visible=memory(2 * steps, n_v),
        xr_hidden=memory(2 * steps, n_h),
        start_v=memory(few, n_v),
        start_h=memory(few, n_h),
        sums_v=memory(steps, n_v),
        sums_h=memory(steps, n_h),
        applied_v=memory(n_v),
        applied_h=memory(n_h),
        gram=memory(2, few, wide),
        cross=memory(2, PIECES, few, wide),
        operator=memory(PIECES, 2, few, 2 * wide),
        squares=np.empty((PIECES, 2)),
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
    """θ of one stage as kernels use it: a copy, so that nothing is changed by half."""

    couplings: Float32
    """J_vh above J_hh, (N, N_h) with longer rows."""
    within: Float32
    """J_vv, (N_v, N_v) with longer rows, or nothing."""
    bias: Float32
    """b_i + Σ_l J_il x_l, (N,)."""


@jit
def _units(piece, n):  # type: ignore[no-untyped-def]
    """Range of the units of a piece."""
    return n * piece // PIECES, n * (piece + 1) // PIECES


@jit
def _load(piece, routines, x, start, theta, rule, work):  # type: ignore[no-untyped-def]
    """X′ and R⁰ = start + c (J x′ + b) of a piece's units into the block."""
    steps = x.shape[0]
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    v, v_end = _units(piece, n_v)
    h, h_end = _units(piece, n_h)
    couplings, bias, constants = theta.couplings, theta.bias, rule.constants
    of_v, of_h = work.sums_v[:steps, v:v_end], work.sums_h[:steps, h:h_end]
    first = 0 if rule.vh else n_v  # of the rows of ``couplings`` that are wired
    last = n_v + n_h if rule.hh else n_v
    if rule.vh:
        multiply(routines, 1.0, x[:, n_v:], couplings[v:v_end, :n_h].T, 0.0, of_v)
    else:
        of_v[:] = 0
    if rule.vv:
        multiply(routines, 1.0, x[:, :n_v], theta.within[:, v:v_end], 1.0, of_v)
    if first < last:
        multiply(routines, 1.0, x[:, first:last], couplings[first:last, h:h_end], 0.0, of_h)
    else:
        of_h[:] = 0
    _start_residuals(
        x, start, work.sums_v, bias, 0, v, v_end, constants, 1, 0, work.rx_visible[: 2 * steps]
    )
    _start_residuals(
        x, start, work.sums_h, bias, n_v, h, h_end, constants, 0, 1, work.xr_hidden[: 2 * steps]
    )
    work.applied_v[v:v_end] = 0
    work.applied_h[h:h_end] = 0


@jit
def _operator(first, low, high, steps, rule, gram, cross, out):  # type: ignore[no-untyped-def]
    """Matrices by which steps low … high of the block act on the ``steps`` ones from ``first`` on.

    Columns in the order of the rows of [R_v, X_v] and [X_h, R_h], masked by U.
    """
    for k in range(steps):
        gram_h, gram_v = gram[0, k, low:high], gram[1, k, low:high]
        cross_h, cross_v = cross[0, :, k, low:high], cross[1, :, k, low:high]
        of_visible, of_hidden = out[0, k], out[1, k]
        # updates of these steps are already applied at step k
        seen = min((first + k) // rule.period * rule.period, high) - low
        for m in range(seen):
            sum_h = np.float32(0)
            sum_v = np.float32(0)
            for piece in range(PIECES):
                sum_h += cross_h[piece, m]
                sum_v += cross_v[piece, m]
            of_visible[2 * m] = rule.vh * gram_h[m] + rule.vv * gram_v[m] + rule.one_v
            of_visible[2 * m + 1] = rule.vh * sum_h + rule.vv * sum_v
            of_hidden[2 * m] = rule.hh * sum_h + rule.vh * sum_v
            of_hidden[2 * m + 1] = rule.hh * gram_h[m] + rule.vh * gram_v[m] + rule.one_h
        of_visible[2 * seen : 2 * (high - low)] = 0
        of_hidden[2 * seen : 2 * (high - low)] = 0


@jit
def _act(thread, threads, barrier, routines, first, last, low, high, rule, work):  # type: ignore[no-untyped-def]
    """Brackets of steps first … last by what steps low … high do to them, into ``sums``."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    rx, xr, steps = work.rx_visible, work.xr_hidden, last - first
    x_v, r_v = rx[2 * first + 1 : 2 * last : 2], rx[2 * low : 2 * high : 2]
    x_h, r_h = xr[2 * first : 2 * last : 2], xr[2 * low + 1 : 2 * high : 2]
    for p in range(thread, PIECES, threads):
        v, v_end = _units(p, n_v)
        h, h_end = _units(p, n_h)
        cross_h, cross_v = work.cross[0, p, :steps, low:high], work.cross[1, p, :steps, low:high]
        multiply(routines, 1.0, x_h[:, h:h_end], r_h[:, h:h_end].T, 0.0, cross_h)
        multiply(routines, 1.0, x_v[:, v:v_end], r_v[:, v:v_end].T, 0.0, cross_v)
    wait_for_all(threads, barrier)
    _operator(first, low, high, steps, rule, work.gram, work.cross, work.operator[thread])
    operator = work.operator[thread, :, :steps, : 2 * (high - low)]
    for p in range(thread, PIECES, threads):
        v, v_end = _units(p, n_v)
        h, h_end = _units(p, n_h)
        by_v, by_h = rx[2 * low : 2 * high, v:v_end], xr[2 * low : 2 * high, h:h_end]
        multiply(routines, 1.0, operator[0], by_v, 0.0, work.sums_v[:steps, v:v_end])
        multiply(routines, 1.0, operator[1], by_h, 0.0, work.sums_h[:steps, h:h_end])


@jit
def _solve(thread, threads, barrier, routines, steps, strip, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of a block, strip by strip, in place. False if sweeps do not contract fast enough."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    rate = _rate(rule)
    for first in range(0, steps, strip):
        last = min(first + strip, steps)
        x_v, x_h = work.rx_visible[1 : 2 * last : 2], work.xr_hidden[: 2 * last : 2]
        gram = work.gram[:, : last - first, :last]
        if thread == 0:
            multiply(routines, 1.0, x_h[first:], x_h.T, 0.0, gram[0])
        if thread == threads - 1:
            multiply(routines, 1.0, x_v[first:], x_v.T, 0.0, gram[1])
        if first > 0:
            _act(thread, threads, barrier, routines, first, last, 0, first, rule, work)
        rx, xr = work.rx_visible[2 * first : 2 * last], work.xr_hidden[2 * first : 2 * last]
        start_v, start_h = work.start_v[: last - first], work.start_h[: last - first]
        effect = rate if first > 0 else np.float32(0)  # nothing acts on the first strip
        for p in range(thread, PIECES, threads):
            v, v_end = _units(p, n_v)
            h, h_end = _units(p, n_h)
            if rule.vv:
                _begin_coupled(work.sums_v, work.applied_v, v, v_end, effect, 1, 0, rx, start_v)
            else:
                _begin(work.sums_v, v, v_end, effect, 0, rx, start_v)
            if rule.hh:
                _begin_coupled(work.sums_h, work.applied_h, h, h_end, effect, 0, 1, xr, start_h)
            else:
                _begin(work.sums_h, h, h_end, effect, 1, xr, start_h)
        wait_for_all(threads, barrier)
        if last - first > rule.period and not _sweep(
            thread, threads, barrier, routines, first, last, rule, work
        ):
            return False
        for p in range(thread, PIECES, threads):
            v, v_end = _units(p, n_v)
            h, h_end = _units(p, n_h)
            if rule.vv:
                _end_coupled(v, v_end, 1, 0, rx, work.applied_v)
            if rule.hh:
                _end_coupled(h, h_end, 0, 1, xr, work.applied_h)
    return True


@jit
def _sweep(thread, threads, barrier, routines, first, last, rule, work):  # type: ignore[no-untyped-def]
    """What the steps of a strip do to each other, by causal sweeps; whether they converged."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    rx, xr = work.rx_visible[2 * first : 2 * last], work.xr_hidden[2 * first : 2 * last]
    start_v, start_h = work.start_v[: last - first], work.start_h[: last - first]
    rate = _rate(rule)
    before = 1.0
    for sweep in range(MOST_SWEEPS):
        _act(thread, threads, barrier, routines, first, last, first, last, rule, work)
        for p in range(thread, PIECES, threads):
            v, v_end = _units(p, n_v)
            h, h_end = _units(p, n_h)
            sums_v, sums_h, period = work.sums_v, work.sums_h, rule.period
            if rule.vv:
                of_v = _correct_coupled(start_v, sums_v, v, v_end, period, rate, 1, 0, rx)
            else:
                of_v = _correct(start_v, sums_v, v, v_end, rate, 0, rx)
            if rule.hh:
                of_h = _correct_coupled(start_h, sums_h, h, h_end, period, rate, 0, 1, xr)
            else:
                of_h = _correct(start_h, sums_h, h, h_end, rate, 1, xr)
            work.squares[p, 0] = of_v[0] + of_h[0]
            work.squares[p, 1] = of_v[1] + of_h[1]
        wait_for_all(threads, barrier)
        change_squared = work.squares[:, 0].sum()
        size_squared = work.squares[:, 1].sum()
        # NaN ends the sweeps too; ``learn`` will find it in θ
        change = np.sqrt(change_squared / size_squared) if size_squared > 0 else 0.0
        # Sweeps contract by change/before, so what is left is about change²/before. The first
        # change tells nothing of that: residuals are mostly noise, changes are coherent.
        if change == 0 or (sweep > 0 and change * change <= rule.tolerance * before):
            return True
        if not change <= 0.5 * before:
            return False
        before = change
    return False


@jit
def _rate(rule):  # type: ignore[no-untyped-def]
    """αc: how strongly an update changes later residuals."""
    return np.float32(rule.alpha * np.float64(rule.constants.c))


@jit
def _apply_within(piece, routines, alpha, x_all, r_all, before, couplings):  # type: ignore[no-untyped-def]
    """J ← J − α (RᵀX + XᵀR) within a group: rows of the lower triangle, of equal area a piece,
    then their mirror image. The triangle begins at row ``before`` of the array.
    """
    n = x_all.shape[1]
    low = int(np.round(n * np.sqrt(piece / PIECES)))
    high = int(np.round(n * np.sqrt((piece + 1) / PIECES)))
    x, r, own = x_all[:, low:high], r_all[:, low:high], couplings[before + low : before + high]
    multiply_symmetric(routines, -alpha, x, r, 1.0, own[:, low:high])
    if low > 0:
        multiply(routines, -alpha, x.T, r_all[:, :low], 1.0, own[:, :low])
        multiply(routines, -alpha, r.T, x_all[:, :low], 1.0, own[:, :low])
    _mirror(couplings, before, low, high)


@jit
def _apply_bias(alpha, one, low, high, residuals, bias):  # type: ignore[no-untyped-def]
    """b ← b − αβ Σ r for units low … high of a group."""
    rate, own = np.float32(alpha) * one, bias[low:high]
    for k in range(residuals.shape[0]):
        r = residuals[k, low:high]
        for i in range(own.size):
            own[i] -= rate * r[i]


@jit
def _apply(piece, routines, steps, rule, work, theta):  # type: ignore[no-untyped-def]
    """θ ← θ − α (RᵀX + XᵀR, …) of a piece: one rank-2B update for each array."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    v, v_end = _units(piece, n_v)
    h, h_end = _units(piece, n_h)
    rx, xr = work.rx_visible[: 2 * steps], work.xr_hidden[: 2 * steps]
    alpha = rule.alpha
    if rule.vh:
        multiply(routines, -alpha, rx[:, v:v_end].T, xr, 1.0, theta.couplings[v:v_end, :n_h])
    if rule.hh:
        _apply_within(piece, routines, alpha, xr[::2], xr[1::2], n_v, theta.couplings)
    if rule.vv:
        _apply_within(piece, routines, alpha, rx[1::2], rx[::2], 0, theta.within)
    if rule.one_v:
        _apply_bias(alpha, rule.one_v, v, v_end, rx[::2], theta.bias[:n_v])
    if rule.one_h:
        _apply_bias(alpha, rule.one_h, h, h_end, xr[1::2], theta.bias[n_v:])


@jit
def _copy_rows(piece, source, first_source, target, first_target, rows, columns):  # type: ignore[no-untyped-def]
    """A piece of the rows of a matrix into another, from their first rows on."""
    low, high = _units(piece, rows)
    for i in range(low, high):
        target[first_target + i, :columns] = source[first_source + i, :columns]


@jit
def _fill(piece, given, theta):  # type: ignore[no-untyped-def]
    """A piece of the couplings of a stage into the copy that kernels work on."""
    n_v = theta.couplings.shape[0] - given.hidden_hidden.shape[0]
    vh, hh, vv = given
    _copy_rows(piece, vh, 0, theta.couplings, 0, vh.shape[0], vh.shape[1])
    _copy_rows(piece, hh, 0, theta.couplings, n_v, hh.shape[0], hh.shape[1])
    _copy_rows(piece, vv, 0, theta.within, 0, vv.shape[0], vv.shape[1])


@jit
def _take(piece, theta, learned):  # type: ignore[no-untyped-def]
    """The same back."""
    n_v = theta.couplings.shape[0] - learned.hidden_hidden.shape[0]
    vh, hh, vv = learned
    _copy_rows(piece, theta.couplings, 0, vh, 0, vh.shape[0], vh.shape[1])
    _copy_rows(piece, theta.couplings, n_v, hh, 0, hh.shape[0], hh.shape[1])
    _copy_rows(piece, theta.within, 0, vv, 0, vv.shape[0], vv.shape[1])


@jit
def _learn(thread, threads, barrier, routines, after, start, given, theta, rule, work, learned):  # type: ignore[no-untyped-def]
    """One thread's share of a window: its pieces of every block, in step with the others.

    Returns the length that strips had in the end, which is less than planned where sweeps did
    not contract: there θ changes so fast that blocks are shortened too. A strip of one period
    needs no sweeps.
    """
    first, strip = 0, rule.strip
    for p in range(thread, PIECES, threads):
        _fill(p, given, theta)
    wait_for_all(threads, barrier)
    while first < after.shape[0]:
        last = min(first + strip * rule.strips, after.shape[0])
        steps = last - first
        for p in range(thread, PIECES, threads):
            x, r = after[first:last], start[first:last]
            _load(p, routines, x, r, theta, rule, work)
        wait_for_all(threads, barrier)
        if steps > rule.period and not _solve(
            thread, threads, barrier, routines, steps, strip, rule, work
        ):
            strip = rule.period * max(1, strip // rule.period // 2)
            continue
        for p in range(thread, PIECES, threads):
            _apply(p, routines, steps, rule, work, theta)
        wait_for_all(threads, barrier)
        first = last
    for p in range(thread, PIECES, threads):
        _take(p, theta, learned)
    return strip


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
    ) -> None:
        self.machine = machine
        self.shortest_strip = 0
        """Steps in a strip at the end of the latest path, the least of all stages."""
        longest = max(last - first for first, last in machine.stage_windows)
        strip = min(period * max(1, min(strip_steps, block_steps) // period), longest)
        strips = max(1, block_steps // strip)
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
            tolerance=TOLERANCE,
            vh=vh,
            hh=hh,
            vv=vv,
            one_v=np.float32(0),
            one_h=np.float32(0),
        )
        self._memory = _work(machine, min(strip * strips, longest), strip, period)
        self._scratch = _Theta(
            _padded(machine.units, machine.hidden),
            _padded(*(2 * [machine.visible if vv else 0])),
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
        strips = []
        for stage, (first, last) in enumerate(self.machine.stage_windows):
            bias = effective_bias(theta, stage, word)
            self._scratch.bias[:] = bias
            steps = path.states[first + 1 : last + 1], start[first:last]
            kept = given[stage], learned[stage]
            strips.append(self._learn_window(rule, *steps, word, *kept))
            change_of_bias = self._scratch.bias - bias
            share_of_clamped(theta, change_of_bias, stage, word, learned[stage])
        if change is not None:
            learned += change
        if not np.isfinite(learned).all():
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
    ) -> int:
        """Couplings of free units after the steps of one window; returns the strips' length."""
        squares = clamped_squares(self.machine, word)
        rule = rule._replace(
            one_v=np.float32(squares["visible"]), one_h=np.float32(squares["hidden"])
        )
        count = min(thread_count(), PIECES)
        barrier = new_barrier()
        work = (after, start, self._blocks(given), self._scratch, rule, self._memory)
        shares = [
            (thread, count, barrier, blas(), *work, self._blocks(learned))
            for thread in range(count)
        ]
        found: int = in_threads(_learn, shares, barrier)[0]
        return found

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


def _padded(rows: int, columns: int) -> Float32:
    """Room for a matrix, its rows 16 floats longer than a multiple of 32: at a distance of a power
    of two, the rows of a column would all fall into the same few places of the cache.
    """
    return np.zeros((rows, 32 * (columns // 32 + 1) + 16 if columns else 0), np.float32)


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
