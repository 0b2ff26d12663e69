"""Labels of least loss: every ΔL against the loss of the path with and without the label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import every_machine, random_parameters, some_fields, some_path

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.machine.action import path_terms
from thermoloom.machine.machine import Machine
from thermoloom.theory.likelihood import (
    class_log_likelihoods,
    expected_residuals,
    label_losses,
    path_residuals,
)
from thermoloom.theory.marginals import solve_marginals

STYLES = Machine(
    visible=9, hidden=0, labels=3, styles=2, label_amplitude=1.7, stages=2, duration=0.2, J4=0.0,
    wiring=("visible-visible", "visible-label"), biases=("visible",),
)  # fmt: skip


def with_labels(machine: Machine) -> Machine:
    return machine if machine.labels else replace(machine, labels=3)


@every_machine
def test_change_of_the_loss_by_every_label(machine: Machine) -> None:
    machine = with_labels(machine)
    theta, path = random_parameters(machine), some_path(machine)
    found = label_losses(theta, path_residuals(theta, path)[None])[0]
    words = machine.label_amplitude * np.eye(machine.size_of("label"))
    without = path_terms(theta, path.states, None, np.zeros(len(words))).loss
    with_each = [path_terms(theta, path.states, None, word).loss for word in words]
    # losses are given for each step
    expected = machine.steps * (np.array(with_each) - without)
    np.testing.assert_allclose(found, expected, atol=1e-9 * machine.steps * abs(without))


@pytest.mark.parametrize("machine", [STYLES, replace(STYLES, J4=1.0)], ids=["harmonic", "quartic"])
def test_expected_residuals_are_the_mean_over_paths(machine: Machine) -> None:
    theta, fields = random_parameters(machine), some_fields(machine)[:2]
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    expected = expected_residuals(theta, fields, marginals)
    for pattern, field in enumerate(fields):
        drawn = np.array(
            [path_residuals(theta, engine().path(machine, field, 5, n)) for n in range(600)]
        )
        error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
        worst = np.abs((drawn.mean(axis=0) - expected[pattern]) / error)
        assert worst.max() < 4.5  # 36 numbers in all
        assert worst.mean() < 1.3


def test_a_class_is_as_likely_as_its_styles_together() -> None:
    theta = random_parameters(STYLES)
    weights = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    theta = type(theta)(STYLES, theta.vector, weights)
    sums = np.random.default_rng(0).normal(size=(4, 2, 9))
    likelihood = np.exp(-label_losses(theta, sums)).reshape(4, 3, 2)
    expected = np.log((weights * likelihood).sum(axis=2))
    np.testing.assert_allclose(class_log_likelihoods(theta, sums), expected, rtol=1e-12)
    even = type(theta)(STYLES, theta.vector)
    expected = np.log(likelihood.mean(axis=2))
    np.testing.assert_allclose(class_log_likelihoods(even, sums), expected, rtol=1e-12)


def test_without_labels_there_is_nothing_to_choose() -> None:
    machine = Machine(visible=4, hidden=2, duration=0.1)
    theta = random_parameters(machine)
    with pytest.raises(UserError, match="cannot classify"):
        label_losses(theta, np.zeros((1, 1, 6)))
