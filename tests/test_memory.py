"""What a computation needs, as the engine in use estimates it, against its true peak."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import thermoloom as tl
from thermoloom.engines import usual_training_memory
from thermoloom.engines.memory import training_memory
from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee, train


def estimate_of(machine: Machine) -> int:
    return sum(training_memory(machine).values())


def test_the_portable_engine_counts_the_paths_that_it_simulates_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixteen paths of the paper's units, then sixteen more, and learning from one."""
    machine = Machine(duration=1.0)
    compiled = estimate_of(machine)
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable:numpy")
    settings = Settings(machine=machine).updated({"training": {"cycles": 32, "rule": "batch"}})
    trainee = Trainee.new(settings)
    tracemalloc.start()
    train([trainee], Drive(np.ones((1, machine.units), np.float32)), lambda _: trainee.cycle == 17)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * estimate_of(machine) < peak < estimate_of(machine)
    assert peak > compiled  # whose estimate would not do


def test_an_engine_of_users_needs_the_usual_arrays_or_says_more() -> None:
    functions = dict.fromkeys(("path", "learner", "terms", "watch", "generate"), print)
    with tl.engine(SimpleNamespace(**functions)):
        assert training_memory(Machine()) == usual_training_memory(Machine())
    with tl.engine(SimpleNamespace(**functions, training_memory=lambda machine: {"units": 7})):
        assert training_memory(Machine()) == {"units": 7}
