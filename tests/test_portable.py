"""The portable engine in every array library: against the stepwise rule and the compiled engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from machines import (
    MACHINES,
    learned_once,
    random_parameters,
    relative_difference,
    some_fields,
    some_word,
)
from plain_rules import learn_stepwise
from test_update_noise import force_matrix, states_of

from thermoloom.engines import Diverged, compiled, engine
from thermoloom.engines.compiled.residual_errors import residual_errors
from thermoloom.engines.compiled.streams import normals
from thermoloom.engines.library import library
from thermoloom.engines.portable import PortableEngine, couplings, select, update_noise
from thermoloom.engines.portable.learner import Learner, learn_together
from thermoloom.errors import UserError
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.energy import coupling_gradient
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import levels
from thermoloom.settings import Settings
from thermoloom.streams import Stream, philox, round_keys

INSTALLED = [name for name in ("numpy", "torch", "jax") if find_spec(name)]
every_library = pytest.mark.parametrize("name", INSTALLED)
every_case = pytest.mark.parametrize(
    ("name", "machine"),
    [
        pytest.param(name, machine, id=f"{name}-{wiring}")
        for name in INSTALLED
        for wiring, machine in MACHINES.items()
        if name != "jax" or wiring == "all stages"  # which has everything; JAX compiles for seconds
    ],
)
PAPER, EVERYTHING = MACHINES["paper"], MACHINES["all stages"]
FLOAT64 = select("numpy", "cpu", "float64")


def settings_of(machine: Machine, values: dict[str, Any] | None = None) -> Settings:
    values = values or {}
    training = {"learning_rate": 0.01} | values.get("training", {})
    return Settings(machine=machine).updated({**values, "training": training})


def three_cycles(engine: Any, settings: Settings) -> Parameters:
    """θ after three paths, each from a field of its own."""
    machine, learner = settings.built, engine.learner(settings)
    theta = Parameters.zeros(settings.machine)
    state = learner.init(theta)
    for cycle, field in enumerate(some_fields(machine)):
        path = engine.path(machine, field, 1, cycle, some_word(machine))
        theta, state = learner.update(theta, state, path)
    return theta


# Streams


@every_library
def test_words_are_the_published_ones(name: str) -> None:
    """Test vectors of Random123 (philox4x32, 10 rounds), as in ``test_streams``."""
    array_library = library(name, "cpu", "float32")
    for key, counter, expected in (
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        words = [array_library.array(np.array([c], np.int64), array_library.word) for c in counter]
        keys = array_library.array(np.array(round_keys(key), np.int64), array_library.word)
        with np.errstate(over="ignore"):
            found = philox(array_library, keys, words)
        assert [int(array_library.numpy(word)[0]) for word in found] == list(expected)


@every_library
def test_words_are_equal_in_all_libraries(name: str) -> None:
    drawn = []
    for array_library in (library("numpy", "cpu", "float32"), library(name, "cpu", "float32")):
        stream = Stream(array_library, 7, "noising")
        units = array_library.array(np.arange(1000), array_library.word)
        words = philox(array_library, stream.keys, (units, units + 3, units, 0 * units))
        drawn.append([array_library.numpy(word).astype(np.int64) for word in words])
    np.testing.assert_array_equal(*drawn)


@every_library
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_normals_are_those_of_the_compiled_engine(name: str, precision: str) -> None:
    if (name, precision) == ("jax", "float64"):
        pytest.skip("would enable 64 bits in JAX for all tests after it")
    array_library = library(name, "cpu", precision)
    stream = Stream(array_library, 7, "noising")
    drawn = array_library.numpy(stream.normals([5, 11], 3, 21, 300))  # begins within a block
    assert drawn.dtype == precision
    for i, trajectory in enumerate((5, 11)):
        expected = normals(7, "noising", trajectory, 24, 300)[3:]
        np.testing.assert_allclose(drawn[:, i], expected, atol=2e-6)


# Paths


@every_case
def test_paths_are_those_of_the_compiled_engine(name: str, machine: Machine) -> None:
    portable, fields = select(name), some_fields(machine)
    together = portable.paths(machine, fields, 1, [4, 0, 9], purpose="validation")
    for path, number, field in zip(together, (4, 0, 9), fields, strict=True):
        expected = compiled.path(machine, field, 1, number, purpose="validation")
        np.testing.assert_allclose(path.states, expected.states, atol=2e-6)
        assert (path.number, path.states.dtype) == (number, np.float32)
    alone = portable.path(machine, fields[1], 1, 0, purpose="validation")
    np.testing.assert_allclose(alone.states, together[1].states, atol=1e-6)


# Learning


@pytest.mark.parametrize("period", [1, 7, 70, 200])
@pytest.mark.parametrize("name", MACHINES)
def test_blocks_are_the_stepwise_rule_in_float64(name: str, period: int) -> None:
    """To float64 round-off: nothing is approximated."""
    machine = MACHINES[name]
    settings = settings_of(machine, {"training": {"rule": "delayed", "period": period}})
    path = FLOAT64.path(machine, some_fields(machine)[0], 1, 0, some_word(machine))
    start = random_parameters(machine, 0.1)
    learned = learned_once(FLOAT64.learner(settings), start, path)
    expected = learn_stepwise(start, path.states, 0.01, period, word=path.word)
    assert learned.vector.dtype == np.float64
    assert relative_difference(learned, expected) < 1e-12
    learned.check()


@every_case
@pytest.mark.parametrize("rule", ["online", "batch"])
def test_training_agrees_with_the_compiled_engine(name: str, machine: Machine, rule: str) -> None:
    settings = settings_of(machine, {"training": {"rule": rule}})
    learned = three_cycles(select(name), settings)
    assert relative_difference(learned, three_cycles(compiled, settings)) < 1e-5
    learned.check()


@pytest.mark.parametrize("rate", [0.3, 5.0, 100.0])
def test_large_learning_rates_shorten_blocks(rate: float) -> None:
    """αcB|x|² ≫ 1 would not contract."""
    field = 3 * some_fields(PAPER)[0]
    path = FLOAT64.path(PAPER, field, 1, 0)
    settings = settings_of(PAPER, {"training": {"learning_rate": rate}})
    learner: Any = FLOAT64.learner(settings)
    learned = learned_once(learner, Parameters.zeros(PAPER), path)
    expected = learn_stepwise(Parameters.zeros(PAPER), path.states, rate)
    assert learner.block_length(path.states[None, 1:], rate) < 64
    assert relative_difference(learned, expected) < 1e-10


UNEVEN = dict.fromkeys(("spread_J2", "spread_J4", "spread_mobility", "spread_temperature"), 0.2)
DELAYED = {"rule": "delayed", "period": 7}
SPARSE = replace(EVERYTHING, topology="random", degree=6)
CASES: dict[str, tuple[Machine, dict[str, Any]]] = {
    "independent errors": (PAPER, {"imperfections": {"residual_noise": 0.5}}),
    "offset": (PAPER, {"imperfections": {"residual_offset": 0.1}}),
    "correlated errors": (
        EVERYTHING,
        {"imperfections": {"residual_noise": 0.5, "residual_correlation": 0.9}},
    ),
    "sparse": (SPARSE, {}),
    "sparse, delayed": (SPARSE, {"training": DELAYED}),
    "uneven units": (EVERYTHING, {"device": {**UNEVEN, "drift": 0.01}}),
    "couplings": (EVERYTHING, {"device": {"gain_error": 0.2, "offset": 0.05, "stuck": 0.1}}),
    "one way": (EVERYTHING, {"device": {"gain_error": 0.2, "non_reciprocity": 0.3}}),
    "one way, delayed": (SPARSE, {"device": {"non_reciprocity": 0.3}, "training": DELAYED}),
    "decay": (PAPER, {"training": {"learning_rate_decay": 1.0}}),
}
every_imperfection = pytest.mark.parametrize(
    ("name", "case"),
    [
        (name, case)
        for name in INSTALLED
        for case in CASES
        if name != "jax" or case in ("correlated errors", "one way")
    ],
)


@every_imperfection
def test_imperfect_training_agrees_with_the_compiled_engine(name: str, case: str) -> None:
    settings = settings_of(*CASES[case])
    learned = three_cycles(select(name), settings)
    assert relative_difference(learned, three_cycles(compiled, settings)) < 1e-5


@pytest.mark.parametrize("case", [case for case in CASES if case != "decay"])
def test_imperfect_training_is_the_stepwise_rule_in_float64(case: str) -> None:
    settings = settings_of(*CASES[case])
    built, errors = settings.built, None
    path = FLOAT64.path(built, some_fields(built)[0], 1, 0, some_word(built))
    if "imperfections" in CASES[case][1]:
        seed = settings.training.seed
        errors = residual_errors(settings.machine, settings.imperfections, seed, 0)
    start = Parameters.zeros(settings.machine)
    learned = learned_once(FLOAT64.learner(settings), start, path)
    expected = learn_stepwise(
        start.on(built), path.states, 0.01, settings.period, errors, path.word
    )
    expected = built.drifted_parameters(expected) if settings.device.drift else expected  # type: ignore[attr-defined]
    # residual errors of the compiled engine are float32
    assert relative_difference(learned, expected) < (1e-12 if errors is None else 1e-6)


@every_library
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("machine", [PAPER, MACHINES["labels"]], ids=["paper", "labels"])
def test_quantized_training_has_the_levels_of_the_compiled_engine(
    name: str, rounding: str, machine: Machine
) -> None:
    """But where round-off crosses a boundary between two: the share of levels that differ."""
    ranges = {"range_visible_hidden": 0.05, "range_hidden_hidden": 0.07}
    imperfections = {"bits": 6, "rounding": rounding, **ranges}
    settings = settings_of(machine, {"imperfections": imperfections})
    ours, theirs = (three_cycles(each, settings) for each in (select(name), compiled))
    for block, largest in (("visible_hidden", 0.05), ("hidden_hidden", 0.07)):
        found, expected = (levels(theta[block], 6, largest) for theta in (ours, theirs))
        assert np.mean(found != expected) < 0.01
        assert len(np.unique(expected)) > 5
        np.testing.assert_array_equal(ours[block], (found / 31 * largest).astype(np.float32))
    assert np.abs(ours["hidden_bias"] - theirs["hidden_bias"]).max() < 1e-4
    ours.check()


@every_library
def test_trainings_side_by_side_are_those_alone(name: str) -> None:
    """Other seeds, rates and errors; a leading axis of three."""
    portable, machine = select(name), EVERYTHING
    training = [{"learning_rate": rate, "seed": seed} for rate, seed in ((0.01, 1), (0.02, 2))]
    errors = {"residual_noise": 0.3}
    settings = [settings_of(machine, {"training": values}) for values in training]
    settings.append(settings_of(machine, {"imperfections": errors}))
    learners: list[Any] = [portable.learner(each) for each in settings]
    fields, word = some_fields(machine), some_word(machine)
    paths = [portable.path(machine, fields[i], i, i, word) for i in range(3)]
    thetas = [random_parameters(machine, 0.1, i, np.float32) for i in range(3)]
    together = learn_together(learners, thetas, [{}] * 3, paths)
    for learner, theta, path, (learned, _) in zip(learners, thetas, paths, together, strict=True):
        assert relative_difference(learned, learned_once(learner, theta, path)) < 2e-6


@every_library
def test_what_is_given_is_not_touched_and_divergence_is_a_result(name: str) -> None:
    portable = select(name)
    start, path = random_parameters(PAPER, dtype=np.float32), some_path_of(portable, PAPER)
    theta, states = start.copy(), path.states.copy()
    learner = portable.learner(settings_of(PAPER))
    first = learned_once(learner, start, path)
    assert first.same_as(learned_once(learner, start, path))
    assert start.same_as(theta)
    assert np.array_equal(path.states, states)
    wild = settings_of(PAPER, {"training": {"learning_rate": 1e30}})
    with pytest.raises(Diverged):
        learned_once(portable.learner(wild), start, path)


def test_trainings_on_a_grid_have_their_own_rounding() -> None:
    grid = {"bits": 6, "range_visible_hidden": 0.05, "range_hidden_hidden": 0.07}
    values = {"imperfections": {**grid, "rounding": "stochastic"}}
    learners: list[Any] = [
        select().learner(settings_of(PAPER, {**values, "training": {"seed": s}})) for s in (1, 2)
    ]
    path, zero = some_path_of(select(), PAPER), Parameters.zeros(PAPER)
    together = select().learn_together(learners, [zero, zero], [{}, {}], path)
    assert not together[0][0].same_as(together[1][0])
    assert together[1][0].same_as(learned_once(learners[1], zero, path))


def some_path_of(portable: PortableEngine, machine: Machine) -> Any:
    return portable.path(machine, some_fields(machine)[0], 1, 0, some_word(machine))


# Update noise: everything is linear in the normals, so the law is the covariance of a matrix, whose
# columns follow from one normal at a time.


@pytest.mark.parametrize(
    ("visible", "hidden", "n", "period"),
    [(4, 12, 2, 1), (3, 30, 4, 1), (3, 24, 2, 2), (5, 4, 1, 4), (1, 1, 1, 3)],
)
def test_law_of_update_noise(
    visible: int, hidden: int, n: int, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cov(W_k x_k, W_l x_l) = min(t_k, t_l) F_k F_lᵀ, t the updates' steps seen; and with W."""
    array_library = FLOAT64.library
    steps = n * period
    machine = Machine(visible=visible, hidden=hidden, duration=0.001 * steps)
    x = states_of(machine, steps, 0.02).astype(np.float64)
    x[:, visible:] += np.random.default_rng(1).choice(
        [-2, 2], (steps, hidden)
    )  # no unit stands out
    assert n == 1 or float(update_noise.exposure(array_library, machine, x)) < 0.5
    sizes: list[int] = []

    def response(draw: int, position: int) -> np.ndarray:
        """W_k x_k of all steps, and W, where one normal is 1 and all others are 0."""
        calls = iter(range(100))

        def unit(library: Any, shape: Any, *rest: Any) -> np.ndarray:
            z = np.zeros(4 * shape[1])
            number = next(calls)
            if draw < 0:
                sizes.append(z.size)
            elif number == draw:
                z[position] = 1
            return z

        monkeypatch.setattr(update_noise, "draw_normals", unit)
        walk = couplings.blocks_of(array_library, machine, np.zeros(layout(machine).size))
        static = (machine, n, period)
        walk, along = update_noise.advance(array_library, static, walk, x, None, None, np.zeros(2))
        between, within, bias = (walk[block.name] for block in layout(machine).blocks)
        upper = within[np.triu_indices(hidden, 1)]
        return np.concatenate([along.ravel(), between.ravel(), upper, bias.ravel()])

    response(-1, 0)
    columns = [response(draw, i) for draw, size in enumerate(list(sizes)) for i in range(size)]
    seen = [k // period * period for k in range(steps)] + [steps]
    forces = [force_matrix(machine, state) for state in x]
    forces.append(np.eye(forces[0].shape[1]))
    rows = [[min(t, s) * f @ g.T for s, g in zip(seen, forces, strict=True)]
            for t, f in zip(seen, forces, strict=True)]  # fmt: skip
    expected = np.block(rows)
    found = np.array(columns)
    np.testing.assert_allclose(found.T @ found, expected, atol=1e-12 * np.abs(expected).max())


def test_units_that_stand_out_are_noticed() -> None:
    """Where one state has nearly all of its length in one unit, W advances update by update."""
    machine = Machine(visible=4, hidden=30, duration=0.016)
    settings = settings_of(machine, {"imperfections": {"update_noise": 0.1}})
    response: Any = FLOAT64.learner(settings)
    even = np.random.default_rng(0).choice([-1.0, 1.0], (16, machine.units))
    uneven = even.copy()
    uneven[:, 7] = 50
    assert response.response.updates(even) > 1
    assert response.response.updates(uneven) == 1


@pytest.mark.parametrize(
    ("name", "wiring"),
    [(name, wiring) for name in INSTALLED for wiring in ("paper", "all stages") if name != "jax"]
    + [(name, "paper") for name in INSTALLED if name == "jax"],
)
def test_update_noise_adds_up_along_a_path(name: str, wiring: str) -> None:
    """Over its spans and stages: var W = steps seen, and W_k x_k is of the walk that ends in W."""
    machine = replace(MACHINES[wiring], hidden=24, visible=20, duration=0.032)
    if name == "jax":
        machine = replace(machine, duration=0.016)  # one span, so that one kernel is compiled
    portable = select(name)
    settings = settings_of(machine, {"imperfections": {"update_noise": 0.1}})
    response: Any = portable.learner(settings)
    response = response.response
    path = portable.path(machine, some_fields(machine)[0], 1, 0, some_word(machine))
    scale = -settings.learning_rate * machine.residual_scale
    walks, products = [], []
    for number in range(6):
        alone, end = response.lesson(replace(path, number=number))
        walk = Parameters(machine, end / -settings.learning_rate).astype(np.float64)
        walk.check()
        along = portable.library.numpy(alone).astype(np.float64) / scale
        last = machine.steps - 1
        at_end = coupling_gradient(walk, path.states[-1].astype(float), -1, path.word)
        walks.append(np.concatenate([walk[block.name][-1].ravel() for block in walk.layout.blocks]))
        products.append([along[last] @ at_end, along[last] @ along[last]])
    begin, end_of_stage = machine.stage_windows[-1]
    steps = end_of_stage - begin
    nonzero = np.array(walks)[:, np.array(walks).any(axis=0)]
    assert np.mean(nonzero**2) == pytest.approx(steps, rel=0.15)
    projected, own = np.sum(products, axis=0)
    assert projected == pytest.approx(own, rel=0.2)


def test_update_noise_trains_and_is_refused_where_it_is_not_defined() -> None:
    noisy = {"imperfections": {"update_noise": 0.1}}
    theta = three_cycles(select(), settings_of(PAPER, noisy))
    clean = three_cycles(select(), settings_of(PAPER))
    spread = np.std(theta.vector - clean.vector)
    # σα√(3K), less what the rule takes back
    assert spread == pytest.approx(0.1 * 0.01 * np.sqrt(600), rel=0.2)
    with pytest.raises(UserError, match="use complete wiring"):
        select().learner(settings_of(SPARSE, noisy))


# Generation


def assert_same_generation(ours: Any, theirs: Any) -> None:
    for part in ("initial_states", "final_states", "snapshots"):
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), atol=1e-5)
    for part in ("stage_heat", "switching_work", "heat", "work", "path_heat", "clamp_work"):
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), atol=5e-5)
    np.testing.assert_allclose(ours.active_work, theirs.active_work, atol=5e-5)
    for part, energies in theirs.starts.parts.items():
        np.testing.assert_allclose(ours.starts[part], energies, atol=1e-4)
    assert ours.first_law_error < 1e-12
    work, expected = ours.clamp_work_so_far, theirs.clamp_work_so_far
    assert (work is None) == (expected is None)
    if work is not None:
        np.testing.assert_allclose(work, expected, atol=5e-5)


