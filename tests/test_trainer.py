"""Training: patterns in turn, shared paths, the validation curve, going on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
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
    trained,
)
from plain_rules import learn_stepwise

from thermoloom.engines import Path, engine, portable
from thermoloom.engines.compiled.residual_errors import residual_errors
from thermoloom.errors import UserError
from thermoloom.machine.action import PathLoss, path_terms
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.training import trainer
from thermoloom.training.trainer import Reached, Trainee, train, validation_path


def settings_for(machine: Machine, **training: object) -> Settings:
    values = {"cycles": 5, "validation_every": 2, "seed": 3} | training
    return Settings(machine=machine).updated({"training": values})


def words_of(machine: Machine) -> np.ndarray | None:
    """Of three patterns, the classes in turn."""
    return label_word(machine, np.arange(3) % machine.labels) if machine.labels else None


@every_machine
@pytest.mark.parametrize("rule", ["online", "batch"])
def test_cycles_take_the_patterns_in_turn(machine: Machine, rule: str) -> None:
    """Against the stepwise reference on paths made one by one, with the words of the patterns."""
    fields, words = some_fields(machine), words_of(machine)
    settings = settings_for(machine, rule=rule)
    reference = Parameters.zeros(machine)
    for cycle in range(5):
        path = engine().path(machine, fields[cycle % 3], 3, cycle).states
        word = None if words is None else words[cycle % 3]
        rate, period = settings.learning_rate, settings.period
        reference = learn_stepwise(reference, path, rate, period, word=word)
    theta = trained(settings, fields, words).parameters
    asked = sorted({0, 1, 2} & set(range(machine.labels)))
    for name in ("visible_label", "hidden_label"):
        if name in theta.layout:
            assert np.all(theta[name][..., asked] != 0)
    assert relative_difference(theta, reference) < 5e-6


def test_validation_curve(small: Machine, fields: np.ndarray) -> None:
    settings = settings_for(small)
    trainee = trained(settings, fields)
    curve = trainee.curve_columns()
    assert curve["cycle"].tolist() == [0, 2, 4, 5]  # and the last, whatever the interval
    path = validation_path(settings, Drive(fields))
    for row, theta in ((0, Parameters.zeros(small)), (-1, trainee.parameters)):
        plain = path_terms(theta, path.states)
        assert curve["loss"][row] == pytest.approx(plain.loss, rel=1e-8)
        assert curve["reduced_loss"][row] == pytest.approx(plain.reduced_loss, rel=1e-5)
    assert curve["loss"][-1] < curve["loss"][0]


def test_learners_that_share_paths_learn_as_if_alone(small: Machine, fields: np.ndarray) -> None:
    variants = [
        settings_for(small),
        settings_for(small, rule="batch"),
        settings_for(small, rule="delayed", period=10, cycles=3),
        settings_for(small, learning_rate_scale=2.0),
        settings_for(small, validation_seed=5),
    ]
    together = [Trainee.new(settings) for settings in variants]
    train(together, Drive(fields))
    for trainee, settings in zip(together, variants, strict=True):
        alone = trained(settings, fields)
        assert trainee.parameters.same_as(alone.parameters)
        assert np.array_equal(trainee.curve_columns()["loss"], alone.curve_columns()["loss"])


def test_going_on_from_any_cycle_changes_no_bit(small: Machine, fields: np.ndarray) -> None:
    settings = settings_for(small)
    whole = trained(settings, fields)
    for stop in range(1, 5):
        trainee = Trainee.new(settings)
        train([trainee], Drive(fields), lambda present: present[0].cycle == stop)  # noqa: B023
        resumed = Trainee.restore(settings, trainee.arrays(), trainee.cycle)
        train([resumed], Drive(fields))
        assert resumed.parameters.same_as(whole.parameters)
        assert np.array_equal(resumed.curve_columns()["loss"], whole.curve_columns()["loss"])


def test_trainees_with_different_cycles_behind_them_catch_up(
    small: Machine, fields: np.ndarray
) -> None:
    first, second = settings_for(small), settings_for(small, rule="batch")
    ahead, behind = Trainee.new(first), Trainee.new(second)
    train([ahead], Drive(fields), lambda _: ahead.cycle == 3)
    train([ahead, behind], Drive(fields))
    assert ahead.parameters.same_as(trained(first, fields).parameters)
    assert behind.parameters.same_as(trained(second, fields).parameters)


def test_training_starts_where_it_is_told_to(small: Machine, fields: np.ndarray) -> None:
    settings = settings_for(small)
    start = random_parameters(small, 0.1)
    reference = start
    for cycle in range(5):
        path = engine().path(small, fields[cycle % 3], 3, cycle).states
        reference = learn_stepwise(reference, path, settings.learning_rate)
    assert relative_difference(trained(settings, fields, start=start).parameters, reference) < 5e-6


@pytest.mark.parametrize("name", ["paper", "all stages"])
def test_a_cycle_happens_as_a_whole_or_not_at_all(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised, and even if that is after θ was learned: in the validation."""
    machine = MACHINES[name]
    fields, words = some_fields(machine), words_of(machine)
    settings = settings_for(machine, validation_every=1)
    trainee = Trainee.new(settings)
    losses = []

    def watch(path: Path) -> Callable[[Parameters], PathLoss]:
        """A loss that fails the third time: after the start and the first cycle."""
        loss = engine().watch(path)

        def found(theta: Parameters) -> PathLoss:
            if len(losses) == 2:
                raise MemoryError
            losses.append(loss(theta))
            return losses[-1]

        return found

    learned: list[Parameters] = []
    original = trainee.learner
    before: list[tuple[Reached, Parameters]] = []

    def update(*arguments: Any) -> Any:
        lesson = original.update(*arguments)
        learned.append(lesson[0])
        return lesson

    def after_first_cycle(_: list[Trainee]) -> None:
        before.append((trainee.reached, trainee.parameters.copy()))
        trainee.learner = SimpleNamespace(init=original.init, update=update)

    broken = SimpleNamespace(watch=watch, path=engine().path)
    monkeypatch.setattr(trainer, "engine", lambda: broken)
    with pytest.raises(MemoryError):
        train([trainee], Drive(fields, words), after_first_cycle)
    [(reached, theta)] = before
    monkeypatch.undo()
    assert len(learned) == 1  # it had come that far
    assert not learned[0].same_as(theta)
    assert trainee.reached is reached
    assert trainee.parameters.same_as(theta)
    assert trainee.cycle == len(trainee.curve) - 1 == 1
    train([trainee], Drive(fields, words))
    whole = trained(settings, fields, words)
    assert trainee.parameters.same_as(whole.parameters)
    assert np.array_equal(trainee.curve_columns()["loss"], whole.curve_columns()["loss"])


