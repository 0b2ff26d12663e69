"""What a run is: everything that determines its numbers, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import trained
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers.pattern_store import (
    content_sha256,
    identified,
    named,
    patterns_of,
    patterns_path,
    store_patterns,
)
from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import parameters_of, train_runs, training_path
from thermoloom.errors import UserError
from thermoloom.export.netlists import save_netlist
from thermoloom.measures.classifier import bundled_classifier
from thermoloom.numerics import NUMERICS
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs import manifest as manifest_module
from thermoloom.runs import store as store_module
from thermoloom.runs.catalog import list_runs, verify
from thermoloom.runs.cluster import pack, unpack
from thermoloom.runs.execution import Resources
from thermoloom.runs.files import DamagedFileError
from thermoloom.runs.manifest import (
    PATTERN_SOURCE,
    flatten,
    read_manifest,
    run_identity,
)
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import execute
from thermoloom.settings import Settings
from thermoloom.studies import case as case_module
from thermoloom.studies.case import Case
from thermoloom.studies.discovery import study
from thermoloom.studies.run import cases_of, compute
from thermoloom.studies.schedule import tasks_of
from thermoloom.studies.study import Plan

TINY: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 6, "duration": 0.05},
    "patterns": {"resize": True},
    "training": {"cycles": 4, "validation_every": 2},
    "generation": {"samples": 5},
}


def tiny(**sections: dict[str, Any]) -> Settings:
    return Settings.from_dict(TINY).updated(sections)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two images of seven by seven."""
    file = tmp_path / "mine.npy"
    np.save(file, np.random.default_rng(0).random((2, 7, 7)))
    return file


def own(file: Path) -> Settings:
    return tiny(patterns={"source": "images", "path": str(file)})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished training."""
    train_runs([(tmp_path / "run", tiny())])
    return tmp_path / "run"


# --- the id -----------------------------------------------------------------------------------


def other_value(value: Any) -> Any:
    """A value that is not the given one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    return [9] if isinstance(value, list) else (value or 0) + 1


def test_every_setting_counts_but_a_default_does_not() -> None:
    settings = identified(Settings()).as_dict()
    identity = run_identity("training", settings)
    assert run_identity("generation", settings) != identity
    for section, values in settings.items():
        for key, value in values.items():
            changed = settings | {section: values | {key: other_value(value)}}
            source = section == "patterns" and key in PATTERN_SOURCE
            assert (run_identity("training", changed) == identity) is source, key
            if key != "content":  # a manifest from before this setting was there
                older = settings | {section: {k: v for k, v in values.items() if k != key}}
                assert run_identity("training", older) == identity, key


def test_a_default_that_is_spelled_out_is_the_same_run(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "training", {"machine": {}, "training": {"seed": 3}}).close()
    spelled = Settings().updated({"training": {"seed": 3}}).as_dict()
    assert RunDirectory.create(tmp_path, "training", spelled).state == "new"
    with pytest.raises(UserError, match=r"training\.seed = 3, not 4"):
        RunDirectory.create(
            tmp_path, "training", Settings().updated({"training": {"seed": 4}}).as_dict()
        )


def test_the_experiment_leaves_out_the_defaults_of_its_plan(tmp_path: Path) -> None:
    plan = study("theory").presets["paper"]
    full = plan.as_dict()
    older = full | {"study": {k: v for k, v in full["study"].items() if k != "bits"}}
    RunDirectory.create(tmp_path, "theory", older, defaults=plan.defaults()).close()
    RunDirectory.create(tmp_path, "theory", full, defaults=plan.defaults()).close()
    other = plan.updated({"study": {"bits": [4, 8]}})
    with pytest.raises(UserError, match=r"study\.bits"):
        RunDirectory.create(tmp_path, "theory", other.as_dict(), defaults=plan.defaults())


