"""The screens from plan to page, on computers of a few units, against independent numbers."""

from __future__ import annotations

import json
import re
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_runs import read_table
from scipy import stats
from test_report import Reader, leaves
from thermoloom.experiments.results import trained_path
from thermoloom.experiments.run import Performed, compute
from thermoloom.experiments.screens import collect
from thermoloom.presentation.chapters import CHAPTERS
from thermoloom.presentation.report import write_report

from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.experiments import experiment, noise, precision
from thermoloom.machine.quantization import coupling_ranges, quantized
from thermoloom.measures.responses import Curve, Measured
from thermoloom.reproduction import noise_verdicts as noisy
from thermoloom.reproduction import paper, reproduce
from thermoloom.runs.execution import Resources
from thermoloom.runs.store import RunDirectory

SYSTEM: dict[str, dict[str, Any]] = {
    "machine": {"visible": 196, "hidden": 32, "duration": 0.2},
    "patterns": {"resize": True},
}
"""A 14 × 14 layer of 200 steps, so without the classifier."""

SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "noise": SYSTEM
    | {
        "experiment": {
            "update_noise": [0.0, 0.1, 0.3, 0.35],
            "update_cycles": 6,
            "update_samples": 5,
            "residual_noise": [0.0, 0.2, 0.4],
            "residual_offset": [0.0, 0.01, 1e4, 1e37],
            "residual_correlation": [0.0, 0.5, 0.9, 0.99],
            "residual_cycles": 5,
            "residual_samples": 4,
        }
    },
    "precision": SYSTEM
    | {
        "training": {"cycles": 9},
        "generation": {"samples": 8},
        "experiment": {
            "storage_bits": [2, 4, 5, 32],
            "training_bits": [4, 6, 8, 16],
            "training_cycles": 6,
            "training_samples": 6,
        },
    },
    "controls": SYSTEM
    | {
        "experiment": {
            "seeds": [1, 2, 3],
            "rate_cycles": 6,
            "rate_samples": 4,
            "periods": [1, 10, 100, 200],
            "period_cycles": 5,
            "period_samples": 4,
        }
    },
}
"""The largest offsets make samples, and then parameters, infinite."""
NAMES = tuple(SMALL)
_FOLDER = tempfile.TemporaryDirectory(prefix="thermoloom-tests-")


def plan_of(name: str, **values: Any) -> Any:
    return experiment(name).plan("quick", SMALL[name] | values)


@cache
def done(name: str) -> Performed:
    """The small experiment of this name, run once a session."""
    found = reproduce(experiment(name), plan_of(name), Path(_FOLDER.name) / name, Resources(1))
    write_report(found.path)
    return found


