"""E[L(θ)]: the expected loss of all noising paths, a quadratic function of θ.

The residual of unit i is r_i = (D_i + μΔt h_i)/(2k_BT) with D_i = −Δx_i + μΔt φ(x_i'),
which is independent of θ, and h_i = b_i + Σ_j J_ij x_j'. Units of one noising path are independent,
so with means m, variances v, and d = E[D]

    2k_BT E[r_i] = f_i,   2k_BT E[r_i x_j'] = f_i m_j + μΔt J_ij v_j   (i ≠ j),
    f_i = d_i + μΔt (b_i + Σ_j J_ij m_j)

at every step. Summed over steps, v enters as one number per unit; m and d are expanded in a few
orthonormal functions of time, which makes the sum over K steps a sum over modes, without a
quadrature error. About ten functions represent m(s, ·) of all fields to nine digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.theory.marginals import Array64, HarmonicMarginals, Marginals, solve_marginals
from thermoloom.theory.wire_moments import WireMoments, worth_blocks
from thermoloom.threads import linear_algebra

Fields = NDArray[np.floating[Any]]

# Time modes below this fraction of the largest singular value are dropped: a digit or so below
# the error of the marginals themselves.
_MODE_CUTOFF = 1e-9
_ROWS_AT_ONCE = 32
"""Rows of couplings that are processed together, so that they stay in the cache."""
_PATTERNS_AT_ONCE = 128
LARGE = 2048
"""Smallest number of units of a large machine, where more patterns enter a sum at once and faint
modes enter in float32."""
_ADDED_AT_ONCE = 512
"""Patterns that enter the sums of a large machine together."""
_FAINT = 1e-3
"""Modes that contribute less than this fraction of a sum are summed in float32: the error is about
1e-9 of the sum, below that of the marginals."""
MANY = 2000
"""Patterns above which sums over them are products in float32, added up in float64: the error of
such a sum, about 1e-6 of it, is far below the sampling error of the patterns."""


@dataclass(frozen=True)
class PathModes:
    """Moments of the units along a window of steps, expanded in orthonormal functions of time."""

    mean: Array64
    """m as (patterns, N, modes)."""
    drift: Array64
    """d as (patterns, N, modes), projected onto the modes."""
    one: Array64
    """The constant 1 as (modes,)."""
    variance: Array64
    """Σ_k v, (patterns, N)."""
    square: Array64
    """Σ_k Σ_i q, (patterns,)."""


class TimeModes:
    """Orthonormal functions of time that span 1 and all m(s, ·) within a window of steps."""

    def __init__(self, marginals: Marginals, start: int, stop: int) -> None:
        window = slice(start, stop)
        mean = marginals.mean[window]
        table = np.column_stack([np.ones(len(mean)), mean])
        basis, weights, _ = np.linalg.svd(table, full_matrices=False)
        basis = basis[:, weights > _MODE_CUTOFF * weights[0]]
        self.one: Array64 = basis.sum(axis=0)
        self._marginals = marginals
        self._mean = mean.T @ basis
        self._variance = marginals.variance[window].sum(axis=0)
        self._of_theta = [
            (where, under.drift[window].T @ basis, under.square[window].sum(axis=0))
            for where, under in _potentials_in(marginals, start, stop)
        ]
        """Units that share a potential, their d in modes, and their Σ_k q."""
        self.strong = self._strong_modes()
        """Number of leading modes that are not faint."""

    def _strong_modes(self) -> int:
        tables = self._mean, *(drift for _, drift, _ in self._of_theta)
        weights = [np.abs(table).max(axis=0) for table in tables]
        relative = [weight / max(weight.max(), 1e-300) for weight in weights]
        contributions = relative[0] * np.max(relative, axis=0)
        return 1 + int(np.flatnonzero(contributions > _FAINT).max(initial=0))

    @property
    def linear(self) -> bool:
        """Whether means are proportional to fields, as for harmonic units."""
        return isinstance(self._marginals, HarmonicMarginals)

    def per_field(self) -> tuple[Array64, Array64, Array64, Array64]:
        """m and d of a field of 1, in modes; Σ_k v and Σ_k q of harmonic units as c₀ + c₁ s²."""
        ((_, drift, square),) = self._of_theta
        return self._mean[0], drift[0], self._variance, square

    def interpolation(self, fields: Fields) -> tuple[Array64, Array64]:
        """Interpolation in the field of odd and of even functions, (P, N, nodes) each."""
        wide: Array64 = fields.astype(np.float64)
        marginals = self._marginals
        return marginals.interpolation(wide, "mean"), marginals.interpolation(wide, "variance")

    def paths(self, fields: Fields) -> PathModes:
        """Moments of the noising paths of patterns with these unit fields, (P, N)."""
        return self.modes_of(*self.interpolation(fields))

    def modes_of(self, odd: Array64, even: Array64, dtype: Any = np.float64) -> PathModes:
        """Moments of the noising paths from interpolations; m and d in this precision."""
        drifts, squares = [], []
        for where, drift, square in self._of_theta:
            of_drift, of_square = odd[:, where], even[:, where]
            if self._marginals.generating:  # neither odd nor even
                of_drift = of_square = np.concatenate([of_drift, of_square], axis=-1)
            drifts.append((of_drift @ drift).astype(dtype))
            squares.append((of_square @ square).sum(axis=-1))
        return PathModes(
            mean=(odd @ self._mean).astype(dtype),
            drift=np.concatenate(drifts, axis=1),
            one=self.one.astype(dtype),
            variance=even @ self._variance,
            square=np.sum(squares, axis=0),
        )


def _potentials_in(marginals: Marginals, start: int, stop: int) -> list[tuple[slice, Marginals]]:
    """Units that share a potential of V_θ in a window of steps, with their moments under it."""
    machine = marginals.machine
    if not marginals.generating:
        return [(slice(None), marginals)]
    windows = enumerate(machine.stage_windows)
    stages = [t for t, (first, last) in windows if first < stop and start < last]
    parts = []
    for group, where in machine.groups.items():
        if len({machine.group_potential(group, stage) for stage in stages}) > 1:
            raise UserError(
                f"machine.generating: steps {start} to {stop} have more than one potential; "
                "use windows within one stage"
            )
        if machine.size_of(group):
            parts.append((where, marginals.under(group, stages[0])))
    return parts


class ExpectedLoss:
    """E[L(θ)] of a noising path, averaged over patterns: L₀ + ⟨g₀, θ⟩ + ½⟨θ, Hθ⟩.

    θ is the flat vector of one stage. L is the sum over the K steps of a trajectory (or over the
    steps of ``window``), as in the training rules. The Hessian is H θ = (μΔt/2k_BT) [J S + (J S)ᵀ]
    masked, S = Σ_k E[x'x'ᵀ]. A product with H costs O(N N_h · 10 P) for few patterns; where
    10 P > N/3, S is formed and the product costs O(N² N_h) for any number of patterns.

    ``words`` (P, L) are the states of the label units for each pattern.
    """

    def __init__(
        self,
        machine: Machine,
        fields: Fields,
        marginals: Marginals | None = None,
        window: tuple[int, int] | None = None,
        words: Fields | None = None,
        moments: Moments | None = None,
    ) -> None:
        self.machine = machine
        start, stop = window or (0, machine.steps)
        self.steps = stop - start
        self.layout = layout(machine)
        if moments is None:
            [moments] = _moments(machine, fields, marginals, [(start, stop)], words)
        self.moments = moments

    # The quadratic form on flat parameter vectors.

    def curvature(self, direction: Array64) -> Array64:
        """H·direction for a flat parameter vector (symmetric blocks with zero diagonal)."""
        return self._response(direction, with_drift=False)

    def slope(self, theta: Array64) -> Array64:
        """∇L at a flat parameter vector."""
        return self._response(theta, with_drift=True)

    def _response(self, theta: Array64 | None, with_drift: bool) -> Array64:
        """H θ, with g₀ if ``with_drift``; θ = None stands for 0, which needs no products."""
        response = np.empty(self.layout.size)
        self.moments.correlate(theta, response, with_drift)
        for block, variance in zip(self.layout.blocks, self._variances, strict=True):
            out = block.of(response)
            for first in range(0, len(out), _ROWS_AT_ONCE if block.wires is None else len(out)):
                rows = slice(first, None if block.wires else first + _ROWS_AT_ONCE)
                if variance is not None and theta is not None:
                    out[rows] += block.of(theta)[rows] * variance[rows]
                out[rows] *= self.machine.residual_scale
            if block.doubled:
                np.fill_diagonal(out, 0)
        return response

    @cached_property
    def _variances(self) -> list[Array64 | None]:
        """v_i + v_j on the edges of each block; None with clamped units, which do not fluctuate."""
        variance = {g: self.moments.variance[where] for g, where in self.machine.groups.items()}
        sums: list[Array64 | None] = []
        for block in self.layout.blocks:
            if block.columns not in variance:
                sums.append(None)
            elif block.wires is None:
                sums.append(np.add.outer(variance[block.rows], variance[block.columns]))
            else:
                i, j = block.places
                sums.append(variance[block.rows][i] + variance[block.columns][j])
        return sums

    @cached_property
    def zero_gradient(self) -> Array64:
        """g₀ = ∇L(0)."""
        return self._response(None, with_drift=True)

    @property
    def zero_value(self) -> float:
        """L₀ = E[L(0)]."""
        return self.moments.square / (4 * self.machine.drift * self.machine.kT)

    def total(self, theta: Array64, curvature: Array64 | None = None) -> float:
        """E[L] at a flat parameter vector; ``curvature`` is H θ if it is known."""
        if curvature is None:
            curvature = self.curvature(theta)
        return self.zero_value + self.layout.inner(self.zero_gradient + 0.5 * curvature, theta)


@linear_algebra()
def expected_losses(
    machine: Machine,
    fields: Fields,
    marginals: Marginals,
    words: Fields | None = None,
    windows: Sequence[tuple[int, int]] | None = None,
) -> Iterable[ExpectedLoss]:
    """The expected loss of every stage, or of other windows, in one pass over the patterns.

    With few wires, each loss takes a separate pass when it is reached: only one is in memory.
    """
    windows = list(machine.stage_windows if windows is None else windows)
    moments_by_window = _moments(machine, fields, marginals, windows, words)
    return (
        ExpectedLoss(machine, fields, marginals, window, words, moments)
        for window, moments in zip(windows, moments_by_window, strict=True)
    )


def _moments(
    machine: Machine,
    fields: Fields,
    marginals: Marginals | None,
    windows: list[tuple[int, int]],
    words: Fields | None,
) -> Iterable[Moments]:
    check_fields(machine, fields, words)
    if marginals is None:
        marginals = solve_marginals(machine, float(np.abs(fields).max()))
    modes = [TimeModes(marginals, *window) for window in windows]
    if worth_blocks(machine):
        dtype = np.float64 if len(fields) <= MANY else np.float32
        return (WireMoments(machine, each, fields, words, dtype) for each in modes)
    # with a label unit for every few patterns, only the preconditioned equations converge
    few = len(fields) * len(modes[0].one) <= machine.units / 3
    if few and machine.styles == 1 and not machine.sparse and not modes[0].linear:
        return [Factored(machine, each, fields, words) for each in modes]
    return dense_moments(machine, modes, fields, words)


def check_fields(machine: Machine, fields: Fields, words: Fields | None) -> None:
    """Refuse fields or words that do not fit this machine's units."""
    if fields.ndim != 2 or fields.shape[1] != machine.units or not len(fields):
        raise UserError(
            f"unit fields of shape {fields.shape}: expected (patterns, {machine.units}), "
            "the units of machine.visible + machine.hidden"
        )
    expected = (len(fields), machine.size_of("label"))
    if (words.shape if words is not None else (len(fields), 0)) != expected:
        raise UserError(
            f"label words of shape {None if words is None else words.shape}: this machine needs "
            f"{expected}, a word of its label units for each pattern"
        )


