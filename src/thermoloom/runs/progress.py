"""Progress of a sweep: silent, as lines for a log, or as a display on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import rich.console
import rich.progress

TOO_EARLY = 0.02
"""Fraction of the tasks that must be done before the remaining time is estimated: the longest tasks
come first, and kernels may have to be compiled."""


class Progress:
    """Counts the tasks of a sweep; silent by itself, shown by its subclasses."""

    total = 0
    done_count = 0
    failed_count = 0
    running: dict[str, tuple[int, int, float | None]]
    """By running task: cycles done, cycles in total, latest loss."""

    @contextlib.contextmanager
    def shown(self, total: int) -> Iterator[None]:
        """Context from the first task to the last."""
        self.total, self.done_count, self.failed_count = total, 0, 0
        self.running = {}
        self._at_once = 0
        self._began = time.monotonic()
        yield

    def started(self, name: str) -> None:
        self.running.setdefault(name, (0, 0, None))

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        self.running[name] = (done, total, loss)

    def finished(self, name: str, at_once: bool = False) -> None:
        """``at_once``: the task was already done, so it does not count in the rate."""
        self.running.pop(name, None)
        self.done_count += 1
        self._at_once += at_once

    def failed(self, name: str, reason: str) -> None:
        self.running.pop(name, None)
        self.failed_count += 1

    def note(self, text: str) -> None:
        """Show a line, such as the death of a worker."""

    @property
    def work_done(self) -> float:
        """Number of tasks done, with the fractions of running ones."""
        fractions = (done / total for done, total, _ in self.running.values() if total)
        return self.done_count + self.failed_count + sum(fractions)

    @property
    def tasks_per_second(self) -> float:
        elapsed = time.monotonic() - self._began
        return (self.work_done - self._at_once) / elapsed if elapsed > 0 else 0.0

    @property
    def summary(self) -> str:
        """``3 of 10 tasks done, 2 running, 1 failed, about 4:30 left``."""
        over = self.done_count + self.failed_count == self.total
        rate = self.tasks_per_second
        parts = [f"{self.done_count} of {self.total} tasks done"]
        if not over:
            parts.append(f"{len(self.running)} running")
        if self.failed_count:
            parts.append(f"{self.failed_count} failed")
        if over:
            parts.append(f"in {clock_time(time.monotonic() - self._began)}")
        elif rate > 0 and self.work_done - self._at_once > TOO_EARLY * self.total:
            parts.append(f"about {clock_time((self.total - self.work_done) / rate)} left")
        return ", ".join(parts)


def clock_time(seconds: float) -> str:
    """``4:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _state(done: int, total: int, loss: float | None) -> str:
    return f"{done} of {total}" + ("" if loss is None else f", loss {loss:.6g}")


class PlainProgress(Progress):
    """Lines for a log: every start and end, and the total at an interval."""

    def __init__(self, stream: TextIO | None = None, interval: float = 10.0) -> None:
        self._stream = stream or sys.stderr
        self._interval = interval
        self._last = float("-inf")

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=self._stream, flush=True)

    def started(self, name: str) -> None:
        if name not in self.running:
            self._say(f"{name}: started")
        super().started(name)

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        if time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            for task, state in self.running.items():
                if state[1]:
                    self._say(f"{task}: {_state(*state)}")
            self._say(self.summary)

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        self._say(f"{name}: {'already done' if at_once else 'done'} ({self.summary})")

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self._say(f"{name}: failed: {reason}")

    def note(self, text: str) -> None:
        self._say(text)


class RichProgress(Progress):
    """One display for the whole sweep: a bar for all tasks and one for each that runs."""

    def __init__(self, console: rich.console.Console | None = None) -> None:
        self._display = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[detail]}"),
            console=console or rich.console.Console(stderr=True),
        )
        self._rows: dict[str, rich.progress.TaskID] = {}

    @contextlib.contextmanager
    def shown(self, total: int) -> Iterator[None]:
        with super().shown(total), self._display:
            self._total_row = self._display.add_task("total", total=total, detail="")
            self._refresh()
            yield

    def _refresh(self) -> None:
        self._display.update(self._total_row, completed=self.work_done, detail=self.summary)

    def started(self, name: str) -> None:
        super().started(name)
        if name not in self._rows:
            self._rows[name] = self._display.add_task(name, total=None, detail="")
        self._refresh()

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        row = self._rows[name]
        self._display.update(
            row, completed=done, total=total or None, detail=_state(done, total, loss)
        )
        self._refresh()

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        self._remove(name)

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self._remove(name)
        self.note(f"{name}: failed: {reason}")

    def _remove(self, name: str) -> None:
        if name in self._rows:
            self._display.remove_task(self._rows.pop(name))
        self._refresh()

    def note(self, text: str) -> None:
        self._display.console.print(text, markup=False, highlight=False)


def progress_for(stream: TextIO | None = None) -> Progress:
    """A display on a terminal, lines anywhere else."""
    stream = stream or sys.stderr
    if stream.isatty():
        return RichProgress(rich.console.Console(file=stream))
    return PlainProgress(stream)
