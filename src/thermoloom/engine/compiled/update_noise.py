"""Update noise: an independent Gaussian error on every formed update, sampled exactly by blocks.

    u_ij → u_ij + σ ζ_ij,   u_a → u_a + σ ζ_a      every step, one ζ an undirected edge, σ = σ_upd

Step by step that is 0.53 million normals a step. But noise enters a step only through the
accumulated W_k = Σ_l ζ_l of the updates that step k has seen, projected on the state x′_k:

    R⁰_k → R⁰_k − αcσ W_k x′_k   and   θ → θ − ασ W_K at the end of the trajectory.

So the noise-free learner trains with −αcσ W_k x′_k added to its residuals. W_k x′_k does not depend
on σ: one draw serves all amplitudes. W is a random walk. Over a block of B updates it is drawn
whole, W_B = √B times a normal for each parameter. Inside a block it is the straight line to W_B
plus a bridge, built by midpoint displacement (Lévy's construction, exact for Gaussian walks): each
interval of L = B, B/2, …, 2 updates from a on adds a tent times a matrix Z of unit normals,

    W_k = W_0 + (k/B) W_B + Σ_intervals min(k − a, a + L − k)/√L · Z      for a < k < a + L.

Z is needed only in the directions of the L − 1 states inside its interval, so it is never drawn
whole. With orthonormal bases A_v, A_h of the visible and hidden states and G, G′ of normals

    J_vh   Z A_h = G,   Zᵀ A_v = G′ + A_h (GᵀA_v − A_hᵀG′)
    J_hh   Z A = G + A (C − M),   M = AᵀG,   C = (M + Mᵀ)/√2      for A = A_h, Z = Zᵀ, Var Z_aa = 2
           Z_aa = 2 (ZA)_a·A_a − A_aᵀ C A_a + q_a,   Cov q = 2 P∘P,   P = 1 − AAᵀ

have the law of Z. The diagonal, which J_hh does not have, is taken off: (Z x)_a − Z_aa x_a. All of
it is linear in independent normals: the law is exact (in float32), jointly for all steps and W_K.
Cost for 784 + 512 units: 18,000 normals and about 9 MFLOP a step, shared by all amplitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine import Path
from thermoloom.engine.compiled.aligned_memory import padded
from thermoloom.engine.compiled.compiling import jit
from thermoloom.engine.compiled.learner import Learner
from thermoloom.engine.compiled.streams import flat_normals, stream_key
from thermoloom.errors import UserError
from thermoloom.machine.definition import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.threads import in_threads, thread_count, unit_ranges

Float32 = NDArray[np.float32]
Draw = Callable[[int, int], Float32]
"""(level, count) → normals of a block: level 0 for W_B, level p for its intervals of 2ᵖ updates."""

BLOCK_STEPS = 64
"""Most steps in a block of several updates: fewer whole matrices, but longer intervals."""
LEVELS = 8
"""Counters set aside for each block: W_B and the levels of its bridge."""
INDEPENDENT = 1e-8
"""A state counts as new where more than this part of its square is not in the earlier ones."""
TILE = 32


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
    """A trajectory in blocks of 2ᵖ whole periods; an incomplete last period is a block alone."""
    blocks: list[NoiseBlock] = []
    first = 0
    while first < steps:
        most = min((steps - first) // period, max(1, BLOCK_STEPS // period))
        groups = 1 << (most.bit_length() - 1) if most else 1
        last = min(first + groups * period, steps)
        blocks.append(NoiseBlock(len(blocks), first, last, groups))
        first = last
    return blocks


@jit
def _mirrored(edges, scale, out):  # type: ignore[no-untyped-def]
    """One number an undirected edge → symmetric matrix, zero diagonal; in tiles for the cache."""
    n = out.shape[0]
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                out[i, i] = 0
                for j in range(left, min(left + TILE, i)):
                    value = scale * edges[i * (i - 1) // 2 + j]
                    out[i, j] = value
                    out[j, i] = value


@dataclass(frozen=True)
class Walk:
    """Accumulated noise W, one number for each parameter."""

    couplings: Float32
    """Of J_vh above J_hh (symmetric, zero diagonal), (N, N_h)."""
    bias: Float32
    """Of b_h, (N_h,)."""

    @classmethod
    def zeros(cls, machine: Machine) -> Walk:
        bias = np.zeros(machine.hidden, np.float32)
        return cls(padded(machine.units, machine.hidden)[:, : machine.hidden], bias)

    def become(self, a: Walk, b: Walk) -> None:
        """W ← A + B."""
        np.add(a.couplings, b.couplings, out=self.couplings)
        np.add(a.bias, b.bias, out=self.bias)

    def project(self, weights: Float32, states: Float32, out: Float32) -> None:
        """out_k ← out_k + weight_k W x_k, for each state (a row)."""
        n = len(self.couplings) - len(self.bias)
        x = weights[:, None] * states
        out[:, :n] += x[:, n:] @ self.couplings[:n].T
        out[:, n:] += x @ self.couplings
        out[:, n:] += np.outer(weights, self.bias)


def whole_walk(machine: Machine, steps: int, draw: Draw) -> Walk:
    """W_B = √steps times a normal on every undirected edge and hidden bias."""
    v, h = machine.visible, machine.hidden
    normals = draw(0, v * h + h * (h - 1) // 2 + h)
    scale = np.float32(math.sqrt(steps))
    couplings = padded(v + h, h)[:, :h]
    np.multiply(scale, normals[: v * h].reshape(v, h), out=couplings[:v])
    _mirrored(normals[v * h : -h], scale, couplings[v:])
    return Walk(couplings, scale * normals[-h:])


def add_block(block: NoiseBlock, states: Float32, whole: Walk, draw: Draw, out: Float32) -> None:
    """out_k ← out_k + (W_k − W_0) x′_k (B, N) in a block with states x′ and W_B = ``whole``."""
    period = block.period
    updates = np.repeat(np.arange(block.groups), period)
    whole.project((updates / block.groups).astype(np.float32), states, out)
    wide = states.astype(np.float64)
    of_v, of_h = np.split(wide, [-len(whole.bias)], axis=1)
    grams = of_v @ of_v.T, of_h @ of_h.T
    for level in range(1, block.groups.bit_length()):
        length = 2**level
        shape = (block.groups // length, length * period, states.shape[1])
        update = np.arange(1, length)
        height = np.minimum(update, length - update) * math.sqrt(period / length)
        v, h = (
            _States(x.reshape(*shape[:2], -1)[:, period:], _inside(gram, shape, period))
            for x, gram in ((of_v, grams[0]), (of_h, grams[1]))
        )
        inside = states.reshape(shape)[:, period:]
        found = out.reshape(shape)[:, period:]
        _add_bridge(v, h, inside, np.repeat(height, period), level, draw, found)


def _inside(gram: NDArray[np.float64], shape: tuple[int, ...], period: int) -> NDArray[np.float64]:
    """Products of the states inside each interval, (I, s, s), from those of all of a block."""
    intervals, steps = shape[:2]
    own: NDArray[np.float64] = np.einsum(
        "iaib->iab", gram.reshape(intervals, steps, intervals, steps)
    )
    return own[:, period:, period:]


@dataclass(frozen=True)
class _States:
    """States inside intervals, and their products."""

    x: NDArray[np.float64]
    """(I, s, N)"""
    gram: NDArray[np.float64]
    """xxᵀ (I, s, s)"""

    def factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """x = r a with orthonormal rows a (I, d, N), d ≤ s, and coordinates r (I, s, d).

        r is the Cholesky factor of xxᵀ and a = r⁻¹x, not worked out. Where states are too close to
        dependent for that, both come from Householder reflections, which never fail.
        """
        try:
            r = np.linalg.cholesky(self.gram).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            r = np.zeros_like(self.gram)
        new_part = np.diagonal(r, axis1=1, axis2=2) ** 2
        if (new_part > INDEPENDENT * np.diagonal(self.gram, axis1=1, axis2=2)).all():
            return r, None
        q, upper = np.linalg.qr(_transposed(self.x))
        return _transposed(upper), _transposed(q)


def _add_bridge(
    v: _States,
    h: _States,
    x: Float32,
    tent: NDArray[np.float64],
    level: int,
    draw: Draw,
    out: Float32,
) -> None:
    """out_k ← out_k + tent_k · Z x_k for the states x (I, s, N) inside I intervals, each with a Z.

    Bases are worked out for hidden states only: r_v A_v = x_v, so that with S = G′A_h and M = AᵀG

        Z_vhᵀ x_v + Z_hh x_h = r_v G′ + r_h G + [x_v Gᵀ_v − r_v S + r_h (C − M)] A_h.
    """
    (intervals, _, n_v), n_h = v.x.shape, h.x.shape[2]
    r_v, _ = v.factors()
    r_h, a_wide = h.factors()
    a = (np.linalg.inv(r_h) @ h.x if a_wide is None else a_wide).astype(np.float32)
    d_v, d_h = r_v.shape[2], r_h.shape[2]
    shapes = [(d_h, n_v), (d_v + d_h, n_h), (d_h, d_h), (1, n_h), (1, n_h)]
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    normals = draw(level, intervals * int(ends[-1])).reshape(intervals, -1)
    g_v, g, inner, own, on_bias = (
        piece.reshape(intervals, *shape)
        for piece, shape in zip(np.split(normals, ends[:-1], axis=1), shapes, strict=True)
    )
    along = g @ _transposed(a)
    m = along[:, d_v:]
    core = (m + _transposed(m)) * np.float32(math.sqrt(0.5))
    risen_v, risen_h = ((tent[:, None] * r).astype(np.float32) for r in (r_v, r_h))
    risen = tent.astype(np.float32)
    mixed = risen[:, None] * (x[..., :n_v] @ _transposed(g_v))
    mixed += risen_h @ (core - m) - risen_v @ along[:, :d_v]
    left_over = 1 - 2 * _dots(a, a)
    own = np.sqrt(np.maximum(left_over, 0)) * own
    for i in np.flatnonzero(left_over.min(axis=(1, 2)) < 0):
        own[i] = normals[i, None, ends[2] : ends[3]] @ _root_of_squares(a[i].astype(np.float64)).T
        inner[i] = 0
    quadratic = core - 2 * m + np.float32(math.sqrt(2)) * inner
    by_a = np.concatenate([mixed, quadratic], axis=1) @ a
    by_g = np.concatenate([risen_v, risen_h], axis=2) @ g
    _gather(risen_h @ g_v, by_g, by_a, a, g[:, d_v:], own[:, 0], on_bias[:, 0], risen, x, out)


@jit
def _gather(of_v, by_g, by_a, a, g, own, on_bias, tent, x, out):  # type: ignore[no-untyped-def]
    """Everything that acts on a state, added to ``out``; Z_aa x_a, which J_hh has not, taken off.

    P∘P = diag(1 − 2|A_a|²) + (AAᵀ)∘(AAᵀ), so q_a = √2 (√(1 − 2|A_a|²) z_a + A_aᵀ M′ A_a) with fresh
    normals z, M′, unless some |A_a|² exceeds ½ (it is about s/N_h): then from the root of P∘P.
    """
    steps, n_v = of_v.shape[1:]
    for i in range(of_v.shape[0]):
        diagonal = np.float32(math.sqrt(2)) * own[i]
        for d in range(a.shape[1]):
            product, basis, normal = by_a[i, steps + d], a[i, d], g[i, d]
            for j in range(diagonal.size):
                diagonal[j] += basis[j] * (2 * normal[j] + product[j])
        for k in range(steps):
            visible, hidden, x_h = out[i, k, :n_v], out[i, k, n_v:], x[i, k, n_v:]
            for j in range(n_v):
                visible[j] += of_v[i, k, j]
            first, second, bias = by_g[i, k], by_a[i, k], on_bias[i]
            for j in range(diagonal.size):
                hidden[j] += first[j] + second[j] + tent[k] * (bias[j] - diagonal[j] * x_h[j])


def _transposed(a: NDArray[Any]) -> NDArray[Any]:
    return a.swapaxes(-1, -2)


def _dots(a: Float32, b: Float32) -> Float32:
    """Σ_d a_db b_db (I, 1, N): products of columns."""
    dots: Float32 = np.einsum("idb,idb->ib", a, b)[:, None]
    return dots


def _root_of_squares(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root of P∘P, P = 1 − AAᵀ, positive semidefinite as an elementwise product of such."""
    projector = np.eye(a.shape[1]) - a.T @ a
    values, vectors = np.linalg.eigh(projector**2)
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0))
    return root


