"""Devices: units that differ, couplings that are not what was written, and learning on them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from machines import (
    MACHINES,
    SMALL,
    learned_once,
    random_parameters,
    some_fields,
    some_path,
    some_word,
    trained,
)
from plain_rules import learn_stepwise
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.engines import engine
from thermoloom.engines.compiled.noising import start_of
from thermoloom.engines.portable import select
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.device import BuiltMachine, Device, build, felt
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.settings import Settings

STRENGTHS = {
    "spread_J2": 0.3,
    "spread_J4": 0.3,
    "spread_mobility": 0.3,
    "spread_temperature": 0.3,
    "gain_error": 0.3,
    "offset": 0.1,
    "dead": 0.3,
    "stuck": 0.3,
    "non_reciprocity": 0.5,
    "drift": 0.2,
}
ALL = Device(**STRENGTHS)
RECIPROCAL = Device(**{k: v for k, v in STRENGTHS.items() if k != "non_reciprocity"})
MACHINE = MACHINES["all stages"]
SPARSE = Machine(**SMALL, topology="random", degree=5)


def built(device: Device, machine: Machine = MACHINE) -> BuiltMachine:
    found = build(machine, device)
    assert isinstance(found, BuiltMachine)
    return found


def wired_parameters(machine: Machine) -> Parameters:
    """Random θ, 0 where there is no wire."""
    theta = random_parameters(machine, dtype=np.float32)
    return theta


def learned(device: Device, machine: Machine = MACHINE, **training: object) -> Parameters:
    """θ after one path on a device."""
    settings = Settings(machine=machine, device=device).updated({"training": training})
    theta = wired_parameters(machine).on(settings.built)
    return learned_once(engine().learner(settings), theta, some_path(settings.built))


# --- the definition -------------------------------------------------------------------------------


def test_a_device_without_imperfections_is_the_machine_itself() -> None:
    assert build(MACHINE, Device(seed=9, stuck_at=0.7)) is MACHINE
    assert Settings(machine=MACHINE, device=Device(seed=9)).built is MACHINE


def test_kernels_for_units_that_differ_do_as_those_for_equal_ones() -> None:
    """Units that could differ and do not: another kernel, the same numbers to round-off."""
    given = {entry.name: getattr(MACHINE, entry.name) for entry in fields(Machine)}
    even, theta = (
        BuiltMachine(**given, device=Device()),
        random_parameters(MACHINE, dtype=np.float32),
    )
    assert some_path(even).states == pytest.approx(some_path(MACHINE).states, abs=1e-6)
    alone = start_of(some_path(MACHINE))
    assert some_path(even).prepared == pytest.approx(alone, abs=1e-5)
    one, other = generate(theta, 3, seed=5), generate(theta.on(even), 3, seed=5)
    assert other.final_states == pytest.approx(one.final_states, abs=1e-5)
    assert other.path_heat == pytest.approx(one.path_heat, abs=1e-4)


@pytest.mark.parametrize("key", STRENGTHS)
def test_every_imperfection_changes_generation_and_learning(key: str) -> None:
    aged = {"age": 3.0} if key == "drift" else {}
    device = Device(**{key: STRENGTHS[key]}, **aged)
    theta = random_parameters(MACHINE, dtype=np.float32)
    ideal, here = generate(theta, 2, seed=5), generate(theta.on(built(device)), 2, seed=5)
    assert not np.array_equal(ideal.final_states, here.final_states)
    assert not np.array_equal(learned(Device()).vector, learned(device).vector)
    others = Device(**{key: STRENGTHS[key]}, **aged, seed=2)
    again = generate(theta.on(built(others)), 2, seed=5)
    assert not np.array_equal(again.final_states, here.final_states)


def test_what_is_felt_is_what_the_formulas_say() -> None:
    theta, form = random_parameters(MACHINE), layout(MACHINE)
    once, twice = (
        felt(theta.on(built(Device(gain_error=g)))).both.vector - theta.vector for g in (0.2, 0.4)
    )
    assert twice == pytest.approx(2 * once)  # draws do not depend on the strength
    wired = theta.vector != 0  # but for units with themselves
    assert np.std(once[wired] / theta.vector[wired]) == pytest.approx(0.2, rel=0.15)
    added = felt(theta.on(built(Device(offset=0.05)))).both.vector - theta.vector
    assert added[0] == pytest.approx(added[1], abs=1e-12)  # stages share their couplings
    few, many = (built(Device(dead=d)).gain == 0 for d in (0.1, 0.4))
    assert not np.any(few & ~many)
    couplings = form["visible_hidden"].of(many)
    assert couplings.mean() == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / couplings.size))
    stuck = built(Device(stuck=0.3, stuck_at=0.07, offset=0.01))
    values = felt(theta.on(stuck)).both.vector[0][stuck.gain == 0]
    assert set(np.round(np.abs(values), 12)) == {0.0, 0.07}  # 0: of a unit with itself
    drifting = Device(drift=0.1, age=2.0)
    left = felt(theta.on(built(drifting))).both.vector
    assert left == pytest.approx(built(drifting).drifted_parameters(theta, 2.0).vector)
    assert np.all(np.abs(left) <= np.abs(theta.vector))
    everything = felt(theta.on(built(ALL)))
    everything.both.check()  # symmetric, nothing on the diagonal


def test_a_twist_takes_from_one_unit_what_it_gives_the_other() -> None:
    theta = random_parameters(MACHINE).on(built(Device(non_reciprocity=0.5)))
    both, twisted = felt(theta)
    assert twisted is not None
    within = twisted["hidden_hidden"]
    assert np.array_equal(within, -np.swapaxes(within, 1, 2))
    assert not twisted["hidden_bias"].any()
    assert not twisted["hidden_label"].any()
    x, word = np.random.default_rng(3).normal(size=MACHINE.units), some_word(MACHINE)
    assert np.array_equal(both.vector, theta.vector)
    turned = felt(theta).gradient(x, 1, word) - (felt(theta)._replace(twisted=None)).gradient(
        x, 1, word
    )
    assert float(x @ turned) == pytest.approx(0.0, abs=1e-9)  # x·Dx = 0
    assert np.abs(turned).max() > 0.01


def test_units_spread_by_a_log_normal_of_mean_one() -> None:
    wide = Machine(visible=20000, hidden=0, wiring=(), biases=("visible",), duration=0.01)
    uneven = build(wide, Device(spread_temperature=0.5, spread_mobility=0.2))
    drift, kick = uneven.step
    mobility, temperature = drift / wide.drift, kick**2 / (2 * drift * wide.kT)
    for factor, sigma in ((mobility, 0.2), (temperature, 0.5)):
        assert np.log(factor).std() == pytest.approx(sigma, rel=0.03)
        error = np.sqrt(np.expm1(sigma**2) / 20000)
        assert factor.mean() == pytest.approx(1, abs=4 * error)
    assert np.corrcoef(mobility, temperature)[0, 1] == pytest.approx(0, abs=0.03)


# --- against plain array code in float64 ---------------------------------------------------------

PLAIN = select("numpy", "cpu", "float64")


@pytest.mark.parametrize(
    "meant", [MACHINES["paper"], MACHINE, SPARSE], ids=["paper", "all stages", "sparse"]
)
@pytest.mark.parametrize("device", [ALL, RECIPROCAL], ids=["one-way", "reciprocal"])
def test_paths_samples_and_books_against_plain_numpy(meant: Machine, device: Device) -> None:
    machine = built(device, meant)
    field, word = some_fields(machine)[1], some_word(machine)
    plain = PLAIN.path(machine, field, 1, 4, word)
    assert engine().path(machine, field, 1, 4, word).states == pytest.approx(plain.states, abs=2e-5)
    theta = wired_parameters(machine)
    words = None if word is None else np.tile(word, (3, 1))
    here = engine().generate(theta, 3, 5, words, snapshot_steps=[7], snapshot_samples=[1])
    there = PLAIN.generate(theta, 3, 5, words, snapshot_steps=[7], snapshot_samples=[1])
    for part in ("final_states", "snapshots", "heat", "path_heat", "work"):
        assert getattr(here, part) == pytest.approx(getattr(there, part), rel=1e-4, abs=2e-4), part
    assert here.first_law_error < 1e-9
    terms = engine().terms(theta, plain, field)
    assert terms.loss == pytest.approx(PLAIN.terms(theta, plain, field).loss)


def test_heat_without_a_potential_is_that_of_the_path() -> None:
    """Beside the potential's part there is work, and what the step leaves of the heat is small."""
    theta = random_parameters(MACHINE, 0.5, dtype=np.float32)
    one_way = generate(theta.on(built(Device(non_reciprocity=1.0))), 20, seed=2)
    work = np.asarray(one_way.active_work)
    assert work.shape == (20, MACHINE.stages)
    assert np.abs(work).mean() > 0.01
    assert one_way.discretization_error == pytest.approx(np.zeros(20), abs=0.02)
    missing = one_way.starts.total - one_way.ends.total - one_way.path_heat
    assert missing + work == pytest.approx(np.zeros_like(work), abs=0.02)
    assert not np.asarray(generate(theta, 2, seed=2).active_work).any()


