"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α (r_i x_j′ + r_j x_i′),   b_a ← b_a − α r_a      every M steps

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is
linear in θ and an update is a masked rank-2 change, so the residuals of a block of B steps
obey, with c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where
the update of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

U is strictly causal, so sweeping this from R = R⁰ is exact after B sweeps and converges to
float32 round-off in two or three. Then θ takes one rank-2B update. All of it is matrix–matrix
work: 4.2 MFLOP a step for 784 + 512 units and about a quarter more for the sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm, ssymm, ssyr2k

from thermoloom.config import Physics, Settings
from thermoloom.physics.computer import Computer
from thermoloom.streams import jit

Float32 = NDArray[np.float32]

BLOCK_STEPS = 64
"""Longest block of several updates, B. Longer blocks cost more in sweeps than they gain in rank."""
TOLERANCE = 1e-6
"""Largest estimated error of a block's residuals, relative to the largest residual."""
MOST_SWEEPS = 8
"""A block that needs more is halved."""


class Diverged(Exception):
    """Parameters or residuals are no longer finite. A result, not a crash."""


@jit
def _drive(path, inverse_2kT, c, quadratic, quartic, out):  # type: ignore[no-untyped-def]
    """Residuals at θ = 0: [−Δx + μΔt (2J₂x′ + 4J₄x′³)] / (2k_BT)."""
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            x = path[k + 1, i]
            onsite = x * (quadratic + quartic * (x * x))
            out[k, i] = c * onsite - inverse_2kT * (x - path[k, i])


@jit
def _correct_visible(start, sums, rate, r):  # type: ignore[no-untyped-def]
    """r ← start − rate·sums; returns the largest change and the largest residual."""
    change = np.float32(0)
    largest = np.float32(0)
    for k in range(r.shape[0]):
        for i in range(r.shape[1]):
            new = start[k, i] - rate * sums[k, i]
            change = max(change, abs(new - r[k, i]))
            largest = max(largest, abs(new))
            r[k, i] = new
    return change, largest


@jit
def _correct_hidden(start, sums, x, period, rate, r):  # type: ignore[no-untyped-def]
    """The same for hidden units, with the term −2 (U(R∘X))∘X that keeps J_aa = 0."""
    change = np.float32(0)
    largest = np.float32(0)
    applied = np.zeros(r.shape[1], np.float32)
    pending = np.zeros(r.shape[1], np.float32)
    for k in range(r.shape[0]):
        if k % period == 0:
            applied += pending
            pending[:] = 0
        for i in range(r.shape[1]):
            old = r[k, i]
            new = start[k, i] - rate * (sums[k, i] - np.float32(2) * applied[i] * x[k, i])
            pending[i] += old * x[k, i]
            change = max(change, abs(new - old))
            largest = max(largest, abs(new))
            r[k, i] = new
    return change, largest


def drive(physics: Physics, path: Float32) -> Float32:
    """Residuals that the onsite potential alone would have; shared by all learners of a path."""
    out = np.empty((len(path) - 1, path.shape[1]), np.float32)
    _drive(
        path,
        np.float32(1 / (2 * physics.kT)),
        np.float32(physics.residual_scale),
        np.float32(2 * physics.J2),
        np.float32(4 * physics.J4),
        out,
    )
    return out


@dataclass
class _Block:
    """Work arrays of a block of B steps. Stacked so that each matrix product is one BLAS call."""

    rx_visible: Float32
    """(2B, N_v): R_v above X_v."""
    xr_hidden: Float32
    """(2B, N_h): X_h above R_h."""

    @classmethod
    def empty(cls, steps: int, physics: Physics) -> _Block:
        return cls(
            np.empty((2 * steps, physics.visible), np.float32),
            np.empty((2 * steps, physics.hidden), np.float32),
        )

    def first(self, steps: int) -> _Block:
        """The same memory for a shorter block."""
        return _Block(self.rx_visible[: 2 * steps], self.xr_hidden[: 2 * steps])

    @property
    def steps(self) -> int:
        return len(self.rx_visible) // 2

    @property
    def r_v(self) -> Float32:
        return self.rx_visible[: self.steps]

    @property
    def x_v(self) -> Float32:
        return self.rx_visible[self.steps :]

    @property
    def x_h(self) -> Float32:
        return self.xr_hidden[: self.steps]

    @property
    def r_h(self) -> Float32:
        return self.xr_hidden[self.steps :]


