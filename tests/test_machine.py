"""Machines of every wiring: energy, gradient, learner, solver, generation, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import (
    MACHINES,
    every_machine,
    random_parameters,
    relative_difference,
    some_fields,
    some_path,
    some_word,
)
from plain_rules import energy_gradient, gradient, learn_stepwise
from scipy import integrate

from thermoloom.engines import engine
from thermoloom.engines.compiled.learner import Learner
from thermoloom.errors import UserError
from thermoloom.machine import quadratic_loss
from thermoloom.machine.action import (
    drive,
    loss_scale,
    path_terms,
    residual,
    residuals,
    step_constants,
)
from thermoloom.machine.clamp import Clamp, resting_states
from thermoloom.machine.energy import (
    coupling_gradient,
    effective_bias,
    energy,
    energy_parts,
    label_word,
)
from thermoloom.machine.machine import WIRES, Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.protocol import generation_windows, windows
from thermoloom.machine.quadratic_loss import QuadraticLoss
from thermoloom.patterns.drive import Drive
from thermoloom.theory import expected_loss
from thermoloom.theory.expected_loss import ExpectedLoss, TimeModes
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum
from thermoloom.threads import threads

ROUND_OFF = 5e-6


def full_matrix(theta: Parameters, stage: int) -> np.ndarray:
    """J over [visible, hidden, label, one], symmetric: the plainest form of θ."""
    machine = theta.machine
    names = ("visible", "hidden", "label", "one")
    edges = np.cumsum([0, *(machine.size_of(name) for name in names)])
    where = {name: slice(a, b) for name, a, b in zip(names, edges, edges[1:], strict=False)}
    J = np.zeros((edges[-1], edges[-1]))
    for block in theta.layout.blocks:
        J[where[block.rows], where[block.columns]] = block.matrix(theta.vector[stage])
        J[where[block.columns], where[block.rows]] = block.matrix(theta.vector[stage]).T
    return J


@every_machine
def test_the_coupling_matrix_is_that_of_the_free_units(machine: Machine) -> None:
    theta = random_parameters(machine)
    for stage in range(machine.stages):
        expected = full_matrix(theta, stage)[: machine.units]
        assert np.array_equal(theta.coupling_matrix(stage), expected)


def full_state(machine: Machine, x: np.ndarray) -> np.ndarray:
    word = some_word(machine)
    return np.concatenate([x, [] if word is None else word, [1.0]])


@every_machine
def test_energy_is_the_quadratic_form_of_the_full_matrix(machine: Machine) -> None:
    theta, x = random_parameters(machine), np.random.default_rng(5).normal(size=machine.units)
    for stage in range(machine.stages):
        J, y = full_matrix(theta, stage), full_state(machine, x)
        expected = np.sum(x**2 + x**4) + 0.5 * y @ J @ y
        parts = energy_parts(theta, x, stage, some_word(machine))
        assert parts.total == pytest.approx(expected, rel=1e-12)
        assert set(parts.parts) == set(theta.layout.parts)
        slope = energy_gradient(theta, x, stage, some_word(machine))
        np.testing.assert_allclose(slope, 2 * x + 4 * x**3 + (J @ y)[: machine.units], rtol=1e-10)
        # what clamped units do is a bias
        inner = coupling_gradient(theta, x, stage, some_word(machine))
        none = coupling_gradient(theta, 0 * x, stage, some_word(machine))
        np.testing.assert_allclose(effective_bias(theta, stage, some_word(machine)), none)
        assert not np.allclose(inner, none) or machine.wiring == ("visible-label",)


@every_machine
def test_gradient_of_the_loss_by_finite_differences(machine: Machine) -> None:
    """Every parameter of every block and stage, in float64."""
    theta, path = random_parameters(machine, 0.1), some_path(machine).states.astype(np.float64)
    word = some_word(machine)
    slope = gradient(theta, path, word)

    def loss(vector: np.ndarray) -> float:
        r = residuals(theta.with_vector(vector), path, word)
        return loss_scale(machine) * float(np.sum(r**2))

    for block in theta.layout.blocks:
        for stage, *index in np.ndindex(machine.stages, *block.shape):
            found = block.of(slope.vector[stage])
            if block.symmetric and index[0] <= index[1]:
                assert found[*index] == found[*index[::-1]] * (index[0] != index[1])
                continue
            values = []
            for sign in (1, -1):
                moved = theta.vector.copy()
                view = block.of(moved[stage])
                view[*index] += sign * 1e-2
                if block.symmetric:  # one parameter for the undirected edge
                    view[*index[::-1]] += sign * 1e-2
                values.append(loss(moved))
            numeric = (values[0] - values[1]) / 2e-2  # exact: the loss is quadratic
            assert found[*index] == pytest.approx(numeric, rel=1e-7, abs=1e-9)


@every_machine
@pytest.mark.parametrize(
    ("period", "rate", "with_errors"),
    [(1, 4e-4, True), (1, 0.02, False), (1, 0.5, True), (7, 0.02, True), (7, 0.5, False),
     (30, 4e-4, False), (30, 0.5, True), (100, 0.02, True), (200, 4e-4, True), (200, 0.5, False)],
)  # fmt: skip
def test_blocks_equal_the_stepwise_rule(
    machine: Machine, period: int, rate: float, with_errors: bool
) -> None:
    """Any period, any learning rate (at 0.5 strips must be halved), with residual errors or not."""
    path, errors = some_path(machine), None
    if with_errors:
        shape = (machine.steps, machine.units)
        errors = (0.2 * np.random.default_rng(3).normal(size=shape)).astype(np.float32)
    start = random_parameters(machine, 0.1, dtype=np.float32)
    learned = Learner(machine, rate, period).learn(start, path, errors)
    reference = learn_stepwise(start, path.states, rate, period, errors, path.word)
    assert relative_difference(learned, reference) < ROUND_OFF
    learned.check()


@every_machine
def test_a_stage_learns_from_its_window_alone(machine: Machine) -> None:
    """The learner of T stages is T learners, each on its own steps."""
    path = some_path(machine)
    reference = learn_stepwise(Parameters.zeros(machine), path.states, 0.02, word=path.word)
    x = path.states.astype(np.float64)
    for stage, (first, last) in enumerate(machine.stage_windows):
        alone = replace(machine, stages=1, windows=(), duration=(last - first) * machine.dt)
        piece = learn_stepwise(Parameters.zeros(alone), x[first : last + 1], 0.02, word=path.word)
        np.testing.assert_allclose(piece.vector[0], reference.vector[stage], rtol=1e-12)


@every_machine
def test_the_engine_sums_a_path_as_the_reference_does(machine: Machine) -> None:
    theta, path = random_parameters(machine, dtype=np.float32), some_path(machine)
    field = some_fields(machine)[0]
    fast = engine().terms(theta, path, field)
    plain = path_terms(theta, path.states, field, path.word)
    np.testing.assert_allclose(fast, plain, rtol=2e-5)
    assert plain.identity_error < 1e-12
    r = residuals(theta.astype(np.float64), path.states.astype(np.float64), path.word)
    assert plain.loss == pytest.approx(loss_scale(machine) * np.sum(r**2) / machine.steps)


@every_machine
def test_the_form_of_a_path_is_its_loss(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """At θ = 0 and at another, in blocks of few rows, on any number of threads."""
    monkeypatch.setattr(quadratic_loss, "ROWS", 16)
    path, found = some_path(machine), []
    for theta in (Parameters.zeros(machine), random_parameters(machine, 0.1, dtype=np.float32)):
        plain = path_terms(theta, path.states, word=path.word)
        for count in (1, 2):
            with threads(count):
                found.append(QuadraticLoss(machine, path.states, path.word)(theta))
        assert found[-1] == found[-2]
        assert found[-1].loss == pytest.approx(plain.loss, rel=1e-7)
        assert found[-1].reduced_loss == pytest.approx(plain.reduced_loss, rel=1e-5)


def test_residual_is_drive_plus_coupling() -> None:
    """[−Δx + μΔt ∂V]/(2k_BT), written out."""
    machine = MACHINES["everything"]
    theta, path = random_parameters(machine), some_path(machine).states.astype(np.float64)
    word = some_word(machine)
    constants = step_constants(machine, np.float64)
    before, after = path[3], path[4]
    expected = (before - after + machine.drift * energy_gradient(theta, after, 0, word)) / (
        2 * machine.kT
    )
    coupling = coupling_gradient(theta, after, 0, word)
    found = residual(constants, drive(constants, before, after), coupling)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


# --- the solver ---------------------------------------------------------------------------------


def words_of(machine: Machine, count: int) -> np.ndarray | None:
    return label_word(machine, np.arange(count) % machine.labels) if machine.labels else None


@every_machine
def test_both_forms_of_the_moments_agree(machine: Machine) -> None:
    fields, words = some_fields(machine, 4), words_of(machine, 4)
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    window = machine.stage_windows[-1]
    loss = ExpectedLoss(machine, fields, marginals, window, words)
    theta = random_parameters(machine).vector[0]
    slopes = []
    modes = TimeModes(marginals, *window)
    for moments in (
        expected_loss.Factored(machine, modes, fields, words),
        expected_loss.dense_moments(machine, [modes], fields, words)[0],
    ):
        loss.moments = moments
        slopes.append(loss.slope(theta))
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-12 * np.abs(slopes[0]).max())


@every_machine
def test_optimum_against_a_dense_solve(machine: Machine) -> None:
    """H and g₀ built column by column over independent parameters, then one linear solve."""
    fields, words = some_fields(machine, 2), words_of(machine, 2)
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    form = layout(machine)
    # rows of one number each: which entries of the flat vector are one independent parameter
    owner = []
    for block in form.blocks:
        index = block.of(np.arange(form.size))
        if block.symmetric:
            pairs = [(index[i, j], index[j, i]) for i in range(len(index)) for j in range(i)]
            owner += [np.array(pair) for pair in pairs]
        else:
            owner += [np.array([i]) for i in index.ravel()]
    found = solve_optimum(machine, Drive(fields, words), tolerance=1e-10)
    for stage, window in enumerate(machine.stage_windows):
        loss = ExpectedLoss(machine, fields, marginals, window, words)
        hessian = np.empty((len(owner), len(owner)))
        for column, entries in enumerate(owner):
            direction = np.zeros(form.size)
            direction[entries] = 1
            hessian[:, column] = loss.curvature(direction)[[e[0] for e in owner]]
        np.testing.assert_allclose(hessian, hessian.T, atol=1e-9 * np.abs(hessian).max())
        slope = np.array([loss.zero_gradient[e[0]] for e in owner])
        exact = np.linalg.lstsq(hessian, -slope, rcond=1e-13)[0]
        theta = np.array([found.parameters.vector[stage][e[0]] for e in owner])
        np.testing.assert_allclose(theta, exact, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("name", ["everything", "all stages"])
def test_expected_gradient_is_the_long_average(name: str) -> None:
    machine = MACHINES[name]
    fields, words = some_fields(machine, 3), words_of(machine, 3)
    theta = random_parameters(machine, 0.1)
    slopes: list[list[np.ndarray]] = [[], [], []]
    for number in range(900):
        pattern = number % 3
        path = engine().path(machine, fields[pattern], 4, number).states.astype(np.float64)
        slopes[pattern].append(gradient(theta, path, words[pattern]).vector)
    mean = np.mean(slopes, axis=(0, 1))
    error = np.sqrt(np.var(slopes, axis=1, ddof=1).mean(axis=0) / 900)  # within patterns
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    for stage, window in enumerate(machine.stage_windows):
        loss = ExpectedLoss(machine, fields, marginals, window, words)
        away = (mean[stage] - loss.slope(theta.vector[stage]))[error[stage] > 0]
        sigma = away / error[stage][error[stage] > 0]
        assert np.abs(sigma).max() < 5.0
        assert 0.85 < np.sqrt(np.mean(sigma**2)) < 1.15


# --- stages -------------------------------------------------------------------------------------


def test_windows_of_a_path_and_of_generation() -> None:
    machine = Machine(visible=2, hidden=2, duration=0.01, stages=3, windows=(0.2, 0.5, 1.0))
    assert windows(machine) == ((0, 2), (2, 5), (5, 10))
    assert generation_windows(machine) == ((2, 0, 5), (1, 5, 8), (0, 8, 10))


def test_equal_stages_generate_the_same_bits_as_one() -> None:
    one = replace(MACHINES["everything"], stages=1)
    theta = random_parameters(one, dtype=np.float32)
    word = label_word(one, np.array([0, 1, 2, 0]))
    single = engine().generate(theta, 4, 9, word)
    for stages, edges in ((2, ()), (4, (0.1, 0.2, 0.7, 1.0))):
        many = replace(one, stages=stages, windows=edges)
        repeated = Parameters(many, np.repeat(theta.vector, stages, axis=0))
        found = engine().generate(repeated, 4, 9, word)
        assert np.array_equal(found.final_states, single.final_states)
        np.testing.assert_allclose(found.heat, single.heat, rtol=1e-12)
        assert np.all(found.switching_work == 0)


@every_machine
def test_first_law(machine: Machine) -> None:
    """ΔV = W − Q with every energy evaluated again, from replayed states at the switches."""
    theta = random_parameters(machine, dtype=np.float32)
    words = None if machine.labels == 0 else np.tile(some_word(machine), (6, 1))
    switches = [first for _, first, _ in generation_windows(machine)] + [machine.steps]
    found = engine().generate(
        theta, 6, 3, words, snapshot_steps=switches, snapshot_samples=range(6)
    )
    x = found.snapshots
    heat, work, latest = np.zeros(6), np.zeros(6), None
    for position, (stage, _, _) in enumerate(generation_windows(machine)):
        start = energy(theta, x[:, position], stage, words)
        end = energy(theta, x[:, position + 1], stage, words)
        if latest is not None:
            work += start - latest
        heat += start - end
        latest = end
    np.testing.assert_allclose(found.heat, heat, rtol=1e-12)
    np.testing.assert_allclose(found.work, work, atol=1e-12)
    assert found.first_law_error < 1e-14
    assert found.stage_heat.shape == (6, machine.stages)
    assert (np.abs(found.work) > 0).all() == (machine.stages > 1)


# --- equilibrium of the frozen machine ------------------------------------------------------------


def test_three_units_relax_to_the_boltzmann_density() -> None:
    """Two visible units and a hidden one, all wirings and biases, a label: by quadrature."""
    machine = Machine(
        visible=2,
        hidden=1,
        labels=1,
        wiring=WIRES,
        biases=("visible", "hidden"),
        duration=4.0,
        dt=4e-3,
        kT=0.3,
    )
    theta = random_parameters(machine, 0.5, seed=4, dtype=np.float32)
    word = label_word(machine, np.zeros(6000, int))
    x = engine().generate(theta, 6000, 1, word).final_states.astype(float)
    grid = np.linspace(-2.2, 2.2, 81)
    states = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = np.exp(-energy(theta, states, 0, word[0]) / machine.kT)
    weight /= weight.sum()
    for i in range(3):
        for values, exact in (
            (x[:, i], weight @ states[:, i]),
            (x[:, i] * x[:, i - 1], weight @ (states[:, i] * states[:, i - 1])),
        ):
            error = values.std() / np.sqrt(len(values))
            assert abs(values.mean() - exact) < 4 * error + 0.01 * abs(exact)


def test_without_biases_a_state_is_as_likely_as_its_negative() -> None:
    machine = replace(MACHINES["paper"], biases=(), wiring=("visible-hidden", "hidden-hidden"))
    theta = random_parameters(machine, 0.4)
    x = np.random.default_rng(0).normal(size=(5, machine.units))
    np.testing.assert_allclose(energy(theta, x), energy(theta, -x), rtol=1e-13)
    biased = random_parameters(MACHINES["paper"], 0.4)
    assert np.abs(energy(biased, x) - energy(biased, -x)).max() > 0.1


# --- labels and clamps ----------------------------------------------------------------------------


def test_words_of_classes() -> None:
    machine = replace(MACHINES["labels"], label_amplitude=2.5)
    np.testing.assert_array_equal(label_word(machine, 1), [0, 2.5, 0])
    assert label_word(machine, np.array([0, 2])).shape == (2, 3)
    assert label_word(MACHINES["paper"], None) is None
    for wrong in (3, -1, 0.5, np.array([0, 7])):
        with pytest.raises(UserError, match="class"):
            label_word(machine, wrong)
    with pytest.raises(UserError, match="no label units"):
        label_word(MACHINES["paper"], 1)
    with pytest.raises(UserError, match="name one"):
        label_word(machine, None)


@pytest.mark.parametrize("follow", [True, False])
def test_a_full_clamp_gives_back_the_image(follow: bool) -> None:
    machine = Machine(visible=12, hidden=8, duration=2.5, dt=5e-3)
    pattern = np.random.default_rng(0).normal(size=12).astype(np.float32)
    values = pattern if follow else resting_states(machine, pattern).astype(np.float32)
    clamp = Clamp(np.ones(12, bool), values, follow)
    theta = random_parameters(machine, dtype=np.float32)
    images = engine().generate(theta, 200, 5, clamp=clamp).final_states[:, :12]
    rest = resting_states(machine, pattern)
    np.testing.assert_allclose(machine.potential.gradient(rest), 2 * pattern, atol=1e-9)
    if follow:
        # at the end a unit is where preparation left it: around its resting state
        error = images.std(axis=0) / np.sqrt(len(images))
        assert np.corrcoef(images.mean(axis=0), rest)[0, 1] > 0.99
        assert (np.abs(images.mean(axis=0) - rest) < 6 * error + 0.05).all()
    else:
        assert np.array_equal(images, np.tile(rest.astype(np.float32), (200, 1)))


@pytest.mark.parametrize("name", ["paper", "all stages"])
@pytest.mark.parametrize("follow", [True, False])
def test_heat_and_work_with_clamps(name: str, follow: bool) -> None:
    """Free units give off heat while clamps rest; clamps do work while free units rest."""
    machine = MACHINES[name]
    theta = random_parameters(machine, dtype=np.float32)
    mask = np.arange(machine.visible) < 5
    values = np.random.default_rng(1).normal(size=(4, machine.visible)).astype(np.float32)
    clamp = Clamp(mask, values, follow)
    words = None if machine.labels == 0 else np.tile(some_word(machine), (4, 1))
    found = engine().generate(
        theta,
        4,
        9,
        words,
        clamp,
        snapshot_steps=range(machine.steps + 1),
        snapshot_samples=range(4),
    )
    x, clamped = found.snapshots, clamp.units(machine)
    heat, work = np.zeros(4), np.zeros(4)
    for stage, first, last in generation_windows(machine):
        for step in range(first, last):
            moved = np.where(clamped, x[:, step], x[:, step + 1])  # free units first
            at = [energy(theta, y, stage, words, clamped) for y in (x[:, step], moved)]
            heat += at[0] - at[1]
            work += energy(theta, x[:, step + 1], stage, words, clamped) - at[1]
    np.testing.assert_allclose(found.heat, heat, atol=1e-6)
    np.testing.assert_allclose(found.clamp_work.sum(axis=1), work, atol=1e-6)
    assert found.first_law_error < 1e-9
    assert (work != 0).any() == follow


def test_clamped_units_follow_a_reversed_noising_path() -> None:
    """Of a stream of their own: at the end like the start of a noising path, in distribution."""
    machine = Machine(visible=6, hidden=3, duration=1.0, dt=5e-3)
    pattern = np.linspace(-1.5, 1.5, 6).astype(np.float32)
    clamp = Clamp(np.ones(6, bool), pattern)
    theta = random_parameters(machine, dtype=np.float32)
    found = engine().generate(
        theta, 300, 2, clamp=clamp, snapshot_steps=[0, 100], snapshot_samples=range(300)
    )
    field = np.concatenate([pattern, np.zeros(3, np.float32)])
    paths = [engine().path(machine, field, 8, n).states for n in range(300)]
    for snapshot, step in ((found.final_states, 0), (found.snapshots[:, 1], 100)):
        expected = np.array([path[step, :6] for path in paths])
        error = np.sqrt(expected.var(0) + snapshot[:, :6].var(0)) / np.sqrt(300)
        away = (snapshot[:, :6].mean(0) - expected.mean(0)) / error
        assert np.abs(away).max() < 4.5


def test_wrong_clamps_are_refused() -> None:
    with pytest.raises(UserError, match="mask"):
        Clamp(np.ones(4), np.zeros(4, np.float32))
    with pytest.raises(UserError, match="do not fit"):
        Clamp(np.ones(4, bool), np.zeros(5, np.float32))
    with pytest.raises(UserError, match="finite"):
        Clamp(np.ones(2, bool), np.array([0, np.nan], np.float32))
    with pytest.raises(UserError, match="visible ones"):
        Clamp(np.ones(4, bool), np.zeros(4, np.float32)).check(MACHINES["paper"], 1)
    with pytest.raises(UserError, match="3 images for 5 samples"):
        Clamp(np.ones(12, bool), np.zeros((3, 12), np.float32)).check(MACHINES["paper"], 5)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"wiring": ("visible-hiden",)},
            r"machine\.wiring = 'visible-hiden': must be one of visible",
        ),
        ({"wiring": ("label-label",)}, r"machine\.wiring = 'label-label': must be one of"),
        ({"wiring": ("hidden-hidden",) * 2}, r"machine\.wiring = .*repeats a name"),
        ({"wiring": "hidden-hidden"}, r"machine\.wiring = .*expected a list of strings"),
        ({"biases": ("label",)}, r"machine\.biases = 'label': must be one of visible, hidden"),
        ({"biases": ("hidden", "hidden")}, r"machine\.biases = .*repeats a name"),
        ({"code": "random"}, r"machine\.code = 'random': must be one of projection, copy"),
        ({"code_amplitude": 0.0}, r"machine\.code_amplitude = 0\.0: must be positive"),
        ({"code_clusters": 0}, r"machine\.code_clusters = 0: must be positive"),
        ({"code_seed": -1}, r"machine\.code_seed = -1: must not be negative"),
        ({"onsite": "linear"}, r"machine\.onsite = 'linear': must be one of quartic"),
        ({"labels": -1}, r"machine\.labels = -1: must not be negative"),
        ({"labels": 2.5}, r"machine\.labels = 2\.5"),
        ({"label_amplitude": 0.0}, r"machine\.label_amplitude = 0\.0: must be positive"),
        ({"stages": 0}, r"machine\.stages = 0: must be positive"),
        ({"stages": 201}, r"machine\.stages = 201: must not exceed the 200 steps"),
        ({"stages": 2, "windows": (1.0,)}, r"machine\.windows = \[1\.0\]: must be 2 fractions"),
        ({"stages": 2, "windows": (0.5, 0.9)}, r"machine\.windows = .*the last equal to 1"),
        ({"windows": (0.5, 1.0)}, r"machine\.windows = .*must be 1 fractions"),
        ({"stages": 2, "windows": (1.2, 1.0)}, r"machine\.windows = .*must rise"),
        ({"stages": 3, "windows": (0.5, 0.4, 1.0)}, r"machine\.windows = .*must rise"),
        ({"stages": 3, "windows": (0.5, 0.501, 1.0)}, r"machine\.windows = .*at least one step"),
        ({"stages": 2, "windows": (0.0, 1.0)}, r"machine\.windows = .*must rise"),
        ({"stages": 2, "windows": (float("nan"), 1.0)}, r"machine\.windows = "),
    ],
)
def test_settings_that_make_no_machine_are_refused_in_one_line(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        Machine(visible=12, hidden=8, duration=0.2, **settings)
    assert "\n" not in str(error.value)


def test_every_step_can_be_a_stage() -> None:
    machine = Machine(visible=2, hidden=2, duration=0.01, stages=10)
    assert machine.stage_windows == tuple((k, k + 1) for k in range(10))


def test_wires_of_labels_need_labels() -> None:
    """They may stay in the wiring: without labels there is nothing to couple to."""
    wired = Machine(visible=2, hidden=2, wiring=("visible-label", "visible-hidden"))
    assert [block.name for block in layout(wired).blocks] == ["visible_hidden", "hidden_bias"]
    labelled = replace(wired, labels=1)
    names = [block.name for block in layout(labelled).blocks]
    assert names == ["visible_hidden", "visible_label", "hidden_bias"]


# --- parameters ---------------------------------------------------------------------------------


@every_machine
def test_parameters_by_name_and_back(machine: Machine) -> None:
    theta = random_parameters(machine)
    assert Parameters.from_arrays(machine, theta.arrays).same_as(theta)
    names = list(theta.arrays)
    with pytest.raises(UserError, match=names[0]):
        Parameters.from_arrays(machine, {n: theta[n] for n in names[1:]})
    inner = theta.layout.inner(theta.vector[0], theta.vector[0])
    once = sum(
        np.sum(np.tril(block.of(theta.vector[0])) ** 2)
        if block.symmetric
        else np.sum(block.of(theta.vector[0]) ** 2)
        for block in theta.layout.blocks
    )
    assert inner == pytest.approx(once)


def test_quadrature_agrees_with_the_potential() -> None:
    """energy and gradient of the onsite potential are each other's integral and derivative."""
    onsite = Machine(J2=0.7, J4=0.4).potential
    for x in (-1.3, 0.2, 2.0):
        assert integrate.quad(onsite.gradient, 0, x)[0] == pytest.approx(onsite.energy(x))
        slope = (onsite.gradient(x + 1e-6) - onsite.gradient(x - 1e-6)) / 2e-6
        assert onsite.curvature(x) == pytest.approx(slope, rel=1e-6)
        terms = onsite.taylor(np.array(x))
        shifted = sum(term * 0.3**n for n, term in enumerate(terms))
        assert shifted == pytest.approx(onsite.gradient(x + 0.3))
