"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′),   b_a ← b_a − α Σ r_a      every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is linear in θ
and an update is a masked rank-2 change, so the residuals of a block of B steps obey, with
c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where the update
of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

U is strictly causal, so this is solved strip by strip of S steps. What earlier strips do to a
strip follows at once. Within a strip R = R⁰ − αc V [R⁰, X], and V, a matrix over its steps alone,
follows from the products of X with [R⁰, X] row by row; only the last term, which is N times
smaller than the others, is taken with R⁰ in place of R. Then θ takes one rank-2B update. Where a
period is longer than a block, nothing is to be solved, and changes wait for its end in panels of
their own. All of it is matrix–matrix work: 4.2 MFLOP a step for 784 + 512 units and a tenth more
for the strips.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof

from thermoloom.engines import Diverged, Path
from thermoloom.engines.compiled.aligned_memory import Pages
from thermoloom.engines.compiled.barrier import new_barrier, wait_for_all
from thermoloom.engines.compiled.block_memory import (
    Float32,
    Pieces,
    Rule,
    Work,
    range_of,
    share_of,
    work_for,
)
from thermoloom.engines.compiled.compiling import copy, drive, frame, inline, inner, loops, residual
from thermoloom.engines.compiled.coupling_panels import (
    Panels,
    change_and_feel,
    fill,
    panels_for,
    take,
)
from thermoloom.engines.compiled.noising import start_of
from thermoloom.engines.compiled.strips import compile_strips, solve
from thermoloom.engines.compiled.tiles import LANES, transpose
from thermoloom.machine.action import step_constants
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.threads import in_threads, thread_count

BLOCK_STEPS = 32
"""Longest block of several updates, B: one product with the couplings, one update of them. In
longer ones steps have more to do to each other."""
STRIP_STEPS = 16
"""Longest strip of a block, S: as many as a vector has numbers, so that none is idle."""
TOLERANCE = 1e-7
"""Largest estimated error of a strip's residuals, relative, both root mean square. A strip that
may have a larger one is halved."""
MOST_PIECES = 8
"""The units are worked on in a number of pieces that depends on the machine alone, by as many
threads as there are, up to this number: so θ does not depend on the threads."""
UNITS_IN_PIECE = 160
"""As many at least: threads that have fewer would mostly wait for each other."""