@every_case
def test_generation_is_that_of_the_compiled_engine(name: str, machine: Machine) -> None:
    theta = random_parameters(machine, dtype=np.float32)
    words = None if not machine.labels else np.stack([some_word(machine, i % 2) for i in range(4)])
    options = {"snapshot_steps": [0, 50, 200], "snapshot_samples": [2, 0], "first": 3}
    assert_same_generation(
        select(name).generate(theta, 4, 9, words, **options),
        compiled.generate(theta, 4, 9, words, **options),
    )


@pytest.mark.parametrize(
    ("name", "follow"),  # JAX compiles for seconds, and following does all that holding does
    [(name, follow) for name in INSTALLED for follow in (True, False) if follow or name != "jax"],
)
def test_clamped_generation_is_that_of_the_compiled_engine(name: str, follow: bool) -> None:
    machine = EVERYTHING
    theta = random_parameters(machine, dtype=np.float32)
    values = np.random.default_rng(0).normal(size=(14, 12)).astype(np.float32)
    clamp = Clamp(np.arange(12) < 5, values, follow)
    words = np.stack([some_word(machine)] * 12)
    options = {"snapshot_steps": [0, 7, 200], "snapshot_samples": [3, 11], "first": 2}
    assert_same_generation(
        select(name).generate(theta, 12, 9, words, clamp, **options),
        compiled.generate(theta, 12, 9, words, clamp, **options),
    )


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "jax"])
@pytest.mark.parametrize("case", ["sparse", "uneven units", "couplings", "one way"])
def test_generation_on_devices_is_that_of_the_compiled_engine(name: str, case: str) -> None:
    settings = settings_of(*CASES[case])
    theta = three_cycles(compiled, settings).on(settings.built)
    words = np.stack([some_word(settings.machine)] * 5)
    assert_same_generation(
        select(name).generate(theta, 5, 9, words), compiled.generate(theta, 5, 9, words)
    )


