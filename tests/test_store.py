"""The run directory: a real SIGKILL, a real full disk, real damage; nothing lost, all named."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from thermoloom.errors import UserError
from thermoloom.runs.files import DamagedFileError, lock_owner, write_atomically
from thermoloom.runs.formats import decode_arrays, decode_table
from thermoloom.runs.manifest import (
    SCHEMA,
    encode_manifest,
    read_manifest,
    run_identity,
    software_versions,
)
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.settings import Settings

SETTINGS = {"training": {"rule": "online", "cycles": 300}, "machine": {"kT": 0.1}}
NOBODY = 65534


def create(path: Path, **training: Any) -> RunDirectory:
    return RunDirectory.create(path, "training", SETTINGS | {"training": training or {"seed": 1}})


def contents(cycle: int) -> dict[str, np.ndarray[Any, Any]]:
    """Large enough that a write takes a while: about a megabyte."""
    return {"theta": np.full((512, 512), cycle, np.float32), "step": np.array(cycle)}


# --- kill at any moment -------------------------------------------------------------------


def write_checkpoints_forever(path: Path, report: int) -> None:
    with create(path) as run:
        start = run.latest_checkpoint()
        cycle = start.cycle if start else 0
        while True:
            cycle += 1
            run.save_checkpoint(cycle, contents(cycle), {"cycle": cycle})
            os.write(report, cycle.to_bytes(8, "little"))


def write_tables_forever(path: Path, report: int) -> None:
    with create(path) as run:
        row = 0
        while True:
            row += 1
            run.save_table("curve", {"cycle": list(range(row)), "loss": [row / 3] * row})
            os.write(report, row.to_bytes(8, "little"))


def kill_at_random(work: Callable[[Path, int], None], path: Path, seed: int) -> int:
    """SIGKILL ``work`` after 0 to 40 ms of writing; returns the last count that it reported."""
    reader, writer = os.pipe()
    process = get_context("fork").Process(target=work, args=(path, writer))
    process.start()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        counts = pipe.read(8)
        time.sleep(random.Random(seed).uniform(0, 0.04))
        os.kill(process.pid or 0, signal.SIGKILL)
        counts += pipe.read()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return int.from_bytes(counts[-8:], "little")


def test_checkpoints_survive_sigkill_at_any_moment(tmp_path: Path) -> None:
    software_versions()  # what it imports is imported once, not in each of the processes
    path, reached = tmp_path / "run", 0
    for attempt in range(30):
        confirmed = kill_at_random(write_checkpoints_forever, path, attempt)
        run = RunDirectory.open(path)
        latest = run.latest_checkpoint()
        assert latest is not None
        assert not run.warnings, "a kill must never leave a damaged checkpoint in place"
        assert latest.cycle >= confirmed > reached, "a checkpoint once written is never lost"
        assert latest.metadata == {"cycle": latest.cycle}
        np.testing.assert_array_equal(latest.arrays["theta"], contents(latest.cycle)["theta"])
        reached = latest.cycle
    assert reached > 30
    assert lock_owner(path) is None, "the lock vanishes with its process"
    create(path).close()
    names = sorted(p.name for p in path.iterdir())
    assert not [n for n in names if n.endswith(".tmp")], "leftovers are removed on the next opening"
    assert 1 <= len([n for n in names if n.startswith("checkpoint")]) <= 3


def test_overwritten_table_survives_sigkill_at_any_moment(tmp_path: Path) -> None:
    """File and checksum change in two steps; between them the replaced version still fits."""
    path = tmp_path / "run"
    for attempt in range(20):
        kill_at_random(write_tables_forever, path, attempt)
        table = RunDirectory.open(path).load_table("curve")
        rows = len(table["cycle"])
        np.testing.assert_array_equal(table["cycle"], np.arange(rows))
        np.testing.assert_array_equal(table["loss"], [rows / 3] * rows)


@pytest.mark.parametrize("victim", ["manifest.json", "curve.csv"])
def test_kill_between_manifest_and_file(
    tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop exactly before either of the two writes that replace a table."""

    class KilledError(BaseException):
        pass

    def dies(path: Path, data: bytes) -> None:
        if path.name == victim:
            raise KilledError
        write_atomically(path, data)

    with create(tmp_path / "run") as run:
        run.save_table("curve", {"loss": [1.0]})
    with monkeypatch.context() as patched, create(tmp_path / "run") as run:
        patched.setattr("thermoloom.runs.store.write_atomically", dies)
        with pytest.raises(KilledError):
            run.save_table("curve", {"loss": [2, 3]})
    assert RunDirectory.open(tmp_path / "run").load_table("curve")["loss"].tolist() == [1.0]
    with create(tmp_path / "run") as run:
        run.save_table("curve", {"loss": [4.0, 5.0]})
    assert RunDirectory.open(tmp_path / "run").load_table("curve")["loss"].tolist() == [4.0, 5.0]