def test_divergence_ends_one_trainee_alone(small: Machine, fields: np.ndarray) -> None:
    wild = Trainee.new(settings_for(small, rule="batch", learning_rate=1e6, cycles=30))
    calm = Trainee.new(settings_for(small, rule="batch", cycles=30))
    train([wild, calm], Drive(fields))
    assert wild.diverged
    assert wild.cycle < 30
    assert not calm.diverged
    assert calm.cycle == 30


def test_a_screen_of_rates_learns_side_by_side(
    small: Machine, fields: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each computer alone, to round-off, also beside one that diverges."""
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable:numpy")
    sizes = []

    def learn_together(learners: Any, *arguments: Any) -> Any:
        sizes.append(len(learners))
        return original(learners, *arguments)

    original = portable.learn_together
    monkeypatch.setattr(portable, "learn_together", learn_together)
    scales = (0.5, 1.0, 2.0, 1e12)
    settings = [settings_for(small, learning_rate_scale=scale) for scale in scales]
    trainees = [Trainee.new(each) for each in settings]
    train(trainees, Drive(fields))
    assert sizes[0] == 4
    assert sizes[-1] == 3
    assert [trainee.diverged for trainee in trainees] == [False, False, False, True]
    for trainee, each in zip(trainees[:3], settings, strict=False):
        alone = trained(each, fields)
        assert relative_difference(trainee.parameters, alone.parameters) < 2e-6
        np.testing.assert_allclose(
            trainee.curve_columns()["loss"], alone.curve_columns()["loss"], rtol=1e-5
        )


def test_different_paths_cannot_be_shared(small: Machine, fields: np.ndarray) -> None:
    trainees = [Trainee.new(settings_for(small)), Trainee.new(settings_for(small, seed=4))]
    with pytest.raises(UserError, match=r"training\.seed"):
        train(trainees, Drive(fields))


def test_residual_errors_follow_their_law() -> None:
    """Offset, standard deviation and AR(1) correlation; none at zero strength."""
    machine = Machine(visible=300, hidden=100, duration=0.5)

    def errors(**values: float) -> np.ndarray:
        changed = Settings().updated({"imperfections": values}).imperfections
        drawn = residual_errors(machine, changed, seed=5, trajectory=2)
        assert drawn is not None
        return drawn.astype(float)

    assert residual_errors(machine, Settings().imperfections, 5, 2) is None
    plain = errors(residual_noise=0.3)
    assert abs(plain.std() - 0.3) < 0.3 * 4 / np.sqrt(2 * plain.size)
    assert abs(np.corrcoef(plain[1:].ravel(), plain[:-1].ravel())[0, 1]) < 4 / np.sqrt(plain.size)
    shifted = errors(residual_noise=0.3, residual_offset=0.05)
    np.testing.assert_allclose(shifted - plain, 0.05, atol=1e-6)
    assert np.all(errors(residual_offset=0.05) == np.float32(0.05))
    correlated = errors(residual_noise=0.3, residual_correlation=0.9)
    assert np.array_equal(correlated[0], plain[0])  # ξ₀ ~ N(0, 1), the same draw
    independent = 400 * 500 * (1 - 0.9) / (1 + 0.9)
    assert abs(correlated.std() - 0.3) < 0.3 * 5 / np.sqrt(2 * independent)
    for lag in (1, 5):
        found = np.mean(correlated[lag:] * correlated[:-lag]) / 0.09
        assert abs(found - 0.9**lag) < 5 / np.sqrt(independent)


@every_machine
def test_residual_errors_change_training_and_only_the_learner(
    machine: Machine,
) -> None:
    fields, words = some_fields(machine), words_of(machine)
    clean = settings_for(machine)
    noisy = clean.updated({"imperfections": {"residual_noise": 0.2}})
    reference = Parameters.zeros(machine)
    for cycle in range(5):
        path = engine().path(machine, fields[cycle % 3], 3, cycle).states
        word = None if words is None else words[cycle % 3]
        drawn = residual_errors(machine, noisy.imperfections, 3, cycle)
        reference = learn_stepwise(reference, path, noisy.learning_rate, 1, drawn, word)
    theta = trained(noisy, fields, words).parameters
    assert relative_difference(theta, reference) < 5e-6
    assert not theta.same_as(trained(clean, fields, words).parameters)


@pytest.mark.parametrize("rule", ["online", "batch"])
def test_learning_rate_that_falls_from_cycle_to_cycle(rule: str) -> None:
    """Cycle n at α/(1 + n/decay), against the stepwise reference."""
    machine = MACHINES["all stages"]
    fields, words = some_fields(machine), words_of(machine)
    assert words is not None
    settings = settings_for(machine, rule=rule, learning_rate_decay=1.5)
    rates = [settings.learning_rate_of(cycle) for cycle in range(5)]
    assert rates[3] == pytest.approx(settings.learning_rate / 3)
    reference = Parameters.zeros(machine)
    for cycle, rate in enumerate(rates):
        path = engine().path(machine, fields[cycle % 3], 3, cycle).states
        reference = learn_stepwise(reference, path, rate, settings.period, word=words[cycle % 3])
    theta = trained(settings, fields, words).parameters
    assert relative_difference(theta, reference) < 5e-6
    constant = trained(settings_for(machine, rule=rule), fields, words).parameters
    assert relative_difference(constant, reference) > 1e-2
    # it goes on from a checkpoint with the rate of its next cycle
    trainee = Trainee.new(settings)
    train([trainee], Drive(fields, words), lambda _: trainee.cycle == 2)
    again = Trainee.restore(settings, trainee.arrays(), trainee.cycle)
    train([again], Drive(fields, words))
    assert again.parameters.same_as(theta)


@pytest.mark.parametrize(
    "errors",
    [
        {"update_noise": 0.3},
        {"bits": 8, "range_visible_hidden": 0.02, "range_hidden_hidden": 0.02},
    ],
    ids=["update noise", "grid"],
)
def test_every_rule_knows_the_rate_of_its_cycle(
    small: Machine, fields: np.ndarray, errors: dict[str, float]
) -> None:
    """Trajectory n at α with decay n is learned as at α/2."""
    path = engine().path(small, fields[0], 3, 4)
    start = random_parameters(small, 0.005, dtype=np.float32)
    found = []
    for training in ({"learning_rate_decay": 4}, {"learning_rate_scale": 0.5}):
        settings = settings_for(small, **training).updated({"imperfections": errors})
        found.append(learned_once(engine().learner(settings), start, path))
    assert found[0].same_as(found[1])


def test_decay_must_be_positive(small: Machine) -> None:
    with pytest.raises(UserError, match="learning_rate_decay"):
        settings_for(small, learning_rate_decay=0)
