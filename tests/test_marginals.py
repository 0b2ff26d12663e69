"""Marginals of one unit against closed forms, a direct kernel, simulation and Boltzmann."""

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import ramp
from thermoloom.theory.marginals import solve_marginals

NAMES = ("mean", "variance", "drift", "square")


def force(machine, x):
    return 2 * machine.J2 * x + 4 * machine.J4 * x**3


def simulate(machine, fields, samples, seed):
    """Running means of x', x'², D and D² (with their squares) over plain noising paths."""
    rng = np.random.default_rng(seed)
    rate, sigma = machine.mobility * machine.dt, machine.noise_amplitude
    x = np.zeros((samples, len(fields)))
    for _ in range(machine.steps):
        x += rate * (2 * fields - force(machine, x)) + sigma * rng.standard_normal(x.shape)
    rows = []
    for k in range(machine.steps):
        time = k * machine.dt
        end = 0.75 * machine.duration
        a = 2 * (1 - time / end) if time < end else 0.0
        new = x + rate * (a * fields - force(machine, x)) + sigma * rng.standard_normal(x.shape)
        d = -(new - x) + rate * force(machine, new)
        centred = (new - new.mean(0)) ** 2
        rows.append([(q.mean(0), q.std(0) / samples**0.5) for q in (new, centred, d, d**2)])
        x = new
    return np.array(rows)  # (K, 4, 2, fields)


def test_amplitude_is_the_papers_ramp_at_the_start_of_each_step():
    amplitude = ramp(Machine(dt=0.25, duration=2.0))
    assert amplitude == pytest.approx([2, 5 / 3, 4 / 3, 1, 2 / 3, 1 / 3, 0, 0], abs=1e-12)


def test_harmonic_units_follow_the_closed_form():
    """J₄ = 0: x' = ρx + δ + σξ and D = x − ρx' are Gaussian with known moments."""
    machine = Machine(J4=0.0, J2=0.7, dt=0.01, duration=1.2, mobility=1.3, kT=0.2)
    marginals = solve_marginals(machine, 3.0)
    fields = np.array([-2.9, -0.4, 0.0, 0.17, 1.0, 3.0])
    rate, noise = machine.mobility * machine.dt, machine.noise_amplitude**2
    rho = 1 - 2 * machine.J2 * rate
    mean, variance = np.zeros(len(fields)), 0.0
    for _ in range(machine.steps):
        mean, variance = rho * mean + 2 * rate * fields, rho**2 * variance + noise
    rows = []
    for a in ramp(machine):
        new, new_variance = rho * mean + rate * a * fields, rho**2 * variance + noise
        drift = mean - rho * new
        square = (1 - rho**2) ** 2 * variance + rho**2 * noise + drift**2
        rows.append([new, np.full(len(fields), new_variance), drift, square])
        mean, variance = new, new_variance
    for name, exact in zip(NAMES, np.moveaxis(np.array(rows), 1, 0), strict=True):
        computed = marginals.at(name, fields)
        assert np.abs(computed - exact).max() < 1e-8 * np.abs(exact).max(), name


def test_agrees_with_the_transition_kernel_on_a_plain_grid():
    """p'(x') = Σ_x N(x'; x + μΔt(as − φ(x)), σ²) p(x), by brute force in position space."""
    machine = Machine(dt=0.005, duration=0.4)
    s, rate, sigma = 1.7, machine.mobility * machine.dt, machine.noise_amplitude
    x, h = np.linspace(-1.2, 1.6, 561, retstep=True)
    drifted = x - rate * force(machine, x)

    def kernel(a):
        return np.exp(-((x[:, None] - drifted - rate * a * s) ** 2) / (2 * sigma**2)) * (
            h / (sigma * np.sqrt(2 * np.pi))
        )

    density = np.exp(-((x - 2 * rate * s) ** 2) / (2 * sigma**2))
    density /= density.sum()
    prepare = kernel(2.0)
    for _ in range(machine.steps - 1):
        density = prepare @ density
    rows = []
    for a in ramp(machine):
        step = kernel(a)
        new = step @ density
        d = x - (x - rate * force(machine, x))[:, None]  # D = x_k − y(x_{k+1}) over (x', x)
        joint = step * density
        mean = new @ x
        rows.append([mean, new @ x**2 - mean**2, (joint * d).sum(), (joint * d**2).sum()])
        density = new
    marginals = solve_marginals(machine, 2.5)
    for name, exact in zip(NAMES, np.array(rows).T, strict=True):
        computed = marginals.at(name, np.array([s]))[:, 0]
        assert np.abs(computed - exact).max() < 1e-7 * np.abs(exact).max(), name


def test_agrees_with_simulation_within_its_standard_error():
    machine = Machine(dt=0.01, duration=0.5)
    fields = np.array([-3.1, -0.42, 0.05, 0.8, 2.4])
    measured = simulate(machine, fields, samples=20000, seed=5)
    marginals = solve_marginals(machine, 3.2)
    for index, name in enumerate(NAMES):
        value, error = measured[:, index, 0], measured[:, index, 1]
        deviation = (value - marginals.at(name, fields)) / error
        assert np.abs(deviation).max() < 5, name
        assert np.sqrt((deviation**2).mean()) < 1.5, name


def test_long_preparation_ends_in_boltzmann_up_to_a_bias_of_first_order():
    """The first step still feels a = 2, so m and v are those of exp(−U/k_BT), U with −2sx."""
    fields = np.array([0.3, 1.5])
    x = np.linspace(-2, 3, 20001)
    potential = x**2 + x**4 - 2 * fields[:, None] * x
    weight = np.exp(-(potential - potential.min(1, keepdims=True)) / 0.1)
    weight /= weight.sum(1, keepdims=True)
    mean = weight @ x
    exact = np.array([mean, weight @ x**2 - mean**2])

    def first_row(dt):
        marginals = solve_marginals(Machine(dt=dt, duration=6.0), 2.0)
        return np.array([marginals.at(n, fields)[0] for n in ("mean", "variance")])

    coarse, fine = first_row(0.01), first_row(0.005)
    assert np.abs(fine - exact).max() < 2e-3
    slope = (coarse - exact)[1] / (fine - exact)[1]
    assert slope == pytest.approx(2, abs=0.1)
    assert np.abs(2 * fine - coarse - exact).max() < 1e-4


def test_estimated_error_is_honest():
    machine = Machine(dt=0.005, duration=0.5)
    fields = np.linspace(-4, 4, 57)
    exact = solve_marginals(machine, 4.0, tolerance=1e-9)
    rough = solve_marginals(machine, 4.0, tolerance=1e-4)
    for name in NAMES:
        best = exact.at(name, fields)
        error = np.abs(rough.at(name, fields) - best).max() / np.abs(best).max()
        assert error < 3 * rough.error <= 3e-4, name
    assert rough.nodes.count < exact.nodes.count


def test_unstable_step_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"machine\.dt = 0\.6: .*smaller step") as caught:
        solve_marginals(Machine(dt=0.6, duration=12.0), 3.0)
    assert "\n" not in str(caught.value)