def test_runs_of_other_numerics_are_read_but_not_mixed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_run(run, SampleRequest(3, 90101))
    old = training_path(Path(), tiny())
    monkeypatch.setattr(manifest_module, "NUMERICS", 99)
    monkeypatch.setattr(store_module, "NUMERICS", 99)
    assert training_path(Path(), tiny()) != old
    assert parameters_of(RunDirectory.open(run))["hidden_bias"].shape == (1, 6)
    assert len(generate_run(run, SampleRequest(3, 90101)).heat) == 3  # from its archive
    assert verify(run).damaged == []
    before = (run / "manifest.json").read_bytes()
    for attempt in (
        lambda: train_runs([(run, tiny())]),
        lambda: generate_run(run, SampleRequest(4, 90101)),
    ):
        with pytest.raises(UserError, match=rf"numerics {NUMERICS}, now 99.*run it again"):
            attempt()
    settings = RunDirectory.open(run).settings
    assert finished_results(run, "training", settings) is None
    assert (run / "manifest.json").read_bytes() == before


def test_measures_depend_on_the_classifier_only_where_it_judges(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [identified(s) for s in (Settings(), tiny(), own(images))]
    before = [Case({}, s).path for s in settings]
    trainings = [training_path(Path(), s) for s in settings]
    record = Case({}, settings[0]).identity["classifier"]["sha256"]
    assert record == bundled_classifier().record["sha256"]
    monkeypatch.setattr(case_module, "classifier_sha256", lambda _: "0" * 64)
    after = [Case({}, s).path for s in settings]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, True]
    assert [training_path(Path(), s) for s in settings] == trainings


DEFAULTS = {
    "machine": {
        "visible": 784,
        "hidden": 512,
        "labels": 0,
        "label_amplitude": 1.0,
        "wiring": ["visible-hidden", "hidden-hidden", "visible-label", "hidden-label"],
        "biases": ["hidden"],
        "stages": 1,
        "windows": [],
        "code": "projection",
        "code_seed": 42,
        "code_amplitude": 2.0,
        "code_clusters": 10,
        "onsite": "quartic",
        "J2": 1.0,
        "J4": 1.0,
        "kT": 0.1,
        "mobility": 1.0,
        "dt": 0.001,
        "duration": 2.5,
    },
    "patterns": {"content": ""},
    "training": {
        "rule": "online",
        "period": None,
        "seed": 101,
        "cycles": 300,
        "learning_rate": None,
        "learning_rate_scale": 1.0,
        "validation_seed": 777001,
        "validation_every": 10,
    },
    "imperfections": {
        "residual_noise": 0.0,
        "residual_offset": 0.0,
        "residual_correlation": 0.0,
        "update_noise": 0.0,
        "bits": 32,
        "rounding": "nearest",
        "range_visible_hidden": None,
        "range_hidden_hidden": None,
    },
    "generation": {"samples": 200, "seed": None},
}
"""What identities of ``NUMERICS`` = 3 leave out; new settings may join, these may not change."""


def test_a_default_changes_only_with_the_numerics() -> None:
    here = flatten(Settings().as_dict())
    changed = {k for k, v in flatten(DEFAULTS).items() if here.get(k, v) != v}
    assert NUMERICS > 3 or not changed, "raise NUMERICS and record the defaults anew"


def test_a_default_changed_in_secret_does_not_pass_for_the_old_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = RunDirectory.open(run).settings
    assert finished_results(run, "training", settings) is not None
    other = flatten(Settings().as_dict()) | {"machine.kT": 0.2}
    monkeypatch.setattr(manifest_module, "usual_settings", lambda _=None: other)
    wanted = settings | {"machine": settings["machine"] | {"kT": 0.2}}
    assert run_identity("training", wanted) == read_manifest(run).id
    assert finished_results(run, "training", wanted) is None
    with pytest.raises(UserError, match=r"machine\.kT = 0\.1, not 0\.2"):
        RunDirectory.create(run, "training", wanted)


# --- patterns ---------------------------------------------------------------------------------


