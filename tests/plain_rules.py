"""The plain float64 forms that every fast path is tested against, one step after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thermoloom.machine.action import (
    drive,
    gradient_of_residuals,
    residual,
    residuals,
    step_constants,
)
from thermoloom.machine.device import sensed_gradient
from thermoloom.machine.energy import coupling_gradient, group_states
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters


def energy_gradient(
    theta: Parameters, states: Array, stage: int = 0, word: Array | None = None
) -> Array:
    """∂V/∂x_i, in the dtype of ``states``."""
    onsite = theta.machine.potential.astype(states.dtype.type).gradient(states)
    gradient: Array = onsite + coupling_gradient(theta, states, stage, word)
    return gradient


def gradient(theta: Parameters, path: Array, word: Array | None = None) -> Parameters:
    """∂L/∂θ summed over the path: ∂L/∂J_ij = Σ_k (r_i x_j′ + r_j x_i′), ∂L/∂b_i = Σ_k r_i."""
    return gradient_of_residuals(theta.machine, residuals(theta, path, word), path[1:], word)


def learn_stepwise(
    theta: Parameters,
    path: Array,
    learning_rate: float,
    period: int = 1,
    errors: Array | None = None,
    word: Array | None = None,
    measured: Callable[[Array, Array, int], Array] | None = None,
    apply: Callable[[int, Array, Array], Array] | None = None,
) -> Parameters:
    """θ ← θ − α Σ ∂L_step/∂θ every ``period`` steps of a window, one step after the other.

    The plain rule in float64: the reference for every fast path. ``measured(r, x′, k)``: residuals
    of step k as a device sees them; ``apply(stage, θ, αu)``: θ after an update of another rule.
    """
    machine = theta.machine
    theta = theta.astype(np.float64)
    x = np.asarray(path, np.float64)
    for stage, (first, last) in enumerate(machine.stage_windows):
        constants = step_constants(machine, np.float64, stage)
        pending = np.zeros_like(theta.vector[stage])
        for k in range(first, last):
            after = x[k + 1]
            coupling = sensed_gradient(theta, after, stage, word)
            r = residual(constants, drive(constants, x[k], after), coupling)
            if errors is not None:
                r = r + errors[k]
            r = r if measured is None else measured(r, after, k)
            pending += _update(machine, r, after, word)
            if (k - first + 1) % period == 0 or k + 1 == last:
                update, before = learning_rate * pending, theta.vector[stage]
                theta.vector[stage] = (
                    before - update if apply is None else apply(stage, before, update)
                )
                pending[:] = 0
    return theta


def _update(machine: Machine, r: Array, after: Array, word: Array | None) -> Array:
    """u_ij = r_i x_j′ + r_j x_i′ of one step, flat."""
    x = group_states(machine, after, word)
    r_of = {group: r[where] for group, where in machine.groups.items()}
    result = Parameters.zeros(machine, np.float64)
    for block in result.layout.blocks:
        i, j = block.places
        update = r_of[block.rows][i] * x[block.columns][j]
        if block.columns in r_of:
            update += x[block.rows][i] * r_of[block.columns][j]
        block.set_independent(result.vector[0], update)
    flat: Array = result.vector[0]
    return flat
