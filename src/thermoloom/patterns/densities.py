"""Small targets with known density, for checking a machine of two units.

    mixture      p(x) = Σ_k w_k 𝒩(x; m_k, σ_k²)
    ring         a point on a circle, uniform in angle, plus 𝒩(0, σ²) in each coordinate
    two_moons    the same on two half circles

>>> import thermoloom as tl
>>> target = tl.densities.ring(radius=2)
>>> rows = target.sample(2000)
>>> target.density([(2, 0), (0, 0)]).round(6)
array([0.317568, 0.      ])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import i0e, logsumexp

from thermoloom.errors import UserError
from thermoloom.inputs import seed_number, whole_number

Float64 = NDArray[np.float64]

_NODES = 16
"""Nodes of Gauss–Legendre quadrature along half a circle, per radius of noise: the density is then
exact to 1e-9."""


@dataclass(frozen=True, eq=False)
class Density:
    """A probability density that can be evaluated and sampled."""

    name: str
    dimension: int
    _log_density: Callable[[Float64], Float64]
    _draw: Callable[[np.random.Generator, int], Float64]

    def __repr__(self) -> str:
        return f"Density({self.name}, {self.dimension} dimensions)"

    def sample(self, count: int, seed: int = 0) -> Float64:
        """``count`` independent draws, (count, dimension), with this ``seed`` (0)."""
        rng = np.random.default_rng(seed_number("seed", seed))
        return self._draw(rng, whole_number("count", count, 1))

    def log_density(self, points: ArrayLike) -> Float64:
        """Logarithm ln p of every point (…, dimension)."""
        x = np.asarray(points, np.float64)
        if x.shape[-1:] != (self.dimension,):
            raise UserError(f"points of shape {x.shape}: expected (…, {self.dimension})")
        return self._log_density(x)

    def density(self, points: ArrayLike) -> Float64:
        """Density p of every point (…, dimension)."""
        p: Float64 = np.exp(self.log_density(points))
        return p


def mixture(
    means: ArrayLike, deviations: ArrayLike = 0.3, weights: ArrayLike | None = None
) -> Density:
    """Isotropic Gaussians in a mixture.

    ``means``: their centres, (k, d). ``deviations``: their standard deviations, one number or one
    for each (0.3). ``weights``: one for each, equal by default; only their ratios matter.

    >>> import thermoloom as tl
    >>> target = tl.densities.mixture([(-2, 0), (2, 0)], deviations=0.5)
    >>> target.sample(3).shape, round(float(target.density((0, 0))), 6)
    ((3, 2), 0.000214)
    """
    centres = np.atleast_2d(np.asarray(means, np.float64))
    count, dimension = centres.shape
    widths = _one_each("deviations", deviations, count)
    shares = _one_each("weights", 1.0 if weights is None else weights, count)
    shares = shares / shares.sum()

    def log_density(x: Float64) -> Float64:
        squares = np.square(x[..., None, :] - centres).sum(axis=-1)
        exponents = -squares / (2 * widths**2) - dimension * np.log(widths * np.sqrt(2 * np.pi))
        total: Float64 = logsumexp(exponents, b=shares, axis=-1)
        return total

    def draw(rng: np.random.Generator, n: int) -> Float64:
        part = rng.choice(count, n, p=shares)
        return centres[part] + widths[part, None] * rng.standard_normal((n, dimension))

    return Density(f"mixture of {count}", dimension, log_density, draw)


def ring(radius: float = 1.0, noise: float = 0.1) -> Density:
    """A circle of radius R with Gaussian noise of standard deviation σ in both coordinates.

    p(x) = exp(−(|x| − R)²/2σ²) e^(−z) I₀(z)/2πσ² with z = |x|R/σ². ``radius``: R (1). ``noise``:
    σ (0.1), at least R/100.

    >>> import thermoloom as tl
    >>> tl.densities.ring()
    Density(ring, 2 dimensions)
    """
    _check_noise("ring", noise, radius)

    def log_density(x: Float64) -> Float64:
        r = np.linalg.norm(x, axis=-1)
        scaled = np.log(i0e(r * radius / noise**2)) - np.log(2 * np.pi * noise**2)
        total: Float64 = scaled - (r - radius) ** 2 / (2 * noise**2)
        return total

    def draw(rng: np.random.Generator, n: int) -> Float64:
        angle = rng.uniform(0, 2 * np.pi, n)
        circle = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return circle + noise * rng.standard_normal((n, 2))

    return Density("ring", 2, log_density, draw)


def two_moons(noise: float = 0.1) -> Density:
    """Two interleaved half circles of radius 1, as in scikit-learn's make_moons.

    ``noise``: standard deviation of the Gaussian noise in both coordinates (0.1), at least 0.01.
    """
    _check_noise("two_moons", noise)

    def points(angle: Float64, lower: NDArray[np.bool_]) -> Float64:
        upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return np.where(lower[:, None], [1, 0.5] - upper, upper)

    positions, shares = np.polynomial.legendre.leggauss(math.ceil(24 + _NODES / noise))
    angles, lower = (
        np.tile((positions + 1) * np.pi / 2, 2),
        np.repeat([False, True], len(positions)),
    )
    nodes = mixture(points(angles, lower), noise, np.tile(shares, 2))

    def draw(rng: np.random.Generator, n: int) -> Float64:
        arc = points(rng.uniform(0, np.pi, n), rng.random(n) < 0.5)
        return arc + noise * rng.standard_normal((n, 2))

    return Density("two moons", 2, nodes._log_density, draw)


def _one_each(name: str, values: ArrayLike, count: int) -> Float64:
    """Positive numbers, one for each of the means."""
    try:
        array = np.broadcast_to(np.asarray(values, np.float64), count)
    except (TypeError, ValueError):
        array = np.zeros(1)
    if not (array > 0).all():
        raise UserError(f"{name}: must be one positive number for each of the {count} means")
    return array


def _check_noise(name: str, noise: float, radius: float = 1.0) -> None:
    if not 0 < radius < np.inf or not radius * 0.01 <= noise < np.inf:
        raise UserError(
            f"{name}: the radius must be positive, and the noise at least a hundredth of the radius"
        )