class Learner:
    """θ and the rule that changes it. ``learn`` one noising path after the other."""

    def __init__(
        self,
        physics: Physics,
        learning_rate: float,
        period: int = 1,
        start: Computer | None = None,
        block_steps: int = BLOCK_STEPS,
    ) -> None:
        self.physics = physics
        self.learning_rate = learning_rate
        self.period = period
        start = start or Computer.zeros(physics)
        self._visible_hidden = np.array(start.visible_hidden, np.float32, order="C")
        # Only the triangle that BLAS calls "upper" of the Fortran-ordered J_hh is kept current.
        self._hidden_hidden = np.array(start.hidden_hidden, np.float32, order="F")
        self._hidden_bias = np.array(start.hidden_bias, np.float32)
        self._longest = period * max(1, block_steps // period)
        self._work = _Block.empty(min(self._longest, physics.steps), physics)

    @classmethod
    def from_settings(cls, settings: Settings, start: Computer | None = None) -> Learner:
        return cls(settings.physics, settings.learning_rate, settings.period, start)

    @property
    def computer(self) -> Computer:
        """A copy of θ."""
        upper = np.triu(self._hidden_hidden, 1)
        return Computer(self._visible_hidden.copy(), upper + upper.T, self._hidden_bias.copy())

    def learn(
        self, path: Float32, errors: Float32 | None = None, drives: Float32 | None = None
    ) -> None:
        """Train on one noising path (K + 1, N).

        ``errors`` E (K, N) are added to the residuals before updates are formed; ``drives`` =
        ``drive(physics, path)`` if it is at hand. An incomplete last period is applied at the end.
        """
        start_residuals = drive(self.physics, path) if drives is None else drives
        steps = len(path) - 1
        first, length = 0, self._longest
        while first < steps:
            last = min(first + length, steps)
            block = self._work.first(last - first)
            self._load(block, path, start_residuals, errors, first, last)
            if not self._solve(block):
                length = self.period * max(1, length // self.period // 2)
                continue
            self._apply(block)
            first = last
        if not np.isfinite(self._hidden_bias).all() or not np.isfinite(self._visible_hidden).all():
            raise Diverged("couplings are no longer finite")

    def _load(
        self,
        block: _Block,
        path: Float32,
        drives: Float32,
        errors: Float32 | None,
        first: int,
        last: int,
    ) -> None:
        """X′ and R⁰ = drive + c (J x′ + b) + E into the block."""
        n, c = self.physics.visible, self.physics.residual_scale
        block.x_v[:] = path[first + 1 : last + 1, :n]
        block.x_h[:] = path[first + 1 : last + 1, n:]
        block.r_v[:] = drives[first:last, :n]
        np.add(drives[first:last, n:], np.float32(c) * self._hidden_bias, out=block.r_h)
        if errors is not None:
            block.r_v[:] += errors[first:last, :n]
            block.r_h[:] += errors[first:last, n:]
        # BLAS sees C-ordered arrays transposed, hence Rᵀ += c J Xᵀ; all in place.
        couplings = self._visible_hidden.T
        sgemm(c, couplings, block.x_h.T, 1.0, block.r_v.T, trans_a=1, overwrite_c=1)
        sgemm(c, couplings, block.x_v.T, 1.0, block.r_h.T, overwrite_c=1)
        ssymm(c, self._hidden_hidden, block.x_h.T, 1.0, block.r_h.T, overwrite_c=1)

    def _solve(self, block: _Block) -> bool:
        """R⁰ → R by causal sweeps, in place. False if they do not contract fast enough."""
        if block.steps <= self.period:
            return True
        rate = np.float32(self.learning_rate * self.physics.residual_scale)
        causal = _causal_mask(block.steps, self.period)
        start_v, start_h = block.r_v.copy(), block.r_h.copy()
        gram_h = block.x_h @ block.x_h.T
        gram_v = block.x_v @ block.x_v.T
        on_visible = np.empty((block.steps, 2 * block.steps), np.float32)
        on_hidden = np.empty_like(on_visible)
        b = block.steps
        np.multiply(causal, gram_h, out=on_visible[:, :b])
        np.multiply(causal, gram_v + gram_h + np.float32(1), out=on_hidden[:, b:])
        sums_v = np.empty_like(start_v)
        sums_h = np.empty_like(start_h)
        before = 1.0
        for _ in range(MOST_SWEEPS):
            cross = block.x_h @ block.r_h.T
            np.multiply(causal, cross, out=on_visible[:, b:])
            np.matmul(on_visible, block.rx_visible, out=sums_v)
            change_v, largest_v = _correct_visible(start_v, sums_v, rate, block.r_v)
            cross += block.x_v @ block.r_v.T
            np.multiply(causal, cross, out=on_hidden[:, :b])
            np.matmul(on_hidden, block.xr_hidden, out=sums_h)
            change_h, largest_h = _correct_hidden(
                start_h, sums_h, block.x_h, self.period, rate, block.r_h
            )
            largest = max(largest_v, largest_h)
            change = max(change_v, change_h) / largest if largest > 0 else 0.0
            if not np.isfinite(change):
                return False
            # Sweeps contract by change/before, so what is left is about change²/before.
            if change * change <= TOLERANCE * before:
                return True
            if change > 0.5 * before:
                return False
            before = change
        return False

    def _apply(self, block: _Block) -> None:
        """θ ← θ − α (Rᵀ X_h + Xᵀ R_h, …), one rank-2B update for each array."""
        alpha = -self.learning_rate
        sgemm(
            alpha,
            block.xr_hidden.T,
            block.rx_visible.T,
            1.0,
            self._visible_hidden.T,
            trans_b=1,
            overwrite_c=1,
        )
        ssyr2k(alpha, block.x_h.T, block.r_h.T, 1.0, self._hidden_hidden, overwrite_c=1)
        np.fill_diagonal(self._hidden_hidden, 0)
        self._hidden_bias += np.float32(alpha) * block.r_h.sum(axis=0)


def _causal_mask(steps: int, period: int) -> NDArray[Any]:
    """U[k, l] = 1 where the update that contains step l has been applied before step k."""
    group = np.arange(steps) // period
    return (group[:, None] > group[None, :]).astype(np.float32)


def learn_stepwise(
    physics: Physics,
    computer: Computer,
    path: NDArray[Any],
    learning_rate: float,
    period: int = 1,
    errors: NDArray[Any] | None = None,
) -> Computer:
    """The plain rule, one step after the other, in float64: the reference for every fast path."""
    theta = computer.astype(np.float64)
    x = np.asarray(path, np.float64)
    j_vh, j_hh, b = (array.copy() for array in theta.arrays.values())
    pending = [np.zeros_like(j_vh), np.zeros_like(j_hh), np.zeros_like(b)]
    steps = len(x) - 1
    for k in range(steps):
        after = x[k + 1]
        v, h = after[: physics.visible], after[physics.visible :]
        force = np.concatenate([j_vh @ h, v @ j_vh + j_hh @ h + b])
        force += 2 * physics.J2 * after + 4 * physics.J4 * after**3
        r = (x[k] - after + physics.mobility * physics.dt * force) / (2 * physics.kT)
        if errors is not None:
            r = r + errors[k]
        r_v, r_h = r[: physics.visible], r[physics.visible :]
        pending[0] += np.outer(r_v, h) + np.outer(v, r_h)
        update = np.outer(r_h, h)
        pending[1] += update + update.T
        pending[2] += r_h
        if (k + 1) % period == 0 or k + 1 == steps:
            j_vh -= learning_rate * pending[0]
            j_hh -= learning_rate * pending[1]
            b -= learning_rate * pending[2]
            np.fill_diagonal(j_hh, 0)
            for array in pending:
                array[:] = 0
    return Computer(j_vh, j_hh, b)
