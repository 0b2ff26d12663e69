"""θ* = argmin E[L(θ)]: the expected loss of all noising paths, and the computer that minimizes it.

The residual of unit i is r_i = (D_i + μΔt h_i)/(2k_BT) with D_i = −Δx_i + μΔt φ(x_i') free of θ
and h_i = b_i + Σ_j J_ij x_j'. Units of one noising path are independent, so with means m, variances
v, and d = E[D]

    2k_BT E[r_i] = f_i,   2k_BT E[r_i x_j'] = f_i m_j + μΔt J_ij v_j   (i ≠ j),
    f_i = d_i + μΔt (b_i + Σ_j J_ij m_j)

at every step. Summed over steps, v enters as one number a unit; m and d are expanded in a few
orthonormal functions of time (the functions m(s, ·) of all fields span only about ten to nine
digits), which makes the sum over K steps a sum over modes, without a quadrature error.

A parameter vector θ is flat, [J_vh | J_hh | b_h], and holds each hidden–hidden edge twice;
``Layout.inner`` counts it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Physics
from thermoloom.errors import UserError
from thermoloom.physics.computer import Computer
from thermoloom.streams import jit
from thermoloom.theory.marginals import Array64, Marginals, solve_marginals
from thermoloom.threads import threads

Fields = NDArray[np.floating[Any]]

# Time modes below this fraction of the largest singular value are dropped: a digit or so below
# the error of the marginals themselves.
_MODE_CUTOFF = 1e-9
_PROTOTYPES_AT_ONCE = 32


@dataclass(frozen=True)
class Layout:
    """Where J_vh, J_hh and b_h lie in a flat parameter vector."""

    visible: int
    hidden: int

    @property
    def size(self) -> int:
        return (self.visible + self.hidden + 1) * self.hidden

    def split(self, vector: Array64) -> tuple[Array64, Array64, Array64]:
        """Views of J_vh, J_hh and b_h."""
        first = self.visible * self.hidden
        second = first + self.hidden * self.hidden
        return (
            vector[:first].reshape(self.visible, self.hidden),
            vector[first:second].reshape(self.hidden, self.hidden),
            vector[second:],
        )

    def inner(self, a: Array64, b: Array64) -> float:
        """⟨a, b⟩ over independent parameters: each undirected hidden–hidden edge once."""
        hidden_a, hidden_b = self.split(a)[1].ravel(), self.split(b)[1].ravel()
        return float(a @ b - 0.5 * (hidden_a @ hidden_b))

    def flatten(self, computer: Computer) -> Array64:
        parts = [np.asarray(a, np.float64).ravel() for a in computer.arrays.values()]
        return np.concatenate(parts)

    def computer(self, vector: Array64, dtype: Any = np.float64) -> Computer:
        """A vector as a computer; J_hh, symmetric up to round-off here, is so to the bit there."""
        vh, hh, b = self.split(vector)
        return Computer(vh.astype(dtype), (0.5 * (hh + hh.T)).astype(dtype), b.astype(dtype))


@dataclass(frozen=True)
class PathModes:
    """Moments of the units along a window of steps, expanded in orthonormal functions of time."""

    mean: Array64
    """m as (prototypes, N, modes)."""
    drift: Array64
    """d as (prototypes, N, modes), projected onto the modes."""
    one: Array64
    """The constant 1 as (modes,)."""
    variance: Array64
    """Σ_k v, (prototypes, N)."""
    square: Array64
    """Σ_k Σ_i q, (prototypes,)."""


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
        self._drift = marginals.drift[window].T @ basis
        self._variance = marginals.variance[window].sum(axis=0)
        self._square = marginals.square[window].sum(axis=0)

    def paths(self, fields: Fields) -> PathModes:
        """Moments of the noising paths of prototypes with these unit fields, (P, N)."""
        wide: Array64 = fields.astype(np.float64)
        odd = self._marginals.interpolation(wide, "mean")
        even = self._marginals.interpolation(wide, "variance")
        return PathModes(
            mean=odd @ self._mean,
            drift=odd @ self._drift,
            one=self.one,
            variance=even @ self._variance,
            square=(even @ self._square).sum(axis=-1),
        )


class ExpectedLoss:
    """E[L(θ)] of a noising path, averaged over prototypes: L₀ + ⟨g₀, θ⟩ + ½⟨θ, Hθ⟩.

    L is the sum over the K steps of a trajectory (or over the steps of ``window``), as in the
    training rules; ``per_step`` divides by their number, as in reported losses. The Hessian is
    H θ = (μΔt/2k_BT) [J S + (J S)ᵀ] masked, S = Σ_k E[x'x'ᵀ]. A product with H costs
    O(N N_h · 10 P) for few prototypes; from 10 P > N/3 on S is formed and it costs O(N² N_h),
    however many prototypes there are.
    """

    def __init__(
        self,
        physics: Physics,
        fields: Fields,
        marginals: Marginals | None = None,
        window: tuple[int, int] | None = None,
    ) -> None:
        if fields.ndim != 2 or fields.shape[1] != physics.units:
            raise UserError(
                f"unit fields of shape {fields.shape}: expected (prototypes, {physics.units}), "
                "the units of physics.visible + physics.hidden"
            )
        if marginals is None:
            marginals = solve_marginals(physics, float(np.abs(fields).max()))
        start, stop = window or (0, physics.steps)
        modes = TimeModes(marginals, start, stop)
        self.physics = physics
        self.steps = stop - start
        self.layout = Layout(physics.visible, physics.hidden)
        kind = Factored if len(fields) * len(modes.one) <= physics.units / 3 else Dense
        self.moments: Factored | Dense = kind(physics, modes, fields)

    # The quadratic form on flat parameter vectors.

    def curvature(self, direction: Array64) -> Array64:
        """H·direction for a flat parameter vector (J_hh symmetric, zero diagonal)."""
        return self._response(direction, with_drift=False)

    def slope(self, theta: Array64) -> Array64:
        """∇L at a flat parameter vector."""
        return self._response(theta, with_drift=True)

    def _response(self, theta: Array64, with_drift: bool) -> Array64:
        visible_hidden, hidden_hidden, bias = self.layout.split(theta)
        result = np.empty(self.layout.size)
        out_vh, out_hh, out_b = self.layout.split(result)
        self.moments.correlate(
            (visible_hidden, hidden_hidden, bias), (out_vh, out_hh, out_b), with_drift
        )
        visible, hidden = np.split(self.moments.variance, [self.physics.visible])
        scale = self.physics.residual_scale
        _add_variances(out_vh, visible_hidden, visible, hidden, scale)
        _add_variances(out_hh, hidden_hidden, hidden, hidden, scale)
        np.fill_diagonal(out_hh, 0)
        out_b *= scale
        return result

    @cached_property
    def zero_gradient(self) -> Array64:
        """g₀ = ∇L(0)."""
        return self.slope(np.zeros(self.layout.size))

    @property
    def zero_value(self) -> float:
        """L₀ = E[L(0)]."""
        p = self.physics
        return self.moments.square / (4 * p.mobility * p.kT * p.dt)

    def total(self, theta: Array64) -> float:
        """E[L] at a flat parameter vector."""
        twice = self.layout.inner(self.zero_gradient + self.slope(theta), theta)
        return self.zero_value + 0.5 * twice

    # The same for computers.

    def value(self, computer: Computer) -> float:
        """E[L(θ)], the sum over steps."""
        return self.total(self.layout.flatten(computer))

    def per_step(self, computer: Computer) -> float:
        """E[L(θ)]/K, comparable with a validation loss averaged over paths."""
        return self.value(computer) / self.steps

    def gradient(self, computer: Computer) -> Computer:
        """E[r_i x_j' + r_j x_i'] and E[r_a], summed over steps, as the training rules apply it."""
        return self.layout.computer(self.slope(self.layout.flatten(computer)))

    def hessian_vector(self, direction: Computer) -> Computer:
        """H·direction."""
        return self.layout.computer(self.curvature(self.layout.flatten(direction)))


@jit
def _add_variances(out, couplings, rows, columns, scale):  # type: ignore[no-untyped-def]
    """out ← scale · (out + J_ij (v_i + v_j)), in one pass over memory."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = scale * (out[i, j] + couplings[i, j] * (rows[i] + columns[j]))


