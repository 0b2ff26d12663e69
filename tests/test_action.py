"""Residual, loss and gradient against finite differences; the path-action identity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from conftest import random_computer
from scipy import stats

from thermoloom.machine.definition import Machine
from thermoloom.machine.action import gradient, path_action_ratio, path_loss, residuals
from thermoloom.machine.computer import Computer, energy_gradient
from thermoloom.training.noising import noising_path, ramp


def total_loss(computer: Computer, machine: Machine, path: np.ndarray) -> float:
    """Eq. loss_step summed over the path, term by term."""
    total = 0.0
    for x, after in pairwise(path):
        force = energy_gradient(computer, machine, after)
        reverse = -(after - x) + machine.mobility * machine.dt * force
        total += np.sum(reverse**2) / (4 * machine.mobility * machine.kT * machine.dt)
    return float(total)


def test_gradient_is_the_derivative_of_the_loss(small: Machine, fields: np.ndarray) -> None:
    """Every parameter, central differences in float64; exact because the loss is quadratic."""
    path = noising_path(small, fields[0], 1, 0).astype(np.float64)
    computer = random_computer(small)
    analytic = gradient(computer, small, path)
    step = 1e-2

    def difference(array: str, index: tuple[int, ...]) -> float:
        losses = []
        for sign in (1, -1):
            moved = computer.copy()
            moved.arrays[array][index] += sign * step
            if array == "hidden_hidden":  # one parameter for the undirected edge
                moved.hidden_hidden[index[::-1]] += sign * step
            losses.append(total_loss(moved, small, path))
        return (losses[0] - losses[1]) / (2 * step)

    for i in range(small.visible):
        for a in range(small.hidden):
            expected = difference("visible_hidden", (i, a))
            assert np.isclose(analytic.visible_hidden[i, a], expected, rtol=1e-7, atol=1e-6)
    for a in range(small.hidden):
        for b in range(a):
            expected = difference("hidden_hidden", (a, b))
            assert np.isclose(analytic.hidden_hidden[a, b], expected, rtol=1e-7, atol=1e-6)
            assert analytic.hidden_hidden[b, a] == analytic.hidden_hidden[a, b]
        assert analytic.hidden_hidden[a, a] == 0
        expected = difference("hidden_bias", (a,))
        assert np.isclose(analytic.hidden_bias[a], expected, rtol=1e-7, atol=1e-6)


def test_loss_and_its_constant_part(small: Machine, fields: np.ndarray) -> None:
    path = noising_path(small, fields[0], 1, 0).astype(np.float64)
    computer = random_computer(small)
    loss = path_loss(computer, small, path)
    steps = small.steps
    assert np.isclose(loss.full, total_loss(computer, small, path) / steps, rtol=1e-12)
    increments = np.sum(np.diff(path, axis=0) ** 2) / (4 * 0.1 * 1e-3) / steps
    assert np.isclose(loss.full - loss.reduced, increments, rtol=1e-12)
    r = residuals(computer, small, path)
    assert np.isclose(loss.full, np.sum(r**2) * 0.1 / 1e-3 / steps, rtol=1e-12)


def test_path_action_identity_is_exact(small: Machine, fields: np.ndarray) -> None:
    """ln P₀[ω] − ln P_θ[ω̃] from SciPy's normal densities equals the sum of the two terms."""
    path = noising_path(small, fields[1], 3, 0).astype(np.float64)
    computer = random_computer(small)
    amplitude = ramp(small)
    ratio = path_action_ratio(computer, small, path, fields[1], amplitude)
    drift, sd = small.mobility * small.dt, small.noise_amplitude
    x, after = path[:-1], path[1:]
    external = amplitude.astype(np.float64)[:, None] * fields[1]
    forward_mean = x + drift * (external - 2 * small.J2 * x - 4 * small.J4 * x**3)
    reverse_mean = after - drift * energy_gradient(computer, small, after)
    forward = stats.norm.logpdf(after, forward_mean, sd).sum()
    reverse = stats.norm.logpdf(x, reverse_mean, sd).sum()
    assert np.isclose(ratio.log_ratio, forward - reverse, rtol=1e-9)
    assert np.isclose(ratio.heat_like + ratio.force_squared, ratio.log_ratio, rtol=1e-9)
    assert abs(ratio.force_squared) > 1e-3 * abs(ratio.log_ratio)  # cannot be left out
