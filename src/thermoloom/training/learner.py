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

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thermoloom.config import Physics, Settings
from thermoloom.linear_algebra import blas, multiply, multiply_symmetric
from thermoloom.physics.computer import Computer
from thermoloom.streams import jit
from thermoloom.threads import in_threads, new_barrier, thread_count, unit_ranges, wait_for_all

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

# Sums may be reordered, so that they run in vector registers; non-finite values still show.
any_order = {"reassoc", "contract", "nsz"}
fast_jit = njit(nogil=True, cache=True, error_model="numpy", fastmath=any_order)


class Diverged(Exception):
    """Parameters or residuals are no longer finite. A result, not a crash."""


@jit
def _drive(path, inverse_2kT, c, quadratic, quartic, out):  # type: ignore[no-untyped-def]
    """Residuals at θ = 0: [−Δx + μΔt (2J₂x′ + 4J₄x′³)] / (2k_BT)."""
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            x = path[k + 1, i]
            onsite = x * (quadratic + quartic * (x * x))
            out[k, i] = c * onsite - inverse_2kT * (x - path[k, i])


def drive(physics: Physics, path: Float32, out: Float32 | None = None) -> Float32:
    """Residuals that the onsite potential alone would have; shared by all learners of a path."""
    drives = np.empty((len(path) - 1, path.shape[1]), np.float32) if out is None else out
    constants = [
        np.float32(value)
        for value in (1 / (2 * physics.kT), physics.residual_scale, 2 * physics.J2, 4 * physics.J4)
    ]

    def steps(first: int, last: int) -> None:
        _drive(path[first : last + 1], *constants, drives[first:last])

    in_threads(steps, unit_ranges(len(drives), thread_count()))
    return drives


# Residuals and states of a block lie in alternate rows of one array for each kind of unit, [R_v,
# X_v] and [X_h, R_h]. So those of any stretch of steps are one matrix, which is what products need.
# Kernels take slices of rows of whole arrays: then the compiler sees that they start at 0 and are
# contiguous, and loops run in vectors.


@jit
def _start_residuals(path, start, forces, bias, before, low, high, c, x, r, pairs):  # type: ignore[no-untyped-def]
    """x ← path and r ← start + c (forces + bias) for units low … high of those after ``before``.

    ``x`` and ``r`` tell which of the two rows of a step in ``pairs`` is which.
    """
    b = bias[before + low : before + high]
    for k in range(path.shape[0]):
        s, f = start[k, before + low : before + high], forces[k, low:high]
        out = pairs[2 * k + r, low:high]
        for i in range(out.size):
            out[i] = s[i] + c * (f[i] + b[i])
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
def _correct_hidden(start, sums, low, high, period, rate, pairs):  # type: ignore[no-untyped-def]
    """The same for hidden units, with the term −2 (U(R∘X))∘X that keeps J_aa = 0."""
    applied = np.zeros(high - low, np.float32)
    pending = np.zeros(high - low, np.float32)
    for k in range(start.shape[0]):
        f, state, old = sums[k, low:high], pairs[2 * k, low:high], pairs[2 * k + 1, low:high]
        if k % period == 0:
            for i in range(old.size):
                applied[i] += pending[i]
                pending[i] = 0
        for i in range(old.size):
            f[i] -= np.float32(2) * applied[i] * state[i]
            pending[i] += old[i] * state[i]
    return _correct(start, sums, low, high, rate, 1, pairs)


@jit
def _begin(sums, low, high, rate, r, pairs, start):  # type: ignore[no-untyped-def]
    """start ← r ← r − rate·sums: R⁰ of a strip once the earlier ones have acted on it."""
    for k in range(start.shape[0]):
        f, out, first = sums[k, low:high], pairs[2 * k + r, low:high], start[k, low:high]
        for i in range(out.size):
            out[i] -= rate * f[i]
            first[i] = out[i]


@jit
def _begin_hidden(sums, applied, low, high, rate, pairs, start):  # type: ignore[no-untyped-def]
    """The same for hidden units; ``applied`` is Σ R∘X of the earlier strips."""
    for k in range(start.shape[0]):
        f, state, seen = sums[k, low:high], pairs[2 * k, low:high], applied[low:high]
        for i in range(f.size):
            f[i] -= np.float32(2) * seen[i] * state[i]
    _begin(sums, low, high, rate, 1, pairs, start)