class Factored:
    """Moments of few patterns as thin factors, one column for each pattern and time mode.

    Clamped units are treated as units of constant mean without variance.
    """

    def __init__(
        self, machine: Machine, modes: TimeModes, fields: Fields, words: Fields | None
    ) -> None:
        paths = modes.paths(fields)
        weight = len(fields) ** -0.5
        mean = _side_by_side(paths.mean) * weight
        drift = _side_by_side(paths.drift) * (weight / machine.drift)
        one = np.tile(paths.one, len(fields)) * weight
        self.layout = layout(machine)
        self.mean = {group: mean[where] for group, where in machine.groups.items()}
        """m of each group, (units, patterns · modes)."""
        words = np.empty((len(fields), 0)) if words is None else words
        self.mean |= {"one": one[None], "label": _constants(words, paths.one) * weight}
        self.drift = {group: drift[where] for group, where in machine.groups.items()}
        """d as a force, in the same modes."""
        self.variance: Array64 = paths.variance.mean(axis=0)
        self.square = float(paths.square.mean())

    def correlate(self, theta: Array64 | None, out: Array64, with_drift: bool) -> None:
        """Σ f_i m_j + f_j m_i over steps, f the mean force of θ (and of d), for every edge."""
        force = {group: self._force(theta, group, with_drift) for group in self.drift}
        right = {g: np.hstack([self.mean[g], force[g]]).T for g in force}
        for block in self.layout.blocks:
            a, b = block.rows, block.columns
            if b in force:
                np.matmul(np.hstack([force[a], self.mean[a]]), right[b], out=block.of(out))
            else:
                block.matrix(out)[...] = force[a] @ self.mean[b].T

    def _force(self, theta: Array64 | None, group: str, with_drift: bool) -> Array64:
        force: Array64 = self.drift[group] * float(with_drift)
        if theta is None:
            return force
        for block, transposed in self.layout.partners(group):
            J = block.matrix(theta)
            force += J.T @ self.mean[block.rows] if transposed else J @ self.mean[block.columns]
        return force

    def totals(self) -> dict[str, Array64]:
        """Σ_k m of every group."""
        return {group: mean @ self.mean["one"][0] for group, mean in self.mean.items()}

    def factor(self) -> dict[str, Array64]:
        """F of every group with Σ_k E[m m'] = F Fᵀ between any two of them."""
        return self.mean


