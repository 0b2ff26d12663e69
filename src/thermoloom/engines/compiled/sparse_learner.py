"""The learner for machines with few wires: the same rule, wire by wire.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′)      every M steps, over them, for every wire (ij)

With M = 1, and R⁰ the residuals of a block of B steps under the θ at its start, step k sees the
updates of its unit's wires by the earlier steps of the block:

    R_i(k) = R⁰_i(k) − αc Σ_{j ~ i} x_j(k) Σ_{l<k} [x_j(l) R_i(l) + R_j(l) x_i(l)]

This is strictly causal, and solved by sweeps from R = R⁰: exact after B sweeps, and to float32
round-off after one or two, since a sweep contracts by αcB|x|² of the neighbours only. With M > 1
blocks end with their period, and there is nothing to solve. All of it is arithmetic between rows of
steps (``lanes``). Cost: 4 products per wire and step, and 4 more per sweep.

The biases and labels of a group are represented by wires to one extra unit, clamped at √β with
β = Σ x² of the clamped partners.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.aligned_memory import paged_zeros
from thermoloom.engines.compiled.barrier import in_step, wait_for_all
from thermoloom.engines.compiled.compiling import drive, fast_loops, inline, inner, jit, residual
from thermoloom.engines.compiled.lanes import (
    AHEAD,
    BLOCK,
    VECTORS,
    row_forces,
    row_sweep,
    row_updates,
)
from thermoloom.engines.compiled.noising import LongStates, start_of
from thermoloom.engines.compiled.stage_learner import StageLearner, Window
from thermoloom.engines.compiled.tiles import LANES, transpose_tile
from thermoloom.feasibility import STRETCH
from thermoloom.machine.action import StepConstants, step_constants
from thermoloom.machine.energy import clamped_squares, effective_bias, share_of_clamped
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import wiring

Float32 = NDArray[np.float32]

PIECES = 2
"""Pieces with nearly equal numbers of wires, and the largest number of threads. Each piece sums
sweeps in separate rows; with more pieces the rows would not stay in the cache."""
TOLERANCE = 2e-7
"""Largest relative error estimate of a block's residuals, root mean square. As differences of
float32 states, residuals are accurate to 4e-6."""
MOST_SWEEPS = 8
"""Largest number of sweeps. A block that needs more is split in two."""
MEASURED_EVERY = 16
"""One of this many blocks is swept at least twice, to measure the contraction of a sweep."""


class _Graph(NamedTuple):
    """The wiring. Wires of unit i: start[i] … start[i + 1], the last one to its clamped unit;
    of these it updates about half, listed again as update_start[i] … update_start[i + 1].
    """

    start: NDArray[np.int64]
    columns: NDArray[np.int32]
    numbers: NDArray[np.int32]
    update_start: NDArray[np.int64]
    update_columns: NDArray[np.int32]
    update_numbers: NDArray[np.int32]
    pieces: NDArray[np.int64]
    """(PIECES + 1,): bounds of the pieces among the units."""


def _graph(machine: Machine) -> _Graph:
    n, wired = machine.units, wiring(machine)
    counts = np.diff(wired.start)
    units = np.repeat(np.arange(n, dtype=np.int32), counts)
    # a wire belongs to its earlier unit, or to the later one if both are even or both odd
    others = (wired.others < units) ^ ((wired.others + units) % 2 == 0)
    # the wires of other units first, then those of this unit, then the one to its clamped unit
    ends, total = np.cumsum(counts), len(wired.numbers) // 2
    groups = np.zeros(n, np.int32)
    for order, where in enumerate(machine.groups.values()):
        groups[where] = order
    rank = np.lexsort((~others, units)) if total else np.zeros(0, np.int64)
    columns = np.insert(wired.others[rank], ends, n + groups)
    numbers = np.insert(wired.numbers[rank], ends, total + np.arange(n))
    start = wired.start + np.arange(n + 1)
    updates = start - np.concatenate([[0], np.cumsum(np.bincount(units[others], minlength=n))])
    updated = np.insert(~others[rank], ends, True)
    shares = np.linspace(0, start[-1], PIECES + 1)
    pieces = np.searchsorted(start, shares[:-1])
    return _Graph(
        start.astype(np.int64),
        np.pad(columns.astype(np.int32), (0, AHEAD)),
        numbers.astype(np.int32),
        updates.astype(np.int64),
        np.pad(columns[updated].astype(np.int32), (0, AHEAD)),
        numbers[updated].astype(np.int32),
        np.append(pieces, n).astype(np.int64),
    )


class _Rule(NamedTuple):
    """Constants of the learning rule."""

    alpha: np.float32
    rate: np.float32
    """αc: how strongly an update changes later residuals."""
    constants: StepConstants
    period: int
    """M"""
    block: int
    """Largest number of steps in a block, up to B."""


class _Work(NamedTuple):
    """Memory for a block. The last two units are clamped."""

    rows: Float32
    """x and R⁰ of every unit (first without couplings); then two sets of rows that hold R of all
    units after odd and even sweeps (``_place``); then the sums of the second piece. The sums of the
    first piece are in the rows of the next R."""
    forces: Float32
    """(PIECES, B): Σ_j J_ij x_j of one unit."""
    pending: Float32
    """Σ u since the start of the period, for every wire."""
    squares: NDArray[np.float64]
    """(PIECES, 2): Σ change² and Σ r² of each piece's last sweep."""
    pace: NDArray[np.float64]
    """Block length, number of blocks so far in the window, and contraction of a sweep."""


