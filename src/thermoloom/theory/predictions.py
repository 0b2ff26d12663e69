"""Predictions of training from the expected loss alone: no trajectory is simulated here.

A noising path is independent of θ, so the mean of θ over paths obeys the linear
recursion of the rule with expected gradients,

    E[θ] ← E[θ] − α ∇E[L_w](E[θ])        for the windows w between updates, patterns in turn,

exactly for the batch rule. For shorter periods it neglects that the states of one path are
correlated: a relative error of about n α μΔt/(2k_BT) |m|², with n the memory of a unit in steps. It
is a few per cent with the paper's values.

The loss is the logarithm of a likelihood, so at the optimum the covariance of a path's gradient is
its Hessian (the information equality), up to the misfit of the model. θ varies around its
mean with the covariance Σ ← (1 − αH_w) Σ (1 − αH_w) + α² H_w, whose stationary value is α/2
on every parameter for αH ≪ 1, and α/(2 − αλ) along an eigenvector for the batch rule. With the
paper's values both approximations together overestimate the measured variance of couplings by
5 % (batch) and 15 % (online).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigs, eigsh
from scipy.special import erfc

from thermoloom.errors import UserError
from thermoloom.machine.energy import group_states
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Layout, layout
from thermoloom.theory.expected_loss import ExpectedLoss, Fields
from thermoloom.theory.marginals import Array64, Marginals
from thermoloom.theory.solver import conjugate_gradients
from thermoloom.theory.wire_moments import WireMoments
from thermoloom.threads import linear_algebra

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
        total = direction.copy()
        term = direction
        inner = self.loss.layout.inner
        for order in range(2, self.updates + 1):
            term = self.loss.curvature(term)
            term *= -rate * (1 - (order - 1) / self.updates) / order
            total += term
            if inner(term, term) <= accuracy**2 * inner(total, total):
                break
        return total


@dataclass(frozen=True)
class MeanRule:
    """A training rule with expected gradients: windows of each pattern's path, in order."""

    learning_rate: float
    patterns: tuple[tuple[Window, ...], ...]
    accuracy: float = 1e-3
    """Relative size of the term at which the series of updates within a window ends."""

    @property
    def size(self) -> int:
        return self.patterns[0][0].loss.layout.size

    @linear_algebra()
    def learn(self, theta: Array64, pattern: int, offset: float = 0.0) -> Array64:
        """E[θ] after one trajectory of this pattern; ``offset`` is added to every residual."""
        for window in self.patterns[pattern]:
            slope = window.loss.slope(theta)
            if offset:
                slope += offset * offset_gradient(window.loss)
            change = window.shrink(slope, self.learning_rate, self.accuracy)
            theta = theta - self.learning_rate * change
        return theta

    @linear_algebra()
    def deviate(
        self, deviation: Array64, pattern: int, rng: np.random.Generator | None = None
    ) -> Array64:
        """A deviation from the mean after one trajectory; ``rng`` adds its gradient noise."""
        for window in self.patterns[pattern]:
            pull = window.loss.curvature(deviation)
            if rng is not None:
                pull -= gradient_noise(window.loss, rng)
            change = window.shrink(pull, self.learning_rate, self.accuracy)
            deviation = deviation - self.learning_rate * change
        return deviation


@linear_algebra()
def mean_rule(
    machine: Machine,
    fields: Fields,
    marginals: Marginals,
    learning_rate: float,
    period: int,
    windows: int = 4,
    words: Fields | None = None,
    stage: int = 0,
) -> MeanRule:
    """The rule of a stage with this update period (1 online, K batch), patterns in turn.

    Where a path has more updates than ``windows``, they are gathered into that many windows of
    equal contraction Σ|m|², within which the order of steps is neglected. That error falls
    faster than 1/windows; for 4 it is 2 % of the difference between online and batch training.
    """
    first, last = machine.stage_windows[stage]
    edges = _window_edges(fields, marginals, (first, last), period, windows)

    def window(pattern: int, start: int, stop: int) -> Window:
        word = None if words is None else words[pattern : pattern + 1]
        field = fields[pattern : pattern + 1]
        loss = ExpectedLoss(machine, field, marginals, (start, stop), word)
        return Window(loss, math.ceil((stop - start) / period))

    spans = list(pairwise(edges))
    return MeanRule(
        learning_rate,
        tuple(tuple(window(pattern, *span) for span in spans) for pattern in range(len(fields))),
    )


