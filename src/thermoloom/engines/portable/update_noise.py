"""Update noise: an independent Gaussian error on every formed update, as a response of θ.

    u_ij → u_ij + σ ζ_ij            every step, one ζ for an undirected pair
    θ = θ⁰ + σ Δ,   Δ learned from   R⁰_k = c J_Δ x′_k − αc W_k x′_k,   Δ → Δ − α W_K at the end

since updates are linear in θ. W_k = Σ_l ζ_l over the updates that step k has seen is a random walk.
It advances by n updates, and within them by midpoint displacement (Lévy): after t of n updates of
M steps each

    W = W_0 + (t/n)(W_n − W_0) + Σ_intervals √(M/L) min(t − a, a + L − t) Z     for a < t < a + L

with a normal matrix Z for each interval of L = n, n/2, …, 2 updates, which acts only on the states
inside. With orthonormal bases A, B of the states of two groups inside, P = 1 − AAᵀ, Q = 1 − BBᵀ and
normals G, H, E

    between groups   Z = GBᵀ + A(HᵀQ) + PEQ,        so that ZB = G,  ZᵀA = BGᵀA + QH
    within a group   (Z + Zᵀ)/√2 without its diagonal, A = B

so of E only the diagonal of PEP is needed, whose covariance is P∘P = diag(1 − 2|A_i|²) +
(AAᵀ)∘(AAᵀ). The distribution is exact, jointly for all steps and W_K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from thermoloom.engines import Path
from thermoloom.engines.library import Array, NumPy
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks, Groups
from thermoloom.engines.portable.learner import Learner
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.streams import Stream, draw_normals
from thermoloom.threads import linear_algebra

LONGEST_SPAN = 64
"""Largest number of steps over which W is advanced at once: longer spans need fewer W_n, but more
levels."""


def basis(library: NumPy, states: Array) -> Array:
    """Orthonormal columns (…, n, s) that span states (…, s, n)."""
    return library.xp.linalg.qr(library.transposed(states))[0]


def exposure(library: NumPy, machine: Machine, states: Array) -> Array:
    """Largest |A_i|² of a unit that is coupled within its group; P∘P is drawn where it is ≤ ½."""
    groups = [block.rows for block in layout(machine).blocks if block.symmetric]
    bases = [basis(library, states[:, machine.groups[group]]) for group in groups]
    return library.xp.max(library.xp.concatenate([0 * states[0], *((A * A).sum(1) for A in bases)]))


def bridges(library: NumPy, machine: Machine, draw: Any, x: Groups) -> Array:
    """Σ_j Z_ij x_j (…, s, N) of the states inside an interval, by group; ``draw``: normals."""
    transposed = library.transposed
    force, bases = {group: 0 * x[group] for group in x}, {g: basis(library, x[g]) for g in x}
    for block in layout(machine).blocks:
        a, b, A, B = x[block.rows], x[block.columns], bases[block.rows], bases[block.columns]
        G, H = draw(*A.shape[:-1], B.shape[-1]), draw(*B.shape[:-1], A.shape[-1])
        H = H - B @ (transposed(B) @ H)
        on_rows = (b @ B) @ transposed(G)
        on_columns = (a @ G) @ transposed(B) + (a @ A) @ transposed(H)
        if block.symmetric:
            along = G + H + A @ draw(*A.shape[:-2], *2 * A.shape[-1:])
            alone = library.xp.sqrt(library.xp.clip(1 - 2 * (A * A).sum(-1), 0, None))
            diagonal = (along * A).sum(-1) + alone * draw(*A.shape[:-1])
            on_rows = (on_rows + on_columns - 2 * diagonal[..., None, :] * a) / math.sqrt(2)
        else:
            force[block.columns] = force[block.columns] + on_columns
        force[block.rows] = force[block.rows] + on_rows
    return library.xp.concatenate([force[group] for group in machine.groups], -1)


def advance(
    library: NumPy, static: tuple[Machine, int, int], walk: Blocks, states: Array, word: Any,
    keys: Array, counter: Array,
) -> tuple[Blocks, Array]:  # fmt: skip
    """W after n updates of ``period`` steps, and W_k x′_k of the steps, (n · period, N).

    ``static``: machine, n, period; ``counter``: trajectory, and number of the call on it.
    """
    (machine, n, period), draws = static, count()

    def draw(*shape: int) -> Array:
        size, first = math.prod(shape), 256 * counter[1] + next(draws)  # fewer than 256 draws
        z = library.run(draw_normals, (1, -(-size // 4)), keys, counter[:1], first)
        return z.reshape(-1)[:size].reshape(shape)

    x = couplings.all_groups(library, machine, states, word)
    done = library.array(np.arange(len(states)) // period / n)[:, None]
    change = {}
    for block in layout(machine).blocks:
        drawn = math.sqrt(len(states)) * draw(*walk[block.name].shape)
        lower = library.xp.tril(drawn, -1)
        change[block.name] = lower + lower.T if block.symmetric else drawn
    force = couplings.forces(library, machine, x, walk)
    force = force + done * couplings.forces(library, machine, x, change)
    for length in (2**level for level in range(1, n.bit_length())):
        inside = states.reshape(n // length, length * period, -1)[:, period:]
        update = np.arange(period, length * period) // period
        tent = np.minimum(update, length - update) * math.sqrt(period / length)
        x = couplings.all_groups(library, machine, inside, word)
        bridge = library.array(tent)[:, None] * bridges(library, machine, draw, x)
        bridge = library.xp.concatenate([0 * bridge[:, :period], bridge], 1)
        force = force + bridge.reshape(force.shape)
    return {name: W + change[name] for name, W in walk.items()}, force


@dataclass(frozen=True)
class NoiseResponse(Learner):
    """Δ′ from Δ and a path: the effect of unit noise on every update."""

    def __post_init__(self) -> None:
        if self.rule.machine.sparse:
            raise UserError(
                "imperfections.update_noise: needs a wire for every pair; use complete wiring, or "
                "residual_noise"
            )

    def updates(self, states: Array) -> int:
        """n: updates that W takes at once, beginning with these states; a power of two."""
        machine, period = self.rule.machine, self.rule.period
        n = 1 << (max(1, min(LONGEST_SPAN, len(states)) // period).bit_length() - 1)
        while n > 1 and float(self.library.run(exposure, machine, states[: n * period])) > 0.5:
            n //= 2
        return n

    @linear_algebra()
    def lesson(self, path: Path) -> tuple[Array, Any]:
        """−αc W_k x′_k, which replaces uncoupled residuals, and −α W_K."""
        library, machine, calls = self.library, self.rule.machine, count()
        keys = Stream(library, self.settings.training.seed, "update error").keys
        along, ends, x = [], [], library.array(path.states[1:])
        word = None if path.word is None else library.array(path.word)
        for first, end in machine.stage_windows:
            walk = couplings.blocks_of(library, machine, np.zeros(layout(machine).size))
            while first < end:
                static = machine, self.updates(x[first:end]), self.rule.period
                states = x[first : min(first + static[1] * static[2], end)]
                counter = library.array([path.number, next(calls)], library.word)
                walk, force = library.run(advance, static, walk, states, word, keys, counter)
                along.append(force)
                first += len(states)
            ends.append(couplings.vector_of(library, machine, walk))
        rate, force = self.settings.learning_rate_of(path.number), library.xp.concatenate(along, 0)
        return -rate * machine.residual_scale * force, -rate * np.stack(ends)
