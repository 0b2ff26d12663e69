"""Errors that are added to residuals and known before a path is learned, in any array library.

e_k = μ_bias + σ_res ξ_k + your own,   ξ_{k+1} = ρ ξ_k + √(1 − ρ²) ε_k,   ξ_0 = ε_0
"""

from __future__ import annotations

import math
from typing import Any

from thermoloom.settings import Settings
from thermoloom.streams import Array, Stream


def residual_errors(library: Any, settings: Settings, trajectory: int) -> Array | float:
    """e (K, N) of one training trajectory, or a number that all steps have in common."""
    errors, machine, seed = settings.imperfections, settings.machine, settings.training.seed
    additive, total = errors.additive(machine, seed, trajectory), errors.residual_offset
    total = total if additive is None else total + library.array(additive)
    if errors.residual_noise == 0:
        return total
    stream = Stream(library, seed, "residual error")
    xi = stream.normals([trajectory], 0, machine.steps, machine.units)[:, 0]
    rho = errors.residual_correlation

    def step(xi: Array, inputs: tuple[Array]) -> tuple[Array, tuple[Array]]:
        xi = rho * xi + math.sqrt(1 - rho * rho) * inputs[0]
        return xi, (xi,)

    if rho > 0:
        (later,) = library.scan(step, xi[0], (xi[1:],))[1]
        xi = library.xp.concatenate([xi[:1], later], 0)
    return total + errors.residual_noise * xi


def error_normals(library: Any, settings: Settings, trajectory: int) -> Array:
    """Standard normals (K, N) for a user's error that depends on the residual."""
    stream, machine = (
        Stream(library, settings.training.seed, "residual error/own"),
        settings.machine,
    )
    return stream.normals([trajectory], 0, machine.steps, machine.units)[:, 0]
