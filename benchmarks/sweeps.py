"""The five-pair comparison as a user runs it: one worker, two workers, a Dask cluster.

Each is one run of the command line in its own results folder, in wall-clock time. The paper's
lengths take a quarter of an hour (--full). Otherwise, a fifth of the cycles and samples shows that
everything works, but start-up, figures and report then weigh five times as much as they should.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.generating import sampling, shortened, trained
from benchmarks.harness import Options, Result, Row, Seconds, Share, clocked, in_turns
from benchmarks.training import NEVER, cycles, settings_for
from thermoloom.engines import engine
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee

PAIRS = 5
WORKERS = 2
PATIENCE = 30.0
"""Seconds allowed for a cluster to start."""


@dataclass(frozen=True)
class Length:
    """Cycles and samples of each of the ten computers."""

    cycles: int
    samples: int


FULL, SCALED = Length(300, 200), Length(60, 40)


def run(options: Options) -> Result:
    engine().warm_up()
    length = FULL if options.full else SCALED
    options.say("rates of training a pair and of generation")
    alone = _alone(length)
    times: dict[str, Seconds] = {}
    result = Result()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for workers in (WORKERS, 1):
            options.say(f"comparison, {workers} workers" if workers > 1 else "comparison, 1 worker")
            name = f"workers-{workers}"
            times[name] = _compare(folder / name, length, "--workers", str(workers))
        summary = json.loads((folder / f"workers-{WORKERS}/comparison/summary.json").read_text())
        if find_spec("distributed"):
            options.say(f"comparison, Dask cluster of {WORKERS} workers")
            with _cluster(folder) as address:
                times["dask"] = _compare(folder / "dask", length, "--cluster", address)
        else:
            result.notes.append("Dask: skipped, distributed is not installed (extra cluster)")
    result.rows = _rows(length, alone, times)
    result.profiles["the comparison, all processes together,"] = _split(summary["timing"])
    return result


def _rows(length: Length, alone: Seconds, times: dict[str, Seconds]) -> list[Row]:
    two, one = times[f"workers-{WORKERS}"], times["workers-1"]
    what = f"{PAIRS} pairs, {length.cycles} cycles, {length.samples} samples each"
    scaled = "" if length == FULL else " (scaled down: --full for the paper's lengths)"
    rows = [
        Row(
            "comparison, figures and report",
            two / alone,
            "× its training",
            limit=1.0,
            bar=1.2,
            note=f"{what}{scaled}: {two:.0f} s against {alone:.0f} s of training and generation "
            "at the rates measured in this run",
        ),
        Row(
            f"  {WORKERS} workers against 1, one thread each",
            one / two,
            "×",
            "more",
            limit=float(WORKERS),
            bar=1.7,
            note=f"{one:.0f} s with one worker",
        ),
    ]
    if "dask" in times:
        over = times["dask"] / two - 1
        note = f"{times['dask']:.0f} s; through the scheduler, without a shared disk"
        rows.append(Row("  Dask beside local processes", 100 * over, "%", bar=10.0, note=note))
    return rows


def _alone(length: Length) -> Seconds:
    """Training of all pairs on shared paths and generation, at the rates of this run."""
    machine = Settings().machine
    short = shortened(machine)
    batch = settings_for().updated(
        {"training": {"rule": "batch", "cycles": NEVER, "validation_every": NEVER}}
    )
    best = in_turns(
        {
            "pair": cycles(Trainee.new(settings_for()), Trainee.new(batch)),
            "generation": sampling(short, trained(Settings())),
        },
        4,
    )
    sample = best["generation"] * machine.steps
    return PAIRS * (length.cycles * best["pair"] + 2 * length.samples * sample)


def _compare(folder: Path, length: Length, *options: str) -> Seconds:
    """``thermoloom run comparison`` from start to report."""
    command = [sys.executable, "-c", "from thermoloom.cli import main; main()"]
    command += ["run", "comparison", "--preset", "paper", "--out", str(folder), *options]
    command += ["--set", f"training.cycles={length.cycles}"]
    command += ["--set", f"generation.samples={length.samples}"]

    def work() -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"run comparison {' '.join(options)}: {done.stderr[-2000:]}")

    return clocked(work)()


def _split(timing: dict[str, Seconds]) -> list[Share]:
    whole = sum(timing.values())
    return [Share(stage, spent, "s", spent / whole) for stage, spent in timing.items()]


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """Run a Dask scheduler and its workers on this machine; yields its address."""
    from distributed import Client

    connect: Any = Client  # Client is untyped
    file = folder / "scheduler.json"
    where = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    processes = [_dask(folder, "scheduler", *where)]
    try:
        deadline = time.monotonic() + PATIENCE
        while not (file.exists() and file.read_text().endswith("}")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no Dask scheduler after {PATIENCE:.0f} s")
            time.sleep(0.1)
        address = str(json.loads(file.read_text())["address"])
        processes += [_dask(folder, "worker", address, "--nthreads", "1") for _ in range(WORKERS)]
        with connect(address, set_as_default=False) as client:
            client.wait_for_workers(WORKERS, timeout=PATIENCE)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


def _dask(folder: Path, role: str, *options: str) -> subprocess.Popen[Any]:
    """Start ``dask scheduler`` or ``dask worker`` with its scratch files in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "dask", role, *options, "--no-dashboard"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
