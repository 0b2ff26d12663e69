"""Update noise of strength σ: θ = θ⁰ + σ Δ, by two learners that are independent of σ.

Noise is added to updates, and updates are linear in θ. One learner therefore learns θ⁰ without
noise; the other learns Δ from noise of strength 1 alone. Computers that differ only in σ and learn
from the same paths share both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thermoloom.engines import Diverged, Learner, Lesson, Path, State
from thermoloom.machine.parameters import Parameters


@dataclass(frozen=True)
class NoisyLearner:
    """Learns θ = θ⁰ + σ Δ; its state is θ⁰ and Δ."""

    clean: Learner
    response: Learner
    amplitude: float

    def init(self, theta: Parameters) -> State:
        return {"clean": theta.vector, "response": np.zeros_like(theta.vector)}

    def update(self, theta: Parameters, state: State, path: Path) -> Lesson:
        clean, response = (
            path.learned(learner, theta.with_vector(state[part]), {})[0].vector
            for learner, part in ((self.clean, "clean"), (self.response, "response"))
        )
        vector = clean + np.float32(self.amplitude) * response
        if not np.isfinite(vector).all():
            raise Diverged("couplings are no longer finite")
        return theta.with_vector(vector), {"clean": clean, "response": response}