def test_each_unit_has_the_variance_of_its_own_temperature() -> None:
    """Harmonic units alone: var x = kick² (1 − q^2K)/(1 − q²), q = 1 − μΔt 2J₂, all of the unit."""
    machine = Machine(visible=6, hidden=0, wiring=(), biases=("visible",), J4=0.0, duration=0.2)
    device = Device(spread_temperature=0.6, spread_mobility=0.4, spread_J2=0.4)
    uneven, samples = build(machine, device), 4000
    made = generate(Parameters.zeros(uneven), samples, seed=3)
    drift, kick = uneven.step
    q = 1 - drift * uneven.potential.curvature(np.zeros(6))
    for states, steps in ((made.initial_states, 200), (made.final_states, 400)):
        exact = kick**2 * (1 - q ** (2 * steps)) / (1 - q**2)
        found = np.mean(np.square(states, dtype=np.float64), axis=0)
        assert found == pytest.approx(exact, rel=4.5 * np.sqrt(2 / samples))
    assert exact.max() > 1.5 * exact.min()


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [MACHINE, SPARSE], ids=["all stages", "sparse"])
@pytest.mark.parametrize("period", [1, 3, 10000])
@pytest.mark.parametrize(
    "device", [ALL, RECIPROCAL, Device(spread_J2=0.3)], ids=["one-way", "reciprocal", "units"]
)
def test_learning_against_the_stepwise_reference(
    device: Device, period: int, machine: Machine
) -> None:
    """J̃ = G∘J + O is sensed at every step, whatever the rule writes and when."""
    rule = {1: "online", 3: "delayed"}.get(period, "batch")
    more = {"period": 3} if rule == "delayed" else {}
    found = learned(device, machine, rule=rule, learning_rate=0.01, **more)
    settings = Settings(machine=machine, device=device).updated(
        {"training": {"rule": rule, "learning_rate": 0.01, **more}}
    )
    start = wired_parameters(machine)
    path = some_path(settings.built)
    plain = learn_stepwise(
        start.on(settings.built), path.states, 0.01, settings.period, word=path.word
    )
    if device.drift:
        plain = built(device, machine).drifted_parameters(plain)
    change = np.abs(plain.vector - start.vector).max()
    assert np.abs(found.vector - plain.vector).max() < 2e-5 * change + 1e-7


