"""Update noise: an independent Gaussian error on every formed update, as a response of θ.

    u_ij → u_ij + σ ζ_ij            every step, one ζ for an undirected pair
    θ = θ⁰ + σ Δ,   Δ learned from   R⁰_k = c J_Δ x′_k − αc W_k x′_k,   Δ → Δ − α W_K at the end

since updates are linear in θ. W_k = Σ_l ζ_l over the updates that step k has seen is a random walk
in the parameters. It advances by n updates at a time, and is resolved within them only along the
states of these steps. With orthonormal bases A, B of the states of two groups, P = 1 − AAᵀ,
Q = 1 − BBᵀ and G, H, E of standard normals, the noise of one update is

    between groups   Z = GBᵀ + A(HᵀQ) + PEQ,        so that ZB = G
    within a group   (Z + Zᵀ)/√2 without its diagonal, A = B

G and H are drawn for each update, E once for the sum of n of them. The diagonal of PEP has a known
sum, and in each update the covariance P∘P = diag(1 − 2|A_i|²) + (AAᵀ)∘(AAᵀ). The law is exact,
jointly for all steps and W_K.
"""

from __future__ import annotations

import math
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


def basis(library: NumPy, states: Array) -> Array:
    """Orthonormal columns (n, s) that span states (s, n)."""
    return library.xp.linalg.qr(states.T)[0]


def exposure(library: NumPy, machine: Machine, states: Array) -> Array:
    """Largest |A_i|² of a unit that is coupled within its group; P∘P is drawn where it is ≤ ½."""
    groups = [block.rows for block in layout(machine).blocks if block.symmetric]
    bases = [basis(library, states[:, machine.groups[group]]) for group in groups]
    exposures = [0 * states[0, :1], *((A * A).sum(1) for A in bases)]
    return library.xp.max(library.xp.concatenate(exposures))


def noise(library: NumPy, draw: Any, a: Array, b: Array, seen: Array) -> tuple[Array, ...]:
    """W_k b_k, W_kᵀ a_k, Σ Z and, where a is b, diag Z of each update, for states a, b (s, units).

    ``seen`` (s, n): 1 for the updates before a step; ``draw(*shape)``: normals.
    """
    tensordot, n = library.xp.tensordot, seen.shape[1]
    A, B = basis(library, a), basis(library, b)
    G, H = draw(n, a.shape[1], B.shape[1]), draw(n, b.shape[1], A.shape[1])
    E = draw(a.shape[1], b.shape[1])
    H, E = H - B @ (B.T @ H), E - A @ (A.T @ E)
    rest = math.sqrt(n) * (E - (E @ B) @ B.T)
    diagonal = 0 * rest[0, 0]
    if a is b:
        independent = library.xp.clip(1 - 2 * (A * A).sum(1), 0, None)
        q = library.xp.sqrt(independent) * draw(n, len(A))
        q = q + ((A @ draw(n, A.shape[1], A.shape[1])) * A).sum(-1)
        diagonal = ((G + H) * A).sum(-1) + q - q.mean(0) + library.xp.diagonal(rest) / n
    total = G.sum(0) @ B.T + A @ H.sum(0).T + rest
    G, H = tensordot(seen, G, 1), tensordot(seen, H, 1)
    on_rows = (G @ (b @ B)[:, :, None])[..., 0]
    on_columns = (a[:, None] @ G)[:, 0] @ B.T + (H @ (a @ A)[:, :, None])[..., 0]
    return on_rows, on_columns, total, diagonal


def advance(
    library: NumPy, static: tuple[Machine, int, int], walk: Blocks, states: Array, word: Any,
    keys: Array, counter: Array,
) -> tuple[Blocks, Array]:  # fmt: skip
    """W after n updates of ``period`` steps, and W_k x′_k of the steps, (n · period, N).

    ``static``: machine, n, period; ``counter``: trajectory, and number of the call on it.
    """
    (machine, n, period), draws = static, count()

    def draw(*shape: int) -> Array:
        size, first = math.prod(shape), 64 * counter[1] + next(draws)
        z = draw_normals(library, (1, -(-size // 4)), keys, counter[:1], first)
        return z.reshape(-1)[:size].reshape(shape)

    x = couplings.all_groups(library, machine, states, word)
    number = np.arange(len(states)) // period
    seen, scale = library.array(number[:, None] > np.arange(n)), math.sqrt(len(states) / n)
    force, following = {group: 0 * x[group] for group in x}, {}
    for block in layout(machine).blocks:
        rows, columns = x[block.rows], x[block.columns]
        on_rows, on_columns, total, diagonal = noise(library, draw, rows, columns, seen)
        if block.symmetric:
            on_rows = (on_rows + on_columns - 2 * (seen @ diagonal) * rows) / math.sqrt(2)
            total = total - library.xp.diag(library.xp.diagonal(total))
            total = (total + total.T) / math.sqrt(2)
        else:
            force[block.columns] = force[block.columns] + scale * on_columns
        force[block.rows] = force[block.rows] + scale * on_rows
        following[block.name] = walk[block.name] + scale * total
    within = library.xp.concatenate([force[group] for group in machine.groups], -1)
    return following, couplings.forces(library, machine, walk, x) + within


@dataclass(frozen=True)
class NoiseResponse(Learner):
    """Δ′ from Δ and a path: the effect of unit noise on every update."""

    def __post_init__(self) -> None:
        if self.rule.machine.sparse:
            raise UserError("imperfections.update_noise: take complete wiring, or residual_noise")

    def updates(self, states: Array) -> int:
        """n: updates that W takes at once, from the first of these states on; a power of two."""
        machine, period, _ = self.rule
        n = 1 << (max(1, min(LONGEST_SPAN, len(states)) // period).bit_length() - 1)
        while n > 1 and float(self.library.run(exposure, machine, states[: n * period])) > 0.5:
            n //= 2
        return n

    def lesson(self, path: Path) -> tuple[Array, Any]:
        """−αc W_k x′_k, which stands for uncoupled residuals, and −α W_K."""
        library, (machine, period, _), calls = self.library, self.rule, count()
        keys = Stream(library, self.settings.training.seed, "update error").keys
        along, ends, x = [], [], library.array(path.states[1:])
        word = None if path.word is None else library.array(path.word)
        for first, end in machine.stage_windows:
            walk = couplings.blocks_of(library, machine, np.zeros(layout(machine).size))
            while first < end:
                static = machine, self.updates(x[first:end]), period
                states = x[first : min(first + static[1] * period, end)]
                counter = library.array([path.number, next(calls)], library.word)
                walk, force = library.run(advance, static, walk, states, word, keys, counter)
                along.append(force)
                first += len(states)
            ends.append(couplings.vector_of(library, machine, walk))
        rate, force = self.settings.learning_rate_of(path.number), library.xp.concatenate(along, 0)
        return -rate * machine.residual_scale * force, -rate * np.stack(ends)
