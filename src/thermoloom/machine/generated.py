"""The samples of a generation, with their energies, heat and work.

    heat    Q_t = V_t(start) − V_t(end) + W_clamp     in stage t, positive towards the environment
    work    W_t = V_t(x) − V_{t+1}(x)                 at the switch to stage t, at fixed states
    first law     V_1(x_end) − V_T(x_start) = W − Q   Q the sum of Q_t, W that of W_t and W_clamp
    path heat     −Σ_k ½(∇V_k + ∇V_{k+1})·Δx_k        along the steps, beside Q: the two differ by
                                                      discretization error

On a device whose couplings are not reciprocal, V is the energy of their reciprocal part. The other
part, a force f_i = −Σ_j D_ij x_j with D_ji = −D_ij, has no potential. Its work follows from the
path, and is part of W:

    Q_t = V_t(start) − V_t(end) + W_clamp + W_active,    W_active = Σ_k ½(f_k + f_{k+1})·Δx_k

Stages are in the order of generation: from the noisy end of the noising path to the pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.clamp import Clamp
from thermoloom.machine.energy import EnergyParts, energy_parts, switching_work
from thermoloom.machine.parameters import Parameters

Float64 = NDArray[np.float64]

FIRST_LAW = 1e-9
"""Largest error of the first law, relative to the energies involved."""


@dataclass(frozen=True, repr=False)
class Generated:
    """Samples of one generation: states, energies, heat and work."""

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

    def __repr__(self) -> str:
        samples, units = self.final_states.shape
        return f"Generated({samples} samples of {units} units)"

    @property
    def stage_heat(self) -> Float64:
        """Q of each stage, (S, T), in E₀."""
        external = self.clamp_work + self.active_work
        return np.asarray(self.starts.total - self.ends.total + external, np.float64)

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
        """Path heat − Q of every sample, in E₀: first order in Δt, only round-off where V is
        quadratic. It shows how far the discrete path is from the Langevin equation.
        """
        total: Float64 = (self.path_heat - self.stage_heat).sum(axis=1)
        return total

    @property
    def work(self) -> Float64:
        """W of every sample, in E₀: switching stages, moving clamps and one-way couplings."""
        external = self.clamp_work + self.active_work
        total: Float64 = self.switching_work.sum(axis=1) + external.sum(axis=1)
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


@dataclass
class Account:
    """Energies, heat and work of samples generated together, stage by stage, in float64."""

    theta: Parameters
    """θ as the units feel it, in float64."""
    words: Any
    """States of the label units, (S, L), or None."""
    clamped: NDArray[np.bool_] | None
    """Which units are clamped, (N,); None if none are."""
    starts: list[EnergyParts] = field(default_factory=list)
    ends: list[EnergyParts] = field(default_factory=list)
    switched: list[Float64] = field(default_factory=list)
    """Work of each switch between stages, from the differences of the stages alone, (S,)."""
    sums: list[Float64] = field(default_factory=list)
    """Path heat, clamp work and active work of each stage, (3, S)."""
    states: list[Any] = field(default_factory=list)
    """x at every stage's start and end, (S, N)."""

    def begin(self, stage: int, before: int | None, states: Any) -> None:
        """Begin a stage; ``before`` is the stage that has ended."""
        if before is not None:
            switch = before, stage, self.words, self.clamped
            self.switched.append(switching_work(self.theta, states, *switch))
        self.starts.append(energy_parts(self.theta, states, stage, self.words, self.clamped))
        self.states.append(states)

    def end(self, stage: int, states: Any, sums: Float64) -> None:
        self.ends.append(energy_parts(self.theta, states, stage, self.words, self.clamped))
        self.states.append(states)
        self.sums.append(sums)


class Snapshots:
    """States of selected samples at selected steps, and the work of their clamps until then."""

    def __init__(
        self,
        units: int,
        steps: Sequence[int],
        samples: Sequence[int],
        on_snapshot: Callable[[int, int, Any], None] | None = None,
        dtype: Any = np.float32,
    ) -> None:
        """``on_snapshot(step, first, states)`` is called for each group at each of the steps."""
        self.steps, self._samples = np.array(steps, int), list(samples)
        self._on_snapshot = on_snapshot
        self.states = np.empty((len(samples), len(steps), units), dtype)
        self.clamp_work = np.zeros((len(samples), len(steps)))

    def see(self, step: int, first: int, states: Any, clamp_work: Float64) -> None:
        """Record a group's states after a step, if it is a snapshot step; the group begins with
        sample ``first``.
        """
        columns = self.steps == step
        if not columns.any():
            return
        for row, sample in enumerate(self._samples):
            if first <= sample < first + len(states):
                self.states[row, columns] = states[sample - first]
                self.clamp_work[row, columns] = clamp_work[sample - first]
        if self._on_snapshot:
            self._on_snapshot(step, first, states)


def joined(accounts: Sequence[Account], snapshots: Snapshots, clamp: Clamp | None) -> Generated:
    """Join the accounts of all samples, in order, into one result, and verify the first law."""

    def of_stages(values: Callable[[Account], list[Any]]) -> Any:
        return np.concatenate([np.stack(values(each), axis=-1) for each in accounts])

    def part_of(name: str, part: str) -> Callable[[Account], list[Any]]:
        return lambda account: [energy[part] for energy in getattr(account, name)]

    def energies(name: str) -> EnergyParts:
        parts = getattr(accounts[0], name)[0].parts
        return EnergyParts({part: of_stages(part_of(name, part)) for part in parts})

    initial, final = (np.concatenate([a.states[place] for a in accounts]) for place in (0, -1))
    heat, clamp_work, active = np.swapaxes(of_stages(lambda a: [s.T for s in a.sums]), 0, 1)
    moving = clamp is not None and clamp.follow
    generated = Generated(
        initial_states=initial,
        final_states=final,
        starts=energies("starts"),
        ends=energies("ends"),
        clamp_work=clamp_work,
        path_heat=heat,
        snapshots=snapshots.states,
        clamp_work_so_far=snapshots.clamp_work if moving else None,
        active_work=active if active.any() else 0.0,
    )
    switches = len(accounts[0].sums) > 1
    check_first_law(generated, of_stages(lambda a: a.switched) if switches else heat[:, :0])
    return generated


def check_first_law(generated: Generated, switched: Float64) -> None:
    """Check ΔV = W − Q against an independently computed work of switching, (S, T − 1)."""
    if not np.isfinite(generated.final_states).all():
        return  # states diverged, which the result shows
    difference = np.abs(generated.switching_work - switched).max(initial=0.0)
    size = max(float(np.abs(e.total).max()) for e in (generated.starts, generated.ends))
    error = max(generated.first_law_error, float(difference) / max(size, 1e-300))
    if not error <= FIRST_LAW:
        raise RuntimeError(f"energy is not conserved: error {error:.1e}")
