"""Distances between samples and data in a space of features: distributions and manifolds.

    Fréchet distance   |μ_a − μ_b|² + tr(C_a + C_b − 2 (C_a C_b)^½)
    KID                E k(a, a′) + E k(b, b′) − 2 E k(a, b),   k(x, y) = (x·y/d + 1)³, unbiased
    precision          fraction of the samples that lie within the manifold of the data
    recall             fraction of the data that lie within the manifold of the samples
                       A manifold is the union of balls around all points; each ball reaches the
                       k-th neighbour of its point.
    diversity          1 − mean correlation of two images of one class

Samples of a machine carry thermal noise of known size. They are compared with data that carry the
same noise (``with_thermal_noise``: the states that preparation reaches), as are all peers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.quality import unit_rows
from thermoloom.theory.generation_law import Gaussian, gelbrich
from thermoloom.threads import linear_algebra

Array64 = NDArray[np.float64]


def _features(array: NDArray[Any], name: str) -> Array64:
    rows = np.asarray(array, np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise UserError(f"{name}: expected at least two rows of features, got {rows.shape}")
    if not np.isfinite(rows).all():
        raise UserError(f"{name}: some features are not finite")
    return rows


@linear_algebra()
def frechet_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Fréchet distance of two sets of features, as if each were Gaussian."""
    laws = [
        Gaussian(rows.mean(axis=0), np.atleast_2d(np.cov(rows, rowvar=False)))
        for rows in (_features(a, "samples"), _features(b, "data"))
    ]
    return float(gelbrich(*laws))


class KernelDistance(NamedTuple):
    """KID: mean over blocks of samples, and its standard error (NaN if there is only one block)."""

    mean: float
    error: float


@linear_algebra()
def kernel_distance(
    a: NDArray[Any], b: NDArray[Any], block: int = 500, seed: int = 0
) -> KernelDistance:
    """Unbiased squared maximum mean discrepancy with a cubic kernel, in disjoint blocks."""
    x, y = _features(a, "samples"), _features(b, "data")
    rng = np.random.default_rng(seed)
    x, y = x[rng.permutation(len(x))], y[rng.permutation(len(y))]
    size = min(block, len(x), len(y))
    count = min(len(x), len(y)) // size
    values = [
        _discrepancy(x[i * size : (i + 1) * size], y[i * size : (i + 1) * size])
        for i in range(count)
    ]
    error = float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
    return KernelDistance(float(np.mean(values)), error)


def _discrepancy(x: Array64, y: Array64) -> float:
    def kernel(a: Array64, b: Array64) -> Array64:
        values: Array64 = (a @ b.T / a.shape[1] + 1) ** 3
        return values

    n = len(x)
    within = sum(float((k := kernel(z, z)).sum() - np.trace(k)) for z in (x, y)) / (n * (n - 1))
    return within - 2 * float(kernel(x, y).mean())


class PrecisionRecall(NamedTuple):
    """Fraction of samples on the data's manifold, and of data on the samples' manifold."""

    precision: float
    recall: float


@linear_algebra()
def precision_recall(a: NDArray[Any], b: NDArray[Any], neighbours: int = 3) -> PrecisionRecall:
    """Improved precision and recall of samples ``a`` for data ``b``."""
    x, y = _features(a, "samples"), _features(b, "data")
    if min(len(x), len(y)) <= neighbours:
        raise UserError(
            f"neighbours = {neighbours}: needs at least {neighbours + 1} samples and data"
        )
    across = cdist(x, y)

    def radii(points: Array64) -> Array64:
        reach: Array64 = np.sort(cdist(points, points), axis=1)[:, neighbours]
        return reach

    precision = float((across <= radii(y)).any(axis=1).mean())
    recall = float((across <= radii(x)[:, None]).any(axis=0).mean())
    return PrecisionRecall(precision, recall)


@linear_algebra()
def class_diversity(images: NDArray[Any], classes: NDArray[Any]) -> float:
    """1 − mean correlation of two images of one class, averaged over classes."""
    unit = unit_rows(_features(images, "images"))
    diversities = []
    for label in np.unique(classes):
        members = unit[np.asarray(classes) == label]
        n = len(members)
        if n > 1:
            total = members.sum(axis=0)
            diversities.append(1 - (float(total @ total) - n) / (n * (n - 1)))
    if not diversities:
        raise UserError("classes: no class has two images")
    return float(np.mean(diversities))


def confusion(requested: NDArray[Any], recognized: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Samples by requested class (rows) and recognized class (columns)."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (np.asarray(requested, np.intp), np.asarray(recognized, np.intp)), 1)
    return table


class Nearest(NamedTuple):
    """The training image most like each sample, and how alike they are."""

    image: NDArray[np.intp]
    correlation: Array64


@linear_algebra()
def nearest_images(images: NDArray[Any], training: NDArray[Any], block: int = 2000) -> Nearest:
    """The training image that correlates most with each image: a test for memorization."""
    samples = unit_rows(np.asarray(images, np.float32))
    best = np.full(len(samples), -np.inf)
    index = np.zeros(len(samples), np.intp)
    for first in range(0, len(training), block):
        alike = samples @ unit_rows(np.asarray(training[first : first + block], np.float32)).T
        nearest = alike.argmax(axis=1)
        correlation = alike[np.arange(len(samples)), nearest]
        better = correlation > best
        best[better], index[better] = correlation[better], first + nearest[better]
    return Nearest(index, best)


def with_thermal_noise(
    machine: Machine, patterns: NDArray[Any], seed: int, variance: float | None = None
) -> NDArray[np.float32]:
    """States of visible units after preparation at these patterns: data with the machine's noise.

    Pattern p is trajectory p of the validation streams of the seed. With a ``variance``, patterns
    receive Gaussian noise of that variance instead.
    """
    if variance is not None:
        noise = np.random.default_rng(seed).standard_normal(np.shape(patterns), np.float32)
        return np.asarray(patterns, np.float32) + np.float32(variance**0.5) * noise
    states = np.empty((len(patterns), machine.visible), np.float32)
    field = np.zeros(machine.units, np.float32)
    for number, pattern in enumerate(patterns):
        field[: machine.visible] = pattern
        path = engine().path(machine, field, seed, number, purpose="validation")
        states[number] = path.states[0, : machine.visible]
    return states