def _window_edges(
    fields: Fields, marginals: Marginals, span: tuple[int, int], period: int, windows: int
) -> list[int]:
    """Steps that divide the steps of a stage into windows, at multiples of the period."""
    first, last = span
    updates = math.ceil((last - first) / period)
    if updates <= windows:
        return [*range(first, last, period), last]
    squares = [(marginals.at("mean", field) ** 2).sum(1) for field in fields.astype(np.float64)]
    strength = np.mean(squares, axis=0)[first:last]
    strength += 1e-2 * strength.mean() + 1e-300  # steps without m need a share, too
    reached = np.concatenate([[0.0], np.cumsum(strength)]) / strength.sum()
    cuts = np.searchsorted(reached, np.arange(1, windows) / windows)
    rounded = np.clip(np.round(cuts / period), 1, updates - 1).astype(int) * period
    return [first, *(first + cut for cut in sorted(set(rounded.tolist()))), last]


def mean_parameters(
    rule: MeanRule, cycles: int, every: int = 10, offset: float = 0.0
) -> Iterator[tuple[int, Array64]]:
    """(cycles done, E[θ]) from θ = 0, every ``every`` cycles and at the end."""
    return _course(rule, lambda theta, p: rule.learn(theta, p, offset), cycles, every)


def _course(
    rule: MeanRule, step: Callable[[Array64, int], Array64], cycles: int, every: int
) -> Iterator[tuple[int, Array64]]:
    """(cycles done, state), starting at 0, patterns in turn."""
    state = np.zeros(rule.size)
    yield 0, state
    for cycle in range(cycles):
        state = step(state, cycle % len(rule.patterns))
        if (cycle + 1) % every == 0 or cycle + 1 == cycles:
            yield cycle + 1, state


# ---------------------------------------------------------------------------------------------
# Stability.


@linear_algebra()
def largest_curvature(loss: ExpectedLoss, tolerance: float = 1e-4) -> float:
    """λ_max of H over the independent parameters, by Lanczos."""
    scale = np.ones(loss.layout.size)
    for block in loss.layout.blocks:
        if block.doubled:
            block.of(scale)[...] = math.sqrt(0.5)  # an edge is stored twice
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


@linear_algebra()
def round_growth(rule: MeanRule, tolerance: float = 1e-3) -> float:
    """Spectral radius of Π_p (1 − αH_p): growth of a deviation in one round over all patterns.

    By Arnoldi iteration. The steep directions of the patterns overlap without being the same,
    so the largest eigenvalues are complex pairs, on which a power iteration never converges.
    """

    def one_round(deviation: Array64) -> Array64:
        deviation = deviation.ravel()
        for pattern in range(len(rule.patterns)):
            deviation = rule.deviate(deviation, pattern)
        return deviation

    rng = np.random.default_rng(0)
    start = sum(gradient_noise(windows[0].loss, rng) for windows in rule.patterns)
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
    """Learning rates at which batch training with expected gradients becomes unstable."""

    curvature: float
    """λ_max of the Hessian averaged over patterns."""
    curvatures: tuple[float, ...]
    """λ_max of each pattern's Hessian."""
    averaged_rate: float
    """2/λ_max: the critical α if each update averaged over all patterns."""
    critical_rate: float
    """The α at which one round of patterns in turn, Π_p (1 − αH_p), has spectral radius 1."""


@linear_algebra()
def batch_stability(
    machine: Machine, fields: Fields, marginals: Marginals, tolerance: float = 0.005
) -> BatchStability:
    """Critical learning rates of the batch rule, ``critical_rate`` to a relative ``tolerance``."""
    rule = mean_rule(machine, fields, marginals, 1.0, machine.steps)
    curvature = largest_curvature(ExpectedLoss(machine, fields, marginals))
    curvatures = tuple(largest_curvature(windows[0].loss) for windows in rule.patterns)

    # At 2/λ of the steepest pattern no factor of the round can stretch anything.
    stable = 2 / max(curvatures)

    @cache
    def excess_growth(rate: float) -> float:
        return -1.0 if rate <= stable else round_growth(MeanRule(rate, rule.patterns)) - 1

    critical = _critical_rate(excess_growth, stable, 2.2 / curvature, tolerance)
    return BatchStability(curvature, curvatures, 2 / curvature, critical)


def _critical_rate(
    excess_growth: Callable[[float], float], stable: float, guess: float, tolerance: float
) -> float:
    """The learning rate above ``stable`` at which the excess growth changes its sign.

    By bisection: iterative eigenvalues are too noisy for a secant.
    """
    from scipy.optimize import bisect

    unstable = guess
    while excess_growth(unstable) <= 0:
        stable, unstable = unstable, 1.5 * unstable
    rate = bisect(excess_growth, stable, unstable, xtol=1e-300, rtol=tolerance / 2)
    return float(rate)


