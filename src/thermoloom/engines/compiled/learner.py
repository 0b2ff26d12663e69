"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′),   b_a ← b_a − α Σ r_a      every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path is independent of θ, the residual is linear
in θ and an update is a masked rank-2 change, so the residuals of a block of B steps obey, with
c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where the update
of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

U is strictly causal, so this is solved by forward substitution (``strips``): step by step within
strips of S steps, and by products of matrices from strip to strip. Then θ takes one rank-2B update.
If a period is longer than a block, there is nothing to solve, and updates are held in separate
panels until the period ends. All of it is matrix–matrix work: 4.2 MFLOP per step for 784 + 512
units, plus a tenth for the strips.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.barrier import in_step, wait_for_all
from thermoloom.engines.compiled.block_memory import Float32, Rule, range_of, share_of, work_for
from thermoloom.engines.compiled.compiling import copy, drive, frame, inline, inner, loops, residual
from thermoloom.engines.compiled.coupling_panels import (
    Panels,
    change_and_feel,
    fill,
    panels_for,
    take,
)
from thermoloom.engines.compiled.stage_learner import StageLearner, Window
from thermoloom.engines.compiled.strips import solve
from thermoloom.engines.compiled.tiles import LANES, transpose
from thermoloom.machine.action import step_constants
from thermoloom.machine.energy import clamped_squares, effective_bias, share_of_clamped
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout

BLOCK_STEPS = 32
"""Largest number of steps in a block, B: one product with the couplings and one update of them.
In longer blocks the action of steps on each other dominates."""
STRIP_STEPS = 16
"""Largest number of steps in a strip, S: the lanes of a vector, so that no lane is idle."""
MOST_PIECES = 8
"""Largest number of pieces that the units are divided into, and of threads. The number of pieces
depends on the machine alone, so θ does not depend on the threads."""
UNITS_IN_PIECE = 160
"""Minimum number of units per piece. Smaller pieces spend most of their time at the barrier."""


