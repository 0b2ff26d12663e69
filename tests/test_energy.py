"""Energy by hand and by finite differences; parameters that do not fit the machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import every_machine, random_parameters, some_word
from plain_rules import energy_gradient

from thermoloom.errors import UserError
from thermoloom.machine.energy import energy, energy_parts
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters


@every_machine
def test_force_is_the_derivative_of_the_energy(machine: Machine) -> None:
    machine = replace(machine, J2=0.7, J4=1.3)
    theta, word = random_parameters(machine), some_word(machine)
    x = np.random.default_rng(2).normal(size=machine.units)
    step = 1e-6 * np.eye(machine.units)
    for stage in range(machine.stages):
        up, down = (energy(theta, x + move, stage, word) for move in (step, -step))
        slope = energy_gradient(theta, x, stage, word)
        np.testing.assert_allclose(slope, (up - down) / 2e-6, rtol=1e-7)


def test_parts_by_hand() -> None:
    """One visible and two hidden units, by hand: x = (1, 2, -1)."""
    theta = Parameters.from_arrays(
        Machine(visible=1, hidden=2),
        {
            "visible_hidden": np.array([[3.0, 5.0]]),
            "hidden_hidden": np.array([[0.0, 7.0], [7.0, 0.0]]),
            "hidden_bias": np.array([11.0, 13.0]),
        },
    )
    parts = energy_parts(theta, np.array([[1.0, 2.0, -1.0]]))
    assert parts["onsite"][0] == (1 + 1) + (4 + 16) + (1 + 1)
    assert parts["visible_hidden"][0] == 3 * 1 * 2 + 5 * 1 * -1
    assert parts["hidden_hidden"][0] == 7 * 2 * -1
    assert parts["bias"][0] == 11 * 2 - 13
    assert parts["total"][0] == 24 + 1 - 14 + 9


def test_labels_and_visible_couplings_by_hand() -> None:
    """Two visible units and a hidden one with one label at 1/2: x = (1, -1, 2)."""
    machine = Machine(
        visible=2,
        hidden=1,
        labels=1,
        label_amplitude=0.5,
        wiring=("visible-visible", "visible-label", "hidden-label"),
        biases=("visible",),
    )
    theta = Parameters.from_arrays(
        machine,
        {
            "visible_visible": np.array([[0.0, 3.0], [3.0, 0.0]]),
            "visible_label": np.array([[5.0], [7.0]]),
            "hidden_label": np.array([[11.0]]),
            "visible_bias": np.array([13.0, 17.0]),
        },
    )
    parts = energy_parts(theta, np.array([1.0, -1.0, 2.0]), word=np.array([0.5]))
    assert parts["visible_visible"] == 3 * 1 * -1
    assert parts["visible_label"] == (5 - 7) * 0.5
    assert parts["hidden_label"] == 11 * 2 * 0.5
    assert parts["bias"] == 13 - 17
    # a clamped unit has no onsite energy of its own, and acts as before
    clamped = energy_parts(
        theta, np.array([1.0, -1.0, 2.0]), 0, np.array([0.5]), np.array([True, False, False])
    )
    assert parts["onsite"] - clamped["onsite"] == 2
    assert clamped.total - clamped["onsite"] == parts.total - parts["onsite"]


def test_small_differences_of_large_energies_survive() -> None:
    """Accumulated in float64: a float32 sum would lose a change of one part in 1e8."""
    machine = Machine(visible=50_000, hidden=1)
    x = np.full((2, machine.units), 1.0, np.float32)
    x[1, 0] = np.nextafter(np.float32(1), np.float32(2))
    low, high = energy(Parameters.zeros(machine), x)
    assert 0 < high - low < 1e-6


def test_parameters_that_do_not_fit_are_refused(small: Machine) -> None:
    theta = random_parameters(small)
    with pytest.raises(UserError, match="hidden_hidden has shape"):
        Parameters.from_arrays(small, theta.arrays | {"hidden_hidden": np.zeros((3, 8))})
    with pytest.raises(UserError, match="visible_hidden has shape"):
        Parameters.from_arrays(replace(small, visible=5), theta.arrays)
    with pytest.raises(UserError, match=r"shape \(1, 3\)"):
        Parameters(small, np.zeros((1, 3)))
    with pytest.raises(UserError, match="visible_label, hidden_label missing"):
        Parameters.from_arrays(replace(small, labels=2), theta.arrays)
    crooked = theta.copy()
    crooked["hidden_hidden"][0, 0, 1] += 1
    with pytest.raises(UserError, match="symmetric"):
        crooked.check()
    loop = theta.copy()
    loop["hidden_hidden"][0, 2, 2] = 1
    with pytest.raises(UserError, match="diagonal"):
        loop.check()
    lost = theta.copy()
    lost["hidden_bias"][0, 1] = np.nan
    with pytest.raises(UserError, match="not finite"):
        lost.check()


@every_machine
def test_parameters_without_the_axis_of_stages_are_those_of_one_stage(machine: Machine) -> None:
    """Older checkpoints store them without the axis; with several stages it is required."""
    theta = random_parameters(machine)
    old = {name: array[0] for name, array in theta.arrays.items()}
    if machine.stages == 1:
        assert Parameters.from_arrays(machine, old).same_as(theta)
    else:
        with pytest.raises(UserError, match="has shape"):
            Parameters.from_arrays(machine, old)