@inline
def _place(sweeps, graph):  # type: ignore[no-untyped-def]
    """First row of the residuals after ``sweeps`` sweeps, and the stride from unit to unit."""
    units = graph.start.size + 1
    return (1, 2) if sweeps == 0 else ((2 + sweeps % 2) * units, 1)


@inner
def _rows(source, second, low, high, rows):  # type: ignore[no-untyped-def]
    """Columns low … high of ``source`` (steps, N) as rows of steps; 0 from its last step on."""
    steps, width = source.shape
    tiled = (high - low) // LANES * LANES if steps == BLOCK else 0
    for first in range(low, low + tiled, LANES):
        for p in range(VECTORS):
            to = (2 * first + second) * BLOCK + p * LANES
            transpose_tile(source, p * width + first, VECTORS * width, rows, to, 2 * BLOCK)
    for i in range(low + tiled, high):
        for p in range(VECTORS):
            for q in range(LANES):
                k = q * VECTORS + p
                rows[2 * i + second, p * LANES + q] = source[k, i] if k < steps else 0


@inner
def _drives(first, steps, low, high, constants, rows):  # type: ignore[no-untyped-def]
    """Residuals without couplings, from rows of x and the states before ``first``."""
    for i in range(low, high):
        x, r = rows[2 * i], rows[2 * i + 1]
        for k in range(LANES, BLOCK):
            r[k] = drive(constants, x[k - LANES], x[k])
        for q in range(LANES):  # their previous steps are in the last vector, one lane lower
            r[q] = drive(constants, x[BLOCK - LANES + q - 1], x[q])
        r[0] = drive(constants, first[i], x[0])
        if steps < BLOCK:
            for k in range(BLOCK):
                if k % LANES * VECTORS + k // LANES >= steps:
                    r[k] = 0


@inner
def _load(piece, states, start, clamped, graph, rule, work):  # type: ignore[no-untyped-def]
    """Load X′ and the residuals without couplings of a piece's units, as rows.

    ``states``: the states of a block's steps and of the step before. ``start`` holds the residuals,
    or has no rows.
    """
    low, high = graph.pieces[piece], graph.pieces[piece + 1]
    steps, n = states.shape[0] - 1, graph.start.size - 1
    _rows(states[1:], 0, low, high, work.rows)
    if start.shape[0]:
        _rows(start, 1, low, high, work.rows)
    else:
        _drives(states[0], steps, low, high, rule.constants, work.rows)
    if piece == 0:  # the residuals of clamped units are 0, and stay so
        for k in range(BLOCK):
            inside = k % LANES * VECTORS + k // LANES < steps
            for group in range(2):
                work.rows[2 * (n + group), k] = clamped[group] if inside else 0


