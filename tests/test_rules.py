"""Rules and errors of users: in blocks and step by step, in every library, resumed to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import own_rules
import pytest
from machines import (
    MACHINES,
    learned_once,
    random_parameters,
    relative_difference,
    some_fields,
    some_word,
)
from own_rules import Adam, Leaky, Plain, Saturation, Signs, Telegraph
from plain_rules import learn_stepwise

import thermoloom as tl
from thermoloom.engines import compiled
from thermoloom.engines.portable import select
from thermoloom.engines.portable.learner import learn_together
from thermoloom.errors import SpeedWarning, warn_once
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.streams import Stream
from thermoloom.training.trainer import Trainee

INSTALLED = [name for name in ("numpy", "torch", "jax") if find_spec(name)]
EVERYTHING, PAPER = MACHINES["all stages"], MACHINES["paper"]
FLOAT64 = select("numpy", "cpu", "float64")
RATE = 0.01


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Warnings of speed are for users."""
    warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpeedWarning)
        yield


def settings_of(machine: Machine, rule: Any = "online", **values: Any) -> Settings:
    training = {"rule": rule, "learning_rate": RATE} | values.pop("training", {})
    return Settings(machine=machine).updated({"training": training, **values})


def start_of(settings: Settings) -> Parameters:
    theta = random_parameters(settings.machine, 0.1).on(settings.built)
    return theta


def two_paths(engine: Any, settings: Settings) -> tuple[Parameters, dict[str, Any], list[Any]]:
    """θ and state after two paths, so that the second begins with a state; and the paths."""
    built, learner = settings.built, engine.learner(settings)
    theta = start_of(settings)
    state, paths = learner.init(theta), []
    for number, field in enumerate(some_fields(built)[:2]):
        paths.append(engine.path(built, field, 1, number, some_word(built)))
        theta, state = learner.update(theta, state, paths[-1])
    return theta, state, paths


def stepwise(settings: Settings, paths: list[Any], **more: Any) -> Parameters:
    theta = start_of(settings)
    for path in paths:
        theta = learn_stepwise(
            theta, path.states, RATE, settings.period, word=path.word, **more
        )  # fmt: skip
    return theta


# Linear rules


@pytest.mark.parametrize("period", [1, 7, 200])
@pytest.mark.parametrize("name", MACHINES)
def test_momentum_in_blocks_is_the_stepwise_rule(name: str, period: int) -> None:
    """In float64, to round-off; the velocity goes on from path to path."""
    machine = MACHINES[name]
    settings = settings_of(machine, tl.Momentum(0.9), training={"period": period})
    velocity = np.zeros_like(random_parameters(machine).vector)

    def heavy_ball(stage: int, theta: np.ndarray, update: np.ndarray) -> np.ndarray:
        velocity[stage] = 0.9 * velocity[stage] + update
        after: np.ndarray = theta - velocity[stage]
        return after

    learned, state, paths = two_paths(FLOAT64, settings)
    expected = stepwise(settings, paths, apply=heavy_ball)
    assert relative_difference(learned, expected) < 1e-11
    np.testing.assert_allclose(state["memory_00"], velocity, atol=1e-12)
    learned.check()


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        (EVERYTHING, {}),
        (replace(EVERYTHING, topology="random", degree=6), {}),
        (EVERYTHING, {"gain_error": 0.2, "offset": 0.05}),
    ],
    ids=["complete", "sparse", "device"],
)
def test_any_linear_rule_with_rates_of_blocks(machine: Machine, device: dict[str, float]) -> None:
    settings = settings_of(machine, Leaky(), device=device)
    velocity = np.zeros_like(random_parameters(machine).vector)
    rates = np.ones_like(velocity[0])
    for block in random_parameters(machine).layout.blocks:
        block.of(rates)[...] = {"hidden_hidden": 0.5, "hidden_bias": 2.0}.get(block.name, 1.0)

    def leaky(stage: int, theta: np.ndarray, update: np.ndarray) -> np.ndarray:
        velocity[stage] = 0.5 * velocity[stage] + rates * update
        after: np.ndarray = 0.99 * theta - velocity[stage]
        return after

    learned, _, paths = two_paths(FLOAT64, settings)
    assert relative_difference(learned, stepwise(settings, paths, apply=leaky)) < 1e-11


@pytest.mark.parametrize("beta", [0.0, 0.99])
def test_strong_feedback_of_momentum_shortens_blocks(beta: float) -> None:
    """Weights up to 1/(1 − β): sweeps would not converge."""
    rate = 0.3
    settings = settings_of(PAPER, tl.Momentum(beta), training={"learning_rate": rate})
    learner: Any = FLOAT64.learner(settings)
    path = FLOAT64.path(PAPER, some_fields(PAPER)[0], 1, 0)
    zero = Parameters.zeros(PAPER, np.float64)
    velocity = np.zeros_like(zero.vector)

    def heavy_ball(stage: int, theta: np.ndarray, update: np.ndarray) -> np.ndarray:
        velocity[stage] = beta * velocity[stage] + update
        after: np.ndarray = theta - velocity[stage]
        return after

    expected = learn_stepwise(zero, path.states, rate, apply=heavy_ball)
    assert relative_difference(learned_once(learner, zero, path), expected) < 1e-9


