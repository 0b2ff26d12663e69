"""Residual errors: added to every residual before updates are formed.

    r_i → r_i + e_i,   e_k = μ_bias + σ_res ξ_k
    ξ_{k+1} = ρ ξ_k + √(1 − ρ²) ε_k,   ξ_0 ~ N(0, 1) in each trajectory
"""

from __future__ import annotations

from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.random_streams import Stream
from thermoloom.settings import Settings


def autoregression(library: NumPy, static: None, normals: Array, rho: Array) -> Array:
    """ξ (K, N) from ε."""

    def step(xi: Array, inputs: tuple[Array]) -> tuple[Array, tuple[Array]]:
        xi = rho * xi + library.xp.sqrt(1 - rho * rho) * inputs[0]
        return xi, (xi,)

    later = library.scan(step, normals[0], (normals[1:],))[1]
    return library.xp.concatenate([normals[:1], *later], 0)


def residual_errors(library: NumPy, settings: Settings, trajectory: int) -> Array | None:
    """e (K, N) of one training trajectory; None where there is no residual error."""
    errors, machine = settings.imperfections, settings.machine
    if errors.residual_noise == 0 and errors.residual_offset == 0:
        return None
    stream = Stream(library, settings.training.seed, "residual error")
    xi = stream.normals([trajectory], 0, machine.steps, machine.units)[:, 0]
    if errors.residual_correlation > 0:
        xi = library.run(autoregression, None, xi, library.array(errors.residual_correlation))
    return errors.residual_offset + errors.residual_noise * xi