def dense_moments(
    machine: Machine, modes: list[TimeModes], fields: Fields, words: Fields | None
) -> list[Dense]:
    """Moments of many patterns in each of some windows, in one pass over the patterns."""
    if modes[0].linear:
        return linear_moments(machine, modes, fields, words)
    moments_by_window = [Dense(machine, float(each.one @ each.one), len(fields)) for each in modes]
    wide = np.float64 if len(fields) <= MANY else np.float32
    interpolation = modes[0].interpolation
    at_once = _ADDED_AT_ONCE if machine.units >= LARGE else _PATTERNS_AT_ONCE
    for begin in range(0, len(fields), at_once):
        end = min(begin + at_once, len(fields))
        paths_by_window: list[list[PathModes]] = [[] for _ in modes]
        for first in range(begin, end, _PATTERNS_AT_ONCE):
            odd, even = interpolation(fields[first : min(first + _PATTERNS_AT_ONCE, end)])
            for paths, each in zip(paths_by_window, modes, strict=True):
                paths.append(each.modes_of(odd, even, wide))
        clamped = np.ones((end - begin, machine.size_of("label") + 1))
        if words is not None:
            clamped[:, :-1] = words[begin:end]
        for moments, each, paths in zip(moments_by_window, modes, paths_by_window, strict=True):
            strong = each.strong if machine.units >= LARGE else len(each.one)
            moments.add(paths, clamped, (end - begin) / len(fields), strong)
    for moments in moments_by_window:
        moments.close()
    return moments_by_window


