"""The seam: a second engine takes over everything, with results equal to round-off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machines import (
    MACHINES,
    every_machine,
    learned_once,
    random_parameters,
    relative_difference,
    some_fields,
    some_path,
    trained,
)
from numba import config
from numba.core.event import Event, EventStatus

from thermoloom.engines import compiled, engine
from thermoloom.engines.compiled.barrier import wait_for_all
from thermoloom.engines.compiled.compiling import _Lightly
from thermoloom.engines.compiled.learner import _learn
from thermoloom.engines.compiled.strips import _act, _set_operators
from thermoloom.engines.compiled.warmup import jobs_for
from thermoloom.errors import UserError
from thermoloom.generation import differing_samples, generate
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``choose(name)``: the engine in use from here on."""
    return lambda name: monkeypatch.setenv("THERMOLOOM_ENGINE", name)


def trained_on(machine: Machine, rule: str = "online") -> Trainee:
    settings = Settings(machine=machine).updated(
        {"training": {"cycles": 4, "rule": rule, "validation_every": 2, "learning_rate": 0.01}}
    )
    words = label_word(machine, np.arange(3) % machine.labels) if machine.labels else None
    return trained(settings, some_fields(machine), words)


@every_machine
@pytest.mark.parametrize("rule", ["online", "batch"])
def test_both_engines_train_alike(
    machine: Machine, rule: str, choose: Callable[[str], None]
) -> None:
    compiled = trained_on(machine, rule)
    choose("portable")
    other = trained_on(machine, rule)
    assert relative_difference(compiled.parameters, other.parameters) < 2e-5
    np.testing.assert_allclose(
        compiled.curve_columns()["loss"], other.curve_columns()["loss"], rtol=1e-5
    )
    np.testing.assert_allclose(compiled.curve_columns()["cycle"], other.curve_columns()["cycle"])


@pytest.mark.parametrize("name", ["compiled", "portable"])
def test_snapshots_are_seen_in_order_while_they_are_made(
    name: str, choose: Callable[[str], None]
) -> None:
    choose(name)
    theta = random_parameters(MACHINES["paper"], dtype=np.float32)
    steps = [0, 50, 200]
    seen: dict[int, list[tuple[int, np.ndarray]]] = {}

    def on_snapshot(step: int, first: int, states: np.ndarray) -> None:
        for sample, state in enumerate(states, first):
            seen.setdefault(sample, []).append((step, state.copy()))

    made = generate(theta, 12, 9, None, None, steps, range(12), first=3, on_snapshot=on_snapshot)
    assert sorted(seen) == list(range(12))
    for sample, own in seen.items():
        assert [step for step, _ in own] == steps
        np.testing.assert_array_equal([state for _, state in own], made.snapshots[sample])


@every_machine
def test_both_engines_generate_alike(machine: Machine, choose: Callable[[str], None]) -> None:
    theta = random_parameters(machine, dtype=np.float32)
    options = {"snapshot_steps": [0, 50, 200], "snapshot_samples": [2, 0], "first": 3}
    compiled = generate(theta, 4, 9, **options)
    choose("portable")
    other = generate(theta, 4, 9, **options)
    for name in ("initial_states", "final_states", "snapshots"):
        np.testing.assert_allclose(getattr(compiled, name), getattr(other, name), atol=1e-5)
    for name in ("stage_heat", "switching_work", "heat", "work"):
        np.testing.assert_allclose(getattr(compiled, name), getattr(other, name), atol=2e-4)
    assert other.first_law_error < 1e-14
    choose("compiled")
    whole = generate(theta, 7, 9)  # samples 3 to 6 are those
    np.testing.assert_allclose(whole.final_states[3:], compiled.final_states, atol=1e-5)
    assert differing_samples(whole, generate(theta, 7, 9)) == []


def test_a_divergence_is_a_result_of_any_engine(
    small: Machine, fields: np.ndarray, choose: Callable[[str], None]
) -> None:
    settings = Settings(machine=small).updated(
        {"training": {"cycles": 30, "rule": "batch", "learning_rate": 1e6}}
    )
    compiled = trained(settings, fields).diverged
    choose("portable")
    assert compiled
    assert trained(settings, fields).diverged


