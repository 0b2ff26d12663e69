"""The reverse-path Onsager–Machlup action: residual, loss, gradient, path-action identity.

    r_i = [−Δx_i + μΔt ∂_iV_θ(x′)] / (2k_BT)          with x′ = x_{k+1}, Δx = x′ − x_k
    L_step = Σ_i [−Δx_i + μΔt ∂_iV_θ(x′)]² / (4μk_BTΔt) = (k_BT/μΔt) Σ_i r_i²

The loss is quadratic in θ. All functions are plain array code in the dtype of the path.
``drive``, ``residual``, ``displacement`` and ``pair_update`` define residual, step and rule once:
engines call them in their kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from thermoloom.machine.device import sensed_gradient
from thermoloom.machine.energy import group_states
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Onsite
from thermoloom.machine.parameters import Array, Parameters, layout
from thermoloom.machine.protocol import ramp
from thermoloom.threads import linear_algebra


class StepConstants(NamedTuple):
    """Coefficients of one step, in one precision."""

    onsite: Onsite | None
    """The reference or a generating potential; None where only coupling forces are needed."""
    drift: Any
    """μΔt"""
    kick: Any
    """√(2μk_BTΔt)"""
    inverse_2kT: Any
    """1/(2k_BT)"""
    c: Any
    """μΔt/(2k_BT)"""


def step_constants(
    machine: Machine, dtype: Any = np.float32, stage: int | None = None
) -> StepConstants:
    """The coefficients of a machine's steps: numbers, or (N,) where units differ.

    The onsite potential is the generating one of a ``stage``; without a stage, the reference one.
    """
    drift, kick = machine.step
    onsite = machine.potential if stage is None else machine.generating_potential(stage)
    return StepConstants(
        onsite.astype(dtype),
        dtype(drift),
        dtype(kick),
        dtype(1 / (2 * machine.kT)),
        dtype(machine.residual_scale),
    )


def drive(constants: Any, before: Any, after: Any) -> Any:
    """[−Δx + μΔt V′_onsite(x′)]/(2k_BT): the residual of an uncoupled unit."""
    return constants.c * constants.onsite.gradient(after) - constants.inverse_2kT * (after - before)


def residual(constants: Any, uncoupled: Any, coupling: Any) -> Any:
    """r = drive + c Σ_j J_ij x_j′."""
    return uncoupled + constants.c * coupling


def displacement(constants: Any, force: Any, z: Any) -> Any:
    """Δx = μΔt force + √(2μk_BTΔt) z: the Euler–Maruyama step, Itô, force at its start."""
    return constants.drift * force + constants.kick * z


def pair_update(r_i: Any, x_i: Any, r_j: Any, x_j: Any) -> Any:
    """u_ij = r_i x_j′ + r_j x_i′: one step's update of a coupling is −α u_ij."""
    return r_i * x_j + r_j * x_i


def drives(machine: Machine, path: Any, dtype: Any) -> Iterator[Any]:
    """``drive`` of every step of a path (K + 1, N), stage by stage, each (steps, N)."""
    for stage, (first, last) in enumerate(machine.stage_windows):
        constants = step_constants(machine, dtype, stage)
        yield drive(constants, path[:-1][first:last], path[1:][first:last])


def loss_scale(machine: Machine) -> float:
    """k_BT/(μΔt): L_step = scale · Σ_i r_i²."""
    return machine.kT / machine.drift


@linear_algebra()
def residuals(theta: Parameters, path: Array, word: Array | None = None) -> Array:
    """r for every step and unit of a path (K + 1, N); shape (K, N)."""
    machine, after = theta.machine, path[1:]
    constants = step_constants(machine, path.dtype.type)
    r: Array = np.concatenate([*drives(machine, path, path.dtype.type)])
    for stage, (first, last) in enumerate(machine.stage_windows):
        steps = slice(first, min(last, len(r)))
        coupling = sensed_gradient(theta, after[steps], stage, word)
        r[steps] = residual(constants, r[steps], coupling)
    return r


SUMS = ("squared", "work_theta", "work_reference", "force_theta", "force_reference",
        "forward", "reverse")  # fmt: skip
"""Σ Δx², Σ Δx·g_θ⁺, Σ Δx·g_0⁻, Σ ‖g_θ⁺‖², Σ ‖g_0⁻‖², Σ (Δx + μΔt g_0⁻)², Σ (−Δx + μΔt g_θ⁺)²"""


def step_terms(drift: Any, dx: Any, g_reference: Any, g_theta: Any) -> Any:
    """The seven terms of ``SUMS`` of one unit in one step."""
    forward = dx + drift * g_reference
    reverse = drift * g_theta - dx
    return (
        dx * dx,
        dx * g_theta,
        dx * g_reference,
        g_theta * g_theta,
        g_reference * g_reference,
        forward * forward,
        reverse * reverse,
    )


STEPS_AT_ONCE = 250
"""Steps of a path whose terms are in memory at a time."""


