"""Long runs: killed at any point and continued, they are bit-identical to uninterrupted ones."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from thermoloom.computers.sample_archives import SampleRequest, archives, generate_run, read_archive
from thermoloom.computers.training_runs import (
    learned_patterns,
    parameters_of,
    train_runs,
    training_path,
)
from thermoloom.errors import UserError
from thermoloom.generation import differing_samples, generate
from thermoloom.runs.store import RunDirectory, checkpoints
from thermoloom.settings import Settings

SMALL = {
    "machine": {"visible": 196, "hidden": 24, "duration": 0.2},
    "patterns": {"resize": True},
    "training": {"cycles": 40},
}


def small_settings(**training: object) -> Settings:
    return Settings.from_dict(SMALL).updated({"training": training})


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    run = RunDirectory.open(path)
    assert run.state == "done"
    return run.load_arrays("computer") | run.load_table("curve")


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def test_a_run_killed_at_any_point_ends_the_same(tmp_path: Path) -> None:
    """Real SIGKILLs at random moments, from start-up to the last write."""
    train_runs([(tmp_path / "whole", small_settings(cycles=100))])
    command = [
        *(sys.executable, "-c", "from thermoloom.cli import main; main()", "train"),
        *("--cycles", "100", "--checkpoint-every", "0", "--out", str(tmp_path / "killed")),
        *("--set", "visible=196", "--set", "hidden=24", "--set", "duration=0.2"),
        *("--set", "resize=true"),
    ]
    chance = random.Random(5)
    deaths = 0
    for _ in range(40):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        started = _checkpoint_count(tmp_path / "killed")
        # Let it get somewhere (imports take most of the time), then wait a random moment more.
        while process.poll() is None and _checkpoint_count(tmp_path / "killed") == started:
            time.sleep(0.005)
            assert time.monotonic() < deadline
        time.sleep(chance.random() * 0.15)
        process.send_signal(signal.SIGKILL)  # does nothing if it has ended by itself
        process.communicate()
        deaths += process.returncode == -signal.SIGKILL
        if process.returncode == 0 or deaths == 4:
            break
    assert deaths >= 2
    subprocess.run(command, check=True, capture_output=True)
    assert_same(arrays_of(tmp_path / "killed"), arrays_of(tmp_path / "whole"))


def _checkpoint_count(path: Path) -> int:
    return checkpoints(path)[-1][0] if path.is_dir() and checkpoints(path) else 0


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    settings = small_settings()
    train_runs([(tmp_path / "whole", settings)])
    path = tmp_path / "damaged"

    def stop_at_thirty(_: Path, trainee: object) -> None:
        if trainee.cycle == 30:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_runs([(path, settings)], stop_at_thirty, checkpoint_seconds=0)
    newest = checkpoints(path)[-1][1]
    newest.write_bytes(newest.read_bytes()[:-7])
    warnings: list[str] = []
    train_runs([(path, settings)], on_warning=warnings.append)
    assert any(newest.name in line and "damaged" in line for line in warnings)
    assert_same(arrays_of(path), arrays_of(tmp_path / "whole"))


def test_runs_that_share_paths_go_on_from_different_cycles(tmp_path: Path) -> None:
    online, batch = small_settings(), small_settings(rule="batch")
    for settings in (online, batch):
        train_runs([(tmp_path / f"alone-{settings.training.rule}", settings)])
    both = [(tmp_path / "online", online), (tmp_path / "batch", batch)]

    def stop(path: Path, trainee: object) -> None:
        if path.name == "batch" and trainee.cycle == 20:  # type: ignore[attr-defined]
            raise KeyboardInterrupt  # online has done this cycle, batch too; then cut one back

    with pytest.raises(KeyboardInterrupt):
        train_runs(both, stop, checkpoint_seconds=0)
    checkpoints(tmp_path / "batch")[-1][1].unlink()
    train_runs(both)
    for name in ("online", "batch"):
        assert_same(arrays_of(tmp_path / name), arrays_of(tmp_path / f"alone-{name}"))


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    train_runs([(tmp_path / "run", small_settings())])
    before = (tmp_path / "run" / "computer.safetensors").stat().st_mtime_ns
    train_runs([(tmp_path / "run", small_settings())], on_cycle=lambda *_: pytest.fail("trained"))
    assert (tmp_path / "run" / "computer.safetensors").stat().st_mtime_ns == before


def test_divergence_is_recorded(tmp_path: Path) -> None:
    settings = small_settings(rule="batch", learning_rate=1e9)
    train_runs([(tmp_path / "wild", settings)])
    run = RunDirectory.open(tmp_path / "wild")
    assert run.state == "diverged"
    assert run.results["cycle"] < 40
    with pytest.raises(UserError, match=r"diverged in cycle \d.*smaller learning rate") as caught:
        parameters_of(run)
    assert "continue" not in str(caught.value)


def test_samples_are_archived_and_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train_runs([(path, small_settings())])
    generated = generate_run(path, SampleRequest(7, 90101))
    run = RunDirectory.open(path)
    assert archives(run) == ["samples-90101-7"]
    stored = read_archive(run, "samples-90101-7")
    assert np.array_equal(stored.heat, generated.heat)
    assert differing_samples(stored, generate(parameters_of(run), 7, 90101)) == []
    again = generate_run(path, SampleRequest(7, 90101))  # from the archive
    assert np.array_equal(again.final_states, generated.final_states)
    assert learned_patterns(run).shape == (14, 14)
    assert learned_patterns(run).targets == (0, 1, 2)


def test_a_run_is_found_by_its_settings_and_patterns(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((2, 14, 14))
    np.save(tmp_path / "mine.npy", images)
    mine = Settings.from_dict(SMALL).updated(
        {"patterns": {"source": "images", "path": str(tmp_path / "mine.npy")}}
    )
    first = training_path(tmp_path, mine)
    assert first == training_path(tmp_path, mine)
    assert first != training_path(tmp_path, small_settings())
    assert first == training_path(tmp_path, mine.updated({"generation": {"samples": 3}}))
    np.save(tmp_path / "mine.npy", images[::-1])  # other images under the same name
    assert first != training_path(tmp_path, mine)
