"""Statistics against hand-worked cases and closed forms of the Student distribution."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from scipy.special import stdtrit

from thermoloom.errors import UserError
from thermoloom.measures.statistics import (
    compare_pairs,
    estimate_mean,
    ks_distance,
    rate_interval,
    sign_test,
)


def test_three_pairs_by_hand() -> None:
    # d = −1, −2, −1: mean −4/3, variance 1/3, standard error 1/3, t = −4 with 2 degrees of freedom
    result = compare_pairs([10, 12, 14], [9, 10, 13])
    assert result.pairs == 3
    assert result.differences == (-1, -2, -1)
    assert result.mean_difference == pytest.approx(-4 / 3)
    # 97.5 % quantile for 2 degrees of freedom: 2q √(2/(1 − 4q²)) with q = 0.475
    t = 2 * 0.475 * math.sqrt(2 / (1 - 4 * 0.475**2))
    assert t == pytest.approx(4.302653, abs=1e-6)
    assert result.interval == pytest.approx((-4 / 3 - t / 3, -4 / 3 + t / 3))
    assert result.t_test_p == pytest.approx(1 - 4 / math.sqrt(18))
    assert result.sign_test_p == pytest.approx(0.25)
    assert result.mean_percent_difference == pytest.approx(-100 / 9)
    low, high = result.interval
    assert result.percent_interval == pytest.approx((100 * low / 12, 100 * high / 12))
    assert result.note == ""


def test_five_pairs_against_the_closed_form() -> None:
    generator = np.random.default_rng(3)
    batch = 137 + generator.normal(0, 2, 5)
    online = batch - 0.9 + generator.normal(0, 1, 5)
    result = compare_pairs(batch, online)
    d = online - batch
    error = math.sqrt(((d - d.mean()) ** 2).sum() / 4 / 5)
    t = abs(d.mean()) / error
    # Student's distribution function with 4 degrees of freedom
    u = 1 + t * t / 4
    tail = 0.5 - 3 / 8 * t / math.sqrt(u) * (1 - t * t / (12 * u))
    assert result.t_test_p == pytest.approx(2 * tail)
    half = stdtrit(4, 0.975) * error
    assert result.interval == pytest.approx((d.mean() - half, d.mean() + half))


def test_interval_covers_the_truth_at_its_rate() -> None:
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(400):
        pairs = generator.normal([0.0, 0.5], [1.0, 2.0], (5, 2))
        interval = compare_pairs(pairs[:, 0], pairs[:, 1]).interval
        assert interval is not None
        covered += interval[0] <= 0.5 <= interval[1]
    # 95 % of 400 is 380; five standard deviations of the binomial are 22
    assert abs(covered - 380) <= 22


def test_one_pair_has_no_interval_and_says_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compare_pairs([100.0], [94.0])
    assert result.interval is None
    assert result.t_test_p is None
    assert result.percent_interval is None
    assert result.sign_test_p == 1
    assert result.mean_percent_difference == pytest.approx(-6)
    assert "one pair" in result.note


def test_equal_differences_have_no_t_test() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compare_pairs([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
        unchanged = compare_pairs([1.0, 2.0], [1.0, 2.0])
    assert result.interval == (1, 1)
    assert result.t_test_p is None
    assert "equal" in result.note
    assert unchanged.sign_test_p == 1


def test_a_reference_of_mean_zero_has_no_percentages() -> None:
    assert compare_pairs([0.0, 2.0], [1.0, 1.5]).mean_percent_difference == pytest.approx(25)
    mean_zero = compare_pairs([-1.0, 1.0], [1.0, 1.5])
    assert mean_zero.mean_percent_difference is mean_zero.percent_interval is None


def test_interval_ends_stay_in_order_for_a_negative_reference() -> None:
    result = compare_pairs([-10.0, -12.0, -14.0], [-9.0, -12.5, -11.0])
    assert result.percent_interval is not None
    assert result.percent_interval[0] < result.percent_interval[1]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_sign_test_by_enumeration(n: int) -> None:
    # of all 2ⁿ equally likely sign patterns, those at least as uneven as the one observed
    for positive in range(n + 1):
        uneven = abs(2 * positive - n)
        patterns = [abs(sum(signs)) for signs in product((-1, 1), repeat=n)]
        expected = sum(p >= uneven for p in patterns) / 2**n
        differences = [1.5] * positive + [-0.5] * (n - positive)
        assert sign_test(differences) == pytest.approx(expected)


def test_sign_test_of_the_paper_and_ties() -> None:
    assert sign_test([-1, -2, -3, -4, -5]) == pytest.approx(0.0625)
    assert sign_test([-1, -2, 0, -3, -4, -5, 0]) == pytest.approx(0.0625)


def test_ks_distance_by_hand() -> None:
    assert ks_distance([1, 2, 3, 4], [2.5, 3.5, 4.5, 5.5]) == pytest.approx(0.5)
    assert ks_distance([0, 0, 1], [0, 1, 1]) == pytest.approx(1 / 3)
    assert ks_distance([1, 2], [1, 2]) == 0
    assert ks_distance([1], [2, 3]) == 1


def test_ks_distance_against_its_definition() -> None:
    generator = np.random.default_rng(5)
    a, b = generator.normal(0, 1, 37).round(1), generator.normal(0.4, 1, 53).round(1)
    worst = max(abs((a <= x).mean() - (b <= x).mean()) for x in np.concatenate([a, b]))
    assert ks_distance(a, b) == pytest.approx(worst)


def test_mean_and_error_by_hand() -> None:
    # 2, 4, 9: mean 5, squares 9 + 1 + 16 = 26 over n − 1 = 2
    result = estimate_mean([2, 4, 9])
    assert (result.count, result.mean) == (3, 5)
    assert result.sd == pytest.approx(math.sqrt(13))
    assert result.sem == pytest.approx(math.sqrt(13 / 3))
    single = estimate_mean([7])
    assert (single.mean, single.sd, single.sem) == (7, None, None)


@pytest.mark.parametrize(
    ("reference", "other", "message"),
    [
        ([1, 2], [1], "must come in pairs"),
        ([], [], "no values"),
        ([1, math.nan], [1, 2], "reference: some values are not finite"),
        ([1, 2], [1, math.inf], "other: some values are not finite"),
    ],
)
def test_refusals(reference: list[float], other: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare_pairs(reference, other)


def test_interval_of_a_rate_by_hand() -> None:
    """Wilson: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²))/(1 + z²/n)."""
    z, n, p = 1.959964, 50, 0.9
    centre, reach = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = ((centre - reach) / (1 + z * z / n), (centre + reach) / (1 + z * z / n))
    assert rate_interval(45, 50) == pytest.approx(expected, rel=1e-6)
    assert rate_interval(50, 50)[1] == pytest.approx(1)
