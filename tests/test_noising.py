"""Noising paths: protocol, step count, independence of threads and of pieces."""

from __future__ import annotations

import numpy as np
import pytest

from thermoloom.engines import engine
from thermoloom.engines.compiled.noising import noising_path, start_of
from thermoloom.engines.compiled.streams import normals
from thermoloom.machine.action import drive, step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import ramp
from thermoloom.threads import threads


def plain_path(machine: Machine, field: np.ndarray, seed: int, trajectory: int) -> np.ndarray:
    """The protocol of the paper, written out in float64."""
    k_steps = machine.steps
    kicks = [
        normals(seed, name, trajectory, k_steps, field.size) for name in ("preparation", "noising")
    ]
    x = np.zeros(field.size)
    path = []
    for phase in (0, 1):
        for k in range(k_steps):
            if phase:
                path.append(x)
            t = k * machine.dt
            ramped = 2 * (1 - t / (0.75 * machine.duration)) if t < 0.75 * machine.duration else 0
            a = ramped if phase else 2.0
            force = a * field - 2 * machine.J2 * x - 4 * machine.J4 * x**3
            kick = np.sqrt(2 * machine.mobility * machine.kT * machine.dt) * kicks[phase][k]
            x = x + machine.mobility * machine.dt * force + kick
    return np.array([*path, x])


@pytest.mark.parametrize("duration", [0.2, 0.123])
def test_path_follows_the_protocol(duration: float) -> None:
    machine = Machine(visible=6, hidden=3, duration=duration)
    field = np.random.default_rng(0).normal(size=machine.units).astype(np.float32)
    path = noising_path(machine, field, seed=11, trajectory=3)
    assert path.shape == (machine.steps + 1, machine.units)
    np.testing.assert_allclose(path, plain_path(machine, field, 11, 3), atol=1e-5)


def test_ramp_ends_at_three_quarters() -> None:
    a = ramp(Machine())
    assert a[0] == 2
    assert a[1874] > 0
    assert not a[1875:].any()


def test_path_does_not_depend_on_threads() -> None:
    machine = Machine(visible=101, hidden=30, duration=0.05)
    field = np.random.default_rng(0).normal(size=machine.units).astype(np.float32)
    paths = []
    for count in (1, 2, 3, 8):
        with threads(count):
            paths.append(noising_path(machine, field, 5, 2))
    assert all(np.array_equal(path, paths[0]) for path in paths)


def test_path_of_a_unit_does_not_depend_on_the_others() -> None:
    field = np.random.default_rng(0).normal(size=40).astype(np.float32)
    whole = noising_path(Machine(visible=20, hidden=20, duration=0.05), field, 5, 0)
    part = noising_path(Machine(visible=7, hidden=6, duration=0.05), field[:13], 5, 0)
    assert np.array_equal(part, whole[:, :13])


def test_seeds_trajectories_and_validation_differ(small: Machine, fields: np.ndarray) -> None:
    paths = [
        noising_path(small, fields[0], 1, 0),
        noising_path(small, fields[0], 1, 1),
        noising_path(small, fields[0], 2, 0),
        noising_path(small, fields[0], 1, 0, purpose="validation"),
    ]
    ends = np.array([path[-1] for path in paths])
    assert len(np.unique(ends, axis=0)) == 4


def test_a_path_reuses_memory_and_keeps_its_word(small: Machine, fields: np.ndarray) -> None:
    """A path in reused memory also has its residuals at θ = 0 if a learner used the old path."""
    word = np.array([1, 0], np.float32)
    fresh, used = engine().path(small, fields[1], 1, 7, word), engine().path(small, fields[0], 1, 0)
    assert fresh.prepared is None
    before = start_of(used).copy()
    again = engine().path(small, fields[1], 1, 7, word, reuse=used)
    assert np.array_equal(again.states, fresh.states)
    assert np.array_equal(again.prepared, start_of(fresh))
    assert not np.array_equal(again.prepared, before)
    assert (again.number, again.machine) == (7, small)
    assert again.word is word
    constants = step_constants(small, np.float64)
    wide = fresh.states.astype(np.float64)
    np.testing.assert_allclose(fresh.prepared, drive(constants, wide[:-1], wide[1:]), atol=2e-6)
