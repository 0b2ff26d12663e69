"""The energy V_θ(x) of a machine, its parts and its gradient.

    V_θ(x) = Σ_free V_onsite(x_i) + Σ_blocks x_aᵀ J_ab x_b          (½ within a group)
    ∂_iV_θ = V′_onsite(x_i) + Σ_j J_ij x_j                          biases: x_j = 1

States are arrays (..., N) of the free units. ``word`` holds the states of the clamped label units
and broadcasts to (..., L). ``clamped`` marks clamped visible units, which have no onsite energy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.threads import linear_algebra


def label_word(
    machine: Machine,
    classes: Array | Sequence[int] | int | None,
    styles: Array | Sequence[int] | int = 0,
) -> Array | None:
    """One-hot words of amplitude a, (..., L), of classes and their styles; None without labels."""
    if machine.labels == 0:
        if classes is not None:
            raise UserError(
                "classes: this machine has no label units, so no class can be requested; set "
                "machine.labels"
            )
        return None
    if classes is None:
        raise UserError(f"class: name one of the {machine.labels} classes of this machine")
    for name, values, count in (
        ("class", classes, machine.labels),
        ("style", styles, machine.styles),
    ):
        numbers = np.asarray(values)
        if numbers.dtype.kind not in "iu":
            raise UserError(f"{name}: must be whole numbers from 0 to {count - 1}")
        unknown = numbers[(numbers < 0) | (numbers >= count)]
        if unknown.size:
            raise UserError(f"{name} {unknown[0]}: must be a whole number from 0 to {count - 1}")
    unit = np.asarray(classes) * machine.styles + np.asarray(styles)
    word = np.zeros((*unit.shape, machine.size_of("label")), np.float32)
    np.put_along_axis(word, unit[..., None], np.float32(machine.label_amplitude), axis=-1)
    return word


def group_states(machine: Machine, states: Array, word: Array | None = None) -> dict[str, Array]:
    """The states of every group, clamped ones included, as views."""
    dtype = states.dtype
    states_by_group = {group: states[..., where] for group, where in machine.groups.items()}
    states_by_group["one"] = np.ones((1,) * states.ndim, dtype)
    if machine.labels:
        if word is None:
            raise UserError(f"class: name one of the {machine.labels} classes of this machine")
        states_by_group["label"] = np.asarray(word, dtype)
    return states_by_group


@dataclass(frozen=True)
class EnergyParts:
    """V split into its terms, each of the shape of the batch of states, in float64."""

    parts: Mapping[str, Array]
    """onsite, each block of couplings, bias"""

    def __getitem__(self, part: str) -> Array:
        return self.total if part == "total" else self.parts[part]

    @property
    def total(self) -> Array:
        """V(x)."""
        return sum(self.parts.values(), start=np.zeros(()))


@linear_algebra()
def energy_parts(
    theta: Parameters,
    states: Array,
    stage: int = 0,
    word: Array | None = None,
    clamped: Array | None = None,
) -> EnergyParts:
    """Terms of V(x), accumulated in float64, for states of shape (..., N)."""
    x = np.asarray(states, dtype=np.float64)
    groups = group_states(theta.machine, x, word)
    parts = dict.fromkeys(theta.layout.parts, np.zeros(x.shape[:-1]))
    parts["onsite"] = _onsite_energy(theta.machine, x, stage, clamped)
    for block in theta.layout.blocks:
        J = block.matrix(theta.vector[stage]).astype(np.float64, copy=False)
        term = (_product(groups[block.rows], J) * groups[block.columns]).sum(-1)
        parts[block.part] = parts[block.part] + (0.5 * term if block.symmetric else term)
    return EnergyParts(parts)


def _onsite_energy(machine: Machine, x: Array, stage: int, clamped: Array | None) -> Array:
    energies = machine.generating_potential(stage).energy(x)
    if clamped is not None:
        energies = np.where(clamped, 0.0, energies)
    total: Array = energies.sum(-1)
    return total


def energy(
    theta: Parameters,
    states: Array,
    stage: int = 0,
    word: Array | None = None,
    clamped: Array | None = None,
) -> Array:
    """V(x) in float64."""
    return energy_parts(theta, states, stage, word, clamped).total


def switching_work(
    theta: Parameters,
    states: Array,
    before: int,
    after: int,
    word: Array | None = None,
    clamped: Array | None = None,
) -> Array:
    """V_after(x) − V_before(x) in float64, from the differences of the two stages alone."""
    change = np.zeros_like(theta.vector, np.float64)
    change[0] = theta.vector[after].astype(np.float64) - theta.vector[before]
    parts = energy_parts(theta.with_vector(change), states, 0, word).parts
    learned = [values for part, values in parts.items() if part != "onsite"]
    work = sum(learned, start=np.zeros(()))
    if theta.machine.generating or theta.machine.development:
        x = np.asarray(states, np.float64)
        for stage, sign in ((after, 1), (before, -1)):
            work = work + sign * _onsite_energy(theta.machine, x, stage, clamped)
    return work


@linear_algebra()
def coupling_gradient(
    theta: Parameters,
    states: Array,
    stage: int = 0,
    word: Array | None = None,
    twisted: bool = False,
) -> Array:
    """Σ_j J_ij x_j + b_i: the part of ∂V/∂x_i that is learned, in the dtype of ``states``.

    ``twisted``: with J_ji = −J_ij, for forces without a potential.
    """
    groups = group_states(theta.machine, states, word)
    gradient = np.zeros_like(states)
    for group, where in theta.machine.groups.items():
        for block, transposed in theta.layout.partners(group):
            J = block.matrix(theta.vector[stage], -1 if twisted else 1)
            other = groups[block.rows] if transposed else groups[block.columns]
            J = (-J if twisted else J) if transposed else J.T
            gradient[..., where] += _product(other, J)
    return gradient


def _product(states: Array, J: Any) -> Array:
    """states J for states (..., n) and a dense or a sparse J."""
    if isinstance(J, np.ndarray):
        dense: Array = states @ J
        return dense
    flat = states.reshape(-1, states.shape[-1]) @ J
    product: Array = flat.reshape(*states.shape[:-1], J.shape[1])
    return product


@linear_algebra()
def effective_bias(theta: Parameters, stage: int = 0, word: Array | None = None) -> Array:
    """b_i + Σ_l J_il x_l, (..., N): the constant force of biases and labels on the free units."""
    batch = () if word is None else np.shape(word)[:-1]
    bias = np.zeros((*batch, theta.machine.units), theta.vector.dtype)
    groups = group_states(theta.machine, bias, word)
    for group, where in theta.machine.groups.items():
        for block in theta.layout.blocks:
            if block.rows == group and block.columns in ("one", "label"):
                bias[..., where] += groups[block.columns] @ block.matrix(theta.vector[stage]).T
    return bias


def clamped_squares(machine: Machine, word: Array | None) -> dict[str, float]:
    """β of each group: Σ x² of its clamped partners, which are its bias and the label units."""
    label = 0.0 if word is None else float(np.square(word, dtype=np.float64).sum())
    return {
        group: (group in machine.biases) + label * machine.wired(f"{group}-label")
        for group in machine.groups
    }


def share_of_clamped(
    theta: Parameters, change: Array, stage: int, word: Array | None, out: Array
) -> None:
    """Write biases and label couplings of a stage into ``out``, flat, after a ``change`` (N,) of
    ``effective_bias``. The rule divides the change in proportion to 1 and x_l.
    """
    machine = theta.machine
    squares = clamped_squares(machine, word)
    for block in theta.layout.blocks:
        if block.columns in ("one", "label"):
            clamped = word if block.columns == "label" else None
            states = np.ones(1, np.float32) if clamped is None else clamped
            share = np.outer(change[machine.groups[block.rows]], states / squares[block.rows])
            block.matrix(out)[...] = block.matrix(theta.vector[stage]) + share
