"""The comparison from plan to summary, on computers of a few units, against independent numbers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from study_runs import SMALL, one_pair, read_table, two_pairs
from typer.testing import CliRunner

from thermoloom.cli.commands import app
from thermoloom.cli.studies import parse_seeds, plan_values
from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.generation import differing_samples, generate
from thermoloom.machine.energy import energy
from thermoloom.machine.parameters import layout
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs import catalog
from thermoloom.runs.execution import Resources, run_tasks
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies import verdicts
from thermoloom.studies.case import Case, trained_path
from thermoloom.studies.discovery import study
from thermoloom.studies.gather import gather, order_of
from thermoloom.studies.pairs import collect_pairs
from thermoloom.studies.run import Performed, cases_of, compute
from thermoloom.studies.sampled_computer import assignment, nearest_samples, sample_computers
from thermoloom.studies.schedule import NOISY, cost, cut, tasks_of
from thermoloom.studies.study import Plan
from thermoloom.studies.verdicts import Statements


@pytest.fixture
def small() -> Performed:
    """Two pairs, no classifier."""
    return two_pairs()


@pytest.fixture
def classified() -> Performed:
    """One pair, with the classifier."""
    return one_pair()


def silent(*_: Any) -> None:
    """A progress report that nobody reads."""


def case_of(plan: Any, rule: str, seed: int) -> Case:
    """The case of one computer of a pair."""
    labels = {"rule": rule, "seed": seed}
    return next(case for case in plan.pair_cases if case.labels == labels)


def small_plan(**values: Any) -> Any:
    return study("comparison").plan("quick", SMALL | values)


def online(plan: Any) -> Settings:
    """The online computer of the first pair, which is displayed."""
    case = next(case for case in plan.pair_cases if case.labels["rule"] == "online")
    assert isinstance(case.settings, Settings)
    return case.settings


# --- numbers --------------------------------------------------------------------------------------


def test_a_pair_shares_its_random_numbers_and_its_heat_is_the_energy_drop(
    small: Performed,
) -> None:
    plan, folder = small_plan(), small.path.parent
    starts = []
    for row in small.summary["models"]:
        if row["seed"] != 1:
            continue
        settings = plan.computer(row["rule"], row["seed"])
        training = RunDirectory.open(trained_path(folder, settings))
        samples = generate_run(training.path, order_of(settings))
        starts.append(samples.initial_states)
        theta = parameters_of(training)
        drop = energy(theta, samples.initial_states) - energy(theta, samples.final_states)
        assert row["heat"]["mean"] == pytest.approx(drop.mean(), rel=1e-12)
        assert settings.generation_seed == 90001
    assert len(starts) == 2
    assert np.array_equal(*starts)


def test_summary_statistics_against_scipy(small: Performed) -> None:
    table = read_table(small.path / "models.csv")
    batch = table["heat.mean"][table["rule"] == "batch"]
    online = table["heat.mean"][table["rule"] == "online"]
    heat = small.summary["heat"]
    assert heat["reduction"] == pytest.approx(np.mean(batch - online))
    test = stats.ttest_rel(batch, online)
    assert heat["t_test_p"] == pytest.approx(test.pvalue)
    assert heat["interval"] == pytest.approx(tuple(test.confidence_interval(0.95)))
    relative = 100 * (batch - online) / batch
    assert heat["percent"] == pytest.approx(relative.mean())
    expected = stats.t.interval(0.95, 1, relative.mean(), relative.std(ddof=1) / np.sqrt(2))
    assert heat["percent_interval"] == pytest.approx(expected)


def test_tables_of_samples_and_paths_hold_every_model(small: Performed) -> None:
    samples, paths = read_table(small.path / "samples.csv"), read_table(small.path / "paths.csv")
    assert len(samples["heat"]) == 2 * 2 * 8
    assert len(paths["loss"]) == 2 * 2 * 3
    chosen = (samples["rule"] == "online") & (samples["seed"] == 2)
    model = next(m for m in small.summary["models"] if (m["rule"], m["seed"]) == ("online", 2))
    assert samples["heat"][chosen].mean() == pytest.approx(model["heat"]["mean"])
    # the squared-increment term of a path is the same for every computer
    offset = (paths["loss"] - paths["reduced_loss"]).reshape(4, 3)
    assert offset == pytest.approx(np.tile(offset[0], (4, 1)), rel=1e-9)
    assert np.ptp(paths["reduced_loss"].reshape(4, 3), axis=0).min() > 0


def test_cross_evaluation_contains_the_heat_and_labels_the_rest(small: Performed) -> None:
    for row in small.summary["cross"]:
        own = row["potential"] == row["ensemble"]
        assert row["kind"] == ("heat released" if own else "diagnosis only")
        if own:
            assert row["drop"] == pytest.approx(small.summary["heat"][row["potential"]])


def test_the_optimum_is_a_third_column_with_the_random_numbers_of_every_pair(
    small: Performed,
) -> None:
    plan, folder = small_plan(), small.path.parent
    theta = parameters_of(RunDirectory.open(trained_path(folder, plan.optimum(1))))
    rows = small.summary["heat_rows"]
    for row in rows:
        states = generate(theta, 8, 90000 + row["seed"])
        assert row["optimum"] == pytest.approx(states.heat.mean(), rel=1e-9)
    heat = np.mean([row["optimum"] for row in rows])
    assert small.summary["optimum"]["heat"] == pytest.approx(heat)
    drop = {row["moment"]: row["optimum"] for row in small.summary["energies"][5::6]}
    assert drop["start"] - drop["end"] == pytest.approx(heat)
    loss = next(row for row in small.summary["paths"] if row["key"] == "loss")
    assert loss["optimum"] < min(loss["batch"], loss["online"])
    assert "optimum (ours)" in (small.path / "report.html").read_text(encoding="utf-8")


def test_one_pair_has_no_interval_and_says_so(classified: Performed) -> None:
    heat = classified.summary["heat"]
    assert heat["interval"] is heat["t_test_p"] is heat["sign_test_p"] is None
    assert "one pair" in heat["note"]
    found = {s["key"]: s["verdict"] for s in classified.summary["statements"]}
    assert found["norms"] == verdicts.TOO_SHORT  # one pair cannot speak for "all five pairs"
    assert found["replay"] == verdicts.HOLDS


def test_classifier_measures_only_where_they_are_defined(
    small: Performed, classified: Performed
) -> None:
    measured = {row["key"]: row["measured"] for row in small.summary["quality"]}
    assert not measured["max_softmax"]
    assert measured["pattern_distance"]
    assert all(row["measured"] for row in classified.summary["quality"])
    assert [sum(row["counts"]) for row in classified.summary["classes"]] == [8, 8]
    assert small.summary["classes"] == []


def test_ranges_over_the_panel_are_in_summary_and_report(classified: Performed) -> None:
    row = next(row for row in classified.summary["quality"] if row["key"] == "max_softmax")
    models = {model["rule"]: model["quality"] for model in classified.summary["models"]}
    for rule in ("batch", "online"):
        scores = [v for k, v in models[rule].items() if k.partition("@")[0] == "max_softmax"]
        assert len(scores) == 6
        assert row[f"panel_{rule}"] == [min(scores), max(scores)]
    assert row["panel_batch"][0] < row["panel_batch"][1]
    text = (classified.path / "report.html").read_text(encoding="utf-8")
    assert f'<data value="{row["panel_batch"][0]!r}">' in text
    assert "padding" in text


def test_replay_agreed_and_would_notice_a_changed_bit(small: Performed) -> None:
    parameters = 2 * 2 * layout(small_plan().settings.machine).size
    replay = {"checkpoints": 4, "samples": 32, "differing": 0, "changed_parameters": 0}
    assert small.summary["replay"] == replay | {"parameters": parameters}
    settings = online(small_plan())
    training = trained_path(small.path.parent, settings)
    archive = generate_run(training, SampleRequest(8, settings.generation_seed))
    touched = archive.final_states.copy()
    touched[5, 3] = np.nextafter(touched[5, 3], np.float32(9))
    assert differing_samples(archive, replace(archive, final_states=touched)) == [5]


# --- doing it again, doing it elsewhere -----------------------------------------------------------


def test_a_second_run_does_nothing_again_and_gives_the_same_summary(small: Performed) -> None:
    folder = small.path.parent
    manifests = sorted(folder.glob("runs/*/manifest.json"))
    before = {path: path.read_bytes() for path in manifests}
    again = compute(study("comparison"), small_plan(), folder, Resources(1))
    assert {path: path.read_bytes() for path in manifests} == before
    assert again.summary == small.summary
    assert json.loads((small.path / "summary.json").read_text()) == again.summary


def test_samples_that_were_lost_are_drawn_again(small: Performed, tmp_path: Path) -> None:
    shutil.copytree(small.path.parent / "runs", tmp_path / "runs")
    archive = trained_path(tmp_path, online(small_plan())) / "samples-90001-8.safetensors"
    before = archive.read_bytes()
    archive.unlink()
    assert compute(study("comparison"), small_plan(), tmp_path, Resources(1)).failures == []
    assert archive.read_bytes() == before


def test_numbers_do_not_depend_on_how_models_are_grouped(small: Performed, tmp_path: Path) -> None:
    plan = small_plan()
    case = case_of(plan, "online", 2)  # alone here, with its partner there
    sample_computers(tmp_path, silent, [case.as_json()])
    for name in ("samples.csv", "paths.csv"):
        alone = tmp_path / case.path / name
        together = small.path.parent / case.path / name
        assert alone.read_bytes() == together.read_bytes()


def test_an_incomplete_pair_is_left_out_and_named(small: Performed, tmp_path: Path) -> None:
    plan = small_plan()
    shutil.copytree(small.path.parent / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / case_of(plan, "batch", 1).path)
    pairs = collect_pairs(plan, gather(plan.pair_cases, tmp_path))
    assert pairs.seeds == [2]
    assert pairs.missing == ["pair 1 is left out (batch: not measured)"]
    shutil.rmtree(tmp_path / case_of(plan, "online", 2).path)
    with pytest.raises(UserError, match="no pair is complete"):
        collect_pairs(plan, gather(plan.pair_cases, tmp_path))


def test_a_diverging_model_is_recorded_as_such(tmp_path: Path) -> None:
    values = {"training": {"cycles": 6, "learning_rate_scale": 1e4}}
    plan = small_plan(**values, study={"seeds": [1], "paths_per_pattern": 1})
    case = case_of(plan, "batch", 1)
    sample_computers(tmp_path, silent, [case.as_json()])
    assert RunDirectory.open(tmp_path / case.path).state == "diverged"
    with pytest.raises(UserError, match="diverged"):
        collect_pairs(plan, gather(plan.pair_cases, tmp_path))


def test_a_failing_task_fails_alone_and_is_reported(tmp_path: Path) -> None:
    plan = small_plan()
    stone = trained_path(tmp_path, plan.computer("batch", 1))
    stone.parent.mkdir()
    stone.write_text("in the way")
    done = compute(study("comparison"), plan, tmp_path, Resources(1))
    assert len(done.failures) == 1
    assert "rule batch | online, seed 1: " in done.failures[0]
    assert "is a file, not a run directory" in done.failures[0]
    assert done.summary["seeds"] == [2]
    assert "pair 1 is left out" in done.summary["missing"][0]
    assert done.summary["replay"]["checkpoints"] == 2  # those of seed 2


def test_other_settings_in_the_same_place_are_refused_before_any_work(small: Performed) -> None:
    other = small_plan(study={"seeds": [1, 2, 3], "paths_per_pattern": 1})
    with pytest.raises(UserError, match=r"study\.seeds"):
        compute(study("comparison"), other, small.path.parent, Resources(1))
    assert not trained_path(small.path.parent, other.computer("batch", 3)).exists()


def test_tasks_are_cut_by_what_there_is_to_do(tmp_path: Path) -> None:
    record = study("comparison")
    plan = record.presets["paper"]

    def tasks(workers: int) -> list[Any]:
        return tasks_of(cases_of(record, plan, tmp_path), tmp_path, workers)

    def sizes(workers: int) -> list[int]:
        return [len(task.arguments["cases"]) for task in tasks(workers)]

    assert sizes(1) == [5, 2, 2, 2, 2, 2]  # the optimum for five seeds, and the pairs
    assert sizes(2) == [5, 2, 2, 2, 2, 1, 1]  # the last pair is shared by two workers
    assert sizes(10) == [5] + 10 * [1]
    assert not any("replay" in task.name for task in tasks(2))  # it needs what is not there yet
    fine = tasks(200)  # first to train, one computer each
    assert len(fine) == 11
    assert {task.function.partition(":")[2] for task in fine} == {"train_only"}


@pytest.mark.parametrize("cycles", ["equal", "rising", "very different"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 18, 200])
def test_workers_end_together(cycles: str, workers: int) -> None:
    """At most two fifths later than the longest case or a fair share of the total takes."""
    length: dict[str, list[int]] = {
        "equal": [40] * 9,
        "rising": list(range(10, 100, 10)),
        "very different": [4**i for i in range(9)],
    }
    generation = {"samples": 1}
    cases = {
        seed: [
            Case(
                {"seed": seed, "number": i},
                Settings().updated(
                    {
                        "training": {"seed": seed, "cycles": length[cycles][i]},
                        "imperfections": {"residual_offset": i},
                        "generation": generation,
                    }
                ),
            )
            for i in range(9)
        ]
        for seed in (1, 2)
    }
    groups = {seed: [[case] for case in group] for seed, group in cases.items()}
    pieces = list(cut(groups, workers))
    models = [case for group in cases.values() for case in group]
    assert [case for piece in pieces for case in piece] == models
    assert len(pieces) == 18 if workers >= 18 else len(pieces) < 18
    busy = [0.0] * workers
    for piece in pieces:  # each to the worker that is free first
        busy[busy.index(min(busy))] += sum(cost([m]) for m in piece)
    costs = [cost([m]) for m in models]
    assert max(busy) <= 1.4 * max(*costs, sum(costs) / workers)
    assert len(tasks_of(models, Path("nowhere"), 1)) == 2


def test_amplitudes_of_update_noise_are_not_cut_apart() -> None:
    """They form one training, which is cut only if there is a worker for each computer."""
    noises = [{"imperfections": {"update_noise": sigma}} for sigma in (0.1, 0.2, 0.4)]
    rates = [{"training": {"learning_rate_scale": scale}} for scale in range(1, 9)]
    amplitudes, others = (
        [[Case({}, Settings().updated(v))] for v in each] for each in (noises, rates)
    )
    groups = {"update noise": amplitudes, "rates": others}
    pieces = [len(piece) for piece in cut(groups, 2)]
    assert pieces[0] == 3
    assert sum(pieces) == 11
    assert {len(piece) for piece in cut(groups, 11)} == {1}
    first, second, _ = amplitudes
    assert cost(second, [first]) == cost(second) - NOISY * Settings().training.cycles
    assert cost(second, others) == cost(second)


def test_a_fine_cut_gives_the_same_tables(
    small: Performed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many workers, samples are drawn in pieces and measured in separate tasks.

    This process does the work of nine, whose start would take most of the time.
    """

    def here(tasks: Any, folder: Path, resources: Resources, *rest: Any) -> Any:
        return run_tasks(tasks, folder, Resources(1), *rest)

    monkeypatch.setattr("thermoloom.studies.run.run_tasks", here)
    more = {"generation": {"samples": 60}, "study": {"seeds": [1], "paths_per_pattern": 1}}
    plan, chosen = small_plan(**more), study("comparison")
    tables, pieces = [], []
    for folder, workers in ((tmp_path / "coarse", 1), (tmp_path / "fine", 9)):
        done = compute(chosen, plan, folder, Resources(workers))
        assert done.failures == []
        names = sorted(path.name for path in done.path.glob("*.csv"))
        tables.append({name: (done.path / name).read_bytes() for name in names})
        pieces.append(len(list(folder.glob("runs/samples-*"))))
        archive = trained_path(folder, online(plan)) / "samples-90001-60.safetensors"
        tables[-1][archive.name] = archive.read_bytes()
    assert tables[0] == tables[1]
    assert pieces == [0, 3 * 2]
    items = catalog.prunable(tmp_path / "fine")  # pieces are in archives now
    assert {item.file.parent.name.partition("-")[0] for item in items} == {"samples"}
    assert catalog.prune(items) == sum(item.bytes for item in items)
    assert not list((tmp_path / "fine").glob("runs/samples-*"))
    again = compute(chosen, plan, tmp_path / "fine", Resources(9))
    assert again.failures == again.warnings == []
    assert not list((tmp_path / "fine").glob("runs/samples-*"))


