"""Quantization: grids by hand, the kernel against the plain rule by codes, unbiased rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from machines import MACHINES, path_of, random_parameters, relative_difference, some_path, trained
from plain_rules import learn_stepwise

from thermoloom.engines import Diverged, Path, engine
from thermoloom.engines.compiled.quantized_learner import QuantizedLearner
from thermoloom.engines.compiled.streams import stream_key
from thermoloom.errors import UserError
from thermoloom.machine.action import drive, step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import (
    Grid,
    coupling_ranges,
    levels,
    nonzero_fraction,
    quantize,
    quantized,
    top_level,
)
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Imperfections, Settings, Training
from thermoloom.threads import threads
from thermoloom.training.trainer import Trainee, train


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


@pytest.mark.parametrize("name", ["paper", "all stages"])
def test_stored_computer(name: str) -> None:
    """Each block of each stage on its own grid, an edge once, biases untouched."""
    machine = MACHINES[name]
    theta = random_parameters(machine, dtype=np.float32)
    assert quantized(theta, 32) is theta
    stored = quantized(theta, 4)
    stored.check()
    assert np.array_equal(stored["hidden_bias"], theta["hidden_bias"])
    assert coupling_ranges(stored) == coupling_ranges(theta)
    for block in theta.layout.couplings:
        for stage in range(machine.stages):
            given = block.of(theta.vector[stage]).astype(float)
            on_grid = np.rint(given / np.abs(given).max() * 7) / 7 * np.abs(given).max()
            assert np.array_equal(block.of(stored.vector[stage]), on_grid.astype(np.float32))


def test_nonzero_fraction_by_hand() -> None:
    hidden = np.zeros((3, 3))
    hidden[0, 2] = hidden[2, 0] = 1
    arrays = {
        "visible_hidden": np.array([[1, 0, 2], [0, 0, 3.0]]),
        "hidden_hidden": hidden,
        "hidden_bias": np.ones(3),
    }
    fractions = nonzero_fraction(Parameters.from_arrays(Machine(visible=2, hidden=3), arrays))
    assert fractions == {"visible_hidden": 3 / 6, "hidden_hidden": 1 / 3, "couplings": 4 / 9}


# Training on a grid

TINY = Machine(visible=11, hidden=9, duration=0.06)
RATE = 0.03
RANGES = (0.02, 0.05)
TIGHT = (0.003, 0.002)
"""So narrow that single updates cross levels and couplings reach the end of the grid."""


def quantized_learner(
    machine: Machine,
    rate: float,
    bits: int,
    ranges: tuple[float, float],
    stochastic: bool = False,
    seed: int = 0,
) -> QuantizedLearner:
    return QuantizedLearner(machine, rate, Grid(bits, ranges, stochastic), seed)


SPANS = "range_visible_hidden", "range_hidden_hidden"
ZERO = Parameters.zeros(TINY)
IN_STAGES = replace(TINY, stages=3, windows=(0.2, 0.5, 1.0))


@pytest.fixture
def path() -> Path:
    field = np.random.default_rng(5).normal(size=TINY.units).astype(np.float32)
    return engine().path(TINY, field, 3, 0)


def dyadic(path: Path, number: int = 0) -> Path:
    """States on a grid of 1/64: with small codes every sum of forces is exact in float32."""
    return path_of(TINY, (np.rint(path.states * 64) / 64).astype(np.float32), number)


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
    first, tiles = -(-v // 4) * 4, -(-h // 16)  # slot of the first hidden unit; tiles in a row
    for r in range(v + h):
        q, s = divmod(r if r < v else r - v + first, 4)
        low = philox(key, (q, step, trajectory, 1))[s] >> 25
        for column in range(h if r < v else r - v):
            b, lane = divmod(column, 16)
            i, t = divmod(lane, 2)
            word = philox(key, (8 * (q * tiles + b) + i, step, trajectory, 0))[s // 2 * 2 + t]
            m = (word >> 16 if s % 2 else word) & 0xFFFF
            out[r, column] = (m * 128 + low + 0.5) / 2**23
    hidden = np.tril(out[v:], -1)
    return out[:v].astype(np.float32), (hidden + hidden.T).astype(np.float32)


def learn_quantized_stepwise(
    machine: Machine,
    path: np.ndarray,
    learning_rate: float,
    bits: int,
    ranges: tuple[float, float],
    uniforms: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """The plain rule from θ = 0, in NumPy: codes of J_vh and J_hh, and b_h, for each stage.

    Stochastic where ``uniforms(step)`` gives a uniform for every J_vh and a symmetric array of them
    for J_hh. Equal to the last code where sums of forces are exact in float32, as for states on a
    dyadic grid; else up to the order of sums.
    """
    n, h, top = machine.visible, machine.hidden, top_level(bits)
    spacing_v, spacing_h = (span / top for span in ranges)
    per_level_v, per_level_h = (np.float32(learning_rate / s) for s in (spacing_v, spacing_h))
    drives = drive(step_constants(machine), path[:-1], path[1:])
    codes_v = np.zeros((machine.stages, n, h), np.float32)
    codes_h = np.zeros((machine.stages, h, h), np.float32)
    biases = np.zeros((machine.stages, h), np.float32)
    stage_of = [t for t, (first, last) in enumerate(machine.stage_windows)
                for _ in range(first, last)]  # fmt: skip
    for k, start in enumerate(drives):
        n_v, n_h, bias = (array[stage_of[k]] for array in (codes_v, codes_h, biases))
        x_v, x_h = path[k + 1, :n], path[k + 1, n:]
        c = machine.residual_scale
        r_v = (start[:n] + c * (spacing_v * (n_v @ x_h).astype(float))).astype(np.float32)
        force = spacing_v * (x_v @ n_v).astype(float) + spacing_h * (n_h @ x_h).astype(float)
        r_h = (start[n:] + c * (force + bias)).astype(np.float32)
        bias -= np.float32(learning_rate) * r_h
        down_v = np.outer(per_level_v * r_v, x_h) + np.outer(x_v, per_level_v * r_h)
        down_h = np.outer(per_level_h * r_h, x_h)
        down_h = down_h + down_h.T
        if uniforms is None:
            n_v -= np.rint(down_v)
            n_h -= np.rint(down_h)
        else:
            u_v, u_h = uniforms(k)
            n_v += np.floor(u_v - down_v)
            n_h += np.floor(u_h - down_h)
        np.clip(n_v, -top, top, out=n_v)
        np.clip(n_h, -top, top, out=n_h)
        np.fill_diagonal(n_h, 0)
    return {"visible_hidden": codes_v, "hidden_hidden": codes_h, "hidden_bias": biases}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("machine", [TINY, IN_STAGES], ids=["one stage", "stages"])
def test_kernel_equals_the_plain_rule_in_every_code(
    path: Path, machine: Machine, bits: int, stochastic: bool
) -> None:
    on_grid = dyadic(path, number=2)
    learner = quantized_learner(machine, RATE, bits, TIGHT, stochastic, seed=8)
    learned = learner.learn(Parameters.zeros(machine), on_grid)
    uniforms = (lambda step: rounding_uniforms(8, 2, step)) if stochastic else None
    expected = learn_quantized_stepwise(machine, on_grid.states, RATE, bits, TIGHT, uniforms)
    assert np.array_equal(learned["hidden_bias"], expected["hidden_bias"])
    for name, codes in learner.codes(learned).items():
        assert np.array_equal(codes, expected[name])
        assert np.abs(codes).max() == 2 ** (bits - 1) - 1  # some clipped, some not
        assert len(np.unique(codes)) > 2


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("stages", [1, 3])
def test_a_label_at_one_is_a_bias(path: Path, stages: int, stochastic: bool) -> None:
    """Equal to the bit, and labels that are not requested stay unchanged."""
    biased = replace(TINY, stages=stages)
    wiring = ("visible-hidden", "hidden-hidden", "hidden-label")
    labelled = replace(biased, labels=3, biases=(), wiring=wiring)
    start = random_parameters(biased, 0.01, dtype=np.float32)
    arrays = {name: start[name] for name in ("visible_hidden", "hidden_hidden")}
    words = np.full((stages, TINY.hidden, 3), 7, np.float32)
    words[..., 1] = start["hidden_bias"]
    with_labels = Parameters.from_arrays(labelled, arrays | {"hidden_label": words})
    asked = replace(path, word=np.array([0, 1, 0], np.float32))
    plain = quantized_learner(biased, RATE, 6, RANGES, stochastic).learn(start, path)
    found = quantized_learner(labelled, RATE, 6, RANGES, stochastic).learn(with_labels, asked)
    for name in arrays:
        assert np.array_equal(found[name], plain[name])
    assert np.array_equal(found["hidden_label"][..., 1], plain["hidden_bias"])
    assert np.all(found["hidden_label"][..., [0, 2]] == 7)
    assert np.any(plain["hidden_bias"] != start["hidden_bias"])


GRIDS = {
    "paper": TINY,
    "labels": replace(TINY, labels=3, label_amplitude=1.7, biases=("visible", "hidden")),
    "stages": IN_STAGES,
    "labels and stages": replace(IN_STAGES, labels=2, biases=()),
}


@pytest.mark.parametrize("machine", GRIDS.values(), ids=GRIDS.keys())
def test_kernel_follows_rounded_values_in_float64(machine: Machine) -> None:
    """J ← Δ round((J − α u)/Δ) on values, in float64: the same codes but for ties of round-off."""
    bits, path = 12, some_path(machine)
    top, wide = 2 ** (bits - 1) - 1, path.states.astype(np.float64)
    one_step = replace(machine, stages=1, windows=(), duration=machine.dt)
    learner = quantized_learner(machine, RATE, bits, RANGES)
    learned = learner.learn(Parameters.zeros(machine), path)
    found = learner.codes(learned)
    for stage, (first, last) in enumerate(machine.stage_windows):
        theta = Parameters.zeros(one_step, np.float64)
        for k in range(first, last):
            theta = learn_stepwise(theta, wide[k : k + 2], RATE, word=path.word)
            for name, span in learner.ranges.items():
                spacing = span / top
                theta[name][:] = np.clip(np.rint(theta[name] / spacing), -top, top) * spacing
        difference = np.concatenate(
            [
                (found[name][stage] - theta[name][0] / (span / top)).ravel()
                for name, span in learner.ranges.items()
            ]
        )
        assert np.abs(difference).max() < 1.01
        assert np.mean(np.abs(difference) > 0.01) < 0.01
        for block in learned.layout.blocks:
            if block.name not in learner.ranges:
                expected = theta[block.name][0]
                assert block.of(learned.vector[stage]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["everything", "restricted", "apart", "labels only"])
def test_wirings_without_a_grid_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=r"imperfections\.bits: .*wiring") as error:
        Grid.of(MACHINES[name], Imperfections(bits=8, **dict(zip(SPANS, RANGES, strict=True))))
    assert "\n" not in str(error.value)


def test_many_bits_approach_unquantized_training(path: Path) -> None:
    reference = learn_stepwise(ZERO, path.states, 1e-3)
    visible_hidden, hidden_hidden = coupling_ranges(reference)
    ranges = (3 * visible_hidden, 3 * hidden_hidden)  # room for what is larger on the way
    differences = []
    for bits in (8, 12, 16, 20):
        learner = quantized_learner(TINY, 1e-3, bits, ranges, stochastic=True)
        differences.append(relative_difference(learner.learn(ZERO, path), reference))
    assert differences[3] < 1e-4
    # Errors are of the size of the spacing, a factor 16 from one to the next.
    assert all(4 < a / b < 64 for a, b in pairwise(differences))


def test_stochastic_rounding_is_unbiased() -> None:
    """One step from θ = 0: each code is ⌊y⌋ or ⌊y⌋ + 1, the latter with probability y − ⌊y⌋."""
    machine = replace(TINY, visible=300, hidden=300, duration=0.001)
    field = np.random.default_rng(2).normal(size=machine.units).astype(np.float32)
    for spacing in (1e-2, 1e-4, 2e-6):  # y from a thousandth of a level to several
        top = 2**15 - 1
        learner = quantized_learner(machine, 4e-4, 16, (spacing * top,) * 2, True, seed=1)
        path = engine().path(machine, field, 3, 0)
        learned = learner.learn(Parameters.zeros(machine), path)
        r, x = path.prepared[0].astype(float), path.states[1].astype(float)
        y = -4e-4 / spacing * (np.outer(r, x) + np.outer(x, r))
        found_v, found_h = (codes[0] for codes in learner.codes(learned).values())
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
    path: Path,
) -> None:
    found = []
    for stochastic in (False, True):
        learner, theta = quantized_learner(TINY, 1e-3, 4, (1.0, 1.0), stochastic), ZERO
        for number in range(3):
            theta = learner.learn(theta, replace(path, number=number))
        found.append(theta)
    lost, kept = found
    nothing = {"visible_hidden": 0, "hidden_hidden": 0, "couplings": 0}
    assert nonzero_fraction(lost) == nothing
    assert np.any(lost["hidden_bias"])
    assert 0 < nonzero_fraction(kept)["couplings"] < 1


@pytest.mark.parametrize("stochastic", [False, True])
def test_threads_do_not_change_a_bit(stochastic: bool) -> None:
    machine = replace(TINY, visible=37, hidden=23)
    start, own = random_parameters(machine, 0.01, dtype=np.float32), some_path(machine)
    learner = quantized_learner(machine, RATE, 6, RANGES, stochastic)
    found = []
    for count in (1, 2, 3, 8):
        with threads(count):
            found.append(learner.learn(start, own))
    assert all(other.same_as(found[0]) for other in found[1:])
    assert not found[0].same_as(start)


def test_trained_couplings_keep_symmetry_and_range(path: Path) -> None:
    for stochastic in (False, True):
        learner = quantized_learner(TINY, RATE, 4, TIGHT, stochastic)
        learned = learner.learn(ZERO, path)
        learned.check()
        assert coupling_ranges(learned) == tuple(np.float32(TIGHT).tolist())
        assert set(np.abs(learner.codes(learned)["visible_hidden"]).ravel()) <= set(range(8))


@pytest.mark.parametrize("bits", [4, 16, 24])
@pytest.mark.parametrize("stochastic", [False, True])
def test_codes_survive_being_stored_as_values(path: Path, bits: int, stochastic: bool) -> None:
    """θ holds values, training moves integers: nothing is lost on the way there and back."""
    learner = quantized_learner(TINY, RATE, bits, RANGES, stochastic, seed=4)
    learned = learner.learn(ZERO, path)
    for name, span in learner.ranges.items():
        assert np.array_equal(quantize(learned[name], bits, span), learned[name])
    another = quantized_learner(TINY, RATE, bits, RANGES, stochastic, seed=4)
    second = replace(path, number=1)
    assert another.learn(learned, second).same_as(learner.learn(learned, second))
    # the number of a path counts in the rounding stream, and nowhere else
    assert learner.learn(ZERO, second).same_as(learned) == (not stochastic)


def test_couplings_off_the_grid_are_rounded_to_nearest_first(path: Path) -> None:
    start = random_parameters(TINY, 0.01, dtype=np.float32)
    learner = quantized_learner(TINY, RATE, 6, RANGES)
    on_grid = start.copy()
    for name, span in learner.ranges.items():
        on_grid[name][:] = quantize(start[name], 6, span)
        assert np.array_equal(learner.codes(start)[name], levels(start[name], 6, span))
    assert not on_grid.same_as(start)
    assert learner.learn(start, path).same_as(learner.learn(on_grid, path))


def test_residual_errors_enter(path: Path) -> None:
    errors = np.random.default_rng(0).normal(size=(TINY.steps, TINY.units)).astype(np.float32)
    learner = quantized_learner(TINY, RATE, 8, RANGES)
    noisy = learner.learn(ZERO, path, errors)
    assert not noisy.same_as(learner.learn(ZERO, path))
    assert noisy.same_as(learner.learn(ZERO, replace(path, prepared=path.prepared + errors)))


def test_non_finite_residuals_are_a_divergence(path: Path) -> None:
    errors = np.zeros((TINY.steps, TINY.units), np.float32)
    errors[20, 3] = np.inf
    with pytest.raises(Diverged):
        quantized_learner(TINY, RATE, 8, RANGES).learn(ZERO, path, errors)


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
    plain = trained(Settings(machine=TINY, training=settings().training), FIELDS).parameters
    unused = settings(range_visible_hidden=0.02, range_hidden_hidden=0.05, rounding="stochastic")
    assert trained(unused, FIELDS).parameters.same_as(plain)


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
    found = [trained(settings(**variant), FIELDS).parameters for variant in variants]
    for i, one in enumerate(found):
        assert not any(one.same_as(other) for other in found[:i])


def test_interrupted_training_continues_to_the_bit() -> None:
    chosen = settings(**GRID, rounding="stochastic")
    kept: list[tuple[int, dict[str, np.ndarray]]] = []
    whole = trained(
        chosen,
        FIELDS,
        on_cycle=lambda present: kept.append((present[0].cycle, present[0].arrays())),
    )
    cycle, arrays = kept[0]
    trainee = Trainee.restore(chosen, arrays, cycle)
    train([trainee], Drive(FIELDS))
    assert trainee.parameters.same_as(whole.parameters)


def test_update_noise_on_a_grid_is_refused() -> None:
    with pytest.raises(UserError, match="update_noise"):
        engine().learner(settings(**GRID, update_noise=0.1))
