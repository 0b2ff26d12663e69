"""Update noise: an independent Gaussian error on every formed update, as a response of θ.

    u_ij → u_ij + σ ζ_ij            every step, one ζ for an undirected pair
    θ = θ⁰ + σ Δ,   Δ learned from   R⁰_k = c J_Δ x′_k − αc W_k x′_k,   Δ → Δ − α W_K at the end

since updates are linear in θ. W_k = Σ_l ζ_l over the updates that step k has seen is a random walk
in the parameters. It advances by n updates at a time, and is resolved within them only along the
states of these steps. With orthonormal bases A, B of the states of two groups, P = 1 − AAᵀ,
Q = 1 − BBᵀ and G, H, E of standard normals, the noise of one update is

    between groups   Z = GBᵀ + A(HᵀQ) + PEQ                            so ZB = G
    within a group   Z = YAᵀ + AYᵀ − AMAᵀ + PEP,   Y = G + A(M − m),   m = AᵀG,   M = (m + mᵀ)/√2

G and H are drawn for each update, E once for the sum of n of them. Within a group Z has a diagonal,
which is taken off. The part diag PEP of it has a known sum, and in each update the covariance
2P∘P = 2[diag(1 − 2|A_i|²) + (AAᵀ)∘(AAᵀ)]. The law is exact, jointly for all steps and W_K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from thermoloom.engines import Path
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks
from thermoloom.engines.portable.learner import Learner
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.streams import Stream, draw_normals

LONGEST_SPAN = 16
"""Most steps over which W is advanced at once: longer spans need fewer E, but more G and H."""
Draw = Callable[..., Array]


def basis(library: NumPy, states: Array) -> Array:
    """Orthonormal columns (n, s) that span states (s, n)."""
    return library.xp.linalg.qr(states.T)[0]


def exposure(library: NumPy, machine: Machine, states: Array) -> Array:
    """Largest |A_i|² of a unit that is coupled within its group; 2P∘P needs at most ½."""
    largest = [library.xp.zeros_like(states[0, 0])]
    for block in layout(machine).blocks:
        if block.symmetric:
            A = basis(library, states[:, machine.groups[block.rows]])
            largest.append(library.xp.max((A * A).sum(1)))
    return library.xp.max(library.xp.stack(largest))


def noise_between(library: NumPy, draw: Draw, a: Array, b: Array, seen: Array) -> tuple[Array, ...]:
    """W_k b_k, W_kᵀ a_k and Σ Z for states a, b (s, units); ``seen`` (s, n): the updates before."""
    tensordot, n = library.xp.tensordot, seen.shape[1]
    A, B = basis(library, a), basis(library, b)
    G, H = draw(n, a.shape[1], B.shape[1]), draw(n, b.shape[1], A.shape[1])
    E = draw(a.shape[1], b.shape[1])
    H, E = H - B @ (B.T @ H), E - A @ (A.T @ E)
    total = G.sum(0) @ B.T + A @ H.sum(0).T + math.sqrt(n) * (E - (E @ B) @ B.T)
    G, H = tensordot(seen, G, 1), tensordot(seen, H, 1)
    on_rows = (G @ (b @ B)[:, :, None])[..., 0]
    on_columns = (a[:, None] @ G)[:, 0] @ B.T + (H @ (a @ A)[:, :, None])[..., 0]
    return on_rows, on_columns, total


def noise_within(library: NumPy, draw: Draw, x: Array, seen: Array) -> tuple[Array, Array]:
    """W_k x_k and Σ Z within one group, without the diagonal."""
    xp, n, root = library.xp, seen.shape[1], math.sqrt(0.5)
    A = basis(library, x)
    G, E = draw(n, *A.shape), draw(len(A), len(A))
    m = A.T @ G
    M = root * (m + xp.swapaxes(m, -1, -2))
    Y, E = G + A @ (M - m), root * (E + E.T)
    E = E - A @ (A.T @ E)
    rest, half = math.sqrt(n) * (E - (E @ A) @ A.T), Y.sum(0) @ A.T
    total = half + half.T - A @ M.sum(0) @ A.T + rest
    free = xp.clip(1 - 2 * (A * A).sum(1), 0, None)
    q = xp.sqrt(2 * free) * draw(n, len(A))
    q = q + math.sqrt(2) * ((A @ draw(n, A.shape[1], A.shape[1])) * A).sum(-1)
    diagonal = 2 * (Y * A).sum(-1) - ((A @ M) * A).sum(-1)
    diagonal = diagonal + q - q.mean(0) + xp.diagonal(rest) / n
    force = (xp.tensordot(seen, Y, 1) @ (x @ A)[:, :, None])[..., 0] - (seen @ diagonal) * x
    return force, total - xp.diag(xp.diagonal(total))


def advance(
    library: NumPy, static: tuple[Machine, int, int], walk: Blocks, states: Array, word: Any,
    keys: Array, counter: Array,
) -> tuple[Blocks, Array]:  # fmt: skip
    """W after n updates of ``period`` steps, and W_k x′_k of the steps, (n · period, N).

    ``static``: machine, n, period; ``counter``: trajectory, and number of the call on it.
    """
    (machine, n, period), draws = static, count()

    def draw(*shape: int) -> Array:
        blocks = (1, -(-math.prod(shape) // 4))
        z = draw_normals(library, blocks, keys, counter[:1], 64 * counter[1] + next(draws))
        return z.reshape(-1)[: math.prod(shape)].reshape(shape)

    x = couplings.all_groups(library, machine, states, word)
    number = np.arange(len(states)) // period
    seen = library.array(number[:, None] > np.arange(n))
    scale, following = math.sqrt(len(states) / n), {}
    force = {group: 0 * x[group] for group in x}
    for block in layout(machine).blocks:
        rows, columns = block.rows, block.columns
        if block.symmetric:
            on_rows, total = noise_within(library, draw, x[rows], seen)
        else:
            on_rows, on_columns, total = noise_between(library, draw, x[rows], x[columns], seen)
            force[columns] = force[columns] + scale * on_columns
        force[rows] = force[rows] + scale * on_rows
        following[block.name] = walk[block.name] + scale * total
    within = library.xp.concatenate([force[group] for group in machine.groups], -1)
    return following, couplings.forces(library, machine, walk, x) + within


@dataclass(frozen=True)
class NoiseResponse(Learner):
    """Δ′ from Δ and a path: the effect of unit noise on every update."""

    def __post_init__(self) -> None:
        if self.settings.machine.sparse:
            raise UserError(
                "imperfections.update_noise: needs complete wiring; take residual_noise"
            )

    def updates(self, states: Array) -> int:
        """n: updates that W takes at once, from the first of these states on."""
        most = max(1, min(LONGEST_SPAN, len(states)) // self.rule.period)
        n = 1 << (most.bit_length() - 1)
        while n > 1:
            part = states[: n * self.rule.period]
            if float(self.library.run(exposure, self.rule.machine, part)) <= 0.5:
                break
            n //= 2
        return n

    def walk(self, path: Path) -> tuple[Array, Any]:
        """W_k x′_k along a path (K, N), and W at the end of every stage, flat, (T, size)."""
        library, (machine, period, _), calls = self.library, self.rule, count()
        keys = Stream(library, self.settings.training.seed, "update error").keys
        along, ends, x = [], [], library.array(path.states[1:])
        word = None if path.word is None else library.array(path.word)
        for first, end in machine.stage_windows:
            walk = couplings.blocks_of(library, machine, np.zeros(layout(machine).size))
            while first < end:
                n = self.updates(x[first:end])
                last = min(first + n * period, end)
                counter = library.array([path.number, next(calls)], library.word)
                walk, force = library.run(
                    advance, (machine, n, period), walk, x[first:last], word, keys, counter
                )
                along.append(force)
                first = last
            ends.append(couplings.vector_of(library, machine, walk))
        return library.xp.concatenate(along, 0), np.stack(ends)

    def lesson(self, path: Path) -> tuple[Array, Any]:
        """−αc W_k x′_k, which stands for uncoupled residuals, and −α W_K."""
        along, end = self.walk(path)
        rate = self.settings.learning_rate_of(path.number)
        return -rate * self.rule.machine.residual_scale * along, -rate * end