Parts = tuple[Array64, Array64, Array64]


class Factored:
    """Moments of few prototypes as thin factors, one column a prototype and time mode."""

    def __init__(self, physics: Physics, modes: TimeModes, fields: Fields) -> None:
        paths = modes.paths(fields)
        weight = len(fields) ** -0.5
        self.mean = _side_by_side(paths.mean) * weight
        self.drift = _side_by_side(paths.drift) * (weight / (physics.mobility * physics.dt))
        """d as a force, in the same modes."""
        self.one = np.tile(paths.one, len(fields)) * weight
        self.variance: Array64 = paths.variance.mean(axis=0)
        self.square = float(paths.square.mean())
        self._cut = [physics.visible]

    def correlate(self, theta: Parts, out: Parts, with_drift: bool) -> None:
        """Σ f_i m_j + f_j m_i over steps, f the mean force of θ (and of d), for every edge."""
        vh, hh, b = theta
        mean_v, mean_h = np.split(self.mean, self._cut)
        force_v = vh @ mean_h
        force_h = vh.T @ mean_v + hh @ mean_h + np.outer(b, self.one)
        if with_drift:
            drift_v, drift_h = np.split(self.drift, self._cut)
            force_v += drift_v
            force_h += drift_h
        right = np.hstack([mean_h, force_h]).T
        np.matmul(np.hstack([force_v, mean_v]), right, out=out[0])
        np.matmul(np.hstack([force_h, mean_h]), right, out=out[1])
        np.matmul(force_h, self.one, out=out[2])

    @property
    def total(self) -> Array64:
        """Σ_k m."""
        total: Array64 = self.mean @ self.one
        return total

    def factor(self) -> tuple[Array64, Array64]:
        """F, f with Σ_k E[m m'] = F Fᵀ, Σ_k E[m] = F f and K = f·f."""
        return self.mean, self.one


