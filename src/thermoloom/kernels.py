"""Compile every kernel once, on a computer of four units, so that the wait is seen as such."""

from __future__ import annotations

import numpy as np

from thermoloom.config import Physics, Settings
from thermoloom.generation import generate
from thermoloom.training.trainer import train


def compile_kernels() -> None:
    """Run the whole way at the smallest size; takes seconds the first time, then milliseconds."""
    settings = Settings(physics=Physics(visible=2, hidden=2, duration=0.01)).updated(
        {"training": {"cycles": 1}}
    )
    grid = {"bits": 8, "range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    for imperfections in ({"residual_noise": 0.1}, {"update_noise": 0.1}, grid):
        chosen = settings.updated({"imperfections": imperfections})
        trained = train(chosen, np.zeros((1, 4), np.float32))
    generate(settings.physics, trained.computer, samples=1, seed=0)