@inner
def _residuals(piece, couplings, graph, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ = start + c J x′ of a piece's units."""
    forces = work.forces[piece]
    for i in range(graph.pieces[piece], graph.pieces[piece + 1]):
        begin, end = graph.start[i], graph.start[i + 1]
        row_forces(work.rows, couplings, graph.columns, graph.numbers, begin, end, forces)
        r = work.rows[2 * i + 1]
        for k in range(BLOCK):
            r[k] = residual(rule.constants, r[k], forces[k])


@inner
def _sweep(piece, sweeps, graph, work):  # type: ignore[no-untyped-def]
    """Sum the action of a piece's wires on R, from the R of all units after ``sweeps`` sweeps."""
    rows, columns, units = work.rows, graph.update_columns, graph.start.size + 1
    first, stride = _place(sweeps, graph)
    sums = _place(sweeps + 1, graph)[0] if piece == 0 else 4 * units
    rows[sums : sums + units] = 0
    for i in range(graph.pieces[piece], graph.pieces[piece + 1]):
        begin, end = graph.update_start[i], graph.update_start[i + 1]
        row_sweep(rows, first, stride, columns, begin, end, i, sums)


@fast_loops
def _finish(rate, rows, start, before, total, other_sum):  # type: ignore[no-untyped-def]
    """R = R⁰ − rate · sum of one unit, in place of its sum; Σ (change of R)² and Σ R².

    The last four are indices of rows, because a loop over five arrays is not vectorized.
    """
    change, size = np.float32(0), np.float32(0)
    for k in range(BLOCK):
        r = rows[start, k] - rate * (rows[total, k] + rows[other_sum, k])
        moved = r - rows[before, k]
        change += moved * moved
        size += r * r
        rows[total, k] = r
    return change, size


@inner
def _swept(piece, sweeps, graph, rule, work):  # type: ignore[no-untyped-def]
    """R of a piece's units from the sums of all pieces, and the squared change."""
    change, size = np.float64(0), np.float64(0)
    rows, n = work.rows, graph.start.size - 1
    first, stride = _place(sweeps, graph)
    sums, other_sums = _place(sweeps + 1, graph)[0], 4 * (n + 2)
    for i in range(graph.pieces[piece], graph.pieces[piece + 1]):
        places = 2 * i + 1, first + stride * i, sums + i, other_sums + i
        changed, squared = _finish(rule.rate, rows, *places)
        change += changed
        size += squared
    if piece == 0:  # clamped units have no residuals
        rows[sums + n : sums + n + 2] = 0
    work.squares[piece, 0] = change
    work.squares[piece, 1] = size


@inner
def _solve(thread, threads, barrier, contraction, graph, rule, work):  # type: ignore[no-untyped-def]
    """R⁰ → R of a block: the number of sweeps and their contraction (0: unknown).

    The number is −1 if the sweeps do not contract fast enough.
    """
    before = 1.0
    for sweep in range(MOST_SWEEPS):
        for p in range(thread, PIECES, threads):
            _sweep(p, sweep, graph, work)
        wait_for_all(threads, barrier)
        for p in range(thread, PIECES, threads):
            _swept(p, sweep, graph, rule, work)
        wait_for_all(threads, barrier)
        # squares are overwritten only after the next barrier
        changed, size = work.squares[:, 0].sum(), work.squares[:, 1].sum()
        # NaN ends the sweeps too; ``learn`` checks θ
        change = np.sqrt(changed / size) if size > 0 else 0.0
        if sweep > 0:
            contraction = change / before
        # the error after this sweep is about change · contraction
        if change == 0 or (contraction > 0 and change * contraction <= TOLERANCE):
            return sweep + 1, contraction
        if not change <= 0.5 * before:
            return -1, 0.0
        before = change
    return -1, 0.0


@inner
def _update(piece, sweeps, closes, graph, rule, work, couplings):  # type: ignore[no-untyped-def]
    """Update a piece's couplings after a block; for M > 1, once the block ``closes`` a period."""
    rows, columns, numbers = work.rows, graph.update_columns, graph.update_numbers
    first, stride = _place(sweeps, graph)
    for i in range(graph.pieces[piece], graph.pieces[piece + 1]):
        begin, end = graph.update_start[i], graph.update_start[i + 1]
        if rule.period == 1:
            row_updates(rows, first, stride, columns, numbers, begin, end, i, rule.alpha, couplings)
            continue
        minus = np.float32(-1)
        row_updates(rows, first, stride, columns, numbers, begin, end, i, minus, work.pending)
        if closes:
            for wire in range(begin, end):
                number = numbers[wire]
                couplings[number] -= rule.alpha * work.pending[number]
                work.pending[number] = 0


@jit
def _learn(thread, threads, barrier, states, start, clamped, couplings, graph, rule, span, work):  # type: ignore[no-untyped-def]
    """One thread's share of a stretch of a window, in step with the others."""
    offset, window, steps = span[0], span[1], states.shape[0] - 1
    first, block, blocks, contraction = 0, int(work.pace[0]), int(work.pace[1]), work.pace[2]
    while first < steps:
        last = min(first + block, steps)
        if rule.period > 1:
            last = min(last, ((offset + first) // rule.period + 1) * rule.period - offset)
        for p in range(thread, PIECES, threads):
            _load(p, states[first : last + 1], start[first:last], clamped, graph, rule, work)
        wait_for_all(threads, barrier)
        for p in range(thread, PIECES, threads):
            _residuals(p, couplings, graph, rule, work)
        wait_for_all(threads, barrier)
        sweeps = 0
        if rule.period == 1 and last - first > 1:
            known = contraction if blocks % MEASURED_EVERY else 0.0
            sweeps, contraction = _solve(thread, threads, barrier, known, graph, rule, work)
            if sweeps < 0:
                block = max(1, block // 2)
                continue
        closes = (offset + last) % rule.period == 0 or offset + last == window
        for p in range(thread, PIECES, threads):
            _update(p, sweeps, closes, graph, rule, work, couplings)
        wait_for_all(threads, barrier)
        first, blocks = last, blocks + 1
    if thread == 0:  # all threads have read these before the first barrier
        work.pace[0], work.pace[1], work.pace[2] = block, blocks, contraction


class SparseLearner(StageLearner):
    """The rule on the wires alone."""

    def __init__(
        self, machine: Machine, learning_rate: float, period: int = 1, block: int = BLOCK
    ) -> None:
        super().__init__(machine, learning_rate, period)
        self._block = block
        self._graph = _graph(machine)
        self._wires = len(wiring(machine).numbers) // 2
        """Number of wires between free units, with which θ begins."""
        self._constants = step_constants(machine)
        rows = machine.units + 2
        count = self._wires + machine.units
        self._couplings = np.empty(count, np.float32)
        self._memory = _Work(
            rows=paged_zeros(5 * rows * BLOCK).reshape(-1, BLOCK),
            forces=np.zeros((PIECES, BLOCK), np.float32),
            pending=np.zeros(count, np.float32),
            squares=np.zeros((PIECES, 2)),
            pace=np.zeros(3),
        )

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        machine, couplings, wired = self.machine, self._couplings, self._wires
        stage, word, pace = window.stage, window.path.word, self._memory.pace
        squares = clamped_squares(machine, word)
        clamped = np.sqrt([squares[group] for group in machine.groups])
        of_unit = np.repeat(clamped, [machine.size_of(group) for group in machine.groups])
        inverse = np.divide(1, of_unit, out=np.zeros_like(of_unit), where=of_unit > 0)
        before = (effective_bias(theta, stage, word) * inverse).astype(np.float32)
        couplings[:wired], couplings[wired:] = learned[:wired], before
        self._memory.pending[:] = 0
        pace[:] = self._block, 0, 0
        scale = np.float32(alpha * machine.residual_scale)
        rule = _Rule(np.float32(alpha), scale, self._constants, self.period, self._block)
        at_once = STRETCH if isinstance(window.path.states, LongStates) else machine.steps
        for begin in range(window.first, window.last, at_once):
            states, start = self._steps_of(window, begin, min(begin + at_once, window.last))
            span = begin - window.first, window.last - window.first
            steps = states, start, clamped.astype(np.float32)
            in_step(_learn, PIECES, *steps, couplings, self._graph, rule, span, self._memory)
        learned[:wired] = couplings[:wired]
        change = (couplings[wired:] - before) * of_unit
        share_of_clamped(theta, change.astype(np.float32), stage, word, learned)
        return bool(np.isfinite(couplings).all())

    def _steps_of(self, window: Window, begin: int, end: int) -> tuple[Float32, Float32]:
        """States of some steps and of the step before, and residuals at θ = 0 unless the kernel
        computes them.
        """
        path, errors = window.path, window.errors
        states = path.states[begin : end + 1]
        if path.prepared is None and errors is None:
            return states, np.empty((0, self.machine.units), np.float32)
        if not isinstance(path.states, LongStates):
            return states, start_of(path, errors, begin, end)
        start = drive(self._constants, states[:-1], states[1:])
        return states, start if errors is None else start + errors[begin:end]
