"""Onsite units against the Boltzmann density by quadrature; the order in Δt measured."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from thermoloom.engines.compiled.langevin import uncoupled_steps
from thermoloom.engines.compiled.streams import normals, stream_key
from thermoloom.machine.action import step_constants
from thermoloom.machine.machine import Machine


def boltzmann_moment(machine: Machine, power: int, force: float = 0.0) -> float:
    """⟨x^p⟩ in exp[−(J₂x² + J₄x⁴ − force·x)/k_BT], by quadrature."""

    def weight(x: float) -> float:
        return np.exp(-(machine.J2 * x**2 + machine.J4 * x**4 - force * x) / machine.kT)

    norm = integrate.quad(weight, -4, 4, epsabs=1e-12)[0]
    return integrate.quad(lambda x: x**power * weight(x), -4, 4, epsabs=1e-12)[0] / norm


def simulate(
    machine: Machine, units: int, relax: float, measure: float, force: float = 0.0, seed: int = 1
) -> np.ndarray:
    """States (times, units) after relaxation, a relaxation time or so apart."""
    steps = round((relax + measure) / machine.dt)
    x = np.zeros(units, np.float32)
    field = np.ones(units, np.float32)
    path = np.empty((steps + 1, units), np.float32)
    amplitude = np.full(steps, force, np.float32)
    key = stream_key(seed, "noising")
    uncoupled_steps(x, field, amplitude, key, 0, 0, 0, step_constants(machine), path)
    return path[round(relax / machine.dt) :: max(1, round(0.5 / machine.dt))].astype(float)


@pytest.mark.parametrize("force", [0.0, 0.8])
def test_stationary_units_are_boltzmann_distributed(force: float) -> None:
    machine = Machine(dt=2e-3)
    x = simulate(machine, 20_000, relax=3, measure=3, force=force)
    for power in (1, 2, 4):
        values = x**power
        error = values.mean(axis=0).std() / np.sqrt(x.shape[1])  # units are independent
        bias = 0.01 * abs(boltzmann_moment(machine, power, force))  # O(Δt), measured below
        assert abs(values.mean() - boltzmann_moment(machine, power, force)) < 4 * error + bias


def test_bias_of_the_stationary_state_is_of_first_order_in_the_step() -> None:
    """⟨x²⟩ − Boltzmann ∝ Δt^p with p measured near 1."""
    steps = np.array([0.2, 0.1, 0.05])
    bias = []
    for dt in steps:
        machine = Machine(dt=float(dt), duration=1.0, J2=1.0, J4=0.5)
        x = simulate(machine, 100_000, relax=4, measure=6)
        bias.append((x**2).mean() - boltzmann_moment(machine, 2))
    order = np.polyfit(np.log(steps), np.log(np.abs(bias)), 1)[0]
    assert 0.85 < order < 1.2


def test_one_kernel_step_is_euler_maruyama() -> None:
    """Against the formula in NumPy, float32, with the same normals."""
    machine = Machine(visible=5, hidden=2, J2=0.7, J4=1.4, kT=0.3, mobility=1.5, dt=0.01)
    steps, units = 7, 9
    rng = np.random.default_rng(0)
    field = rng.normal(size=units).astype(np.float32)
    amplitude = rng.normal(size=steps).astype(np.float32)
    z = normals(4, "noising", 6, steps, units)
    x = np.zeros(units)
    expected = [x]
    for k in range(steps):
        force = amplitude[k] * field - 2 * 0.7 * x - 4 * 1.4 * x**3
        x = x + 1.5 * 0.01 * force + np.sqrt(2 * 1.5 * 0.3 * 0.01) * z[k]
        expected.append(x)
    path = np.empty((steps + 1, units), np.float32)
    state = np.zeros(units, np.float32)
    key = stream_key(4, "noising")
    uncoupled_steps(state, field, amplitude, key, 6, 0, 0, step_constants(machine), path)
    np.testing.assert_allclose(path, expected, atol=2e-6)
    assert np.array_equal(path[-1], state)
