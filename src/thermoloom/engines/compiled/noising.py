"""Noising paths: from a pattern to thermal noise, independent of θ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Path
from thermoloom.engines.compiled.compiling import drive, jit, of_unit
from thermoloom.engines.compiled.langevin import uncoupled_steps
from thermoloom.engines.compiled.streams import STEPS_PER_BLOCK, stream_key
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
    path = np.empty((machine.steps + 1, field.size), np.float32) if out is None else out
    noising = _Noising(machine, field, seed, trajectory, purpose)

    def evolve(low: int, high: int) -> None:
        x = np.zeros(high - low, np.float32)
        noising.prepare(x, low)
        noising.release(x, low, 0, path)

    in_threads(evolve, unit_ranges(field.size, thread_count()))
    return path


class _Noising:
    """The steps of one noising trajectory, for any range of units."""

    def __init__(
        self, machine: Machine, field: Float32, seed: int, trajectory: int, purpose: Purpose
    ) -> None:
        self._machine, self._field, self._trajectory = machine, field, trajectory
        self._amplitudes = [
            held.astype(np.float32) for held in (preparation(machine), ramp(machine))
        ]
        self._constants = step_constants(machine)
        self._keys = [stream_key(seed, name) for name in PATH_STREAMS[purpose]]

    def prepare(self, x: Float32, low: int) -> None:
        """Prepare the states ``x`` of units, the first of which is ``low``, in place."""
        self._steps(0, x, low, 0, None, NO_PATH)

    def release(
        self, x: Float32, low: int, first: int, path: Float32, last: int | None = None
    ) -> None:
        """Steps first … last of noising, in place; states into ``path`` unless it is empty."""
        self._steps(1, x, low, first, last, path)

    def _steps(
        self, phase: int, x: Float32, low: int, first: int, last: int | None, path: Float32
    ) -> None:
        field, at = self._field[low : low + len(x)], (self._trajectory, low, first)
        amplitude, key = self._amplitudes[phase][first:last], self._keys[phase]
        uncoupled_steps(x, field, amplitude, key, *at, self._constants, path)


class LongStates:
    """States of a noising path that are simulated when they are read: ``states[first:last]``.

    Each read overwrites the previous one. Reading forwards costs no more than the steps; reading
    backwards starts again from x(t_0).
    """

    def __init__(
        self,
        machine: Machine,
        field: Float32,
        seed: int,
        trajectory: int,
        purpose: Purpose = "training",
    ) -> None:
        self.shape = machine.steps + 1, machine.units
        self._noising = _Noising(machine, field, seed, trajectory, purpose)
        self._start = np.zeros(machine.units, np.float32)
        pieces = unit_ranges(machine.units, thread_count())
        in_threads(lambda low, high: self._noising.prepare(self._start[low:high], low), pieces)
        self._x, self._at = self._start.copy(), 0
        self._read = NO_PATH

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, steps: Any) -> Float32:
        """States of a range of steps; other indices need the whole path in memory."""
        if not isinstance(steps, slice) or steps.step not in (None, 1):
            states: Float32 = np.asarray(self)[steps]
            return states
        first, last, _ = steps.indices(len(self))
        begin = first // STEPS_PER_BLOCK * STEPS_PER_BLOCK
        if begin < self._at:
            self._x, self._at = self._start.copy(), 0
        rows = max(last - begin, 1)
        if len(self._read) < rows:
            self._read = np.empty((rows, self.shape[1]), np.float32)
        path = self._read[:rows]

        def evolve(low: int, high: int) -> None:
            x = self._x[low:high]
            self._noising.release(x, low, self._at, NO_PATH, begin)
            self._noising.release(x, low, begin, path, begin + rows - 1)

        in_threads(evolve, unit_ranges(self.shape[1], thread_count()))
        back = (rows - 1) % STEPS_PER_BLOCK  # normals are drawn for blocks of steps
        self._at = begin + rows - 1 - back
        self._x[:] = path[rows - 1 - back]
        return path[first - begin : last - begin]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.float32)


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


def start_of(
    path: Path, errors: Float32 | None = None, first: int = 0, last: int | None = None
) -> Float32:
    """R at θ = 0 plus errors in some steps; R at θ = 0 is stored with the path."""
    if path.prepared is None:
        path.prepared = drives_of(path.machine, path.states)
    start: Float32 = path.prepared[first:last]
    return start if errors is None else start + errors[first:last]
