"""Wirings: masks, lists of wires, the edge kernel, the exact optimum and sparse generation."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import MACHINES, random_parameters, some_fields, some_path, some_word
from plain_rules import gradient, learn_stepwise
from study_runs import run
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom import feasibility
from thermoloom.cli.commands import app
from thermoloom.engines import engine
from thermoloom.engines.compiled import noising, sparse_learner
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import drives_of
from thermoloom.engines.compiled.sparse_learner import SparseLearner
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.action import path_terms
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.wires import are_joined, few_wires, measure, pairs_of, sites, text_of, wires
from thermoloom.patterns.drive import Drive
from thermoloom.patterns.edge_lists import read_edges
from thermoloom.settings import Settings
from thermoloom.studies.discovery import study
from thermoloom.theory.expected_heat import expected_heats
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.predictions import offset_gradient
from thermoloom.theory.solver import solve_optimum
from thermoloom.theory.wire_moments import worth_blocks
from thermoloom.threads import threads

GRID: dict[str, Any] = {"topology": "grid", "radius": 2}
RANDOM: dict[str, Any] = {"topology": "random", "degree": 3}
ALL: dict[str, Any] = {"topology": "grid", "radius": 99}
KINDS = ("paper", "all stages", "restricted", "apart")
"""Machines of every kind of block, with labels, biases and stages."""


def thinned(kind: str, wiring: dict[str, Any]) -> Machine:
    return replace(MACHINES[kind], **wiring)


def masked_parameters(machine: Machine, scale: float = 0.3) -> Parameters:
    theta = random_parameters(machine, scale, dtype=np.float32)
    theta.check()
    return theta


def restricted(machine: Machine, theta: Parameters) -> Parameters:
    """θ of a completely wired machine on the wires of another one."""
    blocks = [(block, theta[block.name]) for block in layout(machine).blocks]
    return Parameters.from_arrays(
        machine,
        {b.name: array if b.wires is None else b.wires.restricted(array) for b, array in blocks},
    )


# --- the sheet and the wires ----------------------------------------------------------------------


@pytest.mark.parametrize(("visible", "hidden"), [(784, 512), (784, 0), (12, 8), (1, 1), (5, 90)])
def test_every_unit_has_a_site_of_its_own_on_the_smallest_square(visible: int, hidden: int) -> None:
    place = sites(Machine(visible=visible, hidden=hidden, wiring=()))
    side = int(np.ceil(np.sqrt(visible + hidden)))
    assert len({tuple(p) for p in place.tolist()}) == visible + hidden
    assert place.min() >= 0
    assert place.max() < side


def test_pixels_keep_their_rows_and_columns() -> None:
    image = sites(Machine())[:784].reshape(28, 28, 2)
    assert (np.diff(image[..., 0], axis=0) >= 1).all()
    assert (np.diff(image[..., 1], axis=1) >= 1).all()
    assert not np.ptp(image[..., 0], axis=1).any()


def test_a_grid_has_the_wires_up_to_its_radius_and_measures_count_them() -> None:
    machine = thinned("everything", GRID)
    place = sites(machine)
    expected = [
        (i, j)
        for i in range(machine.units)
        for j in range(i + 1, machine.units)
        if np.abs(place[i] - place[j]).sum() <= 2
    ]
    assert wires(machine).tolist() == [list(pair) for pair in expected]
    found = measure(machine)
    lengths = [int(np.abs(place[i] - place[j]).sum()) for i, j in expected]
    assert (found.wires, found.length, found.longest) == (len(expected), sum(lengths), 2)
    assert found.mean_length == pytest.approx(np.mean(lengths))
    assert found.degree == pytest.approx(2 * len(expected) / machine.units)
    assert found.drive_lines == machine.units * (1 + machine.labels)
    assert sum(b.edges for b in layout(machine).blocks if b.wires is not None) == found.wires


def test_a_random_wiring_has_its_degree_and_depends_on_its_seed() -> None:
    machine = thinned("paper", RANDOM)
    assert measure(machine).wires == round(machine.units * 3 / 2)
    assert np.array_equal(wires(machine), wires(replace(machine)))
    assert not np.array_equal(wires(machine), wires(replace(machine, topology_seed=7)))
    assert are_joined(MACHINES["paper"], wires(machine)).all()


def test_complete_wiring_is_what_it_was() -> None:
    machine = Machine()
    assert all(block.wires is None for block in layout(machine).blocks)
    assert measure(machine).wires == 784 * 512 + 512 * 511 // 2
    assert measure(machine).longest == 70


# --- lists of wires -------------------------------------------------------------------------------


def test_a_list_is_its_wires_whatever_their_order(tmp_path: Path) -> None:
    machine = thinned("paper", RANDOM)
    pairs = wires(machine)
    shuffled = np.random.default_rng(0).permutation(pairs)[:, ::-1]
    text = text_of(pairs)
    assert text_of(shuffled) == text
    assert sorted(pairs_of(text).tolist()) == pairs.tolist()
    listed = replace(MACHINES["paper"], topology="edges", edges=text)
    assert np.array_equal(wires(listed), wires(machine))
    np.save(tmp_path / "wires.npy", shuffled)
    lines = "\n".join(f"{i}, {j}  # a wire" for i, j in shuffled)
    (tmp_path / "wires.csv").write_text(f"# units\n\n{lines}\n")
    assert read_edges(tmp_path / "wires.npy") == read_edges(tmp_path / "wires.csv") == text
    assert tl.edges(pairs) == tl.edges(tmp_path / "wires.csv") == text


def test_large_numbers_survive_the_text() -> None:
    pairs = [(0, 1), (0, 2), (1, 2), (16_000_000, 16_000_001), (0, 16_000_001), (5, 9_999_999)]
    assert sorted(pairs_of(text_of(pairs)).tolist()) == sorted(sorted(p) for p in pairs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1 2\n", r"line 1: expected two units"),
        ("# none\n", "has no wires"),
        ("0, x\n", r"line 1: expected two units"),
        ("0 -3\n", r"line 1: expected two units"),
        ("3 3\n", "joins a unit to itself"),
        ("3 14\n14 3\n", "wire 3, 14 is listed twice"),
        ("3 99\n", "names unit 99; this machine has the units 0 to 19"),
        ("3 4\n", "joins units 3 and 4, a visible-visible wire; add visible-visible to"),
    ],
)
def test_wrong_lists_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "wires.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        replace(MACHINES["paper"], topology="edges", edges=read_edges(file))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topology": "ring"}, "must be one of complete, grid, moore, random, edges"),
        ({"topology": "grid"}, r"needs machine\.radius"),
        ({"topology": "edges"}, r"needs machine\.edges"),
        ({"radius": 2}, r"applies to machine\.topology = 'grid' or 'moore' only"),
        ({"topology": "random", "degree": 20}, "use a lower degree"),
        ({"topology": "grid", "radius": -1}, "must not be negative"),
        ({"topology": "edges", "edges": "wires.txt"}, "not a list of wires"),
        ({"topology": "grid", "radius": 1, "wiring": ()}, "no wire joins two units"),
        ({"topology": "grid", "radius": 1, "visible": 10**7}, "at most 1048576"),
        ({"topology": "grid", "radius": 99, "visible": 10**6}, "at most 134217728 are possible"),
    ],
)
def test_wirings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(MACHINES["paper"], **settings)


@pytest.mark.parametrize("imperfections", [{"update_noise": 0.1}, {"bits": 8}])
def test_what_is_not_defined_for_few_wires_is_refused(imperfections: dict[str, Any]) -> None:
    ranges = {"range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    chosen = imperfections | (ranges if "bits" in imperfections else {})
    settings = Settings(machine=thinned("paper", GRID)).updated({"imperfections": chosen})
    with pytest.raises(UserError, match=r"imperfections\..*complete"):
        engine().learner(settings)


def test_couplings_without_a_wire_are_refused() -> None:
    machine, theta = thinned("paper", GRID), random_parameters(MACHINES["paper"])
    with pytest.raises(UserError, match="has couplings where this machine has no wires"):
        Parameters.from_arrays(machine, theta.arrays)
    thin = restricted(machine, theta)
    dense = {block.name: block.dense(thin.vector) for block in thin.layout.blocks}
    dense["hidden_bias"] = thin["hidden_bias"]
    assert Parameters.from_arrays(machine, dense).same_as(thin)


# --- the rule on wires ----------------------------------------------------------------------------


@pytest.mark.parametrize("wiring", [GRID, RANDOM], ids=["grid", "random"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("period", [1, 7, 200])
def test_the_edge_kernel_is_the_stepwise_rule(
    kind: str, wiring: dict[str, Any], period: int
) -> None:
    machine, rate = thinned(kind, wiring), 4e-3
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    found = SparseLearner(machine, rate, period).learn(theta, path)
    found.check()
    expected = learn_stepwise(theta, path.states, rate, period, word=path.word)
    assert np.abs(expected.vector - theta.vector).max() > 1e-3
    assert np.abs(found.vector - expected.vector).max() < 3e-7


@pytest.mark.parametrize("rate", [1e-4, 4e-2, 0.4])
def test_fast_rules_are_swept_longer_or_in_shorter_blocks(rate: float) -> None:
    machine = thinned("everything", GRID)
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    learner = SparseLearner(machine, rate)
    expected = learn_stepwise(theta, path.states, rate, word=path.word)
    found = learner.learn(theta, path)
    change = np.abs(expected.vector - theta.vector).max()
    assert np.abs(found.vector - expected.vector).max() < 1e-6 * max(change, 0.3)


def test_residuals_made_in_passing_are_those_of_a_prepared_path() -> None:
    machine = thinned("everything", GRID)  # stages that end within a block, units beyond vectors
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    prepared = replace(path, prepared=drives_of(machine, path.states))
    learner = SparseLearner(machine, 4e-3)
    assert path.prepared is None
    assert learner.learn(theta, path).same_as(learner.learn(theta, prepared))


def test_residual_errors_enter_the_rule_on_wires() -> None:
    machine = thinned("paper", GRID)
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    errors = np.random.default_rng(3).normal(size=path.states[1:].shape).astype(np.float32)
    found = SparseLearner(machine, 4e-3).learn(theta, path, 0.1 * errors)
    expected = learn_stepwise(theta, path.states, 4e-3, errors=0.1 * errors)
    assert np.abs(found.vector - expected.vector).max() < 3e-7
    plain = SparseLearner(machine, 4e-3).learn(theta, path)
    assert np.abs(found.vector - plain.vector).max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_mask_learns_what_the_dense_learner_does(kind: str) -> None:
    machine, full = MACHINES[kind], thinned(kind, ALL)
    path, theta = some_path(machine), random_parameters(machine, 0.05, dtype=np.float32)
    dense = Learner(machine, 4e-3).learn(theta, path)
    found = SparseLearner(full, 4e-3).learn(restricted(full, theta), replace(path, machine=full))
    assert np.abs(found.vector - restricted(full, dense).vector).max() < 3e-7


def test_bits_do_not_depend_on_threads() -> None:
    machine = replace(Machine(), duration=0.2, topology="random", degree=6)
    field = some_fields(machine)[0]
    path, theta = engine().path(machine, field, 1, 0), Parameters.zeros(machine)
    learner = SparseLearner(machine, 4e-3)
    with threads(1):
        alone = learner.learn(theta, path)
    with threads(3):
        together = learner.learn(theta, path)
    assert alone.same_as(together)


def test_blocks_of_any_length_learn_the_same() -> None:
    machine = thinned("all stages", RANDOM)
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    lengths = (1, 5, 64)
    found = [SparseLearner(machine, 4e-3, block=n).learn(theta, path).vector for n in lengths]
    assert max(np.abs(one - found[0]).max() for one in found) < 3e-7


def test_a_path_in_stretches_is_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = thinned("all stages", RANDOM)  # stages that end anywhere
    theta, path = masked_parameters(machine, 0.05), some_path(machine)
    monkeypatch.setattr(feasibility, "LONG_PATH", 0)
    monkeypatch.setattr(feasibility, "few_wires", lambda _: True)
    monkeypatch.setattr(sparse_learner, "STRETCH", 64)
    long = some_path(machine)
    assert isinstance(long.states, noising.LongStates)
    for first, last in ((0, 5), (5, 9), (7, 31), (2, 3), (0, len(path.states))):
        assert np.array_equal(long.states[first:last], path.states[first:last])
    assert np.array_equal(long.states[[3, 1]], path.states[[3, 1]])
    for period in (1, 7):
        learner = SparseLearner(machine, 4e-3, period)
        expected = learner.learn(theta, path).vector
        assert np.abs(learner.learn(theta, long).vector - expected).max() < 3e-7
    errors = np.ones((machine.steps, machine.units), np.float32)
    expected = learner.learn(theta, path, errors).vector
    assert np.abs(learner.learn(theta, long, errors).vector - expected).max() < 1e-6
    here, there = (engine().terms(theta, each) for each in (path, long))
    assert there == pytest.approx(here, rel=1e-6)


# --- loss, gradient, optimum ----------------------------------------------------------------------


def test_the_gradient_has_no_part_without_a_wire() -> None:
    machine = thinned("all stages", GRID)
    path = some_path(machine)
    whole = gradient(Parameters.zeros(MACHINES["all stages"]), path.states, path.word)
    found = gradient(Parameters.zeros(machine), path.states, path.word)
    assert found.vector == pytest.approx(restricted(machine, whole).vector, rel=1e-5, abs=1e-5)
    assert found.vector.size < whole.vector.size


def independent(machine: Machine) -> list[np.ndarray]:
    """A flat direction for every independent parameter of a stage."""
    form, found = layout(machine), []
    for block in form.blocks:
        for numbers in np.eye(block.edges):
            direction = np.zeros(form.size)
            block.set_independent(direction, numbers)
            found.append(direction)
    return found


@pytest.mark.parametrize(
    ("kind", "wiring"),
    [("paper", GRID), ("paper", RANDOM), ("labels", GRID), ("everything", GRID | {"radius": 1})],
)
def test_the_optimum_is_that_of_a_dense_solve_over_the_wires(
    kind: str, wiring: dict[str, Any]
) -> None:
    machine = thinned(kind, wiring)
    fields = some_fields(machine)
    words = None if not machine.labels else np.stack([some_word(machine, n) for n in range(3)])
    solved = solve_optimum(machine, Drive(fields, words), tolerance=1e-9)
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    [loss] = expected_losses(machine, fields, marginals, words)
    directions = independent(machine)
    assert len(directions) == sum(block.edges for block in loss.layout.blocks)
    inner = loss.layout.inner
    images = [loss.curvature(d) for d in directions]
    hessian = np.array([[inner(a, image) for a in directions] for image in images])
    slope = np.array([inner(d, loss.zero_gradient) for d in directions])
    steps = np.linalg.lstsq(hessian, -slope, rcond=1e-12)[0]
    expected = np.sum(steps[:, None] * np.array(directions), axis=0)
    least = loss.total(expected) / loss.steps
    assert solved.expected_loss == pytest.approx(least, rel=1e-10)
    if kind == "paper":  # labels and biases of three patterns leave directions without curvature
        assert np.abs(solved.parameters.vector[0] - expected).max() < 1e-5 * np.abs(expected).max()
    solved.parameters.check()


@pytest.mark.parametrize("kind", ["paper", "everything", "all stages", "apart"])
@pytest.mark.parametrize("wiring", [GRID | {"radius": 1}, ALL], ids=["blocks", "dense"])
def test_moments_on_wires_are_those_of_the_complete_machine(
    kind: str, wiring: dict[str, Any]
) -> None:
    machine, complete = thinned(kind, wiring), MACHINES[kind]
    assert worth_blocks(machine) == (wiring is not ALL)
    fields, theta = some_fields(machine), random_parameters(machine)
    words = None if not machine.labels else np.stack([some_word(machine, n) for n in range(3)])
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    losses = [expected_losses(m, fields, marginals, words) for m in (machine, complete)]
    heats = [expected_heats(m, fields, marginals, words) for m in (machine, complete)]

    def on_wires(vector: np.ndarray) -> Any:
        stages = np.tile(vector, (machine.stages, 1))
        numbers = restricted(machine, Parameters(complete, stages)).vector[0]
        return pytest.approx(numbers, rel=1e-9, abs=1e-9 * np.abs(numbers).max())

    for stage, (thin, whole) in enumerate(zip(*losses, strict=True)):
        vector = theta.vector[stage]
        full = theta.layout.completed(vector)
        assert thin.zero_gradient == on_wires(whole.zero_gradient)
        assert thin.curvature(vector) == on_wires(whole.curvature(full))
        assert thin.total(vector) == pytest.approx(whole.total(full), rel=1e-12)
        assert heats[0][stage].slope == on_wires(heats[1][stage].slope)
        assert heats[0][stage].value(vector) == pytest.approx(heats[1][stage].value(full))
        assert offset_gradient(thin) == on_wires(offset_gradient(whole))


def test_a_full_mask_has_the_complete_optimum() -> None:
    machine = MACHINES["paper"]
    fields = some_fields(machine)
    whole = solve_optimum(machine, Drive(fields), tolerance=1e-9)
    found = solve_optimum(thinned("paper", ALL), Drive(fields), tolerance=1e-9)
    assert found.expected_loss == pytest.approx(whole.expected_loss, rel=1e-12)
    assert found.expected_heat == pytest.approx(whole.expected_heat, rel=1e-5)
    largest = np.abs(whole.parameters.vector).max()
    expected = restricted(thinned("paper", ALL), whole.parameters)
    difference = np.abs(found.parameters.vector - expected.vector).max()
    assert difference < 1e-5 * largest


def test_more_wires_lose_less_and_a_price_on_heat_acts() -> None:
    fields = some_fields(MACHINES["paper"])
    radii = (1, 2, 4, 99)
    solved = [
        solve_optimum(thinned("paper", GRID | {"radius": r}), Drive(fields), tolerance=1e-8)
        for r in radii
    ]
    losses = [each.expected_loss for each in solved]
    assert losses == sorted(losses, reverse=True)
    cheap = solve_optimum(thinned("paper", GRID), Drive(fields), tolerance=1e-8, heat_weight=0.3)
    assert cheap.expected_heat < solved[1].expected_heat
    cheap.parameters.check()


# --- generation and validation --------------------------------------------------------------------


@pytest.fixture(scope="module")
def thin() -> Parameters:
    machine = Machine(
        visible=49, hidden=32, labels=3, stages=2, duration=0.1, topology="random", degree=4
    )
    assert few_wires(machine)
    return masked_parameters(machine, 0.1)


def on_complete_wiring(theta: Parameters) -> Parameters:
    whole = replace(theta.machine, topology="complete", degree=0)
    form, complete = theta.layout, Parameters.zeros(whole)
    complete.vector[:] = [form.completed(row) for row in theta.vector]
    return complete


def test_sparse_generation_is_dense_generation(thin: Parameters) -> None:
    found, dense = generate(thin, 7, 5), generate(on_complete_wiring(thin), 7, 5)
    assert np.array_equal(found.initial_states, dense.initial_states)
    assert np.abs(found.final_states - dense.final_states).max() < 2e-6
    assert np.abs(found.heat - dense.heat).max() < 1e-4
    assert np.abs(found.path_heat - dense.path_heat).max() < 1e-4


def test_a_sparse_sample_does_not_depend_on_the_others(thin: Parameters) -> None:
    together, alone = generate(thin, 9, 5, classes=1), generate(thin, 1, 5, classes=1, first=8)
    assert np.array_equal(together.final_states[8], alone.final_states[0])


def test_sparse_path_terms_are_the_plain_ones(thin: Parameters) -> None:
    path = some_path(thin.machine)
    found = engine().terms(thin, path, some_fields(thin.machine)[0])
    plain = path_terms(thin, path.states, some_fields(thin.machine)[0], path.word)
    assert found == pytest.approx(plain, rel=1e-6)


def test_a_machine_on_few_wires_learns_saves_and_loads(tmp_path: Path) -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.05, topology="grid", radius=2)
    images = np.random.default_rng(0).random((2, 7, 7))
    computer = machine.train(images, cycles=3)
    computer.save(tmp_path / "thin.safetensors")
    again = tl.load(tmp_path / "thin.safetensors")
    assert again.machine == machine
    assert np.array_equal(again.parameters.vector, computer.parameters.vector)
    computer.parameters.check()
    assert np.isfinite(again.generate(2).images).all()


def test_a_command_takes_one_wiring() -> None:
    done = CliRunner().invoke(app, ["solve", "--radius", "3", "--degree", "4"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("--radius 3 and --degree 4: a machine has one topology;")


# --- the study ---

SMALL_PLAN: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 8, "duration": 0.1},
    "patterns": {"resize": True, "per_digit": 2},
    "generation": {"samples": 4},
    "study": {
        "radii": [1, 3], "degrees": [3], "online_radii": [2], "online_degrees": [2],
        "online_cycles": 3,
    },
}  # fmt: skip


def test_the_study_goes_all_the_way(tmp_path: Path) -> None:
    done = run(tmp_path, SMALL_PLAN, "wiring")
    assert done.failures == []
    assert done.summary["missing"] == []
    rows = done.summary["rows"]
    assert [(r["machine"], r["wiring"], r["rule"]) for r in rows].count(
        ("three", "grid", "optimum")
    ) == 2
    for machine in ("three", "ten"):
        solved = [r for r in rows if r["machine"] == machine and r["rule"] == "optimum"]
        complete = next(r for r in solved if r["wiring"] == "complete")
        assert all(r["expected_loss"] >= complete["expected_loss"] - 1e-9 for r in solved)
        assert all(r["wires"] <= complete["wires"] for r in solved)
        grids = [r["expected_loss"] for r in solved if r["wiring"] == "grid"]
        assert grids == sorted(grids, reverse=True)
    trained = [r for r in rows if r["rule"] == "online"]
    assert [r["wiring"] for r in trained] == 2 * ["complete", "grid", "random"]
    assert {r["rule"] for r in done.summary["correct_class"]} <= {"optimum"}
    text = (done.path / "report.html").read_text(encoding="utf-8")
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not any(word in plain for word in ("None", "NaN", "Traceback", ">nan<"))
    assert text.count("<img") == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"study": {"radii": [0, 2]}}, "must be at least 1 and increasing"),
        ({"patterns": {"digits": [0, 1]}}, "digits: set by the study itself"),
        ({"machine": {"topology": "grid"}}, "set by the study itself"),
    ],
)
def test_plans_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study("wiring").plan("quick", values)