def step_curvature(machine: Machine, states: Array64, word: Fields | None = None) -> float:
    """λ_max of one step's Hessian at states x': of r_i → c [n_i r_i + x_i' (Σ_j x_j' r_j)].

    n_i = Σ_j x_j'² runs over all partners of unit i, the second sum over the free ones; the change
    that one update makes to the residuals of the same step has the eigenvalues of the Hessian.
    """
    _require_complete(machine, "the stability of the online rule")
    x = group_states(machine, states, word)
    form, groups = layout(machine), machine.groups

    def partners(group: str) -> list[str]:
        return [b.rows if transposed else b.columns for b, transposed in form.partners(group)]

    diagonal = np.empty(machine.units)
    for group, where in groups.items():
        itself = x[group] ** 2 if group in partners(group) else 0.0
        diagonal[where] = sum(float(x[other] @ x[other]) for other in partners(group)) - itself

    def apply(r: Array64) -> Array64:
        r = r.ravel()
        image: Array64 = diagonal * r
        for group, where in groups.items():
            free = [other for other in partners(group) if other in groups]
            image[where] += x[group] * sum(float(x[o] @ r[groups[o]]) for o in free)
            if group in free:
                image[where] -= x[group] ** 2 * r[where]
        return image

    operator = LinearOperator((states.size, states.size), matvec=apply, dtype=np.float64)
    values = eigsh(operator, k=1, which="LA", v0=states, tol=1e-6, return_eigenvectors=False)
    return float(values[0]) * machine.residual_scale


@linear_algebra()
def step_curvatures(
    machine: Machine,
    fields: Fields,
    marginals: Marginals,
    words: Fields | None = None,
    points: int = 40,
) -> tuple[Array64, Array64]:
    """Steps k and the largest λ_max of one step among patterns, at x_i² = m_i² + v_i."""
    steps = np.linspace(0, machine.steps - 1, points).round()
    largest = np.zeros(points)
    for p, field in enumerate(fields.astype(np.float64)):
        mean = marginals.at("mean", field)[steps.astype(int)]
        variance = marginals.at("variance", field)[steps.astype(int)]
        states = np.copysign(np.sqrt(mean**2 + variance), mean)
        word = None if words is None else words[p].astype(np.float64)
        largest = np.maximum(largest, [step_curvature(machine, x, word) for x in states])
    return steps, largest


@dataclass(frozen=True)
class OnlineStability:
    """Learning rates at which stepwise training becomes unstable."""

    curvature: float
    """λ_max of the steepest single step."""
    safe_rate: float
    """2/λ_max: below it no update of any step can overshoot, and every path is contracting."""
    critical_rate: float
    """The α at which overshoots within one path add up to ``overflow``."""


@linear_algebra()
def online_stability(
    machine: Machine,
    fields: Fields,
    marginals: Marginals,
    words: Fields | None = None,
    overflow: float = 1e6,
) -> OnlineStability:
    """Critical learning rates of stepwise training.

    Above 2/λ_max the first steps grow by |1 − αλ_k| each until λ_k has fallen below 2/α. Later
    steps would shrink the deviation again, but float32 residuals do not survive a growth of 10⁶.
    """
    steps, curvatures = step_curvatures(machine, fields, marginals, words)
    every = np.interp(np.arange(machine.steps), steps, curvatures)

    def growth(rate: float) -> float:
        logarithms = np.log(np.maximum(np.abs(1 - rate * every), 1e-12))
        return float(np.cumsum(logarithms).max())

    safe = 2 / float(every.max())
    critical = _critical_rate(lambda rate: growth(rate) - math.log(overflow), safe, 20 * safe, 1e-3)
    return OnlineStability(float(every.max()), safe, critical)


def scatter_edge(machine: Machine) -> float:
    """The α at which the scatter of couplings alone makes a machine soft: 2√(Nα/2) = V″(0).

    A rule leaves a variance of α/2 on every coupling (the information equality, above). Couplings
    of N units that are all wired then have a random part whose spectrum is a semicircle of that
    radius. Where it reaches the stiffness of the units, a direction is no longer confined.
    """
    return float(machine.potential.curvature(0.0)) ** 2 / (2 * machine.units)


# ---------------------------------------------------------------------------------------------
# Noise around the mean.


