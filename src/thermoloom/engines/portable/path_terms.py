"""Loss and path-action terms of a noising path (``machine.action``), summed in float64.

    L/K = (1/K) Σ_k Σ_i [−Δx_i + μΔt ∂_iV_θ(x′)]² / (4μk_BTΔt)

Products with J are in the precision of the engine; the terms of a step are summed over units in the
widest type of the library, and over steps in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks, Sensing
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.noising import DevicePath
from thermoloom.machine.action import (
    STEPS_AT_ONCE, PathTerms, StepConstants, step_constants, step_terms, terms_of_sums,
)  # fmt: skip
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import ramp


def sums_of_steps(
    library: NumPy, machine: Machine, J: Blocks, sensing: Sensing | None, word: Any,
    states: Array, external: Array, constants: StepConstants,
) -> Array:  # fmt: skip
    """The seven terms of every step, summed over units, (7, steps)."""
    groups = couplings.all_groups(library, machine, states[1:], word)
    coupling = couplings.sensed_forces(library, machine, sensing, J, groups)
    x, coupling = library.cast(states, library.wide), library.cast(coupling, library.wide)
    terms = step_terms(constants, x[:-1], x[1:], coupling, external)
    return library.xp.stack([term.sum(-1) for term in terms])


def path_terms(theta: Parameters, path: DevicePath, field: Any = None) -> PathTerms:
    """Loss and path-action terms of a path; on a device, with the forces that θ has there."""
    library, machine = path.library, path.machine
    sensing, sums = Sensing.of(library, machine), np.zeros(7)
    constants = step_constants(machine, lambda value: library.array(value, library.wide))
    constants = constants._replace(drift=library.array(machine.drift, library.wide))
    force = ramp(machine)[:, None] * (0.0 if field is None else np.asarray(field, np.float64))
    external = library.array(force, library.wide)
    for stage, (begin, end) in enumerate(machine.stage_windows):
        J = couplings.blocks_of(library, machine, theta.vector[stage])
        for first in range(begin, end, STEPS_AT_ONCE):
            last = min(first + STEPS_AT_ONCE, end)
            of_steps = library.run(
                sums_of_steps, machine, J, sensing, path.word, path.states[first : last + 1],
                external[first:last], constants,
            )  # fmt: skip
            sums += library.numpy(of_steps).astype(np.float64).sum(axis=1)
    return terms_of_sums(machine, sums.tolist(), machine.steps)
