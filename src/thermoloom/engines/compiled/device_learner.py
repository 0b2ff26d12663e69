"""Learning on a device: the rule writes J, and residuals sense the couplings J̃ of the device.

    r_i  = [−Δx_i + μΔt (Ṽ′_i(x_i′) + b̃_i + Σ_j J̃_{i←j} x_j′)] / 2k_BT      nominal μ, k_BT
    J_ij ← J_ij − α (r_i x_j′ + r_j x_i′),     J̃ = G∘J + O  at once           ``machine.device``

An update of rank two in J is not of rank two in J̃, so the block equations of ``learner`` do not
hold. Instead, one pass over the couplings per step updates J̃ and sums the forces on the next state.
J follows from all residuals at the end. Cost for 784 + 512 units on one core: about 0.5 ns per
coupling and step. With a period M > 1 the forces are a matrix product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Diverged, Path
from thermoloom.engines.compiled.compiling import compiler, jit, residual
from thermoloom.engines.compiled.learner import check_path
from thermoloom.engines.compiled.noising import start_of
from thermoloom.machine.action import add_gradient, step_constants
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.parameters import Array, Block, Parameters, layout
from thermoloom.threads import in_threads

Float32 = NDArray[np.float32]

any_order = compiler(fastmath={"reassoc", "contract"})


@any_order
def _row(felt, gain, move, x, moves, xs, next_x, next_xs, forces):  # type: ignore[no-untyped-def]
    """Update the couplings of one unit; returns the force on it and adds the forces on others."""
    force = np.float32(0)
    for j in range(felt.size):
        J = felt[j] - gain[j] * (move * xs[j] + moves[j] * x)
        felt[j] = J
        forces[j] += J * next_x
        force += J * next_xs[j]
    return force


@any_order
def _row_one_way(felt, gain, back, back_gain, move, x, moves, xs, next_x, next_xs, forces):  # type: ignore[no-untyped-def]
    """The same for couplings that differ by direction: ``back`` acts on the others."""
    force = np.float32(0)
    for j in range(felt.size):
        update = move * xs[j] + moves[j] * x
        J = felt[j] - gain[j] * update
        K = back[j] - back_gain[j] * update
        felt[j], back[j] = J, K
        forces[j] += K * next_x
        force += J * next_xs[j]
    return force


@jit
def _pass(felt, gain, back, back_gain, places, moves, x, next_x, forces):  # type: ignore[no-untyped-def]
    """One update of all couplings, and the forces on the next state.

    ``felt`` holds the couplings that act on the rows of each block, flat; ``back`` those that act
    on the columns, empty if they are equal. ``places``: see ``_place``.
    """
    forces[:] = 0
    for b in range(places.shape[0]):
        start, height, width, rows, columns, within = places[b]
        for i in range(height):
            count = i if within else width  # within a group, every edge once
            unit, others = rows + i, slice(columns, columns + count)
            row = slice(start + i * width, start + i * width + count)
            if back.size:
                forces[unit] += _row_one_way(
                    felt[row], gain[row], back[row], back_gain[row], moves[unit], x[unit],
                    moves[others], x[others], next_x[unit], next_x[others], forces[others],
                )  # fmt: skip
            else:
                forces[unit] += _row(
                    felt[row], gain[row], moves[unit], x[unit], moves[others], x[others],
                    next_x[unit], next_x[others], forces[others],
                )  # fmt: skip


@jit
def _learn(felt, gain, back, back_gain, places, clamped, after, drives, alpha, constants, out):  # type: ignore[no-untyped-def]
    """Residuals of all steps of a window, each under the couplings after the previous update.

    ``clamped``: states of the label units, and the 1 that biases multiply.
    """
    steps, units = drives.shape
    size = units + clamped.size
    moves, forces = np.zeros(size, np.float32), np.empty(size, np.float32)
    x, next_x = np.empty(size, np.float32), np.empty(size, np.float32)
    x[units:], next_x[units:] = clamped, clamped
    x[:units], next_x[:units] = after[0], after[0]
    # with zero moves a pass only computes the forces on the first state
    _pass(felt, gain, back, back_gain, places, moves, x, next_x, forces)
    for k in range(steps):
        for i in range(units):
            out[k, i] = residual(constants, drives[k, i], forces[i])
            moves[i] = alpha * out[k, i]
        if k + 1 < steps:
            x[:units], next_x[:units] = after[k], after[k + 1]
            _pass(felt, gain, back, back_gain, places, moves, x, next_x, forces)


class DeviceLearner:
    """θ′ = learn(θ, path) on a device whose couplings differ from the written ones."""

    def __init__(self, machine: BuiltMachine, learning_rate: float, period: int = 1) -> None:
        self.machine = machine
        self.learning_rate = learning_rate
        self.period = period
        self._gain = self._directed(machine.gain, machine.twist)
        self._places = np.array([_place(machine, block) for block in layout(machine).blocks])

    def learn(
        self,
        theta: Parameters,
        path: Path,
        errors: Float32 | None = None,
        rate: float | None = None,
    ) -> Parameters:
        """The written θ after one noising path."""
        check_path(self.machine, path)
        start = start_of(path, errors)
        alpha = self.learning_rate if rate is None else rate
        written = theta.copy()
        learn = self._online if self.period == 1 else self._in_periods

        def window(stage: int, first: int, last: int) -> None:
            after = path.states[first + 1 : last + 1]
            with np.errstate(over="ignore", invalid="ignore"):
                learn(written, stage, after, start[first:last], path.word, alpha)

        # stages have separate couplings, and learn independently
        in_threads(window, [(t, *span) for t, span in enumerate(self.machine.stage_windows)])
        if not np.isfinite(written.vector).all():
            raise Diverged("couplings are no longer finite")
        return written

    def _online(
        self,
        written: Parameters,
        stage: int,
        after: Float32,
        start: Float32,
        word: Float32 | None,
        alpha: float,
    ) -> None:
        felt, back = self._directed(
            self.machine.felt(written).both.vector[stage], self.machine.twist
        )
        gain, back_gain = self._gain
        residuals = np.empty_like(start)
        clamped = np.append(np.zeros(0, np.float32) if word is None else word, np.float32(1))
        _learn(
            felt,
            gain,
            back,
            back_gain,
            self._places,
            clamped,
            after,
            start,
            np.float32(alpha),
            step_constants(self.machine)._replace(onsite=None, drift=None, kick=None),
            residuals,
        )
        add_gradient(self.machine, residuals, after, word, written.vector[stage], -alpha)

    def _in_periods(
        self,
        written: Parameters,
        stage: int,
        after: Float32,
        start: Float32,
        word: Float32 | None,
        alpha: float,
    ) -> None:
        constants = step_constants(self.machine)
        for first in range(0, len(after), self.period):
            steps = slice(first, first + self.period)
            force = self.machine.felt(written).gradient(after[steps], stage, word)
            residuals = residual(constants, start[steps], force)
            add_gradient(self.machine, residuals, after[steps], word, written.vector[stage], -alpha)

    @staticmethod
    def _directed(both: Array, twist: Array | None) -> tuple[Float32, Float32]:
        """Couplings that act on rows and on columns; the latter are empty where both are equal."""
        if twist is None:
            return both.astype(np.float32), np.empty(0, np.float32)
        return ((1 + twist) * both).astype(np.float32), ((1 - twist) * both).astype(np.float32)


def _place(machine: BuiltMachine, block: Block) -> tuple[int, ...]:
    """Offset of a block in θ, its height and width, the first units of its rows and columns
    (clamped units come last), and whether it is within a group.
    """
    clamped = {"label": machine.units, "one": machine.units + machine.size_of("label")}
    begins = {group: where.start for group, where in machine.groups.items()} | clamped
    height, width = (*block.shape, 1)[:2]
    return block.start, height, width, begins[block.rows], begins[block.columns], block.symmetric
