"""The action of a block's steps on each other: R⁰ → R by forward substitution, strip by strip.

See ``learner`` for the equations. Step k of a strip needs the products of its state with the
residuals and states of the earlier steps, which are scalars:

    R_v(k) = R⁰_v(k) − αc Σ_{l<k} [ (x_h(k)·x_h(l)) R_v(l) + (x_h(k)·R_h(l)) X_v(l) ]

The steps of a strip are thus solved in turn, exactly, however strong the feedback. A solved strip
acts on later strips by products of matrices. Each thread works on its share of the units; threads
wait for each other before sums over all units.
"""

from __future__ import annotations

import numpy as np

from thermoloom.engines.compiled.barrier import wait_for_all
from thermoloom.engines.compiled.block_memory import range_of, rate_of, share_of
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
def _keep_diagonal_zero(share, k, period, rate, group):  # type: ignore[no-untyped-def]
    """R(k) ← R(k) + 2αc (Σ R∘X over the updates that step k has seen) ∘ X(k), so that J_ii = 0."""
    low, high = range_of(share, group.edges)
    total, factor = group.applied[low:high], np.float32(2) * rate
    if k == 0:
        total[:] = 0
    for step in range(k - period if k % period == 0 and k > 0 else k, k):
        r, x = group.pairs[2 * step + group.r, low:high], group.pairs[2 * step + group.x, low:high]
        for i in range(total.size):
            total[i] += r[i] * x[i]
    r, x = group.pairs[2 * k + group.r, low:high], group.pairs[2 * k + group.x, low:high]
    for i in range(total.size):
        r[i] += factor * total[i] * x[i]


@inner
def _multiply_states(share, first, last, low, high, row, group, out):  # type: ignore[no-untyped-def]
    """Products of residuals and states of steps low … high with the states of first … last.

    Written to the rows of ``out`` that start at ``row``, one sum per piece.
    """
    n, length, to = group.pairs.shape[1], group.turned_states.shape[1], out.shape[2]
    for number in range(share.first, share.last):
        begin, end = group.edges[number], group.edges[number + 1]
        for k in range(0, last - first, LANES):
            sums = Operand(address(out, (number * out.shape[1] + row) * to + k), to, 0, 0)
            pairs = Operand(address(group.pairs, 2 * low * n + begin), n, 0, 1)
            states = Operand(address(group.turned_states, begin * length + first + k), 0, 0, length)
            extent = Extent(2 * (high - low), 1, end - begin, True)
            add_product(pairs, states, sums, extent, ONE)


@inline
def _all_units(row, column, products):  # type: ignore[no-untyped-def]
    """One product over all units: the sum of its pieces, half by half."""
    middle = products.shape[0] // 2
    total, half = products[0, row, column], products[middle, row, column]
    for number in range(1, middle):
        total += products[number, row, column]
    for number in range(middle + 1, products.shape[0]):
        half += products[number, row, column]
    return total + half


@inline
def _set_coefficients(m, of_v, of_h, rule, on_v, on_h):  # type: ignore[no-untyped-def]
    """Factors of [R_v, X_v] and [X_h, R_h] of an earlier step m, from its products with a state."""
    (crossed_v, gram_v), (gram_h, crossed_h) = of_v, of_h
    on_v[2 * m] = rule.vh * gram_h + rule.vv * gram_v + rule.one_v
    on_v[2 * m + 1] = rule.vh * crossed_h + rule.vv * crossed_v
    on_h[2 * m] = rule.hh * crossed_h + rule.vh * crossed_v
    on_h[2 * m + 1] = rule.hh * gram_h + rule.vh * gram_v + rule.one_h


@inner
def _subtract(share, operator, steps, first, low, high, rate, group):  # type: ignore[no-untyped-def]
    """R ← R − αc · operator · [residuals and states of steps low … high], for a share's units.

    In ``steps`` steps that start at ``first``, one row of the operator each.
    """
    begin, end = range_of(share, group.edges)
    n = group.pairs.shape[1]
    factors = Operand(address(operator, 0), operator.shape[1], 0, 1)
    extent = Extent(steps, 1, 2 * (high - low), False)
    for i in range(begin, end, LANES):
        pairs = Operand(address(group.pairs, 2 * low * n + i), 0, 0, n)
        out = Operand(address(group.pairs, (2 * first + group.r) * n + i), 2 * n, 0, 0)
        add_product(factors, pairs, out, extent, -rate)