class PathTerms(NamedTuple):
    """Loss of a θ on one noising path, and both sides of the path-action identity.

    R_θ = ln P₀[ω|x₀] / P_θ[ω̃|x_K]
        = −(β/2) Σ Δx·(g_θ⁺ + g_0⁻) + (βμΔt/4) Σ (‖g_θ⁺‖² − ‖g_0⁻‖²)
    """

    loss: float
    """L/K"""
    reduced_loss: float
    """L/K without the θ-independent squared-increment term Σ Δx²/(4μk_BTΔt)."""
    log_ratio: float
    """R_θ directly from the two Gaussian path densities."""
    heat_like: float
    """−(β/2) Σ Δx·(g_θ⁺ + g_0⁻)"""
    force_squared: float
    """(βμΔt/4) Σ (‖g_θ⁺‖² − ‖g_0⁻‖²)"""

    @property
    def identity_error(self) -> float:
        """|R_θ − its terms| relative to the size of the terms: the rounding of the sums alone."""
        size = abs(self.heat_like) + abs(self.force_squared)
        return abs(self.log_ratio - self.heat_like - self.force_squared) / size


class PathLoss(NamedTuple):
    """The validation loss of a path, with and without its constant term."""

    loss: float
    """L/K"""
    reduced_loss: float
    """L/K without the θ-independent squared-increment term."""


def terms_of_sums(machine: Machine, sums: Sequence[float], steps: int) -> PathTerms:
    """The terms of a path of ``steps`` steps from the seven sums over it."""
    sum_of = dict(zip(SUMS, sums, strict=True))
    beta, drift = 1 / machine.kT, machine.drift
    variance = 4 * machine.kT * drift
    # the reduced loss from its terms, not as a difference of two large numbers
    reduced = -beta / 2 * sum_of["work_theta"] + beta * drift / 4 * sum_of["force_theta"]
    return PathTerms(
        loss=sum_of["reverse"] / variance / steps,
        reduced_loss=reduced / steps,
        log_ratio=(sum_of["reverse"] - sum_of["forward"]) / variance,
        heat_like=-beta / 2 * (sum_of["work_theta"] + sum_of["work_reference"]),
        force_squared=beta * drift / 4 * (sum_of["force_theta"] - sum_of["force_reference"]),
    )


@linear_algebra()
def path_terms(
    theta: Parameters, path: Array, field: Array | None = None, word: Array | None = None
) -> PathTerms:
    """Loss and path-action terms of a path from this field, in float64.

    Without the field, the terms of the reference potential V₀ lack their external force. On a
    device, forces are those that its units feel, but μ and k_BT are nominal, as in residuals.
    """
    machine, wide = theta.machine, theta.astype(np.float64)
    amplitude, sums = ramp(machine), np.zeros(len(SUMS))
    reference, at_once = machine.potential, max(1, min(STEPS_AT_ONCE, 2**21 // machine.units))
    for stage, (begin, end) in enumerate(machine.stage_windows):
        generating = machine.generating_potential(stage)
        for first in range(begin, end, at_once):
            steps = slice(first, min(first + at_once, end))
            x = np.asarray(path[first : steps.stop + 1], np.float64)
            coupling = sensed_gradient(wide, x[1:], stage, word)
            external = 0.0 if field is None else amplitude[steps, None] * np.float64(field)
            forces = reference.gradient(x[:-1]) - external, generating.gradient(x[1:]) + coupling
            terms = step_terms(machine.drift, np.diff(x, axis=0), *forces)
            sums += [float(np.sum(term)) for term in terms]
    return terms_of_sums(machine, sums.tolist(), len(path) - 1)


@linear_algebra()
def gradient_of_residuals(
    machine: Machine, r: Array, after: Array, word: Array | None = None
) -> Parameters:
    """∂L/∂θ summed over a path: ∂L/∂J_ij = Σ_k (r_i x_j′ + r_j x_i′), ∂L/∂b_i = Σ_k r_i.

    From residuals r and states x′, both (K, N); clamped units have r = 0.
    """
    gradients = Parameters.zeros(machine, r.dtype)
    for gradient, (first, last) in zip(gradients.vector, machine.stage_windows, strict=True):
        add_gradient(machine, r[first:last], after[first:last], word, gradient)
    return gradients


def add_gradient(
    machine: Machine, r: Array, after: Array, word: Array | None, vector: Array, scale: float = 1.0
) -> None:
    """vector ← vector + scale Σ_k (r_i x_j′ + r_j x_i′), flat, over some steps of one stage."""
    x = group_states(machine, after, word)
    of_residual = {group: r[:, where] for group, where in machine.groups.items()}
    for block in layout(machine).blocks:
        columns = np.broadcast_to(x[block.columns], (len(after), x[block.columns].shape[-1]))
        gradient = block.outer(of_residual[block.rows], columns)
        if block.doubled:
            gradient += gradient.T.copy()
            np.fill_diagonal(gradient, 0)
        elif block.columns in of_residual:
            gradient += block.outer(x[block.rows], of_residual[block.columns])
        block.of(vector)[...] += scale * gradient
