"""Noising paths: from a prototype into thermal noise, without ever seeing θ.

    preparation   x = 0, then K steps under force 2s − ∂V_onsite
    noising path  K steps under force a(t_k) s − ∂V_onsite,  a(t) = 2 [1 − t/(0.75 t_f)]₊

s is the field of a unit: the normalized pixel, or (Pᵀs)_a for a hidden unit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Physics
from thermoloom.physics.langevin import step_constants, uncoupled_steps
from thermoloom.streams import stream_key
from thermoloom.threads import in_threads, thread_count, unit_ranges

PREPARATION_AMPLITUDE = 2.0
RAMP_FRACTION = 0.75
"""The external force vanishes after this fraction of t_f."""


def ramp(physics: Physics) -> NDArray[np.float32]:
    """a(t_k) at the start of each of the K steps."""
    steps = physics.steps
    time = np.arange(steps) / (RAMP_FRACTION * steps)
    return (PREPARATION_AMPLITUDE * np.maximum(0.0, 1 - time)).astype(np.float32)


def noising_path(
    physics: Physics,
    field: NDArray[np.float32],
    seed: int,
    trajectory: int,
    stream: str = "",
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """States x(t_0) … x(t_K) of one noising trajectory, shape (K + 1, N), float32.

    ``trajectory`` counts the trajectories of a seed. Bit-identical whatever the threads.
    ``stream`` = "validation " takes the validation streams instead of the training ones.
    """
    units = field.size
    path = np.empty((physics.steps + 1, units), np.float32) if out is None else out
    preparation = np.full(physics.steps, PREPARATION_AMPLITUDE, np.float32)
    amplitude = ramp(physics)
    constants = step_constants(physics)
    nothing = np.empty((0, 0), np.float32)
    prepare_key = stream_key(seed, f"{stream}preparation")
    noise_key = stream_key(seed, f"{stream}noising")

    def evolve(low: int, high: int) -> None:
        s = field[low:high]
        x = np.zeros(high - low, np.float32)
        uncoupled_steps(x, s, preparation, prepare_key, trajectory, low, constants, nothing)
        uncoupled_steps(x, s, amplitude, noise_key, trajectory, low, constants, path)

    in_threads(evolve, unit_ranges(units, thread_count()))
    return path