@linear_algebra()
def gradient_noise(loss: ExpectedLoss, rng: np.random.Generator) -> Array64:
    """A flat sample of N(0, H): √c (G + Gᵀ) masked, where rows of G have covariance S."""
    machine, form = loss.machine, loss.layout
    _require_complete(machine, "the noise of gradients")
    assert not isinstance(loss.moments, WireMoments)
    factor = loss.moments.factor()
    spread = {g: np.sqrt(loss.moments.variance[where]) for g, where in machine.groups.items()}
    modes = rng.standard_normal((machine.units, factor["one"].shape[1]))
    sample = np.zeros(form.size)
    for group, where in machine.groups.items():
        partners = form.partners(group)
        free = [(b, t) for b, t in partners if (b.rows if t else b.columns) in spread]
        sizes = [machine.size_of(b.rows if t else b.columns) for b, t in free]
        normals = rng.standard_normal((machine.size_of(group), sum(sizes)), np.float32)
        columns = np.split(normals, np.cumsum(sizes)[:-1], axis=1)
        pieces = dict(zip((b.name for b, _ in free), columns, strict=True))
        for block, transposed in partners:
            other = block.rows if transposed else block.columns
            rows = modes[where] @ factor[other].T
            if other in spread:
                rows = rows + pieces[block.name] * spread[other]
            out = block.matrix(sample)
            out += rows.T if transposed else rows
            if block.symmetric:
                out += rows.T
                np.fill_diagonal(out, 0)
    sample *= math.sqrt(machine.residual_scale)
    return sample


def sampled_deviations(
    rule: MeanRule, cycles: int, every: int = 10, seed: int = 0
) -> Iterator[tuple[int, Array64]]:
    """(cycles done, θ − E[θ]) of one training with Gaussian gradient noise of covariance H.

    With 10⁵ parameters and more, one sample gives variances to better than one per cent and
    the excess loss, which has fewer strong directions, to a few per cent.
    """
    rng = np.random.default_rng(seed)
    return _course(rule, lambda deviation, p: rule.deviate(deviation, p, rng), cycles, every)


@dataclass(frozen=True)
class ParameterScatter:
    """Size of a deviation θ − E[θ], predicted or measured."""

    blocks: dict[str, float]
    """Mean square of a parameter of each block."""
    excess_loss: float
    """½⟨δθ, H δθ⟩/K: the increase of the expected loss per step."""


@linear_algebra()
def parameter_scatter(loss: ExpectedLoss, deviation: Array64) -> ParameterScatter:
    """Mean squares by block, and the excess loss, of a flat parameter vector."""
    excess = 0.5 * loss.layout.inner(deviation, loss.curvature(deviation)) / loss.steps
    return ParameterScatter(mean_squares(loss.layout, deviation), excess)


def mean_squares(form: Layout, vector: Array64) -> dict[str, float]:
    """Mean square of the independent parameters of each block."""
    return {
        block.name: float((block.of(vector) ** 2).sum())
        / max(1, block.edges * (2 if block.doubled else 1))
        for block in form.blocks
    }


def stationary_variance(learning_rate: float, curvature: float = 0.0) -> float:
    """α/(2 − αλ): variance that the batch rule leaves along an eigenvector of H.

    α/2 for αλ ≪ 1, and for the online rule in every direction.
    """
    return learning_rate / (2 - learning_rate * curvature)


# ---------------------------------------------------------------------------------------------
# Residual offset.


@linear_algebra()
def offset_gradient(loss: ExpectedLoss) -> Array64:
    """Σ_k E[x_i' + x_j'] for couplings and Σ_k 1 for biases: the change of ∇L per unit offset."""
    totals, free = loss.moments.totals(), loss.machine.groups
    gradient = np.empty(loss.layout.size)
    for block in loss.layout.blocks:
        if block.wires is not None:
            i, j = block.places
            block.of(gradient)[...] = totals[block.columns][j] + totals[block.rows][i]
            continue
        out = block.matrix(gradient)
        out[...] = totals[block.columns]
        if block.columns in free:
            out += totals[block.rows][:, None]
        if block.symmetric:
            np.fill_diagonal(out, 0)
    return gradient


def _require_complete(machine: Machine, what: str) -> None:
    if machine.sparse:
        raise UserError(
            f"machine.topology = {machine.topology!r}: {what} is known for complete wiring only"
        )