def test_patterns_count_by_content_not_by_place(images: Path, tmp_path: Path) -> None:
    first = training_path(tmp_path, own(images))
    moved = tmp_path / "elsewhere.npy"
    images.rename(moved)
    assert training_path(tmp_path, own(moved)) == first
    array = np.load(moved)
    np.save(moved, array + 0.0)
    assert training_path(tmp_path, own(moved)) == first
    array[1, 3, 3] += 1e-3
    np.save(moved, array)
    assert training_path(tmp_path, own(moved)) != first


def test_content_is_all_of_the_patterns() -> None:
    patterns = load_patterns(tiny().patterns, tiny().machine)
    variants = [
        patterns,
        replace(patterns, patterns=patterns.patterns[::-1]),
        replace(patterns, labels=("a", "b", "c")),
        replace(patterns, classes=()),
        replace(patterns, shape=None),
    ]
    assert len({content_sha256(each) for each in variants}) == len(variants)
    assert content_sha256(replace(patterns)) == content_sha256(patterns)


def test_a_run_goes_on_when_its_images_have_moved(images: Path, tmp_path: Path) -> None:
    def stop(_: Path, trainee: Any) -> None:
        if trainee.cycle == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_runs([(tmp_path / "run", own(images))], stop)
    moved = tmp_path / "moved.npy"
    images.rename(moved)
    train_runs([(tmp_path / "run", own(moved))])
    train_runs([(tmp_path / "whole", own(moved))])
    ended, whole = (parameters_of(RunDirectory.open(tmp_path / n)) for n in ("run", "whole"))
    assert ended.same_as(whole)
    np.save(moved, np.load(moved)[::-1])
    with pytest.raises(UserError, match=r"contains a run with patterns\.content"):
        train_runs([(tmp_path / "run", own(moved))])


def test_settings_that_name_their_patterns_take_no_others(images: Path, tmp_path: Path) -> None:
    pinned = identified(own(images))
    np.save(images, np.load(images)[::-1])
    with pytest.raises(UserError, match=r"patterns\.content = .*the patterns have other content"):
        train_runs([(tmp_path / "run", pinned)])
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="64 hexadecimal digits"):
        tiny(patterns={"content": "abc"})


def test_kept_patterns_need_no_images(images: Path, tmp_path: Path) -> None:
    learned = load_patterns(own(images).patterns, own(images).machine)
    settings = named(own(images), learned)
    store_patterns(tmp_path, learned)
    images.unlink()
    again = patterns_of(settings, tmp_path)
    assert np.array_equal(again.patterns, learned.patterns)
    assert (again.labels, again.shape, again.classes) == (("0", "1"), (7, 7), ())
    file = patterns_path(tmp_path, settings) / "patterns.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(DamagedFileError, match=r"patterns\.safetensors: damaged"):
        patterns_of(settings, tmp_path)


PLANS: dict[str, dict[str, Any]] = {
    "comparison": {"seeds": [1], "paths_per_pattern": 1},
    "theory": {"seeds": [1, 2], "paths_per_pattern": 1},
    "controls": {"seeds": [1], "periods": [1, 50]},
}


def plan_of(name: str, settings: Settings) -> Plan:
    """The quick preset of an experiment with these settings, but for what it sets itself."""
    values = settings.as_dict()
    for key in study(name).varied:
        section, _, setting = key.partition(".")
        values[section].pop(setting, None)
    own_values = {"study": PLANS.get(name, {"seeds": [1]})}
    return study(name).plan("quick", values | own_values)


@pytest.mark.parametrize("name", ["comparison", "theory", "noise", "precision", "controls"])
def test_every_task_is_sent_the_patterns(images: Path, tmp_path: Path, name: str) -> None:
    """On a worker there are no images: each task names what it reads."""
    chosen = study(name)
    plan = plan_of(name, own(images))
    plan = replace(plan, settings=identified(plan.settings))
    images.unlink()
    kept = str(patterns_path(Path("runs"), plan.settings))
    tasks = tasks_of(cases_of(chosen, plan, tmp_path), tmp_path, 2)
    assert tasks
    assert all(kept in task.inputs for task in tasks)


