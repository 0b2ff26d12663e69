"""Update noise: an independent Gaussian error on every update, as a response of θ.

    u_ij → u_ij + σ ζ_ij,   u_a → u_a + σ ζ_a      every step, one ζ per undirected edge, σ = σ_upd

Residuals are linear in θ and updates are linear in residuals, so θ = θ⁰ + σ Δ. θ⁰ is learned
without noise, and Δ by the same rule from unit noise alone. With W_k = Σ_l ζ_l over the updates
that step k has seen,

    R⁰_k = c J_Δ x′_k − αc W_k x′_k,   and   Δ → Δ − α W_K at the end of the trajectory.

This is exact for every σ at once: a sweep over σ takes two trainings and one draw.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Path
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noise_walk import NoiseWalk
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout

Float32 = NDArray[np.float32]


class NoiseResponse:
    """Δ′ = learn(Δ, path): the response of θ to unit noise on updates."""

    def __init__(self, machine: Machine, seed: int, period: int = 1) -> None:
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
        self.walk = NoiseWalk(machine, seed, period)
        self._learner = Learner(machine, 0.0, period)

    def learn(self, response: Parameters, path: Path, rate: float) -> Parameters:
        """Δ after one noising path, at α = ``rate``; its number selects the trajectory of noise."""
        projected, walk = self.walk.along(path.states, path.number)
        projected *= np.float32(-rate * self.machine.residual_scale)
        change = np.float32(-rate) * np.concatenate([walk.couplings.ravel(), walk.bias])
        noise = replace(path, prepared=projected)
        return self._learner.learn(response, noise, change=change, rate=rate)
