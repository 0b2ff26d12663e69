"""Training with couplings on a grid of b bits (``machine.quantization``): one pass over J per step.

A pass moves, rounds, clips and stores every coupling, and sums up the forces on the next state at
once. It runs on up to two threads. u has 23 bits: a move is right on average to 2⁻²³ levels. Cost
for 784 + 512 units: 0.3 ns of a core a coupling and step, 0.8 ns with stochastic rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine import Diverged, Path
from thermoloom.engine.compiled.barrier import new_barrier, wait_for_all
from thermoloom.engine.compiled.compiling import compiler, jit, residual
from thermoloom.engine.compiled.learner import check_path, clamped_squares, share_of_clamped
from thermoloom.engine.compiled.streams import fill_low_bits, fill_uniforms, stream_key
from thermoloom.errors import UserError
from thermoloom.machine.action import step_constants
from thermoloom.machine.definition import Machine
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import couplings, levels, mirrored, top_level
from thermoloom.threads import in_threads, thread_count

Float32 = NDArray[np.float32]
Codes = NDArray[np.int32]

# Sums may run in vector registers, in any order; the rounding keeps to the letter, so that a
# reference can reproduce it: hence functions of their own, compiled without this freedom.
any_order = compiler(fastmath={"reassoc", "contract"})


@jit
def _nearest(n, move, x, moves, xs, top):  # type: ignore[no-untyped-def]
    """n − round(p_i x_j + p_j x_i), clipped, with p = α r/Δ."""
    return min(max(n - np.rint(move * xs + moves * x), -top), top)


@jit
def _stochastic(n, move, x, moves, xs, top, u):  # type: ignore[no-untyped-def]
    """n + ⌊u − (p_i x_j + p_j x_i)⌋, clipped."""
    return min(max(n + np.floor(u - (move * xs + moves * x)), -top), top)


PIECES = 2
"""The couplings are always passed over in this many pieces, on as many threads as there are, up to
this number: so θ does not depend on the threads."""


def _edges(machine: Machine) -> NDArray[np.int64]:
    """Rows at which the pieces begin and end, (PIECES + 1,): each has as many couplings."""
    lengths = np.concatenate([np.full(machine.visible, machine.hidden), np.arange(machine.hidden)])
    done = np.concatenate([[0], np.cumsum(lengths)])
    shares = np.arange(PIECES + 1) * (done[-1] / PIECES)
    edges: NDArray[np.int64] = np.searchsorted(done, shares, side="left").astype(np.int64)
    edges[-1] = machine.units
    return edges


@any_order
def _row_nearest(codes, move, x, moves, xs, top, next_x, next_xs, forces):  # type: ignore[no-untyped-def]
    """Move the couplings of a unit to others; returns its force Σ_j n x_j, adds n x_i to theirs."""
    force = np.float32(0)
    for j in range(codes.size):
        n = _nearest(np.float32(codes[j]), move, x, moves[j], xs[j], top)
        codes[j] = np.int32(n)
        forces[j] += n * next_x
        force += n * next_xs[j]
    return force


@any_order
def _row_stochastic(codes, move, x, moves, xs, top, next_x, next_xs, forces, u):  # type: ignore[no-untyped-def]
    """The same with stochastic rounding, one uniform a coupling."""
    force = np.float32(0)
    for j in range(codes.size):
        n = _stochastic(np.float32(codes[j]), move, x, moves[j], xs[j], top, u[j])
        codes[j] = np.int32(n)
        forces[j] += n * next_x
        force += n * next_xs[j]
    return force


@jit
def _pass(rows, codes_v, codes_h, top, moves, x, next_x, forces, low, key, trajectory, step):  # type: ignore[no-untyped-def]
    """Move the couplings of some rows by one update and sum up their forces on the next state.

    ``moves`` (α r/Δ) and ``forces`` (in units of Δ) have a row each for J_vh and J_hh. Couplings
    come in rows: each visible unit with all hidden ones, each hidden unit with those before it.
    Row r with n columns takes its uniforms from counters r·⌈N_h/8⌉ + i: half p = 0 … 7 of the words
    of one serves column p·⌈n/8⌉ + i. The last 7 bits of a uniform are common to a row: they make
    rounding right on average for each coupling, and correlate two by less than 2⁻³². ``low`` holds
    them, and is empty where moves are rounded to the nearest level.
    """
    visible, hidden = codes_v.shape
    x_h, next_h = x[visible:], next_x[visible:]
    counters = (hidden + 7) // 8
    uniforms = np.empty(8 * counters, np.float32)
    stochastic = low.size > 0
    forces[:] = 0
    for row in range(rows[0], rows[1]):
        i = row - visible
        tensor = 0 if i < 0 else 1
        codes = codes_v[row] if i < 0 else codes_h[i, :i]
        move, moves_h = moves[tensor, row], moves[tensor, visible:]
        forces_h = forces[tensor, visible:]
        if stochastic:
            u = uniforms[: 8 * ((codes.size + 7) // 8)]
            bits = low[row % 4, row // 4]
            fill_uniforms(key, trajectory, step, row * counters, bits, u.reshape(8, -1))
            force = _row_stochastic(
                codes, move, x[row], moves_h, x_h, top, next_x[row], next_h, forces_h, u
            )
        else:
            force = _row_nearest(
                codes, move, x[row], moves_h, x_h, top, next_x[row], next_h, forces_h
            )
        forces[tensor, row] += force


@jit
def _learn(  # type: ignore[no-untyped-def]
    thread, threads, barrier, edges, codes_v, codes_h, bias, path, drives, grid, alpha, ones,
    constants, rounding, moves, forces,
):  # fmt: skip
    """One thread's share of a window: its pieces of every step; False if a residual is not finite.

    Residuals are formed from the sums in float64 and rounded to float32. ``ones`` are the squares
    β of the clamped states that visible and hidden units see. ``moves`` (2, N) and ``forces``
    (PIECES, 2, N) are memory that the threads share.
    """
    top, spacing_v, spacing_h = grid
    stochastic, key, trajectory, first_step = rounding
    visible = codes_v.shape[0]
    steps, units = drives.shape
    per_level_v, per_level_h = np.float32(alpha / spacing_v), np.float32(alpha / spacing_h)
    none = np.empty((4, 0), np.float32)
    bits = np.empty((4, (units + 3) // 4), np.float32) if stochastic else none
    finite = True
    for k in range(-1, steps):
        if k >= 0:
            low_unit, end_unit = units * thread // threads, units * (thread + 1) // threads
            for tensor in range(2):
                total = forces[0, tensor, low_unit:end_unit]
                for p in range(1, PIECES):
                    more = forces[p, tensor, low_unit:end_unit]
                    for i in range(total.size):
                        total[i] += more[i]
            for i in range(low_unit, end_unit):
                force = spacing_v * forces[0, 0, i] + spacing_h * forces[0, 1, i] + bias[i]
                r = np.float32(residual(constants, np.float64(drives[k, i]), force))
                finite &= np.isfinite(r)
                moves[0, i] = per_level_v * r
                moves[1, i] = per_level_h * r
                bias[i] -= np.float32(alpha) * ones[0 if i < visible else 1] * r
            wait_for_all(threads, barrier)
        # at first a pass that moves nothing: it gives the forces on the first state
        x, next_x, step = path[max(k + 1, 1)], path[min(k + 2, steps)], max(first_step + k, 0)
        low = bits if k >= 0 else none
        if low.size > 0:
            fill_low_bits(key, trajectory, step, low)
        for p in range(thread, PIECES, threads):
            rows = (edges[p], edges[p + 1])
            _pass(
                rows, codes_v, codes_h, top, moves, x, next_x, forces[p], low, key, trajectory,
                step,
            )  # fmt: skip
        wait_for_all(threads, barrier)
    return finite


class QuantizedLearner:
    """θ′ = learn(θ, path) with couplings on a grid of b bits: every update is followed by rounding.

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
        self.machine = machine
        self.learning_rate = learning_rate
        self.bits = bits
        self.ranges = dict(zip(("visible_hidden", "hidden_hidden"), ranges, strict=True))
        self.stochastic = stochastic
        self._key = stream_key(seed, "rounding")

    def codes(self, theta: Parameters) -> dict[str, Codes]:
        """The integers n of J_vh and J_hh, (T, …)."""
        return {name: levels(theta[name], self.bits, span) for name, span in self.ranges.items()}

    def learn(
        self,
        theta: Parameters,
        path: Path,
        errors: Float32 | None = None,
        rate: float | None = None,
    ) -> Parameters:
        """θ after one noising path; its number counts in the rounding stream."""
        check_path(self.machine, path)
        start, word = path.prepared if errors is None else path.prepared + errors, path.word
        squares = clamped_squares(self.machine, word)
        ones = np.array([squares["visible"], squares["hidden"]], np.float32)
        codes, learned = self.codes(theta), theta.copy()
        finite = True
        for stage, (first, last) in enumerate(self.machine.stage_windows):
            bias = effective_bias(theta, stage, word)
            before = bias.copy()
            work = (
                _edges(self.machine),
                codes["visible_hidden"][stage],
                codes["hidden_hidden"][stage],  # what is below the diagonal counts
                bias,
                path.states[first : last + 1],
                start[first:last],
                self._grid(),
                float(self.learning_rate if rate is None else rate),
                ones,
                step_constants(self.machine, np.float64)._replace(onsite=None),
                (self.stochastic, self._key, path.number, first),
                np.zeros((2, self.machine.units), np.float32),
                np.empty((PIECES, 2, self.machine.units), np.float32),
            )
            count, barrier = min(thread_count(), PIECES), new_barrier()
            shares = [(thread, count, barrier, *work) for thread in range(count)]
            finite &= all(in_threads(_learn, shares, barrier))
            share_of_clamped(theta, bias - before, stage, word, learned.vector[stage])
            for name, span in self.ranges.items():
                own = codes[name][stage]
                own = mirrored(own) if name == "hidden_hidden" else own
                learned[name][stage] = couplings(own, self.bits, span)
        if not finite:
            raise Diverged("residuals are no longer finite")
        return learned

    def _grid(self) -> tuple[np.float32, float, float]:
        """Top level and the spacings Δ of J_vh and J_hh."""
        top = top_level(self.bits)
        return np.float32(top), *(span / top for span in self.ranges.values())  # type: ignore[return-value]