def test_without_momentum_it_is_the_online_rule() -> None:
    theta = two_paths(FLOAT64, settings_of(EVERYTHING, tl.Momentum(0.0)))[0]
    assert relative_difference(theta, two_paths(FLOAT64, settings_of(EVERYTHING))[0]) < 1e-13


# Other rules


@pytest.mark.parametrize("period", [1, 7])
@pytest.mark.parametrize(
    "machine", [EVERYTHING, replace(EVERYTHING, topology="random", degree=6)], ids=["all", "sparse"]
)
def test_other_rules_run_step_by_step(machine: Machine, period: int) -> None:
    training = {"period": period}
    plain = two_paths(FLOAT64, settings_of(machine, Plain(), training=training))[0]
    delayed = settings_of(machine, "delayed", training=training)
    assert relative_difference(plain, two_paths(FLOAT64, delayed)[0]) < 1e-12

    def signs(stage: int, theta: np.ndarray, update: np.ndarray) -> np.ndarray:
        after: np.ndarray = theta - RATE * np.sign(update)
        return after

    settings = settings_of(machine, Signs(), training=training)
    learned, _, paths = two_paths(FLOAT64, settings)
    assert relative_difference(learned, stepwise(settings, paths, apply=signs)) < 1e-12
    learned.check()


def test_a_state_of_several_numbers_for_each_coupling() -> None:
    settings = settings_of(EVERYTHING, Adam())
    theta, state, _ = two_paths(FLOAT64, settings)
    assert state.keys() == {"mean", "square", "count"}
    assert all(each.shape == theta.vector.shape for each in state.values())
    windows = [end - begin for begin, end in EVERYTHING.stage_windows]
    np.testing.assert_array_equal(state["count"][:, 0], 2 * np.array(windows))


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "numpy"])
@pytest.mark.parametrize("rule", [tl.Momentum(), Adam(), Leaky()], ids=lambda r: type(r).__name__)
def test_rules_are_the_same_in_every_library(name: str, rule: Any) -> None:
    settings = settings_of(EVERYTHING, rule, imperfections={"errors": Saturation()})
    ours, theirs = (two_paths(select(library), settings)[0] for library in (name, "numpy"))
    assert relative_difference(ours, theirs) < 2e-5


@pytest.mark.parametrize("rule", [tl.Momentum(), Adam()], ids=["momentum", "adam"])
def test_trainings_side_by_side_keep_their_own_state(rule: Any) -> None:
    rates = ({"learning_rate": rate, "seed": seed} for rate, seed in ((0.01, 1), (0.02, 2)))
    learners: list[Any] = [
        FLOAT64.learner(settings_of(EVERYTHING, rule, training=values)) for values in rates
    ]
    thetas = [random_parameters(EVERYTHING, 0.1, seed) for seed in (1, 2)]
    states = [each.init(theta) for each, theta in zip(learners, thetas, strict=True)]
    fields, word = some_fields(EVERYTHING), some_word(EVERYTHING)
    alone: list[Any] = list(zip(thetas, states, strict=True))
    together = list(alone)
    for cycle in range(2):
        paths = [FLOAT64.path(EVERYTHING, fields[i], i, cycle, word) for i in range(2)]
        alone = [each.update(*alone[i], paths[i]) for i, each in enumerate(learners)]
        thetas, states = (list(part) for part in zip(*together, strict=True))
        together = learn_together(learners, thetas, states, paths)
    for (theta, state), (expected, expected_state) in zip(together, alone, strict=True):
        assert relative_difference(theta, expected) < 1e-12
        for name in state:
            np.testing.assert_allclose(state[name], expected_state[name], atol=1e-12)


# Errors


def test_additive_errors_stay_in_blocks_in_both_engines() -> None:
    settings = settings_of(EVERYTHING, imperfections={"errors": Telegraph()})
    errors = settings.imperfections.additive(EVERYTHING, settings.training.seed, 0)
    path = FLOAT64.path(EVERYTHING, some_fields(EVERYTHING)[0], 1, 0, some_word(EVERYTHING))
    zero = Parameters.zeros(EVERYTHING)
    expected = learn_stepwise(zero, path.states, RATE, 1, errors, path.word)
    learner: Any = FLOAT64.learner(settings)
    assert relative_difference(learned_once(learner, zero, path), expected) < 1e-12
    assert learner.block_length(path.states[None, 1:], RATE) == 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick = compiled.learner(settings)
    path = compiled.path(EVERYTHING, some_fields(EVERYTHING)[0], 1, 0, path.word)
    assert relative_difference(learned_once(quick, zero, path), expected) < 1e-5


