"""Noising paths: from a pattern to thermal noise, independent of θ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Path
from thermoloom.engines.compiled.compiling import drive, jit, of_unit
from thermoloom.engines.compiled.langevin import uncoupled_steps
from thermoloom.engines.compiled.streams import stream_key
from thermoloom.machine.action import step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import preparation, ramp
from thermoloom.streams import PATH_STREAMS, Purpose
from thermoloom.threads import in_threads, thread_count, unit_ranges

Float32 = NDArray[np.float32]

NO_PATH = np.empty((0, 0), np.float32)
"""For steps whose states are not recorded."""


def noising_path(
    machine: Machine,
    field: Float32,
    seed: int,
    trajectory: int,
    purpose: Purpose = "training",
    out: Float32 | None = None,
) -> Float32:
    """States x(t_0) … x(t_K) of one noising trajectory, shape (K + 1, N), float32.

    ``trajectory`` counts the trajectories of a seed. Bits do not depend on the threads.
    """
    units = field.size
    path = np.empty((machine.steps + 1, units), np.float32) if out is None else out
    held, released = (a.astype(np.float32) for a in (preparation(machine), ramp(machine)))
    constants = step_constants(machine)
    prepare_key, noise_key = (stream_key(seed, name) for name in PATH_STREAMS[purpose])

    def evolve(low: int, high: int) -> None:
        x, s, at = np.zeros(high - low, np.float32), field[low:high], (trajectory, low, 0)
        uncoupled_steps(x, s, held, prepare_key, *at, constants, NO_PATH)
        uncoupled_steps(x, s, released, noise_key, *at, constants, path)

    in_threads(evolve, unit_ranges(units, thread_count()))
    return path


@jit
def _drives(path, constants, out):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[k, i] = drive(of_unit(constants, i), path[k, i], path[k + 1, i])


def drives_of(machine: Machine, path: Float32, out: Float32 | None = None) -> Float32:
    """Residuals under the onsite potential alone, which all learners of a path share."""
    drives = np.empty((len(path) - 1, path.shape[1]), np.float32) if out is None else out

    def steps(stage: int, first: int, last: int) -> None:
        constants = step_constants(machine, stage=stage)
        _drives(path[first : last + 1], constants, drives[first:last])

    pieces = [
        (stage, begin + first, begin + last)
        for stage, (begin, end) in enumerate(machine.stage_windows)
        for first, last in unit_ranges(end - begin, thread_count())
    ]
    in_threads(steps, pieces)
    return drives


def start_of(path: Path, errors: Float32 | None = None) -> Float32:
    """R at θ = 0 plus errors; R at θ = 0 is stored with the path."""
    if path.prepared is None:
        path.prepared = drives_of(path.machine, path.states)
    start: Float32 = path.prepared if errors is None else path.prepared + errors
    return start
