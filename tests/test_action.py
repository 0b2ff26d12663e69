"""Loss and path-action identity against the formulas of the paper and SciPy's densities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from machines import every_machine, random_parameters, some_fields, some_path
from plain_rules import energy_gradient
from scipy import stats

from thermoloom.machine.action import path_terms
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import ramp


def reverse_force(theta, path, word):
    """∂V_θ at the end of each step, by the θ of the stage that the step belongs to."""
    return np.concatenate(
        [
            energy_gradient(theta, path[first + 1 : last + 1], stage, word)
            for stage, (first, last) in enumerate(theta.machine.stage_windows)
        ]
    )


@every_machine
def test_loss_and_its_constant_part(machine: Machine) -> None:
    """Eq. loss_step summed over the path, term by term."""
    found = some_path(machine)
    path, theta = found.states.astype(np.float64), random_parameters(machine)
    scale = 4 * machine.mobility * machine.kT * machine.dt
    total = 0.0
    for (x, after), force in zip(
        pairwise(path), reverse_force(theta, path, found.word), strict=True
    ):
        reverse = -(after - x) + machine.mobility * machine.dt * force
        total += np.sum(reverse**2) / scale
    terms = path_terms(theta, path, word=found.word)
    assert terms.loss == pytest.approx(total / machine.steps, rel=1e-12)
    increments = np.sum(np.diff(path, axis=0) ** 2) / scale / machine.steps
    assert terms.loss - terms.reduced_loss == pytest.approx(increments, rel=1e-12)


@every_machine
def test_path_action_identity_is_exact(machine: Machine) -> None:
    """ln P₀[ω] − ln P_θ[ω̃] from SciPy's normal densities equals the sum of the two terms."""
    found, field = some_path(machine, 1, 3), some_fields(machine)[1]
    path, theta = found.states.astype(np.float64), random_parameters(machine)
    terms = path_terms(theta, path, field, found.word)
    drift, sd = machine.mobility * machine.dt, machine.noise_amplitude
    x, after = path[:-1], path[1:]
    external = ramp(machine)[:, None] * field
    forward_mean = x + drift * (external - 2 * machine.J2 * x - 4 * machine.J4 * x**3)
    reverse_mean = after - drift * reverse_force(theta, path, found.word)
    forward = stats.norm.logpdf(after, forward_mean, sd).sum()
    reverse = stats.norm.logpdf(x, reverse_mean, sd).sum()
    assert terms.log_ratio == pytest.approx(forward - reverse, rel=1e-9)
    assert terms.heat_like + terms.force_squared == pytest.approx(terms.log_ratio, rel=1e-9)
    assert abs(terms.force_squared) > 1e-3 * abs(terms.log_ratio)  # cannot be left out
