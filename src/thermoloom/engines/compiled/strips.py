"""The action of a block's steps on each other: R⁰ → R, strip by strip.

See ``learner`` for the equations. Each thread works on its share of the units; threads wait for
each other before products over all units.
"""

from __future__ import annotations

import numpy as np
from numba import typeof

from thermoloom.engines.compiled.barrier import new_barrier, wait_for_all
from thermoloom.engines.compiled.block_memory import (
    Pieces,
    Rule,
    Work,
    half_of,
    piece,
    place_of,
    range_of,
    rate_of,
    share_of,
)
from thermoloom.engines.compiled.compiling import fast_loops, inline, inner, loops
from thermoloom.engines.compiled.tiles import (
    LANES,
    Extent,
    Operand,
    add_product,
    address,
    transpose,
)

ONE = np.float32(1)


@fast_loops
def _begin(pieces, first, last, period, rate, group):  # type: ignore[no-untyped-def]
    """R⁰ ← R⁰ + D in a group coupled to itself, D = 2 αc (U(R∘X))∘X, which keeps J_ii = 0.

    For a piece's units in a strip. Earlier strips enter with R, the steps of this strip with R⁰.
    Returns Σ D² of the latter part.
    """
    low, high = range_of(pieces, group.edges)
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
            correction = factor * seen[i] * x[i]
            row_size += correction * correction
            r[i] += correction + factor * earlier[i] * x[i]
            pending[i] += r[i] * x[i]
        size += row_size
    return size


@fast_loops
def _subtract(pieces, first, last, group):  # type: ignore[no-untyped-def]
    """R ← R − sums for a piece's units; returns Σ change² and Σ R²."""
    low, high = range_of(pieces, group.edges)
    change = size = np.float64(0)
    for k in range(first, last):
        f, r = group.sums[k - first, low:high], group.pairs[2 * k + group.r, low:high]
        row_change = row_size = np.float32(0)
        for i in range(r.size):
            difference = f[i]
            r[i] -= difference
            row_change += difference * difference
            row_size += r[i] * r[i]
        change += row_change
        size += row_size
    return change, size


@loops
def _end(share, first, last, group):  # type: ignore[no-untyped-def]
    """applied ← applied + Σ R∘X of a strip."""
    low, high = range_of(share, group.edges)
    total = group.applied[low:high]
    for k in range(first, last):
        r, x = group.pairs[2 * k + group.r, low:high], group.pairs[2 * k + group.x, low:high]
        for i in range(total.size):
            total[i] += r[i] * x[i]


@inner
def _products(share, threads, first, last, low, high, group, out):  # type: ignore[no-untyped-def]
    """Products of residuals and states of steps low … high with the states of first … last."""
    n, length, to = group.pairs.shape[1], group.turned_states.shape[1], out.shape[2]
    for number in range(share.first, share.last):
        begin, end = group.edges[number], group.edges[number + 1]
        place = place_of(number, share.of, threads)
        for k in range(0, last - first, LANES):
            sums = Operand(address(out, place * out.shape[1] * to + k), to, 0, 0)
            pairs = Operand(address(group.pairs, 2 * low * n + begin), n, 0, 1)
            states = Operand(address(group.turned_states, begin * length + first + k), 0, 0, length)
            extent = Extent(2 * (high - low), 1, end - begin, number == place)
            add_product(pairs, states, sums, extent, ONE)


@loops
def _add(steps, width, terms, total):  # type: ignore[no-untyped-def]
    """total ← total + terms."""
    for k in range(steps):
        row, term = total[k], terms[k]
        for m in range(width):
            row[m] += term[m]


@inner
def _add_pieces(threads, steps, width, products, out, half, one):  # type: ignore[no-untyped-def]
    """Sum the products of ``steps`` steps over all units, one row per step, half by half."""
    pieces = products.shape[0]
    for number in range(pieces):
        if place_of(number, pieces, threads) == number:
            begins = half_of(number, pieces) == number
            total = out if number < pieces // 2 else half
            transpose(products[number, :width, :steps], (total if begins else one)[:, :width])
            if not begins:
                _add(steps, width, one, total)
    _add(steps, width, half, out)


