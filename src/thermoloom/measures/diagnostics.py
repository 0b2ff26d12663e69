"""Why models with similar losses release different heat: energies, norms, losses on other paths.

    own potential     ⟨V_θ(x₀) − V_θ(x_tf)⟩ over the states that θ generated   = heat
    other potential   the same difference over states of another computer       = diagnosis only

    R_θ = ln P₀[ω|x₀]/P_θ[ω̃|x_K] = heat-like term + force-squared term     (path-action identity)

Everything here reads parameters, states and paths; nothing is written and nothing is generated
but noising paths, which no parameter drives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.definition import Machine
from thermoloom.generation import Generated
from thermoloom.machine.computer import (
    Array,
    Computer,
    EnergyParts,
    coupling_gradient,
    energy_parts,
)
from thermoloom.streams import jit
from thermoloom.training.noising import noising_path, ramp

PARTS = ("onsite", "visible_hidden", "hidden_hidden", "bias", "total")
"""Terms of the energy, in the order of tables; coupling energy = both hidden blocks."""
STEPS_AT_ONCE = 500
"""Steps of a path whose forces are held at a time: a megabyte or two, not the whole path."""


# --- parameters -------------------------------------------------------------------------------


class CouplingNorms(NamedTuple):
    """Frobenius norms in float64, every undirected edge counted once.

    The norm of the whole symmetric matrix J_hh, each edge counted twice, is √2 times the one here.
    """

    visible_hidden: float
    """‖J_vh‖ = √Σ_ia J_ia²"""
    hidden_hidden: float
    """√Σ_{a<b} J_ab²"""
    bias: float
    """‖b_h‖"""


def coupling_norms(computer: Computer) -> CouplingNorms:
    """√Σ J² of both coupling blocks, an undirected edge once, and ‖b_h‖."""
    full = _norm(computer.hidden_hidden)
    return CouplingNorms(
        _norm(computer.visible_hidden), full / math.sqrt(2), _norm(computer.hidden_bias)
    )


def _norm(array: Array) -> float:
    flat = np.asarray(array).ravel()
    return math.sqrt(np.einsum("i,i->", flat, flat, dtype=np.float64))


# --- energies ---------------------------------------------------------------------------------


def mean_energies(energy: EnergyParts) -> dict[str, float]:
    """Mean over the samples of every part of the energy and of their sum."""
    return {part: float(np.mean(getattr(energy, part))) for part in PARTS}


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
        """Only a drop in the potential that generated the states is heat released."""
        return self.potential == self.ensemble

    @property
    def drop(self) -> float:
        """⟨V(x₀) − V(x_tf)⟩"""
        return self.initial["total"] - self.final["total"]


def cross_energies(
    machine: Machine, computers: Mapping[str, Computer], ensembles: Mapping[str, Generated]
) -> list[EnergyDrop]:
    """Every potential on the start and end states of every ensemble, potentials outermost."""
    return [
        EnergyDrop(
            potential,
            ensemble,
            mean_energies(energy_parts(computer, machine, states.initial_states)),
            mean_energies(energy_parts(computer, machine, states.final_states)),
        )
        for potential, computer in computers.items()
        for ensemble, states in ensembles.items()
    ]


# --- additional noising paths -------------------------------------------------------------------


def additional_path(
    machine: Machine, fields: NDArray[np.float32], index: int, seed: int
) -> tuple[int, NDArray[np.float32]]:
    """(prototype, path (K + 1, N)) of one of the paths that no computer was trained on.

    Prototypes in turn. The paths come from the validation streams of their own seed, so that no
    training seed can meet them.
    """
    prototype = index % len(fields)
    return prototype, noising_path(machine, fields[prototype], seed, index, stream="validation ")


class PathTerms(NamedTuple):
    """What one path says of one computer; sums over the path in float64."""

    loss: float
    """L/K"""
    reduced_loss: float
    """L/K without the θ-independent squared-increment term."""
    log_ratio: float
    """R_θ straight from the two Gaussian path densities."""
    heat_like: float
    """−(β/2) Σ Δx·(g_θ⁺ + g_0⁻)"""
    force_squared: float
    """(βμΔt/4) Σ (‖g_θ⁺‖² − ‖g_0⁻‖²)"""

    @property
    def identity_error(self) -> float:
        """|R_θ − its terms| relative to the size of the terms: the rounding of the sums alone."""
        size = abs(self.heat_like) + abs(self.force_squared)
        return abs(self.log_ratio - self.heat_like - self.force_squared) / size


def path_terms(
    computer: Computer, machine: Machine, path: NDArray[np.float32], field: NDArray[np.float32]
) -> PathTerms:
    """Loss and both sides of the path-action identity on one noising path.

    As ``action.path_loss`` and ``action.path_action_ratio``, but in one pass: the products with
    J in float32, every sum in float64. Cost: 2.1 MFLOP a step for 784 + 512 units.
    """
    amplitude = ramp(machine)
    sums = np.zeros(len(_SUMS), np.float64)
    constants = tuple(
        float(value) for value in (2 * machine.J2, 4 * machine.J4, machine.mobility * machine.dt)
    )
    forces = np.empty((STEPS_AT_ONCE, machine.units), np.float32)
    for first in range(0, machine.steps, STEPS_AT_ONCE):
        piece = path[first : min(first + STEPS_AT_ONCE, machine.steps) + 1]
        coupling = coupling_gradient(computer, machine, piece[1:], forces[: len(piece) - 1])
        _add_terms(piece, coupling, amplitude[first:], field, constants, sums)
    return _path_terms(machine, dict(zip(_SUMS, sums.tolist(), strict=True)))


_SUMS = ("squared", "work_theta", "work_reference", "force_theta", "force_reference",
         "forward", "reverse")  # fmt: skip
# Σ Δx², Σ Δx·g_θ⁺, Σ Δx·g_0⁻, Σ ‖g_θ⁺‖², Σ ‖g_0⁻‖², Σ (Δx + μΔt g_0⁻)², Σ (−Δx + μΔt g_θ⁺)²


@jit
def _add_terms(path, coupling, amplitude, field, constants, sums):  # type: ignore[no-untyped-def]
    """Add the sums over the steps of ``path`` to ``sums``, in the order of _SUMS."""
    quadratic, quartic, drift = constants
    for k in range(path.shape[0] - 1):
        squared = work_theta = work_reference = 0.0
        force_theta = force_reference = forward = reverse = 0.0
        a = np.float64(amplitude[k])
        for i in range(path.shape[1]):
            x, y = np.float64(path[k, i]), np.float64(path[k + 1, i])
            dx = y - x
            g_reference = x * (quadratic + quartic * (x * x)) - a * np.float64(field[i])
            g_theta = y * (quadratic + quartic * (y * y)) + np.float64(coupling[k, i])
            squared += dx * dx
            work_theta += dx * g_theta
            work_reference += dx * g_reference
            force_theta += g_theta * g_theta
            force_reference += g_reference * g_reference
            forward += (dx + drift * g_reference) ** 2
            reverse += (drift * g_theta - dx) ** 2
        sums[0] += squared
        sums[1] += work_theta
        sums[2] += work_reference
        sums[3] += force_theta
        sums[4] += force_reference
        sums[5] += forward
        sums[6] += reverse


def _path_terms(machine: Machine, sums: Mapping[str, Any]) -> PathTerms:
    beta, drift, steps = 1 / machine.kT, machine.mobility * machine.dt, machine.steps
    variance = 4 * machine.kT * drift
    # the reduced loss from its own terms, not as a difference of two large numbers
    reduced = -beta / 2 * sums["work_theta"] + beta * drift / 4 * sums["force_theta"]
    return PathTerms(
        loss=sums["reverse"] / variance / steps,
        reduced_loss=reduced / steps,
        log_ratio=(sums["reverse"] - sums["forward"]) / variance,
        heat_like=-beta / 2 * (sums["work_theta"] + sums["work_reference"]),
        force_squared=beta * drift / 4 * (sums["force_theta"] - sums["force_reference"]),
    )
