"""Shared scenarios: computers small enough to check by brute force."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import numpy as np
import pytest

from thermoloom.config import Physics
from thermoloom.physics.computer import Computer


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Signals are handled as in a fresh process in the foreground.

    A command that ends ignores them from then on, and so do a shell's jobs in the background; what
    tests start would inherit that.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for signum, handler in usual.items():
        signal.signal(signum, handler)
    yield
    for signum, handler in usual.items():
        signal.signal(signum, handler)


@pytest.fixture
def small() -> Physics:
    """Twelve visible and eight hidden units, two hundred steps."""
    return Physics(visible=12, hidden=8, duration=0.2)


@pytest.fixture
def fields(small: Physics) -> np.ndarray:
    """Fields of three prototypes."""
    return np.random.default_rng(1).normal(size=(3, small.units)).astype(np.float32)


def random_computer(physics: Physics, scale: float = 0.3, seed: int = 0) -> Computer:
    """Random parameters in float64, of the right symmetry."""
    rng = np.random.default_rng(seed)
    hidden = np.triu(rng.normal(size=(physics.hidden, physics.hidden)), 1)
    return Computer(
        scale * rng.normal(size=(physics.visible, physics.hidden)),
        scale * (hidden + hidden.T),
        scale * rng.normal(size=physics.hidden),
    )


def relative_difference(fast: Computer, reference: Computer) -> float:
    """Largest difference of any parameter, relative to the largest of its array."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(fast.arrays.values(), reference.arrays.values(), strict=True)
    )