@jit
def _end_hidden(low, high, pairs, applied):  # type: ignore[no-untyped-def]
    """applied ← applied + Σ R∘X of a strip."""
    total = applied[low:high]
    for k in range(pairs.shape[0] // 2):
        state, residual = pairs[2 * k, low:high], pairs[2 * k + 1, low:high]
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
    applied: Float32
    """(N_h,): Σ R_h∘X_h of the strips that are solved."""
    gram: Float32
    """(2, S, B): X_hX_hᵀ and X_vX_vᵀ, a strip's steps with all up to them."""
    cross: Float32
    """(2, PIECES, S, B): X_hR_hᵀ and X_vR_vᵀ likewise, over each piece's units."""
    operator: Float32
    """(PIECES, 2, S, 2B), for each thread: the matrices in front of [R_v, X_v] and [X_h, R_h]."""
    squares: NDArray[np.float64]
    """(PIECES, 2): Σ change² and Σ r² of each piece's last sweep."""


def _work(physics: Physics, steps: int, strip: int, period: int) -> _Work:
    """Memory for blocks of up to ``steps`` steps; a block of one period has no strips."""
    n_v, n_h = physics.visible, physics.hidden
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
        applied=memory(n_h),
        gram=memory(2, few, wide),
        cross=memory(2, PIECES, few, wide),
        operator=memory(PIECES, 2, few, 2 * wide),
        squares=np.empty((PIECES, 2)),
    )


class _Rule(NamedTuple):
    """Numbers of the rule."""

    alpha: float
    """Learning rate."""
    c: float
    """μΔt/(2k_BT)"""
    period: int
    """M"""
    strip: int
    """Most steps in a strip: a multiple of the period, or the whole path."""
    strips: int
    """Most strips in a block."""
    tolerance: float


@jit
def _units(piece, n):  # type: ignore[no-untyped-def]
    """Range of the units of a piece."""
    return n * piece // PIECES, n * (piece + 1) // PIECES


@jit
def _load(piece, routines, x, start, couplings, bias, c, work):  # type: ignore[no-untyped-def]
    """X′ and R⁰ = start + c (J x′ + b) of a piece's units into the block."""
    steps = x.shape[0]
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    v, v_end = _units(piece, n_v)
    h, h_end = _units(piece, n_h)
    sums_v, sums_h = work.sums_v[:steps], work.sums_h[:steps]
    multiply(routines, 1.0, x[:, n_v:], couplings[v:v_end, :n_h].T, 0.0, sums_v[:, v:v_end])
    multiply(routines, 1.0, x, couplings[:, h:h_end], 0.0, sums_h[:, h:h_end])
    _start_residuals(
        x, start, sums_v, bias, 0, v, v_end, np.float32(c), 1, 0, work.rx_visible[: 2 * steps]
    )
    _start_residuals(
        x, start, sums_h, bias, n_v, h, h_end, np.float32(c), 0, 1, work.xr_hidden[: 2 * steps]
    )
    work.applied[h:h_end] = 0