def linear_moments(
    machine: Machine, modes: list[TimeModes], fields: Fields, words: Fields | None
) -> list[Dense]:
    """``dense_moments`` where the means of all units are proportional to their fields: the
    correlations of the fields, with each other and with the clamped units, serve every window.
    """
    count, n = len(fields), machine.units
    labels = machine.size_of("label")
    both, with_clamped = np.zeros((n, n)), np.zeros((n, labels + 1))
    among = np.zeros((labels + 1, labels + 1))
    wide = np.float64 if count <= MANY else np.float32
    for first in range(0, count, MANY):
        some: NDArray[Any] = fields[first : first + MANY].astype(wide)
        clamped = np.ones((len(some), labels + 1))
        if words is not None:
            clamped[:, :-1] = words[first : first + MANY]
        sparse = csr_array(clamped)  # a word has one number that is not 0
        both += some.T @ some / count
        with_clamped += (sparse.T @ some.astype(np.float64)).T / count
        among += (sparse.T @ sparse).toarray() / count
    moments_by_window = [Dense(machine, float(each.one @ each.one), len(fields)) for each in modes]
    for moments, each in zip(moments_by_window, modes, strict=True):
        moments.set_linear(each, both, with_clamped, among)
    return moments_by_window


class Dense:
    """Moments of many patterns as sums over all units, added some patterns at a time."""

    def __init__(self, machine: Machine, steps: float, patterns: int) -> None:
        self.layout = layout(machine)
        self.patterns = patterns
        units, free = self.layout.positions["one"].stop, machine.units
        self._free = tuple(machine.groups)
        self._units = free
        self._steps = steps
        self._drift = machine.drift
        self.second = np.zeros((units, units))
        """Σ_k E[m_i m_j], clamped units included."""
        self.cross = np.zeros((free, units))
        """Σ_k E[d_i m_j], d as a force."""
        self.variance = np.zeros(free)
        self.square = 0.0

    def add(
        self, paths: list[PathModes], clamped: Array64, share: float, strong: int | None = None
    ) -> None:
        """Add some patterns to the sums; ``clamped`` (P, L + 1) are the states of clamped units.

        Modes after the first ``strong`` ones are summed in float32.
        """
        n, weight, one = self._units, share / len(clamped), paths[0].one
        for some, dtype in ((slice(strong), one.dtype), (slice(strong, None), np.float32)):
            if not len(one[some]):
                continue
            mean, drift = (
                np.hstack([_side_by_side(modes[..., some], dtype) for modes in each])
                for each in ([p.mean for p in paths], [p.drift for p in paths])
            )
            self.second[:n, :n] += _scaled(mean @ mean.T, weight)
            self.cross[:, :n] += _scaled(drift @ mean.T, weight / self._drift)
        totals, drifts = (
            np.concatenate([modes @ one for modes in each]).T
            for each in ([p.mean for p in paths], [p.drift for p in paths])
        )
        self.second[:n, n:] += weight * (totals @ clamped)
        self.cross[:, n:] += (weight / self._drift) * (drifts @ clamped)
        self.second[n:, n:] += weight * self._steps * (clamped.T @ clamped)
        self.variance += share * np.concatenate([p.variance for p in paths]).mean(axis=0)
        self.square += share * float(np.concatenate([p.square for p in paths]).mean())

    def set_linear(
        self, modes: TimeModes, both: Array64, with_clamped: Array64, among: Array64
    ) -> None:
        """Set all patterns at once, from E[s sᵀ], E[s cᵀ] and E[c cᵀ], c the clamped units."""
        n, squares = self._units, np.diagonal(both)
        mean, drift, variance, square = modes.per_field()
        self.second[:n, :n] = (mean @ mean) * both
        self.second[:n, n:] = (mean @ modes.one) * with_clamped
        self.second[n:, n:] = self._steps * among
        self.cross[:, :n] = (drift @ mean / self._drift) * both
        self.cross[:, n:] = (drift @ modes.one / self._drift) * with_clamped
        self.variance = variance[0] + variance[1] * squares
        self.square = float((square[0] + square[1] * squares).sum())
        self.close()

    def close(self) -> None:
        """Complete the symmetric sums once all patterns are added."""
        n = self._units
        self.second[n:, :n] = self.second[:n, n:].T

    def correlate(self, theta: Array64 | None, out: Array64, with_drift: bool) -> None:
        """The same as ``Factored.correlate``, from J S + (J S)ᵀ."""
        rows = {group: self._rows(theta, group, with_drift) for group in self._free}
        for block in self.layout.blocks:
            a, b = block.rows, block.columns
            products = rows[a][:, self.layout.positions[b]]
            if block.wires is not None:
                products = products + rows[b][:, self.layout.positions[a]].T
                block.of(out)[...] = block.wires.restricted(products)
                continue
            mirrored = rows[b][:, self.layout.positions[a]].T if b in rows else 0.0
            np.add(products, mirrored, out=block.matrix(out))

    def _rows(self, theta: Array64 | None, group: str, with_drift: bool) -> Array64:
        """Σ_k f_i m_j of the units i of a group with the units j that they are wired to."""
        positions = self.layout.positions
        if theta is None:
            return self.cross[positions[group]]
        partners = {
            (block.rows if transposed else block.columns): block.dense(theta).T
            if transposed
            else block.dense(theta)
            for block, transposed in self.layout.partners(group)
        }
        columns = _span(positions[name] for name in partners)
        rows = np.zeros((len(self.second[positions[group]]), len(self.second)))
        for name, J in partners.items():
            rows[:, columns] += J @ self.second[positions[name], columns]
        if with_drift:
            rows += self.cross[positions[group]]
        return rows

    @property
    def diagonal(self) -> Array64:
        """Σ_k E[m²] of every free unit."""
        return np.diagonal(self.second)[: self._units]

    @property
    def with_clamped(self) -> Array64:
        """Σ_k E[m_i] c of free and clamped units, (N, L + 1)."""
        return self.second[: self._units, self._units :]

    @property
    def among(self) -> Array64:
        """Σ_k E[c cᵀ] of clamped units."""
        return self.second[self._units :, self._units :]

    def totals(self) -> dict[str, Array64]:
        """Σ_k m of every group."""
        total: Array64 = self.second[:, self.layout.positions["one"].start]
        return {group: total[where] for group, where in self.layout.positions.items()}

    def factor(self) -> dict[str, Array64]:
        """The same as ``Factored.factor``, by diagonalization."""
        values, vectors = np.linalg.eigh(self.second)
        factor = vectors * np.sqrt(np.maximum(values, 0))
        return {group: factor[where] for group, where in self.layout.positions.items()}


Moments = Factored | Dense | WireMoments


def _span(slices: Iterable[slice]) -> slice:
    """The range that covers all of these slices."""
    ranges = list(slices)
    return slice(
        min((s.start for s in ranges), default=0), max((s.stop for s in ranges), default=0)
    )


def _constants(words: Fields, one: Array64) -> Array64:
    """Label states of each pattern as constants in time, (L, patterns · modes)."""
    constants = np.kron(words.T.astype(np.float64), one).astype(np.float64)
    return constants.reshape(words.shape[1], len(words) * len(one))


def _side_by_side(modes: Array64, dtype: Any = None) -> Array64:
    """(P, N, modes) as (N, P·modes)."""
    return np.ascontiguousarray(modes.transpose(1, 0, 2), dtype).reshape(modes.shape[1], -1)


def _scaled(products: Array64, factor: float) -> Array64:
    """The same array, multiplied in place."""
    products *= factor
    return products
