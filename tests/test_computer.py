"""Energy and force against a sum over pairs written out, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_computer

from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.machine.computer import Computer, energy, energy_gradient, energy_parts


def energy_by_pairs(computer: Computer, machine: Machine, x: np.ndarray) -> float:
    n = machine.visible
    total = sum(machine.J2 * xi**2 + machine.J4 * xi**4 for xi in x)
    total += sum(b * xa for b, xa in zip(computer.hidden_bias, x[n:], strict=True))
    for i in range(n):
        for a in range(machine.hidden):
            total += computer.visible_hidden[i, a] * x[i] * x[n + a]
    for a in range(machine.hidden):
        for b in range(a):
            total += computer.hidden_hidden[a, b] * x[n + a] * x[n + b]
    return float(total)


def test_energy_is_the_sum_over_pairs() -> None:
    machine = Machine(visible=4, hidden=3, J2=0.7, J4=1.3)
    computer = random_computer(machine)
    states = np.random.default_rng(2).normal(size=(5, machine.units))
    expected = [energy_by_pairs(computer, machine, x) for x in states]
    np.testing.assert_allclose(energy(computer, machine, states), expected, rtol=1e-12)


def test_force_is_the_derivative_of_the_energy() -> None:
    machine = Machine(visible=4, hidden=3, J2=0.7, J4=1.3)
    computer = random_computer(machine)
    x = np.random.default_rng(2).normal(size=machine.units)
    step = 1e-6 * np.eye(machine.units)
    up, down = energy(computer, machine, x + step), energy(computer, machine, x - step)
    np.testing.assert_allclose(energy_gradient(computer, machine, x), (up - down) / 2e-6, rtol=1e-7)


def test_parts_by_hand() -> None:
    """One visible and two hidden units, by pencil: x = (1, 2, -1)."""
    machine = Machine(visible=1, hidden=2)
    computer = Computer(
        np.array([[3.0, 5.0]]), np.array([[0.0, 7.0], [7.0, 0.0]]), np.array([11.0, 13.0])
    )
    parts = energy_parts(computer, machine, np.array([[1.0, 2.0, -1.0]]))
    assert parts.onsite[0] == (1 + 1) + (4 + 16) + (1 + 1)
    assert parts.visible_hidden[0] == 3 * 1 * 2 + 5 * 1 * -1
    assert parts.hidden_hidden[0] == 7 * 2 * -1
    assert parts.bias[0] == 11 * 2 - 13
    assert parts.total[0] == 24 + 1 - 14 + 9


def test_small_differences_of_large_energies_survive() -> None:
    """Accumulated in float64: a float32 sum would lose a change of one part in 1e8."""
    machine = Machine(visible=50_000, hidden=1)
    computer = Computer.zeros(machine)
    x = np.full((2, machine.units), 1.0, np.float32)
    x[1, 0] = np.nextafter(np.float32(1), np.float32(2))
    low, high = energy(computer, machine, x)
    assert 0 < high - low < 1e-6


def test_parameters_that_do_not_fit_are_refused(small: Machine) -> None:
    computer = random_computer(small)
    with pytest.raises(UserError, match="do not fit together"):
        Computer(computer.visible_hidden, computer.hidden_hidden[:3], computer.hidden_bias)
    with pytest.raises(UserError, match=r"machine\.visible"):
        computer.check(Machine(visible=5, hidden=8))
    crooked = computer.copy()
    crooked.hidden_hidden[0, 1] += 1
    with pytest.raises(UserError, match="symmetric"):
        crooked.check(small)
    loop = computer.copy()
    loop.hidden_hidden[2, 2] = 1
    with pytest.raises(UserError, match="diagonal"):
        loop.check(small)
