"""Trajectories, free energies and measures of the Python interface."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import thermoloom as tl
from thermoloom.measures.free_energy import crooks_test


@pytest.fixture(scope="module")
def table() -> Any:
    return np.random.default_rng(0).normal([5, 100], [1, 20], (300, 2))


@pytest.fixture(scope="module")
def drawn(table: Any) -> tl.Drawn:
    return tl.Machine.for_data(table).solve(table).generate(300)


def test_trajectories_end_at_the_samples_and_obey_the_first_law() -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2, labels=2)
    computer = machine.solve(tl.digits(0, 1), resize=True)
    way, drawn = computer.trajectories(4, every=7), computer.generate(4)
    assert way.times.tolist() == pytest.approx([*np.arange(0, 0.05, 0.007), 0.05])
    np.testing.assert_array_equal(way.states[:, -1], drawn.states)
    np.testing.assert_allclose(way.heat[:, -1], drawn.heat, atol=1e-5)
    np.testing.assert_allclose(way.work[:, -1], drawn.work, atol=1e-5)
    assert repr(way) == "Trajectories(4 samples, 9 times to 0.05, 57 units)"
    one_way = computer.at(device=tl.Device(non_reciprocity=0.1)).trajectories(2)
    assert np.isnan(one_way.heat).all()
    assert np.isfinite(one_way.states).all()


def test_crooks_theorem_of_gaussian_work() -> None:
    """W ~ 𝒩(ΔF ± σ²/2, σ²) forwards and backwards obeys it exactly."""
    rng, sigma, difference = np.random.default_rng(1), 1.5, 3.0
    forwards = rng.normal(difference + sigma**2 / 2, sigma, 20_000)
    backwards = rng.normal(-difference + sigma**2 / 2, sigma, 20_000)
    test = crooks_test(forwards, backwards)
    assert abs(test.slope - 1) < 4 * test.slope_error < 0.1
    assert abs(test.difference - difference) < 4 * test.error < 0.1
    assert np.isnan(crooks_test(forwards + 100, backwards + 100).slope)


def test_three_free_energies_agree() -> None:
    pytest.importorskip("pymbar", reason="extra free-energy is not installed")
    machine = tl.Machine(visible=4, hidden=0, labels=2, dt=0.01,
                         wiring=["visible-visible", "visible-label"])  # fmt: skip
    patterns = [[1.0, 0.5, -1, 0], [-1, 0, 1, 0.5]]
    computer = machine.solve(patterns, ["up", "down"], scale=None)
    free = computer.free_energy(samples=600, switches=6, rest=1.5, classes="up")
    test: Any = free.crooks
    assert abs(free.difference - test.difference) < 4 * np.hypot(free.error, test.error)
    assert abs(test.slope - 1) < 4 * test.slope_error
    assert "Jarzynski" in repr(free)
    assert len(repr(free)) < 150
    with pytest.raises(tl.UserError, match="a free energy for each class; name one"):
        computer.free_energy()
    for rest, message in ((0.0, "at least one step"), ("a", "expected a number"), (-1, "at least")):
        with pytest.raises(tl.UserError, match=rf"rest = .*{message}"):
            computer.free_energy(classes="up", rest=rest)


def test_distances_in_own_features(drawn: tl.Drawn, table: Any) -> None:
    def standard(samples: Any) -> Any:
        return (samples - table.mean(axis=0)) / table.std(axis=0)

    other = np.random.default_rng(1).normal([7, 100], [1, 20], (300, 2))
    assert drawn.frechet(table, standard) < 0.1 < 3 < drawn.frechet(other, standard)
    assert drawn.kid(other, standard).mean > drawn.kid(table, standard).mean
    assert min(drawn.precision_recall(table, standard)) > 0.9
    assert drawn.frechet(features=standard) == drawn.frechet(table, standard)
    with pytest.raises(tl.UserError, match="expected one row for each"):
        drawn.frechet(table, lambda samples: samples[:3])
    for call in (drawn.kid, drawn.computer.log_likelihoods):
        with pytest.raises(
            tl.UserError, match="this computer has 2 visible units; resize the data"
        ):
            call(tl.digits(0, 1))


def test_the_reference_has_the_same_thermal_noise(drawn: tl.Drawn, table: Any) -> None:
    np.testing.assert_allclose(drawn.reference(), table, rtol=1e-5)
    machine = drawn.computer.machine
    added = (drawn.reference(noise=True) / table.std(axis=0)).var(axis=0) - 1
    noise = machine.kT / (2 * machine.J2) * (machine.potential.curvature(0.0) / 2) ** 2
    np.testing.assert_allclose(added, noise, atol=0.15)


def test_a_developed_sample_is_compared_without_noise_and_says_so() -> None:
    window = tl.Development(J2=-1.0, J4=0.4, duration=0.05)
    machine = tl.Machine(visible=9, hidden=0, wiring=["visible-visible"], biases=["visible"],
                         J4=0.0, dt=0.01, duration=0.1, development=[window])  # fmt: skip
    drawn = machine.solve(tl.digits(0, 1, 2), resize=True).generate(5)
    with pytest.warns(tl.DataWarning, match="the reference has no noise"):
        drawn.frechet()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn.frechet(noise=False)


class Spread:
    def measure(self, samples: Any, reference: Any) -> dict[str, float]:
        return {"spread": float(samples.std() / reference.std())}


def test_a_measure_of_the_user(drawn: tl.Drawn) -> None:
    assert drawn.measure(Spread())["spread"] == pytest.approx(1, abs=0.1)
    assert drawn.measure(lambda samples, reference: samples.shape) == (300, 2)
    with pytest.raises(tl.UserError, match="not a function of samples and reference"):
        drawn.measure(3)
