"""Listing, verifying and pruning a results folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.runs.catalog import (
    find_runs,
    list_runs,
    prunable,
    prune,
    readable_age,
    readable_bytes,
    verify,
)
from thermoloom.runs.manifest import PART_OF, encode_manifest, read_manifest
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings


def make_run(path: Path, finish: bool = True, **training: Any) -> Path:
    settings = Settings().updated({"training": training}).as_dict()
    with RunDirectory.create(path, "training", settings) as run:
        for cycle in (10, 20):
            run.save_checkpoint(cycle, {"theta": np.full(1000, cycle)})
        run.save_arrays("states", {"x": np.arange(1000.0), "heat": np.ones(100)})
        run.save_table("curve", {"loss": [1.0, 0.5]})
        if finish:
            run.finish({"loss": 0.5})
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path / "online", seed=101)
    make_run(tmp_path / "deep" / "er" / "batch", rule="batch", seed=102)
    make_run(tmp_path / "stopped", finish=False, seed=101, cycles=40)
    return tmp_path


def test_list(folder: Path) -> None:
    with RunDirectory.create(folder / "busy", "generation", {"samples": 5}) as busy:
        busy.save_table("t", {"x": [1]})
        runs = {run.path.name: run for run in list_runs(folder)}
    assert {name: (run.kind, run.state) for name, run in runs.items()} == {
        "online": ("training", "done"),
        "batch": ("training", "done"),
        "stopped": ("training", "interrupted"),
        "busy": ("generation", "running"),
    }
    varying = {"training.rule": "online", "training.seed": 101, "training.cycles": 300}
    assert runs["online"].settings == varying
    assert runs["batch"].settings == varying | {"training.rule": "batch", "training.seed": 102}
    assert runs["stopped"].settings == varying | {"training.cycles": 40}
    assert runs["busy"].settings == {"samples": 5}
    assert runs["online"].id == RunDirectory.open(folder / "online").id
    on_disk = sum(f.stat().st_size for f in (folder / "online").iterdir())
    assert runs["online"].bytes == on_disk > 20_000
    assert 0 <= runs["online"].age < 60


def test_alone_a_run_is_told_by_what_is_not_the_default(tmp_path: Path) -> None:
    make_run(tmp_path, cycles=40, seed=101)
    (run,) = list_runs(tmp_path)
    assert run.settings == {"training.cycles": 40}


def test_age_is_that_of_the_manifest(folder: Path) -> None:
    manifest = read_manifest(folder / "online")
    manifest.updated = (datetime.now(UTC) - timedelta(hours=2)).isoformat(timespec="seconds")
    (folder / "online" / "manifest.json").write_bytes(encode_manifest(manifest))
    ages = {run.path.name: run.age for run in list_runs(folder)}
    assert ages["online"] == pytest.approx(7200, abs=60)


def test_unreadable_runs_are_listed_as_such(folder: Path) -> None:
    (folder / "online" / "manifest.json").write_text('{"schema": 99}')
    (folder / "stopped" / "manifest.json").write_text("{")
    runs = {run.path.name: run for run in list_runs(folder)}
    assert runs["online"].state == runs["stopped"].state == "unreadable"
    assert "newer thermoloom" in runs["online"].reason
    assert "damaged" in runs["stopped"].reason
    assert runs["batch"].state == "done"


def test_missing_folder(tmp_path: Path) -> None:
    for function in (list_runs, verify, prunable, find_runs):
        with pytest.raises(UserError, match="nowhere: no such folder"):
            function(tmp_path / "nowhere")


# --- verify -------------------------------------------------------------------------------


def overwrite(file: Path, position: int, value: bytes) -> None:
    with open(file, "r+b") as stream:
        stream.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        stream.write(value)


def test_verify_finds_nothing_in_good_runs(folder: Path) -> None:
    report = verify(folder)
    assert not report.damaged
    assert (report.runs, report.files) == (3, 3 * 4)
    assert report.bytes > 60_000


def test_verify_names_every_damage_and_only_those(folder: Path) -> None:
    online, stopped, batch = folder / "online", folder / "stopped", folder / "deep" / "er" / "batch"
    overwrite(online / "states.safetensors", -8, b"\1")  # within the last array of the file
    overwrite(online / "checkpoint-000010.safetensors", -8, b"\1")
    os.truncate(stopped / "curve.csv", 5)
    os.truncate(stopped / "states.safetensors", 500)
    (online / "curve.csv").unlink()
    text = (batch / "manifest.json").read_text()
    (batch / "manifest.json").write_text(text.replace('"seed": 102', '"seed": 103'))
    found = {(str(d.file.relative_to(folder)), d.array) for d in verify(folder).damaged}
    assert found == {
        ("online/states.safetensors", "x"),
        ("online/checkpoint-000010.safetensors", ""),
        ("stopped/curve.csv", ""),
        ("stopped/states.safetensors", ""),
        ("online/curve.csv", ""),
        ("deep/er/batch/manifest.json", ""),
    }
    assert all("\n" not in str(d) for d in verify(folder).damaged)


def test_verify_goes_on_after_an_unreadable_manifest(folder: Path) -> None:
    (folder / "online" / "manifest.json").write_text("{")
    report = verify(folder)
    assert [d.file for d in report.damaged] == [folder / "online" / "manifest.json"]
    assert report.runs == 3
    assert report.files == 2 * 4


def test_verify_leaves_a_run_in_use_alone(folder: Path) -> None:
    with RunDirectory.open(folder / "online", write=True):
        report = verify(folder)
    assert report.runs == 2
    assert [line.partition(": in use by process")[0] for line in report.skipped] == [
        str(folder / "online")
    ]


# --- prune --------------------------------------------------------------------------------


def test_prune_takes_old_checkpoints_of_finished_runs_and_leftovers(folder: Path) -> None:
    leftover = folder / "stopped" / ".curve.csv.0123abcd.tmp"
    leftover.write_bytes(bytes(77))
    before = {p for p in folder.rglob("*") if p.is_file()}
    items = prunable(folder)
    assert {p for p in folder.rglob("*") if p.is_file()} == before, "looking deletes nothing"
    expected = {
        leftover,
        folder / "online" / "checkpoint-000010.safetensors",
        folder / "deep" / "er" / "batch" / "checkpoint-000010.safetensors",
    }
    assert {item.file for item in items} == expected
    total = sum(file.stat().st_size for file in expected)
    assert sum(item.bytes for item in items) == total
    assert prune(items) == total
    assert before - {p for p in folder.rglob("*") if p.is_file()} == expected
    assert prunable(folder) == []
    assert not verify(folder).damaged
    latest = RunDirectory.open(folder / "online").latest_checkpoint()
    assert latest is not None
    assert latest.cycle == 20


def test_prune_keeps_the_last_good_checkpoint(folder: Path) -> None:
    online = folder / "online"
    overwrite(online / "checkpoint-000020.safetensors", -8, b"\1")
    assert [i.file.name for i in prunable(online)] == ["checkpoint-000020.safetensors"]
    overwrite(online / "checkpoint-000010.safetensors", -8, b"\1")
    assert prunable(online) == []


def test_prune_keeps_all_where_results_are_missing(folder: Path) -> None:
    """Such a run is made again from its checkpoints."""
    (folder / "online" / "states.safetensors").unlink()
    assert prunable(folder / "online") == []


def test_prune_takes_parts_once_they_are_joined(folder: Path) -> None:
    part = folder / "part"
    with RunDirectory.create(part, "samples", {"piece": 1}) as run:
        run.save_arrays("samples", {"x": np.arange(10.0)})
        run.finish({PART_OF: "online/whole.safetensors"})
    before = prunable(folder)
    assert not [item for item in before if item.file.parent == part]
    with RunDirectory.open(folder / "online", write=True) as run:
        run.save_arrays("whole", {"x": np.arange(20.0)})
    items = [item for item in prunable(folder) if item.file.parent == part]
    assert {item.file.name for item in items} == {"samples.safetensors", "manifest.json"}
    assert prune(items) == sum(item.bytes for item in items)
    assert not part.exists()
    assert (folder / "online" / "whole.safetensors").exists()


def test_prune_leaves_a_run_in_use_alone(folder: Path) -> None:
    items = prunable(folder / "online")
    assert len(items) == 1
    with RunDirectory.open(folder / "online", write=True):
        assert prunable(folder / "online") == []
        assert prune(items) == 0
    assert items[0].file.exists()


def test_readable_numbers() -> None:
    assert [readable_bytes(n) for n in (0, 999, 1234, 2_640_000, 123_456_789, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "2.6 MB",
        "123 MB",
        "5.0 TB",
    ]
    assert [readable_age(s) for s in (5, 61, 7300, 200_000)] == ["5 s", "1 min", "2 h", "2 d"]