def test_a_worker_without_the_images_gives_the_same_numbers(images: Path, tmp_path: Path) -> None:
    chosen = study("comparison")
    plan = plan_of("comparison", own(images))
    here = tmp_path / "here"
    assert not compute(chosen, plan, here, Resources(1)).failures
    plan = replace(plan, settings=identified(plan.settings))
    images.unlink()
    nothing = tmp_path / "nothing yet"
    for task in tasks_of(cases_of(chosen, plan, nothing), nothing, 1):
        there = tmp_path / "there" / str(len(task.outputs))
        unpack(there, pack(here, task.inputs), task.inputs)
        outcome = execute(task, there, lambda *_: None, 1)
        assert outcome.state == "done", outcome.reason
        for output in task.outputs:
            for table in (here / output).glob("*.csv"):
                assert table.read_bytes() == (there / output / table.name).read_bytes()


def test_python_and_runs_train_on_the_same_fields(tmp_path: Path) -> None:
    settings = tiny(machine={"code_seed": 7})
    train_runs([(tmp_path / "run", settings)])
    theta = parameters_of(RunDirectory.open(tmp_path / "run"))
    machine = tl.Machine(visible=49, hidden=6, duration=0.05, code_seed=7)
    bound = machine.train(tl.digits(0, 1, 2), resize=True, cycles=4, validation_every=2)
    assert theta.same_as(bound.parameters)
    patterns = load_patterns(settings.patterns, settings.machine)
    assert theta.same_as(trained(settings, unit_fields(patterns, settings.machine)).parameters)
    usual = trained(tiny(), unit_fields(patterns, tiny().machine)).parameters
    assert not usual.same_as(theta)


# --- manifests --------------------------------------------------------------------------------


def write(path: Path, values: dict[str, Any]) -> None:
    (path / "manifest.json").write_text(json.dumps(values))


def values_of(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    return values


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"seal": manifest_module._seal(values)}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("settings", "machine", "kT"), 0.5),
        (("settings", "training", "seed"), 102),
        (("kind",), "measures"),
        (("id",), "0123456789ab"),
        (("numerics",), 7),
        (("state",), "running"),
        (("results", "loss"), 0.0),
        (("files", "curve.csv", "sha256"), "0" * 64),
    ],
)
def test_a_manifest_changed_by_hand_is_refused(
    run: Path, place: tuple[str, ...], value: Any
) -> None:
    values = values_of(run)
    target = values
    for key in place[:-1]:
        target = target[key]
    assert target[place[-1]] != value
    target[place[-1]] = value
    write(run, values)
    for attempt in (
        lambda: RunDirectory.open(run),
        lambda: train_runs([(run, tiny())]),
        lambda: generate_run(run, SampleRequest(3, 90101)),
        lambda: finished_results(run, "training", tiny().as_dict()),
    ):
        with pytest.raises(DamagedFileError, match=r"manifest\.json: was changed by hand.*restore"):
            attempt()
    assert [str(d.file) for d in verify(run).damaged] == [str(run / "manifest.json")]


def test_the_command_line_refuses_it_in_one_line(run: Path) -> None:
    values = values_of(run)
    values["settings"]["machine"]["kT"] = 0.5
    write(run, values)
    done = CliRunner().invoke(app, ["generate", str(run)])
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)


def test_white_space_and_order_are_nobodys_business(run: Path) -> None:
    values = values_of(run)
    write(run, dict(reversed(values.items())))
    assert read_manifest(run).state == "done"


def test_manifests_may_grow(run: Path) -> None:
    values = values_of(run)
    write(run, sealed(values | {"novelty": {"deep": [1]}}))
    assert read_manifest(run).state == "done"
    for optional in ("reason", "changes"):
        write(run, sealed({k: v for k, v in values.items() if k != optional}))
        assert read_manifest(run).state == "done"
    train_runs([(run, tiny())], on_cycle=lambda *_: pytest.fail("trained again"))


