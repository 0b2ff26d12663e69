"""Clamped visible units: the known part of an image, which the machine completes.

    follow   x_i(t) is the reversed noising path of the known pixel, as in training
    hold     x_i is constant

A clamped unit feels no force and has no onsite energy; it acts on the others through the couplings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array
from thermoloom.machine.protocol import rest_amplitude
from thermoloom.machine.roots import outermost_root


@dataclass(frozen=True, eq=False)
class Clamp:
    """Which visible units are clamped, and their fields or states."""

    mask: NDArray[np.bool_]
    """(N_v,): True where the pixel is known."""
    values: NDArray[np.float32]
    """(N_v,) or (samples, N_v): fields s of the pixels if they ``follow``, else states x."""
    follow: bool = True
    """Whether clamped units follow the reversed noising path of their pixel; else they hold."""

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask)
        if mask.dtype != np.bool_ or mask.ndim != 1:
            raise UserError("clamp: the mask must be true or false for every visible unit")
        values = np.asarray(self.values, np.float32)
        if values.shape[-1:] != mask.shape or values.ndim > 2:
            raise UserError(
                f"clamp: values of shape {values.shape} do not fit a mask of {mask.size} units"
            )
        if not np.isfinite(values[..., mask]).all():
            raise UserError("clamp: the known values must be finite")
        object.__setattr__(self, "values", values)

    def check(self, machine: Machine, samples: int) -> None:
        """Refuse a clamp that does not fit this machine or this many samples."""
        if self.mask.size != machine.visible:
            raise UserError(
                f"clamp: the mask has {self.mask.size} units, but the machine has "
                f"{machine.visible} visible ones; give an image and a mask of the machine's size"
            )
        if self.values.ndim == 2 and len(self.values) != samples:
            raise UserError(f"clamp: {len(self.values)} images for {samples} samples")

    def of_samples(self, first: int, last: int) -> NDArray[np.float32]:
        """Values of the clamped units of these samples, (samples, clamped units)."""
        if self.values.ndim == 2:
            return np.ascontiguousarray(self.values[first:last, self.mask])
        return np.tile(self.values[self.mask], (last - first, 1))

    def units(self, machine: Machine) -> NDArray[np.bool_]:
        """(N,): which of the visible and hidden units are clamped."""
        return np.concatenate([self.mask, np.zeros(machine.hidden, np.bool_)])


def pull(
    displacement: Array, within: Array | None, before: Array, after: Array, bias: Array
) -> tuple[Array, Array]:
    """Heat and work of displacements Δc of clamped units c, each after a move Δf of the free ones.

        work   V(f′, c′) − V(f′, c) = Δc·(∇_cV(f′, c′) − ½ J_cc Δc)
        heat   ½ Δf·J_fc Δc, which corrects −½(∇V + ∇V′)·Δf: there ∇V′ already contains c′

    ``before``, ``after``: Σ_j J_ij x_j of the clamped units around the step; ``within``: J_cc.
    """
    self_coupling = np.zeros(len(displacement))
    if within is not None:
        self_coupling = ((displacement @ within.astype(np.float64)) * displacement).sum(axis=1)
    work = (displacement * (after + bias)).sum(axis=1) - 0.5 * self_coupling
    heat = 0.5 * ((displacement * (after - before)).sum(axis=1) - self_coupling)
    return heat, work


def fields_at_rest(machine: Machine, states: Array) -> Array:
    """s = V′_onsite(x)/2: the field whose preparation, at amplitude 2, takes a unit to x."""
    fields: Array = machine.potential.gradient(states) / rest_amplitude(machine)
    return fields


def resting_states(machine: Machine, fields: Array | float) -> Array:
    """The outermost x with V′_onsite(x) = 2s: where preparation takes a unit of field s."""
    potential, force = machine.potential, rest_amplitude(machine) * np.asarray(fields, np.float64)
    return outermost_root(
        lambda x: potential.gradient(x) - force, potential.curvature, np.sign(force)
    )
