"""Diagnostics against hand-worked numbers, finite sums and the plain float64 formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from thermoloom.machine.definition import Machine
from thermoloom.generation import generate
from thermoloom.measures.diagnostics import (
    additional_path,
    coupling_norms,
    cross_energies,
    path_terms,
)
from thermoloom.machine.action import path_action_ratio, path_loss
from thermoloom.machine.computer import Computer, energy
from thermoloom.training.noising import noising_path, ramp

PHYSICS = Machine(visible=12, hidden=7, duration=0.6)


def random_computer(seed: int, size: float = 0.3) -> Computer:
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.normal(0, size, (PHYSICS.hidden, PHYSICS.hidden)), 1)
    return Computer(
        generator.normal(0, size, (PHYSICS.visible, PHYSICS.hidden)).astype(np.float32),
        (upper + upper.T).astype(np.float32),
        generator.normal(0, size, PHYSICS.hidden).astype(np.float32),
    )


def fields(count: int = 3) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, PHYSICS.units)).astype(np.float32)


def test_norms_count_an_undirected_edge_once() -> None:
    computer = Computer(
        np.array([[3.0, 0.0]], np.float32),
        np.array([[0.0, -4.0], [-4.0, 0.0]], np.float32),
        np.array([5.0, 12.0], np.float32),
    )
    norms = coupling_norms(computer)
    assert norms == pytest.approx((3, 4, 13))
    assert math.sqrt(2) * norms.hidden_hidden == pytest.approx(
        np.linalg.norm(computer.hidden_hidden)
    )


def test_path_terms_agree_with_the_plain_float64_formulas() -> None:
    computer, field = random_computer(1), fields(1)[0]
    path = noising_path(PHYSICS, field, 7, 0)
    found = path_terms(computer, PHYSICS, path, field)
    wide = path.astype(np.float64)
    loss = path_loss(computer.astype(np.float64), PHYSICS, wide)
    ratio = path_action_ratio(computer, PHYSICS, path, field, ramp(PHYSICS))
    # float32 products with J: their round-off, and nothing more
    assert found.loss == pytest.approx(loss.full, rel=1e-6)
    assert found.reduced_loss == pytest.approx(loss.reduced, rel=1e-5)
    for name in ("log_ratio", "heat_like", "force_squared"):
        assert getattr(found, name) == pytest.approx(getattr(ratio, name), rel=1e-5), name


def test_path_action_identity_is_exact_and_needs_both_terms() -> None:
    computer, field = random_computer(2), fields(1)[0]
    found = path_terms(computer, PHYSICS, noising_path(PHYSICS, field, 8, 3), field)
    assert found.identity_error < 1e-12
    assert found.log_ratio == pytest.approx(found.heat_like + found.force_squared, rel=1e-12)
    # the force-squared term is no small correction: without it the identity fails by far
    assert abs(found.force_squared) > 1e-2 * abs(found.log_ratio)


def test_path_terms_do_not_depend_on_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    computer, field = random_computer(3), fields(1)[0]
    path = noising_path(PHYSICS, field, 9, 0)
    whole = path_terms(computer, PHYSICS, path, field)
    monkeypatch.setattr("thermoloom.measures.diagnostics.STEPS_AT_ONCE", 77)
    assert path_terms(computer, PHYSICS, path, field) == pytest.approx(whole, rel=1e-6)


def test_additional_paths_are_shared_and_new() -> None:
    first = [additional_path(PHYSICS, fields(), index, 555001) for index in range(6)]
    again = [additional_path(PHYSICS, fields(), index, 555001) for index in (4, 1)]
    assert [prototype for prototype, _ in first] == [0, 1, 2, 0, 1, 2]
    assert np.array_equal(first[4][1], again[0][1])
    assert np.array_equal(first[1][1], again[1][1])
    assert not np.array_equal(first[0][1], first[3][1])
    training = noising_path(PHYSICS, fields()[0], 555001, 0)  # even at the same seed
    assert not np.array_equal(first[0][1], training)


def test_only_the_own_potential_measures_heat() -> None:
    computers = {"batch": random_computer(4), "online": random_computer(5)}
    ensembles = {name: generate(PHYSICS, c, 5, 3) for name, c in computers.items()}
    drops = {(d.potential, d.ensemble): d for d in cross_energies(PHYSICS, computers, ensembles)}
    assert len(drops) == 4
    for (potential, ensemble), drop in drops.items():
        assert drop.is_heat == (potential == ensemble)
        states = ensembles[ensemble]
        start = energy(computers[potential], PHYSICS, states.initial_states)
        end = energy(computers[potential], PHYSICS, states.final_states)
        assert drop.drop == pytest.approx(float(np.mean(start - end)), rel=1e-12)
        parts = [drop.final[p] for p in ("onsite", "visible_hidden", "hidden_hidden", "bias")]
        assert drop.final["total"] == pytest.approx(sum(parts), rel=1e-12)
    for name, states in ensembles.items():
        assert drops[name, name].drop == pytest.approx(float(states.heat.mean()), rel=1e-12)
