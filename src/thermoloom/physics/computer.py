"""The computer: parameters θ = (J_vh, J_hh, b_h), its energy and its force.

    V(x) = Σ_i (J₂ x_i² + J₄ x_i⁴) + Σ_a b_a x_a + Σ_(ij) J_ij x_i x_j

The last sum runs over every visible–hidden and every hidden–hidden pair once. States are
arrays (..., N) with the visible units first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Physics
from thermoloom.errors import UserError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Computer:
    """Trainable parameters θ. Arrays are float32 in training and generation."""

    visible_hidden: Array
    """J_vh, shape (N_v, N_h)."""
    hidden_hidden: Array
    """J_hh, shape (N_h, N_h), symmetric with zero diagonal."""
    hidden_bias: Array
    """b_h, shape (N_h,)."""

    def __post_init__(self) -> None:
        _, hidden = self.visible_hidden.shape
        if self.hidden_hidden.shape != (hidden, hidden) or self.hidden_bias.shape != (hidden,):
            raise UserError(
                f"parameters do not fit together: J_vh {self.visible_hidden.shape}, "
                f"J_hh {self.hidden_hidden.shape}, b_h {self.hidden_bias.shape}"
            )

    @classmethod
    def zeros(cls, physics: Physics, dtype: Any = np.float32) -> Computer:
        """θ = 0, where every training starts."""
        return cls(
            np.zeros((physics.visible, physics.hidden), dtype),
            np.zeros((physics.hidden, physics.hidden), dtype),
            np.zeros(physics.hidden, dtype),
        )

    @property
    def arrays(self) -> dict[str, Array]:
        """Parameters by name, in a fixed order; the keys of a checkpoint."""
        return {
            "visible_hidden": self.visible_hidden,
            "hidden_hidden": self.hidden_hidden,
            "hidden_bias": self.hidden_bias,
        }

    def copy(self) -> Computer:
        return Computer(*(array.copy() for array in self.arrays.values()))

    def astype(self, dtype: Any) -> Computer:
        return Computer(*(array.astype(dtype) for array in self.arrays.values()))

    def same_as(self, other: Computer) -> bool:
        """Elementwise equality of every parameter."""
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(self.arrays.values(), other.arrays.values(), strict=True)
        )

    def check(self, physics: Physics) -> None:
        """Refuse parameters that are not those of a computer of this size."""
        expected = (physics.visible, physics.hidden)
        if self.visible_hidden.shape != expected:
            raise UserError(
                f"the computer has {self.visible_hidden.shape} visible × hidden couplings, "
                f"the settings physics.visible, physics.hidden say {expected}"
            )
        if not np.array_equal(self.hidden_hidden, self.hidden_hidden.T):
            raise UserError("hidden–hidden couplings are not symmetric")
        if np.any(np.diagonal(self.hidden_hidden)):
            raise UserError("hidden–hidden couplings have a nonzero diagonal")


@dataclass(frozen=True)
class EnergyParts:
    """V split into its terms, each of the shape of the batch of states, in float64."""

    onsite: Array
    visible_hidden: Array
    hidden_hidden: Array
    bias: Array

    @property
    def total(self) -> Array:
        total: Array = self.onsite + self.visible_hidden + self.hidden_hidden + self.bias
        return total


def energy_parts(computer: Computer, physics: Physics, states: Array) -> EnergyParts:
    """Terms of V(x), accumulated in float64, for states of shape (..., N)."""
    x = np.asarray(states, dtype=np.float64)
    wide = computer.astype(np.float64)
    v, h = x[..., : physics.visible], x[..., physics.visible :]
    square = x * x
    return EnergyParts(
        onsite=(physics.J2 * square + physics.J4 * square * square).sum(-1),
        visible_hidden=((v @ wide.visible_hidden) * h).sum(-1),
        hidden_hidden=0.5 * ((h @ wide.hidden_hidden) * h).sum(-1),
        bias=h @ wide.hidden_bias,
    )


def energy(computer: Computer, physics: Physics, states: Array) -> Array:
    """V(x) in float64."""
    return energy_parts(computer, physics, states).total


def coupling_gradient(
    computer: Computer, physics: Physics, states: Array, out: Array | None = None
) -> Array:
    """Σ_j J_ij x_j + b_i: the part of ∂V/∂x_i that is learned, in the dtype of ``states``.

    Written to ``out`` where one is given.
    """
    v, h = states[..., : physics.visible], states[..., physics.visible :]
    gradient = np.empty_like(states) if out is None else out
    of_visible, of_hidden = gradient[..., : physics.visible], gradient[..., physics.visible :]
    np.matmul(h, computer.visible_hidden.T, out=of_visible)
    np.matmul(v, computer.visible_hidden, out=of_hidden)
    of_hidden += h @ computer.hidden_hidden
    of_hidden += computer.hidden_bias
    return gradient


def energy_gradient(computer: Computer, physics: Physics, states: Array) -> Array:
    """∂V/∂x_i = 2 J₂ x_i + 4 J₄ x_i³ + b_i + Σ_j J_ij x_j, in the dtype of ``states``."""
    dtype = states.dtype.type
    onsite = states * (dtype(2 * physics.J2) + dtype(4 * physics.J4) * states * states)
    gradient: Array = onsite + coupling_gradient(computer, physics, states)
    return gradient
