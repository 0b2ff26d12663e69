"""Forces by panels of couplings: against float64, to the bit whatever the states beside one."""

from __future__ import annotations

import numpy as np
import pytest
from machines import every_machine, random_parameters

from thermoloom.engines.compiled.dense_forces import STRETCH, TALL, WIDTH, DenseForces
from thermoloom.machine.energy import coupling_gradient, effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters


def some_states(machine: Machine, count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, machine.units)).astype(np.float32)


def forces(theta: Parameters, x: np.ndarray, stage: int = 0, sign: int = 1) -> np.ndarray:
    """Forces by panels, written into memory that holds other numbers."""
    out = np.full_like(x, np.nan)
    DenseForces(theta, stage, sign)(x, out)
    return out


@every_machine
@pytest.mark.parametrize("sign", [1, -1])
def test_forces_of_every_machine(machine: Machine, sign: int) -> None:
    theta = random_parameters(machine, dtype=np.float32)
    x = some_states(machine, 7)
    word = np.zeros(machine.size_of("label"), np.float32) if machine.labels else None
    for stage in range(machine.stages):
        wide = theta.astype(np.float64)
        expected = coupling_gradient(wide, x.astype(np.float64), stage, word, twisted=sign < 0)
        expected -= effective_bias(wide, stage, word)
        np.testing.assert_allclose(forces(theta, x, stage, sign), expected, atol=2e-6)


@pytest.mark.parametrize("hidden", [1, WIDTH - 1, WIDTH, WIDTH + 1, 3 * WIDTH + 5])
def test_panels_that_are_not_full_and_sums_in_several_stretches(hidden: int) -> None:
    """With less round-off than a sum of all terms, one after the other."""
    machine = Machine(visible=4 * STRETCH + 3, hidden=hidden, duration=0.01)
    theta = random_parameters(machine, dtype=np.float32)
    x = some_states(machine, 60)
    wide = theta.astype(np.float64)
    expected = coupling_gradient(wide, x.astype(np.float64)) - effective_bias(wide)
    ours = forces(theta, x)
    sizes = coupling_gradient(wide.with_vector(abs(wide.vector)), abs(x).astype(np.float64))
    assert (abs(ours - expected) <= 2.0**-24 * (STRETCH + 5) * sizes).all()
    one_by_one, own = np.zeros((60, hidden), np.float32), machine.groups["hidden"]
    for i, couplings in enumerate(theta["visible_hidden"][0]):
        one_by_one += x[:, i, None] * couplings
    if hidden > 1:
        one_by_one += x[:, own] @ theta["hidden_hidden"][0]
    errors = [np.sqrt(np.mean((f - expected[:, own]) ** 2)) for f in (ours[:, own], one_by_one)]
    assert 0 < errors[0] < errors[1]


def test_a_state_feels_the_same_whatever_others_there_are() -> None:
    machine = Machine(visible=STRETCH + 40, hidden=WIDTH + 9, duration=0.01)
    theta = random_parameters(machine, dtype=np.float32)
    x = some_states(machine, 2 * TALL + 8)
    together = forces(theta, x)
    for first, last in ((0, 1), (3, 7), (1, TALL + 1), (TALL - 2, 2 * TALL + 8)):
        assert np.array_equal(forces(theta, x[first:last]), together[first:last])
