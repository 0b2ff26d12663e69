"""Tasks of ``test_execution``: every process that runs them imports this file and little else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import Task
from thermoloom.threads import thread_count

RUNS = ("a", "bb", "ccc", "dddd")


def learn(
    workdir: Path,
    report: Callable[[int, int, float | None], None],
    run: str,
    log: str,
    cycles: int = 12,
    die_at: int | None = None,
    pause: float = 0.0,
) -> dict[str, Any]:
    """A small training: matrix products in float32, a checkpoint every third cycle.

    Every cycle that is computed leaves a line in ``log``; at ``die_at`` the process kills itself,
    once.
    """
    settings = {"run": run, "cycles": cycles}
    known = finished_results(workdir / run, "learning", settings)
    if known is not None:
        return known
    with RunDirectory.create(workdir / run, "learning", settings, wait=10) as store:
        start = store.latest_checkpoint()
        theta = start.arrays["theta"] if start else np.eye(60, dtype=np.float32)
        rotation = np.random.default_rng(len(run)).normal(0, 0.13, (60, 60)).astype(np.float32)
        for cycle in range(start.cycle if start else 0, cycles):
            tombstone = Path(f"{log}.died-{run}")
            if cycle == die_at and not tombstone.exists():
                tombstone.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            theta = np.tanh(theta @ rotation)
            with open(log, "a") as file:
                file.write(f"{run} {cycle} {os.getpid()}\n")
            if (cycle + 1) % 3 == 0:
                store.save_checkpoint(cycle + 1, {"theta": theta})
            report(cycle + 1, cycles, float(theta.sum()))
            time.sleep(pause)
        store.save_arrays("theta", {"theta": theta})
        store.save_table("rows", {"sum": theta.sum(1), "row": np.arange(60)})
        store.finish({"sum": theta.sum(dtype=np.float64)})
        return store.results


def suicide(workdir: Path, report: Any) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def refuse(workdir: Path, report: Any) -> dict[str, Any]:
    raise UserError("machine.kT = -1: must be positive")


def break_down(workdir: Path, report: Any, divisor: int) -> dict[str, Any]:
    return {"result": 1 / divisor}


def count_threads(workdir: Path, report: Any) -> dict[str, Any]:
    """Count threads and print as libraries do; the output must not be taken for a message."""
    from threadpoolctl import threadpool_info

    print("a library that prints")
    os.write(1, b'{"outcome": "forged"}\n')
    return {
        "threads": [x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"],
        "pid": os.getpid(),
    }


def wait_for_threads(workdir: Path, report: Any, wanted: int) -> dict[str, Any]:
    """Wait until this number of threads is allowed, for at most half a minute."""
    deadline = time.monotonic() + 30
    while thread_count() < wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"threads": thread_count()}


def look(workdir: Path, report: Any, source: str) -> dict[str, Any]:
    """Reads another run's arrays."""
    theta = RunDirectory.open(workdir / source).load_arrays("theta")["theta"]
    return {"first": float(theta[0, 0]), "workdir": str(workdir)}


def paces(workdir: Path, report: Any) -> dict[str, Any]:
    """Intervals in milliseconds at which Dask checks the worker that runs this."""
    import distributed

    return looks(distributed.get_worker())


def looks(dask_worker: Any) -> dict[str, float]:
    callbacks = dask_worker.periodic_callbacks
    return {name: callbacks[name].callback_time for name in ("profile", "tick")}


def linear_algebra_threads(workdir: Path, report: Any, seconds: float) -> dict[str, Any]:
    """Numbers of threads of the linear algebra libraries seen in so many seconds."""
    from threadpoolctl import threadpool_info

    begun, seen = time.monotonic(), set()
    while time.monotonic() - begun < seconds:
        seen |= {x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"}
        seen.add(thread_count())
        time.sleep(0.01)
    return {"pid": os.getpid(), "seen": sorted(seen), "begun": begun, "ended": time.monotonic()}


def name_of(function: Callable[..., Any]) -> str:
    return f"execution_tasks:{function.__name__}"


def learning(log: Path, *runs: str, **arguments: Any) -> list[Task]:
    return [
        Task(run, name_of(learn), {"run": run, "log": str(log)} | arguments, outputs=(run,))
        for run in runs
    ]