def pieces_of(machine: Machine) -> int:
    """Number of pieces that the units of a machine are divided into: eight for 784 + 512."""
    return min(max(2, machine.units // UNITS_IN_PIECE), MOST_PIECES)


BLOCKS = "visible_hidden", "hidden_hidden", "visible_visible"
"""Couplings of free units."""


class _Theta(NamedTuple):
    """Working copy of one stage of θ, in the layout of the kernels."""

    panels: tuple[Panels, ...]
    """Those of ``BLOCKS``, empty if not wired."""
    bias: Float32
    """b_i + Σ_l J_il x_l, (N,)."""
    held_bias: Float32
    """Updates of the bias held until the end of their period; empty if none are held."""


@inner
def _turn_states(share, path, group):  # type: ignore[no-untyped-def]
    """The states of a share's units, transposed."""
    low, high = range_of(share, group.edges)
    x = path[:, group.first + low : group.first + high]
    transpose(x, group.turned_states[low:high, : x.shape[0]])


@inner
def _change_and_feel(share, solved, closes, path, rule, work, theta):  # type: ignore[no-untyped-def]
    """θ ← θ − α (RᵀX + XᵀR, …) of a share, after ``solved`` steps; then J x′ on the next path.

    Held updates are applied when a block ``closes`` their period.
    """
    groups, alpha = (work.visible, work.hidden), np.float32(rule.alpha)
    for panels in theta.panels:
        if panels.couplings.size > 0:
            ends = groups[panels.rows], groups[panels.columns]
            change_and_feel(share, alpha, solved, closes, path, ends[0], ends[1], panels)
    _change_bias(share, solved, closes, alpha * rule.one_v, work.visible, theta)
    _change_bias(share, solved, closes, alpha * rule.one_h, work.hidden, theta)


@inline
def _add(term, total):  # type: ignore[no-untyped-def]
    """total ← total + term, a row of numbers."""
    for i in range(total.size):
        total[i] += term[i]


@loops
def _change_bias(share, steps, closes, rate, group, theta):  # type: ignore[no-untyped-def]
    """b ← b − αβ Σ r for a share's units of a group."""
    low, high = range_of(share, group.edges)
    first, last, holding = group.first + low, group.first + high, theta.held_bias.size > 0
    target = theta.held_bias[first:last] if holding else theta.bias[first:last]
    for k in range(steps):
        r = group.pairs[2 * k + group.r, low:high]
        for i in range(target.size):
            target[i] -= rate * r[i]
    if holding and closes:
        _add(target, theta.bias[first:last])
        for i in range(target.size):
            target[i] = 0


@inner
def _join(low, high, k, half, forces):  # type: ignore[no-untyped-def]
    """Sum the forces of each half's pieces on units low … high in step k, in its first slot."""
    for kind in range(forces.shape[0]):
        for number in range(forces.shape[1]):
            first = 0 if number < half else half
            if kind > 0 or number != first:
                _add(forces[kind, number, k, low:high], forces[0, first, k, low:high])


@inline
def _alone(k, low, states, start, driven, constants, out):  # type: ignore[no-untyped-def]
    """R of step k without couplings, for units from ``low`` on.

    If ``driven``, it is computed from the states, and ``start`` (W, N) holds errors to add, or has
    no rows. Otherwise ``start`` holds it.
    """
    if driven:
        x, after = states[k, low : low + out.size], states[k + 1, low : low + out.size]
        for i in range(out.size):
            out[i] = drive(constants, x[i], after[i])
        if start.shape[0] > 0:
            _add(start[k, low : low + out.size], out)
    else:
        copy(start[k, low : low + out.size], out)


@loops
def _start_residuals(share, states, start, driven, bias, constants, group):  # type: ignore[no-untyped-def]
    """Write X′ and R⁰ = R(J = 0) + c (J x′ + b) of a share's units into the block."""
    low, high = range_of(share, group.edges)
    steps, kinds, half = states.shape[0] - 1, group.column_forces.shape[0], share.of // 2
    for rows in range(group.turned_forces.shape[0]):
        transpose(group.turned_forces[rows, low:high, :steps], group.forces[rows, :, low:high])
    before = group.first + low
    b = bias[before : group.first + high]
    for k in range(steps):
        out, force = group.pairs[2 * k + group.r, low:high], group.forces[0, k, low:high]
        _alone(k, before, states, start, driven, constants, out)
        for rows in range(1, group.forces.shape[0]):
            _add(group.forces[rows, k, low:high], force)
        if kinds == 0:
            for i in range(out.size):
                out[i] = residual(constants, out[i], force[i] + b[i])
        else:
            _join(low, high, k, half, group.column_forces)
            first_half = group.column_forces[0, 0, k, low:high]
            second_half = group.column_forces[0, half, k, low:high]
            for i in range(out.size):
                coupling = force[i] + first_half[i] + second_half[i] + b[i]
                out[i] = residual(constants, out[i], coupling)
        copy(states[k + 1, before : group.first + high], group.pairs[2 * k + group.x, low:high])
        for i in range(high, (high + LANES - 1) // LANES * LANES):
            group.pairs[2 * k + group.r, i] = 0  # padding may hold values of a strip that diverged


@inline
def _fill(share, blocks, theta):  # type: ignore[no-untyped-def]
    """Copy a share of the couplings of a stage into the working copy."""
    for n in range(len(blocks)):
        fill(share, blocks[n], theta.panels[n])


@inline
def _take(share, theta, learned):  # type: ignore[no-untyped-def]
    """Copy a share of the working copy into the learned couplings; True if they are finite."""
    finite = True
    for n in range(len(learned)):
        finite &= take(share, theta.panels[n], learned[n])
    return finite


@frame
def _learn(thread, threads, barrier, states, start, driven, blocks, theta, rule, work, learned):  # type: ignore[no-untyped-def]
    """One thread's share of a window: its pieces of every block, in step with the other threads.

    Returns whether the learned couplings are finite.
    """
    # np.int64, because a constant 0 would compile the kernels a second time
    first, solved = 0, np.int64(0)
    holding = theta.held_bias.size > 0
    share, steps = share_of(thread, threads, rule.pieces), states.shape[0] - 1
    _fill(share, blocks, theta)
    while first < steps or solved > 0:
        closes = first % rule.period == 0 or first == steps
        end = min(first - first % rule.period + rule.period, steps) if holding else steps
        last = min(first + rule.strip * rule.strips, end)
        if rule.strips > 1 and end - last < rule.strip:
            last = end  # the remainder is too short for a separate block
        block, r, x = states[first : last + 1], start[first:last], states[first + 1 : last + 1]
        _turn_states(share, x, work.visible)
        _turn_states(share, x, work.hidden)
        wait_for_all(threads, barrier)
        _change_and_feel(share, solved, closes, x, rule, work, theta)
        wait_for_all(threads, barrier)
        alone = (block, r, driven)
        _start_residuals(share, *alone, theta.bias, rule.constants, work.visible)
        _start_residuals(share, *alone, theta.bias, rule.constants, work.hidden)
        if last - first > rule.period:
            solve(thread, threads, barrier, last - first, rule, work)
        first, solved = last, last - first
    return _take(share, theta, learned)


def _steps_of(window: Window) -> tuple[Float32, Float32, bool]:
    """States, ``start`` and ``driven``: ``start`` contains residuals at θ = 0 plus errors or, if
    ``driven``, errors alone, and the kernel computes residuals while the states are in the cache.
    """
    if window.path.prepared is not None:
        return window.states, window.start, False
    if window.errors is None:
        return window.states, np.empty((0, window.states.shape[1]), np.float32), True
    return window.states, window.errors[window.first : window.last], True


class Learner(StageLearner):
    """The rule for completely coupled groups."""

    def __init__(
        self,
        machine: Machine,
        learning_rate: float,
        period: int = 1,
        block_steps: int = BLOCK_STEPS,
        strip_steps: int = STRIP_STEPS,
        pieces: int | None = None,
    ) -> None:
        super().__init__(machine, learning_rate, period)
        pieces = pieces_of(machine) if pieces is None else pieces
        longest = max(last - first for first, last in machine.stage_windows)
        # updates of long periods are held, so that blocks stay short
        self._holding = period > block_steps + strip_steps
        unit = 1 if self._holding else period
        strip = min(unit * max(1, min(strip_steps, block_steps) // unit), longest)
        strips = max(1, min(block_steps, longest) // strip)
        wires = "visible-hidden", "hidden-hidden", "visible-visible"
        coupled = [bool(machine.wired(wire)) for wire in wires]
        constants, factors = step_constants(machine), [np.float32(c) for c in (*coupled, 0, 0)]
        self._rule = Rule(learning_rate, constants, period, strip, strips, pieces, *factors)
        pages, sizes = Pages(), (machine.visible, machine.hidden)
        self._memory = work_for(machine, strip, strips, period, pieces, pages)
        panels = (
            panels_for(pages, sizes if present else (0, 0), ends, pieces, self._holding)
            for ends, present in zip(((0, 1), (1, 1), (0, 0)), coupled, strict=True)
        )
        self._scratch = _Theta(
            tuple(panels),
            np.empty(machine.units, np.float32),
            np.zeros(machine.units * self._holding, np.float32),
        )

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        """Learn a stage; an incomplete last period of a window is applied at its end."""
        stage, word = window.stage, window.path.word
        bias = effective_bias(theta, stage, word)
        self._scratch.bias[:] = bias
        for held in (self._scratch.held_bias, *(panels.held for panels in self._scratch.panels)):
            held[:] = 0
        squares = clamped_squares(self.machine, word)
        one_v, one_h = np.float32(squares["visible"]), np.float32(squares["hidden"])
        rule = self._rule._replace(alpha=alpha, one_v=one_v, one_h=one_h)
        vector = np.ascontiguousarray(theta.vector[stage], np.float32)
        work = self._blocks(vector), self._scratch, rule, self._memory, self._blocks(learned)
        finite = all(in_step(_learn, rule.pieces, *_steps_of(window), *work))
        change = self._scratch.bias - bias
        share_of_clamped(theta, change, stage, word, learned)
        return finite and bool(np.isfinite(change).all())

    def _blocks(self, vector: Float32) -> tuple[Float32, ...]:
        """Views of one stage of θ; those without wires are empty."""
        form, nothing = layout(self.machine), np.empty((0, 0), np.float32)
        return tuple(form[name].of(vector) if name in form else nothing for name in BLOCKS)