@fast_loops
def _operators(thread, threads, first, low, high, steps, rule, products):  # type: ignore[no-untyped-def]
    """Matrices by which steps low … high of the block act on ``steps`` steps from ``first`` on.

    Columns follow the rows of [R_v, X_v] and [X_h, R_h], masked by U. For steps that act on each
    other (first = low), row k uses the residuals R_l = R⁰_l − αc V_l·[R⁰, X] of the rows V_l above
    it. This solves R of the strip directly, except for the term that keeps J_ii = 0.
    """
    of_v, of_h = products.sums[thread, 0], products.sums[thread, 1]
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    _add_pieces(threads, steps, 2 * (high - low), products.visible, of_v, on_v, on_h)
    _add_pieces(threads, steps, 2 * (high - low), products.hidden, of_h, on_v, on_h)
    rate, together = rate_of(rule), first == low
    for k in range(steps):
        # steps whose updates are already applied at step k
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
def _brackets(share, operator, first, last, low, high, rate, group):  # type: ignore[no-untyped-def]
    """αc · operator · residuals and states of steps low … high, for a share's units.

    Written to ``sums`` if the steps act on each other; else subtracted from the residuals of steps
    first … last.
    """
    begin, end = range_of(share, group.edges)
    n, together = group.pairs.shape[1], first == low
    acting = Operand(address(operator, 0), operator.shape[1], 0, 1)
    extent = Extent(last - first, 1, 2 * (high - low), together)
    for i in range(begin, end, LANES):
        by = Operand(address(group.pairs, 2 * low * n + i), 0, 0, n)
        out = Operand(address(group.pairs, (2 * first + group.r) * n + i), 2 * n, 0, 0)
        if together:
            out = Operand(address(group.sums, i), n, 0, 0)
        add_product(acting, by, out, extent, rate if together else -rate)


@inner
def _act(thread, threads, barrier, first, last, low, high, rule, products, work):  # type: ignore[no-untyped-def]
    """Action of steps low … high on the residuals of first … last, see ``_brackets``."""
    share = share_of(thread, threads, rule.pieces)
    _products(share, threads, first, last, low, high, work.visible, products.visible)
    _products(share, threads, first, last, low, high, work.hidden, products.hidden)
    wait_for_all(threads, barrier)
    _operators(thread, threads, first, low, high, last - first, rule, products)
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    _brackets(share, on_v, first, last, low, high, rate_of(rule), work.visible)
    _brackets(share, on_h, first, last, low, high, rate_of(rule), work.hidden)


@inline
def solve(thread, threads, barrier, steps, strip, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of a block, strip by strip, in place. False if a strip is too long to be solved.

    After n solved strips, the last w act on the next w, with w the largest power of two that
    divides n. So all earlier strips have acted on a strip before it is solved, mostly in large
    products.
    """
    for first in range(0, steps, strip):
        last = min(first + strip, steps)
        if not _solve_strip(thread, threads, barrier, first, last, rule, work):
            return False
        share = share_of(thread, threads, rule.pieces)
        if work.visible.coupled:
            _end(share, first, last, work.visible)
        if work.hidden.coupled:
            _end(share, first, last, work.hidden)
        solved = first // strip + 1
        reach = strip * (solved & -solved)
        if last < steps:
            low, end = last - reach, min(last + reach, steps)
            _act(thread, threads, barrier, last, end, low, last, rule, work.across, work)
    return True


@inline
def _solve_strip(thread, threads, barrier, first, last, rule, work):  # type: ignore[no-untyped-def]
    """Action of a strip's steps on each other; returns whether it is within the tolerance.

    D of these steps is computed with R⁰ in place of R. Its relative error is that of R⁰, so the
    remaining error is the product of both changes. A strip of one period is exact.
    """
    rate, period, sums = rate_of(rule), rule.period, work.squares
    share = share_of(thread, threads, rule.pieces)
    for number in range(share.first, share.last):
        p = piece(number, rule.pieces)
        sums[number] = 0
        if work.visible.coupled:
            sums[number, 2] += _begin(p, first, last, period, rate, work.visible)
        if work.hidden.coupled:
            sums[number, 2] += _begin(p, first, last, period, rate, work.hidden)
    if last - first <= period:
        wait_for_all(threads, barrier)
        return True
    _act(thread, threads, barrier, first, last, first, last, rule, work.within, work)
    for number in range(share.first, share.last):
        p = piece(number, rule.pieces)
        of_v = _subtract(p, first, last, work.visible)
        of_h = _subtract(p, first, last, work.hidden)
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
    # NaN makes strips as short as a period; ``learn`` checks θ
    return change <= 0.25 * size and np.sqrt(change * diagonal) <= rule.tolerance * size


def compile_strips(rule: Rule, work: Work) -> None:
    """Compile the kernels that solve strips: a third of all kernels."""
    pieces, rate, first, last, group = Pieces(0, 1, 2), np.float32(1), 0, 1, work.hidden
    acting = (0, 1, new_barrier(), first, last, first, last, rule, work.within, work)
    for kernel, arguments in (
        (_act, acting),
        (_subtract, (pieces, first, last, group)),
        (_begin, (pieces, first, last, rule.period, rate, group)),
        (_end, (pieces, first, last, group)),
    ):
        kernel.compile(tuple(map(typeof, arguments)))
