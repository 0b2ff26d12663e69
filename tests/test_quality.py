"""Quality measures against hand-worked cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.classifier import Classifier
from thermoloom.measures.quality import MEASURES, entropy, mean_pairwise_distance, measure_quality
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.settings import PatternSettings

# two orthogonal patterns of four units, length 2
PATTERNS = np.array([[1, 1, -1, -1], [1, -1, 1, -1]], np.float32)
FOUR = Patterns(PATTERNS, ("left", "even"))


def test_distances_and_correlations_by_hand() -> None:
    # twice the first pattern, its negative, and nothing at all
    states = np.stack([2 * PATTERNS[0], -PATTERNS[0], 0 * PATTERNS[0]])
    with np.errstate(all="raise"):
        quality = measure_quality(states, FOUR)
    # ‖2s₀ − s₀‖ = 2; ‖−s₀ − s₁‖ = ‖(−2, 0, 0, 2)‖ = √8 < ‖−2s₀‖ = 4; ‖0 − s‖ = 2
    assert quality.sample_pattern_distance == pytest.approx([2, math.sqrt(8), 2])
    assert quality.nearest_pattern.tolist() == [0, 1, 0]
    assert quality.pattern_distance == pytest.approx((4 + math.sqrt(8)) / 3)
    assert quality.sample_correlation == pytest.approx([1, -1, 0])
    assert quality.polarity == pytest.approx(1 / 3)
    assert quality.absolute_correlation == pytest.approx(2 / 3)
    # ‖3s₀‖ = 6, ‖2s₀‖ = 4, ‖s₀‖ = 2
    assert quality.pairwise_distance == pytest.approx(4)
    assert quality.samples == 3


def test_correlation_is_pearson_and_keeps_its_sign() -> None:
    generator = np.random.default_rng(2)
    states = generator.normal(3, 2, (20, 4)).astype(np.float32)
    found = measure_quality(states, FOUR).sample_correlation
    for state, value in zip(states, found, strict=True):
        r = [np.corrcoef(state.astype(float), s)[0, 1] for s in PATTERNS.astype(float)]
        assert value == pytest.approx(max(r, key=abs), abs=1e-12)
    assert (found < 0).any()
    assert (found > 0).any()


def test_without_mnist_images_the_classifier_is_left_out() -> None:
    quality = measure_quality(np.eye(4, dtype=np.float32), FOUR)
    assert math.isnan(quality.max_softmax)
    assert math.isnan(quality.target_fraction)
    assert math.isnan(quality.class_entropy)
    assert quality.class_counts is quality.sample_class is quality.sample_max_softmax is None
    summary = quality.summary()
    assert set(summary) == set(MEASURES)
    assert [name for name, value in summary.items() if value is None] == [
        "max_softmax",
        "target_fraction",
        "class_entropy",
    ]
    # own 28 × 28 images are no digits, and digits of another size are no input
    big = load_patterns(PatternSettings(), Machine())
    own = Patterns(big.patterns, big.labels, (28, 28))
    assert measure_quality(big.patterns, own).class_counts is None
    small = load_patterns(PatternSettings(resize=True), Machine(visible=196))
    assert measure_quality(small.patterns, small).class_counts is None


def test_classifier_measures_by_hand() -> None:
    patterns = load_patterns(PatternSettings(digits=(2, 7)), Machine())
    predicted = [2, 2, 7, 5]
    heights = [0.0, math.log(9), math.log(18), math.log(27)]  # probabilities 1/10, 1/2, 2/3, 3/4

    def network(inputs: np.ndarray) -> np.ndarray:
        logits = np.zeros((len(inputs), 10), np.float32)
        logits[np.arange(4), predicted] = heights
        logits[0, 2] = 1e-6  # the tie goes to 2
        return logits

    states = np.random.default_rng(0).normal(size=(4, 784)).astype(np.float32)
    quality = measure_quality(states, patterns, Classifier(network, {}))
    assert quality.class_counts == (0, 0, 2, 0, 0, 1, 0, 1, 0, 0)
    assert quality.sample_class is not None
    assert quality.sample_class.tolist() == predicted
    assert quality.sample_max_softmax == pytest.approx([1 / 10, 1 / 2, 2 / 3, 3 / 4], abs=1e-6)
    assert quality.max_softmax == pytest.approx((1 / 10 + 1 / 2 + 2 / 3 + 3 / 4) / 4, abs=1e-6)
    assert quality.target_fraction == pytest.approx(3 / 4)
    # fractions ½, ¼, ¼: ½ ln 2 + ½ ln 4 = 1.5 ln 2
    assert quality.class_entropy == pytest.approx(1.5 * math.log(2))


def test_a_panel_gives_ranges_by_hand() -> None:
    patterns = load_patterns(PatternSettings(digits=(2, 7)), Machine())

    def always(digit: int, height: float) -> Classifier:
        return Classifier(
            lambda x: np.tile(height * np.eye(10, dtype=np.float32)[digit], (len(x), 1)), {}
        )

    states = np.random.default_rng(0).normal(size=(4, 784)).astype(np.float32)
    members = {"right": always(7, math.log(9)), "wrong": always(5, math.log(27))}
    quality = measure_quality(states, patterns, always(2, math.log(18)), members)
    assert quality.max_softmax == pytest.approx(2 / 3, abs=1e-6)
    summary = quality.panel_summary()
    assert summary["max_softmax@wrong"] == pytest.approx(3 / 4, abs=1e-6)
    assert (summary["target_fraction@right"], summary["target_fraction@wrong"]) == (1, 0)
    ranges = quality.ranges()
    assert ranges["max_softmax"] == pytest.approx((1 / 2, 3 / 4), abs=1e-6)
    assert ranges["target_fraction"] == (0, 1)


def test_prototypes_as_samples_are_recognized() -> None:
    patterns = load_patterns(PatternSettings(per_digit=5), Machine())
    quality = measure_quality(patterns.patterns, patterns)
    assert quality.sample_class is not None
    assert quality.sample_class.tolist() == list(patterns.classes)
    assert quality.target_fraction == 1
    assert quality.class_entropy == pytest.approx(math.log(3))
    assert quality.pattern_distance == 0
    assert quality.nearest_pattern.tolist() == list(range(15))
    assert quality.polarity == 0
    negative = measure_quality(-patterns.patterns, patterns)
    assert negative.polarity == 1
    assert negative.absolute_correlation == pytest.approx(1)


def test_entropy_limits() -> None:
    assert entropy(np.array([0, 9, 0])) == 0
    assert entropy(np.full(10, 20)) == pytest.approx(math.log(10))


def test_distances_keep_float64_accuracy() -> None:
    # two nearly equal float32 states: ‖a‖² + ‖b‖² − 2ab would lose every digit
    a = np.full((1, 784), 1000, np.float32)
    b = np.nextafter(a, np.float32(2000))
    step = float(b[0, 0]) - 1000
    assert mean_pairwise_distance(np.concatenate([a, b])) == pytest.approx(28 * step, rel=1e-12)


def test_pairwise_distance_over_all_distinct_pairs() -> None:
    states = np.random.default_rng(4).normal(size=(7, 5))
    by_hand = [math.dist(states[i], states[j]) for i in range(7) for j in range(i)]
    assert len(by_hand) == 21
    assert mean_pairwise_distance(states) == pytest.approx(sum(by_hand) / 21)
    assert math.isnan(mean_pairwise_distance(states[:1]))


def test_refusals() -> None:
    with pytest.raises(UserError, match=r"shape \(2, 5\): expected \(samples, 4\)"):
        measure_quality(np.ones((2, 5), np.float32), FOUR)
    with pytest.raises(UserError, match="expected"):
        measure_quality(np.ones((0, 4), np.float32), FOUR)
    diverged = np.ones((3, 4), np.float32)
    diverged[2, 1] = np.inf
    with pytest.raises(UserError, match=r"1 of 3 samples are not finite \(first: sample 2\)"):
        measure_quality(diverged, FOUR)
