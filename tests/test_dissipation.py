"""Entropy production and its bounds: closed forms of harmonic machines, quadrature, known laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from machines import MACHINES, random_parameters, some_word
from scipy import integrate

from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.dissipation import dissipation, fitted_factors, transport_terms
from thermoloom.theory.generation_law import (
    Gaussian,
    gelbrich,
    generation_law,
    prepared_entropy,
    transport_scale,
)

HARMONIC = {
    name: replace(machine, J4=0.0, duration=1.0, dt=2e-3) for name, machine in MACHINES.items()
}
each_harmonic = pytest.mark.parametrize("machine", HARMONIC.values(), ids=HARMONIC.keys())


@each_harmonic
def test_samples_of_a_harmonic_machine_follow_its_law(machine: Machine) -> None:
    """Heat of every stage, means and variances, within five standard errors of 2,000 samples."""
    theta = random_parameters(machine, 0.15, dtype=np.float32)
    law = generation_law(theta, some_word(machine))
    drawn = generate(theta, 2000, 4, classes=1 if machine.labels else None)
    for states, exact in ((drawn.initial_states, law.laws[0]), (drawn.final_states, law.laws[-1])):
        variance = np.diag(exact.covariance)
        assert np.abs((states.mean(axis=0) - exact.mean) / np.sqrt(variance / 2000)).max() < 5
        assert np.abs(states.var(axis=0) / variance - 1).max() < 5 * math.sqrt(2 / 2000)
    error = drawn.stage_heat.std(axis=0) / math.sqrt(2000)
    np.testing.assert_array_less(np.abs(drawn.stage_heat.mean(axis=0) - law.stage_heat), 5 * error)


@pytest.mark.parametrize("scale", [0.0, 0.05, 0.3, 0.8])
@each_harmonic
def test_speed_limit_holds_where_everything_is_known(machine: Machine, scale: float) -> None:
    for seed in range(5):
        law = generation_law(random_parameters(machine, scale, seed), some_word(machine))
        assert law.entropy_production >= law.speed_limit - 1e-9
        assert law.speed_limit >= 0


def test_speed_limit_is_nearly_reached_by_a_slow_pull() -> None:
    """One unit dragged at constant speed by a bias that grows with it: Σ → (Δx)²/(μk_BT t_f)."""
    stages = 100
    machine = Machine(
        visible=1, hidden=0, wiring=(), biases=("visible",), J4=0.0, J2=20.0, stages=stages,
        dt=1e-4, duration=1.0,
    )  # fmt: skip
    theta = Parameters.zeros(machine, np.float64)
    # stages are counted from the pattern, so the last one is the first of generation
    theta.vector[:, 0] = -2 * machine.J2 * np.linspace(3.0, 0.0, stages + 1)[:-1]
    law = generation_law(theta)
    assert law.speed_limit == pytest.approx(9.0 / transport_scale(machine), rel=0.1)
    assert 1.0 < law.entropy_production / law.speed_limit < 1.15


def test_anharmonic_machines_have_no_closed_form() -> None:
    with pytest.raises(UserError, match=r"machine\.J4 = 1: states are Gaussian only where it is 0"):
        generation_law(random_parameters(MACHINES["paper"]))


def test_distance_of_gaussians() -> None:
    """Along a line it is (Δm)² + (Δσ)²; rotations and commuting covariances likewise."""
    p, q = (Gaussian(np.array([m]), np.array([[v]])) for m, v in ((0.0, 4.0), (3.0, 0.25)))
    assert gelbrich(p, q) == pytest.approx(9 + 1.5**2)
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    a, b = rng.uniform(0.1, 3, (2, 5))
    same = [Gaussian(np.zeros(5), (turn * own) @ turn.T) for own in (a, b)]
    assert gelbrich(*same) == pytest.approx(((np.sqrt(a) - np.sqrt(b)) ** 2).sum())


# --- entropy of prepared units -------------------------------------------------------------------


def test_prepared_units_have_the_entropy_of_boltzmann() -> None:
    """Long after the start, −∫ p ln p of exp(−V/k_BT)/Z by quadrature, up to first order in Δt."""
    steps, errors = (4e-3, 2e-3), []
    for dt in steps:
        machine = Machine(visible=1, hidden=0, dt=dt, duration=4.0)

        def weight(x: float, machine: Machine = machine) -> float:
            return math.exp(-float(machine.potential.energy(x)) / machine.kT)

        z = integrate.quad(weight, -4, 4)[0]
        energy = machine.potential.energy
        mean = integrate.quad(lambda x, v=energy: weight(x) * v(x), -4, 4)[0] / z
        errors.append(prepared_entropy(machine) - (mean / machine.kT + math.log(z)))
    assert abs(errors[1]) < 5e-3
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("duration", [0.01, 0.5])
def test_entropy_on_a_grid_is_the_closed_form_where_units_are_nearly_harmonic(duration) -> None:
    harmonic = Machine(J4=0.0, duration=duration)
    nearly = replace(harmonic, J4=1e-9)
    assert prepared_entropy(nearly) == pytest.approx(prepared_entropy(harmonic), abs=1e-7)


# --- bounds from samples --------------------------------------------------------------------------


def known_laws(units: int, spikes: tuple[float, ...], shift: float) -> tuple[Gaussian, Gaussian]:
    rng = np.random.default_rng(units)
    turn = np.linalg.qr(rng.normal(size=(units, max(1, len(spikes)))))[0]
    end = 0.04 * np.eye(units)
    for k, spike in enumerate(spikes):
        end += spike * np.outer(turn[:, k], turn[:, k])
    mean = shift * rng.normal(size=units)
    return Gaussian(np.zeros(units), 0.05 * np.eye(units)), Gaussian(mean, end)


def samples_of(law: Gaussian, count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.multivariate_normal(law.mean, law.covariance, count, method="cholesky")


@pytest.mark.parametrize("units", [10, 120])
@pytest.mark.parametrize("spikes", [(), (1.0,), (60.0, 20.0, 5.0)])
@pytest.mark.parametrize("shift", [0.0, 0.2])
def test_held_out_distance_is_not_inflated(units: int, spikes: tuple, shift: float) -> None:
    """Of 200 samples, also of more units than samples: below the exact distance on the average
    over 15 trials, and near it; entropy likewise above the exact one.
    """
    start, end = known_laws(units, spikes, shift)
    rng = np.random.default_rng(1)
    distances, entropies = [], []
    for _ in range(15):
        x, y = samples_of(start, 200, rng), samples_of(end, 200, rng)
        fits = fitted_factors(x[:100]), fitted_factors(y[:100])
        distances.append(transport_terms(*fits, x[100:], y[100:]).mean())
        entropies.append(fits[1].surprise(y[100:]).mean())
    exact = gelbrich(start, end)
    mean, error = np.mean(distances), np.std(distances) / math.sqrt(15)
    assert mean < exact + 3 * error
    assert mean > 0.93 * exact - 0.001 * units
    above, error = np.mean(entropies) - end.entropy, np.std(entropies) / math.sqrt(15)
    assert above > -3 * error
    assert above < 0.02 * units + 0.3
    naive = np.sum((x.mean(0) - y.mean(0)) ** 2)  # what is not held out: never zero
    assert naive > 0


def test_same_samples_would_inflate_it() -> None:
    """Without held-out samples, the Gaussian formula gives a distance between equal laws."""
    start, _ = known_laws(300, (), 0.0)
    rng = np.random.default_rng(2)
    x, y = samples_of(start, 200, rng), samples_of(start, 200, rng)
    naive = gelbrich(*(Gaussian(z.mean(0), np.cov(z.T)) for z in (x, y)))
    held_out = transport_terms(fitted_factors(x[:100]), fitted_factors(y[:100]), x[100:], y[100:])
    assert naive > 5
    assert abs(held_out.mean()) < 0.01


@each_harmonic
def test_bounds_of_samples_enclose_the_exact_entropy_production(machine: Machine) -> None:
    theta = random_parameters(machine, 0.25, dtype=np.float32)
    law = generation_law(theta, some_word(machine))
    drawn = generate(theta, 2000, 4, classes=1 if machine.labels else None)
    found = dissipation(machine, drawn)
    low, high = found.production
    error = math.hypot(found.heat.sem, found.entropy_change.sem)
    assert low < law.speed_limit + 3 * found.speed_limit.sem
    assert low < law.entropy_production + 3 * found.speed_limit.sem
    assert high > law.entropy_production - 3 * error
    assert high < law.entropy_production + 3 * error + 0.06 * machine.units
    assert found.entropy_interval[0] < law.entropy_change + 3 * error


def test_too_few_samples_bound_nothing(small: Machine) -> None:
    drawn = generate(Parameters.zeros(small), 7, 4)
    with pytest.raises(UserError, match="7 samples: at least 8 are needed"):
        dissipation(small, drawn)