def pieces_of(machine: Machine) -> int:
    """How many pieces the units of a machine are cut into: eight of 784 + 512."""
    return min(max(2, machine.units // UNITS_IN_PIECE), MOST_PIECES)


class _Blocks(NamedTuple):
    """Couplings of free units as they lie in θ of one stage; a block that is not wired is empty."""

    visible_hidden: Float32
    hidden_hidden: Float32
    visible_visible: Float32


class _Theta(NamedTuple):
    """θ of one stage as kernels use it: a copy, so that nothing is changed by half."""

    between: Panels
    """J_vh, or nothing; likewise J_hh and J_vv."""
    hidden: Panels
    visible: Panels
    bias: Float32
    """b_i + Σ_l J_il x_l, (N,)."""
    held_bias: Float32
    """Changes of it that wait for the end of their period; empty where none do."""


@inner
def _turn_states(share, path, group):  # type: ignore[no-untyped-def]
    """The states of a share's units, unit by unit."""
    low, high = range_of(share, group.edges)
    x = path[:, group.first + low : group.first + high]
    transpose(x, group.turned_states[low:high, : x.shape[0]])


@inner
def _change_and_feel(share, threads, solved, closes, path, rule, work, theta):  # type: ignore[no-untyped-def]
    """θ ← θ − α (RᵀX + XᵀR, …) of a share, after ``solved`` steps; then J x′ on the next path.

    Changes that wait do so until a block ``closes`` their period.
    """
    v, h, alpha = work.visible, work.hidden, np.float32(rule.alpha)
    if rule.vh:
        change_and_feel(share, threads, alpha, solved, closes, path, v, h, theta.between)
    if rule.hh:
        change_and_feel(share, threads, alpha, solved, closes, path, h, h, theta.hidden)
    if rule.vv:
        change_and_feel(share, threads, alpha, solved, closes, path, v, v, theta.visible)
    _change_bias(share, solved, closes, alpha * rule.one_v, v, theta)
    _change_bias(share, solved, closes, alpha * rule.one_h, h, theta)


@inline
def _add(more, total):  # type: ignore[no-untyped-def]
    """total ← total + more, a row of numbers."""
    for i in range(total.size):
        total[i] += more[i]


@loops
def _change_bias(share, steps, closes, rate, group, theta):  # type: ignore[no-untyped-def]
    """b ← b − αβ Σ r for a share's units of a group."""
    low, high = range_of(share, group.edges)
    first, last, holding = group.first + low, group.first + high, theta.held_bias.size > 0
    own = theta.held_bias[first:last] if holding else theta.bias[first:last]
    for k in range(steps):
        r = group.pairs[2 * k + group.r, low:high]
        for i in range(own.size):
            own[i] -= rate * r[i]
    if holding and closes:
        _add(own, theta.bias[first:last])
        for i in range(own.size):
            own[i] = 0


@inner
def _join(low, high, k, half, forces):  # type: ignore[no-untyped-def]
    """What the pieces of either half do in step k to units low … high, all in one place."""
    for kind in range(forces.shape[0]):
        for number in range(forces.shape[1]):
            first = 0 if number < half else half
            if kind > 0 or number != first:
                _add(forces[kind, number, k, low:high], forces[0, first, k, low:high])


@inline
def _alone(k, low, states, start, driven, constants, out):  # type: ignore[no-untyped-def]
    """R of step k for units from ``low`` on if they were coupled to nothing.

    ``start`` (W, N), where it has rows, is that or, if units are ``driven``, errors beside it.
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
def _start_residuals(share, threads, states, start, driven, bias, constants, group):  # type: ignore[no-untyped-def]
    """X′ and R⁰ = alone + c (J x′ + b) of a share's units into the block."""
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
            if threads > 2:
                _join(low, high, k, half, group.column_forces)
            of_one = group.column_forces[0, 0, k, low:high]
            of_other = group.column_forces[0, half, k, low:high]
            for i in range(out.size):
                coupling = force[i] + of_one[i] + of_other[i] + b[i]
                out[i] = residual(constants, out[i], coupling)
        copy(states[k + 1, before : group.first + high], group.pairs[2 * k + group.x, low:high])
        for i in range(high, (high + LANES - 1) // LANES * LANES):
            group.pairs[2 * k + group.r, i] = 0  # what was too large for a strip may be here


@inline
def _fill(share, given, theta):  # type: ignore[no-untyped-def]
    """A share of the couplings of a stage into the copy that kernels work on."""
    fill(share, given.visible_hidden, theta.between)
    fill(share, given.hidden_hidden, theta.hidden)
    fill(share, given.visible_visible, theta.visible)


@inline
def _take(share, theta, learned):  # type: ignore[no-untyped-def]
    """A share of the copy back into θ of the stage; whether all of it is finite."""
    finite = take(share, theta.between, learned.visible_hidden)
    finite &= take(share, theta.hidden, learned.hidden_hidden)
    return finite & take(share, theta.visible, learned.visible_visible)


@frame
def _learn(thread, threads, barrier, states, start, driven, given, theta, rule, work, learned):  # type: ignore[no-untyped-def]
    """One thread's share of a window: its pieces of every block, in step with the others.

    Returns whether what it learned is finite, and the length that strips had in the end, which is
    less than planned where θ changes fast: there blocks are shortened too.
    """
    # np.int64: kernels would be compiled once more for the constant 0
    first, solved, strip = 0, np.int64(0), rule.strip
    holding = theta.held_bias.size > 0
    share, steps = share_of(thread, threads, rule.pieces), states.shape[0] - 1
    _fill(share, given, theta)
    while first < steps or solved > 0:
        closes = first % rule.period == 0 or first == steps
        end = min(first - first % rule.period + rule.period, steps) if holding else steps
        last = min(first + strip * rule.strips, end)
        if rule.strips > 1 and end - last < strip:  # too few for a block of their own
            last = end
        block, r, x = states[first : last + 1], start[first:last], states[first + 1 : last + 1]
        _turn_states(share, x, work.visible)
        _turn_states(share, x, work.hidden)
        wait_for_all(threads, barrier)
        _change_and_feel(share, threads, solved, closes, x, rule, work, theta)
        wait_for_all(threads, barrier)
        alone = (block, r, driven)
        _start_residuals(share, threads, *alone, theta.bias, rule.constants, work.visible)
        _start_residuals(share, threads, *alone, theta.bias, rule.constants, work.hidden)
        solved = np.int64(0)
        if last - first <= rule.period:
            wait_for_all(threads, barrier)
        elif not solve(thread, threads, barrier, last - first, strip, rule, work):
            strip = rule.period * max(1, strip // rule.period // 2)
            continue
        first, solved = last, last - first
    return _take(share, theta, learned), strip


def compile_for(machine: Machine) -> None:
    """Compile what ``_learn`` calls last: what makes and solves a block, and what ends it."""
    own = Learner(machine, learning_rate=1.0)
    share, nothing = Pieces(0, 1, 2), np.empty((1, 1), np.float32)
    rule, couplings, group = own._rule, own._scratch.hidden, own._memory.hidden
    block = (share, 1, nothing, nothing, True, own._scratch.bias, rule.constants, group)
    _start_residuals.compile(tuple(map(typeof, block)))
    compile_strips(rule, own._memory)
    take.compile(tuple(map(typeof, (share, couplings, nothing))))


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
        # of long periods changes wait, while blocks are as short as others
        self._holding = period > block_steps + strip_steps
        whole = 1 if self._holding else period
        strip = min(whole * max(1, min(strip_steps, block_steps) // whole), longest)
        strips = max(1, min(block_steps, longest) // strip)
        vh, hh, vv = (
            np.float32(machine.wired(wire))
            for wire in ("visible-hidden", "hidden-hidden", "visible-visible")
        )
        self._rule = Rule(
            alpha=float(learning_rate),
            constants=step_constants(machine),
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
        counted = Pages()
        self._room(counted)
        self._memory, self._scratch = self._room(Pages(counted.wanted))

    def _room(self, pages: Pages) -> tuple[Work, _Theta]:
        """What a block needs, and θ in panels."""
        machine, rule = self.machine, self._rule
        work = work_for(machine, rule.strip, rule.strips, rule.period, rule.pieces, pages)

        def panels(rows: int, columns: int, within: bool) -> Panels:
            return panels_for(pages, rows, columns, within, rule.pieces, self._holding)

        theta = _Theta(
            panels(machine.visible, machine.hidden if rule.vh else 0, False),
            panels(machine.hidden, machine.hidden if rule.hh else 0, True),
            panels(machine.visible, machine.visible if rule.vv else 0, True),
            np.empty(machine.units, np.float32),
            np.zeros(machine.units * self._holding, np.float32),
        )
        return work, theta

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
        added to θ at the end. A path need not be ``prepared``: what its residuals would be at θ = 0
        is found in passing, from states that are in the cache. An incomplete last period of a
        window is applied at its end.
        ``rate``: α on this path, where it is another one.
        """
        rule = self._rule if rate is None else self._rule._replace(alpha=float(rate))
        check_path(self.machine, path)
        driven, word = path.prepared is None, path.word
        start = start_of(path, errors) if not driven else errors
        if start is None:
            start = np.empty((0, self.machine.units), np.float32)
        given = np.ascontiguousarray(theta.vector, np.float32)
        learned = np.empty_like(given)
        finite, strips = True, []
        for stage, (first, last) in enumerate(self.machine.stage_windows):
            bias = effective_bias(theta, stage, word)
            self._scratch.bias[:], self._scratch.held_bias[:] = bias, 0
            steps = path.states[first : last + 1], start[first:last], driven
            found = self._learn_window(rule, steps, word, given[stage], learned[stage])
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
        rule: Rule,
        steps: tuple[Float32, Float32, bool],
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
        work = (*steps, self._blocks(given), self._scratch, rule, self._memory)
        shares = [(thread, count, barrier, *work, self._blocks(learned)) for thread in range(count)]
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
