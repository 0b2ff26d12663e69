"""Compile kernels in advance, on computers of a few units.

Numba compiles one kernel at a time. If the cache is empty and there are two cores, a second process
compiles the same list from its end, and each process loads the other's kernels from disk.
Nothing waits for the second process, so its failure does no harm.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path as Folder

import numpy as np
from numba import config

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Imperfections, Settings
from thermoloom.threads import thread_count, threads

DENSE = Machine(visible=2, hidden=2, duration=0.01)
SPARSE = Machine(visible=10, hidden=10, duration=0.01, topology="random", degree=1)
ERRORS = {
    "plain": {},
    "residual": {"residual_noise": 0.1, "residual_offset": 0.1},
    "update": {"update_noise": 0.1},
    "grid": {"bits": 8, "range_visible_hidden": 1.0, "range_hidden_hidden": 1.0},
}
"""Imperfections that need additional kernels; settings other than the default select them."""


def warm_up(
    models: Iterable[Settings] | None = None, learning: bool = True, generating: bool = True
) -> None:
    """Run every kernel that these computers need, at the smallest size.

    Takes seconds the first time, then milliseconds. None: the kernels of all computers. Without
    ``learning`` or ``generating``: only the other kernels.
    """
    names = _names(models, learning, generating)
    with _second_process(names):
        for name in names:
            _JOBS[name]()


def _names(
    models: Iterable[Settings] | None, learning: bool = True, generating: bool = True
) -> list[str]:
    """Names of the jobs: the longest first, for the second process."""
    if models is None:
        names = list(_JOBS)
    else:
        names = ["plain", "terms", "generation"]
        for model in models:
            names += _errors(model.imperfections)
            names += ["sparse", "sparse generation"] if model.machine.sparse else []
    return [
        name
        for name in _JOBS
        if name in names and (generating if "generation" in name else learning)
    ]


def _errors(imperfections: Imperfections) -> list[str]:
    """The entries of ``ERRORS`` that these imperfections switch on."""
    ideal = Imperfections()
    return [
        name
        for name, entry in ERRORS.items()
        if any(getattr(imperfections, key) != getattr(ideal, key) for key in entry)
    ]


def _learn(machine: Machine, errors: str) -> None:
    from thermoloom.engines import compiled

    path = compiled.path(machine, np.zeros(machine.units, np.float32), 0, 0)
    settings = Settings(machine=machine).updated({"imperfections": ERRORS[errors]})
    learner, theta = compiled.learner(settings), Parameters.zeros(machine)
    learner.update(theta, learner.init(theta), path)


def _terms() -> None:
    from thermoloom.engines import compiled

    path = compiled.path(DENSE, np.zeros(DENSE.units, np.float32), 0, 0)
    theta = Parameters.zeros(DENSE)
    theta = theta.with_vector(theta.vector + 1)  # θ = 0 would skip the products
    compiled.terms(theta, path)
    compiled.watch(path)(theta)


def _generate(machine: Machine) -> None:
    from thermoloom.engines import compiled

    compiled.generate(Parameters.zeros(machine), samples=1, seed=0)


_JOBS: dict[str, Callable[[], None]] = {
    **{errors: partial(_learn, DENSE, errors) for errors in ERRORS},
    "sparse": partial(_learn, SPARSE, "plain"),
    "sparse generation": partial(_generate, SPARSE),
    "generation": partial(_generate, DENSE),
    "terms": _terms,
}


@contextlib.contextmanager
def _second_process(names: list[str]) -> Iterator[None]:
    """A second process that compiles from the end of the list while this one compiles."""
    if len(names) < 2 or thread_count() < 2 or not _first_time() or getattr(sys, "frozen", False):
        yield
        return
    script = f"from {__name__} import compile_backwards; compile_backwards({names!r})"
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    caches = str(Folder(config.CACHE_DIR).parent)  # in it, the other process finds the same folder
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": search_path, "NUMBA_CACHE_DIR": caches},
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def compile_backwards(names: list[str]) -> None:
    """Main function of the second process: all jobs but the first, from the end."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with threads(1):
        for name in reversed(names[1:]):
            with contextlib.suppress(Exception):  # the first process raises it
                _JOBS[name]()


def _first_time() -> bool:
    """Whether the cache folder is writable and holds no kernel."""
    folder = Folder(config.CACHE_DIR)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK) and not any(folder.rglob("*.nbi"))
