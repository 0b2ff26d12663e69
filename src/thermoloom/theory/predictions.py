"""What training must do, from the expected loss alone: no trajectory is simulated here.

A noising path is independent of the θ it meets, so the mean of θ over paths obeys the linear
recursion of the rule with expected gradients,

    E[θ] ← E[θ] − α ∇E[L_w](E[θ])        for the windows w between updates, prototypes in turn,

exactly for the batch rule. For shorter periods it leaves out that states of one path remember
each other: a relative α μΔt/(2k_BT) |m|² (memory of a unit, in steps), some per cent with the
paper's values.

The loss is the logarithm of a likelihood, so at the optimum the covariance of a path's gradient is
its Hessian (the information equality): Γ = H up to the misfit of the model. Around its mean a
rule leaves the covariance Σ ← (1 − αH_w) Σ (1 − αH_w) + α² H_w, whose stationary value is α/2
on every parameter for αH ≪ 1, and α/(2 − αλ) along an eigenvector for the batch rule. With the
paper's values both approximations together overestimate the measured variance of couplings by
5 % (batch) and 15 % (online).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigs, eigsh
from scipy.special import erfc

from thermoloom.config import Physics
from thermoloom.physics.computer import Computer
from thermoloom.theory.marginals import Array64, Marginals
from thermoloom.theory.optimum import (
    ExpectedLoss,
    Fields,
    conjugate_gradients,
)

Indices = NDArray[np.int64]

# ---------------------------------------------------------------------------------------------
# Rules in the mean.


@dataclass(frozen=True)
class Window:
    """Steps over which θ changes little, and how many updates are applied within them."""

    loss: ExpectedLoss
    updates: int

    def shrink(self, direction: Array64, rate: float, accuracy: float) -> Array64:
        """(1 − (1 − αH/B)^B)/(αH) · direction, B the number of updates, as a series in αH."""
        result = direction.copy()
        term = direction
        inner = self.loss.layout.inner
        for order in range(2, self.updates + 1):
            term = self.loss.curvature(term)
            term *= -rate * (1 - (order - 1) / self.updates) / order
            result += term
            if inner(term, term) <= accuracy**2 * inner(result, result):
                break
        return result


@dataclass(frozen=True)
class MeanRule:
    """A training rule with expected gradients: windows of each prototype's path, in order."""

    learning_rate: float
    prototypes: tuple[tuple[Window, ...], ...]
    accuracy: float = 1e-3
    """Where the series of updates within a window is cut, relative to the change of θ."""

    @property
    def size(self) -> int:
        return self.prototypes[0][0].loss.layout.size

    def learn(self, theta: Array64, prototype: int, offset: float = 0.0) -> Array64:
        """E[θ] after one trajectory of this prototype; ``offset`` is added to every residual."""
        for window in self.prototypes[prototype]:
            slope = window.loss.slope(theta)
            if offset:
                slope += offset * offset_gradient(window.loss)
            change = window.shrink(slope, self.learning_rate, self.accuracy)
            theta = theta - self.learning_rate * change
        return theta

    def deviate(
        self, deviation: Array64, prototype: int, rng: np.random.Generator | None = None
    ) -> Array64:
        """What one trajectory leaves of a deviation from the mean and, with ``rng``, adds to it."""
        for window in self.prototypes[prototype]:
            pull = window.loss.curvature(deviation)
            if rng is not None:
                pull -= gradient_noise(window.loss, rng)
            change = window.shrink(pull, self.learning_rate, self.accuracy)
            deviation = deviation - self.learning_rate * change
        return deviation


def mean_rule(
    physics: Physics,
    fields: Fields,
    marginals: Marginals,
    learning_rate: float,
    period: int,
    windows: int = 4,
) -> MeanRule:
    """The rule with this update period (1 online, K batch), prototypes in turn.

    Where a path has more updates than ``windows``, they are gathered into that many windows of
    equal contraction Σ|m|², within which the order of steps is neglected. That error falls
    faster than 1/windows; for 4 it is 2 % of the difference between online and batch training.
    """
    edges = _window_edges(physics, fields, marginals, period, windows)

    def window(field: Fields, start: int, stop: int) -> Window:
        loss = ExpectedLoss(physics, field[None], marginals, (start, stop))
        return Window(loss, math.ceil((stop - start) / period))

    spans = list(pairwise(edges))
    return MeanRule(
        learning_rate, tuple(tuple(window(field, *span) for span in spans) for field in fields)
    )


