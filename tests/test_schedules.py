"""Schedules of least heat: exact laws of generation, ramps, and the search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from machines import MACHINES, random_parameters, some_word

from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.machine.presets import HARMONIC
from thermoloom.machine.protocol import ramp
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.settings import PatternSettings
from thermoloom.studies.frontier.schedules import SLACK, least_heat, performance, scheduled
from thermoloom.theory.generation_law import gelbrich, generation_law, imprinted_law
from thermoloom.theory.marginals import harmonic_marginals, solve_marginals
from thermoloom.theory.solver import solve_optimum

SMALL = replace(HARMONIC, visible=25, labels=3, styles=1, stages=2, dt=5e-3)
LABELLED = replace(MACHINES["everything"], J4=0.0, stages=3, windows=(), duration=0.9, dt=2e-3)


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return load_patterns(PatternSettings(resize=True), SMALL)


def test_ramp_by_end_and_power() -> None:
    machine = Machine(dt=0.25, duration=2.0, ramp_end=0.5, ramp_power=2.0)
    np.testing.assert_allclose(ramp(machine), [2, 1.125, 0.5, 0.125, 0, 0, 0, 0])
    with pytest.raises(UserError, match=r"machine\.ramp_end = 1\.5: must be at most 1"):
        Machine(ramp_end=1.5)
    with pytest.raises(UserError, match=r"machine\.ramp_power"):
        Machine(ramp_power=0.0)


def test_density_follows_any_ramp() -> None:
    """Nearly harmonic units, carried as a density, against the recursion of harmonic ones."""
    machine = Machine(J4=0.0, duration=0.4, ramp_power=1.7, ramp_end=0.9)
    fields = np.array([-1.3, 0.4, 2.0])
    density = solve_marginals(replace(machine, J4=1e-9), 2.0)
    exact = harmonic_marginals(machine)
    for name in ("mean", "variance", "drift", "square"):
        expected = exact.at(name, fields)
        np.testing.assert_allclose(density.at(name, fields), expected, atol=1e-6 * expected.max())


def test_several_words_at_once_are_each_word_alone() -> None:
    theta = random_parameters(LABELLED, 0.2)
    words = np.eye(LABELLED.size_of("label"))
    together = generation_law(theta, words)
    for number, word in enumerate(words):
        alone = generation_law(theta, word)
        assert together.heat[number] == pytest.approx(alone.heat)
        assert together.work[number] == pytest.approx(alone.work)
        assert together.speed_limit[number] == pytest.approx(alone.speed_limit)
        np.testing.assert_allclose(together.laws[-1].mean[number], alone.laws[-1].mean)


def test_work_of_switching_is_that_of_samples() -> None:
    theta = random_parameters(LABELLED, 0.2, dtype=np.float32)
    drawn = generate(theta, 3000, 5, classes=1)
    exact = float(generation_law(theta, some_word(LABELLED)).work)
    error = drawn.work.std() / math.sqrt(3000)
    assert exact == pytest.approx(float(drawn.work.mean()), abs=5 * error)
    assert abs(exact) > 10 * error


def test_imprinted_images_are_where_noising_begins() -> None:
    """Mean and variance against the tables of the expected loss, which another recursion makes."""
    fields = np.array([[0.3, -1.2] + [0.0] * (SMALL.units - 2)])
    law, tables = imprinted_law(SMALL, fields), harmonic_marginals(SMALL)
    np.testing.assert_allclose(law.mean, tables.at("start", fields[0]))
    np.testing.assert_allclose(np.diag(law.covariance) * SMALL.J2, tables.energy[0, 0])


def test_performance_is_that_of_samples(patterns: Patterns) -> None:
    """Heat and distance from the image, exactly and from 3,000 samples of the solved machine."""
    exact = performance(SMALL, patterns)
    drive = drive_of(patterns, SMALL)
    fields = drive.fields
    drawn = generate(solve_optimum(SMALL, drive).parameters, 3000, 3)
    assert exact["heat"] == pytest.approx(
        float(drawn.heat.mean()), abs=5 * drawn.heat.std() / math.sqrt(3000)
    )
    image = imprinted_law(SMALL, fields.astype(np.float64)).mean
    means = np.stack([drawn.final_states[k::3].mean(axis=0) for k in range(3)])
    assert exact["miss"] > math.sqrt(np.mean((means - image) ** 2) / np.mean(image**2)) - 0.01


def test_search_saves_heat_at_equal_quality(patterns: Patterns) -> None:
    unchanged = performance(SMALL, patterns)
    schedule, best, solves = least_heat(SMALL, patterns, unchanged["miss"], 30)
    assert solves <= 31
    assert best["heat"] < 0.97 * unchanged["heat"]
    assert best["miss"] <= unchanged["miss"] * (1 + SLACK)
    assert best["production"] > best["speed_limit"]
    assert performance(schedule, patterns) == best
    assert schedule.ramp_end != SMALL.ramp_end


def test_a_quality_out_of_reach_gives_the_best_there_is(patterns: Patterns) -> None:
    machine = replace(SMALL, duration=0.2)
    _, best, _ = least_heat(machine, patterns, 1e-6, 8)
    assert 1e-6 < best["miss"] <= performance(machine, patterns)["miss"]


def test_points_of_the_search_are_schedules() -> None:
    machine = scheduled(replace(SMALL, stages=3), [2.0, math.log(2), math.log(2), 0.0])
    assert machine.ramp_end == 1.0  # held at its bound
    assert machine.ramp_power == pytest.approx(2.0)
    assert machine.windows == pytest.approx((0.5, 0.75, 1.0))
    assert scheduled(replace(SMALL, stages=1), [0.5, 0.0]).windows == ()


def test_distance_of_several_means_is_that_of_each() -> None:
    fields = np.array([[0.3] * SMALL.units, [-1.0] * SMALL.units])
    both, zero = imprinted_law(SMALL, fields), imprinted_law(SMALL, 0 * fields)
    np.testing.assert_allclose(gelbrich(both, zero), (both.mean**2).sum(axis=1))
