"""Codes: the field of each hidden unit for a pattern.

    projection   Pᵀs, P_ia ~ 𝒩(0, 1/N_v)                      the paper's
    copy         pixel a mod N_v of s                           the method's first code
    signs        A · sign(Pᵀs)
    clusters     a random word of ±A for each cluster of k-means within a class (without classes,
                 within all patterns)
    given        an array that the user supplies

Gaussian projections are rotation invariant under Σx⁴, so mixtures of patterns cost no more energy
than pure ones; words of ±A make mixtures costlier. To add a code, write a function here and
add its name to ``CODES`` and to ``machine.machine.CODE_NAMES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.threads import linear_algebra, threads

Float32 = NDArray[np.float32]


Code = Callable[[Machine, Float32, Sequence[int]], Float32]
"""``code(machine, patterns, classes)``: fields of amplitude one on the hidden units, (P, N_h)."""


def projection(machine: Machine) -> Float32:
    """P_ia ~ 𝒩(0, 1/N_v), (N_v, N_h): the fixed projection of a pattern on hidden units."""
    rng = np.random.default_rng(machine.code_seed)
    entries = rng.normal(0, 1 / math.sqrt(machine.visible), (machine.visible, machine.hidden))
    return entries.astype(np.float32)


@linear_algebra()
def _projected(machine: Machine, patterns: Float32, _: Sequence[int]) -> Float32:
    # float64 and no BLAS: the float32 result then depends on neither threads nor library
    wide, P = patterns.astype(np.float64), projection(machine).astype(np.float64)
    fields: Float32 = np.einsum("pi,ia->pa", wide, P, optimize=False).astype(np.float32)
    return fields


def _copied(machine: Machine, patterns: Float32, _: Sequence[int]) -> Float32:
    return patterns[:, np.arange(machine.hidden) % machine.visible]


def _signs(machine: Machine, patterns: Float32, classes: Sequence[int]) -> Float32:
    signs = np.where(_projected(machine, patterns, classes) < 0, -1, 1)
    return np.float32(machine.code_amplitude) * signs.astype(np.float32)


def _words_of_clusters(machine: Machine, patterns: Float32, classes: Sequence[int]) -> Float32:
    cluster = clusters(machine, patterns, classes)
    return cluster_words(machine, int(cluster.max()) + 1)[cluster]


def cluster_words(machine: Machine, count: int) -> Float32:
    """The first ``count`` random words of ±A; word n does not depend on ``count``."""
    rng = np.random.default_rng(machine.code_seed)
    signs = 1 - 2 * rng.integers(0, 2, (count, machine.hidden))
    return (machine.code_amplitude * signs).astype(np.float32)


def clusters(machine: Machine, patterns: Float32, classes: Sequence[int]) -> NDArray[np.intp]:
    """Number of the cluster of each pattern: n · k + its cluster within the n-th class."""
    k = machine.code_clusters
    _, rank = np.unique(_classes(patterns, classes), return_inverse=True)
    cluster: NDArray[np.intp] = rank * k + within_classes(machine, patterns, classes, k)
    return cluster


def within_classes(
    machine: Machine, patterns: Float32, classes: Sequence[int], k: int
) -> NDArray[np.intp]:
    """k-means within each class: the cluster, 0 … k − 1, of every pattern."""
    label = _classes(patterns, classes)
    cluster = np.empty(len(patterns), np.intp)
    for rank, class_number in enumerate(np.unique(label)):
        members = np.flatnonzero(label == class_number)
        cluster[members] = np.arange(len(members))
        if len(members) > k:
            rng = np.random.default_rng([machine.code_seed, rank])
            with threads(1):  # sums in BLAS must not depend on the number of threads
                cluster[members] = kmeans(patterns[members].astype(np.float64), k, rng)
    return cluster


def kmeans(
    rows: NDArray[np.float64], k: int, rng: np.random.Generator, rounds: int = 20
) -> NDArray[np.intp]:
    """The cluster of each row by Lloyd's iteration, from k-means++ seeds.

    A cluster that loses its last row keeps its centre.
    """
    squares = np.square(rows).sum(axis=1)

    def distances(centres: NDArray[np.float64]) -> NDArray[np.float64]:
        """|x − c|², (rows, centres)."""
        lengths = np.square(centres).sum(axis=1)
        squared_distances: NDArray[np.float64] = squares[:, None] - 2 * rows @ centres.T + lengths
        return squared_distances

    centres = np.empty((k, rows.shape[1]))
    nearest = np.full(len(rows), np.inf)
    for n in range(k):
        total = nearest.sum()
        even = n == 0 or total <= 0
        seed_row = rng.choice(len(rows), p=None if even else nearest / total)
        centres[n] = rows[seed_row]
        np.minimum(nearest, np.maximum(distances(centres[n : n + 1])[:, 0], 0), out=nearest)
    cluster = np.full(len(rows), -1, np.intp)
    for _ in range(rounds):
        before, cluster = cluster, distances(centres).argmin(axis=1)
        if np.array_equal(before, cluster):
            break
        member = csr_array((np.ones(len(rows)), cluster, np.arange(len(rows) + 1)), (len(rows), k))
        counts = np.bincount(cluster, minlength=k)
        sums = member.T @ rows
        centres[counts > 0] = sums[counts > 0] / counts[counts > 0, None]
    return cluster


def _classes(patterns: Float32, classes: Sequence[int]) -> NDArray[np.intp]:
    """Classes of the patterns; without classes, all patterns are in class 0."""
    return np.asarray(classes if len(classes) else np.zeros(len(patterns)), np.intp)


def _given(machine: Machine, patterns: Float32, _: Sequence[int]) -> Float32:
    raise UserError(
        "machine.code = 'given': the patterns have no fields for the hidden units; pass them "
        f"as code, an array of shape ({len(patterns)}, {machine.hidden})"
    )


CODES: dict[str, Code] = {
    "projection": _projected,
    "copy": _copied,
    "signs": _signs,
    "clusters": _words_of_clusters,
    "given": _given,
}
"""Every code by name."""
