"""Training with couplings on a grid of b bits (``machine.quantization``): one pass over J per step.

A pass moves, rounds, clips and stores every coupling, and sums the forces on the next state. It
runs on up to two threads. u has 23 bits: the mean of a move is exact to 2⁻²³ levels. Cost for
784 + 512 units: 0.16 ns of a core per coupling and step, 0.43 ns with stochastic rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.barrier import in_step, wait_for_all
from thermoloom.engines.compiled.compiling import copy, jit, residual
from thermoloom.engines.compiled.grid_rows import move_rows
from thermoloom.engines.compiled.stage_learner import StageLearner, Window
from thermoloom.engines.compiled.streams import stream_key
from thermoloom.engines.compiled.tiles import LANES, ROWS
from thermoloom.machine.action import StepConstants, step_constants
from thermoloom.machine.energy import clamped_squares, effective_bias, share_of_clamped
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import ON_GRID, Grid, couplings, levels, mirrored, top_level

Float32 = NDArray[np.float32]
Codes = NDArray[np.int32]

PIECES = 2
"""Pieces that the couplings are always divided into, and the largest number of threads. θ does not
depend on the threads."""


class Slots(NamedTuple):
    """Positions of units in arrays of complete tiles: visible first, hidden from ``hidden`` on.

    Codes come in rows: each visible unit with all hidden units, each hidden unit with the hidden
    units before it. Padding has x = r = 0, so its codes stay 0.
    """

    hidden: int
    rows: int
    columns: int

    @classmethod
    def of(cls, machine: Machine) -> Slots:
        first, rows = (-(-n // ROWS) * ROWS for n in (machine.visible, machine.hidden))
        return cls(first, first + rows, -(-machine.hidden // LANES) * LANES)

    @property
    def units(self) -> int:
        return self.hidden + self.columns

    def edges(self) -> NDArray[np.int64]:
        """Bounds of the pieces among the rows, (PIECES + 1,), with equal numbers of tiles."""
        before = np.arange(0, self.rows - self.hidden, ROWS)
        tiles = np.concatenate(
            [np.full(self.hidden // ROWS, self.columns // LANES), before // LANES + 1]
        )
        done = np.concatenate([[0], np.cumsum(tiles)])
        shares = np.arange(PIECES + 1) * (done[-1] / PIECES)
        edges: NDArray[np.int64] = np.searchsorted(done, shares, side="left").astype(np.int64)
        return edges * ROWS


class _Rule(NamedTuple):
    """Constants of the learning rule on a grid."""

    alpha: np.float32
    constants: StepConstants
    """In float64."""
    top: np.float32
    """The largest code."""
    spacings: tuple[float, float]
    """Δ of J_vh and J_hh."""
    per_level: tuple[np.float32, np.float32]
    """α/Δ"""
    stochastic: bool
    key: np.uint64
    trajectory: int
    first_step: int


@jit
def _residuals(low, high, slots, start, forces, bias, ones, rule, moves):  # type: ignore[no-untyped-def]
    """α r/Δ of some units, and their biases after the update; False if one is not finite.

    Sums of pieces are float32; residuals are computed in float64 and rounded to float32.
    """
    finite = True
    for i in range(low, high):
        slot = slots[i]
        of_v, of_h = forces[0, 0, slot], forces[0, 1, slot]
        for p in range(1, PIECES):
            of_v += forces[p, 0, slot]
            of_h += forces[p, 1, slot]
        force = rule.spacings[0] * of_v + rule.spacings[1] * of_h + bias[i]
        r = np.float32(residual(rule.constants, np.float64(start[i]), force))
        finite &= np.isfinite(r)
        moves[0, slot] = rule.per_level[0] * r
        moves[1, slot] = rule.per_level[1] * r
        bias[i] -= rule.alpha * ones[i] * r
    return finite


@jit
def _learn(  # type: ignore[no-untyped-def]
    thread, threads, barrier, edges, codes, column, slots, bias, path, drives, ones, rule, moves,
    forces,
):  # fmt: skip
    """One thread's share of a window: its pieces of every step; False if a residual is not finite.

    ``ones`` are the squares β of each unit's clamped partners. The threads share ``moves``
    (2, slots) and ``forces`` (PIECES, 2, slots).
    """
    steps, units = drives.shape
    low, high = units * thread // threads, units * (thread + 1) // threads
    x, next_x = np.zeros(moves.shape[1], np.float32), np.zeros(moves.shape[1], np.float32)
    for i in range(units):
        next_x[slots[i]] = path[1, i]
    finite = True
    for k in range(-1, steps):
        if k >= 0:
            finite &= _residuals(low, high, slots, drives[k], forces, bias, ones, rule, moves)
            wait_for_all(threads, barrier)
        # the first pass has zero moves, and computes the forces on the first state
        copy(next_x, x)
        after = path[min(k + 2, steps)]
        for i in range(units):
            next_x[slots[i]] = after[i]
        step = max(rule.first_step + k, 0)
        stream = rule.key, rule.trajectory, step, rule.stochastic and k >= 0
        for p in range(thread, PIECES, threads):
            rows = (edges[p], edges[p + 1])
            move_rows(rows, codes, column, rule.top, moves, x, next_x, forces[p], stream)
        wait_for_all(threads, barrier)
    return finite


class QuantizedLearner(StageLearner):
    """The rule with couplings on a grid of b bits, rounded after every update.

    Couplings off the grid are rounded to nearest first.
    """

    def __init__(self, machine: Machine, learning_rate: float, grid: Grid, seed: int = 0) -> None:
        super().__init__(machine, learning_rate)
        self.bits, self.stochastic = grid.bits, grid.stochastic
        self.ranges = dict(zip(ON_GRID, grid.ranges, strict=True))
        self._key = stream_key(seed, "rounding")

    def codes(self, theta: Parameters) -> dict[str, Codes]:
        """The integers n of J_vh and J_hh, (T, …)."""
        return {name: levels(theta[name], self.bits, span) for name, span in self.ranges.items()}

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        """Learn a stage; the trajectory of the rounding stream has the number of the path."""
        machine, stage, word = self.machine, window.stage, window.path.word
        squares = clamped_squares(machine, word)
        slots, visible, hidden = Slots.of(machine), machine.visible, machine.hidden
        # of J_hh only the lower triangle is used
        code_rows = np.zeros((slots.rows, slots.columns), np.int16 if self.bits <= 16 else np.int32)
        code_blocks = {
            "visible_hidden": code_rows[:visible, :hidden],
            "hidden_hidden": code_rows[slots.hidden : slots.hidden + hidden, :hidden],
        }
        for name, span in self.ranges.items():
            code_blocks[name][...] = levels(theta[name][stage], self.bits, span)
        bias, top = effective_bias(theta, stage, word), top_level(self.bits)
        spacing_v, spacing_h = (span / top for span in self.ranges.values())
        rule = _Rule(
            alpha=np.float32(alpha),
            constants=step_constants(machine, np.float64)._replace(onsite=None),
            top=np.float32(top),
            spacings=(spacing_v, spacing_h),
            per_level=(np.float32(alpha / spacing_v), np.float32(alpha / spacing_h)),
            stochastic=self.stochastic,
            key=self._key,
            trajectory=window.path.number,
            first_step=window.first,
        )
        of_groups = np.array([squares["visible"], squares["hidden"]], np.float32)
        ones = np.repeat(of_groups, [visible, hidden])
        places = np.append(np.arange(visible), slots.hidden + np.arange(hidden))
        before, moves = bias.copy(), np.zeros((2, slots.units), np.float32)
        forces = np.empty((PIECES, *moves.shape), np.float32)
        units = places, bias, window.states, window.start, ones
        work = slots.edges(), code_rows, slots.hidden, *units, rule, moves, forces
        finite = in_step(_learn, PIECES, *work)
        share_of_clamped(theta, bias - before, stage, word, learned)
        for name, span in self.ranges.items():
            block = code_blocks[name].astype(np.int32)
            block = mirrored(block) if name == "hidden_hidden" else block
            theta.layout[name].matrix(learned)[...] = couplings(block, self.bits, span)
        return all(finite)