def _window_edges(
    physics: Physics, fields: Fields, marginals: Marginals, period: int, windows: int
) -> list[int]:
    """Steps 0 … K that part a path into windows, at multiples of the period."""
    updates = math.ceil(physics.steps / period)
    if updates <= windows:
        return [*range(0, physics.steps, period), physics.steps]
    squares = [(marginals.at("mean", field) ** 2).sum(1) for field in fields.astype(np.float64)]
    strength = np.mean(squares, axis=0)
    strength += 1e-2 * strength.mean() + 1e-300  # steps without m need a share, too
    reached = np.concatenate([[0.0], np.cumsum(strength)]) / strength.sum()
    cuts = np.searchsorted(reached, np.arange(1, windows) / windows)
    rounded = np.clip(np.round(cuts / period), 1, updates - 1).astype(int) * period
    return [0, *sorted(set(rounded.tolist())), physics.steps]


def mean_parameters(
    rule: MeanRule, cycles: int, every: int = 10, offset: float = 0.0
) -> Iterator[tuple[int, Array64]]:
    """(cycles done, E[θ]) from θ = 0, every ``every`` cycles and at the end."""
    theta = np.zeros(rule.size)
    yield 0, theta
    for cycle in range(cycles):
        theta = rule.learn(theta, cycle % len(rule.prototypes), offset)
        if (cycle + 1) % every == 0 or cycle + 1 == cycles:
            yield cycle + 1, theta


# ---------------------------------------------------------------------------------------------
# Stability.


def largest_curvature(loss: ExpectedLoss, tolerance: float = 1e-4) -> float:
    """λ_max of H over the independent parameters, by Lanczos."""
    scale = np.ones(loss.layout.size)
    loss.layout.split(scale)[1][...] = math.sqrt(0.5)  # an edge is held twice
    operator = LinearOperator(
        (scale.size, scale.size),
        matvec=lambda u: scale * loss.curvature(u.ravel() / scale),
        dtype=np.float64,
    )
    start = scale * loss.zero_gradient
    values = eigsh(
        operator, k=1, which="LA", v0=start, tol=tolerance, ncv=12, return_eigenvectors=False
    )
    return float(values[0])


def round_growth(rule: MeanRule, tolerance: float = 1e-3) -> float:
    """Spectral radius of Π_p (1 − αH_p): growth of a deviation in one round over all prototypes.

    By Arnoldi iteration. The steep directions of the prototypes overlap without being the same,
    so the largest eigenvalues are complex pairs, on which a power iteration never settles.
    """

    def one_round(deviation: Array64) -> Array64:
        deviation = deviation.ravel()
        for prototype in range(len(rule.prototypes)):
            deviation = rule.deviate(deviation, prototype)
        return deviation

    rng = np.random.default_rng(0)
    start = sum(gradient_noise(windows[0].loss, rng) for windows in rule.prototypes)
    operator = LinearOperator((rule.size, rule.size), matvec=one_round, dtype=np.float64)
    values = eigs(
        operator,
        k=1,
        which="LM",
        v0=start,
        tol=tolerance,
        ncv=min(24, rule.size),
        return_eigenvectors=False,
    )
    return float(np.abs(values[0]))


@dataclass(frozen=True)
class BatchStability:
    """Where batch training with expected gradients becomes unstable."""

    curvature: float
    """λ_max of the Hessian averaged over prototypes."""
    curvatures: tuple[float, ...]
    """λ_max of each prototype's Hessian."""
    averaged_rate: float
    """2/λ_max: the critical α if each update averaged over all prototypes."""
    critical_rate: float
    """The α at which one round of prototypes in turn, Π_p (1 − αH_p), has spectral radius 1."""


