"""A task: the name of a function and its JSON arguments, which any process on any machine can run.

    function(workdir, report, **arguments) -> dict of JSON values

The function writes its run directories under ``workdir`` and repeats nothing: it returns a finished
run at once (``store.finished_results``) and continues an interrupted one. After a kill, the same
command therefore continues where it stopped.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.runs.formats import jsonable
from thermoloom.runs.progress import Progress
from thermoloom.threads import threads

STUDY_PACKAGE = "thermoloom_study_"
"""Beginning of the package names of studies outside the package."""

REPORT_INTERVAL = 0.2
"""Seconds between two progress reports of one task."""

Report = Callable[[int, int, "float | None"], None]
"""``report(done, total, loss)``: cycles done of all, and the latest validation loss."""


@dataclass(frozen=True)
class Task:
    """A function by name and its JSON arguments."""

    name: str
    """Shown in the progress display; unique within a sweep."""
    function: str
    """``package.module:function``."""
    arguments: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    """Run directories that it writes, relative to the results folder."""
    inputs: tuple[str, ...] = ()
    """Run directories that it reads, relative to the results folder."""
    cost: float | None = None
    """Estimated duration, in the same unit for all tasks; tasks of unknown duration (None) begin
    first."""

    def __post_init__(self) -> None:
        plain = json.loads(json.dumps(self.arguments, allow_nan=False))
        object.__setattr__(self, "arguments", plain)  # tuples are lists, here as elsewhere
        for path in (*self.outputs, *self.inputs):
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{path}: must be relative to the results folder")


@dataclass(frozen=True)
class Outcome:
    """How a task ended: ``done`` with its result, or ``failed`` with a reason."""

    state: str
    result: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    """Traceback of an unexpected error; empty for user errors."""


def failures(outcomes: Mapping[str, Outcome]) -> list[str]:
    """``name: reason`` of every failed task."""
    return [f"{name}: {o.reason}" for name, o in outcomes.items() if o.state == "failed"]


@dataclass
class Sweep:
    """Tasks that run together, and their outcomes so far."""

    tasks: Sequence[Task]
    folder: Path
    """Results folder, the ``workdir`` of every task."""
    progress: Progress
    threads: int | None
    """Threads of each task; None leaves the limit unchanged."""
    after: Callable[[], None] = lambda: None
    """Called in this process after a task has ended and its worker has the next one."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By the task's name."""

    def end(self, task: Task, outcome: Outcome, at_once: bool = False) -> None:
        """Record and show the outcome of a task; ``at_once``: the task was already done."""
        self.outcomes[task.name] = outcome
        if outcome.state == "done":
            self.progress.finished(task.name, at_once)
        else:
            self.progress.failed(task.name, outcome.reason)


def execute(task: Task, workdir: Path, report: Report, thread_count: int | None) -> Outcome:
    """Call the task's function; an error becomes the outcome and is not raised."""
    try:
        function = resolve(task.function)  # first, so that the libraries it loads are limited too
        with threads(thread_count) if thread_count else contextlib.nullcontext():
            result = function(workdir, report, **task.arguments)
        return Outcome("done", json.loads(json.dumps(jsonable(result))))
    except UserError as error:
        return Outcome("failed", reason=one_line(str(error)))
    except Exception as error:
        reason = one_line(f"{_place(error)}{type(error).__name__}: {error}")
        return Outcome("failed", reason=reason, traceback=traceback.format_exc())


def _place(error: Exception) -> str:
    """File and line of an error in a study outside the package, or empty."""
    places = [
        f"{Path(frame.f_code.co_filename).name}: line {line}: "
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(STUDY_PACKAGE)
    ]
    return places[-1] if places else ""


def resolve(function: str) -> Callable[..., Mapping[str, Any]]:
    """The function behind ``package.module:function``."""
    module, _, name = function.partition(":")
    resolved: Callable[..., Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    return resolved


def one_line(text: str) -> str:
    """The text with all white space replaced by single blanks."""
    return " ".join(text.split())


def throttled(send: Report, interval: float = REPORT_INTERVAL) -> Report:
    """``send``, called at most every ``interval`` seconds and always at the end."""
    last = float("-inf")

    def report(done: int, total: int, loss: float | None = None) -> None:
        nonlocal last
        if time.monotonic() - last >= interval or done >= total:
            last = time.monotonic()
            send(done, total, None if loss is None else float(loss))

    return report