# --- which samples are shown --------------------------------------------------------------------


def test_nearest_samples_of_each_target_and_none_where_there_is_none() -> None:
    patterns = Patterns(np.eye(3, 4, dtype=np.float32), ("0", "1", "2"), None, (0, 1, 2))
    table = {
        "class": np.array([2, 0, 0, 7, 0]),
        "pattern": np.array([1, 1, 1, 0, 0]),
        "pattern_distance": np.array([5.0, 4.0, 3.0, 1.0, 2.0]),
    }

    nearest = nearest_samples(table, patterns, 2)
    assert nearest == {"0": [4, 2], "1": [], "2": [0]}
    table["class"] = np.full(5, -1)  # no classifier: by nearest pattern
    assert assignment(table, patterns)[1].tolist() == ["1", "1", "1", "0", "0"]
    nearest = nearest_samples(table, patterns, 1)
    assert nearest == {"0": [3], "1": [2], "2": []}


# --- the paper ----------------------------------------------------------------------------------


def test_every_statement_of_the_paper_is_judged(small: Performed, classified: Performed) -> None:
    entries = Statements(study("comparison").folder).entries
    expected = list(entries["statements"])
    for done in (small, classified):
        assert sorted(s["key"] for s in done.summary["statements"]) == sorted(expected)
        counted = [e for e in entries["statements"].values() if "consequence" not in e]
        assert done.summary["verdicts"]["all"] == len(counted) < len(expected)
    quantities = {q["key"] for q in classified.summary["quantities"]}
    assert set(entries["quantities"]) <= quantities


