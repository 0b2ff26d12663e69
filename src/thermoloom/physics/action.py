"""The reverse-path Onsager–Machlup action: residual, loss, gradient, path-action identity.

    r_i = [−Δx_i + μΔt ∂_iV_θ(x′)] / (2k_BT)          with x′ = x_{k+1}, Δx = x′ − x_k
    L_step = Σ_i [−Δx_i + μΔt ∂_iV_θ(x′)]² / (4μk_BTΔt) = (k_BT/μΔt) Σ_i r_i²

The loss is quadratic in θ. Everything here is plain and follows the dtype of the path, so it is
also the float64 reference that the fast paths are tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Physics
from thermoloom.physics.computer import Array, Computer, energy_gradient


def residuals(computer: Computer, physics: Physics, path: Array) -> Array:
    """r for every step and unit of a path (K + 1, N); shape (K, N)."""
    after = path[1:]
    dtype = path.dtype.type
    gradient = energy_gradient(computer, physics, after)
    reverse: Array = (path[:-1] - after) + dtype(physics.mobility * physics.dt) * gradient
    return reverse * dtype(1 / (2 * physics.kT))


def loss_scale(physics: Physics) -> float:
    """k_BT/(μΔt): L_step = scale · Σ_i r_i²."""
    return physics.kT / (physics.mobility * physics.dt)


@dataclass(frozen=True)
class PathLoss:
    """Loss per step L/K on one path, in float64."""

    full: float
    """L/K"""
    reduced: float
    """L/K without the θ-independent squared-increment term Σ Δx²/(4μk_BTΔt)."""


def path_loss(computer: Computer, physics: Physics, path: Array) -> PathLoss:
    """Loss per step of a path, with and without the squared-increment term."""
    steps = len(path) - 1
    r = residuals(computer, physics, path)
    total = np.einsum("ki,ki->", r, r, dtype=np.float64)
    increments = np.diff(path, axis=0)
    squared = np.einsum("ki,ki->", increments, increments, dtype=np.float64)
    full = loss_scale(physics) * float(total) / steps
    offset = float(squared) / (4 * physics.mobility * physics.kT * physics.dt) / steps
    return PathLoss(full, full - offset)


def gradient(computer: Computer, physics: Physics, path: Array) -> Computer:
    """∂L/∂θ summed over the path: ∂L/∂J_ij = Σ_k (r_i x_j′ + r_j x_i′), ∂L/∂b_a = Σ_k r_a."""
    return gradient_of_residuals(physics, residuals(computer, physics, path), path[1:])


def gradient_of_residuals(physics: Physics, r: Array, after: Array) -> Computer:
    """The same, from given residuals r and states x′, both (K, N)."""
    r_v, r_h = r[:, : physics.visible], r[:, physics.visible :]
    x_v, x_h = after[:, : physics.visible], after[:, physics.visible :]
    hidden_hidden = r_h.T @ x_h
    hidden_hidden = hidden_hidden + hidden_hidden.T
    np.fill_diagonal(hidden_hidden, 0)
    return Computer(r_v.T @ x_h + x_v.T @ r_h, hidden_hidden, r_h.sum(axis=0))


@dataclass(frozen=True)
class PathActionRatio:
    """R_θ = ln P₀[ω|x₀] / P_θ[ω̃|x_K] of one path, and its terms (Eq. path_action_ratio)."""

    log_ratio: float
    """R_θ straight from the two Gaussian path densities."""
    heat_like: float
    """−(β/2) Σ Δx·(g_θ⁺ + g_0⁻)"""
    force_squared: float
    """(βμΔt/4) Σ (‖g_θ⁺‖² − ‖g_0⁻‖²)"""


def path_action_ratio(
    computer: Computer,
    physics: Physics,
    path: Array,
    field: Array,
    amplitude: NDArray[Any],
) -> PathActionRatio:
    """Both sides of the path-action identity on a noising path, in float64.

    ``field`` and ``amplitude`` are the external force a(t_k)·s of the reference potential V₀.
    """
    x = np.asarray(path, np.float64)
    before, after, dx = x[:-1], x[1:], np.diff(x, axis=0)
    external = np.asarray(amplitude, np.float64)[:, None] * np.asarray(field, np.float64)
    g_reference = 2 * physics.J2 * before + 4 * physics.J4 * before**3 - external
    g_theta = energy_gradient(computer.astype(np.float64), physics, after)
    drift = physics.mobility * physics.dt
    variance = 4 * physics.mobility * physics.kT * physics.dt
    forward = np.sum((dx + drift * g_reference) ** 2) / variance
    reverse = np.sum((-dx + drift * g_theta) ** 2) / variance
    beta = 1 / physics.kT
    return PathActionRatio(
        log_ratio=float(reverse - forward),
        heat_like=float(-beta / 2 * np.sum(dx * (g_theta + g_reference))),
        force_squared=float(beta * drift / 4 * (np.sum(g_theta**2) - np.sum(g_reference**2))),
    )