def test_groups_of_samples_do_not_matter() -> None:
    theta = random_parameters(MACHINES["stages"], dtype=np.float32)
    seen: list[tuple[int, int, int]] = []
    done: list[int] = []
    one, several = (
        replace(select(), GROUP=size).generate(
            theta, 7, 5, snapshot_steps=[0, 200], snapshot_samples=[6, 1],
            on_snapshot=lambda step, first, states: seen.append((step, first, len(states))),
            on_progress=done.append,
        )
        for size in (7, 3)
    )  # fmt: skip
    assert_same_generation(one, several)
    assert seen == [(0, 0, 7), (200, 0, 7)] + [
        (step, first, min(3, 7 - first)) for first in (0, 3, 6) for step in (0, 200)
    ]
    assert sum(done) == 2 * 7 * 200


def test_where_the_energy_is_quadratic_the_path_heat_is_the_heat() -> None:
    """The trapezoidal rule is exact for a linear force, in float64 to its round-off."""
    machine = replace(EVERYTHING, J4=0.0)
    theta = random_parameters(machine, 0.1)
    words = np.stack([some_word(machine)] * 6)
    values = np.random.default_rng(1).normal(size=(6, 12)).astype(np.float32)
    for clamp in (None, Clamp(np.arange(12) < 5, values), Clamp(np.arange(12) < 5, values, False)):
        generated = FLOAT64.generate(theta, 6, 3, words, clamp)
        assert np.abs(generated.stage_heat).max() > 0.1
        np.testing.assert_allclose(generated.path_heat, generated.stage_heat, atol=1e-11)


