"""Quantization: grids by hand, the kernel against the plain rule by codes, unbiased rounding."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from conftest import random_computer, relative_difference

from thermoloom.config import Imperfections, Settings, Training
from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.machine.computer import Computer
from thermoloom.streams import stream_key
from thermoloom.training.learner import Diverged, Learner, drive, learn_stepwise
from thermoloom.training.noising import noising_path
from thermoloom.training.quantization import (
    QuantizedLearner,
    coupling_ranges,
    learn_quantized_stepwise,
    nonzero_fraction,
    quantize,
    quantized_computer,
)
from thermoloom.training.trainer import Trainee, make_learner, train, train_together


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# Storage


def test_two_bits_are_three_levels() -> None:
    """top = 1: everything beyond half of A_max goes to ±A_max, a half to the even neighbour, 0."""
    given = row(-4, -2.5, -2, -1.5, 0, 1.9, 2, 2.1, 3)
    np.testing.assert_array_equal(quantize(given, 2), row(-4, -4, 0, 0, 0, 0, 0, 4, 4))


def test_a_tensor_of_two_levels_is_kept() -> None:
    """±A_max lies on every grid."""
    given = row(0.3, -0.3, -0.3, 0.3)
    for bits in (2, 3, 8, 24):
        np.testing.assert_array_equal(quantize(given, bits), given)


def test_three_bits_are_seven_levels() -> None:
    """top = 3 and A_max = 6: levels −6, −4, …, 6; 1, 3 and 5 are halves: 0, 4 and 4."""
    given = row(-6, -5.1, -5, -3, -1, 0.9, 1, 1.1, 3, 5, 5.1)
    expected = row(-6, -6, -4, -4, 0, 0, 0, 2, 4, 4, 6)
    np.testing.assert_array_equal(quantize(given, 3), expected)


def test_a_given_range_clips() -> None:
    np.testing.assert_array_equal(quantize(row(-5, -0.4, 0.6, 9), 2, 1.0), row(-1, 0, 1, 1))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8, 16, 24])
def test_grid_spacing_range_and_idempotence(bits: int) -> None:
    given = np.random.default_rng(0).normal(size=500).astype(np.float32)
    largest, top = np.abs(given).max(), 2 ** (bits - 1) - 1
    stored = quantize(given, bits)
    assert stored.dtype == np.float32
    assert np.abs(stored).max() == largest
    assert np.abs(stored - given).max() <= largest / top * (0.5 + 1e-6) + 1e-7
    assert len(np.unique(stored)) <= 2 * top + 1
    np.testing.assert_array_equal(quantize(stored, bits), stored)


def test_zero_stays_zero_and_nonsense_is_refused() -> None:
    np.testing.assert_array_equal(quantize(row(0, 0), 4), row(0, 0))
    with pytest.raises(UserError, match="not finite"):
        quantize(row(1, np.nan), 4)
    for bits in (1, 25, 31, 33):
        with pytest.raises(UserError, match="bits"):
            quantize(row(1), bits)


def test_stored_computer(small: Machine) -> None:
    """Each tensor on its own grid, an edge once, biases untouched."""
    computer = random_computer(small).astype(np.float32)
    assert quantized_computer(computer, 32) is computer
    stored = quantized_computer(computer, 4)
    stored.check(small)
    assert np.array_equal(stored.hidden_bias, computer.hidden_bias)
    assert coupling_ranges(stored) == coupling_ranges(computer)
    largest = np.abs(computer.hidden_hidden).max()
    for a in range(small.hidden):
        for b in range(a):
            level = np.rint(float(computer.hidden_hidden[a, b]) / largest * 7)
            assert stored.hidden_hidden[b, a] == np.float32(level / 7 * largest)


def test_nonzero_fraction_by_hand() -> None:
    hidden = np.zeros((3, 3))
    hidden[0, 2] = hidden[2, 0] = 1
    fractions = nonzero_fraction(Computer(np.array([[1, 0, 2], [0, 0, 3.0]]), hidden, np.ones(3)))
    assert fractions == {"visible_hidden": 3 / 6, "hidden_hidden": 1 / 3, "couplings": 4 / 9}


# Training on a grid

TINY = Machine(visible=11, hidden=9, duration=0.06)
RATE = 0.03
RANGES = (0.02, 0.05)
TIGHT = (0.003, 0.002)
"""So narrow that single updates move by levels and couplings reach the end of the grid."""


@pytest.fixture
def path() -> np.ndarray:
    field = np.random.default_rng(5).normal(size=TINY.units).astype(np.float32)
    return noising_path(TINY, field, 3, 0)


@pytest.fixture
def dyadic_path(path: np.ndarray) -> np.ndarray:
    """States on a grid of 1/64: with small codes every sum of forces is exact in float32."""
    return (np.rint(path * 64) / 64).astype(np.float32)


@cache
def philox(key: int, counter: tuple[int, int, int, int]) -> tuple[int, ...]:
    """Philox4x32-10 from its description, in Python integers."""
    mask = 2**32 - 1
    c, k = list(counter), [key & mask, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return tuple(c)


def rounding_uniforms(seed: int, trajectory: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every coupling of TINY, as documented, from Python integers."""
    key = int(stream_key(seed, "rounding"))
    v, h = TINY.visible, TINY.hidden
    out = np.zeros((v + h, h))
    for r in range(v + h):
        low = philox(key, (r // 4, step, trajectory, 1))[r % 4] >> 25
        columns = h if r < v else r - v
        each = -(-columns // 8)
        for column in range(columns):
            half, i = divmod(column, each)
            word = philox(key, (r * -(-h // 8) + i, step, trajectory, 0))[half // 2]
            m = (word >> 16 if half % 2 else word) & 0xFFFF
            out[r, column] = (m * 128 + low + 0.5) / 2**23
    hidden = np.tril(out[v:], -1)
    return out[:v].astype(np.float32), (hidden + hidden.T).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("stochastic", [False, True])
def test_kernel_equals_the_plain_rule_in_every_code(
    dyadic_path: np.ndarray, bits: int, stochastic: bool
) -> None:
    learner = QuantizedLearner(TINY, RATE, bits, TIGHT, stochastic, seed=8, trajectory=2)
    learner.learn(dyadic_path)
    uniforms = (lambda step: rounding_uniforms(8, 2, step)) if stochastic else None
    codes_v, codes_h, bias = learn_quantized_stepwise(
        TINY, dyadic_path, RATE, bits, TIGHT, uniforms
    )
    found_v, found_h = learner.codes
    assert np.array_equal(found_v, codes_v)
    assert np.array_equal(found_h, codes_h)
    assert np.array_equal(learner.computer.hidden_bias, bias)
    for codes in (codes_v, codes_h):  # some clipped, some not
        assert np.abs(codes).max() == 2 ** (bits - 1) - 1
        assert len(np.unique(codes)) > 2


def test_kernel_follows_rounded_values_in_float64(path: np.ndarray) -> None:
    """J ← Δ round((J − α u)/Δ) on values, in float64: the same codes but for ties of round-off."""
    bits, wide = 12, path.astype(np.float64)
    top, n = 2 ** (bits - 1) - 1, TINY.visible
    spacings = [range_ / top for range_ in RANGES]
    theta = Computer.zeros(TINY, np.float64)
    for k in range(TINY.steps):
        theta = learn_stepwise(TINY, theta, wide[k : k + 2], RATE)
        on_grid = [
            np.clip(np.rint(array / spacing), -top, top) * spacing
            for array, spacing in zip(
                (theta.visible_hidden, theta.hidden_hidden), spacings, strict=True
            )
        ]
        theta = Computer(*on_grid, theta.hidden_bias)
    learner = QuantizedLearner(TINY, RATE, bits, RANGES)
    learner.learn(path)
    found_v, found_h = learner.codes
    difference = np.concatenate(
        [
            (found_v - theta.visible_hidden / spacings[0]).ravel(),
            (found_h - theta.hidden_hidden / spacings[1]).ravel(),
        ]
    )
    assert np.abs(difference).max() < 1.01
    assert np.mean(np.abs(difference) > 0.01) < 0.01
    assert learner.computer.hidden_bias == pytest.approx(theta.hidden_bias, rel=1e-4)
    assert n == len(found_v)


def test_many_bits_approach_unquantized_training(path: np.ndarray) -> None:
    reference = learn_stepwise(TINY, Computer.zeros(TINY), path, 1e-3)
    visible_hidden, hidden_hidden = coupling_ranges(reference)
    ranges = (3 * visible_hidden, 3 * hidden_hidden)  # room for what is larger on the way
    differences = []
    for bits in (8, 12, 16, 20):
        learner = QuantizedLearner(TINY, 1e-3, bits, ranges, stochastic=True)
        learner.learn(path)
        differences.append(relative_difference(learner.computer, reference))
    assert differences[3] < 1e-4
    # Errors are of the size of the spacing, a factor 16 from one to the next.
    assert all(4 < a / b < 64 for a, b in pairwise(differences))


def test_stochastic_rounding_is_unbiased() -> None:
    """One step from θ = 0: each code is ⌊y⌋ or ⌊y⌋ + 1, the latter with probability y − ⌊y⌋."""
    machine = replace(TINY, visible=300, hidden=300, duration=0.001)
    field = np.random.default_rng(2).normal(size=machine.units).astype(np.float32)
    for spacing in (1e-2, 1e-4, 2e-6):  # y from a thousandth of a level to several
        top = 2**15 - 1
        learner = QuantizedLearner(machine, 4e-4, 16, (spacing * top,) * 2, True, seed=1)
        path = noising_path(machine, field, 3, 0)
        learner.learn(path)
        r, x = drive(machine, path)[0].astype(float), path[1].astype(float)
        y = -4e-4 / spacing * (np.outer(r, x) + np.outer(x, r))
        found_v, found_h = learner.codes
        lower = np.tril_indices(machine.hidden, -1)
        n = np.concatenate([found_v.ravel(), found_h[lower]])
        y = np.concatenate([y[:300, 300:].ravel(), y[300:, 300:][lower]])
        up = n - np.floor(y)
        assert set(np.unique(up)) == {0, 1}
        part = y - np.floor(y)
        for low in np.arange(0, 1, 0.1):  # in every tenth of the fraction, and over all
            chosen = (part >= low) & (part < low + 0.1)
            variance = (part * (1 - part))[chosen].sum()
            assert abs((up - part)[chosen].sum()) < 4 * np.sqrt(variance) + 1e-9
        # Uniforms are independent: neighbours in a row are rounded independently.
        error = ((found_v.ravel() - y[: found_v.size]) / np.std(n - y)).reshape(found_v.shape)
        for correlated in (error[:, 1:] * error[:, :-1], error[1:] * error[:-1]):
            assert abs(correlated.mean()) < 5 / np.sqrt(correlated.size)


def test_small_moves_are_lost_to_the_nearest_level_but_not_to_stochastic_rounding(
    path: np.ndarray,
) -> None:
    lost, kept = (
        QuantizedLearner(TINY, 1e-3, 4, (1.0, 1.0), stochastic) for stochastic in (False, True)
    )
    for _ in range(3):
        lost.learn(path)
        kept.learn(path)
    nothing = {"visible_hidden": 0, "hidden_hidden": 0, "couplings": 0}
    assert lost.nonzero_fraction == nothing
    assert np.any(lost.computer.hidden_bias)
    assert 0 < kept.nonzero_fraction["couplings"] < 1


def test_trained_couplings_keep_symmetry_and_range(path: np.ndarray) -> None:
    for stochastic in (False, True):
        learner = QuantizedLearner(TINY, RATE, 4, TIGHT, stochastic)
        learner.learn(path)
        learner.computer.check(TINY)
        assert coupling_ranges(learner.computer) == tuple(np.float32(TIGHT).tolist())
        assert set(np.abs(learner.codes[0]).ravel()) <= set(range(8))


@pytest.mark.parametrize("bits", [4, 16, 24])
@pytest.mark.parametrize("stochastic", [False, True])
def test_a_restored_learner_continues_to_the_bit(
    path: np.ndarray, bits: int, stochastic: bool
) -> None:
    whole = QuantizedLearner(TINY, RATE, bits, RANGES, stochastic, seed=4)
    whole.learn(path)
    restored = QuantizedLearner(TINY, RATE, bits, RANGES, stochastic, 4, whole.computer, 1)
    assert restored.computer.same_as(whole.computer)
    whole.learn(path)
    restored.learn(path)
    assert restored.computer.same_as(whole.computer)
    again = QuantizedLearner(TINY, RATE, bits, RANGES, stochastic, 4, trajectory=1)
    again.learn(path)
    first = QuantizedLearner(TINY, RATE, bits, RANGES, stochastic, 4)
    first.learn(path)
    assert again.computer.same_as(first.computer) == (not stochastic)


def test_residual_errors_enter(path: np.ndarray) -> None:
    errors = np.random.default_rng(0).normal(size=(TINY.steps, TINY.units)).astype(np.float32)
    plain, noisy, driven = (QuantizedLearner(TINY, RATE, 8, RANGES) for _ in range(3))
    plain.learn(path)
    noisy.learn(path, errors)
    driven.learn(path, drives=drive(TINY, path) + errors)
    assert not noisy.computer.same_as(plain.computer)
    assert noisy.computer.same_as(driven.computer)


def test_non_finite_residuals_are_a_divergence(path: np.ndarray) -> None:
    errors = np.zeros((TINY.steps, TINY.units), np.float32)
    errors[20, 3] = np.inf
    with pytest.raises(Diverged):
        QuantizedLearner(TINY, RATE, 8, RANGES).learn(path, errors)


# In training by settings


def settings(**imperfections: object) -> Settings:
    return Settings(
        machine=TINY,
        training=Training(cycles=3, learning_rate=RATE, validation_every=1),
        imperfections=Imperfections(**imperfections),  # type: ignore[arg-type]
    )


FIELDS = np.random.default_rng(5).normal(size=(2, TINY.units)).astype(np.float32)
GRID = {"bits": 6, "range_visible_hidden": 0.02, "range_hidden_hidden": 0.05}


def test_no_grid_is_the_plain_learner_to_the_bit() -> None:
    assert isinstance(make_learner(settings(bits=32)), Learner)
    plain = train(Settings(machine=TINY, training=settings().training), FIELDS).computer
    unused = settings(range_visible_hidden=0.02, range_hidden_hidden=0.05, rounding="stochastic")
    assert train(unused, FIELDS).computer.same_as(plain)


def test_every_knob_changes_something() -> None:
    variants = [
        {},
        GRID,
        GRID | {"bits": 7},
        GRID | {"rounding": "stochastic"},
        GRID | {"range_visible_hidden": 0.03},
        GRID | {"range_hidden_hidden": 0.06},
        GRID | {"residual_noise": 0.1},
        GRID | {"residual_offset": 0.1},
    ]
    computers = [train(settings(**variant), FIELDS).computer for variant in variants]
    for i, one in enumerate(computers):
        assert not any(one.same_as(other) for other in computers[:i])


def test_interrupted_training_continues_to_the_bit() -> None:
    chosen = settings(**GRID, rounding="stochastic")
    whole = train(chosen, FIELDS).computer
    kept: list[tuple[int, dict[str, np.ndarray]]] = []
    train(chosen, FIELDS, lambda trainee: kept.append((trainee.cycle, trainee.arrays())))
    cycle, arrays = kept[0]
    trainee = Trainee.restore(chosen, arrays, cycle)
    for _ in train_together([trainee], FIELDS):
        pass
    assert trainee.computer.same_as(whole)


def test_update_noise_on_a_grid_is_refused() -> None:
    with pytest.raises(UserError, match="update_noise"):
        make_learner(settings(**GRID, update_noise=0.1))
