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

from collections.abc import Generator
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thermoloom.config import Physics, Settings
from thermoloom.linear_algebra import multiply, multiply_symmetric
from thermoloom.physics.computer import Computer
from thermoloom.streams import jit
from thermoloom.threads import in_lockstep

Float32 = NDArray[np.float32]

BLOCK_STEPS = 48
"""Longest block of several updates, B. Longer ones cost more in sweeps than they gain in rank."""
TOLERANCE = 1e-7
"""Largest estimated error of a block's residuals, relative, both root mean square."""
MOST_SWEEPS = 8
"""A block that needs more is halved."""
PIECES = 2
"""The units are always worked on in this many pieces, on as many threads as there are, up to
this number: so θ does not depend on the threads."""

# Sums may be reordered, so that they run in vector registers; non-finite values still show.
any_order = {"reassoc", "contract", "nsz"}
fast_jit = njit(nogil=True, cache=True, error_model="numpy", fastmath=any_order)


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


# Kernels take one row's slice at a time: a slice starts at 0, which lets loops run in vectors.


@jit
def _start_residuals(start, forces, bias, low, high, c, r):  # type: ignore[no-untyped-def]
    """r ← start + c (forces + bias) for units low … high."""
    b = bias[low:high]
    for k in range(r.shape[0]):
        s, f, out = start[k, low:high], forces[k, low:high], r[k, low:high]
        for i in range(out.size):
            out[i] = s[i] + c * (f[i] + b[i])


@fast_jit
def _correct_visible(start, sums, low, high, rate, r):  # type: ignore[no-untyped-def]
    """r ← start − rate·sums for units low … high; returns Σ change² and Σ r²."""
    change = np.float64(0)
    size = np.float64(0)
    for k in range(r.shape[0]):
        s, f, out = start[k, low:high], sums[k, low:high], r[k, low:high]
        row_change = np.float32(0)
        row_size = np.float32(0)
        for i in range(out.size):
            new = s[i] - rate * f[i]
            difference = new - out[i]
            row_change += difference * difference
            row_size += new * new
            out[i] = new
        change += row_change
        size += row_size
    return change, size


@fast_jit
def _correct_hidden(start, sums, x, low, high, period, rate, r):  # type: ignore[no-untyped-def]
    """The same for hidden units, with the term −2 (U(R∘X))∘X that keeps J_aa = 0."""
    applied = np.zeros(high - low, np.float32)
    pending = np.zeros(high - low, np.float32)
    for k in range(r.shape[0]):
        f, state, old = sums[k, low:high], x[k, low:high], r[k, low:high]
        if k % period == 0:
            for i in range(old.size):
                applied[i] += pending[i]
                pending[i] = 0
        for i in range(old.size):
            f[i] -= np.float32(2) * applied[i] * state[i]
            pending[i] += old[i] * state[i]
    return _correct_visible(start, sums, low, high, rate, r)


@jit
def _mirror(couplings, low, high):  # type: ignore[no-untyped-def]
    """Rows low … high of a lower triangle into the upper one; the diagonal becomes zero."""
    tile = 32  # a tile of both triangles stays in the cache
    for row in range(low, high, tile):
        for column in range(0, high, tile):
            for a in range(row, min(row + tile, high)):
                for b in range(column, min(column + tile, a)):
                    couplings[b, a] = couplings[a, b]
    for a in range(low, high):
        couplings[a, a] = 0


