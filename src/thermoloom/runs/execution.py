"""Execution of tasks: in this process, in local processes, or on a Dask cluster.

    run_tasks ──▶ here        one task, or one worker
              ├─▶ processes   local ones, with one thread each (POSIX; elsewhere: here)
              └─▶ cluster     Dask, with or without a shared disk

Tasks that are already done, wherever they ran, are not repeated.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from thermoloom.errors import UserError
from thermoloom.runs.cluster import run_on_cluster
from thermoloom.runs.manifest import MANIFEST, read_manifest
from thermoloom.runs.processes import run_in_processes
from thermoloom.runs.progress import Progress
from thermoloom.runs.store import lost_files
from thermoloom.runs.tasks import Outcome, Sweep, Task, execute, throttled
from thermoloom.threads import available_cores


class SweepInterruptedError(KeyboardInterrupt):
    """Ctrl-C has stopped all tasks; the message says how to continue."""


@dataclass(frozen=True)
class Resources:
    """Local processes, or a cluster instead of them."""

    workers: int | None = None
    """Number of local processes; by default one for each core. With one worker or one task, this
    process does the work itself."""
    cluster: str | None = None
    """Address of a Dask scheduler."""
    shared: bool = False
    """Whether the cluster's workers see the results folder."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers = {self.workers}: must be at least 1")
        if self.shared and self.cluster is None:
            raise UserError("--shared-disk: needs a cluster; name it with --cluster")
        if self.cluster is not None and not self.cluster.strip():
            raise UserError("--cluster: is empty; give the address that `dask scheduler` prints")

    @property
    def processes(self) -> int:
        return self.workers or available_cores()


LOCAL = Resources()


def run_tasks(
    tasks: Sequence[Task],
    folder: Path | str,
    resources: Resources = LOCAL,
    progress: Progress | None = None,
    after: Callable[[], None] = lambda: None,
) -> dict[str, Outcome]:
    """Run tasks and return their outcomes by name, in the order of ``tasks``.

    ``folder``: results folder, the ``workdir`` of every task. If there are several tasks, each has
    one thread, so that its results are bit-identical wherever it runs. ``after`` is called after
    every task that was not already done.
    """
    if len({task.name for task in tasks}) < len(tasks):
        raise ValueError("two tasks have the same name")
    folder = Path(folder).absolute()
    _make_folder(folder)
    sweep = Sweep(tasks, folder, progress or Progress(), 1 if len(tasks) > 1 else None, after)
    with sweep.progress.shown(len(tasks)):
        try:
            _run_here(sweep, [task for task in tasks if _is_done(folder, task)], at_once=True)
            remaining = longest_first(task for task in tasks if task.name not in sweep.outcomes)
            if remaining and resources.cluster is not None:
                run_on_cluster(sweep, remaining, resources.cluster, resources.shared)
            elif os.name == "posix" and min(resources.processes, len(tasks)) > 1:
                run_in_processes(sweep, remaining, min(resources.processes, len(remaining)))
            else:
                _run_here(sweep, remaining)
        except KeyboardInterrupt:
            raise SweepInterruptedError(
                f"interrupted; {sweep.progress.done_count} of {len(tasks)} tasks are done and all "
                "checkpoints are saved: run the same command again to continue"
            ) from None
    return {task.name: sweep.outcomes[task.name] for task in tasks}


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    """Tasks by decreasing cost: a long task at the end would leave all other workers idle."""
    return sorted(tasks, key=lambda task: -math.inf if task.cost is None else -task.cost)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be created ({error.strerror}); choose another") from None
    if not os.access(
        folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        raise UserError(f"{folder}: no permission to write there; choose another results folder")


def _is_done(folder: Path, task: Task) -> bool:
    """Whether all run directories of a task are complete, so that it only reads its result."""
    paths = [folder / output for output in task.outputs]
    return bool(paths) and all((p / MANIFEST).exists() and _run_is_over(p) for p in paths)


def _run_is_over(path: Path) -> bool:
    try:
        manifest = read_manifest(path)
    except UserError:
        return False  # the task will report the error
    return manifest.state in ("done", "diverged") and not lost_files(path, manifest)


def _run_here(sweep: Sweep, tasks: Iterable[Task], at_once: bool = False) -> None:
    for task in tasks:
        sweep.progress.started(task.name)
        report = throttled(functools.partial(sweep.progress.advanced, task.name))
        sweep.end(task, execute(task, sweep.folder, report, sweep.threads), at_once)
        if not at_once:
            sweep.after()
