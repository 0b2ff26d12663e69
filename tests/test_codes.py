"""Codes of hidden units: the paper's projection to the bit, words of ±A, the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.machine import machine
from thermoloom.machine.machine import Machine
from thermoloom.patterns.codes import CODES, cluster_words, clusters, projection
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.patterns.scale import normalized
from thermoloom.settings import PatternSettings
from thermoloom.threads import threads

SMALL = Machine(visible=5, hidden=13)
PAPER = [[0.7655555, -0.23713541], [1.4922352, -1.2480872], [0.27602854, 0.31633726]]
"""Fields of the first two hidden units for the digits 0, 1, 2."""


def some_patterns(count: int = 40, visible: int = 5, classes: int = 0, seed: int = 0) -> Patterns:
    rows = normalized(np.random.default_rng(seed).normal(size=(count, visible)))
    own = tuple(i % classes for i in range(count)) if classes else ()
    return Patterns(rows, tuple(map(str, range(count))), classes=own)


def code_of(machine: Machine, patterns: Patterns) -> np.ndarray:
    fields = unit_fields(patterns, machine)
    assert fields.dtype == np.float32
    assert np.array_equal(fields[:, : machine.visible], patterns.patterns)
    return fields[:, machine.visible :]


def test_every_code_that_can_be_set_is_there() -> None:
    assert list(CODES) == machine.CODE_NAMES


def test_projection_is_the_one_of_the_design() -> None:
    expected = np.random.default_rng(42).normal(0, 1 / 28, (784, 512)).astype(np.float32)
    assert np.array_equal(projection(Machine()), expected)
    assert not np.array_equal(projection(Machine(code_seed=43)), expected)
    # 𝒩(0, 1/N_v) for another size: the sample variance of 400 × 300 draws is good to 0.4 %
    other = projection(Machine(visible=400, hidden=300)).astype(np.float64)
    assert other.var() * 400 == pytest.approx(1, rel=0.02)


def test_fields_of_the_papers_patterns_do_not_change_between_versions() -> None:
    """Training depends on them to the bit."""
    machine = Machine()
    code = code_of(machine, load_patterns(PatternSettings(), machine))
    assert code[:, :2].tolist() == np.array(PAPER, np.float32).tolist()


def test_projected_fields_by_hand() -> None:
    machine = Machine(visible=5, hidden=3, code_seed=7)
    patterns = some_patterns(2)
    P = projection(machine)
    for row, s in zip(code_of(machine, patterns), patterns.patterns, strict=True):
        by_hand = [sum(float(P[i, a]) * float(s[i]) for i in range(5)) for a in range(3)]
        np.testing.assert_allclose(row, by_hand, rtol=2e-7)


def test_copy_repeats_the_pixels() -> None:
    patterns = some_patterns(3)
    s = patterns.patterns
    expected = np.concatenate([s, s, s[:, :3]], axis=1)
    assert np.array_equal(code_of(replace(SMALL, code="copy"), patterns), expected)
    fewer = replace(SMALL, code="copy", hidden=2)
    assert np.array_equal(code_of(fewer, patterns), s[:, :2])


def test_signs_of_the_projection() -> None:
    patterns = some_patterns()
    plain = code_of(SMALL, patterns)
    signs = code_of(replace(SMALL, code="signs", code_amplitude=1.5), patterns)
    assert np.array_equal(signs, np.float32(1.5) * np.sign(plain))
    assert set(np.unique(signs)) == {-1.5, 1.5}


@pytest.mark.parametrize("per_class", [3, 4, 20])
def test_every_class_has_its_own_words(per_class: int) -> None:
    """k words of ±A at most for each class, none of them shared."""
    machine = Machine(visible=30, hidden=64, code="clusters", code_clusters=4, code_amplitude=1.5)
    patterns = some_patterns(3 * per_class, 30, classes=3)
    code = code_of(machine, patterns)
    assert set(np.unique(code)) == {-1.5, 1.5}
    words = [{row.tobytes() for row in code[own::3]} for own in range(3)]
    assert len(set.union(*words)) == sum(len(own) for own in words)
    for own in words:
        assert len(own) <= 4
        assert len(own) == 3 or per_class > 3


def test_patterns_without_classes_are_one() -> None:
    machine = replace(SMALL, code="clusters", code_clusters=4)
    plain = some_patterns()
    as_one = replace(plain, classes=(0,) * len(plain))
    assert np.array_equal(code_of(machine, plain), code_of(machine, as_one))
    assert len(np.unique(code_of(machine, plain), axis=0)) <= 4


def test_clusters_are_what_lies_together() -> None:
    """Four clouds far apart are the four clusters, whichever class they are in."""
    centres = 10 * np.eye(4, 6)
    noise = np.random.default_rng(3).normal(size=(40, 6))
    rows = (centres[np.arange(40) % 4] + 0.1 * noise).astype(np.float32)
    machine = Machine(visible=6, hidden=8, code_clusters=4)
    found = clusters(machine, rows, ())
    assert all(len(set(found[i::4])) == 1 for i in range(4))
    assert sorted(set(found)) == [0, 1, 2, 3]
    two = clusters(replace(machine, code_clusters=2), rows, np.arange(40) % 2)
    assert [sorted(set(two[i::4])) for i in range(4)] in (
        [[0], [2], [1], [3]], [[0], [3], [1], [2]], [[1], [2], [0], [3]], [[1], [3], [0], [2]]
    )  # fmt: skip


def test_clusters_depend_on_the_seed_and_on_nothing_else() -> None:
    machine = Machine(visible=60, hidden=32, code="clusters")
    patterns = some_patterns(400, 60, classes=2)
    codes = []
    for count in (1, 2, 3):
        with threads(count):
            codes.append(code_of(machine, patterns))
    assert np.array_equal(codes[0], codes[1])
    assert np.array_equal(codes[0], codes[2])
    assert not np.array_equal(codes[0], code_of(replace(machine, code_seed=1), patterns))


def test_words_do_not_depend_on_how_many_there_are() -> None:
    words = cluster_words(SMALL, 30)
    assert np.array_equal(cluster_words(SMALL, 7), words[:7])
    far = cluster_words(replace(SMALL, hidden=4000), 10) / SMALL.code_amplitude
    overlaps = (far @ far.T / 4000)[np.triu_indices(10, 1)]
    assert np.abs(overlaps).max() < 5 / 4000**0.5
    assert abs(far.mean()) < 5 / 40000**0.5


def test_given_fields_are_taken_as_they_are() -> None:
    given = np.random.default_rng(1).normal(size=(2, 13)).astype(np.float32)
    patterns = replace(some_patterns(2), code=given)
    assert np.array_equal(code_of(replace(SMALL, code="given"), patterns), given)
    # and are of no matter for another code
    assert np.array_equal(code_of(SMALL, patterns), code_of(SMALL, some_patterns(2)))


def test_wrong_given_fields_are_refused_in_one_line(tmp_path: Path) -> None:
    machine = replace(SMALL, code="given")
    patterns = some_patterns(2)
    cases = [
        (patterns, r"machine\.code = 'given'.*array of shape \(2, 13\)"),
        (replace(patterns, code=np.zeros((2, 12), np.float32)), r"shape \(2, 12\).*\(2, 13\)"),
        (replace(patterns, code=np.full((2, 13), np.nan, np.float32)), "expected finite numbers"),
    ]
    for wrong, message in cases:
        with pytest.raises(UserError, match=message) as error:
            unit_fields(wrong, machine)
        assert "\n" not in str(error.value)
    digits = Machine(code="given")
    with pytest.raises(UserError, match=r"patterns\.code must name an \.npy array"):
        load_patterns(PatternSettings(), digits)
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    with pytest.raises(UserError, match=r"text\.npy: <U1 array; expected real numbers"):
        load_patterns(PatternSettings(code=str(tmp_path / "text.npy")), digits)
    np.save(tmp_path / "two.npy", np.zeros((2, 512)))
    with pytest.raises(UserError, match=r"code of shape \(2, 512\) for 3 patterns"):
        load_patterns(PatternSettings(code=str(tmp_path / "two.npy")), digits)
    np.save(tmp_path / "three.npy", np.arange(3 * 512.0).reshape(3, 512))
    loaded = load_patterns(PatternSettings(code=str(tmp_path / "three.npy")), digits)
    assert np.array_equal(code_of(digits, loaded), np.arange(3 * 512.0).reshape(3, 512))