@inner
def _solve_strip(thread, threads, barrier, first, last, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of the steps first … last, one after the other."""
    share, rate, products = share_of(thread, threads, rule.pieces), rate_of(rule), work.products
    of_v, of_h = products.visible, products.hidden
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    for k in range(first, last):
        if work.visible.coupled:
            _keep_diagonal_zero(share, k, rule.period, rate, work.visible)
        if work.hidden.coupled:
            _keep_diagonal_zero(share, k, rule.period, rate, work.hidden)
        seen, column = k // rule.period * rule.period, k - first
        for m in range(seen - first):
            in_v = _all_units(2 * m, column, of_v), _all_units(2 * m + 1, column, of_v)
            in_h = _all_units(2 * m, column, of_h), _all_units(2 * m + 1, column, of_h)
            _set_coefficients(m, in_v, in_h, rule, on_v[0], on_h[0])
        if seen > first:
            _subtract(share, on_v, 1, k, first, seen, rate, work.visible)
            _subtract(share, on_h, 1, k, first, seen, rate, work.hidden)
        if last - first > rule.period:
            row = 2 * column
            _multiply_states(share, first, last, k, k + 1, row, work.visible, of_v)
            _multiply_states(share, first, last, k, k + 1, row, work.hidden, of_h)
            wait_for_all(threads, barrier)


@loops
def _add(steps, width, terms, total):  # type: ignore[no-untyped-def]
    """total ← total + terms."""
    for k in range(steps):
        row, term = total[k], terms[k]
        for m in range(width):
            row[m] += term[m]


@inner
def _add_pieces(steps, width, products, out, half, one):  # type: ignore[no-untyped-def]
    """Sum the products of ``steps`` steps over all units, one row per step, half by half."""
    pieces = products.shape[0]
    for number in range(pieces):
        begins = number == 0 or number == pieces // 2
        total = out if number < pieces // 2 else half
        transpose(products[number, :width, :steps], (total if begins else one)[:, :width])
        if not begins:
            _add(steps, width, one, total)
    _add(steps, width, half, out)


@loops
def _set_operators(thread, first, low, high, steps, rule, products):  # type: ignore[no-untyped-def]
    """Matrices by which steps low … high of the block act on the ``steps`` steps from ``first``.

    Columns follow the rows of [R_v, X_v] and [X_h, R_h]. Steps low … high precede ``first`` by at
    least a period, so every row is complete.
    """
    of_v, of_h = products.sums[thread, 0], products.sums[thread, 1]
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    _add_pieces(steps, 2 * (high - low), products.visible, of_v, on_v, on_h)
    _add_pieces(steps, 2 * (high - low), products.hidden, of_h, on_v, on_h)
    for k in range(steps):
        x_v, x_h, v, h = of_v[k], of_h[k], on_v[k], on_h[k]
        for m in range(high - low):
            in_v, in_h = (x_v[2 * m], x_v[2 * m + 1]), (x_h[2 * m], x_h[2 * m + 1])
            _set_coefficients(m, in_v, in_h, rule, v, h)


@inner
def _act(thread, threads, barrier, first, last, low, high, rule, work):  # type: ignore[no-untyped-def]
    """Action of the solved steps low … high on the residuals of first … last."""
    share, rate, products = share_of(thread, threads, rule.pieces), rate_of(rule), work.products
    _multiply_states(share, first, last, low, high, 0, work.visible, products.visible)
    _multiply_states(share, first, last, low, high, 0, work.hidden, products.hidden)
    wait_for_all(threads, barrier)
    _set_operators(thread, first, low, high, last - first, rule, products)
    on_v, on_h = products.operators[thread, 0], products.operators[thread, 1]
    _subtract(share, on_v, last - first, first, low, high, rate, work.visible)
    _subtract(share, on_h, last - first, first, low, high, rate, work.hidden)


@inline
def solve(thread, threads, barrier, steps, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of a block, strip by strip, in place.

    After n solved strips, the last w act on the next w, with w the largest power of two that
    divides n. So all earlier strips have acted on a strip before it is solved, mostly in large
    products.
    """
    strip = rule.strip
    for first in range(0, steps, strip):
        last = min(first + strip, steps)
        _solve_strip(thread, threads, barrier, first, last, rule, work)
        solved = first // strip + 1
        reach = strip * (solved & -solved)
        if last < steps:
            low, end = last - reach, min(last + reach, steps)
            _act(thread, threads, barrier, last, end, low, last, rule, work)
            wait_for_all(threads, barrier)