def batch_stability(
    physics: Physics, fields: Fields, marginals: Marginals, tolerance: float = 0.005
) -> BatchStability:
    """Critical learning rates of the batch rule, the last one bisected to ``tolerance``."""
    rule = mean_rule(physics, fields, marginals, 1.0, physics.steps)
    curvature = largest_curvature(ExpectedLoss(physics, fields, marginals))
    curvatures = tuple(largest_curvature(windows[0].loss) for windows in rule.prototypes)

    def unstable(rate: float) -> bool:
        return round_growth(MeanRule(rate, rule.prototypes)) > 1

    # Below 2/λ of the steepest prototype no factor of the round can stretch anything.
    low, high = 2 / max(curvatures), 2.2 / curvature
    while not unstable(high):
        low, high = high, 1.5 * high
    while high - low > tolerance * low:
        middle = (low + high) / 2
        low, high = (low, middle) if unstable(middle) else (middle, high)
    return BatchStability(curvature, curvatures, 2 / curvature, (low + high) / 2)


def step_curvature(physics: Physics, states: Array64) -> float:
    """λ_max of one step's Hessian at states x': of r → c [(n + 1_h) r + x' (Σ_j x_j' r_j)].

    The sum and n_i = Σ_j x_j'² run over the partners of unit i; the change that one update makes
    to the residuals of its own step has the same eigenvalues as the Hessian.
    """
    v, h = np.split(states, [physics.visible])
    diagonal = np.concatenate([np.full(v.size, h @ h), v @ v + h @ h - h * h + 1])

    def apply(r: Array64) -> Array64:
        r_v, r_h = np.split(r.ravel(), [physics.visible])
        shared = np.concatenate([v * (h @ r_h), h * (v @ r_v + h @ r_h) - h * h * r_h])
        result: Array64 = diagonal * r.ravel() + shared
        return result

    operator = LinearOperator((states.size, states.size), matvec=apply, dtype=np.float64)
    values = eigsh(operator, k=1, which="LA", v0=states, tol=1e-6, return_eigenvectors=False)
    return float(values[0]) * physics.residual_scale


def step_curvatures(
    physics: Physics, fields: Fields, marginals: Marginals, points: int = 40
) -> tuple[Array64, Array64]:
    """Steps k and the largest λ_max of one step among prototypes, at x_i² = m_i² + v_i."""
    steps = np.linspace(0, physics.steps - 1, points).round()
    largest = np.zeros(points)
    for field in fields.astype(np.float64):
        mean = marginals.at("mean", field)[steps.astype(int)]
        variance = marginals.at("variance", field)[steps.astype(int)]
        states = np.copysign(np.sqrt(mean**2 + variance), mean)
        largest = np.maximum(largest, [step_curvature(physics, x) for x in states])
    return steps, largest


@dataclass(frozen=True)
class OnlineStability:
    """Where stepwise training becomes unstable."""

    curvature: float
    """λ_max of the steepest single step."""
    safe_rate: float
    """2/λ_max: below it no update of any step can overshoot, and every path is contracting."""
    critical_rate: float
    """The α at which overshoots within one path add up to ``overflow``."""


def online_stability(
    physics: Physics, fields: Fields, marginals: Marginals, overflow: float = 1e6
) -> OnlineStability:
    """Above 2/λ_max the first steps grow by |1 − αλ_k| each until λ_k has fallen below 2/α.

    Later steps would shrink the deviation again, but a growth of 10⁶ is beyond what float32
    residuals survive.
    """
    steps, curvatures = step_curvatures(physics, fields, marginals)
    every = np.interp(np.arange(physics.steps), steps, curvatures)

    def growth(rate: float) -> float:
        logarithms = np.log(np.maximum(np.abs(1 - rate * every), 1e-12))
        return float(np.cumsum(logarithms).max())

    safe = 2 / float(every.max())
    low, high = safe, 20 * safe
    while high - low > 1e-3 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if growth(middle) > math.log(overflow) else (middle, high)
    return OnlineStability(float(every.max()), safe, (low + high) / 2)


# ---------------------------------------------------------------------------------------------
# Noise around the mean.


