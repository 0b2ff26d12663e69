"""The learner at every length of blocks, with threads, when it diverges; online minus batch.

That blocks equal the stepwise rule for every wiring, period and rate is in ``test_machine``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from machines import (
    MACHINES,
    path_of,
    random_parameters,
    relative_difference,
    some_path,
)
from plain_rules import gradient, learn_stepwise

from thermoloom.engines import Diverged, engine
from thermoloom.engines.compiled.block_memory import row_edges, unit_edges
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import drives_of
from thermoloom.machine.action import gradient_of_residuals, residuals
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import load_patterns
from thermoloom.settings import Settings
from thermoloom.threads import threads

ROUND_OFF = 5e-6
"""Float32 against float64 over two hundred updates."""


@pytest.mark.parametrize("period", [1, 7, 70])
def test_the_papers_computer_learns_as_the_stepwise_rule(period: int) -> None:
    """784 + 512 units, two hundred steps from couplings of the size of trained ones.

    With a period of 70, changes wait for several blocks, and sixty steps are left in the end.

    The change of θ is compared: relative to θ itself, its error would look small.
    """
    settings = Settings()
    patterns = load_patterns(settings.patterns, settings.machine)
    machine = replace(settings.machine, duration=0.2)
    path = engine().path(machine, unit_fields(patterns, machine)[0], 101, 0)
    start = random_parameters(machine, 0.02, dtype=np.float32)
    rate = 10 * settings.learning_rate
    reference = learn_stepwise(start, path.states, rate, period)
    learned = Learner(machine, rate, period).learn(start, path)
    found, expected = (
        theta.with_vector(theta.vector.astype(np.float64) - start.vector)
        for theta in (learned, reference)
    )
    assert relative_difference(found, expected) < ROUND_OFF


@pytest.mark.parametrize("block_steps", [1, 2, 13, 64, 200, 1000])
@pytest.mark.parametrize("strip_steps", [1, 8, 24, 1000])
@pytest.mark.parametrize("period", [1, 3, 70])
@pytest.mark.parametrize("name", ["paper", "all stages"])
def test_lengths_of_blocks_and_strips_do_not_matter(
    name: str, block_steps: int, strip_steps: int, period: int
) -> None:
    machine, path = MACHINES[name], some_path(MACHINES[name])
    learner = Learner(machine, 4e-3, period, block_steps=block_steps, strip_steps=strip_steps)
    learned = learner.learn(Parameters.zeros(machine), path)
    assert relative_difference(learned, learned_stepwise(name, period)) < ROUND_OFF


@cache
def learned_stepwise(name: str, period: int) -> Parameters:
    machine, path = MACHINES[name], some_path(MACHINES[name])
    return learn_stepwise(Parameters.zeros(machine), path.states, 4e-3, period, word=path.word)


def test_large_learning_rate_is_exact() -> None:
    """αc‖x‖²S ≫ 1: an iteration over a strip would not contract; substitution is exact."""
    machine = Machine(visible=60, hidden=40, duration=0.2)
    field = 3 * np.random.default_rng(0).normal(size=machine.units).astype(np.float32)
    path = engine().path(machine, field, 1, 0)
    learner = Learner(machine, 5.0)
    learned = learner.learn(Parameters.zeros(machine), path)
    reference = learn_stepwise(Parameters.zeros(machine), path.states, 5.0)
    assert relative_difference(learned, reference) < 20 * ROUND_OFF


@pytest.mark.parametrize("pieces", range(2, 9))
@pytest.mark.parametrize("units", [0, 1, 7, 24, 33, 512, 784, 1300])
def test_pieces_cover_all_units_and_rows(units: int, pieces: int) -> None:
    """In order; halves of couplings, which two threads have, are as even as tiles of four allow."""
    edges = unit_edges(units, pieces), *(row_edges(units, pieces, t) for t in (False, True))
    for each in edges:
        assert (each[0], each[-1], len(each)) == (0, units, pieces + 1)
        assert (np.diff(each) >= 0).all()
    middle, below = (each[pieces // 2] / max(units, 1) for each in edges[1:])
    if units > 500 and pieces % 2 == 0:
        assert middle == pytest.approx(0.5, abs=4 / units)
        assert below**2 == pytest.approx(0.5, abs=8 / units)


@pytest.mark.parametrize(
    ("period", "rate"), [(1, 4e-4), (1, 5.0), (10, 4e-4), (70, 4e-4), (200, 4e-4)]
)
@pytest.mark.parametrize("name", ["paper", "everything"])
def test_threads_do_not_change_a_bit(name: str, period: int, rate: float) -> None:
    """Nor where strips must be halved; eight pieces on any number of threads."""
    machine = replace(MACHINES[name], visible=64, hidden=33)
    path = some_path(machine)
    found = []
    for count in (1, 2, 3, 8):
        with threads(count):
            learner = Learner(machine, rate, period, pieces=8)
            theta = Parameters.zeros(machine)
            for _ in range(3 if rate < 1 else 1):
                theta = learner.learn(theta, path)
            found.append(theta)
    assert all(theta.same_as(found[0]) for theta in found)
    reference = Learner(machine, rate, period, pieces=2).learn(Parameters.zeros(machine), path)
    once = Learner(machine, rate, period, pieces=8).learn(Parameters.zeros(machine), path)
    assert relative_difference(once, reference) < (1e-6 if rate < 1 else 20 * ROUND_OFF)


def test_batch_is_one_step_down_the_gradient(small: Machine) -> None:
    path = some_path(small)
    start = random_parameters(small, 0.1, dtype=np.float32)
    learned = Learner(small, 1e-3, small.steps).learn(start, path)
    slope = gradient(start.astype(np.float64), path.states.astype(np.float64))
    np.testing.assert_allclose(learned.vector, start.vector - 1e-3 * slope.vector, atol=2e-6)


def test_symmetry_and_zero_diagonal_are_exact() -> None:
    machine = replace(MACHINES["everything"], visible=30, hidden=45, duration=0.1)
    learned = Learner(machine, 1e-2).learn(Parameters.zeros(machine), some_path(machine))
    learned.check()
    assert np.count_nonzero(learned["hidden_hidden"]) == 45 * 44
    assert np.count_nonzero(learned["visible_visible"]) == 30 * 29


def test_labels_that_are_not_asked_for_learn_nothing() -> None:
    machine = MACHINES["labels"]
    start = random_parameters(machine, dtype=np.float32)
    learned = Learner(machine, 0.02).learn(start, some_path(machine))  # of class 1
    for name in ("visible_label", "hidden_label"):
        changed = (learned[name] != start[name])[0].all(axis=0)
        assert changed.tolist() == [False, True, False]


def test_what_was_given_is_not_touched(small: Machine) -> None:
    """A learner has memory to work in but no state: the same path gives the same θ again."""
    start, path = random_parameters(small, dtype=np.float32), some_path(small)
    before, states, errors = start.copy(), path.states.copy(), np.ones_like(path.states[1:])
    learner = Learner(small, 0.02)
    first = learner.learn(start, path, errors=errors)
    learner.learn(first, some_path(small, 1))
    assert learner.learn(start, path, errors=errors).same_as(first)
    assert start.same_as(before)
    assert np.array_equal(path.states, states)
    assert np.all(errors == 1)
    assert path.prepared is None


def test_residuals_at_zero_may_be_given_or_made_in_passing(small: Machine) -> None:
    """To the bit, with residual errors or without."""
    start, path = random_parameters(small, dtype=np.float32), some_path(small)
    given = replace(path, prepared=drives_of(small, path.states))
    errors = np.random.default_rng(0).normal(size=path.states[1:].shape).astype(np.float32)
    for more in (None, errors):
        learner = Learner(small, 0.02)
        in_passing = learner.learn(start, path, errors=more)
        assert learner.learn(start, given, errors=more).same_as(in_passing)


def test_a_path_of_another_machine_is_refused(small: Machine) -> None:
    states = some_path(small).states
    with pytest.raises(ValueError, match="a path of shape"):
        Learner(small, 4e-4).learn(
            Parameters.zeros(small), path_of(small, np.concatenate([states, states]))
        )


def test_divergence_is_reported(small: Machine) -> None:
    path, learner = some_path(small), Learner(small, 1e9, small.steps)

    def go_on() -> None:
        theta = Parameters.zeros(small)
        for _ in range(10):
            theta = learner.learn(theta, path)

    with pytest.raises(Diverged):
        go_on()


def test_online_minus_batch_is_second_order(small: Machine) -> None:
    """‖θ_online − θ_batch‖ ∝ α², and ∝ α³ once α² Σ_{k>l} H_k g_l is taken off; slopes measured."""
    path = some_path(small).states.astype(np.float64)
    start = random_parameters(small, 0.1)
    term = second_order_term(start, path)
    rates = np.array([4e-3, 2e-3, 1e-3])
    differences, remainders = [], []
    for rate in rates:
        online = learn_stepwise(start, path, rate, 1)
        batch = learn_stepwise(start, path, rate, small.steps)
        difference = online.vector - batch.vector
        differences.append(np.linalg.norm(difference))
        remainders.append(np.linalg.norm(difference - rate**2 * term))
    slope = np.polyfit(np.log(rates), np.log(differences), 1)[0]
    remainder_slope = np.polyfit(np.log(rates), np.log(remainders), 1)[0]
    assert abs(slope - 2) < 0.05
    assert abs(remainder_slope - 3) < 0.05


def second_order_term(start: Parameters, path: np.ndarray) -> np.ndarray:
    """Σ_{k>l} H_k g_l: H_k v is g_k(θ₀ + v) − g_k(θ₀) exactly, for the loss is quadratic."""
    machine, after = start.machine, path[1:]
    total, summed = np.zeros_like(start.vector), np.zeros_like(start.vector)  # Σ_{l<k} g_l
    r_start = residuals(start, path)
    for k in range(machine.steps):
        r_moved = residuals(start.with_vector(start.vector + summed), path[k : k + 2])
        at_start = gradient_of_residuals(machine, r_start[k : k + 1], after[k : k + 1])
        at_moved = gradient_of_residuals(machine, r_moved, after[k : k + 1])
        total += at_moved.vector - at_start.vector
        summed += at_start.vector
    return total
