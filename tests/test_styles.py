"""Styles: several label units a class, k-means within it, and a die that chooses in generation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from machines import random_parameters
from scipy.stats import chisquare

from thermoloom.computers.pattern_store import pattern_names, patterns_from, stored_arrays
from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import learned_patterns, parameters_of, solve_run
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.generation import drawn_styles, generate
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.codes import kmeans
from thermoloom.patterns.drive import Drive, drive_of, styles_of
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.patterns.scale import normalized
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.theory.expected_loss import ExpectedLoss
from thermoloom.theory.solver import solve_optimum

MACHINE = Machine(
    visible=10, hidden=0, labels=2, styles=3, label_amplitude=1.5, duration=0.2, J4=0.0, stages=2,
    wiring=("visible-visible", "visible-label"), biases=("visible",),
)  # fmt: skip


def some_patterns(count: int = 60) -> Patterns:
    """Two classes of three groups each, far apart; the groups have 1/6, 2/6 and 3/6 of a class."""
    rng = np.random.default_rng(2)
    centres = 6 * rng.normal(size=(2, 3, 10))
    classes = np.arange(count) % 2
    groups = np.array([0, 1, 1, 2, 2, 2])[(np.arange(count) // 2) % 6]
    rows = centres[classes, groups] + 0.1 * rng.normal(size=(count, 10))
    names = tuple(str(group) for group in groups)
    return Patterns(normalized(rows), names, classes=tuple(classes.tolist()))


def test_words_have_one_unit_for_each_style_of_a_class() -> None:
    word = label_word(MACHINE, np.array([0, 1, 1]), np.array([2, 0, 2]))
    expected = np.zeros((3, 6), np.float32)
    expected[[0, 1, 2], [2, 3, 5]] = 1.5
    assert np.array_equal(word, expected)
    with pytest.raises(UserError, match="must be a whole number from 0 to 2"):
        label_word(MACHINE, 0, 3)
    with pytest.raises(UserError, match=r"machine\.styles = 3: styles are label units"):
        Machine(styles=3)


def test_patterns_of_a_class_are_grouped_by_kmeans() -> None:
    patterns = some_patterns()
    styles = styles_of(patterns, MACHINE)
    for own in (0, 1):
        members = np.array(patterns.classes) == own
        pairs = set(zip(styles[members].tolist(), np.array(patterns.labels)[members], strict=True))
        assert len(pairs) == 3  # a style for each group, a group for each style
    words = drive_of(patterns, MACHINE).words
    assert words is not None
    assert np.array_equal(words, label_word(MACHINE, np.array(patterns.classes), styles))


def test_kmeans_ends_where_every_row_is_nearest_to_its_mean() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 4))
    cluster = kmeans(rows, 5, np.random.default_rng(1), rounds=1000)
    means = np.array([rows[cluster == n].mean(axis=0) for n in range(5)])
    nearest = ((rows[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(nearest, cluster)
    assert np.array_equal(cluster, kmeans(rows, 5, np.random.default_rng(1), rounds=1000))
    # equal rows are one cluster, however many are requested
    assert len(set(kmeans(np.ones((6, 3)), 3, np.random.default_rng(0)))) == 1


def test_the_die_is_as_loaded_as_the_patterns() -> None:
    patterns = some_patterns()
    theta = Parameters.zeros(MACHINE).with_styles_of(drive_of(patterns, MACHINE).words)
    weights = theta.style_weights
    assert weights is not None
    assert sorted(weights[0].tolist()) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    requested = np.arange(6000) % 2
    styles = drawn_styles(theta, requested, seed=8)
    for own in (0, 1):
        counts = np.bincount(styles[requested == own], minlength=3)
        assert chisquare(counts, 3000 * weights[own]).pvalue > 1e-3
    # a throw belongs to its sample, so that a generation may be continued
    assert np.array_equal(drawn_styles(theta, requested[:100], seed=8), styles[:100])
    assert not np.array_equal(drawn_styles(theta, requested, seed=9), styles)
    never = replace(theta, style_weights=np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert np.array_equal(drawn_styles(never, requested, seed=8), 1 + requested)


def test_generation_asks_the_units_of_the_styles_drawn() -> None:
    theta = random_parameters(MACHINE, dtype=np.float32)
    classes, seed = [1, 0, 1, 1], 3
    styles = drawn_styles(theta, np.array(classes), seed)
    words = label_word(MACHINE, np.array(classes), styles)
    expected = engine().generate(theta, 4, seed, words)
    found = generate(theta, 4, seed, classes)
    assert np.array_equal(found.final_states, expected.final_states)
    assert len(set(styles.tolist())) > 1
    named = generate(theta, 4, seed, classes, styles=styles.tolist())
    assert np.array_equal(named.final_states, expected.final_states)
    with pytest.raises(UserError, match="styles: 2 for 4 samples"):
        generate(theta, 4, seed, classes, styles=[0, 1])
    with pytest.raises(UserError, match="style 99: must be a whole number from 0 to"):
        generate(theta, 4, seed, classes, styles=[0, 1, 0, 99])
    rest = generate(theta, 2, seed, classes, first=2)
    np.testing.assert_allclose(rest.final_states, expected.final_states[2:], rtol=1e-5)


def test_weights_of_styles_last(tmp_path: Path) -> None:
    settings = Settings(machine=replace(MACHINE, visible=49, dt=0.01)).updated(
        {"solver": {}, "patterns": {"digits": (3, 5), "per_digit": 10}}
    )
    settings = settings.updated({"machine": {"labels": 6}, "patterns": {"resize": True}})
    patterns = load_patterns(settings.patterns, settings.machine)
    solve_run(tmp_path / "run", settings, patterns=patterns)
    run = RunDirectory.open(tmp_path / "run")
    theta = parameters_of(run)
    expected = theta.with_styles_of(drive_of(patterns, settings.machine).words).style_weights
    assert np.array_equal(theta.style_weights, expected)
    assert expected is not None
    assert expected[3].max() < 1
    generate_run(tmp_path / "run", SampleRequest(4, 1, (3, 5)))
    assert np.array_equal(learned_patterns(run).patterns, patterns.patterns)


def test_images_of_bytes_are_kept_as_bytes() -> None:
    """… and give the patterns again to the bit."""
    patterns = load_patterns(Settings().patterns, Settings().machine)
    kept = stored_arrays(patterns)
    assert kept["pixels"].dtype == np.uint8
    assert "patterns" not in kept
    again = patterns_from(kept, pattern_names(patterns))
    assert np.array_equal(again.patterns, patterns.patterns)


def test_one_style_is_no_styles() -> None:
    patterns = some_patterns()
    single = replace(MACHINE, styles=1)
    words = drive_of(patterns, single).words
    assert words is not None
    assert np.array_equal(words, label_word(single, np.array(patterns.classes)))
    theta = solve_optimum(single, Drive(patterns.patterns, words)).parameters
    assert theta.style_weights is None
    assert np.array_equal(drawn_styles(theta, np.array([0, 1]), 4), [0, 0])


@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, labels=0, styles=1)])
def test_moments_of_harmonic_units_are_those_of_any_units(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One product for all windows gives what the general sum over patterns gives."""
    from thermoloom.theory import expected_loss

    patterns = some_patterns()
    words = drive_of(patterns, machine).words
    window = machine.stage_windows[1]
    quick = ExpectedLoss(machine, patterns.patterns, window=window, words=words).moments
    monkeypatch.setattr(expected_loss.TimeModes, "linear", False)
    slow = ExpectedLoss(machine, patterns.patterns, window=window, words=words).moments
    for name in ("second", "cross", "variance", "square"):
        np.testing.assert_allclose(getattr(quick, name), getattr(slow, name), rtol=1e-9, atol=1e-12)