def gradient_noise(loss: ExpectedLoss, rng: np.random.Generator) -> Array64:
    """A flat sample of N(0, H): √c (G + Gᵀ) masked, where rows of G have covariance S."""
    physics = loss.physics
    v, h = physics.visible, physics.hidden
    mean, one = loss.moments.factor()
    spread = np.sqrt(loss.moments.variance)
    modes = rng.standard_normal((physics.units, len(one)))
    upper = modes[:v] @ mean[v:].T + rng.standard_normal((v, h), np.float32) * spread[v:]
    lower = modes[v:] @ mean.T + rng.standard_normal((h, v + h), np.float32) * spread
    sample = np.empty(loss.layout.size)
    vh, hh, b = loss.layout.split(sample)
    np.add(upper, lower[:, :v].T, out=vh)
    np.add(lower[:, v:], lower[:, v:].T, out=hh)
    np.fill_diagonal(hh, 0)
    b[:] = modes[v:] @ one
    sample *= math.sqrt(physics.residual_scale)
    return sample


def sampled_deviations(
    rule: MeanRule, cycles: int, every: int = 10, seed: int = 0
) -> Iterator[tuple[int, Array64]]:
    """(cycles done, θ − E[θ]) of one training with Gaussian gradient noise of covariance H.

    With 10⁵ parameters and more, one sample gives variances to better than a per cent and the
    excess loss, which has fewer strong directions, to some per cent.
    """
    rng = np.random.default_rng(seed)
    deviation = np.zeros(rule.size)
    yield 0, deviation
    for cycle in range(cycles):
        deviation = rule.deviate(deviation, cycle % len(rule.prototypes), rng)
        if (cycle + 1) % every == 0 or cycle + 1 == cycles:
            yield cycle + 1, deviation


@dataclass(frozen=True)
class Spread:
    """Size of a deviation θ − E[θ], predicted or measured."""

    visible_hidden: float
    """Mean square of a visible–hidden coupling."""
    hidden_hidden: float
    """Mean square of a hidden–hidden coupling."""
    hidden_bias: float
    """Mean square of a hidden bias."""
    excess_loss: float
    """½⟨δθ, H δθ⟩/K: what it adds to the expected loss per step."""


def spread(loss: ExpectedLoss, deviation: Array64) -> Spread:
    """Mean squares by block, and the excess loss, of a flat parameter vector."""
    vh, hh, b = loss.layout.split(deviation)
    edges = max(1, b.size * (b.size - 1))
    excess = 0.5 * loss.layout.inner(deviation, loss.curvature(deviation)) / loss.steps
    return Spread(float((vh**2).mean()), float((hh**2).sum() / edges), float((b**2).mean()), excess)


def stationary_variance(learning_rate: float, curvature: float = 0.0) -> float:
    """α/(2 − αλ): variance that the batch rule leaves along an eigenvector of H.

    α/2 for αλ ≪ 1, and for the online rule in every direction.
    """
    return learning_rate / (2 - learning_rate * curvature)


# ---------------------------------------------------------------------------------------------
# Residual offset.


def offset_gradient(loss: ExpectedLoss) -> Array64:
    """Σ_k E[x_i' + x_j'] for couplings and Σ_k 1 for biases: what an offset of 1 adds to ∇L."""
    visible, hidden = np.split(loss.moments.total, [loss.physics.visible])
    result = np.empty(loss.layout.size)
    vh, hh, b = loss.layout.split(result)
    vh[...] = visible[:, None] + hidden
    hh[...] = hidden[:, None] + hidden
    np.fill_diagonal(hh, 0)
    b[:] = loss.steps
    return result


def offset_response(loss: ExpectedLoss, tolerance: float = 1e-6) -> Computer:
    """dθ*/dμ_bias = −H⁻¹ Σ_k E[x_i' + x_j', 1]: where an offset finally drives θ."""
    shift, _ = conjugate_gradients(loss, tolerance, linear_term=offset_gradient(loss))
    return loss.layout.computer(shift)


def offset_bias_law(physics: Physics) -> float:
    """db_h/dμ_bias = −2k_BT/(μΔt): the shift with which a bias alone cancels its unit's offset."""
    return -1 / physics.residual_scale


def offset_rate(physics: Physics, learning_rate: float) -> float:
    """αK μΔt/(2k_BT): relaxation of a bias towards that shift in one cycle, alone."""
    return learning_rate * physics.steps * physics.residual_scale


# ---------------------------------------------------------------------------------------------
# Precision of deterministic training.


