"""The expected loss of a machine that learns these patterns, and its minimum θ*."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.theory.expected_loss import ExpectedLoss, Fields
from thermoloom.theory.marginals import Marginals, solve_marginals
from thermoloom.theory.solver import conjugate_gradients

Vector = NDArray[np.float64]
"""θ as a flat vector."""
TOLERANCE = 1e-6
"""Relative gradient at which θ* counts as solved, as in ``thermoloom solve``."""


@dataclass(frozen=True)
class Expectation:
    """The mean over all noising paths of a machine; no path is simulated."""

    machine: Machine
    fields: Fields

    @cached_property
    def marginals(self) -> Marginals:
        return solve_marginals(self.machine, float(np.abs(self.fields).max()))

    @cached_property
    def loss(self) -> ExpectedLoss:
        return ExpectedLoss(self.machine, self.fields, self.marginals)

    @cached_property
    def optimum(self) -> Vector:
        """θ*."""
        return conjugate_gradients(self.loss, TOLERANCE)[0]


def parameters_of_vector(machine: Machine, vector: Vector) -> Parameters:
    """θ of a flat vector, in float32, symmetric to the bit."""
    return Parameters(machine, layout(machine).symmetrized(vector[None]).astype(np.float32))