@pytest.mark.parametrize(
    ("value", "interval", "verdict"),
    [
        (7.0, (6.0, 8.0), verdicts.INSIDE),
        (9.0, (7.0, 11.0), verdicts.COVERS),
        (9.0, (8.5, 9.5), verdicts.SAME_SIGN),
        (9.0, None, verdicts.SAME_SIGN),
        (-1.0, (-2.0, 0.5), verdicts.DIFFERS),
        (7.68, None, verdicts.EQUAL),
        (None, None, verdicts.NOT_MEASURED),
    ],
)
def test_verdict_on_a_number(value: Any, interval: Any, verdict: str) -> None:
    assert verdicts.compare_with_paper(value, interval, 7.68, (6.64, 8.71)) == verdict


def test_verdict_on_a_p_value_and_on_a_size() -> None:
    assert verdicts.compare_p(0.001, 3.3e-5, 0.05) == verdicts.SAME_SIDE
    assert verdicts.compare_p(0.001, 3.3e-5, 1e-4) == verdicts.DIFFERS
    assert verdicts.compare_p(0.2, 3.3e-5, 0.05) == verdicts.DIFFERS
    assert verdicts.compare_p(0.0625, 0.0625, 0.05) == verdicts.EQUAL
    assert verdicts.compare_p(None, 0.0625, 0.05) == verdicts.NOT_MEASURED
    assert verdicts.compare_size(99.1, 98.7) == verdicts.HIGHER