# --- checkpoints --------------------------------------------------------------------------


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        for cycle in (10, 20, 30):
            run.save_checkpoint(cycle, contents(cycle))
    assert sorted(p.name for p in tmp_path.glob("checkpoint*")) == [
        "checkpoint-000020.safetensors",
        "checkpoint-000030.safetensors",
    ]


def test_kill_between_the_last_checkpoint_and_the_end_leaves_two(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        for cycle in (10, 20):
            run.save_checkpoint(cycle, contents(cycle))
        oldest = (tmp_path / "run" / "checkpoint-000010.safetensors").read_bytes()
        run.save_checkpoint(30, contents(30))
    (tmp_path / "run" / "checkpoint-000010.safetensors").write_bytes(oldest)  # not dropped yet
    with create(tmp_path / "run") as run:
        last = run.latest_checkpoint()
        assert last is not None
        assert last.cycle == 30
        run.finish({})
    kept = sorted(file.name for file in (tmp_path / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-000020.safetensors", "checkpoint-000030.safetensors"]


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_one_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1000] ^= 1
    file.write_bytes(data)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def change_metadata(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"by hand", b"by Hand"))


@pytest.mark.parametrize("damage", [truncate, flip_one_bit, empty, change_metadata])
def test_damaged_checkpoint_is_named_and_the_one_before_used(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with create(tmp_path) as run:
        for cycle in (10, 20):
            run.save_checkpoint(cycle, contents(cycle), {"made": "by hand"})
    damage(tmp_path / "checkpoint-000020.safetensors")
    with create(tmp_path) as run:
        latest = run.latest_checkpoint()
        assert latest is not None
        assert latest.cycle == 10
        assert len(run.warnings) == 1
        assert "checkpoint-000020.safetensors: damaged" in run.warnings[0]
        run.save_checkpoint(15, contents(15))  # the good one stays, the damaged one goes
    assert sorted(p.name[11:17] for p in tmp_path.glob("checkpoint*")) == ["000010", "000015"]


def test_any_single_flipped_bit_is_noticed(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.save_checkpoint(10, {"theta": np.arange(40, dtype=np.float32), "n": np.array(7)})
    file = tmp_path / "checkpoint-000010.safetensors"
    good = file.read_bytes()
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"."):
            decode_arrays(bytes(data))
    assert decode_arrays(good)[1]["cycle"] == 10


def test_no_good_checkpoint_means_none(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        assert run.latest_checkpoint() is None
        run.save_checkpoint(10, contents(10))
        truncate(tmp_path / "checkpoint-000010.safetensors")
        assert run.latest_checkpoint() is None
        assert "checkpoint-000010" in run.warnings[0]


def test_a_renamed_checkpoint_is_not_taken_for_another_cycle(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.save_checkpoint(10, contents(10))
    shutil.copy(
        tmp_path / "checkpoint-000010.safetensors", tmp_path / "checkpoint-000099.safetensors"
    )
    latest = RunDirectory.open(tmp_path).latest_checkpoint()
    assert latest is not None
    assert latest.cycle == 10


# --- arrays and tables --------------------------------------------------------------------


def test_arrays_round_trip_and_are_plain_safetensors(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        "z": generator.normal(size=(3, 4)).astype(np.float32).T,  # not contiguous
        "a": np.arange(5, dtype=np.int16)[::-1],
        "scalar": np.array(0.1),
        "none": np.zeros((2, 0)),
        "big_endian": np.array([1.5, 2.5], ">f8"),
        "truth": np.array([True, False]),
    }
    with create(tmp_path) as run:
        run.save_arrays("states", arrays, {"seed": 7, "nested": {"rule": "online"}})
    run = RunDirectory.open(tmp_path)
    loaded = run.load_arrays("states")
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype.newbyteorder("=")
    assert run.load_metadata("states") == {"seed": 7, "nested": {"rule": "online"}}
    np.testing.assert_array_equal(load_file(tmp_path / "states.safetensors")["z"], arrays["z"])


def test_equal_arrays_are_equal_files(tmp_path: Path) -> None:
    """Bit-identical runs can be compared file by file, whatever hash seed Python has."""
    script = (
        "import sys; import numpy as np; from thermoloom.runs.files import sha256;"
        "from thermoloom.runs.formats import encode_arrays;"
        "print(sha256(encode_arrays({c: np.arange(9.0) for c in 'qwerty'},"
        "{c: 1 for c in 'asdfgh'})))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_table_round_trips_to_the_bit(tmp_path: Path) -> None:
    bits = np.random.default_rng(1).integers(0, 2**64, 5000, dtype=np.uint64)
    floats = bits.view(np.float64)
    floats = np.concatenate([floats[~np.isnan(floats)], [0.0, -0.0, np.inf, -np.inf, 5e-324, 0.1]])
    n = len(floats)
    single = np.random.default_rng(2).normal(size=n).astype(np.float32)
    columns = {
        "any": floats,
        "single": single,
        "count": np.arange(n) - 7,
        "name": [f'digit "{i}", of\n{n}' for i in range(n)],
        "code": [f"{i:03d}" for i in range(n)],
        "truth": np.arange(n) % 3 == 0,
        "gap": [None if i % 2 else 1.5 for i in range(n)],
    }
    with create(tmp_path) as run:
        run.save_table("all", columns)
    loaded = RunDirectory.open(tmp_path).load_table("all")
    assert list(loaded) == list(columns)
    assert loaded["any"].tobytes() == floats.tobytes()
    assert loaded["single"].dtype == np.float32
    assert loaded["single"].tobytes() == single.tobytes()
    assert loaded["code"].tolist() == columns["code"]
    assert loaded["name"].tolist() == columns["name"]
    assert loaded["truth"].dtype == bool
    for name in ("count", "truth", "gap"):
        expected = np.array(columns[name], dtype=loaded[name].dtype)
        np.testing.assert_array_equal(loaded[name], expected)
    alone = decode_table((tmp_path / "all.csv").read_bytes())  # types from the text alone
    assert alone["any"].tobytes() == floats.tobytes()
    assert alone["count"].dtype == np.int64


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.save_table("none", {"loss": np.zeros(0), "name": []})
        assert {k: len(v) for k, v in run.load_table("none").items()} == {"loss": 0, "name": 0}


@pytest.mark.parametrize("damage", [truncate, empty, lambda file: file.unlink()])
@pytest.mark.parametrize("name", ["curve.csv", "states.safetensors"])
def test_damaged_file_is_refused_by_name(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    with create(tmp_path) as run:
        run.save_table("curve", {"loss": [0.5, 0.25]})
        run.save_arrays("states", {"x": np.arange(9.0)})
        run.finish({"loss": 0.25})
    damage(tmp_path / name)
    run = RunDirectory.open(tmp_path)
    load = run.load_table if name.endswith("csv") else run.load_arrays
    with pytest.raises(DamagedFileError, match=name):
        load(name)
    # The advice "remove it and run again" holds: the run is no longer taken for done.
    assert finished_results(tmp_path, "training", run.settings) is None
    with create(tmp_path) as again:
        assert again.state == "running"
        assert name in again.warnings[0]


def test_table_changed_in_one_digit_is_refused(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.save_table("curve", {"loss": [0.5, 0.25]})
    (tmp_path / "curve.csv").write_text("loss\n0.5\n0.26\n")
    with pytest.raises(DamagedFileError, match=r"curve\.csv: damaged"):
        RunDirectory.open(tmp_path).load_table("curve")


# --- manifest, state, resume --------------------------------------------------------------


def test_manifest_says_what_the_run_was(tmp_path: Path) -> None:
    settings = Settings().as_dict()
    with RunDirectory.create(tmp_path, "training", settings) as run:
        assert run.state == "new"
        run.save_table("curve", {"loss": [1.0]})
        assert read_manifest(tmp_path).state == "running"
        run.finish({"loss": np.float64(0.5), "heat": np.float32("nan"), "n": np.int64(3)})
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert written["state"] == "done"
    assert written["results"] == {"loss": 0.5, "heat": None, "n": 3}
    assert written["settings"] == settings
    assert written["id"] == run_identity("training", settings)
    assert written["versions"]["numpy"] == np.__version__
    assert written["versions"]["blas"][0]["threads"] >= 1
    assert written["host"]["cores"] == len(os.sched_getaffinity(0))
    assert len(written["files"]["curve.csv"]["sha256"]) == 64
    assert Settings.from_dict(written["settings"]) == Settings()
    assert finished_results(tmp_path, "training", settings) == written["results"]
    assert finished_results(tmp_path, "generation", settings) is None


def test_diverged_and_failed_are_states_with_a_reason(tmp_path: Path) -> None:
    with create(tmp_path / "a") as run:
        run.diverged(17)
    assert read_manifest(tmp_path / "a").state == "diverged"
    assert read_manifest(tmp_path / "a").reason == "non-finite in cycle 17"
    with pytest.raises(UserError), create(tmp_path / "b") as run:
        raise UserError("machine.kT = 3: too hot")
    assert read_manifest(tmp_path / "b").state == "failed"
    assert read_manifest(tmp_path / "b").reason == "machine.kT = 3: too hot"
    with create(tmp_path / "b") as run:
        run.save_checkpoint(1, contents(1))
    assert read_manifest(tmp_path / "b").state == "running"
    assert read_manifest(tmp_path / "b").reason == ""


def test_interruption_leaves_the_run_to_be_continued(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.save_checkpoint(1, contents(1))
    with pytest.raises(KeyboardInterrupt), create(tmp_path):
        raise KeyboardInterrupt
    assert read_manifest(tmp_path).state == "running"


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    create(tmp_path, cycles=300, seed=101, digits=(0, 1)).close()
    create(tmp_path, cycles=300, seed=101, digits=[0, 1]).close()
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(UserError, match=r"training\.cycles = 300, not 400; use .*--out"):
        create(tmp_path, cycles=400, seed=101, digits=(0, 1))
    with pytest.raises(UserError, match="a run of training, not generation"):
        RunDirectory.create(tmp_path, "generation", SETTINGS)
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_foreign_folder_or_file_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        create(tmp_path / "thesis.tex")
    with pytest.raises(UserError, match="no run here"):
        RunDirectory.open(tmp_path)
    with pytest.raises(UserError, match="no run here"):
        RunDirectory.open(tmp_path / "nowhere")


def test_folder_of_a_run_killed_at_its_very_start_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".manifest.json.0123abcd.tmp").write_text("{")
    with create(tmp_path) as run:
        assert run.state == "new"
    assert not list(tmp_path.glob(".*.tmp"))


def rewrite_manifest(path: Path, **changes: Any) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    create(tmp_path).close()
    rewrite_manifest(tmp_path, schema=SCHEMA + 1, novelty=True)
    newer = rf"newer thermoloom \(schema {SCHEMA + 1}, .* reads {SCHEMA}\); upgrade"
    for attempt in (create, RunDirectory.open):
        with pytest.raises(UserError, match=newer):
            attempt(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", f'{{"schema": {SCHEMA}}}', "\x00\x01", '"schema"'])
def test_damaged_manifest_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    create(tmp_path).close()
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"manifest\.json: damaged") as caught:
        create(tmp_path)
    assert "\n" not in str(caught.value)
    assert lock_owner(tmp_path) is None


def test_changed_software_is_noted_once_on_resuming(tmp_path: Path) -> None:
    create(tmp_path).close()
    with create(tmp_path) as run:
        assert not run.warnings
    manifest = read_manifest(tmp_path)
    manifest.versions = software_versions() | {"numpy": "0.1"}
    (tmp_path / "manifest.json").write_bytes(encode_manifest(manifest))
    with create(tmp_path) as run:
        assert f"versions.numpy 0.1 → {np.__version__}" in run.warnings[0]
    with create(tmp_path) as run:
        assert not run.warnings
        assert [c["key"] for c in run.manifest.changes] == ["versions.numpy"]
        assert run.manifest.versions["numpy"] == "0.1"


def test_reading_never_writes(tmp_path: Path) -> None:
    create(tmp_path).close()
    run = RunDirectory.open(tmp_path)
    with pytest.raises(RuntimeError, match="reading only"):
        run.save_table("curve", {"loss": [1.0]})
    with pytest.raises(RuntimeError, match="reading only"):
        run.finish({})


# --- lock ---------------------------------------------------------------------------------


def hold_lock(path: Path, report: int, seconds: float = 60) -> None:
    with create(path):
        os.write(report, b"held")
        time.sleep(seconds)


def test_run_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    process = get_context("fork").Process(target=hold_lock, args=(tmp_path, writer))
    process.start()
    try:
        assert os.read(reader, 4) == b"held"
        owner = f"process {process.pid} on {socket.gethostname()}"
        with pytest.raises(UserError, match=f"in use by {owner}; wait for it or choose another"):
            create(tmp_path)
        assert lock_owner(tmp_path) == owner
        assert RunDirectory.open(tmp_path).state == "new"  # reading needs no lock
    finally:
        process.kill()
        process.join()
    create(tmp_path).close()  # nothing stale is left


def test_waiting_for_the_lock(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    process = get_context("fork").Process(target=hold_lock, args=(tmp_path, writer, 0.3))
    process.start()
    assert os.read(reader, 4) == b"held"
    RunDirectory.open(tmp_path, write=True, wait=30).close()
    process.join()


# --- disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of three megabytes, where the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk_leaves_the_last_good_files(small_disk: Path) -> None:
    path = small_disk / "run"
    with create(path) as run:
        run.save_checkpoint(10, contents(10))
        run.save_table("curve", {"loss": [1.0]})
        (small_disk / "ballast").write_bytes(bytes(1_200_000))
        with pytest.raises(UserError, match=r"curve\.csv: no space left"):
            run.save_table("curve", {"loss": np.arange(300_000) / 7})
        assert run.load_table("curve")["loss"].tolist() == [1.0]
        with pytest.raises(UserError, match=r"checkpoint-000020\S+: no space left"):
            run.save_checkpoint(20, contents(20))
    run = RunDirectory.open(path)
    latest = run.latest_checkpoint()
    assert latest is not None
    assert latest.cycle == 10
    assert run.load_table("curve")["loss"].tolist() == [1.0]
    assert not list(path.glob(".*.tmp")), "what did not fit is removed at once"
    (small_disk / "ballast").unlink()
    with create(path) as run:
        run.save_checkpoint(20, contents(20))
        assert run.state == "running"


def write_beyond_the_limit(path: Path, report: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    with create(path) as run:
        try:
            run.save_checkpoint(20, contents(20))
        except UserError as error:
            os.write(report, str(error).encode())


def test_file_size_limit_is_like_a_full_disk(tmp_path: Path) -> None:
    """The same without root: the kernel refuses to let the file grow."""
    with create(tmp_path) as run:
        run.save_checkpoint(10, contents(10))
    reader, writer = os.pipe()
    process = get_context("fork").Process(target=write_beyond_the_limit, args=(tmp_path, writer))
    process.start()
    process.join()
    message = os.read(reader, 1000).decode()
    assert "checkpoint-000020.safetensors: no space left to write it" in message
    assert "\n" not in message
    latest = RunDirectory.open(tmp_path).latest_checkpoint()
    assert latest is not None
    assert latest.cycle == 10
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder nobody may write to; root, who may, becomes nobody meanwhile."""
    software_versions()  # imports what it needs while it may
    place = Path(tempfile.mkdtemp())
    with create(place / "run") as run:
        run.save_checkpoint(10, contents(10))
    for folder in (place / "run", place):
        folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    yield place
    if root:
        os.seteuid(0)
    for folder in (place, place / "run"):
        folder.chmod(0o755)
    shutil.rmtree(place)


def test_folder_without_write_permission(unwritable: Path) -> None:
    with pytest.raises(UserError, match=r"new: no permission to write .* another folder"):
        create(unwritable / "new")
    with pytest.raises(UserError, match="no permission to write"):
        create(unwritable / "run")
    latest = RunDirectory.open(unwritable / "run").latest_checkpoint()  # reading is fine
    assert latest is not None
    assert latest.cycle == 10
