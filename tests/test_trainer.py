"""Training: prototypes in turn, shared paths, the validation curve, going on from a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative_difference

from thermoloom.config import Settings
from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.machine.action import path_loss
from thermoloom.machine.computer import Computer
from thermoloom.training.imperfections import residual_errors
from thermoloom.training.learner import learn_stepwise
from thermoloom.training.noising import noising_path
from thermoloom.training.trainer import Trainee, train, train_together, validation_path


def settings_for(machine: Machine, **training: object) -> Settings:
    values = {"cycles": 5, "validation_every": 2, "seed": 3} | training
    return Settings(machine=machine).updated({"training": values})


@pytest.mark.parametrize("rule", ["online", "batch"])
def test_cycles_take_the_prototypes_in_turn(small: Machine, fields: np.ndarray, rule: str) -> None:
    """Against the stepwise reference on paths made one by one."""
    settings = settings_for(small, rule=rule)
    reference = Computer.zeros(small)
    for cycle in range(5):
        path = noising_path(small, fields[cycle % 3], 3, cycle)
        rate, period = settings.learning_rate, settings.period
        reference = learn_stepwise(small, reference, path, rate, period)
    assert relative_difference(train(settings, fields).computer, reference) < 5e-6


def test_validation_curve(small: Machine, fields: np.ndarray) -> None:
    settings = settings_for(small)
    trained = train(settings, fields)
    assert trained.curve["cycle"].tolist() == [0, 2, 4, 5]  # and the last, whatever the interval
    path = validation_path(settings, fields)
    start, end = (path_loss(c, small, path) for c in (Computer.zeros(small), trained.computer))
    assert trained.curve["loss"][0] == start.full
    assert trained.curve["loss"][-1] == end.full
    assert trained.curve["reduced_loss"][-1] == end.reduced
    assert end.full < start.full


def test_learners_that_share_paths_learn_as_if_alone(small: Machine, fields: np.ndarray) -> None:
    variants = [
        settings_for(small),
        settings_for(small, rule="batch"),
        settings_for(small, rule="delayed", period=10, cycles=3),
        settings_for(small, learning_rate_scale=2.0),
        settings_for(small, validation_seed=5),
    ]
    together = [Trainee.new(settings) for settings in variants]
    for _ in train_together(together, fields):
        pass
    for trainee, settings in zip(together, variants, strict=True):
        alone = train(settings, fields)
        assert trainee.computer.same_as(alone.computer)
        assert np.array_equal(trainee.curve_columns()["loss"], alone.curve["loss"])


def test_going_on_from_any_cycle_changes_no_bit(small: Machine, fields: np.ndarray) -> None:
    settings = settings_for(small)
    whole = train(settings, fields)
    for stop in range(1, 5):
        trainee = Trainee.new(settings)
        for _ in train_together([trainee], fields):
            if trainee.cycle == stop:
                break
        resumed = Trainee.restore(settings, trainee.arrays(), trainee.cycle)
        for _ in train_together([resumed], fields):
            pass
        assert resumed.computer.same_as(whole.computer)
        assert np.array_equal(resumed.curve_columns()["loss"], whole.curve["loss"])


def test_trainees_with_different_cycles_behind_them_catch_up(
    small: Machine, fields: np.ndarray
) -> None:
    first, second = settings_for(small), settings_for(small, rule="batch")
    ahead, behind = Trainee.new(first), Trainee.new(second)
    for _ in train_together([ahead], fields):
        if ahead.cycle == 3:
            break
    for _ in train_together([ahead, behind], fields):
        pass
    assert ahead.computer.same_as(train(first, fields).computer)
    assert behind.computer.same_as(train(second, fields).computer)


def test_divergence_ends_one_trainee_alone(small: Machine, fields: np.ndarray) -> None:
    wild = Trainee.new(settings_for(small, rule="batch", learning_rate=1e6, cycles=30))
    calm = Trainee.new(settings_for(small, rule="batch", cycles=30))
    for _ in train_together([wild, calm], fields):
        pass
    assert wild.diverged
    assert wild.cycle < 30
    assert not calm.diverged
    assert calm.cycle == 30


def test_different_paths_cannot_be_shared(small: Machine, fields: np.ndarray) -> None:
    trainees = [Trainee.new(settings_for(small)), Trainee.new(settings_for(small, seed=4))]
    with pytest.raises(UserError, match=r"training\.seed"):
        next(train_together(trainees, fields))


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


def test_residual_errors_change_training_and_only_the_learner(
    small: Machine, fields: np.ndarray
) -> None:
    clean = settings_for(small)
    noisy = clean.updated({"imperfections": {"residual_noise": 0.2}})
    reference = Computer.zeros(small)
    for cycle in range(5):
        path = noising_path(small, fields[cycle % 3], 3, cycle)
        drawn = residual_errors(small, noisy.imperfections, 3, cycle)
        reference = learn_stepwise(small, reference, path, noisy.learning_rate, 1, drawn)
    trained = train(noisy, fields).computer
    assert relative_difference(trained, reference) < 5e-6
    assert not trained.same_as(train(clean, fields).computer)
