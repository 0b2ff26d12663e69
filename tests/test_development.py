"""The development window: wells and springs after t_f, which noising never sees."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machines import random_parameters, some_fields

import thermoloom as tl
from thermoloom.computers.development_search import developed
from thermoloom.engines import engine
from thermoloom.engines.portable import select
from thermoloom.errors import UserError
from thermoloom.generation import course, drawn_words, generate
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.energy import energy
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import neighbours
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.theory.generation_law import generation_law
from thermoloom.theory.solver import solve_optimum

WINDOW = Development(J2=-0.8, J4=0.4, centre=0.3, neighbours=0.2, learned=0.25, duration=0.06)
MACHINE = Machine(
    visible=9, hidden=3, labels=2, stages=2, duration=0.2, J4=0.0,
    wiring=("visible-hidden", "visible-visible", "visible-label"), biases=("visible",),
    development=(WINDOW, Development(J2=0.5, duration=0.03)),
)  # fmt: skip
PLAIN = replace(MACHINE, development=())


def theta_of(machine: Machine) -> Parameters:
    return random_parameters(machine, 0.2, dtype=np.float32)


def developing_energy(theta: Parameters, x: np.ndarray, word: np.ndarray) -> np.ndarray:
    """V of ``WINDOW`` by its definition, for a 3 × 3 image."""
    x = x.astype(np.float64)
    image = x[:, :9].reshape(-1, 3, 3)
    y = image - 0.3
    wells = (-0.8 * y**2 + 0.4 * y**4).sum(axis=(1, 2))
    springs = sum((np.diff(image, axis=axis) ** 2).sum(axis=(1, 2)) for axis in (1, 2))
    hidden = (x[:, 9:] ** 2).sum(axis=1)
    couplings = energy(theta.on(PLAIN), x, 0, word) - (x**2).sum(axis=1)
    return wells + 0.1 * springs + hidden + 0.25 * couplings


def test_energies_are_those_of_the_definition() -> None:
    theta, word = theta_of(MACHINE), np.array([1.0, 0.0], np.float32)
    x = np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)
    difference = energy(theta.developed, x, 2, word) - developing_energy(theta, x, word)
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)  # but for a constant
    assert len(neighbours(9)) == 12


@pytest.mark.parametrize("name", ["compiled", "portable"])
def test_generation_goes_on_after_t_f(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", name)
    theta, steps = theta_of(MACHINE), MACHINE.steps
    plain = generate(theta.on(PLAIN), 12, 3)
    snapshots = [0, steps, steps + 60, MACHINE.generation_steps]
    words = drawn_words(theta, 12, 3, None)
    assert words is not None
    generated = engine().generate(
        theta, 12, 3, words, snapshot_steps=snapshots, snapshot_samples=range(12)
    )
    np.testing.assert_array_equal(generated.snapshots[:, 1], plain.final_states)
    np.testing.assert_array_equal(generated.stage_heat[:, :2], plain.stage_heat)
    assert generated.stage_heat.shape == (12, 4)
    assert generated.first_law_error < 1e-12
    before, after = generated.snapshots[:, 1], generated.snapshots[:, 2]
    heat = developing_energy_of_each(theta, before, words) - developing_energy_of_each(
        theta, after, words
    )
    np.testing.assert_allclose(generated.stage_heat[:, 2], heat, atol=1e-5)
    assert abs(generated.discretization_error).max() < 0.1 * abs(generated.heat).mean()


def developing_energy_of_each(theta: Parameters, x: np.ndarray, words: np.ndarray) -> np.ndarray:
    rows = zip(x, words, strict=True)
    return np.concatenate([developing_energy(theta, state[None], word) for state, word in rows])


def test_engines_agree() -> None:
    theta = theta_of(MACHINE)
    words = drawn_words(theta, 6, 1, None)
    samples, again = (e.generate(theta, 6, 1, words) for e in (engine(), select()))
    np.testing.assert_allclose(again.final_states, samples.final_states, atol=1e-5)
    np.testing.assert_allclose(again.heat, samples.heat, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(again.path_heat, samples.path_heat, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["compiled", "portable"])
def test_clamped_pixels_rest_during_development(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", name)
    mask = np.arange(9) < 4
    clamp = Clamp(mask, some_fields(MACHINE)[0, :9])
    steps = [MACHINE.steps, MACHINE.generation_steps]
    generated = generate(theta_of(MACHINE), 4, 2, 1, clamp, steps, range(4))
    at_end, developed = generated.snapshots[:, 0, :9], generated.snapshots[:, 1, :9]
    np.testing.assert_array_equal(developed[:, mask], at_end[:, mask])
    assert (developed[:, ~mask] != at_end[:, ~mask]).all()
    assert np.all(generated.clamp_work[:, 2:] == 0)
    assert generated.first_law_error < 1e-12


def test_springs_and_wells_relax_to_the_boltzmann_law() -> None:
    """Four pixels in double wells with springs between neighbours, against quadrature."""
    window = Development(J2=-1.0, J4=1.5, centre=0.4, neighbours=0.2, duration=14.0)
    machine = Machine(
        visible=4, hidden=0, wiring=("visible-visible",), biases=("visible",), kT=0.2,
        duration=0.07, dt=7e-3, development=(window,),
    )  # fmt: skip
    states = generate(Parameters.zeros(machine), 1500, 3).final_states.astype(np.float64)
    a, b, c, d = np.meshgrid(*[np.linspace(-1.3, 2.1, 41)] * 4, sparse=True)
    wells = sum(-1.0 * (x - 0.4) ** 2 + 1.5 * (x - 0.4) ** 4 for x in (a, b, c, d))
    springs = (a - b) ** 2 + (c - d) ** 2 + (a - c) ** 2 + (b - d) ** 2
    weight = np.exp(-(wells + 0.1 * springs) / machine.kT)
    exact = float((a * b * weight).sum() / weight.sum())
    sampled = states[:, [0, 2, 0, 1]] * states[:, [1, 3, 2, 3]]
    error = sampled.mean(axis=1).std() / np.sqrt(len(sampled))
    assert abs(sampled.mean() - exact) < 4 * error
    assert abs(sampled.mean() - 0.4**2) > 8 * error  # of pixels without springs


def test_learning_never_sees_the_window() -> None:
    drive = Drive(some_fields(MACHINE, 2), np.eye(2, dtype=np.float32))
    solved = [solve_optimum(m, drive).parameters.vector for m in (PLAIN, MACHINE)]
    np.testing.assert_array_equal(*solved)


def test_a_course_closes_at_every_moment() -> None:
    theta = theta_of(MACHINE)
    words = drawn_words(theta, 5, 7, None)
    steps = [0, 100, MACHINE.steps, MACHINE.steps + 30, MACHINE.steps + 60, MACHINE.steps + 90]
    generated = generate(theta, 5, 7, snapshot_steps=steps, snapshot_samples=range(5))
    energies = course(theta, generated, steps, words)
    np.testing.assert_allclose(energies["heat"][:, -1], generated.heat)
    np.testing.assert_allclose(energies["work"][:, -1], generated.work)
    V = sum(energies["parts"].values())
    closed = V - V[:, :1] - (energies["work"] - energies["heat"])
    np.testing.assert_allclose(closed, 0, atol=1e-9)


def test_devices_saving_and_ledger_follow(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    computer = MACHINE.solve(tl.digits(0, 1), resize=True)
    computer.save("my.safetensors")
    again = tl.load("my.safetensors")
    assert again.machine == MACHINE
    np.testing.assert_array_equal(again.generate(3).states, computer.generate(3).states)
    computer.export("my.csv")
    np.testing.assert_array_equal(tl.load("my.csv").generate(3).states, computer.generate(3).states)
    chip = computer.on(tl.Device(gain_error=0.1, spread_J2=0.1)).generate(3)
    assert chip.generated.first_law_error < 1e-12
    rows = computer.generate(3).ledger().stages
    assert [row["stage"] for row in rows] == [2, 1, "development", "development"]
    with pytest.raises(UserError, match="development"):
        computer.export("my.cir", class_number=0)


def test_settings_are_written_and_read() -> None:
    settings = Settings(MACHINE)
    assert Settings.from_dict(tomllib.loads(settings.to_toml())) == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"development": [{"J2": -1.0}]}, "not confined"),
        ({"development": [{"duration": 1e-5}]}, "at least one step"),
        ({"wiring": ("visible-hidden",)}, "wires between neighbouring pixels"),
        ({"topology": "random", "degree": 4}, "wires between neighbouring pixels"),
        ({"development": [{"depth": 1.0}]}, "machine.development.depth: no such setting"),
        ({"dt": 0.02, "development": [{"J2": 1.0, "J4": 900.0}]}, "dt = 0.02"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(Parameters.zeros(replace(MACHINE, **change)), 1, 0)


def test_the_law_of_harmonic_states_refuses() -> None:
    with pytest.raises(UserError, match="development"):
        generation_law(Parameters.zeros(MACHINE))


def test_the_outer_loop_finds_wells_that_were_hidden_in_the_data() -> None:
    """Images of two levels: samples of the chosen window must be nearer than those of the start."""
    images = tl.digits(per_class=10)
    machine = Machine(
        hidden=0, labels=10, wiring=("visible-visible", "visible-label"), biases=("visible",),
        J4=0.0, duration=0.2, dt=0.02,
    )  # fmt: skip
    seen: list[Any] = []
    goals = {"correct": 0.2, "precision": 0.9, "recall": 0.0, "diversity": 0.0, "novelty": 0.0}
    sharp = machine.solve(images).develop(
        images, samples=40, evaluations=3, on_candidate=seen.append, goals=goals
    )
    assert len(seen) >= 3
    best = min(seen, key=lambda candidate: candidate.distance)
    assert sharp.machine.development == (best.window,)
    assert best.distance < seen[0].distance
    for each in seen:
        logarithms = (np.log(each.frechet) + np.log(each.equal_noise)) / 2
        missed = sum(max(0.0, 1 - each.reached[k] / goal) for k, goal in goals.items() if goal)
        assert each.distance == pytest.approx(logarithms + 10 * missed)
    assert 0 <= best.reached["correct"] <= 1
    with pytest.raises(UserError, match="goals: sharpness: no such goal"):
        sharp.develop(images, samples=4, goals={"sharpness": 1.0})
    with pytest.raises(UserError, match="ideal computer"):
        sharp.on(tl.Device(gain_error=0.1)).develop(images, samples=4)


def test_windows_are_simulated_as_the_engine_does() -> None:
    """The same law: mean and spread of many samples of one window."""
    theta = theta_of(MACHINE)
    words = drawn_words(theta, 1000, 5, 1)
    start = generate(theta.on(PLAIN), 1000, 5, 1).final_states
    simulated = developed(theta, start, words, 1)
    expected = generate(theta, 1000, 6, 1).final_states
    spread = expected.std(axis=0)
    difference = np.abs(simulated.mean(axis=0) - expected.mean(axis=0))
    assert (difference < 5 * spread * np.sqrt(2 / 1000)).all()
    np.testing.assert_allclose(simulated.std(axis=0), spread, rtol=0.12)