def test_what_is_written_where_nothing_is_felt_has_no_effect() -> None:
    dead = built(Device(dead=0.5))
    theta = random_parameters(MACHINE, dtype=np.float32).on(dead)
    other = theta.with_vector(np.where(dead.gain == 0, 2 * theta.vector, theta.vector))
    one, two = (generate(each, 2, seed=1).final_states for each in (theta, other))
    assert np.array_equal(one, two)


def test_going_on_to_learn_on_a_device_mends_what_it_did() -> None:
    """θ of an ideal machine on a device with offsets: the loss there comes back down."""
    machine = Machine(visible=20, hidden=10, duration=0.4)
    unit, training = some_fields(machine), {"cycles": 120, "learning_rate_scale": 5.0}
    ideal = Settings(machine=machine).updated({"training": training})
    found = trained(ideal, unit)
    device = Device(offset=1.0, gain_error=0.3, dead=0.1)
    here = Settings(machine=machine, device=device).updated({"training": training})
    curve = trained(here, unit, start=found.parameters).curve_columns()["loss"]
    excess = curve - found.curve_columns()["loss"][-1]
    assert excess[0] > 0.05
    assert excess[-1] < 0.2 * excess[0]


# --- from outside ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device": {"dead": 1.5}}, r"device\.dead = 1\.5: must be at most 1"),
        ({"device": {"spread_J2": 3.0}}, r"device\.spread_J2 = 3\.0: must be at most 2"),
        ({"device": {"offset": -0.1}}, r"device\.offset = -0\.1: must not be negative"),
        ({"device": {"gain_error": "large"}}, r"device\.gain_error = 'large': expected a number"),
        ({"device": {"age": 3}}, r"device\.age = 3\.0: has no effect without drift"),
        ({"device": {"gain": 0.1}}, r"device\.gain: no such setting; did you mean"),
        (
            {"device": {"dead": 0.1}, "imperfections": {"update_noise": 0.1}},
            r"imperfections\.update_noise = 0\.1: not defined on a device whose couplings differ",
        ),
    ],
)
def test_wrong_values_are_one_line(values: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        Settings.from_dict(values)
    assert "\n" not in str(error.value)


def test_units_that_leave_their_potential_are_refused() -> None:
    machine = Machine(visible=400, hidden=0, wiring=(), biases=("visible",), duration=0.2, dt=0.02)
    generate(Parameters.zeros(machine), 1, seed=0)
    with pytest.raises(UserError, match=r"machine\.dt = 0\.02: too long a step"):
        generate(Parameters.zeros(build(machine, Device(spread_mobility=1.0))), 1, seed=0)


def test_clamps_need_a_potential() -> None:
    computer = tl.Machine(visible=49, hidden=4, duration=0.02).solve(tl.digits(0), resize=True)
    image = np.full((7, 7), np.nan)
    image[:3] = 1.0
    held = computer.on(tl.Device(gain_error=0.1, spread_J2=0.1)).generate(2, clamp=image)
    assert held.generated.first_law_error < 1e-9
    with pytest.raises(UserError, match=r"device\.non_reciprocity: the work of clamps needs"):
        computer.on(tl.Device(non_reciprocity=0.1)).generate(2, clamp=image)


def test_a_computer_on_a_device_is_saved_with_it(tmp_path: Path) -> None:
    machine = tl.Machine(visible=49, hidden=4, duration=0.02)
    computer = machine.train(tl.digits(0), cycles=2, resize=True, device=RECIPROCAL)
    computer.save(tmp_path / "chip.safetensors")
    again = tl.load(tmp_path / "chip.safetensors")
    assert again.settings.device == RECIPROCAL
    assert np.array_equal(again.generate(2).heat, computer.generate(2).heat)
    assert not np.array_equal(again.on(tl.Device()).generate(2).heat, computer.generate(2).heat)
    on = computer.train(cycles=1)
    assert on.settings.device == RECIPROCAL


def test_commands_know_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["-s", "visible=49", "-s", "hidden=4", "-s", "duration=0.02", "-s", "resize=true"]

    def call(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.stdout))

    run = str(call("train", "--cycles", "2", *small, "-s", "device.gain_error=0.2")["run"])
    assert tl.load(run).settings.device == Device(gain_error=0.2)
    own = call("generate", run, "--samples", "2")
    twisted = call("generate", run, "--samples", "2", "-s", "device.non_reciprocity=0.5")
    same = call("generate", run, "--samples", "2", "-s", "device.gain_error=0.2")
    assert own["archive"] == same["archive"] != twisted["archive"]
    assert own["mean_heat"] != twisted["mean_heat"]
    assert twisted["mean_work"] != 0
    again = call("generate", run, "--samples", "2", "-s", "device.non_reciprocity=0.5")
    assert again == twisted  # read from its archive
    refused = CliRunner().invoke(app, ["generate", run, "-s", "training.seed=5"])
    assert str(refused.exception).startswith("--set training.seed: fixed by training")