def test_changed_parameters_and_a_broken_first_law_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theta = random_parameters(MACHINES["stages"], dtype=np.float32)
    broken: list[Callable[[], None]] = [lambda: theta.vector.__setitem__((0, 0), 7.0)]

    def meddle(done: int) -> None:
        if broken:
            broken.pop()()

    with pytest.raises(RuntimeError, match="parameters changed"):
        select().generate(theta, 2, 1, on_progress=meddle)
    import thermoloom.machine.generated as generated

    switching = generated.switching_work
    monkeypatch.setattr(generated, "switching_work", lambda *a: switching(*a) + 1e-6)
    with pytest.raises(RuntimeError, match="energy is not conserved"):
        select().generate(theta, 2, 1)


# Loss and gradient


@every_library
def test_terms_and_watched_loss_are_those_of_the_compiled_engine(name: str) -> None:
    machine, portable = EVERYTHING, select(name)
    theta, field = random_parameters(machine, dtype=np.float32), some_fields(machine)[0]
    path = portable.path(machine, field, 1, 0, some_word(machine))
    ours, theirs = portable.terms(theta, path, field), compiled.terms(theta, path, field)
    np.testing.assert_allclose(ours, theirs, rtol=2e-6)
    assert ours.identity_error < 1e-10
    assert portable.watch(path)(theta) == pytest.approx(ours[:2])