class UpdateNoise:
    """The unit noise of a seed: one draw for all amplitudes that learn from the same paths."""

    def __init__(self, machine: Machine, seed: int, period: int = 1) -> None:
        self.machine = machine
        self.blocks = noise_blocks(machine.steps, period)
        self._key = stream_key(seed, "update error")
        self._latest: tuple[tuple[int, bytes], tuple[Float32, Walk]] | None = None

    def trajectory(self, path: Float32, number: int) -> tuple[Float32, Walk]:
        """W_k x′_k (K, N) along this path, trajectory ``number`` of the seed, and W_K."""
        wanted = (number, path[[0, -1]].tobytes())
        latest = self._latest
        if latest is None or latest[0] != wanted:
            self._latest = latest = (wanted, self._draw(path, number))
        return latest[1]

    def _draw(self, path: Float32, number: int) -> tuple[Float32, Walk]:
        projected = np.zeros((len(path) - 1, path.shape[1]), np.float32)

        def whole(block: NoiseBlock) -> Walk:
            return whole_walk(self.machine, block.steps, self._normals(number, block))

        def fill(block: NoiseBlock, before: Walk, own: Walk) -> None:
            states, out = (rows[block.first : block.last] for rows in (path[1:], projected))
            before.project(np.ones(block.steps, np.float32), states, out)
            add_block(block, states, own, self._normals(number, block), out)

        together = thread_count()
        # W before each block of a round, and after the last: memory that all rounds share
        walks = [Walk.zeros(self.machine) for _ in range(together + 1)]
        for first in range(0, len(self.blocks), together):
            blocks = self.blocks[first : first + together]
            wholes = in_threads(whole, [(block,) for block in blocks])
            for (before, after), own in zip(pairwise(walks), wholes, strict=False):
                after.become(before, own)
            in_threads(fill, zip(blocks, walks, wholes, strict=False))
            walks[0], walks[len(blocks)] = walks[len(blocks)], walks[0]
        return projected, walks[0]

    def _normals(self, number: int, block: NoiseBlock) -> Draw:
        return lambda level, count: flat_normals(
            self._key, number, block.number * LEVELS + level, count
        )


