"""Learning on a device: the rule writes J, and residuals sense the couplings J̃ of the device.

    r_i  = [−Δx_i + μΔt (Ṽ′_i(x_i′) + b̃_i + Σ_j J̃_{i←j} x_j′)] / 2k_BT      nominal μ, k_BT
    J_ij ← J_ij − α (r_i x_j′ + r_j x_i′),     J̃ = G∘J + O  at once           ``machine.device``

An update of rank two in J is not of rank two in J̃, so the block equations of ``learner`` do not
hold. Instead, one pass over J̃ per step, row by row, updates it and sums the forces on the next
state. J follows from all residuals at the end. With a period M > 1 forces are a matrix product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.barrier import in_step, wait_for_all
from thermoloom.engines.compiled.compiling import compiler, jit, pair_update, residual
from thermoloom.engines.compiled.stage_learner import StageLearner, Window
from thermoloom.machine.action import add_gradient, step_constants
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.parameters import Array, Parameters, layout

Float32 = NDArray[np.float32]
MOST_THREADS = 8


@compiler(fastmath={"reassoc", "contract"})
def _row(felt, gain, r_i, x_i, r, x, next_x):  # type: ignore[no-untyped-def]
    """Update the couplings that act on one unit, with r given as α r; returns the next force."""
    force = np.float32(0)
    for j in range(felt.size):
        felt[j] -= gain[j] * pair_update(r_i, x_i, r[j], x[j])
        force += felt[j] * next_x[j]
    return force


@jit
def _learn(thread, threads, barrier, felt, gain, begins, x, start, alpha, constants, moves, out):  # type: ignore[no-untyped-def]
    """Residuals of a thread's units in all steps, each under the couplings updated before it.

    ``x`` (steps, N + clamped units) holds states x′. Unit i is coupled to columns from begins[i]
    on. ``moves`` (2, N + clamped units) holds α r of the previous step and of this one.
    """
    steps, units = start.shape
    for k in range(steps):
        before, r = x[max(k - 1, 0)], moves[k % 2]
        for i in range(units * thread // threads, units * (thread + 1) // threads):
            others = slice(begins[i], x.shape[1])
            force = _row(
                felt[i, others], gain[i, others], r[i], before[i], r[others], before[others],
                x[k, others],
            )  # fmt: skip
            out[k, i] = residual(constants, start[k, i], force)
            moves[(k + 1) % 2, i] = alpha * out[k, i]
        wait_for_all(threads, barrier)


class DeviceLearner(StageLearner):
    """The rule on a device whose couplings differ from the written ones."""

    machine: BuiltMachine

    def __init__(self, machine: BuiltMachine, learning_rate: float, period: int = 1) -> None:
        super().__init__(machine, learning_rate, period)
        self._gain = self._directed(machine.gain)
        wired = self._directed(np.ones(layout(machine).size)) != 0
        self._begins = np.argmax(wired, axis=1)

    def learn_stage(
        self, theta: Parameters, window: Window, alpha: float, learned: Float32
    ) -> bool:
        after, start, word = window.states[1:], window.start, window.path.word
        written = Parameters(theta.machine, theta.vector.copy())
        vector = written.vector[window.stage]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.period == 1:
                residuals = self._residuals(written, window, alpha)
                add_gradient(self.machine, residuals, after, word, vector, -alpha)
            else:
                constants = step_constants(self.machine)
                for first in range(0, len(after), self.period):
                    steps = slice(first, first + self.period)
                    force = self.machine.felt(written).gradient(after[steps], window.stage, word)
                    r = residual(constants, start[steps], force)
                    add_gradient(self.machine, r, after[steps], word, vector, -alpha)
        learned[:] = vector
        return bool(np.isfinite(learned).all())

    def _residuals(self, written: Parameters, window: Window, alpha: float) -> Float32:
        """Residuals of all steps of a window under online updates."""
        felt = self._directed(self.machine.felt(written).both.vector[window.stage])
        states, units = np.ones((len(window.start), felt.shape[1]), np.float32), self.machine.units
        states[:, :units] = window.states[1:]
        if window.path.word is not None:
            states[:, units:-1] = window.path.word
        out, moves = np.empty_like(window.start), np.zeros((2, felt.shape[1]), np.float32)
        constants = step_constants(self.machine)._replace(onsite=None, drift=None, kick=None)
        rule = np.float32(alpha), constants
        work = felt, self._gain, self._begins, states, window.start, *rule, moves, out
        in_step(_learn, MOST_THREADS, *work)
        return out

    def _directed(self, both: Array) -> Float32:
        """Flat numbers of couplings as a matrix: a row for each unit on which they act, a column
        for the other unit; the last columns are the label units and the constant 1 of biases.
        """
        form, twist = layout(self.machine), self.machine.twist
        matrix = form.coupling_matrix(both)
        if twist is not None:
            matrix *= 1 + form.coupling_matrix(twist, -1)
        np.fill_diagonal(matrix, 0)
        return matrix.astype(np.float32)
