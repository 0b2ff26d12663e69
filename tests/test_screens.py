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
from scipy import stats
from study_runs import read_table, thresholds_of, thresholds_read
from test_report import Reader, leaves

from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.machine.quantization import coupling_ranges, quantized
from thermoloom.runs.execution import Resources
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.studies import verdicts
from thermoloom.studies.case import trained_path
from thermoloom.studies.discovery import study
from thermoloom.studies.gather import gather
from thermoloom.studies.noise import study as noise
from thermoloom.studies.noise.statements import crossing_over
from thermoloom.studies.precision import study as precision
from thermoloom.studies.report import write_report
from thermoloom.studies.run import Performed, compute
from thermoloom.studies.schedule import tasks_of
from thermoloom.studies.screens import responses_of
from thermoloom.studies.verdicts import Statements

SYSTEM: dict[str, dict[str, Any]] = {
    "machine": {"visible": 196, "hidden": 32, "duration": 0.2},
    "patterns": {"resize": True},
}
"""A 14 × 14 layer of 200 steps, so without the classifier."""

SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "noise": SYSTEM
    | {
        "study": {
            "update_noise": [0.0, 0.1, 0.3, 0.35],
            "update_cycles": 6,
            "update_samples": 5,
            "residual_noise": [0.0, 0.2, 0.4],
            "residual_offset": [0.0, 0.01, 1e4, 1e37],
            "residual_correlation": [0.0, 0.5, 0.9, 0.99],
            "residual_cycles": 5,
            "residual_samples": 4,
            "periods": [10, 300],
            "period_noise": [0.0, 0.3],
            "period_samples": 4,
        }
    },
    "precision": SYSTEM
    | {
        "training": {"cycles": 9},
        "generation": {"samples": 8},
        "study": {
            "storage_bits": [2, 4, 5, 32],
            "training_bits": [4, 6, 8, 16],
            "training_cycles": 6,
            "training_samples": 6,
        },
    },
    "controls": SYSTEM
    | {
        "study": {
            "seeds": [1, 2, 3],
            "rate_cycles": 6,
            "rate_samples": 4,
            "periods": [1, 10, 100, 200],
            "period_cycles": 5,
            "period_samples": 4,
        }
    },
}
"""The largest offsets make samples, and then parameters, infinite; 200 steps have no M = 300."""
NAMES = tuple(SMALL)
_FOLDER = tempfile.TemporaryDirectory(prefix="thermoloom-tests-")


def plan_of(name: str, **values: Any) -> Any:
    return study(name).plan("quick", SMALL[name] | values)


@cache
def done(name: str) -> Performed:
    """The small study of this name, run once a session."""
    performed = compute(study(name), plan_of(name), Path(_FOLDER.name) / name, Resources(1))
    write_report(performed.path)
    return performed


