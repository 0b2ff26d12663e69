"""Kernels for unequal units (``machine.device``): the coefficients of a step are arrays (N,).

    x_i′ = x_i + μ̃_iΔt (force_i − Ṽ′_i(x_i)) + √(2μ̃_ik_BT̃_iΔt) z_i

They have the arguments of the kernels for equal units, and replace them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thermoloom.engines.compiled.compiling import copy, drive, jit
from thermoloom.engines.compiled.langevin import coupled_step, uncoupled_steps
from thermoloom.engines.compiled.streams import STEPS_PER_BLOCK, fill_normals
from thermoloom.machine.action import StepConstants
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine


def stepping(
    machine: Machine, constants: StepConstants, low: int, high: int
) -> tuple[Callable[..., None], StepConstants]:
    """The kernel for uncoupled units low … high of a machine, and its constants."""
    if not isinstance(machine, BuiltMachine):
        return uncoupled_steps, constants
    return uneven_steps, of_units(constants, low, high)


def coupled_stepping(constants: StepConstants) -> Callable[..., None]:
    """The kernel for the coupled units of samples."""
    onsite: Any = constants.onsite
    uneven = any(np.ndim(coefficient) for coefficient in (*onsite, constants.drift))
    step: Callable[..., None] = uneven_step if uneven else coupled_step
    return step


def of_units(constants: StepConstants, low: int, high: int) -> StepConstants:
    """Constants of units low … high."""
    onsite: Any = constants.onsite
    return constants._replace(
        onsite=type(onsite)(*(coefficient[low:high] for coefficient in onsite)),
        drift=constants.drift[low:high],
        kick=constants.kick[low:high],
    )


@jit
def uneven_steps(x, field, amplitude, key, trajectory, first_unit, constants, path):  # type: ignore[no-untyped-def]
    """As ``uncoupled_steps``."""
    onsite, drift, kick = constants.onsite, constants.drift, constants.kick
    steps = amplitude.size
    z = np.empty((STEPS_PER_BLOCK, x.size), np.float32)
    keep = path.shape[0] > 0
    if keep:
        copy(x, path[0, first_unit : first_unit + x.size])
    for first in range(0, steps, STEPS_PER_BLOCK):
        fill_normals(key, trajectory, first // STEPS_PER_BLOCK, first_unit, z)
        for j in range(min(STEPS_PER_BLOCK, steps - first)):
            x += drift * (amplitude[first + j] * field - onsite.gradient(x)) + kick * z[j]
            if keep:
                copy(x, path[first + j + 1, first_unit : first_unit + x.size])


@jit
def uneven_step(x, coupling, bias, row, z, step, constants, free, moved, heat):  # type: ignore[no-untyped-def]
    """As ``coupled_step``."""
    onsite, drift, kick = constants.onsite, constants.drift, constants.kick
    for s in range(x.shape[0]):
        gradient, change = coupling[s], moved[s]
        gradient += bias[row[s]]
        gradient += onsite.gradient(x[s])
        last_change = change.copy()
        change[:] = x[s]
        x[s] += kick * z[s, step] - drift * gradient
        change[:] = free * (x[s] - change)
        total = 0.0
        for i in range(gradient.size):
            total += np.float64(gradient[i] * (last_change[i] + change[i]))
        heat[s] -= 0.5 * total


@jit
def uneven_drives(path, constants, out):  # type: ignore[no-untyped-def]
    """Residuals of uncoupled units, with the force of each unit and the nominal μ, k_BT."""
    for k in range(out.shape[0]):
        out[k] = drive(constants, path[k], path[k + 1])
