"""Why computers with similar losses release different heat: norms, energies, additional paths.

    own potential     ⟨V_θ(x₀) − V_θ(x_tf)⟩ over the states that θ generated   = heat
    other potential   the same difference over states of another computer       = diagnosis only

Everything here reads parameters, states and paths; nothing is written, and only noising
paths, which do not depend on θ, are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from thermoloom.engines import Path, engine
from thermoloom.machine.energy import EnergyParts, energy_parts
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.threads import linear_algebra


def coupling_norms(theta: Parameters) -> dict[str, float]:
    """√Σ θ² of each block of couplings, an undirected edge once, and of all biases, in float64."""
    squares: dict[str, float] = {}
    for block in theta.layout.blocks:
        values = block.of(theta.vector).ravel()
        square = float(np.einsum("i,i->", values, values, dtype=np.float64))
        square /= 2 if block.doubled else 1
        squares[block.part] = squares.get(block.part, 0.0) + square
    return {part: math.sqrt(square) for part, square in squares.items()}


def mean_energies(energy: EnergyParts) -> dict[str, float]:
    """Mean over the samples of every part of the energy and of their sum."""
    return {part: float(np.mean(energy[part])) for part in (*energy.parts, "total")}


@dataclass(frozen=True)
class EnergyDrop:
    """Mean energies of one ensemble's states in one potential."""

    potential: str
    ensemble: str
    initial: dict[str, float]
    """⟨V(x₀)⟩ by part."""
    final: dict[str, float]
    """⟨V(x_tf)⟩ by part."""

    @property
    def is_heat(self) -> bool:
        """Whether the drop is released heat: only in the potential that generated the states."""
        return self.potential == self.ensemble

    @property
    def drop(self) -> float:
        """⟨V(x₀) − V(x_tf)⟩"""
        return self.initial["total"] - self.final["total"]


@linear_algebra()
def cross_energies(
    computers: Mapping[str, Parameters],
    ensembles: Mapping[str, Generated],
    words: Array | None = None,
) -> list[EnergyDrop]:
    """Every potential on the start and end states of every ensemble, one potential after another.

    For machines of one stage; ``words`` (S, L) are the label states of the samples.
    """
    return [
        EnergyDrop(
            potential,
            ensemble,
            mean_energies(energy_parts(theta, states.initial_states, word=words)),
            mean_energies(energy_parts(theta, states.final_states, word=words)),
        )
        for potential, theta in computers.items()
        for ensemble, states in ensembles.items()
    ]


def additional_path(machine: Machine, drive: Drive, index: int, seed: int) -> tuple[int, Path]:
    """(pattern, path): a noising path on which no computer was trained, and its pattern's number.

    Path ``index`` starts from pattern ``index`` mod P. It comes from the validation streams of a
    separate seed, which no training uses.
    """
    pattern = index % len(drive.fields)
    field, word = drive.fields[pattern], drive.word(pattern)
    path = engine().path(machine, field, seed, index, word, purpose="validation")
    return pattern, path