def test_a_summary_is_judged_again_from_its_tables_alone(small: Performed, tmp_path: Path) -> None:
    path = tmp_path / "comparison"
    shutil.copytree(small.path, path)
    bare = {k: v for k, v in small.summary.items() if k not in ("statements", "verdicts")}
    assert verdicts.judged(study("comparison"), RunDirectory.open(path), bare) == small.summary


# --- plans and the command line -----------------------------------------------------------------


def test_a_plan_is_strict_and_survives_its_settings_file(tmp_path: Path) -> None:
    chosen = study("comparison")
    plan = small_plan()
    file = tmp_path / "settings.toml"
    file.write_text(plan.to_toml(without=chosen.varied), encoding="utf-8")
    assert chosen.plan("paper", plan_values(file, None, None)) == plan
    assert chosen.preset_of(chosen.plan("quick")) == "quick"
    assert chosen.preset_of(plan) is None
    for values, message in (
        ({"study": {"seed": 3}}, "study.seed: no such setting"),
        ({"study": {"seeds": 3}}, "expected a list"),
        ({"study": {"path_seed": 1.5}}, "expected a whole number"),
        ({"study": {"seeds": [3, 3]}}, "each only once"),
        ({"training": {"rule": "batch"}}, "set by the study itself"),
        ({"machine": {"kB": 1}}, "no such setting"),
    ):
        with pytest.raises(UserError, match=message):
            chosen.plan("paper", values)
    with pytest.raises(UserError, match="--preset"):
        chosen.plan("fast")
    with pytest.raises(UserError, match="no such study"):
        study("nonsense")