def test_an_unknown_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", "steam")
    with pytest.raises(UserError, match=r"engine\.name = 'steam': must be one of compiled") as e:
        engine()
    assert "\n" not in str(e.value)


def test_every_engine_takes_a_path_of_the_other(
    small: Machine, choose: Callable[[str], None]
) -> None:
    """Only its own engine uses ``prepared``: without it, a path is equally valid."""
    path = replace(some_path(small), prepared=None)
    theta = random_parameters(small, 0.1, dtype=np.float32)
    settings = Settings(machine=small)
    compiled = learned_once(engine().learner(settings), theta, path)
    choose("portable")
    other = learned_once(engine().learner(settings), theta, path)
    assert relative_difference(compiled, other) < 5e-6


def test_kernels_are_compiled_on_small_computers_of_the_same_kind() -> None:
    """Each kind of computer once, with the imperfections and the device that choose its kernels."""
    ranges = {"range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    grid = Settings().updated({"imperfections": {"bits": 5, **ranges}})
    few = Settings().updated({"machine": {"topology": "random", "degree": 2}})
    built = Settings().updated({"device": {"gain_error": 0.1, "spread_J2": 0.1}})
    for none in (None, [], [Settings(), Settings()]):
        assert [kind for kind, _ in jobs_for(none)] == ["training", "generation"]
    kinds = jobs_for([grid, few, built, grid])
    assert [kind for kind, _ in kinds] == 3 * ["training"] + 3 * ["generation"]
    for (_, small), chosen in zip(kinds, (grid, few, built), strict=False):
        assert small.machine.units <= 20
        assert type(compiled._inner(small)) is type(compiled._inner(chosen))
        assert small.imperfections == chosen.imperfections
        assert small.device == chosen.device
    assert [kind for kind, _ in jobs_for([few], learning=False)] == ["generation"]
    assert [kind for kind, _ in jobs_for([few], generating=False)] == ["training"]


SECOND_CALL = """
from numba.core.event import install_recorder
from thermoloom.engines import compiled, engine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
import numpy as np

settings = Settings.from_dict({values})
engine().warm_up([settings])
with install_recorder("numba:compile") as recorder:
    machine = settings.built
    path = engine().path(machine, np.zeros(machine.units, np.float32), 0, 0)
    learner, theta = engine().learner(settings), Parameters.zeros(settings.machine)
    learner.update(theta, learner.init(theta), path)
    engine().generate(Parameters.zeros(machine), 3, 1)
assert not recorder.buffer, [str(event.data) for _, event in recorder.buffer]
"""


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"imperfections": {"update_noise": 0.1}},
        {"imperfections": {"residual_noise": 0.1}},
        {"device": {"gain_error": 0.1, "non_reciprocity": 0.1}},
        {"machine": {"topology": "random", "degree": 3, "stages": 2}},
    ],
)
def test_nothing_is_left_to_compile(values: dict) -> None:
    """After ``warm_up`` a training and a generation of the full computer find all kernels."""
    machine = {"visible": 60, "hidden": 30, "duration": 0.05} | values.get("machine", {})
    script = SECOND_CALL.format(values=values | {"machine": machine})
    subprocess.run([sys.executable, "-c", script], check=True)


def test_kernels_that_call_others_are_optimized_lightly() -> None:
    """Loops also by themselves, and all else as usual, whoever compiles it, also after these."""

    def begun(kernel: Any) -> Event:
        return Event("numba:compile", EventStatus.START, data={"dispatcher": kernel})

    usual, listener = (config.OPT, config.LOOP_VECTORIZE), _Lightly()
    levels = []
    kernels = (_learn, _act, _set_operators, wait_for_all)
    for kernel in kernels:
        listener.on_start(begun(kernel))
        levels.append((config.OPT, config.LOOP_VECTORIZE))
    for kernel in reversed(kernels):
        listener.on_end(begun(kernel))
    assert levels == [(1, 0), (1, 0), (1, usual[1]), usual]
    assert usual == (config.OPT, config.LOOP_VECTORIZE)