def test_additive_errors_add_to_those_of_the_settings() -> None:
    """The same errors, as an object and as settings."""

    class Offset:
        def additive(self, machine: Machine, seed: int, trajectory: int) -> float:
            return 0.1

    for engine in (compiled, FLOAT64):
        both = [
            settings_of(PAPER, imperfections={"residual_noise": 0.2, **offset})
            for offset in ({"errors": Offset()}, {"residual_offset": 0.1})
        ]
        ours, theirs = (two_paths(engine, each)[0] for each in both)
        assert relative_difference(ours, theirs) < 1e-6


@pytest.mark.parametrize("rule", ["online", "momentum"])
def test_errors_that_depend_on_the_residual_run_step_by_step(rule: str) -> None:
    object_of_rule = tl.Momentum() if rule == "momentum" else rule
    settings = settings_of(EVERYTHING, object_of_rule, imperfections={"errors": Saturation()})
    path = FLOAT64.path(EVERYTHING, some_fields(EVERYTHING)[0], 1, 0, some_word(EVERYTHING))
    stream = Stream(FLOAT64.library, settings.training.seed, "residual error/own")
    z = stream.normals([0], 0, EVERYTHING.steps, EVERYTHING.units)[:, 0]
    zero = Parameters.zeros(EVERYTHING, np.float64)
    velocity = np.zeros_like(zero.vector)

    def heavy_ball(stage: int, theta: np.ndarray, update: np.ndarray) -> np.ndarray:
        velocity[stage] = (0.9 if rule == "momentum" else 0.0) * velocity[stage] + update
        after: np.ndarray = theta - velocity[stage]
        return after

    expected = learn_stepwise(
        zero, path.states, RATE, word=path.word, apply=heavy_ball,
        measured=lambda r, x, k: Saturation().residual(r, x, z[k]),
    )  # fmt: skip
    learned = learned_once(FLOAT64.learner(settings), zero, path)
    assert relative_difference(learned, expected) < 1e-12


# What is said


def test_the_compiled_engine_hands_them_over_and_says_so_once() -> None:
    for values, message in (
        ({"rule": tl.Momentum()}, "the portable engine trains with it"),
        ({"rule": Signs()}, "not linear, so learning runs step by step"),
        ({"errors": Saturation()}, "imperfections.errors = .*step by step"),
    ):
        errors = {"errors": values.pop("errors", "")}
        settings = settings_of(PAPER, values.get("rule", "online"), imperfections=errors)
        with pytest.warns(SpeedWarning, match=message) as said:
            theta = two_paths(compiled, settings)[0]
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled.learner(settings)
        assert relative_difference(theta, two_paths(FLOAT64, settings)[0]) < 1e-5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"rule": object()}}, "not a learning rule; it needs linear or step"),
        ({"training": {"rule": "steam"}}, "must be one of online, batch, delayed, or module"),
        ({"training": {"rule": "no_such:Rule"}}, "there is no module no_such"),
        ({"training": {"rule": tl.Momentum(), "period": 0}}, "period = 0: must be positive"),
        ({"training": {"rule": tl.Momentum(), "period": 999}}, "must not exceed the 200 steps"),
        (
            {"training": {"rule": tl.Momentum()}, "imperfections": {"update_noise": 0.1}},
            "not defined with your own rule or errors",
        ),
        (
            {
                "training": {"rule": tl.Momentum()},
                "imperfections": {"bits": 6, "range_visible_hidden": 1, "range_hidden_hidden": 1},
            },
            "defined for the online rule only",
        ),
        ({"imperfections": {"errors": 7}}, "not a residual error; it needs additive or residual"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_a_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(tl.UserError, match=message) as error:
        Settings(machine=PAPER).updated(values)
    assert "\n" not in str(error.value)


class Shapeless:
    """A rule and an error that return the wrong shapes."""

    def __init__(self, rates: Any = ()) -> None:
        self.rates = dict(rates)

    def linear(self) -> Any:
        return [[1, 2]], [1]

    def additive(self, machine: Any, seed: int, trajectory: int) -> Any:
        return np.zeros((3, 5))


def test_wrong_objects_are_refused_in_a_line() -> None:
    with pytest.raises(tl.UserError, match=r"expected A \(n, n\) and b \(n,\)"):
        compiled.learner(settings_of(PAPER, Shapeless()))
    with pytest.raises(tl.UserError, match="a rate for wires, which is not a block of θ"):
        compiled.learner(settings_of(PAPER, Shapeless([("wires", 2)])))
    with pytest.raises(tl.UserError, match=r"additive returns \(3, 5\); expected"):
        two_paths(compiled, settings_of(PAPER, imperfections={"errors": Shapeless()}))
    with pytest.raises(tl.UserError, match=r"Momentum.beta = 1: must be in \[0, 1\)"):
        tl.Momentum(1)
    with pytest.raises(tl.UserError, match=r"linear\(\) must return A .* of numbers"):
        compiled.learner(settings_of(PAPER, type("Texts", (), {"linear": lambda self: "ab"})()))


@pytest.mark.filterwarnings("ignore::thermoloom.errors.SpeedWarning")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda J: J[:1] if J.shape[0] > 1 else J[..., :1], r"returns shape \("),
        (lambda J: None, "returns nothing"),
    ],
)
def test_answers_of_another_shape_are_not_broadcast(answer: Any, message: str) -> None:
    class Rule:
        def step(self, theta: Any, state: Any, r: Any, x: Any, learning: Any) -> Any:
            return {name: answer(J) for name, J in theta.items()}, state

    class Error:
        def residual(self, residuals: Any, states: Any, normals: Any) -> Any:
            return answer(residuals)

    for key, learning in (
        ("training.rule", settings_of(PAPER, Rule())),
        ("imperfections.errors", settings_of(PAPER, imperfections={"errors": Error()})),
    ):
        with pytest.raises(tl.UserError, match=f"{key}: .*{message}"):
            two_paths(compiled, learning)


