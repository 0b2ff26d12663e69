"""The result of a generation: states, and its account of energy, heat and work.

    heat    Q_t = V_t(start) − V_t(end) + W_clamp     in stage t, positive towards the environment
    work    W_t = V_t(x) − V_{t+1}(x)                 at the switch to stage t, at fixed states
    first law     V_1(x_end) − V_T(x_start) = W − Q
    path heat     −Σ_k ½(∇V_k + ∇V_{k+1})·Δx_k        along the steps, beside Q: the two differ by
                                                      discretization error

Where couplings are not reciprocal (``machine.device``), V is that of their common part; the rest,
f_i = −Σ_j D_ij x_j with D_ji = −D_ij, has no potential, and its work follows from the path alone:

    Q_t = V_t(start) − V_t(end) + W_clamp + W_active,    W_active = Σ_k ½(f_k + f_{k+1})·Δx_k

Stages are in the order of generation: from the noisy end of the noising path to the pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.energy import EnergyParts

Float64 = NDArray[np.float64]

FIRST_LAW = 1e-9
"""Largest error of the first law, relative to the energies involved."""


@dataclass(frozen=True)
class Generated:
    """The result of one generation."""

    initial_states: NDArray[np.float32]
    """x₀ after preparation, (S, N)."""
    final_states: NDArray[np.float32]
    """x_tf, (S, N), visible units first."""
    starts: EnergyParts
    """V of each stage at its beginning, in its parts, (S, T), float64."""
    ends: EnergyParts
    """V of each stage at its end, (S, T)."""
    clamp_work: Float64
    """Work done by moving clamps in each stage, (S, T); zero where nothing is clamped."""
    path_heat: Float64
    """Heat of each stage as a Stratonovich sum over its steps, (S, T)."""
    snapshots: NDArray[np.float32]
    """States at the chosen steps of the chosen samples, (samples, steps, N)."""
    clamp_work_so_far: Float64 | None = None
    """Work that moving clamps had done up to these snapshots, (samples, steps); None where clamps
    do not move."""
    active_work: Float64 | float = 0.0
    """Work done in each stage by couplings that are not reciprocal, (S, T); 0 where all are."""

    @property
    def stage_heat(self) -> Float64:
        """Q of each stage, (S, T), in E₀."""
        given = self.clamp_work + self.active_work
        return np.asarray(self.starts.total - self.ends.total + given, np.float64)

    @property
    def switching_work(self) -> Float64:
        """W at each switch between stages, (S, T − 1), in E₀."""
        return np.asarray(self.starts.total[:, 1:] - self.ends.total[:, :-1], np.float64)

    @property
    def heat(self) -> Float64:
        """Q of every sample, in E₀."""
        total: Float64 = self.stage_heat.sum(axis=1)
        return total

    @property
    def discretization_error(self) -> Float64:
        """Path heat − Q of every sample, in E₀: first order in Δt, and round-off where V is
        quadratic. It shows how far the discrete path is from the Langevin equation.
        """
        total: Float64 = (self.path_heat - self.stage_heat).sum(axis=1)
        return total

    @property
    def work(self) -> Float64:
        """W of every sample: of switching stages, of moving clamps and of one-way couplings, in
        E₀.
        """
        given = self.clamp_work + self.active_work
        total: Float64 = self.switching_work.sum(axis=1) + given.sum(axis=1)
        return total

    @property
    def initial_energy(self) -> EnergyParts:
        """V at the start of generation, in its parts, (S,)."""
        return EnergyParts({part: values[:, 0] for part, values in self.starts.parts.items()})

    @property
    def final_energy(self) -> EnergyParts:
        """V at the end of generation, in its parts, (S,)."""
        return EnergyParts({part: values[:, -1] for part, values in self.ends.parts.items()})

    @property
    def first_law_error(self) -> float:
        """Largest |ΔV − (W − Q)|, relative to the largest energy involved."""
        change = self.final_energy.total - self.initial_energy.total
        size = max(float(np.abs(e.total).max()) for e in (self.starts, self.ends))
        return float(np.abs(change - (self.work - self.heat)).max()) / max(size, 1e-300)


def joined(
    groups: Sequence[Mapping[str, Any]], snapshot_samples: Sequence[int], moving_clamps: bool
) -> Generated:
    """One result from groups of samples: fields of ``Generated``, energies as (S, T) by part.

    Each group has snapshots of all its samples and ``switched``, the work of switching stages as it
    follows from the difference of θ alone; with that the first law is verified.
    """

    def join(values: list[Any]) -> Any:
        if isinstance(values[0], Mapping):
            parts = {part: join([each[part] for each in values]) for part in values[0]}
            return EnergyParts(parts)
        return np.concatenate(values)

    whole = {name: join([group[name] for group in groups]) for name in groups[0]}
    switched, chosen = whole.pop("switched"), list(snapshot_samples)
    work = whole["clamp_work_so_far"][chosen] if moving_clamps else None
    whole |= {"snapshots": whole["snapshots"][chosen], "clamp_work_so_far": work}
    generated = Generated(**whole)
    check_first_law(generated, switched)
    return generated


def check_first_law(generated: Generated, switched: Float64) -> None:
    """ΔV = W − Q, with the work of switching computed independently, (S, T − 1)."""
    if not np.isfinite(generated.final_states).all():
        return  # a divergence, which shows as such
    missing = np.abs(generated.switching_work - switched).max(initial=0.0)
    size = max(float(np.abs(e.total).max()) for e in (generated.starts, generated.ends))
    error = max(generated.first_law_error, float(missing) / max(size, 1e-300))
    if not error <= FIRST_LAW:
        raise RuntimeError(f"energy is not conserved: error {error:.1e}")