@pytest.mark.parametrize("name", ["all stages", "restricted"])
def test_one_batch_update_is_the_gradient_by_finite_differences(name: str) -> None:
    """(θ − θ′)/α = ∂L/∂θ, parameter by parameter, in float64."""
    machine = replace(MACHINES[name], duration=0.02)
    theta = random_parameters(machine, 0.1)
    path = FLOAT64.path(machine, some_fields(machine)[0], 1, 0, some_word(machine))
    settings = settings_of(machine, {"training": {"rule": "batch", "learning_rate": 1e-3}})
    learned = learned_once(FLOAT64.learner(settings), theta, path)
    gradient = (theta.vector - learned.vector) / 1e-3
    rng, step = np.random.default_rng(0), 1e-4
    for block in theta.layout.blocks:
        i, j = (int(rng.choice(places)) for places in block.places)
        if block.symmetric and i == j:
            j = (i + 1) % block.shape[0]
        for stage in range(machine.stages):
            losses = []
            for sign in (1, -1):
                moved = theta.copy()
                block.matrix(moved.vector[stage])[i, j] += sign * step
                if block.symmetric:
                    block.matrix(moved.vector[stage])[j, i] += sign * step
                losses.append(FLOAT64.terms(moved, path).loss * machine.steps)
            slope = (losses[0] - losses[1]) / (2 * step)
            assert block.matrix(gradient[stage])[i, j] == pytest.approx(slope, rel=1e-6, abs=1e-6)