def rows_of(name: str, **wanted: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = done(name).summary["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def tasks_for(name: str, preset: str, workers: int) -> list[Task]:
    record = study(name)
    return tasks_of(record.cases(record.presets[preset], Path()), Path(), workers)


def statement(name: str, key: str) -> dict[str, Any]:
    return next(s for s in done(name).summary["statements"] if s["key"] == key)


# --- numbers ---


@pytest.mark.parametrize("name", NAMES)
def test_heat_of_a_condition_is_the_mean_over_its_samples(name: str) -> None:
    samples = read_table(done(name).path / "samples.csv")
    conditions = read_table(done(name).path / "conditions.csv")
    keys = ("screen", "variant", "value", "seed")
    for i in np.flatnonzero(conditions["state"] == "done"):
        rows = np.all([samples[key] == conditions[key][i] for key in keys], axis=0)
        heats = samples["heat"][rows]
        assert len(heats) == conditions["samples"][i]
        assert conditions["heat_mean"][i] == pytest.approx(heats.mean())
        assert conditions["heat_sem"][i] == pytest.approx(stats.sem(heats))
        distance = samples["pattern_distance"][rows].mean()
        assert conditions["pattern_distance"][i] == pytest.approx(distance)


def test_conditions_of_a_screen_share_their_generation_numbers() -> None:
    plan = plan_of("noise")
    starts = []
    for case in plan.screen(noise.UPDATE):
        path = trained_path(done("noise").path.parent, case.settings)
        order = SampleRequest(5, case.settings.generation_seed)
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
    computer = parameters_of(RunDirectory.open(trained_path(folder, plan.trained(101))))
    visible, hidden = coupling_ranges(computer)
    cases = [c for c in precision.cases(plan, folder) if c.labels["variant"] in precision.ROUNDINGS]
    assert len(cases) == 8
    for case in cases:
        errors = case.settings.imperfections
        assert (errors.range_visible_hidden, errors.range_hidden_hidden) == (visible, hidden)
        assert (errors.bits, errors.rounding) == (case.labels["value"], case.labels["variant"])
        run = RunDirectory.open(trained_path(folder, case.settings))
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
    settings = [plan.delay(1, period).settings for period in plan.periods]
    assert [s.training.rule for s in settings] == ["online", "delayed", "delayed", "batch"]
    assert [s.period for s in settings] == [1, 10, 100, 200]


# --- divergence is a result ---


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
    table = read_table(done("noise").path / "conditions.csv")
    assert np.isnan(table["heat_mean"][table["state"] == "diverged"]).all()


# --- tasks ---


@pytest.mark.parametrize("name", ["noise", "controls"])
@pytest.mark.parametrize("preset", ["paper", "quick"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_no_two_tasks_write_to_one_run(name: str, preset: str, workers: int) -> None:
    outputs = [output for task in tasks_for(name, preset, workers) for output in task.outputs]
    assert len(set(outputs)) == len(outputs)
    if (name, preset) == ("noise", "paper"):
        # nine update amplitudes; nine residual ones, seven offsets and five correlations beside
        # them; five update amplitudes for each of three periods
        assert sum("training-" in output for output in outputs) == 9 + 9 + 7 + 5 + 3 * 5
    if (name, preset) == ("controls", "paper"):
        assert sum("training-" in output for output in outputs) == 3 * (6 + 4)


def test_two_hundred_workers_have_work() -> None:
    """A task for each training, of which the paper has so many."""
    for name, trainings in (("noise", 45), ("controls", 30)):
        assert len(tasks_for(name, "paper", 200)) == trainings
        assert len(tasks_for(name, "paper", 2)) < trainings


def test_a_computer_that_comes_with_other_samples_is_trained_once(tmp_path: Path) -> None:
    values = {**SMALL["noise"]["study"], "residual_cycles": 6, "residual_offset": [0.0]}
    values |= {"residual_correlation": [0.0], "residual_noise": [0.0], "update_noise": [0.0, 0.1]}
    values["periods"] = [300]
    performed = compute(study("noise"), plan_of("noise", study=values), tmp_path, Resources(1))
    assert performed.failures == []
    shared = [row for row in performed.summary["rows"] if row["value"] == 0.0]
    assert [row["samples"] for row in shared[:2]] == [5, 4]
    assert len(list(tmp_path.glob("runs/training-*"))) == 3  # clean, update noise, σ_res = 0.2


def test_checkpoints_are_shared_between_studies() -> None:
    plans: dict[str, Any] = {name: study(name).presets["paper"] for name in (*NAMES, "comparison")}
    here = Path()
    stored = trained_path(here, plans["precision"].stored(101))
    assert stored == trained_path(here, plans["comparison"].computer("online", 101))
    reference = trained_path(here, plans["precision"].trained(101))
    baseline = plans["noise"].screen(noise.UPDATE)[0].settings
    control = plans["controls"].rate(101, "online", 1.0).settings
    assert reference == trained_path(here, baseline) == trained_path(here, control)
    assert reference != stored


def test_nothing_follows_where_the_reference_is_missing(tmp_path: Path) -> None:
    plan, folder = plan_of("precision"), done("precision").path.parent
    first = [task.name for task in tasks_of(precision.cases(plan, tmp_path), tmp_path, 1)]
    assert first == [
        "screen storage, value 32, seed 101",
        "screen training, variant reference, value 32, seed 101",
    ]
    tasks = [t for t in tasks_of(precision.cases(plan, folder), folder, 1) if t.name not in first]
    assert len(tasks) == 8 + 3
    assert len({output for task in tasks for output in task.outputs}) == 2 * 8 + 3
    stored = [task for task in tasks if task.name.startswith("stored couplings")]
    training = str(trained_path(Path(), plan.stored(101)))
    assert len(stored) == 3
    assert all(training in task.inputs for task in stored)


# --- doing it again ---

RUN = """
import json, sys
from pathlib import Path
from thermoloom.runs.execution import Resources
from thermoloom.studies.discovery import study
from thermoloom.studies.run import compute
record = study(sys.argv[1])
plan = record.plan("quick", json.loads(sys.argv[2]))
compute(record, plan, Path(sys.argv[3]), Resources(1))
"""
TABLES = ("curves.csv", "conditions.csv", "samples.csv")


@pytest.mark.parametrize("name", ["noise", "precision"])
def test_a_killed_screen_goes_on_and_gives_the_same_tables(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, name, json.dumps(SMALL[name]), str(tmp_path)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    wanted = "stored-couplings-*" if name == "precision" else "sampled-computer-*"
    while not list(tmp_path.glob(f"runs/{wanted}/manifest.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / name / "summary.json").exists()
    compute(study(name), plan_of(name), tmp_path, Resources(1))
    for table in TABLES:
        again = (tmp_path / name / table).read_bytes()
        assert again == (done(name).path / table).read_bytes(), table


def test_a_second_run_does_nothing_again() -> None:
    folder = done("precision").path.parent
    manifests = sorted(folder.glob("runs/*/manifest.json"))
    before = {path: path.read_bytes() for path in manifests}
    again = compute(study("precision"), plan_of("precision"), folder, Resources(1))
    assert {path: path.read_bytes() for path in manifests} == before
    assert again.summary == done("precision").summary


def test_what_is_missing_is_named_and_the_rest_reported(tmp_path: Path) -> None:
    plan = plan_of("noise")
    shutil.copytree(done("noise").path.parent / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / plan.screen(noise.UPDATE)[-1].path)
    gathered = gather(noise.cases(plan, tmp_path), tmp_path)
    with RunDirectory.create(tmp_path / "noise", "noise", plan.as_dict()) as run:
        summary = noise.summarize(plan, gathered, run)
    missing = "screen update noise, value 0.35, seed 101 is left out (not measured)"
    assert summary["missing"] == [missing]
    crossing = crossing_over(responses_of(gathered).curve(noise.UPDATE))
    assert crossing["verdict"] == verdicts.NOT_MEASURED  # 0.35 is needed


# --- verdicts ---


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_of_the_paper_is_judged_once(name: str) -> None:
    rows, said = done(name).summary["statements"], Statements(study(name).folder)
    assert sorted(row["key"] for row in rows) == sorted(said.entries["statements"])
    for row in rows:
        for _, number, spec, _ in string.Formatter().parse(row["measured"]):
            if number is not None and row["verdict"] != verdicts.NOT_MEASURED:
                value = row["values"][number]
                # a bit depth from which on all is close may not be there
                assert (row["key"], value) == ("lowest_tested", None) or format(value, spec or "")


@pytest.mark.parametrize("name", NAMES)
def test_every_threshold_is_read_and_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    undefined = {("two_bit_softmax", "change")}  # without a classifier
    read = thresholds_read(name, [done(name)], monkeypatch)
    assert read == thresholds_of(name) - undefined


# --- page and command line ---


@pytest.mark.parametrize("name", NAMES)
def test_figures_and_page_from_saved_tables_alone(name: str) -> None:
    path = done(name).path
    for figure in study(name).figures:
        assert (path / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
        assert (path / f"{figure.name}.pdf").read_bytes().startswith(b"%PDF")
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
    judged = {row["verdict"] for row in done("noise").summary["statements"]}
    assert judged == {verdicts.TOO_SHORT}  # six cycles cannot speak of a hundred
    crossover = statement("noise", "crossover")
    lacking = "too short to judge: update cycles 6 (needs 100), update samples 5 (needs 60)"
    assert crossover["measured"].format(**crossover["values"]).endswith(lacking)


def test_the_page_says_why_there_is_no_p_value() -> None:
    text = (done("precision").path / "report.html").read_text(encoding="utf-8")
    assert "no p value: all depths share their random numbers" in text
    assert "independent samples" in (precision.__doc__ or "")


def test_update_periods_end_at_the_steps_of_a_shorter_machine() -> None:
    controls = study("controls")
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
        controls.plan("paper", {"machine": {"dt": 1e-2}, "study": {"periods": [1, 2500]}})
    former = {"machine": {"dt": 1e-2}, "experiment": {"periods": [1, 250]}}
    assert controls.plan("paper", former).periods == (1, 250)  # type: ignore[attr-defined]


def test_grids_and_settings_that_cannot_be_are_refused() -> None:
    for name, values, message in (
        ("noise", {"study": {"update_noise": [0.1]}}, "must contain 0"),
        ("noise", {"study": {"residual_noise": [0.0, -0.1]}}, "values must be from 0"),
        ("noise", {"training": {"cycles": 5}}, r"study\.update_cycles"),
        ("noise", {"imperfections": {"bits": 8}}, "set by the study itself"),
        ("precision", {"study": {"storage_bits": [2, 4]}}, "must contain 32"),
        ("precision", {"study": {"training_bits": [32]}}, "values must be from 2 to 24"),
        ("precision", {"study": {"training_bits": [8, 8]}}, "none of them twice"),
        ("controls", {"study": {"periods": [1, 9999]}}, "values must be from 1 to 2500"),
        ("controls", {"study": {"scales": []}}, "at least one is needed"),
    ):
        with pytest.raises(UserError, match=message):
            study(name).plan("paper", values)