@dataclass(frozen=True)
class UpdateSize:
    """Root mean square of one formed update r_i x_j' + r_j x_i' at θ = 0, before the factor α."""

    visible_hidden: float
    hidden_hidden: float


def update_size(physics: Physics, fields: Fields, marginals: Marginals) -> UpdateSize:
    """E[(r_i x_j' + r_j x_i')²] = (q_i E[x_j'²] + q_j E[x_i'²] + 2 d_i m_i d_j m_j)/(2k_BT)².

    Averaged over steps, prototypes and pairs; E[D x'] is taken as d m, since D and x' of one
    unit are all but uncorrelated.
    """
    sums = np.zeros(2)
    cut, hidden = physics.visible, physics.hidden
    for field in fields.astype(np.float64):
        q, d, m, v = (marginals.at(n, field) for n in ("square", "drift", "mean", "variance"))
        left, right = np.stack([q, d * m, m**2 + v]), np.stack([m**2 + v, d * m, q])
        # q_i x_j² + 2 (dm)_i (dm)_j + x_i² q_j as one product, summed over pairs.
        left[1] *= 2
        total_v, total_h = left[..., :cut].sum(-1), left[..., cut:].sum(-1)
        across = (total_v * right[..., cut:].sum(-1)).sum() / (cut * hidden)
        within = (total_h * right[..., cut:].sum(-1)).sum()
        within -= (left[..., cut:] * right[..., cut:]).sum()
        sums += np.array([across, within / max(1, hidden * (hidden - 1))]) / physics.steps
    size = np.sqrt(sums / len(fields)) / (2 * physics.kT)
    return UpdateSize(float(size[0]), float(size[1]))


def vanishing_bits(largest_coupling: float, update: float) -> float:
    """b with half a grid spacing A_max/(2^(b−1) − 1)/2 = |update|: below it, updates are lost."""
    return 1 + math.log2(1 + largest_coupling / (2 * update))


def surviving_fraction(
    physics: Physics,
    fields: Fields,
    marginals: Marginals,
    learning_rate: float,
    largest_coupling: float,
    bits: int,
    hidden: bool = False,
    samples: int = 200_000,
    seed: int = 0,
) -> float:
    """Fraction of updates that move a coupling from a grid point: |α(r_i x_j' + r_j x_i')| > Δ/2.

    At θ = 0, where training starts. Given the states, an update is taken as Gaussian with mean
    (d_i x_j' + d_j x_i')/(2k_BT) and variance c (x_i'² + x_j'²), and the states as N(m, v), for
    random prototypes, steps and visible–hidden (or hidden–hidden) pairs.
    """
    rng = np.random.default_rng(seed)
    half_spacing = largest_coupling / (2 ** (bits - 1) - 1) / 2
    visible, units = physics.visible, physics.units
    prototype = rng.integers(len(fields), size=samples)
    steps = rng.integers(physics.steps, size=samples)
    second = rng.integers(visible, units, size=samples)
    if hidden:  # any other hidden unit
        first = (
            visible
            + (second - visible + rng.integers(1, physics.hidden, size=samples)) % physics.hidden
        )
    else:
        first = rng.integers(visible, size=samples)
    states, drifts = [], []
    for unit in (first, second):
        field = fields[prototype, unit].astype(np.float64)
        mean, variance, drift = (
            _entries(marginals, name, field, steps) for name in ("mean", "variance", "drift")
        )
        states.append(mean + np.sqrt(variance) * rng.standard_normal(samples))
        drifts.append(drift / (2 * physics.kT))
    centre = learning_rate * (drifts[0] * states[1] + drifts[1] * states[0])
    width = learning_rate * np.sqrt(physics.residual_scale * (states[0] ** 2 + states[1] ** 2))
    above, below = (
        erfc((half_spacing + sign * centre) / (math.sqrt(2) * width)) for sign in (-1, 1)
    )
    return float((above + below).mean() / 2)


def _entries(marginals: Marginals, name: str, fields: Array64, steps: Indices) -> Array64:
    """One value of a marginal for each pair of field and step."""
    rows: Array64 = getattr(marginals, name)[steps]
    values: Array64 = (rows * marginals.interpolation(fields, name)).sum(axis=1)
    return values