class _Block:
    """Work arrays of a block of B steps, stacked so that each matrix product is one BLAS call.

    A block that lies within one period is not ``swept``: its residuals need no correction.
    """

    def __init__(self, steps: int, physics: Physics, swept: bool) -> None:
        self.rx_visible = np.empty((2 * steps, physics.visible), np.float32)
        """R_v above X_v."""
        self.xr_hidden = np.empty((2 * steps, physics.hidden), np.float32)
        """X_h above R_h."""
        self.r_v, self.x_v = self.rx_visible[:steps], self.rx_visible[steps:]
        self.x_h, self.r_h = self.xr_hidden[:steps], self.xr_hidden[steps:]
        self.sums_v, self.sums_h = np.empty_like(self.r_v), np.empty_like(self.r_h)
        """Forces at first, then the brackets of the equations above."""
        if not swept:
            return
        self.start_v, self.start_h = np.empty_like(self.r_v), np.empty_like(self.r_h)
        self.gram_h, self.gram_v = np.empty((2, steps, steps), np.float32)
        self.cross_h, self.cross_v = np.empty((2, PIECES, steps, steps), np.float32)
        """X_h R_hᵀ and X_v R_vᵀ, the sum over each piece's units."""
        self.squares = np.empty((PIECES, 2))
        """Σ change² and Σ r² of each piece's last sweep."""


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
        # J_vh above J_hh: the couplings of every unit to the hidden ones, in one array.
        # Rows are 16 floats longer than a multiple of 32: at a distance of a power of two, the rows
        # of a column would all fall into the same few places of the cache.
        padded = np.zeros((physics.units, 32 * (physics.hidden // 32 + 1) + 16), np.float32)
        self._couplings = padded[:, : physics.hidden]
        self._couplings[: physics.visible] = start.visible_hidden
        self._couplings[physics.visible :] = start.hidden_hidden
        self._bias = np.zeros(physics.units, np.float32)
        self._bias[physics.visible :] = start.hidden_bias
        self._longest = period * max(1, block_steps // period)
        self._blocks: dict[int, _Block] = {}
        self._pieces = _pieces(physics)

    @classmethod
    def from_settings(cls, settings: Settings, start: Computer | None = None) -> Learner:
        return cls(settings.physics, settings.learning_rate, settings.period, start)

    @property
    def computer(self) -> Computer:
        """A copy of θ."""
        n = self.physics.visible
        return Computer(self._couplings[:n], self._couplings[n:], self._bias[n:]).copy()

    def learn(
        self, path: Float32, errors: Float32 | None = None, drives: Float32 | None = None
    ) -> None:
        """Train on one noising path (K + 1, N).

        ``errors`` E (K, N) are added to the residuals before updates are formed; ``drives`` =
        ``drive(physics, path)`` if it is at hand. An incomplete last period is applied at the end.
        """
        start = drive(self.physics, path) if drives is None else drives
        if errors is not None:
            start = start + errors
        in_lockstep([self._work(piece, path[1:], start) for piece in range(PIECES)])
        if not (np.isfinite(self._couplings).all() and np.isfinite(self._bias).all()):
            raise Diverged("couplings are no longer finite")

    def _work(self, piece: int, after: Float32, start: Float32) -> Generator[None, None, None]:
        """One piece's share of a trajectory; at each ``yield`` it waits for the others."""
        first, length = 0, self._longest
        while first < len(after):
            last = min(first + length, len(after))
            block = self._block(last - first)
            self._load(block, piece, after[first:last], start[first:last])
            yield
            if last - first > self.period and not (yield from self._sweep(block, piece)):
                length = self.period * max(1, length // self.period // 2)
                continue
            self._apply(block, piece)
            yield
            first = last

    def _block(self, steps: int) -> _Block:
        block = self._blocks.get(steps)
        if block is None:  # several pieces may ask at once: all must get the same
            block = self._blocks.setdefault(
                steps, _Block(steps, self.physics, swept=steps > self.period)
            )
        return block

    def _load(self, block: _Block, piece: int, x: Float32, start: Float32) -> None:
        """X′ and R⁰ = start + c (J x′ + b) of this piece's units into the block."""
        n, c = self.physics.visible, np.float32(self.physics.residual_scale)
        v, h = self._pieces[piece]
        block.x_v[:, v] = x[:, :n][:, v]
        block.x_h[:, h] = x[:, n:][:, h]
        np.matmul(x[:, n:], self._couplings[v].T, out=block.sums_v[:, v])
        np.matmul(x, self._couplings[:, h], out=block.sums_h[:, h])
        bias_v, bias_h = self._bias[:n], self._bias[n:]
        _start_residuals(start[:, :n], block.sums_v, bias_v, v.start, v.stop, c, block.r_v)
        _start_residuals(start[:, n:], block.sums_h, bias_h, h.start, h.stop, c, block.r_h)

    def _sweep(self, block: _Block, piece: int) -> Generator[None, None, bool]:
        """R⁰ → R by causal sweeps, in place. False if they do not contract fast enough."""
        v, h = self._pieces[piece]
        steps = len(block.r_v)
        rate = np.float32(self.learning_rate * self.physics.residual_scale)
        causal = _causal_mask(steps, self.period)
        block.start_v[:, v] = block.r_v[:, v]
        block.start_h[:, h] = block.r_h[:, h]
        if piece == 0:
            np.matmul(block.x_h, block.x_h.T, out=block.gram_h)
        if piece == PIECES - 1:
            np.matmul(block.x_v, block.x_v.T, out=block.gram_v)
        on_visible, on_hidden = np.empty((2, steps, 2 * steps), np.float32)
        before = 1.0
        for sweep in range(MOST_SWEEPS):
            np.matmul(block.x_h[:, h], block.r_h[:, h].T, out=block.cross_h[piece])
            np.matmul(block.x_v[:, v], block.r_v[:, v].T, out=block.cross_v[piece])
            yield
            if sweep == 0:
                np.multiply(causal, block.gram_h, out=on_visible[:, :steps])
                everything = block.gram_h + block.gram_v + np.float32(1)
                np.multiply(causal, everything, out=on_hidden[:, steps:])
            cross_h, cross_v = block.cross_h.sum(axis=0), block.cross_v.sum(axis=0)
            np.multiply(causal, cross_h, out=on_visible[:, steps:])
            np.multiply(causal, cross_h + cross_v, out=on_hidden[:, :steps])
            np.matmul(on_visible, block.rx_visible[:, v], out=block.sums_v[:, v])
            np.matmul(on_hidden, block.xr_hidden[:, h], out=block.sums_h[:, h])
            b, span_v, span_h = block, (v.start, v.stop), (h.start, h.stop)
            of_v = _correct_visible(b.start_v, b.sums_v, *span_v, rate, b.r_v)
            of_h = _correct_hidden(b.start_h, b.sums_h, b.x_h, *span_h, self.period, rate, b.r_h)
            block.squares[piece] = np.add(of_v, of_h)
            yield
            change_squared, size_squared = block.squares.sum(axis=0)
            change = float(np.sqrt(change_squared / size_squared)) if size_squared > 0 else 0.0
            # Sweeps contract by change/before, so what is left is about change²/before. The first
            # change tells nothing of that: residuals are mostly noise, changes are coherent.
            if change == 0 or (sweep > 0 and change * change <= TOLERANCE * before):
                return True
            if not change <= 0.5 * before:
                return False
            before = change
        return False

    def _apply(self, block: _Block, piece: int) -> None:
        """θ ← θ − α (RᵀX_h + XᵀR_h, …) of this piece: one rank-2B update for each array."""
        n, alpha = self.physics.visible, -self.learning_rate
        v, h = self._pieces[piece]
        multiply(alpha, block.rx_visible[:, v].T, block.xr_hidden, 1.0, self._couplings[v])
        # Hidden–hidden: this piece's rows of the lower triangle, then their mirror image.
        low, high = _triangle_rows(self.physics.hidden)[piece]
        x, r, couplings = block.x_h[:, low:high], block.r_h[:, low:high], self._couplings[n:]
        multiply_symmetric(alpha, x, r, 1.0, couplings[low:high, low:high])
        if low > 0:
            rows = couplings[low:high, :low]
            multiply(alpha, x.T, block.r_h[:, :low], 1.0, rows)
            multiply(alpha, r.T, block.x_h[:, :low], 1.0, rows)
        _mirror(couplings, low, high)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is noticed by ``learn``
            self._bias[n:][h] += np.float32(alpha) * block.r_h[:, h].sum(axis=0)


def _pieces(physics: Physics) -> list[tuple[slice, slice]]:
    """Visible and hidden units of each piece."""

    def cut(units: int) -> list[slice]:
        return [slice(units * p // PIECES, units * (p + 1) // PIECES) for p in range(PIECES)]

    return list(zip(cut(physics.visible), cut(physics.hidden), strict=True))


def _triangle_rows(hidden: int) -> list[tuple[int, int]]:
    """Rows of a triangle of equal area for each piece."""
    edges = [round(hidden * (p / PIECES) ** 0.5) for p in range(PIECES + 1)]
    return [(edges[p], edges[p + 1]) for p in range(PIECES)]


@cache
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
