"""Accumulated noise along a path: W_k x′_k of a random walk W in the parameters, by blocks.

    W_k = Σ_l ζ_l over the updates l that step k has seen,   ζ a normal for each parameter

Drawn step by step, that takes 0.53 million normals per step. Here W is drawn at the end of a block
of B updates, W_B = √B times a normal for each parameter. Inside a block W is the straight line to
W_B plus bridges (``noise_bridge``), needed only in the directions of the block's states:

    W_k x′_k = W_0 x′_k + (k/B) W_B x′_k + bridges

The law is exact (in float32), jointly for all steps and W_K. Cost for 784 + 512 units: 18,000
normals and 6 MFLOP per step, 4.3 of which are products with the full matrices W_0 and W_B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.aligned_memory import padded
from thermoloom.engines.compiled.compiling import inner, jit, loops
from thermoloom.engines.compiled.linear_algebra import blas, multiply
from thermoloom.engines.compiled.noise_bridge import Draw, add_bridges
from thermoloom.engines.compiled.streams import flat_normals, stream_key
from thermoloom.machine.machine import Machine
from thermoloom.threads import in_threads, thread_count

Float32 = NDArray[np.float32]

MOST_SHARES, UNITS_IN_SHARE = 8, 640
"""Largest number of shares of the rows of W, and minimum number of units per share."""
BLOCK_STEPS = 64
"""Largest number of steps in a block: longer blocks draw fewer matrices W_B but longer bridges."""
LEVELS = 8
"""Counters reserved for each block: W_B and the levels of its bridge."""


@dataclass(frozen=True)
class NoiseBlock:
    """Steps ``first`` to ``last`` of a trajectory: ``groups`` updates of equally many steps."""

    number: int
    first: int
    last: int
    groups: int

    @property
    def steps(self) -> int:
        return self.last - self.first

    @property
    def period(self) -> int:
        return self.steps // self.groups


def noise_blocks(steps: int, period: int) -> list[NoiseBlock]:
    """A trajectory in blocks of 2ᵖ complete periods; an incomplete last period is a block."""
    blocks: list[NoiseBlock] = []
    first = 0
    while first < steps:
        most = min((steps - first) // period, max(1, BLOCK_STEPS // period))
        groups = 1 << (most.bit_length() - 1) if most else 1
        last = min(first + groups * period, steps)
        blocks.append(NoiseBlock(len(blocks), first, last, groups))
        first = last
    return blocks


@dataclass(frozen=True)
class Walk:
    """Accumulated noise W, one number for each parameter."""

    couplings: Float32
    """Of J_vh above J_hh, (N, N_h). Of J_hh the lower triangle; after ``mirror`` both."""
    bias: Float32
    """Of b_h, (N_h,)."""

    @classmethod
    def zeros(cls, machine: Machine) -> Walk:
        bias = np.zeros(machine.hidden, np.float32)
        return cls(padded(machine.units, machine.hidden)[:, : machine.hidden], bias)

    def mirror(self) -> None:
        """Copy the lower triangle of J_hh to the upper one."""
        hidden = self.couplings[-len(self.bias) :]
        lower = np.tril(hidden, -1)
        np.add(lower, lower.T, out=hidden)


# Each share of W is a set of rows that only one thread changes: a range of J_vh, and two strips of
# the lower triangle of J_hh, one of short and one of long rows, so that all shares are equally
# large. The normals follow the order of the parameters, with each undirected edge once.


@loops
def _add(scale, fresh, couplings):  # type: ignore[no-untyped-def]
    """W ← W + scale · fresh, in some rows of W."""
    for i in range(couplings.shape[0]):
        row, increment = couplings[i], fresh[i]
        for j in range(row.size):
            row[j] += scale * increment[j]


@loops
def _unfold(edges, first, out):  # type: ignore[no-untyped-def]
    """Rows from ``first`` on of a lower triangle, with a symmetric square on the diagonal."""
    for i in range(out.shape[0]):
        at, row = (first + i) * (first + i - 1) // 2, out[i]
        for j in range(first + i):
            row[j] = edges[at + j]
        row[first + i] = 0
        for k in range(i):
            out[k, first + i] = row[first + k]


@inner
def _feel(routines, x, first, couplings, out):  # type: ignore[no-untyped-def]
    """out ← out + W x for the rows from ``first`` on of a lower triangle and their transpose."""
    last, before = first + couplings.shape[0], couplings[:, :first]
    multiply(routines, 1.0, x[:, :last], couplings.T, 1.0, out[:, first:last])
    multiply(routines, 1.0, x[:, first:last], before, 1.0, out[:, :first])


@jit
def _advance(share, shares, routines, x, line, scale, z, couplings, bias, strip, out_v, out_h):  # type: ignore[no-untyped-def]
    """Products of a share of W_0 and W_B with the states x of a block; then W_0 ← W_0 + W_B.

    W_B = scale · z, and step k sees line_k · z. ``out_v`` is complete for the share's visible
    units; ``out_h`` must be summed over the shares.
    """
    n_v, n_h = out_v.shape[1], out_h.shape[1]
    weighted = np.empty(x.shape, np.float32)
    for k in range(x.shape[0]):
        for i in range(x.shape[1]):
            weighted[k, i] = line[k] * x[k, i]
    x_v, x_h, weighted_v, weighted_h = x[:, :n_v], x[:, n_v:], weighted[:, :n_v], weighted[:, n_v:]
    low, high = n_v * share // shares, n_v * (share + 1) // shares
    rows, fresh = couplings[low:high], z[low * n_h : high * n_h].reshape(high - low, n_h)
    multiply(routines, 1.0, x_h, rows.T, 0.0, out_v[:, low:high])
    multiply(routines, 1.0, weighted_h, fresh.T, 1.0, out_v[:, low:high])
    multiply(routines, 1.0, x_v[:, low:high], rows, 0.0, out_h)
    multiply(routines, 1.0, weighted_v[:, low:high], fresh, 1.0, out_h)
    _add(scale, fresh, rows)
    edges, on_bias = z[n_v * n_h : z.size - n_h], z[z.size - n_h :]
    for number in (share, 2 * shares - 1 - share):
        low, high = n_h * number // (2 * shares), n_h * (number + 1) // (2 * shares)
        rows, fresh = couplings[n_v + low : n_v + high, :high], strip[: high - low, :high]
        _unfold(edges, low, fresh)
        _feel(routines, x_h, low, rows, out_h)
        _feel(routines, weighted_h, low, fresh, out_h)
        _add(scale, fresh, rows)
    if share == 0:
        for k in range(x.shape[0]):
            for i in range(n_h):
                out_h[k, i] += bias[i] + line[k] * on_bias[i]
        for i in range(n_h):
            bias[i] += scale * on_bias[i]


class NoiseWalk:
    """The unit noise of a seed along its paths."""

    def __init__(self, machine: Machine, seed: int, period: int = 1) -> None:
        self.machine = machine
        self.blocks = noise_blocks(machine.steps, period)
        self._key = stream_key(seed, "update error")

    def along(self, path: Float32, number: int) -> tuple[Float32, Walk]:
        """W_k x′_k (K, N) along this path, trajectory ``number`` of the seed, and W_K."""
        v, h = self.machine.visible, self.machine.hidden
        count = v * h + h * (h - 1) // 2 + h
        shares = min(max(2, self.machine.units // UNITS_IN_SHARE), MOST_SHARES)
        together = 2 * thread_count()
        walk, states = Walk.zeros(self.machine), path[1:]
        projected = np.empty((len(states), v + h), np.float32)
        strips = np.empty((shares, -(-h // (2 * shares)), h), np.float32)

        def draw(block: NoiseBlock) -> Float32:
            return self._normals(number, block)(0, count)

        def advance(share: int) -> None:
            for block, z, on_hidden in zip(blocks, normals, of_hidden, strict=False):
                rows, scale = slice(block.first, block.last), math.sqrt(block.steps)
                line = np.repeat(np.arange(block.groups), block.period) / block.groups
                _advance(
                    share, shares, blas(), states[rows], (scale * line).astype(np.float32),
                    np.float32(scale), z, walk.couplings, walk.bias, strips[share],
                    projected[rows, :v], on_hidden[share],
                )  # fmt: skip

        def bridge(block: NoiseBlock, on_hidden: Float32) -> None:
            out = projected[block.first : block.last]
            np.sum(on_hidden, axis=0, out=out[:, v:])
            x = states[block.first : block.last]
            add_bridges(block.groups, v, x, self._normals(number, block), out)

        for first in range(0, len(self.blocks), together):
            blocks = self.blocks[first : first + together]
            of_hidden = [np.empty((shares, block.steps, h), np.float32) for block in blocks]
            normals = in_threads(draw, [(block,) for block in blocks])
            in_threads(advance, [(share,) for share in range(shares)])
            in_threads(bridge, zip(blocks, of_hidden, strict=True))
        walk.mirror()
        return projected, walk

    def _normals(self, number: int, block: NoiseBlock) -> Draw:
        return lambda level, count: flat_normals(
            self._key, number, block.number * LEVELS + level, count
        )