_sources: WeakValueDictionary[tuple[Machine, int, int], UpdateNoise] = WeakValueDictionary()


def shared_noise(machine: Machine, seed: int, period: int = 1) -> UpdateNoise:
    """The source of a seed, the same object for all learners that live at the same time."""
    key = (machine, seed, period)
    source = _sources.get(key)
    if source is None:
        source = _sources[key] = UpdateNoise(machine, seed, period)
    return source


class UpdateNoiseLearner:
    """θ ← θ − α (u + σ ζ): ``Learner`` with update noise of strength σ = ``amplitude``."""

    def __init__(
        self,
        machine: Machine,
        learning_rate: float,
        amplitude: float,
        noise: UpdateNoise,
        period: int = 1,
    ) -> None:
        names = [block.name for block in layout(machine).blocks]
        if (
            names != ["visible_hidden", "hidden_hidden", "hidden_bias"]
            or machine.stages > 1
            or machine.sparse
        ):
            raise UserError(
                "imperfections.update_noise: defined for one stage, the wiring visible-hidden and "
                "hidden-hidden, complete, hidden biases and no labels; take residual_noise for "
                "other machines"
            )
        self.machine = machine
        self.learning_rate = learning_rate
        self.amplitude = amplitude
        self.noise = noise
        self._learner = Learner(machine, learning_rate, period)
        self._start = np.empty((machine.steps, machine.units), np.float32)

    def learn(
        self,
        theta: Parameters,
        path: Path,
        errors: Float32 | None = None,
        rate: float | None = None,
    ) -> Parameters:
        """θ after one noising path; its number counts in the stream of the noise."""
        projected, walk = self.noise.trajectory(path.states, path.number)
        rate = self.learning_rate if rate is None else rate
        scale = rate * self.amplitude
        weight = np.float32(-scale * self.machine.residual_scale)
        pieces = unit_ranges(self.machine.steps, thread_count())
        in_threads(
            _weighted_sum,
            [
                (weight, *(rows[low:high] for rows in (projected, path.prepared, self._start)))
                for low, high in pieces
            ],
        )
        moved = replace(path, prepared=self._start)
        return self._learner.learn(theta, moved, errors, _flat(walk, np.float32(-scale)), rate)


@jit
def _weighted_sum(weight, a, b, out):  # type: ignore[no-untyped-def]
    """out ← weight·a + b."""
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[k, i] = weight * a[k, i] + b[k, i]


def _flat(walk: Walk, scale: np.float32) -> Float32:
    """scale · W as a change of θ of one stage."""
    return scale * np.concatenate([walk.couplings.ravel(), walk.bias])
