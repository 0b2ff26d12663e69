"""Diagnostics against hand-worked numbers, finite sums and the plain float64 formulas."""

from __future__ import annotations

import numpy as np
import pytest
from machines import MACHINES, random_parameters, some_fields, some_word

from thermoloom.engines import engine
from thermoloom.generation import generate
from thermoloom.machine.action import path_terms
from thermoloom.machine.energy import energy, label_word
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.diagnostics import additional_path, coupling_norms, cross_energies
from thermoloom.patterns.drive import Drive

PAPER = MACHINES["paper"]


def test_norms_count_an_undirected_edge_once_and_biases_together() -> None:
    theta = Parameters.zeros(MACHINES["everything"])
    theta["visible_hidden"][0, 1, 2] = 3
    theta["hidden_hidden"][0, 0, 1] = theta["hidden_hidden"][0, 1, 0] = -4
    theta["visible_bias"][0, 0], theta["hidden_bias"][0, 3] = 5, 12
    norms = coupling_norms(theta)
    labels = {"visible_label": 0, "hidden_label": 0}
    expected = {"visible_hidden": 3, "hidden_hidden": 4, "visible_visible": 0, "bias": 13}
    assert norms == pytest.approx(expected | labels)


@pytest.mark.parametrize("name", MACHINES)
def test_path_terms_agree_with_the_plain_float64_formulas(name: str) -> None:
    machine = MACHINES[name]
    theta, fields = random_parameters(machine, dtype=np.float32), some_fields(machine)
    words = None if machine.labels == 0 else label_word(machine, np.array([0, 1, 0]))
    pattern, path = additional_path(machine, Drive(fields, words), 4, 7)
    assert pattern == 1
    found = engine().terms(theta, path, fields[1])
    wide = theta.astype(np.float64)
    plain = path_terms(wide, path.states.astype(np.float64), fields[1], some_word(machine))
    # float32 products with J: their round-off, and nothing more
    for term, value in plain._asdict().items():
        assert getattr(found, term) == pytest.approx(value, rel=1e-5, abs=1e-5), term
    assert found.identity_error < 1e-12
    # the force-squared term is no small correction: without it the identity fails by far
    assert abs(found.force_squared) > 1e-2 * abs(found.log_ratio)


def test_additional_paths_are_shared_and_new() -> None:
    fields = some_fields(PAPER)
    first = [additional_path(PAPER, Drive(fields), index, 555001) for index in range(6)]
    again = [additional_path(PAPER, Drive(fields), index, 555001)[1].states for index in (4, 1)]
    assert [pattern for pattern, _ in first] == [0, 1, 2, 0, 1, 2]
    states = [path.states for _, path in first]
    assert np.array_equal(states[4], again[0])
    assert np.array_equal(states[1], again[1])
    assert not np.array_equal(states[0], states[3])
    training = engine().path(PAPER, fields[0], 555001, 0).states  # even at the same seed
    assert not np.array_equal(states[0], training)


@pytest.mark.parametrize("name", [n for n, m in MACHINES.items() if m.stages == 1])
def test_only_the_own_potential_measures_heat(name: str) -> None:
    machine = MACHINES[name]
    computers = {
        rule: random_parameters(machine, seed=seed, dtype=np.float32)
        for seed, rule in enumerate(("batch", "online"))
    }
    ensembles = {rule: generate(theta, 5, 3) for rule, theta in computers.items()}
    words = label_word(machine, np.arange(5) % machine.labels) if machine.labels else None
    drops = {(d.potential, d.ensemble): d for d in cross_energies(computers, ensembles, words)}
    assert len(drops) == 4
    for (potential, ensemble), drop in drops.items():
        assert drop.is_heat == (potential == ensemble)
        theta, states = computers[potential], ensembles[ensemble]
        start = energy(theta, states.initial_states, word=words)
        end = energy(theta, states.final_states, word=words)
        assert drop.drop == pytest.approx(float(np.mean(start - end)), rel=1e-12)
        parts = [value for part, value in drop.final.items() if part != "total"]
        assert drop.final["total"] == pytest.approx(sum(parts), rel=1e-12)
    for rule, states in ensembles.items():
        assert drops[rule, rule].drop == pytest.approx(float(states.heat.mean()), rel=1e-9)
