"""Progress of one long computation: a bar on a terminal, plain lines elsewhere.

It is always written to standard error, so that standard output contains only results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from thermoloom.runs.progress import clock_time

Advance = Callable[[float, str], None]
"""``advance(done, note)``: total units of work done, and a note to show beside them."""

LINE_SECONDS = 5.0
"""Time between two plain lines."""


def console() -> Console:
    return Console(stderr=True)


@contextmanager
def progress(title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
    """A bar (or lines) from ``done`` to ``total``; yields the function that moves it."""
    screen = console()
    lines = terminal_bar if screen.is_terminal else _lines
    with lines(screen, title, total, unit, done) as advance:
        yield advance


@contextmanager
def terminal_bar(
    screen: Console, title: str, total: float, unit: str, done: float
) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn(
            "{task.percentage:.0f} %"
            if unit == "%"
            else "{task.completed:.0f} of {task.total:.0f} " + unit
        ),
        TextColumn("[cyan]{task.fields[note]}"),
        TimeRemainingColumn(),
        TextColumn("[dim]left, after"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, refresh_per_second=5) as bar:
        task = bar.add_task(title, total=total, note="")
        bar.update(task, completed=done)
        yield lambda now, note: bar.update(task, completed=now, note=note)


@contextmanager
def _lines(screen: Console, title: str, total: int, unit: str, done: int) -> Iterator[Advance]:
    began = last = time.monotonic()

    def advance(now: float, note: str) -> None:
        nonlocal last
        moment = time.monotonic()
        if moment - last < LINE_SECONDS and now < total:
            return
        last = moment
        remaining = (moment - began) / max(now - done, 1) * (total - now)
        print(f"{title}: {now} of {total} {unit}, {note}, about {clock_time(remaining)} left",
              file=sys.stderr)  # fmt: skip

    yield advance


@contextmanager
def compiling() -> Iterator[None]:
    """Show a notice while kernels compile."""
    screen = console()
    began = time.monotonic()
    with screen.status("preparing kernels (compiled once, then cached)"):
        yield
    seconds = time.monotonic() - began
    if seconds > 2:
        screen.print(f"[dim]compiled kernels in {seconds:.0f} s; they are cached for next time")
