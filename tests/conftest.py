"""Shared scenarios: computers small enough to check by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from thermoloom.machine.definition import Machine
from thermoloom.machine.computer import Computer


@pytest.fixture
def small() -> Machine:
    """Twelve visible and eight hidden units, two hundred steps."""
    return Machine(visible=12, hidden=8, duration=0.2)


@pytest.fixture
def fields(small: Machine) -> np.ndarray:
    """Fields of three prototypes."""
    return np.random.default_rng(1).normal(size=(3, small.units)).astype(np.float32)


def random_computer(machine: Machine, scale: float = 0.3, seed: int = 0) -> Computer:
    """Random parameters in float64, of the right symmetry."""
    rng = np.random.default_rng(seed)
    hidden = np.triu(rng.normal(size=(machine.hidden, machine.hidden)), 1)
    return Computer(
        scale * rng.normal(size=(machine.visible, machine.hidden)),
        scale * (hidden + hidden.T),
        scale * rng.normal(size=machine.hidden),
    )


def relative_difference(fast: Computer, reference: Computer) -> float:
    """Largest difference of any parameter, relative to the largest of its array."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(fast.arrays.values(), reference.arrays.values(), strict=True)
    )