# Texts, files and interruptions


def test_texts_have_parameters_and_source_but_for_the_package() -> None:
    rule = settings_of(PAPER, tl.Momentum(0.8)).training.rule
    assert rule == "thermoloom.rules:Momentum(beta=0.8)"
    assert settings_of(PAPER, "thermoloom.rules:Momentum(0.8)").training.rule == rule
    own = settings_of(PAPER, Adam()).training.rule
    assert own.startswith("own_rules:Adam(first=0.9, second=0.99)@")


def test_a_computer_needs_its_rule_only_to_learn_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tl.Machine(visible=49, hidden=6, duration=0.05)
    computer = machine.train(tl.digits(0, 1), rule=Signs(), cycles=2, resize=True)
    computer.save(tmp_path / "my.safetensors")
    script = (
        "import thermoloom as tl\ncomputer = tl.load('my.safetensors')\n"
        "computer.generate(3)\ntry: computer.train(cycles=1)\n"
        "except tl.UserError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "there is no module own_rules" in done.stdout, done.stderr[-1000:]


def test_an_interrupted_training_resumes_to_the_bit(tmp_path: Path) -> None:
    """Killed at any moment, and interrupted, by real signals."""
    rule = "thermoloom.rules:Momentum(beta=0.9)"
    small = ("visible=49", "hidden=6", "machine.duration=0.05", "patterns.resize=true")
    command = [
        sys.executable, "-m", "thermoloom", "train", "--cycles=200", "--checkpoint-every=0.02",
        "--engine=portable", "--json", f"--set=training.rule={rule}",
        *(f"--set={each}" for each in small),
    ]  # fmt: skip
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(own_rules.__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def run(place: str, signum: int | None = None) -> int:
        child = subprocess.Popen(
            [*command, "--out", place], cwd=tmp_path, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        deadline = time.monotonic() + 120
        before = set((tmp_path / place).glob("checkpoint*"))
        while signum and child.poll() is None and time.monotonic() < deadline:
            if set((tmp_path / place).glob("checkpoint*")) - before:
                child.send_signal(signum)
                break
            time.sleep(0.005)
        child.communicate(timeout=120)
        return child.returncode

    assert run("apart", signal.SIGKILL) == -signal.SIGKILL
    assert run("apart", signal.SIGINT) == 130
    assert run("apart") == 0
    assert run("whole") == 0
    for name in ("computer.safetensors", "curve.csv"):
        assert (tmp_path / "apart" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"]["training"]["rule"].startswith(rule)


def test_a_checkpoint_has_the_velocity() -> None:
    settings = settings_of(PAPER, tl.Momentum())
    trainee = Trainee.new(settings)
    path = compiled.path(PAPER, some_fields(PAPER)[0], 1, 0)
    losses = {settings.training.validation_seed: lambda theta: (0.0, 0.0)}
    trainee.learn(path, losses)  # type: ignore[arg-type]
    restored = Trainee.restore(settings, trainee.arrays(), 1)
    for each in (trainee, restored):
        each.learn(compiled.path(PAPER, some_fields(PAPER)[1], 1, 1), losses)  # type: ignore[arg-type]
    assert restored.parameters.same_as(trainee.parameters)
    assert np.abs(restored.arrays()["state_memory_00"]).max() > 0