@pytest.mark.parametrize("schema", [1, 2])
def test_a_run_of_version_0_1_is_named_as_such(run: Path, tmp_path: Path, schema: int) -> None:
    """Schema 2 had ``machine`` for the host, and settings of ``physics``."""
    values = values_of(run) | {"schema": schema}
    values["versions"]["thermoloom"] = "0.1.0"
    values["machine"] = values.pop("host")
    del values["seal"], values["numerics"]
    write(run, values)
    older = r"older version of thermoloom \(0\.1\.0\); run it again.*or read it with that version"
    for attempt in (
        lambda: RunDirectory.open(run),
        lambda: train_runs([(run, tiny())]),
    ):
        with pytest.raises(UserError, match=older):
            attempt()
    report = verify(tmp_path)
    assert report.damaged == []
    assert len(report.skipped) == 1


WRONG: list[Any] = [None, True, -1, 10**40, 1.5, "", "../x", "x\ny", [], [[]], {}, {"a": {"b": 1}}]


def test_no_manifest_stops_the_others(run: Path, tmp_path: Path) -> None:
    """Every field wrong in every way, sealed or not: one line, and the rest is still listed."""
    train_runs([(tmp_path / "good", tiny(training={"seed": 5}))])
    values = values_of(run)
    seen = set()
    for key in flatten(values):
        for wrong in WRONG:
            changed = json.loads(json.dumps(values))
            target = changed
            *parents, last = _keys(values, key)
            for parent in parents:
                target = target[parent]
            target[last] = wrong
            for written in (changed, sealed(changed)):
                write(run, written)
                found = {summary.path.name: summary for summary in list_runs(tmp_path)}
                assert found["good"].state == "done", (key, wrong)
                if found["run"].state == "unreadable":
                    assert found["run"].reason.count("\n") == 0, (key, wrong)
                    seen.add(key)
    assert seen == set(flatten(values)), "each of them is refused, sealed or not"


