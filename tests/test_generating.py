"""The generating potential: other wells in V_θ than in preparation and noising."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import (
    learned_once,
    random_parameters,
    relative_difference,
    some_fields,
    some_path,
    some_word,
)
from plain_rules import learn_stepwise
from scipy import integrate

from thermoloom.engines import engine
from thermoloom.engines.library import library
from thermoloom.engines.portable import select
from thermoloom.engines.portable.noising import noising_paths
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.action import path_terms
from thermoloom.machine.device import Device, build
from thermoloom.machine.energy import energy
from thermoloom.machine.machine import WIRES, Machine
from thermoloom.machine.onsite import CentredQuartic, Well
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.theory.expected_heat import expected_heats
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.generation_law import generation_law
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum

BISTABLE = Well(J2=-0.5, J4=0.3, centre=0.4, groups=("visible",), stages=(0,))
MACHINE = Machine(
    visible=5, hidden=3, labels=2, wiring=WIRES, biases=("visible", "hidden"), stages=2,
    duration=0.2, generating=(BISTABLE, Well(J2=0.7, J4=0.2, centre=-0.3, stages=(1,))),
)  # fmt: skip


@pytest.mark.parametrize("name", ["compiled", "portable"])
def test_double_wells_are_sampled_as_boltzmann_has_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", name)
    machine = Machine(
        visible=60, hidden=0, wiring=("visible-visible",), biases=(), duration=14.0, dt=7e-3,
        kT=0.2, generating=[{"J2": -1.0, "J4": 1.5, "centre": 0.4}],
    )  # fmt: skip
    states = generate(Parameters.zeros(machine), 150, 3).final_states.astype(np.float64)

    def weight(x: float) -> float:
        return float(np.exp(-(-1.0 * (x - 0.4) ** 2 + 1.5 * (x - 0.4) ** 4) / machine.kT))

    norm = integrate.quad(weight, -4, 5)[0]
    for power in (1, 2, 3, 4):
        exact = integrate.quad(lambda x, n=power: x**n * weight(x) / norm, -4, 5)[0]
        error = (states**power).std() / np.sqrt(states.size)
        assert abs((states**power).mean() - exact) < 4 * error + 0.01 * abs(exact)


def test_heat_and_work_close_where_potentials_are_switched() -> None:
    theta = random_parameters(MACHINE, 0.1, dtype=np.float32)
    generated = generate(theta, 20, 5)
    assert generated.first_law_error < 1e-12
    switched = engine().generate(
        theta, 20, 5, words=np.tile(some_word(MACHINE), (20, 1)),
        snapshot_steps=[100], snapshot_samples=range(20),
    )  # fmt: skip
    x, word = switched.snapshots[:, 0], some_word(MACHINE)
    change = energy(theta, x, 0, word) - energy(theta, x, 1, word)
    np.testing.assert_allclose(switched.switching_work[:, 0], change, rtol=1e-10)
    wells = [CentredQuartic(-1.0, 1.2, 0.4), CentredQuartic(1.4, 0.8, -0.3)]
    onsite = [sum(well.energy(x[:, i].astype(np.float64)) for i in range(5)) for well in wells]
    plain = replace(MACHINE, generating=())
    couplings = energy(theta.on(plain), x, 0, word) - energy(theta.on(plain), x, 1, word)
    hidden = x[:, 5:].astype(np.float64)
    reference = (hidden**2 + hidden**4).sum(axis=1)
    other = wells[1].energy(hidden).sum(axis=1)
    np.testing.assert_allclose(change, couplings + onsite[0] - onsite[1] + reference - other)


def test_engines_agree() -> None:
    theta = random_parameters(MACHINE, 0.1, dtype=np.float32)
    path = some_path(MACHINE)
    rate = Settings(MACHINE).learning_rate
    learned = learned_once(engine().learner(Settings(MACHINE)), theta, path)
    expected = learn_stepwise(theta, path.states, rate, word=path.word)
    assert relative_difference(learned, expected) < 1e-5
    portable = learned_once(
        select().learner(Settings(MACHINE)), theta, replace(path, prepared=None)
    )
    assert relative_difference(portable, expected) < 1e-5
    samples = engine().generate(theta, 6, 1, np.tile(path.word, (6, 1)))
    again = select().generate(theta, 6, 1, np.tile(path.word, (6, 1)))
    np.testing.assert_allclose(again.final_states, samples.final_states, atol=1e-5)
    np.testing.assert_allclose(again.heat, samples.heat, rtol=1e-4, atol=1e-4)
    terms = path_terms(theta, path.states, some_fields(MACHINE)[0], path.word)
    assert terms.identity_error < 1e-9
    assert engine().watch(path)(theta).loss == pytest.approx(terms.loss, rel=1e-5)


def many_paths(machine: Machine, fields: np.ndarray, count: int) -> np.ndarray:
    """x (K + 1, count, N) of noising paths, patterns in turn."""
    turns = fields[np.arange(count) % len(fields)]
    paths = noising_paths(
        library("numpy", "cpu", "float64"), machine, turns, 8, range(count), "training"
    )
    return np.asarray(paths, np.float64)


def uncoupled(machine: Machine, x: np.ndarray, stage: int) -> np.ndarray:
    """[−Δx + μΔt φ_g(x′)]/(2k_BT) of a stage, from the coefficients of its wells: (steps, S, N)."""
    first, last = machine.stage_windows[stage]
    J2, J4, centre = np.ones(machine.units), np.ones(machine.units), np.zeros(machine.units)
    for well in machine.generating:
        for group in well.groups if stage in well.stages else ():
            units = machine.groups[group]
            J2[units], J4[units], centre[units] = well.J2, well.J4, well.centre
    y = x[first + 1 : last + 1] - centre
    dx = x[first + 1 : last + 1] - x[first:last]
    return (machine.drift * (2 * J2 * y + 4 * J4 * y**3) - dx) / (2 * machine.kT)


def fitted_couplings(machine: Machine, x: np.ndarray, words: np.ndarray, stage: int) -> np.ndarray:
    """J (N, N + L + 1) that minimizes Σ r² over sampled paths: dense least squares."""
    first, last = machine.stage_windows[stage]
    N, after = machine.units, x[first + 1 : last + 1].reshape(-1, machine.units)
    labels = np.tile(words, (last - first, 1))
    inputs = np.hstack([after, labels, np.ones((len(after), 1))])
    target = -uncoupled(machine, x, stage).reshape(-1, N)
    c = machine.drift / (2 * machine.kT)
    pairs = [(i, j) for i in range(N) for j in range(i + 1, inputs.shape[1])]
    columns = np.zeros((len(pairs), N, len(after)))
    for column, (i, j) in zip(columns, pairs, strict=True):
        column[i] = c * inputs[:, j]
        if j < N:
            column[j] = c * inputs[:, i]
    flat = columns.reshape(len(pairs), -1)
    solution = np.linalg.lstsq(flat @ flat.T, flat @ target.T.ravel(), rcond=1e-9)[0]
    J = np.zeros((N, inputs.shape[1]))
    for (i, j), value in zip(pairs, solution, strict=True):
        J[i, j] = value
        if j < N:
            J[j, i] = value
    return J


def test_optimum_is_the_least_squares_fit_over_sampled_paths() -> None:
    machine = replace(
        MACHINE, visible=2, hidden=1, labels=1, dt=0.02, duration=0.8, windows=(0.5, 1.0)
    )
    fields = np.array([[1.2, -0.7, 0.5], [-0.4, 0.9, -1.1]], np.float32)
    words = np.array([[1.0], [0.4]], np.float32)
    solved = solve_optimum(machine, Drive(fields, words)).parameters
    plain = solve_optimum(replace(machine, generating=()), Drive(fields, words)).parameters
    x = many_paths(machine, fields, 40_000)
    halves = [slice(0, 20_000), slice(20_000, None)]
    for stage in range(2):
        fits = [
            fitted_couplings(machine, x[:, half], np.tile(words, (10_000, 1)), stage)
            for half in halves
        ]
        fit, scatter = (fits[0] + fits[1]) / 2, np.linalg.norm(fits[0] - fits[1]) / 2
        error = np.linalg.norm(fit - solved.coupling_matrix(stage))
        assert error < 3 * scatter
        assert np.linalg.norm(fit - plain.coupling_matrix(stage)) > 10 * scatter


def test_expected_loss_and_heat_are_means_over_paths() -> None:
    """For fields of both signs, which a centre tells apart."""
    machine = replace(MACHINE, labels=0, wiring=("visible-hidden",), dt=0.01, duration=0.4)
    field = np.array([[1.2, -1.2, 0.4, -0.7, 0.0, 0.9, -0.9, 0.1]], np.float32)
    theta = random_parameters(machine, 0.2)
    marginals = solve_marginals(machine, 1.2)
    x = many_paths(machine, field, 4000)
    losses = [*expected_losses(machine, field, marginals)]
    heats = expected_heats(machine, field, marginals)
    for stage, (first, last) in enumerate(machine.stage_windows):
        J = theta.coupling_matrix(stage)
        forces = x[first + 1 : last + 1] @ J[:, :-1].T + J[:, -1]
        r = uncoupled(machine, x, stage) + machine.drift / (2 * machine.kT) * forces
        sampled = machine.kT / machine.drift * (r**2).sum(axis=(0, 2))
        released = energy(theta, x[last], stage) - energy(theta, x[first], stage)
        vector = theta.vector[stage]
        expected = losses[stage].total(vector), heats[stage].value(vector)
        for values, exact in zip((sampled, released), expected, strict=True):
            assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(len(values))


def test_wells_that_repeat_the_reference_change_nothing() -> None:
    plain = replace(MACHINE, generating=())
    same = replace(MACHINE, generating=(Well(J2=1.0, J4=1.0),))
    fields, words = some_fields(plain, 2), np.eye(2, dtype=np.float32)
    solutions = [solve_optimum(m, Drive(fields, words), 1e-9) for m in (plain, same)]
    np.testing.assert_allclose(
        solutions[1].parameters.vector, solutions[0].parameters.vector, atol=1e-6
    )
    assert solutions[1].expected_heat == pytest.approx(solutions[0].expected_heat, rel=1e-6)
    theta = random_parameters(plain, 0.1, dtype=np.float32)
    then, now = (generate(theta.on(m), 5, 1) for m in (plain, same))
    np.testing.assert_allclose(now.final_states, then.final_states, atol=1e-5)


def test_devices_have_wells_of_their_own() -> None:
    built = build(MACHINE, Device(spread_J2=0.2, seed=3))
    potential, reference = built.generating_potential(1), built.potential
    np.testing.assert_allclose(potential.quadratic / 1.4, reference.quadratic / 2)
    theta = random_parameters(built, 0.1, dtype=np.float32)
    assert generate(theta, 4, 1).first_law_error < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"J2": -1.0}, "double well a noising path never forgets"),
        ({"generating": [{"J2": -1.0}]}, "not confined"),
        ({"generating": [{"J2": 1.0, "groups": ["label"]}]}, "must be one of visible, hidden"),
        ({"generating": [{"J2": 1.0, "stages": [2]}]}, "stages from 0 to 1"),
        ({"generating": [{"J2": 1.0}, {"J2": 2.0}]}, "2 potentials for visible units in stage 0"),
        ({"generating": [{"depth": 1.0}]}, "machine.generating.depth: no such setting"),
        ({"generating": 3}, "expected a list of tables"),
        ({"dt": 0.02, "generating": [{"J2": 1.0, "J4": 900.0}]}, "dt = 0.02"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(Parameters.zeros(replace(MACHINE, **change)), 1, 0)


def test_laws_that_know_one_potential_refuse_another() -> None:
    with pytest.raises(UserError, match="reference potential only"):
        generation_law(Parameters.zeros(MACHINE))
    marginals = solve_marginals(MACHINE, 1.0)
    with pytest.raises(UserError, match="one onsite potential"):
        marginals.at("drift", np.ones(2))


def test_settings_are_written_and_read() -> None:
    settings = Settings(MACHINE)
    text = settings.to_toml()
    assert "[[machine.generating]]" in text
    assert Settings.from_dict(settings.as_dict()) == settings