def test_seeds_and_settings_from_the_command_line() -> None:
    assert parse_seeds("101-103, 7") == [101, 102, 103, 7]
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds("a-b")
    values = plan_values(None, ["study.path_seed=5", "machine.kT=0.2"], "7,8")
    assert values == {"study": {"path_seed": 5, "seeds": [7, 8]}, "machine": {"kT": 0.2}}
    assert Plan().updated({"study": {"seeds": [7]}}).seeds == (7,)


def test_commands_run_report_and_say_where_the_time_went(tmp_path: Path) -> None:
    sets = [
        f"--set={section}.{key}={json.dumps(value)}"
        for section, entries in SMALL.items()
        for key, value in entries.items()
        if section != "study"
    ]
    more = ["--seeds", "3", "--set", "study.paths_per_pattern=1", "--workers", "1"]
    out = ["--preset", "quick", "--out", str(tmp_path)]
    ran = CliRunner().invoke(app, ["run", "prototypes", *out, *more, *sets])
    assert ran.exit_code == 0, ran.output
    assert "heat reduction" in ran.output
    for stage in ("paths", "training", "generation", "quality", "diagnostics", "figures", "report"):
        assert f"{stage} " in ran.output.partition("work")[2], stage
    shutil.rmtree(tmp_path / "runs")  # a report needs saved tables only
    again = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "report.html").exists()
    assert set(json.loads((tmp_path / "summary.json").read_text())["studies"]) == {"prototypes"}
    refused = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert isinstance(refused.exception, UserError)
