"""Functions that other systems lack are not taken for granted."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from thermoloom import feasibility, interrupts, threads
from thermoloom.engines.memory import training_memory
from thermoloom.errors import UserError
from thermoloom.inputs import read_file
from thermoloom.machine.machine import Machine
from thermoloom.runs import cluster, files, manifest
from thermoloom.runs.tasks import Task


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, and Python as it is on Windows, as far as these functions of ``os`` go."""
    for name in ("sysconf", "getuid", "sched_getaffinity", "O_DIRECTORY", "O_NONBLOCK"):
        monkeypatch.delattr(os, name)
    real = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: _not_there(self) or real(self, *a, **k)
    )
    return tmp_path


def _not_there(path: Path) -> None:
    if path.parts[:2] in (("/", "proc"), ("/", "sys")):
        raise FileNotFoundError(path)


def test_nothing_of_linux_is_needed(elsewhere: Path) -> None:
    assert threads.available_cores() == os.cpu_count()
    assert feasibility.memory_bytes() == 1 << 62
    feasibility.require_memory(training_memory(Machine()))
    assert manifest.host()["cpu"]
    files.write_atomically(elsewhere / "a", b"written")
    assert read_file(elsewhere / "a", 100) == b"written"
    with interrupts.interrupts_deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    folder = elsewhere / "scratch"
    cluster._own_directory(folder)
    assert folder.is_dir()
    assert cluster._scratch(Task("a", "b:c")).parent.name.startswith("thermoloom-")
    (elsewhere / "link").symlink_to(folder)
    with pytest.raises(UserError, match="is a link"):
        cluster._own_directory(elsewhere / "link")
