"""Free energies against quadrature and the Gaussian closed form."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from machines import random_parameters
from scipy import integrate

from thermoloom.errors import UserError
from thermoloom.machine.energy import energy
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.free_energy import free_energy

pytest.importorskip("pymbar", reason="extra free-energy is not installed")


def few_units(units: int, **more: float) -> Machine:
    return Machine(
        visible=units, hidden=0, wiring=("visible-visible",), biases=("visible",), dt=1e-2, **more
    )


def by_quadrature(theta: Parameters, points: int = 81) -> float:
    """−ln(Z_θ/Z_onsite) on a grid, by Simpson's rule in every dimension."""
    machine = theta.machine
    axis = np.linspace(-2.2, 2.2, points)
    grid = np.stack(np.meshgrid(*[axis] * machine.units, indexing="ij"), axis=-1)
    partition = []
    for own in (theta, Parameters.zeros(machine, np.float64)):
        values = np.exp(-energy(own, grid) / machine.kT)
        for _ in range(machine.units):
            values = integrate.simpson(values, x=axis, axis=-1)
        partition.append(float(values))
    return -math.log(partition[0] / partition[1])


@pytest.mark.parametrize("units", [1, 2, 3])
def test_few_units_agree_with_quadrature(units: int) -> None:
    """Within four standard errors and what the step leaves, both ways; work is never less."""
    theta = random_parameters(few_units(units), 0.5, seed=units)
    exact = by_quadrature(theta)
    assert abs(exact) > 0.3
    found = free_energy(theta.astype(np.float32), samples=2000, switches=8, rest=3.0)
    assert found.difference == pytest.approx(exact, abs=4 * found.error + 0.01)
    assert found.jarzynski == pytest.approx(exact, abs=4 * found.jarzynski_error + 0.01)
    assert found.error < 0.1
    assert found.work > exact - 4 * found.jarzynski_error
    assert min(found.overlaps) > 0.3
    assert found.agree


def test_many_harmonic_units_agree_with_the_closed_form() -> None:
    """½ ln det(M/κ) − b·M⁻¹b/2k_BT for M = κ + J."""
    machine = Machine(
        visible=12, hidden=6, wiring=("visible-hidden", "hidden-hidden"), J4=0.0, dt=1e-2
    )
    theta = random_parameters(machine, 0.12)
    J = np.zeros((18, 18))
    J[:12, 12:] = theta["visible_hidden"][0]
    J += J.T
    J[12:, 12:] = theta["hidden_hidden"][0]
    b = np.concatenate([np.zeros(12), theta["hidden_bias"][0]])
    M = 2 * machine.J2 * np.eye(18) + J
    exact = 0.5 * np.linalg.slogdet(M / (2 * machine.J2))[1] - b @ np.linalg.solve(M, b) / 0.2
    assert abs(exact) > 0.3
    found = free_energy(theta.astype(np.float32), samples=2000, switches=8, rest=1.5)
    assert found.difference == pytest.approx(exact, abs=4 * found.error + 0.01)
    assert found.work > found.difference


def test_states_that_cannot_follow_show_as_two_estimates_that_differ() -> None:
    """With hardly a rest the acceptance ratio is wrong; Jarzynski's equality needs none."""
    theta = random_parameters(few_units(3), 0.5, seed=3)
    found = free_energy(theta.astype(np.float32), samples=3000, switches=8, rest=0.1)
    assert not found.agree
    assert abs(found.difference - by_quadrature(theta)) > 4 * found.error
    assert found.jarzynski == pytest.approx(by_quadrature(theta), abs=4 * found.jarzynski_error)


def test_no_overlap_is_refused() -> None:
    machine = few_units(3)
    theta = Parameters.zeros(machine)
    theta["visible_bias"][:] = 40.0
    with pytest.raises(UserError, match=r"switches = 1: the states before and after jump 1 hardly"):
        free_energy(theta, samples=200, switches=1)


def test_without_pymbar_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymbar", None)
    with pytest.raises(UserError, match=r"pip install 'thermoloom\[free-energy\]'"):
        free_energy(Parameters.zeros(few_units(1)))
