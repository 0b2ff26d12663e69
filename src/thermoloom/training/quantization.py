"""Couplings on a grid of b bits: stored so after training, or rounded after every update.

    n = round(A/A_max · top),   A^(b) = n Δ,   Δ = A_max/top,   |n| ≤ top = 2^(b−1) − 1

The grid is symmetric with 2^b − 1 levels, zero among them; two bits are −A_max, 0, A_max. round()
takes a half to the even neighbour, as NumPy does. J_vh and J_hh have a grid each; J_hh is quantized
once an undirected edge and mirrored, b_h stays in float32, and 32 bits mean float32 without a grid.

Training in b bits works on the integers n. An update moves a coupling by y levels,

    y = −α (r_i x_j′ + r_j x_i′)/Δ
    nearest      n → n + round(y)      a move of less than half a level is lost
    stochastic   n → n + ⌊y + u⌋       u uniform in (0, 1), so right on average

clipped to the grid. The move is rounded, not the sum n + y: a small move of a large coupling keeps
its digits, and they differ only where y is half a level to the last bit. u has 23 bits: a move is
right on average to 2⁻²³ levels. A step is one pass over J: move, round, clip, store, and sum up the
forces on the next state at once. Cost for 784 + 512 units, on one core: 0.3 ns a coupling and step,
0.8 ns with stochastic rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thermoloom.config import Physics, Settings
from thermoloom.errors import UserError
from thermoloom.physics.computer import Array, Computer
from thermoloom.streams import fill_low_bits, fill_uniforms, jit, stream_key
from thermoloom.training.learner import Diverged, drive

Float32 = NDArray[np.float32]
Codes = NDArray[np.int32]

UNQUANTIZED = 32
"""Bits that stand for float32 without a grid."""


def top_level(bits: int) -> int:
    """2^(b−1) − 1, the largest n."""
    if not 2 <= bits <= 24:
        raise UserError(f"bits = {bits}: must be 2 to 24, or 32 for unquantized float32")
    return (1 << (bits - 1)) - 1


def largest_magnitude(array: Array) -> float:
    """A_max = max |A_ij|."""
    largest = float(np.abs(array).max(initial=0))
    if not np.isfinite(largest):
        raise UserError("couplings = not finite: the training diverged, nothing to quantize")
    return largest


def levels(array: Array, bits: int, A_max: float) -> Codes:
    """n = round(A/A_max · top), clipped to ±top."""
    top = top_level(bits)
    if A_max == 0:
        return np.zeros(array.shape, np.int32)
    scaled = np.asarray(array, np.float64) / A_max * top
    codes: Codes = np.clip(np.rint(scaled), -top, top).astype(np.int32)
    return codes


def couplings(codes: Codes, bits: int, A_max: float) -> Float32:
    """A^(b) = n/top · A_max in float32."""
    values: Float32 = (codes / top_level(bits) * A_max).astype(np.float32)
    return values


def quantize(array: Array, bits: int, A_max: float | None = None) -> Float32:
    """A^(b) of one tensor, on the grid ±A_max (by default its largest magnitude)."""
    if bits == UNQUANTIZED:
        return np.asarray(array, np.float32)
    span = largest_magnitude(array) if A_max is None else A_max
    return couplings(levels(array, bits, span), bits, span)


def mirrored(array: NDArray[Any]) -> NDArray[Any]:
    """Symmetric with zero diagonal, from what is below the diagonal."""
    lower = np.tril(array, -1)
    symmetric: NDArray[Any] = lower + lower.T
    return symmetric


def quantized_computer(computer: Computer, bits: int) -> Computer:
    """The computer with couplings stored in b bits; b_h untouched, 32 bits the same computer."""
    if bits == UNQUANTIZED:
        return computer
    return Computer(
        quantize(computer.visible_hidden, bits),
        mirrored(quantize(computer.hidden_hidden, bits)),
        computer.hidden_bias,
    )


def coupling_ranges(computer: Computer) -> tuple[float, float]:
    """A_max of J_vh and of J_hh: the ranges for a training that is to reach this computer."""
    return largest_magnitude(computer.visible_hidden), largest_magnitude(computer.hidden_hidden)


def nonzero_fraction(computer: Computer) -> dict[str, float]:
    """Part of the couplings that is not zero: of J_vh, of J_hh (an edge once) and of both."""
    visible, hidden = computer.visible_hidden.shape
    edges = (visible * hidden, hidden * (hidden - 1) // 2)
    nonzero = (
        int(np.count_nonzero(computer.visible_hidden)),
        int(np.count_nonzero(computer.hidden_hidden)) // 2,
    )
    return {
        "visible_hidden": nonzero[0] / edges[0],
        "hidden_hidden": nonzero[1] / max(edges[1], 1),
        "couplings": sum(nonzero) / sum(edges),
    }


# Sums may run in vector registers, in any order; the rounding keeps to the letter, so that a
# reference can reproduce it: hence functions of their own, compiled without this freedom.
any_order = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})


@jit
def _nearest(n, move, x, moves, xs, top):  # type: ignore[no-untyped-def]
    """n − round(p_i x_j + p_j x_i), clipped, with p = α r/Δ."""
    return min(max(n - np.rint(move * xs + moves * x), -top), top)


@jit
def _stochastic(n, move, x, moves, xs, top, u):  # type: ignore[no-untyped-def]
    """n + ⌊u − (p_i x_j + p_j x_i)⌋, clipped."""
    return min(max(n + np.floor(u - (move * xs + moves * x)), -top), top)


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
def _pass(codes_v, codes_h, top, moves, x, next_x, forces, stochastic, key, trajectory, step):  # type: ignore[no-untyped-def]
    """Move every coupling by one update and sum up the forces on the next state.

    ``moves`` (α r/Δ) and ``forces`` (in units of Δ) have a row each for J_vh and J_hh. Couplings
    come in rows: each visible unit with all hidden ones, each hidden unit with those before it.
    Row r with n columns takes its uniforms from counters r·⌈N_h/8⌉ + i: half p = 0 … 7 of the words
    of one serves column p·⌈n/8⌉ + i. The last 7 bits of a uniform are common to a row: they make
    rounding right on average for each coupling, and correlate two by less than 2⁻³².
    """
    visible, hidden = codes_v.shape
    x_h, next_h = x[visible:], next_x[visible:]
    counters = (hidden + 7) // 8
    uniforms = np.empty(8 * counters, np.float32)
    low = np.empty((4, (x.size + 3) // 4), np.float32)
    if stochastic:
        fill_low_bits(key, trajectory, step, low)
    forces[:] = 0
    for row in range(visible + hidden):
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
def _learn(codes_v, codes_h, bias, path, drives, grid, alpha, c, stochastic, key, trajectory):  # type: ignore[no-untyped-def]
    """All steps of a path; False if a residual is not finite.

    Residuals are formed from the sums in float64 and rounded to float32.
    """
    top, spacing_v, spacing_h = grid
    visible = codes_v.shape[0]
    steps, units = drives.shape
    moves = np.zeros((2, units), np.float32)
    forces = np.empty((2, units), np.float32)
    per_level_v, per_level_h = np.float32(alpha / spacing_v), np.float32(alpha / spacing_h)
    finite = True
    # A pass that moves nothing gives the forces on the first state.
    _pass(codes_v, codes_h, top, moves, path[1], path[1], forces, False, key, trajectory, 0)
    for k in range(steps):
        for i in range(units):
            force = spacing_v * forces[0, i] + spacing_h * forces[1, i]
            if i >= visible:
                force += bias[i - visible]
            r = np.float32(drives[k, i] + c * force)
            finite &= np.isfinite(r)
            moves[0, i] = per_level_v * r
            moves[1, i] = per_level_h * r
            if i >= visible:
                bias[i - visible] -= np.float32(alpha) * r
        x, next_x = path[k + 1], path[min(k + 2, steps)]
        _pass(codes_v, codes_h, top, moves, x, next_x, forces, stochastic, key, trajectory, k)
    return finite


class QuantizedLearner:
    """θ with couplings on a grid of b bits: every online update is followed by rounding.

    ``ranges`` are A_max of J_vh and J_hh. ``trajectory`` numbers the next path to learn, for the
    rounding stream of ``seed``; it counts on by itself. A start off the grid is rounded to nearest.
    As with ``Learner``, a shallow copy keeps its own θ.
    """

    def __init__(
        self,
        physics: Physics,
        learning_rate: float,
        bits: int,
        ranges: tuple[float, float],
        stochastic: bool = False,
        seed: int = 0,
        start: Computer | None = None,
        trajectory: int = 0,
    ) -> None:
        start = start or Computer.zeros(physics)
        self.physics = physics
        self.learning_rate = learning_rate
        self.bits = bits
        self.ranges = ranges
        self.stochastic = stochastic
        self.trajectory = trajectory
        self._key = stream_key(seed, "rounding")
        self._visible_hidden = levels(start.visible_hidden, bits, ranges[0])
        self._hidden_hidden = levels(start.hidden_hidden, bits, ranges[1])  # below the diagonal
        self._hidden_bias = np.array(start.hidden_bias, np.float32)

    @classmethod
    def from_settings(
        cls, settings: Settings, start: Computer | None = None, trajectory: int = 0
    ) -> QuantizedLearner:
        chosen = settings.imperfections
        return cls(
            settings.physics,
            settings.learning_rate,
            chosen.bits,
            (chosen.range_visible_hidden or 0.0, chosen.range_hidden_hidden or 0.0),
            chosen.rounding == "stochastic",
            settings.training.seed,
            start,
            trajectory,
        )

    @property
    def codes(self) -> tuple[Codes, Codes]:
        """Copies of the integers n of J_vh and J_hh."""
        return self._visible_hidden.copy(), mirrored(self._hidden_hidden)

    @property
    def computer(self) -> Computer:
        """A copy of θ in float32."""
        visible_hidden, hidden_hidden = self.codes
        return Computer(
            couplings(visible_hidden, self.bits, self.ranges[0]),
            couplings(hidden_hidden, self.bits, self.ranges[1]),
            self._hidden_bias.copy(),
        )

    @property
    def nonzero_fraction(self) -> dict[str, float]:
        """Part of the couplings that is not zero, by tensor."""
        return nonzero_fraction(self.computer)

    def learn(
        self, path: Float32, errors: Float32 | None = None, drives: Float32 | None = None
    ) -> None:
        """Train on one noising path (K + 1, N), with ``errors`` and ``drives`` as ``Learner``."""
        start = drive(self.physics, path) if drives is None else drives
        codes = self._visible_hidden.copy(), self._hidden_hidden.copy()
        bias = self._hidden_bias.copy()
        finite = _learn(
            *codes,
            bias,
            path,
            start if errors is None else start + errors,
            _grid(self.bits, self.ranges),
            self.learning_rate,
            self.physics.residual_scale,
            self.stochastic,
            self._key,
            self.trajectory,
        )
        (self._visible_hidden, self._hidden_hidden), self._hidden_bias = codes, bias
        self.trajectory += 1
        if not finite:
            raise Diverged("residuals are no longer finite")


def _grid(bits: int, ranges: tuple[float, float]) -> tuple[np.float32, float, float]:
    """Top level and the spacings Δ of J_vh and J_hh."""
    top = top_level(bits)
    return np.float32(top), ranges[0] / top, ranges[1] / top


def learn_quantized_stepwise(
    physics: Physics,
    path: Float32,
    learning_rate: float,
    bits: int,
    ranges: tuple[float, float],
    uniforms: Callable[[int], tuple[Float32, Float32]] | None = None,
) -> tuple[Float32, Float32, Float32]:
    """The plain rule from θ = 0 in vectorized NumPy: the reference, and the peer in benchmarks.

    Returns the codes of J_vh and J_hh, and b_h. Stochastic where ``uniforms(step)`` gives a
    uniform for every J_vh and a symmetric array of them for J_hh. Equal to the last code where sums
    of forces are exact in float32, as for states on a dyadic grid; else up to the order of sums.
    """
    n, c = physics.visible, physics.residual_scale
    top, spacing_v, spacing_h = _grid(bits, ranges)
    codes_v = np.zeros((n, physics.hidden), np.float32)
    codes_h = np.zeros((physics.hidden, physics.hidden), np.float32)
    bias = np.zeros(physics.hidden, np.float32)
    per_level_v = np.float32(learning_rate / spacing_v)
    per_level_h = np.float32(learning_rate / spacing_h)
    for k, start in enumerate(drive(physics, path)):
        v, h = path[k + 1, :n], path[k + 1, n:]
        r_v = (start[:n] + c * (spacing_v * _wide(codes_v @ h))).astype(np.float32)
        force = spacing_v * _wide(v @ codes_v) + spacing_h * _wide(codes_h @ h) + bias
        r_h = (start[n:] + c * force).astype(np.float32)
        bias -= np.float32(learning_rate) * r_h
        down_v = np.outer(per_level_v * r_v, h)
        down_v += np.outer(v, per_level_v * r_h)
        down_h = np.outer(per_level_h * r_h, h)
        down_h = down_h + down_h.T
        if uniforms is None:
            codes_v -= np.rint(down_v)
            codes_h -= np.rint(down_h)
        else:
            u_v, u_h = uniforms(k)
            codes_v += np.floor(u_v - down_v)
            codes_h += np.floor(u_h - down_h)
        np.clip(codes_v, -top, top, out=codes_v)
        np.clip(codes_h, -top, top, out=codes_h)
        np.fill_diagonal(codes_h, 0)
    return codes_v, codes_h, bias


def _wide(sums: Float32) -> NDArray[np.float64]:
    return sums.astype(np.float64)