class Dense:
    """Moments of many prototypes as N × N sums, taken up a few prototypes at a time."""

    def __init__(self, physics: Physics, modes: TimeModes, fields: Fields) -> None:
        units, self._visible = physics.units, physics.visible
        self._steps = float(modes.one @ modes.one)
        self.second = np.zeros((units, units))
        """Σ_k E[m_i m_j]."""
        self.cross = np.zeros((units, physics.hidden))
        """Σ_k E[d_i m_j + m_i d_j] for hidden j, d as a force."""
        self.bias = np.zeros(physics.hidden)
        self.total = np.zeros(units)
        self.variance = np.zeros(units)
        self.square = 0.0
        for first in range(0, len(fields), _PROTOTYPES_AT_ONCE):
            some = fields[first : first + _PROTOTYPES_AT_ONCE]
            part, share = Factored(physics, modes, some), len(some) / len(fields)
            mean, drift = part.mean * share, part.drift
            self.second += mean @ part.mean.T
            self.cross += drift @ mean[self._visible :].T + mean @ drift[self._visible :].T
            self.bias += drift[self._visible :] @ part.one * share
            self.total += mean @ part.one
            self.variance += part.variance * share
            self.square += part.square * share

    def correlate(self, theta: Parts, out: Parts, with_drift: bool) -> None:
        """The same as ``Factored.correlate``, from J S + (J S)ᵀ."""
        vh, hh, b = theta
        visible = self._visible
        hidden_rows = np.hstack([vh.T, hh]) @ self.second + np.outer(b, self.total)
        np.matmul(vh, self.second[visible:, visible:], out=out[0])
        out[0][...] += hidden_rows[:, :visible].T
        np.add(hidden_rows[:, visible:], hidden_rows[:, visible:].T, out=out[1])
        out[2][:] = vh.T @ self.total[:visible] + hh @ self.total[visible:] + self._steps * b
        if with_drift:
            out[0][...] += self.cross[:visible]
            out[1][...] += self.cross[visible:]
            out[2][...] += self.bias

    def factor(self) -> tuple[Array64, Array64]:
        """The same as ``Factored.factor``, by diagonalization."""
        joint = np.block([[self.second, self.total[:, None]], [self.total, np.array(self._steps)]])
        values, vectors = np.linalg.eigh(joint)
        factor = vectors * np.sqrt(np.maximum(values, 0))
        return factor[:-1], factor[-1]