# Choosing it


def test_the_engine_is_chosen_by_name_library_device_and_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text, precision in (
        ("portable", "float32"),
        ("portable:numpy", "float32"),
        ("portable:numpy:cpu:float64", "float64"),
    ):
        monkeypatch.setenv("THERMOLOOM_ENGINE", text)
        portable: Any = engine()
        assert isinstance(portable, PortableEngine)
        assert portable.library is library("numpy", "cpu", precision)
        assert isinstance(portable.learner(Settings(machine=PAPER)), Learner)
        portable.warm_up()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compiled:torch", "offers no choice of library, device and precision; use portable"),
        ("portable:fortran", "must be one of numpy, torch, jax"),
        ("portable:numpy:cuda", "portable:numpy:cuda: no such device; use cpu"),
        ("portable:numpy:cpu:float16", "no such device"),
        ("portable::cpu", "expected name:library:device:precision"),
    ],
)
def test_what_cannot_be_chosen_is_said_in_a_line(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", text)
    with pytest.raises(UserError, match=message) as error:
        engine()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_an_absent_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    for module in (name, f"{name}.numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("THERMOLOOM_ENGINE", f"portable:{name}")
    with pytest.raises(UserError, match=f"not installed; run pip install {name}"):
        engine()


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "numpy"])
def test_an_absent_device_is_named(name: str) -> None:
    for device in ("cuda:99", "abacus"):
        with pytest.raises(UserError, match="no such device"):
            select(name, device)
