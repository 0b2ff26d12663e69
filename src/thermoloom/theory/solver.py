"""θ* = argmin E[L(θ)]: the parameters that training approaches, without any trajectory.

The expected loss is quadratic, so each stage has an exact optimum, H θ* = −g₀. Conjugate gradients
solve it from the moments of the steps of its window. The expected heat of the reverse path is
linear in θ, so with a price on heat, and on large parameters, there is one optimum as well:

    E[L(θ)] + λ E[Q(θ)]/k_BT + ½ρ|θ|²  →  (H + ρ) θ = −(g₀ + λ q/k_BT)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import daxpy

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.patterns.drive import Drive
from thermoloom.theory.expected_heat import ExpectedHeat, expected_heats
from thermoloom.theory.expected_loss import (
    MANY,
    Dense,
    ExpectedLoss,
    Factored,
    expected_losses,
)
from thermoloom.theory.lyapunov import Lyapunov
from thermoloom.theory.marginals import Array64, solve_marginals
from thermoloom.theory.wire_moments import clamped_couplings, set_clamped_couplings
from thermoloom.threads import linear_algebra, threads

_ROWS_AT_ONCE = 64
"""Rows of J that are processed together, so that they stay in the cache."""


@dataclass(frozen=True)
class Solution:
    """The parameters that minimize the expected loss, with the accuracy of the solution."""

    parameters: Parameters
    """θ* in float32."""
    expected_loss: float
    """E[L(θ*)]/K."""
    initial_loss: float
    """E[L(0)]/K."""
    relative_gradient: float
    """|∇L(θ*)|/|∇L(0)| in float64, the largest of all stages."""
    iterations: int
    """Conjugate-gradient steps, of all stages together."""
    marginal_error: float
    """Estimated relative error of the marginals."""
    seconds: float
    """Wall time, marginals included."""
    expected_heat: float | None = None
    """E[Q] of the reverse path in E₀; None if not requested, since it takes a long sum."""


@linear_algebra()
def solve_optimum(
    machine: Machine,
    drive: Drive,
    tolerance: float = 1e-6,
    progress: Callable[[int, float], None] | None = None,
    max_iterations: int = 1000,
    heat_weight: float = 0.0,
    ridge: float = 0.0,
) -> Solution:
    """(H + ρ) θ = −(g₀ + λq/k_BT) of every stage, until the gradient has fallen by ``tolerance``.

    ``heat_weight`` is λ, the price of a k_BT of expected heat in units of the loss; ``ridge`` is ρ.
    ``progress`` is called with the iteration and the relative gradient.

    A weight at which the loss would be larger than at θ = 0 is refused.
    """
    if heat_weight > 1:  # usual weights are smaller; float32 fails for much larger ones
        _refuse_useless(heat_weight, _largest_weight(machine, drive, tolerance, ridge, 1.0))
    solution = _solve(machine, drive, tolerance, progress, max_iterations, heat_weight, ridge)
    if heat_weight and not solution.expected_loss <= solution.initial_loss:
        largest = _largest_weight(machine, drive, tolerance, ridge, heat_weight)
        _refuse_useless(heat_weight, largest)
    return solution


def _largest_weight(
    machine: Machine, drive: Drive, tolerance: float, ridge: float, near: float
) -> float:
    """The λ at which the loss equals that at θ = 0.

    θ is linear in λ, so the loss is a parabola; it is evaluated at 0 and at ±``near``.
    """
    plain, heavier = (
        _solve(machine, drive, tolerance, heat_weight=weight, ridge=ridge) for weight in (0.0, near)
    )
    lighter = heavier
    if ridge:
        lighter = _solve(machine, drive, tolerance, heat_weight=-near, ridge=ridge)
    room = plain.initial_loss - plain.expected_loss
    slope = (heavier.expected_loss - lighter.expected_loss) / 2
    bend = (heavier.expected_loss + lighter.expected_loss) / 2 - plain.expected_loss
    if bend <= 0:  # heat does not depend on the couplings
        return math.inf
    return near * (math.sqrt(slope**2 + 4 * bend * room) - slope) / (2 * bend)


def _refuse_useless(heat_weight: float, largest: float) -> None:
    if heat_weight > largest:
        digit = 10.0 ** (math.floor(math.log10(largest)) - 1)
        useful = float(f"{math.floor(largest / digit) * digit:.2g}")
        raise UserError(
            f"solver.heat_weight = {heat_weight:g}: the computer would be worse than one without "
            f"couplings; the largest useful weight here is {useful:g}"
        )


def _solve(
    machine: Machine,
    drive: Drive,
    tolerance: float,
    progress: Callable[[int, float], None] | None = None,
    max_iterations: int = 1000,
    heat_weight: float = 0.0,
    ridge: float = 0.0,
) -> Solution:
    """The optimum at any weight."""
    began = time.perf_counter()
    fields, words = drive
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    theta = np.empty((machine.stages, layout(machine).size))
    total = initial = largest = 0.0
    iterations = 0
    heats: list[ExpectedHeat] = []
    solve: Preconditioner | None = None
    if heat_weight or len(fields) <= MANY:
        heats = expected_heats(machine, fields, marginals, words)
    for stage, loss in enumerate(expected_losses(machine, fields, marginals, words)):
        linear = loss.zero_gradient
        if heat_weight:
            linear = linear + (heat_weight / machine.kT) * heats[stage].slope
        solve = preconditioner(loss, solve)
        # Thin products gain little from a second thread and lose much if a core is busy.
        with threads(1) if isinstance(loss.moments, Factored) else nullcontext():
            theta[stage], gradient, steps = _minimum(
                loss, tolerance, progress, max_iterations, linear, ridge, solve
            )
        iterations += steps
        curvature = gradient - linear - ridge * theta[stage]
        total += loss.total(theta[stage], curvature)
        initial += loss.zero_value
        largest = max(largest, _relative_size(loss, gradient, linear))
    vector = layout(machine).symmetrized(theta).astype(np.float32)
    return Solution(
        parameters=Parameters(machine, vector).with_styles_of(words),
        expected_loss=total / machine.steps,
        initial_loss=initial / machine.steps,
        relative_gradient=largest,
        iterations=iterations,
        marginal_error=marginals.error,
        seconds=time.perf_counter() - began,
        expected_heat=sum(h.value(t) for h, t in zip(heats, theta, strict=True)) if heats else None,
    )


def _relative_size(loss: ExpectedLoss, gradient: Array64, first: Array64) -> float:
    inner = loss.layout.inner
    size = inner(first, first)
    return (inner(gradient, gradient) / size) ** 0.5 if size else 0.0


class CompletelyWired:
    """J with J S + (J S)ᵀ = R: the optimum of a machine in which every unit is coupled to every
    unit, itself included. The actual machine differs only by masks, so this is a preconditioner.

    Clamped units are eliminated first; the remainder, J C + C J with C the covariance of the free
    units given the clamped ones, is diagonal in the eigenvectors of C. Only the couplings of some
    units, the hub, are needed: those of hidden units, if visible ones are not coupled.
    With n of the N units in the hub, four products cost 8 N² n operations per call, in float32,
    which is enough for a search direction.
    """

    def __init__(self, loss: ExpectedLoss, similar: CompletelyWired | None = None) -> None:
        """``similar``: the equations of another stage, whose eigenvectors are similar."""
        moments = loss.moments
        assert isinstance(moments, Dense)
        n = loss.machine.units
        wired = [
            np.arange(len(moments.second))[loss.layout.positions[group]]
            for group in ("label", "one")
            if any(block.columns == group for block in loss.layout.blocks)
        ]
        self._clamped = np.concatenate([*wired, np.empty(0, np.intp)])
        self._loss = loss
        second = moments.second[:n, :n] + np.diag(moments.variance)
        self._with_clamped = moments.second[:n, self._clamped]
        among = moments.second[np.ix_(self._clamped, self._clamped)]
        # a label that no pattern has is uncoupled
        self._inverse = np.linalg.pinv(among, rcond=1e-12, hermitian=True)
        self._gain = self._with_clamped @ self._inverse
        self._hub = _hub(loss)
        self.lyapunov: Lyapunov | None = None
        if self._hub.start == self._hub.stop:
            return  # free units are coupled to clamped ones alone
        conditional = second - self._gain @ self._with_clamped.T
        if _every_pair(loss):
            near = None if similar is None else similar.lyapunov
            start = None if near is None else near.vectors
            noise = float(moments.variance.min())
            self.lyapunov = Lyapunov(conditional, noise, moments.patterns, start)
            return
        values, vectors = np.linalg.eigh(conditional)
        self._vectors = vectors.astype(np.float32)
        values = np.maximum(values, 1e-12 * values.max())
        self._sums = np.add.outer(values, values).astype(np.float32)

    def __call__(self, residual: Array64) -> Array64:
        """The J of a flat R, masked by the wiring."""
        if self.lyapunov is not None:
            return self._between_all(residual, self.lyapunov)
        n, form, hub = self._loss.machine.units, self._loss.layout, self._hub
        full = form.coupling_matrix(residual)
        clamped = full[:, self._clamped]
        if hub.start < hub.stop:
            full[:, hub], forces = self._everywhere(full[:, :n], clamped)
            full[hub, :n] = full[:, hub].T
            clamped = clamped - forces
        full[:, self._clamped] = clamped @ self._inverse
        solution = np.empty(form.size)
        for block in form.blocks:
            view = block.matrix(solution)
            view[...] = full[form.positions[block.rows], form.positions[block.columns]]
            if block.symmetric:
                view[...] = 0.5 * (view + view.T)
                np.fill_diagonal(view, 0)
        solution /= self._loss.machine.residual_scale
        return solution

    def _everywhere(self, R: Array64, clamped: Array64) -> tuple[Array64, Array64]:
        """J of the hub, and J E[x cᵀ] of all units with the clamped ones c.

        R without the part of the clamped units is Y + Yᵀ, Y the columns of the hub and −R_c Gᵀ.
        """
        Q, hub = self._vectors, self._hub
        columns = R[:, hub].astype(np.float32)
        columns[hub] *= 0.5
        half = (Q.T @ columns) @ Q[hub]
        half -= (Q.T @ clamped.astype(np.float32)) @ (Q.T @ self._gain.astype(np.float32)).T
        J = half + half.T
        J /= self._sums
        forces = Q @ (J @ (Q.T @ self._with_clamped.astype(np.float32)))
        return Q @ (J @ Q[hub].T), forces.astype(np.float64)

    def _between_all(self, residual: Array64, lyapunov: Lyapunov) -> Array64:
        """J of a flat R, with J_ii = 0, which is exact where all pairs are wired."""
        form, n = self._loss.layout, self._loss.machine.units
        R = np.empty((n, n), np.float32)
        clamped = np.zeros((n, form.positions["one"].stop - n))
        for block in form.blocks:
            rows, columns = form.positions[block.rows], form.positions[block.columns]
            view = block.matrix(residual)
            if columns.start >= n:
                clamped[rows, columns.start - n : columns.stop - n] = view
                continue
            R[rows, columns] = view
            if not block.symmetric:
                R[columns, rows] = view.T
        clamped = clamped[:, self._clamped - n]
        fixed, gain = clamped.astype(np.float32), self._gain.astype(np.float32)
        for first in range(0, n if len(self._clamped) else 0, _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            R[some] -= fixed[some] @ gain.T + gain[some] @ fixed.T
        J = lyapunov.with_zero_diagonal(R)
        forces = J @ self._with_clamped.astype(np.float32)
        of_clamped = np.zeros((n, form.positions["one"].stop - n))
        of_clamped[:, self._clamped - n] = (clamped - forces) @ self._inverse
        solution = np.empty(form.size)
        for block in form.blocks:
            rows, columns = form.positions[block.rows], form.positions[block.columns]
            free = columns.start < n
            source = (
                J[rows, columns] if free else of_clamped[rows, columns.start - n : columns.stop - n]
            )
            np.divide(source, self._loss.machine.residual_scale, out=block.matrix(solution))
        return solution


class FewWires:
    """The preconditioner of a machine with few wires: clamped units are eliminated as in
    ``CompletelyWired``, and J C + C J on the wires is replaced by its diagonal, J_ij (C_ii + C_jj).
    """

    def __init__(self, loss: ExpectedLoss) -> None:
        moments = loss.moments
        assert not isinstance(moments, Factored)
        self._loss, form = loss, loss.layout
        wired = [
            np.arange(form.positions[group].start, form.positions[group].stop)
            for group in ("label", "one")
            if any(block.columns == group for block in form.blocks)
        ]
        clamped = np.concatenate([*wired, np.empty(0, np.intp)]) - loss.machine.units
        self._with_clamped = np.zeros_like(moments.with_clamped)
        self._with_clamped[:, clamped] = moments.with_clamped[:, clamped]
        among = np.zeros_like(moments.among)
        among[np.ix_(clamped, clamped)] = moments.among[np.ix_(clamped, clamped)]
        # a label that no pattern has is uncoupled
        self._inverse = np.linalg.pinv(among, rcond=1e-12, hermitian=True)
        self._gain = self._with_clamped @ self._inverse
        shared = np.einsum("uc,uc->u", self._gain, self._with_clamped)
        values = moments.diagonal + moments.variance - shared
        self._values = np.maximum(values, 1e-12 * values.max())

    def __call__(self, residual: Array64) -> Array64:
        """The J of a flat R."""
        form, solution = self._loss.layout, np.empty_like(residual)
        clamped = clamped_couplings(form, residual)
        forces = np.zeros_like(clamped)
        for block in form.blocks:
            if block.wires is None:
                continue
            (i, j), (a, b) = block.places, (form.positions[g] for g in (block.rows, block.columns))
            shared = block.outer(clamped[a].T, self._gain[b].T)
            shared += block.outer(self._gain[a].T, clamped[b].T)
            J = block.of(solution)
            J[...] = (block.of(residual) - shared) / (self._values[a][i] + self._values[b][j])
            matrix = block.wires.matrix(J)
            forces[a] += matrix @ self._with_clamped[b]
            if not block.symmetric:
                forces[b] += matrix.T @ self._with_clamped[a]
        set_clamped_couplings(form, solution, (clamped - forces) @ self._inverse)
        solution /= self._loss.machine.residual_scale
        return solution


Preconditioner = CompletelyWired | FewWires


def preconditioner(
    loss: ExpectedLoss, similar: Preconditioner | None = None
) -> Preconditioner | None:
    """The approximate inverse of H; None where thin factors make plain steps cheaper.

    ``similar``: the preconditioner of another stage.
    """
    if isinstance(loss.moments, Factored):
        return None
    if loss.machine.sparse:
        return FewWires(loss)
    return CompletelyWired(loss, similar if isinstance(similar, CompletelyWired) else None)


def _every_pair(loss: ExpectedLoss) -> bool:
    """Whether every two free units are wired."""
    machine = loss.machine
    edges = sum(b.edges for b in loss.layout.blocks if b.columns in machine.groups)
    return edges == machine.units * (machine.units - 1) // 2


def _hub(loss: ExpectedLoss) -> slice:
    """The fewest units that take part in every coupling of two free units."""
    free = loss.machine.groups
    pairs = [{b.rows, b.columns} for b in loss.layout.blocks if b.columns in free]
    if not pairs:
        return slice(0, 0)
    shared = set.intersection(*pairs)
    smallest = min(shared, key=loss.machine.size_of, default=None)
    return slice(0, loss.machine.units) if smallest is None else free[smallest]


@linear_algebra()
def conjugate_gradients(
    loss: ExpectedLoss,
    tolerance: float,
    progress: Callable[[int, float], None] | None = None,
    max_iterations: int = 1000,
    linear_term: Array64 | None = None,
    ridge: float = 0.0,
    solve: Preconditioner | None = None,
) -> tuple[Array64, int]:
    """θ with (H + ρ) θ = −g (g = g₀ unless given), from θ = 0, and the number of iterations.

    Where S is formed, ``solve``, an approximate inverse, preconditions the equations.
    """
    linear = loss.zero_gradient if linear_term is None else linear_term
    if solve is None:
        solve = preconditioner(loss)
    theta, _, steps = _minimum(loss, tolerance, progress, max_iterations, linear, ridge, solve)
    return theta, steps


def _minimum(
    loss: ExpectedLoss,
    tolerance: float,
    progress: Callable[[int, float], None] | None,
    max_iterations: int,
    linear: Array64,
    ridge: float,
    solve: Preconditioner | None,
) -> tuple[Array64, Array64, int]:
    """θ, the gradient there and the number of iterations.

    The gradient is a sum over iterations of one float64 product each. Where S is formed, these are
    few and each is expensive; with thin factors the gradient is computed again at θ.
    """
    inner = loss.layout.inner
    residual = -linear
    theta = np.zeros_like(residual)
    direction, slope = np.zeros_like(residual), 1.0
    size = first = inner(residual, residual)
    for iteration in range(max_iterations):
        if size <= tolerance**2 * first:
            if isinstance(loss.moments, Dense):
                np.negative(residual, out=residual)
                return theta, residual, iteration
            return theta, loss.curvature(theta) + linear + ridge * theta, iteration
        conditioned = solve(residual) if solve else residual
        previous, slope = slope, inner(residual, conditioned) if solve else size
        direction *= slope / previous
        direction += conditioned
        image = loss.curvature(direction)
        if ridge:
            image += ridge * direction
        step = slope / inner(direction, image)
        theta = daxpy(direction, theta, a=step)  # in place, in one pass
        residual = daxpy(image, residual, a=-step)
        size = inner(residual, residual)
        if progress is not None:
            progress(iteration + 1, (size / first) ** 0.5)
    raise UserError(
        f"tolerance = {tolerance}: not reached in {max_iterations} conjugate-gradient steps "
        f"(relative gradient {(size / first) ** 0.5:.1e}); use a larger one"
    )