@linear_algebra()
def offset_response(loss: ExpectedLoss, tolerance: float = 1e-6) -> Array64:
    """dθ*/dμ_bias = −H⁻¹ Σ_k E[x_i' + x_j', 1]: the shift of θ that an offset finally causes."""
    return conjugate_gradients(loss, tolerance, linear_term=offset_gradient(loss))[0]


def offset_bias_law(machine: Machine) -> float:
    """db_h/dμ_bias = −2k_BT/(μΔt): the shift with which a bias alone cancels its unit's offset."""
    return -1 / machine.residual_scale


def offset_rate(machine: Machine, learning_rate: float) -> float:
    """αK μΔt/(2k_BT): relaxation of a bias towards that shift in one cycle, alone."""
    return learning_rate * machine.steps * machine.residual_scale


# ---------------------------------------------------------------------------------------------
# Precision of deterministic training.


@dataclass(frozen=True)
class UpdateSize:
    """Root mean square of one formed update r_i x_j' + r_j x_i' at θ = 0, before the factor α."""

    visible_hidden: float
    hidden_hidden: float


@linear_algebra()
def update_size(machine: Machine, fields: Fields, marginals: Marginals) -> UpdateSize:
    """E[(r_i x_j' + r_j x_i')²] = (q_i E[x_j'²] + q_j E[x_i'²] + 2 d_i m_i d_j m_j)/(2k_BT)².

    Averaged over steps, patterns and pairs; E[D x'] is taken as d m, since D and x' of one
    unit are all but uncorrelated.
    """
    sums = np.zeros(2)
    cut, hidden = machine.visible, machine.hidden
    for field in fields.astype(np.float64):
        q, d, m, v = (marginals.at(n, field) for n in ("square", "drift", "mean", "variance"))
        left, right = np.stack([q, d * m, m**2 + v]), np.stack([m**2 + v, d * m, q])
        # q_i x_j² + 2 (dm)_i (dm)_j + x_i² q_j as one product, summed over pairs.
        left[1] *= 2
        total_v, total_h = left[..., :cut].sum(-1), left[..., cut:].sum(-1)
        across = (total_v * right[..., cut:].sum(-1)).sum() / (cut * hidden)
        within = (total_h * right[..., cut:].sum(-1)).sum()
        within -= (left[..., cut:] * right[..., cut:]).sum()
        sums += np.array([across, within / max(1, hidden * (hidden - 1))]) / machine.steps
    size = np.sqrt(sums / len(fields)) / (2 * machine.kT)
    return UpdateSize(float(size[0]), float(size[1]))


def vanishing_bits(largest_coupling: float, update: float) -> float:
    """The b at which half a grid spacing, A_max/(2^(b−1) − 1)/2, equals an update: with fewer bits,
    updates are lost.
    """
    return 1 + math.log2(1 + largest_coupling / (2 * update))


@linear_algebra()
def surviving_fraction(
    machine: Machine,
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
    random patterns, steps and visible–hidden (or hidden–hidden) pairs.
    """
    rng = np.random.default_rng(seed)
    half_spacing = largest_coupling / (2 ** (bits - 1) - 1) / 2
    visible, units = machine.visible, machine.units
    pattern = rng.integers(len(fields), size=samples)
    steps = rng.integers(machine.steps, size=samples)
    second = rng.integers(visible, units, size=samples)
    if hidden:  # any other hidden unit
        first = (
            visible
            + (second - visible + rng.integers(1, machine.hidden, size=samples)) % machine.hidden
        )
    else:
        first = rng.integers(visible, size=samples)
    states, drifts = [], []
    for unit in (first, second):
        field = fields[pattern, unit].astype(np.float64)
        mean, variance, drift = (
            _entries(marginals, name, field, steps) for name in ("mean", "variance", "drift")
        )
        states.append(mean + np.sqrt(variance) * rng.standard_normal(samples))
        drifts.append(drift / (2 * machine.kT))
    centre = learning_rate * (drifts[0] * states[1] + drifts[1] * states[0])
    width = learning_rate * np.sqrt(machine.residual_scale * (states[0] ** 2 + states[1] ** 2))
    above, below = (
        erfc((half_spacing + sign * centre) / (math.sqrt(2) * width)) for sign in (-1, 1)
    )
    return float((above + below).mean() / 2)


def _entries(marginals: Marginals, name: str, fields: Array64, steps: Indices) -> Array64:
    """One value of a marginal for each pair of field and step."""
    rows: Array64 = getattr(marginals, name)[steps]
    values: Array64 = (rows * marginals.interpolation(fields, name)).sum(axis=1)
    return values
