"""Couplings on a grid of b bits, rounded after training or after every update.

    n = round(A/A_max · top),   A^(b) = n Δ,   Δ = A_max/top,   |n| ≤ top = 2^(b−1) − 1

The grid is symmetric with 2^b − 1 levels, zero among them; two bits give −A_max, 0 and A_max.
round() takes a half to the even neighbour, as NumPy does. Each block of couplings has a separate
grid; within a group it is quantized once per undirected edge and mirrored. Biases stay in float32,
and so do label couplings in training. 32 bits mean float32 without a grid.

Training in b bits works on the integers n. An update moves a coupling by y levels,

    y = −α (r_i x_j′ + r_j x_i′)/Δ
    nearest      n → n + round(y)      a move of less than half a level is lost
    stochastic   n → n + ⌊y + u⌋       u uniform in (0, 1), so unbiased

clipped to the grid. The move is rounded, not the sum n + y: a small move of a large coupling keeps
its digits. The two differ only where y is half a level to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters

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
        raise UserError(
            "couplings: not finite, because the training diverged; they cannot be quantized"
        )
    return largest


def levels(array: Array, bits: int, A_max: float, rounding: Array | None = None) -> Codes:
    """n = round(A/A_max · top), clipped to ±top; ⌊… + u⌋ if ``rounding`` gives u."""
    top = top_level(bits)
    if A_max == 0:
        return np.zeros(array.shape, np.int32)
    scaled = np.asarray(array, np.float64) / A_max * top
    whole = np.rint(scaled) if rounding is None else np.floor(scaled + rounding)
    codes: Codes = np.clip(whole, -top, top).astype(np.int32)
    return codes


def couplings(codes: Codes, bits: int, A_max: float) -> Float32:
    """A^(b) = n/top · A_max in float32."""
    values: Float32 = (codes / top_level(bits) * A_max).astype(np.float32)
    return values


def quantize(
    array: Array, bits: int, A_max: float | None = None, rounding: Array | None = None
) -> Float32:
    """A^(b) of one tensor, on the grid ±A_max (by default its largest magnitude)."""
    if bits == UNQUANTIZED:
        return np.asarray(array, np.float32)
    span = largest_magnitude(array) if A_max is None else A_max
    return couplings(levels(array, bits, span, rounding), bits, span)


def mirrored(array: NDArray[Any]) -> NDArray[Any]:
    """Symmetric matrix with zero diagonal, from the entries below the diagonal."""
    lower = np.tril(array, -1)
    symmetric: NDArray[Any] = lower + lower.T
    return symmetric


def quantized(theta: Parameters, bits: int, rounding: Array | None = None) -> Parameters:
    """θ with every block of couplings stored in b bits, with a grid per block and stage.

    Biases are untouched; 32 bits leave θ unchanged. ``rounding``: u of each coupling, flat, for
    n = ⌊y + u⌋.
    """
    if bits == UNQUANTIZED:
        return theta
    stored = theta.astype(np.float32)
    for block in theta.layout.couplings:
        for stage in range(len(theta.vector)):
            view = block.of(stored.vector[stage])
            u = None if rounding is None else block.of(rounding)
            on_grid = quantize(block.of(theta.vector[stage]), bits, rounding=u)
            view[...] = mirrored(on_grid) if block.doubled else on_grid
    return stored


ON_GRID = "visible_hidden", "hidden_hidden"
"""Blocks of couplings that are on a grid in quantized training."""


class Grid(NamedTuple):
    """The levels of J_vh and J_hh in quantized training, which span ±A_max."""

    bits: int
    ranges: tuple[float, float]
    stochastic: bool

    @classmethod
    def of(cls, machine: Machine, imperfections: Any) -> Grid | None:
        """The grid of ``settings.imperfections``; None if couplings are not on a grid."""
        if imperfections.bits == UNQUANTIZED:
            return None
        wired = machine.wired("visible-hidden") and machine.wired("hidden-hidden")
        if not wired or machine.wired("visible-visible") or machine.sparse:
            raise UserError(
                "imperfections.bits: training on a grid is defined for the wiring visible-hidden "
                "and hidden-hidden, complete, with or without labels"
            )
        between, within = (getattr(imperfections, f"range_{name}") for name in ON_GRID)
        return cls(imperfections.bits, (between, within), imperfections.rounding == "stochastic")

    def nearest(self, theta: Parameters) -> Parameters:
        """θ with its couplings at the nearest levels."""
        on_grid = theta.copy()
        for name, largest in zip(ON_GRID, self.ranges, strict=True):
            on_grid[name][...] = quantize(theta[name], self.bits, largest)
        return on_grid

    def moved(
        self, xp: Any, J: dict[str, Any], change: dict[str, Any], thresholds: Any = (None, None)
    ) -> dict[str, Any]:
        """J − change, by whole levels where couplings are on a grid; in any array library.

        ``thresholds``: u of J_vh and J_hh where rounding is stochastic.
        """
        top, following = top_level(self.bits), {name: J[name] - change[name] for name in J}
        for name, largest, u in zip(ON_GRID, self.ranges, thresholds, strict=True):
            down = change[name] * (top / largest)
            move = -xp.round(down) if u is None else xp.floor(u - down)
            level = xp.round(J[name] * (top / largest)) + move
            following[name] = xp.clip(level, -top, top) * (largest / top)
        return following


def coupling_ranges(theta: Parameters) -> tuple[float, float]:
    """A_max of J_vh and of J_hh: ranges with which training can reach this θ."""
    return largest_magnitude(theta["visible_hidden"]), largest_magnitude(theta["hidden_hidden"])


def nonzero_fraction(theta: Parameters) -> dict[str, float]:
    """Fraction of couplings that are not zero, by block (undirected edges once) and overall."""
    blocks = theta.layout.couplings
    edges = [block.edges * theta.machine.stages for block in blocks]
    nonzero = [
        int(np.count_nonzero(block.of(theta.vector))) // (2 if block.doubled else 1)
        for block in blocks
    ]
    by_block = {b.name: n / max(e, 1) for b, n, e in zip(blocks, nonzero, edges, strict=True)}
    return by_block | {"couplings": sum(nonzero) / max(sum(edges), 1)}