def _side_by_side(modes: Array64) -> Array64:
    """(P, N, modes) as (N, P·modes)."""
    return np.ascontiguousarray(modes.transpose(1, 0, 2)).reshape(modes.shape[1], -1)


@dataclass(frozen=True)
class Optimum:
    """The computer that minimizes the expected loss, and how it was found."""

    computer: Computer
    """θ* in float32."""
    expected_loss: float
    """E[L(θ*)]/K."""
    initial_loss: float
    """E[L(0)]/K."""
    relative_gradient: float
    """|∇L(θ*)|/|∇L(0)| in float64."""
    iterations: int
    """Conjugate-gradient steps."""
    marginal_error: float
    """Estimated relative error of the marginals."""
    seconds: float
    """Wall time, marginals included."""


def solve_optimum(
    physics: Physics,
    fields: Fields,
    tolerance: float = 1e-6,
    progress: Callable[[int, float], None] | None = None,
    max_iterations: int = 1000,
) -> Optimum:
    """H θ* = −g₀ by conjugate gradients, until |∇L| ≤ ``tolerance`` · |∇L(0)|.

    ``progress`` is called with the iteration and the relative gradient.
    """
    began = time.perf_counter()
    marginals = solve_marginals(physics, float(np.abs(fields).max()))
    loss = ExpectedLoss(physics, fields, marginals)
    # Thin products gain little from a second thread and lose much where a core is busy.
    with threads(1) if isinstance(loss.moments, Factored) else nullcontext():
        theta, iterations = conjugate_gradients(loss, tolerance, progress, max_iterations)
    slope = loss.slope(theta)
    relative = (loss.layout.inner(slope, slope) / _square(loss)) ** 0.5 if _square(loss) else 0.0
    return Optimum(
        computer=loss.layout.computer(theta, np.float32),
        expected_loss=loss.total(theta) / loss.steps,
        initial_loss=loss.zero_value / loss.steps,
        relative_gradient=relative,
        iterations=iterations,
        marginal_error=marginals.error,
        seconds=time.perf_counter() - began,
    )


def _square(loss: ExpectedLoss) -> float:
    return loss.layout.inner(loss.zero_gradient, loss.zero_gradient)


def conjugate_gradients(
    loss: ExpectedLoss,
    tolerance: float,
    progress: Callable[[int, float], None] | None = None,
    max_iterations: int = 1000,
    linear_term: Array64 | None = None,
) -> tuple[Array64, int]:
    """θ with H θ = −g (g = g₀ unless given), from θ = 0, and the number of iterations."""
    inner = loss.layout.inner
    residual = -(loss.zero_gradient if linear_term is None else linear_term)
    theta = np.zeros_like(residual)
    direction = residual.copy()
    size = first = inner(residual, residual)
    for iteration in range(max_iterations):
        if size <= tolerance**2 * first:
            return theta, iteration
        image = loss.curvature(direction)
        step = size / inner(direction, image)
        theta += step * direction
        residual -= step * image
        previous, size = size, inner(residual, residual)
        direction *= size / previous
        direction += residual
        if progress is not None:
            progress(iteration + 1, (size / first) ** 0.5)
    raise UserError(
        f"tolerance = {tolerance}: not reached in {max_iterations} conjugate-gradient steps "
        f"(relative gradient {(size / first) ** 0.5:.1e}); ask for less"
    )