def rows_of(name: str, **wanted: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = done(name).summary["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def statement(name: str, key: str) -> dict[str, Any]:
    return next(s for s in done(name).summary["statements"] if s["key"] == key)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_heat_of_a_condition_is_the_mean_over_its_samples(name: str) -> None:
    samples = read_table(done(name).path / "samples.csv")
    conditions = read_table(done(name).path / "conditions.csv")
    keys = ("screen", "variant", "value", "seed")
    for i in np.flatnonzero(conditions["state"] == "done"):
        own = np.all([samples[key] == conditions[key][i] for key in keys], axis=0)
        heats = samples["heat"][own]
        assert len(heats) == conditions["samples"][i]
        assert conditions["heat_mean"][i] == pytest.approx(heats.mean())
        assert conditions["heat_sem"][i] == pytest.approx(stats.sem(heats))
        distance = samples["pattern_distance"][own].mean()
        assert conditions["pattern_distance"][i] == pytest.approx(distance)


def test_conditions_of_a_screen_share_their_generation_numbers() -> None:
    plan = plan_of("noise")
    starts = []
    for condition in plan.screen(noise.UPDATE):
        path = trained_path(done("noise").path.parent, condition.settings)
        order = SampleRequest(5, condition.settings.generation_seed)
        starts.append(generate_run(path, order).initial_states)
    assert all(np.array_equal(start, starts[0]) for start in starts[1:])


def test_every_error_changes_the_heat_and_no_error_is_the_baseline() -> None:
    for screen in noise.SCREENS:
        heats = [row["heat_mean"] for row in rows_of("noise", screen=screen, state="done")]
        assert len(set(heats)) == len(heats) > 1
    plain = rows_of("noise", screen=noise.RESIDUAL, value=0.2)[0]["heat_mean"]
    assert rows_of("noise", screen=noise.OFFSET, value=0.0)[0]["heat_mean"] == plain
    assert rows_of("noise", screen=noise.MEMORY, value=0.0)[0]["heat_mean"] == plain


def test_storage_and_its_distance_to_the_reference() -> None:
    plan, folder = plan_of("precision"), done("precision").path.parent
    settings = plan.stored(101)
    computer = parameters_of(RunDirectory.open(trained_path(folder, settings)))
    samples = read_table(done("precision").path / "samples.csv")
    stored = samples["screen"] == "storage"
    reference = samples["heat"][stored & (samples["value"] == 32)]
    for row in rows_of("precision", screen="storage"):
        heats = samples["heat"][stored & (samples["value"] == row["value"])]
        assert row["ks_distance"] == pytest.approx(stats.ks_2samp(heats, reference).statistic)
        grid = quantized(computer, int(row["value"]))
        fraction = np.count_nonzero(grid["visible_hidden"]) / grid["visible_hidden"].size
        assert row["nonzero_visible_hidden"] == pytest.approx(fraction)
    archive = generate_run(
        trained_path(folder, settings), SampleRequest(8, settings.generation_seed)
    )
    assert reference.tolist() == archive.heat.tolist()
    assert "p_value" not in json.dumps(done("precision").summary)


def test_training_in_bits_has_the_ranges_of_the_reference_of_its_length() -> None:
    plan, folder = plan_of("precision"), done("precision").path.parent
    computer = parameters_of(RunDirectory.open(trained_path(folder, plan.model(101))))
    visible, hidden = coupling_ranges(computer)
    conditions = plan.training(folder)
    assert len(conditions) == 8
    for condition in conditions:
        errors = condition.settings.imperfections
        assert (errors.range_visible_hidden, errors.range_hidden_hidden) == (visible, hidden)
        assert (errors.bits, errors.rounding) == (condition.value, condition.variant)
        run = RunDirectory.open(trained_path(folder, condition.settings))
        top = 2 ** (errors.bits - 1) - 1
        levels = parameters_of(run)["visible_hidden"] / visible * top
        assert np.abs(levels - np.rint(levels)).max() < 1e-3 * top
    row = rows_of("precision", screen="training", variant="nearest", value=4)[0]
    assert row["nonzero_visible_hidden"] == 0
    row = rows_of("precision", screen="training", variant="stochastic", value=4)[0]
    assert row["nonzero_visible_hidden"] > 0
    assert statement("precision", "zero_couplings")["values"]["vh4"] == 0


def test_controls_are_compared_in_pairs() -> None:
    summary = done("controls").summary
    for difference in summary["rate_differences"]:
        batch, online = (
            [
                row["heat_mean"]
                for row in rows_of("controls", variant=rule, value=difference["value"])
            ]
            for rule in ("batch", "online")
        )
        test = stats.ttest_rel(batch, online)
        assert difference["mean"] == pytest.approx(np.mean(np.subtract(batch, online)))
        assert difference["interval"] == pytest.approx(tuple(test.confidence_interval(0.95)))
        assert difference["seeds"] == [1, 2, 3]
    for difference in summary["period_differences"]:
        late, first = (
            [row["heat_mean"] for row in rows_of("controls", screen="update period", value=m)]
            for m in (difference["value"], 1)
        )
        assert difference["differences"] == pytest.approx(np.subtract(late, first).tolist())
    assert [d["value"] for d in summary["period_differences"]] == [10, 100, 200]


def test_first_and_last_period_are_the_online_and_the_batch_rule() -> None:
    plan = plan_of("controls")
    rules = [c.settings.training.rule for c in plan.delays(1)]
    assert rules == ["online", "delayed", "delayed", "batch"]
    assert [c.settings.period for c in plan.delays(1)] == [1, 10, 100, 200]


# --- divergence is a result ---------------------------------------------------------------------


def test_a_diverging_condition_is_recorded_and_the_screen_goes_on() -> None:
    ended = {row["value"]: row for row in rows_of("noise", screen=noise.OFFSET)}
    assert [ended[v]["state"] for v in (0.0, 0.01)] == ["done", "done"]
    assert ended[1e37]["state"] == ended[1e4]["state"] == "diverged"
    assert (ended[1e37]["stage"], ended[1e37]["diverged_in"]) == ("training", 1)
    assert (ended[1e4]["stage"], ended[1e4]["diverged_in"]) == ("generation", 5)
    assert ended[1e37]["heat_mean"] is None
    assert done("noise").failures == []
    assert done("noise").summary["diverged"] == 2
    text = (done("noise").path / "report.html").read_text(encoding="utf-8")
    assert "diverged in training, cycle" in text
    assert noisy.orders(made_up({0.0: 100, 0.01: 101, 1e4: None}))["verdict"] == paper.HOLDS
    table = read_table(done("noise").path / "conditions.csv")
    assert np.isnan(table["heat_mean"][table["state"] == "diverged"]).all()


# --- tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["noise", "controls"])
@pytest.mark.parametrize("preset", ["paper", "quick"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_no_two_tasks_write_to_one_run(name: str, preset: str, workers: int) -> None:
    chosen = experiment(name)
    tasks = chosen.tasks(chosen.presets[preset], Path(), workers)
    outputs = [output for task in tasks for output in task.outputs]
    assert len(set(outputs)) == len(outputs)
    if (name, preset) == ("noise", "paper"):
        # nine update amplitudes; nine residual ones, six offsets and five correlations beside them
        assert sum("training-" in output for output in outputs) == 9 + 9 + 6 + 5
    if (name, preset) == ("controls", "paper"):
        assert sum("training-" in output for output in outputs) == 3 * (6 + 4)


def test_two_hundred_workers_have_work() -> None:
    """A task for each training, of which the paper has so many."""
    for name, trainings in (("noise", 29), ("controls", 30)):
        chosen = experiment(name)
        assert len(chosen.tasks(chosen.presets["paper"], Path(), 200)) == trainings
        assert len(chosen.tasks(chosen.presets["paper"], Path(), 2)) < trainings


def test_a_computer_that_comes_with_other_samples_is_trained_once(tmp_path: Path) -> None:
    values = {**SMALL["noise"]["experiment"], "residual_cycles": 6, "residual_offset": [0.0]}
    values |= {"residual_correlation": [0.0], "residual_noise": [0.0], "update_noise": [0.0, 0.1]}
    plan = plan_of("noise", experiment=values)
    found = compute(experiment("noise"), plan, tmp_path, Resources(1))
    assert found.failures == []
    shared = rows_of_summary(found, value=0.0)
    assert [row["samples"] for row in shared[:2]] == [5, 4]
    assert len(list(tmp_path.glob("runs/training-*"))) == 3  # clean, update noise, σ_res = 0.2


def rows_of_summary(found: Performed, **wanted: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.summary["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_checkpoints_are_shared_between_experiments() -> None:
    plans = {name: experiment(name).presets["paper"] for name in (*NAMES, "comparison")}
    here = Path()
    stored = trained_path(here, plans["precision"].stored(101))  # type: ignore[attr-defined]
    assert stored == trained_path(here, plans["comparison"].shown)  # type: ignore[attr-defined]
    reference = trained_path(here, plans["precision"].model(101))  # type: ignore[attr-defined]
    baseline = plans["noise"].screen(noise.UPDATE)[0].settings  # type: ignore[attr-defined]
    control = plans["controls"].rates(101, "online")[1].settings  # type: ignore[attr-defined]
    assert reference == trained_path(here, baseline) == trained_path(here, control)
    assert reference != stored


def test_nothing_follows_where_the_reference_is_missing(tmp_path: Path) -> None:
    plan = plan_of("precision")
    first = [task.name for task in precision.tasks(plan, tmp_path, 1)]
    assert first == ["storage, seed 101: online", "training reference, seed 101: online"]
    tasks = precision.tasks(plan, done("precision").path.parent, 1)[2:]
    assert len(tasks) == 8 + 3
    assert len({output for task in tasks for output in task.outputs}) == 2 * 8 + 3
    assert all(task.inputs for task in tasks if task.name.startswith("store"))


# --- doing it again -------------------------------------------------------------------------------

RUN = """
import json, sys
from pathlib import Path
from thermoloom.experiments import experiment
from thermoloom.experiments.run import compute
from thermoloom.runs.execution import Resources
chosen = experiment(sys.argv[1])
plan = chosen.plan("quick", json.loads(sys.argv[2]))
compute(chosen, plan, Path(sys.argv[3]), Resources(1))
"""
TABLES = ("curves.csv", "conditions.csv", "samples.csv")


@pytest.mark.parametrize("name", ["noise", "precision"])
def test_a_killed_screen_goes_on_and_gives_the_same_tables(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, name, json.dumps(SMALL[name]), str(tmp_path)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    wanted = "storage-*" if name == "precision" else "measures-*"
    while not list(tmp_path.glob(f"runs/{wanted}/manifest.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / name / "summary.json").exists()
    compute(experiment(name), plan_of(name), tmp_path, Resources(1))
    for table in TABLES:
        again = (tmp_path / name / table).read_bytes()
        assert again == (done(name).path / table).read_bytes(), table


def test_a_second_run_does_nothing_again() -> None:
    folder = done("precision").path.parent
    manifests = sorted(folder.glob("runs/*/manifest.json"))
    before = {path: path.read_bytes() for path in manifests}
    again = reproduce(experiment("precision"), plan_of("precision"), folder, Resources(1))
    assert {path: path.read_bytes() for path in manifests} == before
    assert again.summary == done("precision").summary


def test_what_is_missing_is_named_and_the_rest_reported(tmp_path: Path) -> None:
    plan = plan_of("noise")
    shutil.copytree(done("noise").path.parent / "runs", tmp_path / "runs")
    condition = plan.screen(noise.UPDATE)[-1]
    shutil.rmtree(tmp_path / condition.path)
    with RunDirectory.create(tmp_path / "noise", "noise", plan.as_dict()) as run:
        found = noise.assemble(plan, tmp_path, run)
    assert found["missing"] == ["update noise 0.35, seed 101 is left out (not measured)"]
    crossing = noisy.crossing_over(collect(plan.screen(noise.UPDATE), tmp_path).curve(noise.UPDATE))
    assert crossing["verdict"] == paper.NOT_MEASURED  # 0.35 is what it takes


# --- verdicts -------------------------------------------------------------------------------------


def condition(value: float, seed: int, heats: list[float] | None) -> Measured:
    """A measured condition made up of heats; None diverged."""
    row = {"value": value, "seed": seed, "cycles": 1, "samples": 2, "pattern_distance": 20.0}
    if heats is None:
        return Measured(row | {"state": "diverged", "diverged_in": 1}, {})
    found = {"state": "done", "heat_mean": np.mean(heats), "heat_sem": stats.sem(heats)}
    return Measured(row | found, {"heat": np.array(heats)})


def made_up(heats: dict[float, float | None], spread: float = 1.0) -> Curve:
    """A curve with two samples a condition, ``spread`` apart; None diverged."""
    half = spread / 2
    return Curve(
        [
            condition(value, 1, None if heat is None else [heat - half, heat + half])
            for value, heat in heats.items()
        ]
    )


def test_crossover_by_hand() -> None:
    curve = made_up({0.0: 100, 0.3: 100, 0.35: 400})
    found = noisy.crossover(curve, 2.0)
    assert found is not None
    assert found == pytest.approx((0.30, 0.35, 0.325))  # 2 is half of 4 on a logarithmic scale
    assert noisy.crossover(made_up({0.0: 100, 0.3: 150}), 2.0) is None
    assert noisy.crossover(made_up({0.0: 100, 0.3: 150, 0.35: None}), 2.0) == (0.3, 0.35, 0.35)


def test_verdicts_on_made_up_curves() -> None:
    paper_like = made_up({0.0: 100, 0.1: 97, 0.15: 98, 0.3: 104, 0.35: 120})
    assert noisy.near_baseline(paper_like)["verdict"] == paper.HOLDS
    assert noisy.crossing_over(paper_like)["verdict"] == paper.HOLDS
    assert noisy.low_noise(paper_like)["verdict"] == paper.HOLDS
    late = made_up({0.0: 100, 0.1: 101, 0.2: 101, 0.3: 97, 0.35: 120})
    assert noisy.low_noise(late)["verdict"] == paper.UNRESOLVED
    early = made_up({0.0: 100, 0.1: 110, 0.2: 300, 0.3: 600, 0.35: 900})
    for check in (noisy.near_baseline, noisy.crossing_over, noisy.low_noise):
        assert check(early)["verdict"] == paper.DIFFERS
    assert noisy.crossing_over(made_up({0.0: 100, 0.3: 100}))["verdict"] == paper.NOT_MEASURED
    assert noisy.monotone(early)["verdict"] == paper.HOLDS
    assert noisy.monotone(paper_like)["verdict"] == paper.DIFFERS
    steep = made_up({0.0: 100, 0.5: 110, 0.9: 150, 0.95: 300, 0.99: 900})
    flat = made_up({0.0: 100, 0.5: 110, 0.9: 120, 0.95: 130, 0.99: 140})
    assert noisy.two_largest(steep)["verdict"] == paper.HOLDS
    assert noisy.two_largest(flat)["verdict"] == paper.DIFFERS
    assert noisy.correlation(flat)["verdict"] == paper.HOLDS
    offsets = made_up({0.0: 100, 0.01: 150, 0.1: 1e5})
    assert noisy.smallest_offset(offsets)["verdict"] == paper.HOLDS
    assert noisy.orders(offsets)["verdict"] == paper.HOLDS
    assert noisy.smallest_offset(flat)["verdict"] == paper.UNRESOLVED
    assert noisy.orders(flat)["verdict"] == paper.DIFFERS


def test_a_statement_about_what_diverged_says_infinity() -> None:
    found = noisy.orders(made_up({0.0: 100, 0.01: 300, 1e4: None}))
    text = found["measured"].format(**found["values"])
    assert text == "∞ times the heat without at μ_bias = 10000; more than 100 times from 10000 on"


def test_a_change_is_taken_in_pairs_of_samples() -> None:
    curve = made_up({0.0: 100, 0.1: 101}, spread=50)  # both samples rise by one
    change = curve.change(0.1, 0.0)
    assert (change.mean, change.error) == pytest.approx((1.0, 0.0))
    assert change.resolved
    assert change.percent == pytest.approx(1.0)


def test_a_change_over_several_seeds_is_one_of_seed_means() -> None:
    heats = {(0.0, 1): 100.0, (0.0, 2): 200.0, (0.1, 1): 101.0, (0.1, 2): 203.0}
    found = [condition(v, s, [heat - 5, heat + 5]) for (v, s), heat in heats.items()]
    change = Curve(found).change(0.1, 0.0)
    assert change.mean == pytest.approx(2.0)
    assert change.error == pytest.approx(stats.sem([1.0, 3.0]))
    assert change.percent == pytest.approx(100 * 2 / 150)


def test_a_diverged_reference_is_no_reference() -> None:
    lost = made_up({0.0: None, 0.1: 100, 0.3: 100, 0.35: 400})
    for check in (noisy.near_baseline, noisy.crossing_over, noisy.low_noise, noisy.monotone):
        assert check(lost)["verdict"] == paper.NOT_MEASURED


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_of_the_paper_is_judged_once(name: str) -> None:
    expected = list(paper.paper()[name]["statements"])
    found = [s["key"] for s in done(name).summary["statements"]]
    assert sorted(found) == sorted(expected)
    for row in done(name).summary["statements"]:
        for _, number, spec, _ in string.Formatter().parse(row["measured"]):
            if number is not None and row["verdict"] != paper.NOT_MEASURED:
                value = row["values"][number]
                # a bit depth from which on all is close may not be there
                assert (row["key"], value) == ("lowest_tested", None) or format(value, spec or "")


# --- page and command line ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_figures_and_page_from_saved_tables_alone(name: str) -> None:
    path = done(name).path
    for spec in CHAPTERS[name]:
        assert (path / f"{spec.name}.png").read_bytes().startswith(b"\x89PNG")
        assert (path / f"{spec.name}.pdf").read_bytes().startswith(b"%PDF")
    text = (path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    known = list(leaves(json.loads((path / "summary.json").read_text(encoding="utf-8"))))
    numbers = {repr(value) for value in known if isinstance(value, (int, float))}
    assert set(reader.numbers) <= numbers
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    for word in ("None", "nan", "inf<", "Traceback", "{", "softmax {"):
        assert word not in re.sub(r"(?s)<style>.*?</style>", "", plain), word


def test_a_shorter_run_than_the_papers_says_so() -> None:
    lengths = ["update cycles 6 (paper: 100)", "update samples 5 (paper: 200)"]
    assert done("noise").summary["shortened"][:2] == lengths
    text = (done("noise").path / "report.html").read_text(encoding="utf-8")
    assert lengths[0] in text
    verdicts = {s["key"]: s["verdict"] for s in done("noise").summary["statements"]}
    assert set(verdicts.values()) == {paper.TOO_SHORT}  # six cycles cannot speak of a hundred
    said = statement("noise", "crossover")
    lacking = "too short to judge: update cycles 6 (needs 100), update samples 5 (needs 60)"
    assert said["measured"].format(**said["values"]).endswith(lacking)
    curves = dict.fromkeys(noise.SCREENS, made_up({0.0: 1, 0.3: 1, 0.35: 9}))
    for cycles, verdict in ((100, paper.HOLDS), (101, paper.NOT_MEASURED)):
        whole = {s["key"]: s["verdict"] for s in noisy.statements(curves, cycles)}
        assert whole["crossover"] == verdict


def test_the_page_says_why_there_is_no_p_value() -> None:
    text = (done("precision").path / "report.html").read_text(encoding="utf-8")
    assert "no p value: all depths share their random numbers" in text
    assert "independent samples" in (precision.__doc__ or "")


def test_update_periods_end_at_the_steps_of_a_shorter_machine() -> None:
    controls = experiment("controls")
    for preset, dt, periods in (
        ("paper", 1e-3, (1, 10, 100, 2500)),
        ("paper", 5e-4, (1, 10, 100, 2500)),
        ("paper", 1e-2, (1, 10, 100, 250)),
        ("paper", 2.5e-2, (1, 10, 100)),
        ("quick", 2.5e-2, (1, 100)),
        ("quick", 5e-2, (1, 50)),
    ):
        plan = controls.plan(preset, {"machine": {"dt": dt}})
        assert plan.periods == periods  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="values must be from 1 to 250"):
        controls.plan("paper", {"machine": {"dt": 1e-2}, "experiment": {"periods": [1, 2500]}})


def test_grids_and_settings_that_cannot_be_are_refused() -> None:
    for name, values, message in (
        ("noise", {"experiment": {"update_noise": [0.1]}}, "must contain 0"),
        ("noise", {"experiment": {"residual_noise": [0.0, -0.1]}}, "values must be from 0"),
        ("noise", {"training": {"cycles": 5}}, r"experiment\.update_cycles"),
        ("noise", {"imperfections": {"bits": 8}}, "set by the experiment itself"),
        ("precision", {"experiment": {"storage_bits": [2, 4]}}, "must contain 32"),
        ("precision", {"experiment": {"training_bits": [32]}}, "values must be from 2 to 24"),
        ("precision", {"experiment": {"training_bits": [8, 8]}}, "none of them twice"),
        ("controls", {"experiment": {"periods": [1, 9999]}}, "values must be from 1 to 2500"),
        ("controls", {"experiment": {"scales": []}}, "at least one is needed"),
    ):
        with pytest.raises(UserError, match=message):
            experiment(name).plan("paper", values)
