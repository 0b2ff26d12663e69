"""Compile kernels once, on computers of a few units, so that the wait is seen as such.

Numba compiles one kernel at a time. So where nothing is compiled yet and there are two cores,
another process goes through the same list from its end: what either has compiled, the other finds
on the disk. Nothing waits for that process, so nothing is lost where it fails.
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

from thermoloom.engines.compiled.learner import compile_for
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.settings import Imperfections, Settings
from thermoloom.threads import thread_count, threads

DENSE = Machine(visible=2, hidden=2, duration=0.01)
SPARSE = Machine(visible=10, hidden=10, duration=0.01, topology="random", degree=1)
ERRORS = {
    "plain": {},
    "residual": {"residual_noise": 0.1},
    "update": {"update_noise": 0.1},
    "grid": {"bits": 8, "range_visible_hidden": 1.0, "range_hidden_hidden": 1.0},
}
"""Imperfections by the kernels that they need."""


def warm_up(
    models: Iterable[Settings] | None = None, learning: bool = True, generating: bool = True
) -> None:
    """Run all that these computers need, at the smallest size: seconds the first time, then
    milliseconds. None: what any computer needs. Without ``learning`` or ``generating``: the rest.
    """
    names = _names(models, learning, generating)
    with _another_from_the_end(names):
        for name in names:
            if name != "strips":  # they are part of "plain"
                _JOBS[name]()


def _names(
    models: Iterable[Settings] | None, learning: bool = True, generating: bool = True
) -> list[str]:
    """What is to be compiled: what takes longest first, what it needs in the end last."""
    if models is None:
        wanted = list(_JOBS)
    else:
        wanted = ["plain", "terms", "generation", "strips"]
        for model in models:
            wanted += _errors(model.imperfections)
            wanted += ["sparse", "sparse generation"] if model.machine.sparse else []
    chosen = {True: generating, False: learning}
    return [name for name in _JOBS if name in wanted and chosen["generation" in name]]


def _errors(chosen: Imperfections) -> list[str]:
    present = {
        "residual": chosen.residual_noise != 0 or chosen.residual_offset != 0,
        "update": chosen.update_noise > 0,
        "grid": chosen.bits < UNQUANTIZED,
    }
    return [name for name, there in present.items() if there]


def _learn(machine: Machine, errors: str) -> None:
    from thermoloom.engines import compiled

    path = compiled.path(machine, np.zeros(machine.units, np.float32), 0, 0)
    settings = Settings(machine=machine).updated({"imperfections": ERRORS[errors]})
    compiled.learner(settings).learn(Parameters.zeros(machine), path)


def _terms() -> None:
    from thermoloom.engines import compiled

    path = compiled.path(DENSE, np.zeros(DENSE.units, np.float32), 0, 0)
    theta = Parameters.zeros(DENSE)
    theta = theta.with_vector(theta.vector + 1)  # of nothing there is no product
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
    "strips": partial(compile_for, DENSE),
}


@contextlib.contextmanager
def _another_from_the_end(names: list[str]) -> Iterator[None]:
    """Another process that compiles beside this one, as long as this one does."""
    if len(names) < 2 or thread_count() < 2 or not _first_time() or getattr(sys, "frozen", False):
        yield
        return
    script = f"from thermoloom.engines.compiled.warmup import backwards; backwards({names!r})"
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": search_path, "NUMBA_CACHE_DIR": config.CACHE_DIR},
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def backwards(names: list[str]) -> None:
    """Life of the other process: all but the first, which the one that started it is at."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with threads(1):
        for name in reversed(names[1:]):
            with contextlib.suppress(Exception):  # it will show where it matters
                _JOBS[name]()


def _first_time() -> bool:
    """Whether there is a folder for kernels, or can be one, and none is in it."""
    folder = Folder(config.CACHE_DIR)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK) and not any(folder.rglob("*.nbi"))
