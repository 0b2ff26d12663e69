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
from thermoloom.engines.compiled.compiling import jit, residual
from thermoloom.engines.compiled.grid_rows import move_rows
from thermoloom.engines.compiled.stage_learner import (
    StageLearner,
    Window,
    clamped_squares,
    share_of_clamped,
)
from thermoloom.engines.compiled.streams import stream_key
from thermoloom.engines.compiled.tiles import LANES, ROWS
from thermoloom.errors import UserError
from thermoloom.machine.action import step_constants
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import couplings, levels, mirrored, top_level

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


@jit
def _residuals(units, shift, drives, forces, bias, spacings, per_level, decay, constants, moves):  # type: ignore[no-untyped-def]
    """α r/Δ of some units, and their biases after the update; False if one is not finite.

    ``shift``: slot of a unit minus its index. Sums of pieces are float32; residuals are computed in
    float64 and rounded to float32.
    """
    low, high = units
    finite = True
    f_v, f_h = forces[:, 0, low + shift : high + shift], forces[:, 1, low + shift : high + shift]
    moves_v, moves_h = moves[0, low + shift : high + shift], moves[1, low + shift : high + shift]
    start, b = drives[low:high], bias[low:high]
    for i in range(high - low):
        of_v, of_h = f_v[0, i], f_h[0, i]
        for p in range(1, PIECES):
            of_v += f_v[p, i]
            of_h += f_h[p, i]
        force = spacings[0] * of_v + spacings[1] * of_h + b[i]
        r = np.float32(residual(constants, np.float64(start[i]), force))
        finite &= np.isfinite(r)
        moves_v[i] = per_level[0] * r
        moves_h[i] = per_level[1] * r
        b[i] -= decay * r
    return finite


@jit
def _place(state, visible, column, out):  # type: ignore[no-untyped-def]
    """Copy the units of a state to their slots."""
    out[:visible] = state[:visible]
    out[column : column + state.size - visible] = state[visible:]


@jit
def _learn(  # type: ignore[no-untyped-def]
    thread, threads, barrier, edges, codes, column, visible, bias, path, drives, grid, alpha, ones,
    constants, rounding, moves, forces,
):  # fmt: skip
    """One thread's share of a window: its pieces of every step; False if a residual is not finite.

    ``ones`` are the squares β of the clamped partners of visible and hidden units. The threads
    share ``moves`` (2, slots) and ``forces`` (PIECES, 2, slots).
    """
    top, spacing_v, spacing_h = grid
    spacings = spacing_v, spacing_h
    per_level = np.float32(alpha / spacing_v), np.float32(alpha / spacing_h)
    stochastic, key, trajectory, first_step = rounding
    steps, units = drives.shape
    low, high = units * thread // threads, units * (thread + 1) // threads
    of_v, of_h = (min(low, visible), min(high, visible)), (max(low, visible), max(high, visible))
    x, next_x = np.zeros(moves.shape[1], np.float32), np.zeros(moves.shape[1], np.float32)
    _place(path[1], visible, column, next_x)
    finite = True
    for k in range(-1, steps):
        if k >= 0:
            for group, (units_of_group, shift) in enumerate(((of_v, 0), (of_h, column - visible))):
                decay = np.float32(alpha) * ones[group]
                finite &= _residuals(
                    units_of_group, shift, drives[k], forces, bias, spacings, per_level, decay,
                    constants, moves,
                )  # fmt: skip
            wait_for_all(threads, barrier)
        # the first pass has zero moves, and computes the forces on the first state
        x[:] = next_x
        _place(path[min(k + 2, steps)], visible, column, next_x)
        step = max(first_step + k, 0)
        stream = key, trajectory, step, stochastic and k >= 0
        for p in range(thread, PIECES, threads):
            rows = (edges[p], edges[p + 1])
            move_rows(rows, codes, column, top, moves, x, next_x, forces[p], stream)
        wait_for_all(threads, barrier)
    return finite


class QuantizedLearner(StageLearner):
    """The rule with couplings on a grid of b bits, rounded after every update.

    ``ranges`` are A_max of J_vh and J_hh. Couplings off the grid are rounded to nearest first.
    """

    def __init__(
        self,
        machine: Machine,
        learning_rate: float,
        bits: int,
        ranges: tuple[float, float],
        stochastic: bool = False,
        seed: int = 0,
    ) -> None:
        wired = machine.wired("visible-hidden") and machine.wired("hidden-hidden")
        if not wired or machine.wired("visible-visible") or machine.sparse:
            raise UserError(
                "imperfections.bits: training on a grid is defined for the wiring visible-hidden "
                "and hidden-hidden, complete, with or without labels"
            )
        super().__init__(machine, learning_rate)
        self.bits = bits
        self.ranges = dict(zip(("visible_hidden", "hidden_hidden"), ranges, strict=True))
        self.stochastic = stochastic
        self._key = stream_key(seed, "rounding")

    def codes(self, theta: Parameters) -> dict[str, Codes]:
        """The integers n of J_vh and J_hh, (T, …)."""
        return {name: levels(theta[name], self.bits, span) for name, span in self.ranges.items()}

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        """The number of the trajectory selects that of the rounding stream."""
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
        bias = effective_bias(theta, stage, word)
        before = bias.copy()
        finite = in_step(
            _learn,
            PIECES,
            slots.edges(),
            code_rows,
            slots.hidden,
            visible,
            bias,
            window.states,
            window.start,
            self._grid(),
            alpha,
            np.array([squares["visible"], squares["hidden"]], np.float32),
            step_constants(machine, np.float64)._replace(onsite=None),
            (self.stochastic, self._key, window.path.number, window.first),
            np.zeros((2, slots.units), np.float32),
            np.empty((PIECES, 2, slots.units), np.float32),
        )
        share_of_clamped(theta, bias - before, stage, word, learned)
        for name, span in self.ranges.items():
            block = code_blocks[name].astype(np.int32)
            block = mirrored(block) if name == "hidden_hidden" else block
            theta.layout[name].matrix(learned)[...] = couplings(block, self.bits, span)
        return all(finite)

    def _grid(self) -> tuple[np.float32, float, float]:
        """Top level and the spacings Δ of J_vh and J_hh."""
        top = top_level(self.bits)
        return np.float32(top), *(span / top for span in self.ranges.values())  # type: ignore[return-value]
