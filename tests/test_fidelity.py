"""Distances of distributions and of manifolds: closed forms, brute force, constructed sets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import sqrtm

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.fidelity import (
    class_diversity,
    confusion,
    frechet_distance,
    kernel_distance,
    nearest_images,
    precision_recall,
    with_thermal_noise,
)

RNG = np.random.default_rng(3)


def gaussian(count: int, mean: np.ndarray, covariance: np.ndarray, seed: int = 0) -> np.ndarray:
    """Rows whose sample mean and sample covariance are these, to round-off."""
    rows = np.random.default_rng(seed).normal(size=(count, len(mean)))
    rows -= rows.mean(axis=0)
    own = np.atleast_2d(np.cov(rows, rowvar=False))
    white = rows @ np.linalg.inv(np.linalg.cholesky(own)).T
    return mean + white @ np.linalg.cholesky(covariance).T


def some_covariance(size: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


# --- Fréchet distance -----------------------------------------------------------------------------


def test_frechet_distance_in_one_dimension() -> None:
    """(m − m')² + (σ − σ')²."""
    a = gaussian(50, np.array([1.0]), np.array([[4.0]]))
    b = gaussian(70, np.array([3.0]), np.array([[0.25]]), seed=1)
    assert frechet_distance(a, b) == pytest.approx(2.0**2 + 1.5**2, rel=1e-10)


def test_frechet_distance_of_covariances_that_do_not_commute() -> None:
    A, B = some_covariance(5, 0), some_covariance(5, 1)
    assert np.abs(A @ B - B @ A).max() > 0.1
    shift = np.arange(5.0)
    a, b = gaussian(40, np.zeros(5), A), gaussian(60, shift, B, seed=1)
    expected = shift @ shift + np.trace(A + B - 2 * np.real(sqrtm(A @ B)))
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-8)
    assert frechet_distance(b, a) == pytest.approx(expected, rel=1e-8)


def test_frechet_distance_of_a_set_to_itself_is_zero() -> None:
    rows = RNG.normal(size=(30, 6))
    rows[:, 3] = 0  # a feature that is never active
    assert frechet_distance(rows, rows) == pytest.approx(0, abs=1e-6)


# --- KID ------------------------------------------------------------------------------------------


def test_kernel_distance_by_brute_force() -> None:
    x, y = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 3)) + 1

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return (sum(p * q for p, q in zip(a, b, strict=True)) / 3 + 1) ** 3

    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    within = sum(k(x[i], x[j]) + k(y[i], y[j]) for i, j in pairs) / len(pairs)
    across = sum(k(a, b) for a in x for b in y) / 49
    found = kernel_distance(x, y)
    assert found.mean == pytest.approx(within - 2 * across, rel=1e-12)
    assert math.isnan(found.error)


def test_kernel_distance_of_one_distribution_is_zero_within_its_error() -> None:
    rng = np.random.default_rng(5)
    same = kernel_distance(rng.normal(size=(4000, 8)), rng.normal(size=(4000, 8)), block=200)
    assert abs(same.mean) < 4 * same.error
    other = kernel_distance(rng.normal(size=(4000, 8)), 0.3 + rng.normal(size=(4000, 8)), 200)
    assert other.mean > 10 * other.error


# --- precision and recall -------------------------------------------------------------------------


def test_precision_and_recall_of_half_a_manifold() -> None:
    """Samples on the left one of two clusters of data: all are real, half the data are reached."""
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 100
    found = precision_recall(left + 1e-9, np.concatenate([left, right]))
    assert found == (1.0, 0.5)
    assert precision_recall(np.concatenate([left, right]), left + 1e-9) == (0.5, 1.0)
    assert precision_recall(left, right) == (0.0, 0.0)


def test_balls_reach_the_kth_neighbour() -> None:
    """Data at 0, 1, 3 on a line; with k = 1 the balls have radii 1, 1, 2."""
    data = np.array([[0.0], [1.0], [3.0]])
    samples = np.array([[-0.9], [-1.1], [4.9], [5.1]])
    assert precision_recall(samples, data, neighbours=1).precision == 0.5


# --- images ---------------------------------------------------------------------------------------


def test_class_diversity_by_brute_force() -> None:
    images, classes = RNG.normal(size=(9, 12)), np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    expected = []
    for own in range(3):
        rows = images[classes == own]
        pairs = [(a, b) for a in range(len(rows)) for b in range(a)]
        found = [1 - np.corrcoef(rows[a], rows[b])[0, 1] for a, b in pairs]
        expected.append(np.mean(found))
    assert class_diversity(images, classes) == pytest.approx(np.mean(expected), rel=1e-12)
    assert class_diversity(np.repeat(images[:2], 2, axis=0), np.array([0, 0, 1, 1])) == (
        pytest.approx(0, abs=1e-12)
    )
    with pytest.raises(UserError, match="no class has two"):
        class_diversity(images[:3], np.arange(3))


def test_confusion_counts_asked_by_recognized() -> None:
    table = confusion(np.array([0, 0, 2, 1]), np.array([0, 1, 2, 1]), 3)
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_nearest_images_whatever_the_blocks() -> None:
    training = RNG.normal(size=(50, 20))
    images = 3 * training[[7, 44, 0]] + 5 + 0.1 * RNG.normal(size=(3, 20))
    for block in (7, 50, 1000):
        found = nearest_images(images, training, block)
        assert found.image.tolist() == [7, 44, 0]
    expected = [np.corrcoef(i, t)[0, 1] for i, t in zip(images, training[[7, 44, 0]], strict=True)]
    np.testing.assert_allclose(found.correlation, expected, rtol=1e-5)


def test_thermal_noise_of_harmonic_units() -> None:
    """Preparation takes a harmonic unit to mean s (1 − e^(−2t)) and variance k_BT/2J₂."""
    machine = Machine(visible=300, hidden=0, J4=0.0, kT=0.2, duration=4.0, dt=0.01)
    patterns = np.tile(np.array([1.5, -0.5, 0.0], np.float32), (8, 100))
    states = with_thermal_noise(machine, patterns, seed=4)
    assert states.shape == (8, 300)
    deviation = states - patterns
    # 2,400 independent units: the mean is good to σ/√2400, the variance to √(2/2400)
    shrink = (1 - 2 * 0.01) ** 400
    assert abs(deviation.mean() + shrink * patterns.mean()) < 4 * np.sqrt(0.1 / 2400)
    euler = 0.2 * 2 * 0.01 / (1 - (1 - 2 * 0.01) ** 2)
    assert deviation.var() == pytest.approx(euler, rel=4 * np.sqrt(2 / 2400))
    again = with_thermal_noise(machine, patterns, seed=4)
    assert np.array_equal(states, again)
    assert not np.array_equal(states, with_thermal_noise(replace(machine, kT=0.1), patterns, 4))


@pytest.mark.parametrize(
    "rows", [np.zeros(4), np.zeros((1, 3)), np.full((3, 3), np.nan)], ids=["flat", "one", "nan"]
)
def test_features_that_cannot_be_compared(rows: np.ndarray) -> None:
    with pytest.raises(UserError, match=r"samples: .*(two rows|not finite)"):
        frechet_distance(rows, np.zeros((3, 3)))
