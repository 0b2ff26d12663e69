"""Rules and errors of a user, for the tests and their subprocesses."""

from __future__ import annotations

from typing import Any

import numpy as np


class Leaky:
    """θ ← (1 − λ)θ − v, v ← βv + αu, with a rate for each block: every part of a linear rule."""

    def __init__(self, leak: float = 0.01, beta: float = 0.5) -> None:
        self.leak, self.beta = leak, beta
        self.rates = {"hidden_hidden": 0.5, "hidden_bias": 2.0}

    def linear(self) -> Any:
        return [[1 - self.leak, -self.beta], [0, self.beta]], [-1, 1]


class Nesterov:
    """v ← βv + αu, θ ← θ − (βv + αu)."""

    def __init__(self, beta: float = 0.9) -> None:
        self.beta = beta

    def linear(self) -> Any:
        return [[1, -(self.beta**2)], [0, self.beta]], [-1 - self.beta, 1]


class Plain:
    """θ ← θ − αu, written as any other rule."""

    def step(self, theta: Any, state: Any, r: Any, x: Any, learning: Any) -> Any:
        u = learning.update(r, x)
        return {name: theta[name] - learning.rate * u[name] for name in theta}, state


class Signs:
    """θ ← θ − α sign(u)."""

    def step(self, theta: Any, state: Any, r: Any, x: Any, learning: Any) -> Any:
        u = learning.update(r, x)
        signs = {name: learning.xp.sign(u[name]) for name in theta}
        return {name: theta[name] - learning.rate * signs[name] for name in theta}, state


class Adam:
    """Two moving means for each coupling, and the number of updates."""

    def __init__(self, first: float = 0.9, second: float = 0.99) -> None:
        self.first, self.second = first, second

    def init(self, theta: Any) -> Any:
        zeros = {name: 0 * J for name, J in theta.items()}
        return {"mean": zeros, "square": zeros, "count": zeros}

    def step(self, theta: Any, state: Any, r: Any, x: Any, learning: Any) -> Any:
        u, count = learning.update(r, x), {n: each + 1 for n, each in state["count"].items()}
        a, b, after = self.first, self.second, {}
        mean = {n: a * state["mean"][n] + (1 - a) * u[n] for n in u}
        square = {n: b * state["square"][n] + (1 - b) * u[n] * u[n] for n in u}
        for name, J in theta.items():
            root = learning.xp.sqrt(square[name] / (1 - b ** count[name])) + 1e-8
            after[name] = J - learning.rate * mean[name] / (1 - a ** count[name]) / root
        return after, {"mean": mean, "square": square, "count": count}


class Telegraph:
    """An additive error that changes its sign at random."""

    def __init__(self, size: float = 0.5) -> None:
        self.size = size

    def additive(self, machine: Any, seed: int, trajectory: int) -> Any:
        rng = np.random.default_rng([seed, trajectory])
        return self.size * np.cumprod(rng.choice([-1, 1], (machine.steps, machine.units)), axis=0)


class Saturation:
    """Residuals are measured by an amplifier that saturates, with noise in proportion."""

    def __init__(self, level: float = 0.3, noise: float = 0.1) -> None:
        self.level, self.noise = level, noise

    def residual(self, r: Any, x: Any, z: Any) -> Any:
        return self.level * r / (self.level + abs(r)) * (1 + self.noise * z)
