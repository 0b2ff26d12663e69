"""Block training against the stepwise reference; the second-order expansion with its slopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_computer, relative_difference

from thermoloom.config import Physics, Settings
from thermoloom.physics.action import gradient, gradient_of_residuals, residuals
from thermoloom.physics.computer import Computer
from thermoloom.prototypes import load_prototypes, unit_fields
from thermoloom.threads import threads
from thermoloom.training.learner import Diverged, Learner, learn_stepwise
from thermoloom.training.noising import noising_path

ROUND_OFF = 5e-6
"""Float32 against float64 over two hundred updates."""


@pytest.mark.parametrize("period", [1, 7, 10, 30, 100, 200])
@pytest.mark.parametrize("learning_rate", [4e-4, 0.02, 0.5])
@pytest.mark.parametrize("with_errors", [False, True])
def test_blocks_equal_the_stepwise_rule(
    small: Physics, fields: np.ndarray, period: int, learning_rate: float, with_errors: bool
) -> None:
    """Any period, any learning rate (at 0.5 strips must be halved), with errors or without."""
    path = noising_path(small, fields[0], 1, 0)
    shape = (small.steps, small.units)
    errors = 0.2 * np.random.default_rng(3).normal(size=shape) if with_errors else None
    start = random_computer(small, 0.1).astype(np.float32)
    reference = learn_stepwise(small, start, path, learning_rate, period, errors)
    learner = Learner(small, learning_rate, period, start)
    learner.learn(path, None if errors is None else errors.astype(np.float32))
    assert relative_difference(learner.computer, reference) < ROUND_OFF


@pytest.mark.parametrize("period", [1, 7])
def test_the_papers_computer_learns_as_the_stepwise_rule(period: int) -> None:
    """784 + 512 units, two hundred steps from couplings of the size of trained ones.

    What is compared is what was learned: beside θ itself an error of it would look small.
    """
    settings = Settings()
    patterns = load_prototypes(settings.prototypes, settings.physics)
    physics = replace(settings.physics, duration=0.2)
    path = noising_path(physics, unit_fields(patterns, settings)[0], 101, 0)
    start = random_computer(physics, 0.02).astype(np.float32)
    rate = 10 * settings.learning_rate
    reference = learn_stepwise(physics, start, path, rate, period)
    learner = Learner(physics, rate, period, start)
    learner.learn(path)
    learned, expected = (
        Computer(*(a - b for a, b in zip(c.arrays.values(), start.arrays.values(), strict=True)))
        for c in (learner.computer.astype(np.float64), reference)
    )
    assert relative_difference(learned, expected) < ROUND_OFF


@pytest.mark.parametrize("block_steps", [1, 2, 13, 64, 200, 1000])
@pytest.mark.parametrize("strip_steps", [1, 8, 24, 1000])
@pytest.mark.parametrize("period", [1, 3])
def test_lengths_of_blocks_and_strips_do_not_matter(
    small: Physics, fields: np.ndarray, block_steps: int, strip_steps: int, period: int
) -> None:
    path = noising_path(small, fields[0], 1, 0)
    reference = learn_stepwise(small, Computer.zeros(small), path, 4e-3, period)
    learner = Learner(small, 4e-3, period, block_steps=block_steps, strip_steps=strip_steps)
    learner.learn(path)
    assert relative_difference(learner.computer, reference) < ROUND_OFF


def test_large_learning_rate_needs_shorter_strips() -> None:
    """αc‖x‖²S ≫ 1: a strip of 24 does not contract, and the learner must notice."""
    physics = Physics(visible=60, hidden=40, duration=0.2)
    field = 3 * np.random.default_rng(0).normal(size=physics.units).astype(np.float32)
    path = noising_path(physics, field, 1, 0)
    learner = Learner(physics, 5.0)
    learner.learn(path)
    assert learner.shortest_strip < 20
    reference = learn_stepwise(physics, Computer.zeros(physics), path, 5.0)
    assert relative_difference(learner.computer, reference) < 20 * ROUND_OFF


@pytest.mark.parametrize(("period", "rate"), [(1, 4e-4), (1, 5.0), (10, 4e-4), (200, 4e-4)])
def test_threads_do_not_change_a_bit(fields: np.ndarray, period: int, rate: float) -> None:
    """Nor where strips must be halved."""
    physics = Physics(visible=64, hidden=33, duration=0.2)
    field = np.random.default_rng(0).normal(size=physics.units).astype(np.float32)
    path = noising_path(physics, field, 1, 0)
    computers = []
    for count in (1, 2):
        with threads(count):
            learner = Learner(physics, rate, period)
            for _ in range(3 if rate < 1 else 1):
                learner.learn(path)
            computers.append(learner.computer)
    assert computers[0].same_as(computers[1])


def test_batch_is_one_step_down_the_gradient(small: Physics, fields: np.ndarray) -> None:
    path = noising_path(small, fields[0], 1, 0)
    start = random_computer(small, 0.1).astype(np.float32)
    learner = Learner(small, 1e-3, small.steps, start)
    learner.learn(path)
    slope = gradient(start.astype(np.float64), small, path.astype(np.float64))
    for name, array in learner.computer.arrays.items():
        expected = start.arrays[name] - 1e-3 * slope.arrays[name]
        np.testing.assert_allclose(array, expected, atol=2e-6)


def test_symmetry_and_zero_diagonal_are_exact() -> None:
    physics = Physics(visible=30, hidden=45, duration=0.1)
    field = np.random.default_rng(0).normal(size=physics.units).astype(np.float32)
    learner = Learner(physics, 1e-2)
    learner.learn(noising_path(physics, field, 1, 0))
    learner.computer.check(physics)
    assert np.count_nonzero(learner.computer.hidden_hidden) == 45 * 44


def test_a_path_that_is_too_long_is_refused(small: Physics, fields: np.ndarray) -> None:
    path = noising_path(small, fields[0], 1, 0)
    with pytest.raises(ValueError, match="longer than"):
        Learner(small, 4e-4).learn(np.concatenate([path, path]))


def test_divergence_is_reported(small: Physics, fields: np.ndarray) -> None:
    path = noising_path(small, fields[0], 1, 0)
    learner = Learner(small, 1e9, small.steps)

    def go_on() -> None:
        for _ in range(10):
            learner.learn(path)

    with pytest.raises(Diverged):
        go_on()


def test_online_minus_batch_is_second_order(small: Physics, fields: np.ndarray) -> None:
    """‖θ_online − θ_batch‖ ∝ α², and ∝ α³ once α² Σ_{k>l} H_k g_l is taken off; slopes measured."""
    path = noising_path(small, fields[0], 1, 0).astype(np.float64)
    start = random_computer(small, 0.1)
    term = second_order_term(small, start, path)
    rates = np.array([4e-3, 2e-3, 1e-3])
    differences, remainders = [], []
    for rate in rates:
        online = learn_stepwise(small, start, path, rate, 1)
        batch = learn_stepwise(small, start, path, rate, small.steps)
        difference = [
            a - b for a, b in zip(online.arrays.values(), batch.arrays.values(), strict=True)
        ]
        remainder = [d - rate**2 * t for d, t in zip(difference, term.arrays.values(), strict=True)]
        differences.append(np.sqrt(sum(np.sum(d**2) for d in difference)))
        remainders.append(np.sqrt(sum(np.sum(r**2) for r in remainder)))
    slope = np.polyfit(np.log(rates), np.log(differences), 1)[0]
    remainder_slope = np.polyfit(np.log(rates), np.log(remainders), 1)[0]
    assert abs(slope - 2) < 0.05
    assert abs(remainder_slope - 3) < 0.05


def second_order_term(physics: Physics, start: Computer, path: np.ndarray) -> Computer:
    """Σ_{k>l} H_k g_l: H_k v is g_k(θ₀ + v) − g_k(θ₀) exactly, for the loss is quadratic."""
    after = path[1:]
    total = [np.zeros_like(array) for array in start.arrays.values()]
    summed = [np.zeros_like(array) for array in start.arrays.values()]  # Σ_{l<k} g_l
    r_start = residuals(start, physics, path)
    for k in range(physics.steps):
        moved = Computer(*(a + s for a, s in zip(start.arrays.values(), summed, strict=True)))
        r_moved = residuals(moved, physics, path[k : k + 2])
        at_start = gradient_of_residuals(physics, r_start[k : k + 1], after[k : k + 1])
        at_moved = gradient_of_residuals(physics, r_moved, after[k : k + 1])
        for t, s, g0, g1 in zip(
            total, summed, at_start.arrays.values(), at_moved.arrays.values(), strict=True
        ):
            t += g1 - g0
            s += g0
    return Computer(*total)