@jit
def _operator(first, low, high, steps, period, gram, cross, out):  # type: ignore[no-untyped-def]
    """Matrices by which steps low … high of the block act on the ``steps`` ones from ``first`` on.

    Columns in the order of the rows of [R_v, X_v] and [X_h, R_h], masked by U.
    """
    for k in range(steps):
        gram_h, gram_v = gram[0, k, low:high], gram[1, k, low:high]
        cross_h, cross_v = cross[0, :, k, low:high], cross[1, :, k, low:high]
        of_visible, of_hidden = out[0, k], out[1, k]
        # updates of these steps are already applied at step k
        seen = min((first + k) // period * period, high) - low
        for m in range(seen):
            sum_h = np.float32(0)
            sum_v = np.float32(0)
            for piece in range(PIECES):
                sum_h += cross_h[piece, m]
                sum_v += cross_v[piece, m]
            of_visible[2 * m] = gram_h[m]
            of_visible[2 * m + 1] = sum_h
            of_hidden[2 * m] = sum_h + sum_v
            of_hidden[2 * m + 1] = gram_h[m] + gram_v[m] + np.float32(1)
        of_visible[2 * seen : 2 * (high - low)] = 0
        of_hidden[2 * seen : 2 * (high - low)] = 0


@jit
def _act(thread, threads, barrier, routines, first, last, low, high, period, work):  # type: ignore[no-untyped-def]
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
    _operator(first, low, high, steps, period, work.gram, work.cross, work.operator[thread])
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
    rate = np.float32(rule.alpha * rule.c)
    for first in range(0, steps, strip):
        last = min(first + strip, steps)
        x_v, x_h = work.rx_visible[1 : 2 * last : 2], work.xr_hidden[: 2 * last : 2]
        gram = work.gram[:, : last - first, :last]
        if thread == 0:
            multiply(routines, 1.0, x_h[first:], x_h.T, 0.0, gram[0])
        if thread == threads - 1:
            multiply(routines, 1.0, x_v[first:], x_v.T, 0.0, gram[1])
        if first > 0:
            _act(thread, threads, barrier, routines, first, last, 0, first, rule.period, work)
        rx, xr = work.rx_visible[2 * first : 2 * last], work.xr_hidden[2 * first : 2 * last]
        start_v, start_h = work.start_v[: last - first], work.start_h[: last - first]
        effect = rate if first > 0 else np.float32(0)  # nothing acts on the first strip
        for p in range(thread, PIECES, threads):
            v, v_end = _units(p, n_v)
            h, h_end = _units(p, n_h)
            _begin(work.sums_v, v, v_end, effect, 0, rx, start_v)
            _begin_hidden(work.sums_h, work.applied, h, h_end, effect, xr, start_h)
        wait_for_all(threads, barrier)
        if last - first > rule.period and not _sweep(
            thread, threads, barrier, routines, first, last, rule, work
        ):
            return False
        for p in range(thread, PIECES, threads):
            h, h_end = _units(p, n_h)
            _end_hidden(h, h_end, xr, work.applied)
    return True


@jit
def _sweep(thread, threads, barrier, routines, first, last, rule, work):  # type: ignore[no-untyped-def]
    """What the steps of a strip do to each other, by causal sweeps; whether they converged."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    rx, xr = work.rx_visible[2 * first : 2 * last], work.xr_hidden[2 * first : 2 * last]
    start_v, start_h = work.start_v[: last - first], work.start_h[: last - first]
    rate = np.float32(rule.alpha * rule.c)
    before = 1.0
    for sweep in range(MOST_SWEEPS):
        _act(thread, threads, barrier, routines, first, last, first, last, rule.period, work)
        for p in range(thread, PIECES, threads):
            v, v_end = _units(p, n_v)
            h, h_end = _units(p, n_h)
            of_v = _correct(start_v, work.sums_v, v, v_end, rate, 0, rx)
            of_h = _correct_hidden(start_h, work.sums_h, h, h_end, rule.period, rate, xr)
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
def _apply(piece, routines, steps, alpha, work, couplings, bias):  # type: ignore[no-untyped-def]
    """θ ← θ − α (RᵀX_h + XᵀR_h, …) of a piece: one rank-2B update for each array."""
    n_v, n_h = work.rx_visible.shape[1], work.xr_hidden.shape[1]
    v, v_end = _units(piece, n_v)
    h, h_end = _units(piece, n_h)
    rx, xr = work.rx_visible[: 2 * steps], work.xr_hidden[: 2 * steps]
    x_h, r_h = xr[::2], xr[1::2]
    multiply(routines, -alpha, rx[:, v:v_end].T, xr, 1.0, couplings[v:v_end, :n_h])
    # Hidden–hidden: rows of the lower triangle, of equal area a piece, then their mirror image.
    low = int(np.round(n_h * np.sqrt(piece / PIECES)))
    high = int(np.round(n_h * np.sqrt((piece + 1) / PIECES)))
    x, r, own = x_h[:, low:high], r_h[:, low:high], couplings[n_v + low : n_v + high]
    multiply_symmetric(routines, -alpha, x, r, 1.0, own[:, low:high])
    if low > 0:
        multiply(routines, -alpha, x.T, r_h[:, :low], 1.0, own[:, :low])
        multiply(routines, -alpha, r.T, x_h[:, :low], 1.0, own[:, :low])
    _mirror(couplings, n_v, low, high)
    own_bias = bias[n_v + h : n_v + h_end]
    for k in range(steps):
        residual = xr[2 * k + 1, h:h_end]
        for i in range(own_bias.size):
            own_bias[i] -= np.float32(alpha) * residual[i]


@jit
def _learn(thread, threads, barrier, routines, after, start, couplings, bias, rule, work):  # type: ignore[no-untyped-def]
    """One thread's share of a trajectory: its pieces of every block, in step with the others.

    Returns the length that strips had in the end, which is less than planned where sweeps did
    not contract: there θ changes so fast that blocks are shortened too. A strip of one period
    needs no sweeps.
    """
    first, strip = 0, rule.strip
    while first < after.shape[0]:
        last = min(first + strip * rule.strips, after.shape[0])
        steps = last - first
        for p in range(thread, PIECES, threads):
            x, r = after[first:last], start[first:last]
            _load(p, routines, x, r, couplings, bias, rule.c, work)
        wait_for_all(threads, barrier)
        if steps > rule.period and not _solve(
            thread, threads, barrier, routines, steps, strip, rule, work
        ):
            strip = rule.period * max(1, strip // rule.period // 2)
            continue
        for p in range(thread, PIECES, threads):
            _apply(p, routines, steps, rule.alpha, work, couplings, bias)
        wait_for_all(threads, barrier)
        first = last
    return strip


class Learner:
    """θ and the rule that changes it. ``learn`` one noising path after the other.

    Arrays of θ are replaced, never changed in place: a path is learned or not, and a shallow copy
    of a learner keeps its own θ whatever becomes of the other.
    """

    def __init__(
        self,
        physics: Physics,
        learning_rate: float,
        period: int = 1,
        start: Computer | None = None,
        block_steps: int = BLOCK_STEPS,
        strip_steps: int = STRIP_STEPS,
    ) -> None:
        self.physics = physics
        start = start or Computer.zeros(physics)
        # J_vh above J_hh: the couplings of every unit to the hidden ones, in one array. Its rows
        # are 16 floats longer than a multiple of 32: at a distance of a power of two, the
        # rows of a column would all fall into the same few places of the cache.
        row = 32 * (physics.hidden // 32 + 1) + 16
        self._couplings = np.zeros((physics.units, row), np.float32)
        self._couplings[:, : physics.hidden] = np.concatenate(
            [start.visible_hidden, start.hidden_hidden]
        )
        self._bias = np.zeros(physics.units, np.float32)
        self._bias[physics.visible :] = start.hidden_bias
        strip = min(period * max(1, min(strip_steps, block_steps) // period), physics.steps)
        strips = max(1, block_steps // strip)
        c = physics.residual_scale
        self._rule = _Rule(float(learning_rate), c, period, strip, strips, TOLERANCE)
        self.shortest_strip = strip
        """Steps in a strip at the end of the latest path."""
        self._memory = _work(physics, min(strip * strips, physics.steps), strip, period)

    @classmethod
    def from_settings(cls, settings: Settings, start: Computer | None = None) -> Learner:
        return cls(settings.physics, settings.learning_rate, settings.period, start)

    @property
    def computer(self) -> Computer:
        """A copy of θ."""
        n = self.physics.visible
        couplings = self._couplings[:, : self.physics.hidden]
        return Computer(couplings[:n], couplings[n:], self._bias[n:]).copy()

    def move(self, scale: np.float32, couplings: Float32, bias: Float32) -> None:
        """θ ← θ + scale · Δθ, with the Δ of J_vh above that of J_hh, (N, N_h)."""
        moved = self._couplings.copy(), self._bias.copy()
        moved[0][:, : self.physics.hidden] += scale * couplings
        moved[1][self.physics.visible :] += scale * bias
        self._couplings, self._bias = moved

    def learn(
        self, path: Float32, errors: Float32 | None = None, drives: Float32 | None = None
    ) -> None:
        """Train on one noising path (K + 1, N).

        ``errors`` E (K, N) are added to the residuals before updates are formed; ``drives`` =
        ``drive(physics, path)`` if it is at hand. An incomplete last period is applied at the end.
        """
        if len(path) - 1 > self.physics.steps:
            raise ValueError(f"a path of {len(path) - 1} steps, longer than {self.physics.steps}")
        start = drive(self.physics, path) if drives is None else drives
        if errors is not None:
            start = start + errors
        count = min(thread_count(), PIECES)
        barrier = new_barrier()
        after = self._couplings.copy(), self._bias.copy()
        shares = [
            (thread, count, barrier, blas(), path[1:], start, *after, self._rule, self._memory)
            for thread in range(count)
        ]
        self.shortest_strip = in_threads(_learn, shares, barrier)[0]
        self._couplings, self._bias = after
        if not (np.isfinite(self._couplings).all() and np.isfinite(self._bias).all()):
            raise Diverged("couplings are no longer finite")


def learn_stepwise(
    physics: Physics,
    computer: Computer,
    path: NDArray[Any],
    learning_rate: float,
    period: int = 1,
    errors: NDArray[Any] | None = None,
) -> Computer:
    """The plain rule, one step after the other, in float64: the reference for every fast path."""
    theta = computer.astype(np.float64)
    x = np.asarray(path, np.float64)
    j_vh, j_hh, b = (array.copy() for array in theta.arrays.values())
    pending = [np.zeros_like(j_vh), np.zeros_like(j_hh), np.zeros_like(b)]
    steps = len(x) - 1
    for k in range(steps):
        after = x[k + 1]
        v, h = after[: physics.visible], after[physics.visible :]
        force = np.concatenate([j_vh @ h, v @ j_vh + j_hh @ h + b])
        force += 2 * physics.J2 * after + 4 * physics.J4 * after**3
        r = (x[k] - after + physics.mobility * physics.dt * force) / (2 * physics.kT)
        if errors is not None:
            r = r + errors[k]
        r_v, r_h = r[: physics.visible], r[physics.visible :]
        pending[0] += np.outer(r_v, h) + np.outer(v, r_h)
        update = np.outer(r_h, h)
        pending[1] += update + update.T
        pending[2] += r_h
        if (k + 1) % period == 0 or k + 1 == steps:
            j_vh -= learning_rate * pending[0]
            j_hh -= learning_rate * pending[1]
            b -= learning_rate * pending[2]
            np.fill_diagonal(j_hh, 0)
            for array in pending:
                array[:] = 0
    return Computer(j_vh, j_hh, b)