def _keys(values: dict[str, Any], flat: str) -> list[str]:
    """The way to a flattened key; names of files have dots of their own."""
    for key, value in values.items():
        if flat == key:
            return [key]
        if flat.startswith(f"{key}.") and isinstance(value, dict):
            return [key, *_keys(value, flat[len(key) + 1 :])]
    raise KeyError(flat)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"schema": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "list", "number", "bytes", "deep", "digits"],
)
def test_runs_names_the_bad_and_lists_the_others(run: Path, tmp_path: Path, content: bytes) -> None:
    train_runs([(tmp_path / "good", tiny())])
    (run / "manifest.json").write_bytes(content)
    done = CliRunner().invoke(app, ["runs", "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.exception
    lines = done.output.splitlines()
    assert [line for line in lines if line.split()[:3] == ["good", "training", "done"]]
    assert [line for line in lines if line.startswith(str(run / "manifest.json"))]
    with pytest.raises(DamagedFileError, match="damaged"):
        read_manifest(run)


def test_a_folder_under_another_runs_name_is_refused(tmp_path: Path) -> None:
    first, second = (training_path(tmp_path, tiny(training={"seed": s})) for s in (1, 2))
    train_runs([(first, tiny(training={"seed": 1}))])
    shutil.copytree(first, second)
    with pytest.raises(DamagedFileError, match=f"contains the run {first.name}"):
        RunDirectory.open(second)
    shutil.copytree(first, tmp_path / "my-copy")
    assert RunDirectory.open(tmp_path / "my-copy").state == "done"


# --- files that are lost ----------------------------------------------------------------------


def test_lost_samples_are_made_again_and_the_training_stays_done(run: Path) -> None:
    first = generate_run(run, SampleRequest(5, 90101))
    archive = run / "samples-90101-5.safetensors"
    archive.unlink()
    assert finished_results(run, "training", RunDirectory.open(run).settings) is not None
    again = generate_run(run, SampleRequest(5, 90101))
    assert np.array_equal(first.final_states, again.final_states)
    assert archive.exists()
    archive.write_bytes(archive.read_bytes()[:-9])  # cut: likewise
    assert np.array_equal(
        generate_run(run, SampleRequest(5, 90101)).final_states, first.final_states
    )
    archive.unlink()
    generate_run(run, SampleRequest(6, 90101))
    assert RunDirectory.open(run).state == "done"
    assert not RunDirectory.open(run).has(archive.name)
    train_runs([(run, tiny())], on_cycle=lambda *_: pytest.fail("trained again"))


def test_the_advice_for_damaged_samples_leads_to_the_samples(run: Path) -> None:
    first = generate_run(run, SampleRequest(5, 90101))
    archive = run / "samples-90101-5.safetensors"
    data = bytearray(archive.read_bytes())
    data[-1] ^= 1
    archive.write_bytes(data)
    with pytest.raises(DamagedFileError, match="remove it and repeat the command that created it"):
        generate_run(run, SampleRequest(5, 90101))
    archive.unlink()
    assert np.array_equal(generate_run(run, SampleRequest(5, 90101)).heat, first.heat)
    assert RunDirectory.open(run).state == "done"


@pytest.mark.parametrize("name", ["computer.safetensors", "curve.csv", "patterns.safetensors"])
def test_a_training_that_lost_its_own_files_is_repeated(run: Path, name: str) -> None:
    before = parameters_of(RunDirectory.open(run))
    generate_run(run, SampleRequest(5, 90101))
    (run / name).unlink()
    assert finished_results(run, "training", RunDirectory.open(run).settings) is None
    train_runs([(run, tiny())])
    assert (run / name).exists()
    assert RunDirectory.open(run).state == "done"
    assert parameters_of(RunDirectory.open(run)).same_as(before)


def test_another_engine_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines agree to round-off only, so none continues the run of another."""
    place = tmp_path / "run"
    compiled = training_path(tmp_path, tiny())
    train_runs([(place, tiny())])
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable")
    assert training_path(tmp_path, tiny()) != compiled
    with pytest.raises(UserError, match="a run of the engine compiled, not portable; continue it"):
        train_runs([(place, tiny())])
    assert parameters_of(RunDirectory.open(place))["hidden_bias"].shape == (1, 6)  # still read


def test_only_the_run_store_writes_files_of_a_run(run: Path) -> None:
    before = (run / "curve.csv").read_bytes()
    refused = CliRunner().invoke(app, ["export", str(run), "--out", str(run / "curve.csv")])
    assert isinstance(refused.exception, UserError)
    assert "belongs to the run" in str(refused.exception)
    with pytest.raises(UserError, match="belongs to the run"):
        tl.load(run).save(run / "computer.safetensors")
    assert (run / "curve.csv").read_bytes() == before
    assert verify(run).damaged == []


def test_nothing_is_written_where_a_run_may_write_later(run: Path) -> None:
    """Neither a file that it does not have yet, nor a page, nor a netlist; only its exports."""
    before = sorted(run.iterdir())
    computer = tl.load(run)
    wrong: tuple[Callable[[], object], ...] = (
        lambda: computer.save(run / "samples-1-5.safetensors"),
        lambda: computer.export(run / "later.csv"),
        lambda: save_netlist(run / "later.cir", computer.parameters, 32),
    )
    for write in wrong:
        with pytest.raises(UserError, match=r"belongs to the run in .*; choose another folder"):
            write()
    for page in (run, run / "page.html"):
        refused = CliRunner().invoke(app, ["demo", "--out", str(page)])
        assert "belongs to the run" in str(refused.exception)
    assert sorted(run.iterdir()) == before
    computer.export(run / "couplings-5bit.csv", bits=5)
    assert tl.load(run / "couplings-5bit.csv").machine == computer.machine
