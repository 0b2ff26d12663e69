"""Entropy production of a generation, between two bounds that are estimated from samples.

    Σ = βQ + ΔS                                 dissipation; Q the heat, ΔS the change of entropy
    Σ ≥ W₂²(p_0, p_tf)/(μk_BT t_f)              the speed limit of overdamped transport

A function is fitted to one half of the samples and averaged over the other half, and vice versa. So
both bounds are plain means over samples that were not used in the fit:

    W₂² ≥ E[u·(1 − A)u] + E[w·(1 − A⁻¹)w] + 2d·E[u − w] + |d|²     for every positive A, with
                                                     u = x_0 − a, w = x_tf − b, d = a − b
    S(p_tf) ≤ −E[ln q(x_tf)]                                       for every density q

The first follows from 2u·w ≤ u·Au + w·A⁻¹w by duality; at the best A it is the Gaussian
(Gelbrich) bound; an A or q that was fitted badly makes a bound weaker, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.measures.statistics import MeanEstimate, estimate_mean
from thermoloom.theory.generation_law import prepared_entropy, transport_scale
from thermoloom.threads import linear_algebra

Float64 = NDArray[np.float64]

FEWEST = 8
"""Fewest samples; half of them must suffice for a fit."""


@dataclass(frozen=True, eq=False)
class Factors:
    """A Gaussian of one variance except in a few directions, which few samples can resolve."""

    mean: Float64
    bulk: float
    """Variance in all other directions."""
    directions: Float64
    """(N, r), orthonormal."""
    variances: Float64
    """(r,), as samples that were not used in the fit will have them."""
    noise: float
    """E|mean − true mean|²."""

    def surprise(self, x: Float64) -> Float64:
        """−ln q(x) of states (S, N), in nats."""
        away = x - self.mean
        along = away @ self.directions
        rest = (away**2).sum(axis=1) - (along**2).sum(axis=1)
        units, spikes = self.directions.shape
        square = rest / self.bulk + (along**2 / self.variances).sum(axis=1)
        logs = (units - spikes) * math.log(self.bulk) + float(np.log(self.variances).sum())
        surprise: Float64 = 0.5 * (square + units * math.log(2 * np.pi) + logs)
        return surprise


def fitted_factors(x: Float64) -> Factors:
    """Directions whose variance exceeds that of independent units of equal variance.

    Eigenvalues of n samples of N such units lie below σ²(1 + √γ)², γ = N/n. One above it belongs
    to a direction of variance σ²ℓ, λ/σ² = ℓ (1 + γ/(ℓ − 1)), of which the sample direction has the
    share c² = (1 − γ/(ℓ − 1)²)/(1 + γ/(ℓ − 1)): fresh samples vary by σ²(1 + (ℓ − 1) c²) along it.
    """
    count, units = x.shape
    mean = x.mean(axis=0)
    degrees = count - 1
    eigenvalues, directions = _principal(x - mean, degrees)
    gamma = units / degrees
    spikes, bulk = 0, float(eigenvalues.sum()) / units
    for _ in range(len(eigenvalues)):
        degrees_left = (units - spikes) * (1 - spikes / degrees)
        bulk = float(eigenvalues[spikes:].sum()) / degrees_left
        above_bulk = int((eigenvalues > bulk * (1 + math.sqrt(gamma)) ** 2).sum())
        if above_bulk <= spikes or above_bulk >= min(degrees, units):
            break
        spikes = above_bulk
    ratio = eigenvalues[:spikes] / bulk
    half = ratio + 1 - gamma
    spike = 0.5 * (half + np.sqrt(np.maximum(half**2 - 4 * ratio, 0)))
    share = np.maximum((1 - gamma / (spike - 1) ** 2) / (1 + gamma / (spike - 1)), 0)
    variances = bulk * (1 + (spike - 1) * share)
    noise = float(eigenvalues.sum()) / count
    return Factors(mean, bulk, directions[:, :spikes], variances, noise)


def _principal(away: Float64, degrees: int) -> tuple[Float64, Float64]:
    """Eigenvalues of the covariance in descending order, and its eigenvectors (N, r).

    They follow from XᵀX or XXᵀ of the centred states X, whichever is smaller.
    """
    count, units = away.shape
    if units <= count:
        values, vectors = np.linalg.eigh(away.T @ away)
        return np.maximum(values[::-1], 0) / degrees, vectors[:, ::-1]
    values, weights = np.linalg.eigh(away @ away.T)
    values, weights = values[:0:-1], weights[:, :0:-1]  # the least, zero, is that of the mean
    return values / degrees, (away.T @ weights) / np.sqrt(values)


def transport_terms(start: Factors, end: Factors, x: Float64, y: Float64) -> Float64:
    """Contribution of each pair of states, x at the start and y at the end, to the bound of W₂²."""
    a, b = start.mean, end.mean
    size = float(np.sum((a - b) ** 2))
    reliable = max(0.0, 1 - (start.noise + end.noise) / size) if size else 0.0
    d = reliable * (a - b)
    middle = 0.5 * (a + b)
    a, b = middle + 0.5 * d, middle - 0.5 * d
    u, w = x - a, y - b
    base = float(start.variances.sum() + start.bulk * (len(a) - len(start.variances))) / len(a)
    stretch, rest = np.sqrt(end.variances / base), math.sqrt(end.bulk / base)
    along_u, along_w = u @ end.directions, w @ end.directions
    rest_u = (u**2).sum(axis=1) - (along_u**2).sum(axis=1)
    rest_w = (w**2).sum(axis=1) - (along_w**2).sum(axis=1)
    terms = (along_u**2) @ (1 - stretch) + rest_u * (1 - rest)
    terms += (along_w**2) @ (1 - 1 / stretch) + rest_w * (1 - 1 / rest)
    bounds: Float64 = terms + 2 * (u - w) @ d + float(d @ d)
    return bounds


@dataclass(frozen=True)
class Dissipation:
    """Σ of a generation and its bounds, in nats: means over samples with their standard errors."""

    heat: MeanEstimate
    """βQ"""
    distance: float
    """Lower bound of W₂², in squared units of x."""
    speed_limit: MeanEstimate
    """Lower bound of Σ."""
    entropy_change: MeanEstimate
    """Upper bound of ΔS, from a Gaussian of few directions."""

    @property
    def share(self) -> float:
        """Speed limit in units of βQ."""
        return self.speed_limit.mean / self.heat.mean

    @property
    def production(self) -> tuple[float, float]:
        """Lower and upper bound of Σ, up to sampling errors."""
        return self.speed_limit.mean, self.heat.mean + self.entropy_change.mean

    @property
    def entropy_interval(self) -> tuple[float, float]:
        """Lower and upper bound of ΔS; a lower value would break the speed limit."""
        return self.speed_limit.mean - self.heat.mean, self.entropy_change.mean


@linear_algebra()
def dissipation(machine: Machine, generated: Generated) -> Dissipation:
    """Bounds of the entropy that a generation produced, from its samples."""
    start = generated.initial_states.astype(np.float64)
    end = generated.final_states.astype(np.float64)
    if len(start) < FEWEST:
        raise UserError(f"{len(start)} samples: at least {FEWEST} are needed to bound dissipation")
    terms, surprise = np.empty(len(start)), np.empty(len(start))
    halves = np.arange(len(start)) % 2 == 0
    for fit, held in ((halves, ~halves), (~halves, halves)):
        first, last = fitted_factors(start[fit]), fitted_factors(end[fit])
        terms[held] = transport_terms(first, last, start[held], end[held])
        surprise[held] = last.surprise(end[held])
    entropy = machine.units * prepared_entropy(machine)
    return Dissipation(
        heat=estimate_mean(generated.heat / machine.kT),
        distance=float(terms.mean()),
        speed_limit=estimate_mean(terms / transport_scale(machine)),
        entropy_change=estimate_mean(surprise - entropy),
    )
