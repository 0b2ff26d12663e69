"""Compile kernels in advance, by the smallest training and generation that need them.

Numba compiles one kernel at a time. If the cache is empty and there are two cores, a second process
runs the same list from its end, and each process loads the other's kernels from disk. Nothing waits
for the second process, so its failure does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path as Folder

import numpy as np
from numba import config

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.threads import thread_count, threads

DENSE = Machine(visible=2, hidden=2, duration=0.01)
SPARSE = Machine(visible=10, hidden=10, duration=0.01, topology="random", degree=1)

Job = tuple[str, Settings]
"""Training or generation, and its computer."""


def warm_up(
    models: Iterable[Settings] | None = None, learning: bool = True, generating: bool = True
) -> None:
    """Run every kernel that these computers need, at the smallest size.

    Takes seconds the first time, then milliseconds. None: the kernels of the default computer.
    Without ``learning`` or ``generating``: only the other kernels.
    """
    jobs = jobs_for(models, learning, generating)
    with _second_process(jobs):
        for job in jobs:
            _run(*job)


def jobs_for(
    models: Iterable[Settings] | None, learning: bool = True, generating: bool = True
) -> list[Job]:
    """The smallest computations with all kernels: the longest first, for the second process."""
    smallest = list(dict.fromkeys(map(_smallest, models or [])) or [_smallest(Settings())])
    kinds = ["training"] * learning + ["generation"] * generating
    return [(kind, model) for kind in kinds for model in smallest]


def _smallest(model: Settings) -> Settings:
    """A computer of a few units with the imperfections and the device of this one."""
    return Settings(
        machine=SPARSE if model.machine.sparse else DENSE,
        imperfections=replace(model.imperfections, errors=""),
        device=model.device,
    )


def _run(kind: str, model: Settings) -> None:
    """One trajectory of training, or one sample."""
    from thermoloom.engines import compiled

    machine, theta = model.built, Parameters.zeros(model.built)
    if kind == "generation":
        compiled.generate(theta, samples=1, seed=0)
        return
    path = compiled.path(machine, np.zeros(machine.units, np.float32), 0, 0)
    learner, theta = compiled.learner(model), Parameters.zeros(model.machine)
    learner.update(theta, learner.init(theta), path)


@contextlib.contextmanager
def _second_process(jobs: list[Job]) -> Iterator[None]:
    """A second process that compiles from the end of the list while this one compiles."""
    if len(jobs) < 2 or thread_count() < 2 or not _first_time() or getattr(sys, "frozen", False):
        yield
        return
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    caches = str(Folder(config.CACHE_DIR).parent)  # in it, the other process finds the same folder
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import work_backwards as w; w()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": search_path, "NUMBA_CACHE_DIR": caches},
        )
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            described = [(kind, model.as_dict()) for kind, model in jobs]
            process.stdin.write(json.dumps(described).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        yield
    finally:
        process.kill()
        process.communicate()


def work_backwards() -> None:
    """Main function of the second process: all jobs but the first, from the end."""
    jobs = json.loads(sys.stdin.buffer.readline())

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with threads(1):
        for kind, described in reversed(jobs[1:]):
            with contextlib.suppress(Exception):  # the first process raises it
                _run(kind, Settings.from_dict(described))


def _first_time() -> bool:
    """Whether the cache folder is writable and holds no kernel."""
    folder = Folder(config.CACHE_DIR)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK) and not any(folder.rglob("*.nbi"))
