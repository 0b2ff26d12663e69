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
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine import Path
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
        shape = (machine.units, machine.hidden)
        return cls(np.zeros(shape, np.float32), np.zeros(machine.hidden, np.float32))

    def add(self, other: Walk) -> None:
        """W ← W + W′."""
        np.add(self.couplings, other.couplings, out=self.couplings)
        np.add(self.bias, other.bias, out=self.bias)

    def project(self, weights: Float32, states: Float32, out: Float32) -> None:
        """out_k ← out_k + weight_k W x_k, for each state (a row)."""
        n = len(self.couplings) - len(self.bias)
        x = weights[:, None] * states
        out[:, :n] += x[:, n:] @ self.couplings[:n].T
        out[:, n:] += x @ self.couplings + np.outer(weights, self.bias)


def whole_walk(machine: Machine, steps: int, draw: Draw) -> Walk:
    """W_B = √steps times a normal on every undirected edge and hidden bias."""
    v, h = machine.visible, machine.hidden
    normals = draw(0, v * h + h * (h - 1) // 2 + h)
    scale = np.float32(math.sqrt(steps))
    couplings = np.empty((v + h, h), np.float32)
    np.multiply(scale, normals[: v * h].reshape(v, h), out=couplings[:v])
    _mirrored(normals[v * h : -h], scale, couplings[v:])
    return Walk(couplings, scale * normals[-h:])


def add_block(block: NoiseBlock, states: Float32, whole: Walk, draw: Draw, out: Float32) -> None:
    """out_k ← out_k + (W_k − W_0) x′_k (B, N) in a block with states x′ and W_B = ``whole``."""
    period = block.period
    updates = np.repeat(np.arange(block.groups), period)
    whole.project((updates / block.groups).astype(np.float32), states, out)
    for level in range(1, block.groups.bit_length()):
        length = 2**level
        shape = (block.groups // length, length * period, states.shape[1])
        inside = states.reshape(shape)[:, period:]
        update = np.arange(1, length)
        height = np.minimum(update, length - update) * math.sqrt(period / length)
        tent = np.repeat(height, period).astype(np.float32)
        x_v, x_h = np.split(inside, [-len(whole.bias)], axis=2)
        out.reshape(shape)[:, period:] += _bridge(x_v, x_h, tent, level, draw)


def _bridge(x_v: Float32, x_h: Float32, tent: Float32, level: int, draw: Draw) -> Float32:
    """tent_k · Z x_k for the states x (I, s, N) inside I intervals, with a Z for each."""
    (intervals, steps, n_v), n_h = x_v.shape, x_h.shape[2]
    r_v, a_v = _basis(x_v)
    r_h, a_h = _basis(x_h)
    d_v, d_h = a_v.shape[1], a_h.shape[1]
    shapes = [(d_h, n_v), (d_v, n_h), (d_h, n_h), (d_h, d_h), (1, n_h), (1, n_h)]
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    normals = draw(level, intervals * int(ends[-1])).reshape(intervals, -1)
    g_v, g_h, g_hh, inner, own, on_bias = (
        piece.reshape(intervals, *shape)
        for piece, shape in zip(np.split(normals, ends[:-1], axis=1), shapes, strict=True)
    )
    za_h = g_h + (a_v @ _transposed(g_v) - g_h @ _transposed(a_h)) @ a_h
    za_hh, diagonal = _symmetric(a_h, g_hh, inner, own)
    tent = tent[:, None]
    out = np.empty((intervals, steps, n_v + n_h), np.float32)
    np.matmul(tent * r_h, g_v, out=out[..., :n_v])
    np.matmul(tent * r_v, za_h, out=out[..., n_v:])
    out[..., n_v:] += (tent * r_h) @ za_hh
    out[..., n_v:] += tent * (on_bias - diagonal * x_h)
    return out


def _basis(x: Float32) -> tuple[Float32, Float32]:
    """x = r a with orthonormal rows a (I, d, N), d ≤ s, and coordinates r (I, s, d).

    From the Cholesky factor of xxᵀ in float64 or, where states are too close to dependent for
    that, by Householder reflections, which never fail.
    """
    wide = x.astype(np.float64)
    gram = wide @ _transposed(wide)
    try:
        r = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        r = np.zeros_like(gram)
    new_part = np.diagonal(r, axis1=1, axis2=2) ** 2
    if (new_part > INDEPENDENT * np.diagonal(gram, axis1=1, axis2=2)).all():
        a = np.linalg.inv(r) @ wide
    else:
        q, upper = np.linalg.qr(_transposed(wide))
        a, r = _transposed(q), _transposed(upper)
    return r.astype(np.float32), a.astype(np.float32)


def _transposed(a: NDArray[Any]) -> NDArray[Any]:
    return a.swapaxes(-1, -2)


def _symmetric(a: Float32, g: Float32, inner: Float32, own: Float32) -> tuple[Float32, Float32]:
    """(ZA)ᵀ (I, d, N_h) and Z_aa (I, 1, N_h) of a symmetric Z, from normals g, inner and own.

    P∘P = diag(1 − 2|A_a|²) + (AAᵀ)∘(AAᵀ), so q_a = √2 (√(1 − 2|A_a|²) z_a + A_aᵀ M′ A_a) with fresh
    normals z, M′, unless some |A_a|² exceeds ½ (it is about s/N_h): then from the root of P∘P.
    """
    m = g @ _transposed(a)
    core = (m + _transposed(m)) * np.float32(math.sqrt(0.5))
    za = g + (core - m) @ a
    left_over = 1 - 2 * _dots(a, a)
    q = np.sqrt(np.maximum(left_over, 0)) * own + _dots(inner @ a, a)
    for i in np.flatnonzero(left_over.min(axis=(1, 2)) < 0):
        q[i] = own[i] @ _root_of_squares(a[i].astype(np.float64)).T
    return za, np.float32(math.sqrt(2)) * q + _dots(2 * za - core @ a, a)


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

        def piece(low: int, high: int) -> Walk:
            """Fill in blocks low … high. W of the blocks before is drawn again: no piece waits."""
            walk = Walk.zeros(self.machine)
            for block in self.blocks[:high]:
                normals = self._normals(number, block)
                whole = whole_walk(self.machine, block.steps, normals)
                if block.number >= low:
                    steps = slice(block.first, block.last)
                    states, out = path[1:][steps], projected[steps]
                    walk.project(np.ones(block.steps, np.float32), states, out)
                    add_block(block, states, whole, normals, out)
                walk.add(whole)
            return walk

        walks = in_threads(piece, unit_ranges(len(self.blocks), thread_count()))
        return projected, walks[-1]

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
        np.multiply(projected, np.float32(-scale * self.machine.residual_scale), out=self._start)
        self._start += path.prepared
        moved = replace(path, prepared=self._start)
        return self._learner.learn(theta, moved, errors, _flat(walk, np.float32(-scale)), rate)


def _flat(walk: Walk, scale: np.float32) -> Float32:
    """scale · W as a change of θ of one stage."""
    return scale * np.concatenate([walk.couplings.ravel(), walk.bias])
