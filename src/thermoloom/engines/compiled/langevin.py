"""Euler–Maruyama kernels for the overdamped Langevin equation, Itô, force at the start of the step.

    x_{k+1} = x_k + μΔt (force_k − V′_onsite(x_k)) + √(2μk_BTΔt) z_k

The coefficients are numbers or, on a device, different for each unit.
Cost: about 1 ns per unit and step, nearly all of it the normal z, drawn in the kernel.
"""

from __future__ import annotations

import numpy as np

from thermoloom.engines.compiled.compiling import copy, displacement, fast_jit, jit, of_unit
from thermoloom.engines.compiled.streams import STEPS_PER_BLOCK, fill_normals


@jit
def uncoupled_steps(x, field, amplitude, key, trajectory, first_unit, first_step, constants, path):  # type: ignore[no-untyped-def]
    """Evolve independent units in place under onsite force and amplitude[k] · field.

    Writes the first states to path[0] and those after each step to path[1:], in the columns from
    first_unit on, unless path has no rows. ``first_step`` is a multiple of STEPS_PER_BLOCK.
    """
    steps = amplitude.size
    z = np.empty((STEPS_PER_BLOCK, x.size), np.float32)
    keep = path.shape[0] > 0
    if keep:
        copy(x, path[0, first_unit : first_unit + x.size])
    for first in range(0, steps, STEPS_PER_BLOCK):
        fill_normals(key, trajectory, (first_step + first) // STEPS_PER_BLOCK, first_unit, z)
        for j in range(min(STEPS_PER_BLOCK, steps - first)):
            a = amplitude[first + j]
            for i in range(x.size):
                unit = of_unit(constants, first_unit + i)
                force = a * field[i] - unit.onsite.gradient(x[i])
                x[i] += displacement(unit, force, z[j, i])
            if keep:
                copy(x, path[first + j + 1, first_unit : first_unit + x.size])


@jit
def noise_block(key, first_trajectory, block, z):  # type: ignore[no-untyped-def]
    """z[s] = (4, N) normals of trajectory first_trajectory + s in steps 4·block … 4·block + 3."""
    for s in range(z.shape[0]):
        fill_normals(key, first_trajectory + s, block, 0, z[s])


@fast_jit
def _product(a, b):  # type: ignore[no-untyped-def]
    """a·b, summed in float64."""
    total = 0.0
    for i in range(a.size):
        total += np.float64(a[i] * b[i])
    return total


@jit
def coupled_step(x, coupling, bias, row, z, step, constants, free, moved, heat):  # type: ignore[no-untyped-def]
    """One step in place for samples x (S, N), given Σ_j J_ij x_j and the normals z[s, step].

    ``bias[row[s]]`` is the gradient of sample s from biases and clamped units. ``moved`` holds the
    last Δx of units that are ``free`` (1, else 0). ``heat`` accumulates −½ gradient·(last Δx + this
    Δx): over all steps the Stratonovich sum, except for the end of the last step.
    """
    gradient, both = np.empty(x.shape[1], np.float32), np.empty(x.shape[1], np.float32)
    for s in range(x.shape[0]):
        state, force, b, noise, change = x[s], coupling[s], bias[row[s]], z[s, step], moved[s]
        for i in range(state.size):
            onsite = of_unit(constants, i).onsite
            gradient[i] = onsite.gradient(state[i]) + (force[i] + b[i])
        for i in range(state.size):
            after = state[i] + displacement(of_unit(constants, i), -gradient[i], noise[i])
            this = free[i] * (after - state[i])
            both[i] = change[i] + this
            state[i], change[i] = after, this
        heat[s] -= 0.5 * _product(gradient, both)
