"""Progress of a call in Python: a bar after two seconds, in a terminal or in a notebook.

No bar is shown if standard error is neither, in threads other than the main one, within a command
(which shows its own bar), or after ``tl.progress(False)``.
"""

from __future__ import annotations

import html
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from thermoloom.errors import is_command_line
from thermoloom.presentation.terminal import Advance, console, terminal_bar
from thermoloom.runs.progress import clock_time
from thermoloom.threads import COMPILING

WAIT_SECONDS = 2.0
"""Calls that are shorter show nothing."""
_NOTEBOOK_SECONDS = 0.2
_switch = {"on": True, "busy": False}


def progress(on: bool = True) -> None:
    """Switch the progress bars of long calls on or off.

    >>> import thermoloom as tl
    >>> tl.progress(False)
    >>> tl.progress(True)
    """
    _switch["on"] = bool(on)


@contextmanager
def call_progress(title: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with the work done so far, of ``total``; "%" shows a percentage.

    After ``WAIT_SECONDS`` a bar appears even if the call has not reported, as when it compiles.
    """
    bar = None if _switch["busy"] or is_command_line() or not _switch["on"] else _bar_here()
    if bar is None:
        yield lambda done: None
        return
    began = time.monotonic()
    advance: Advance | None = None
    latest: float = 0
    ended = False
    turn = threading.Lock()  # engines report from several threads
    _switch["busy"] = True

    def report(done: float | None = None) -> None:
        nonlocal advance, latest
        with turn:
            late = time.monotonic() - began >= WAIT_SECONDS
            latest = latest if done is None else done
            if advance is None and late and latest < total and not ended:
                advance = stack.enter_context(bar(title, total, unit, latest))
            if advance is not None:
                advance(latest, "compiling kernels" if COMPILING.is_set() else "")

    timer = threading.Timer(WAIT_SECONDS, report)
    timer.daemon = True
    with ExitStack() as stack:
        timer.start()
        try:
            yield report
        finally:
            timer.cancel()
            with turn:
                ended, _switch["busy"] = True, False


@contextmanager
def solver_progress(tolerance: float = 1e-6) -> Iterator[Callable[[int, float], None]]:
    """Progress of a solver, whose relative gradient falls to the tolerance."""
    with call_progress("solving", 1, "%") as report:

        def after_iteration(iteration: int, gradient: float) -> None:
            part = math.log(max(gradient, tolerance)) / math.log(tolerance)
            report(max(part, 0.0))

        yield after_iteration


def _bar_here() -> Any:
    if threading.current_thread() is not threading.main_thread():
        return None
    if _in_notebook():
        return _notebook_bar
    screen = console()
    if not screen.is_terminal:
        return None
    return partial(terminal_bar, screen)


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def _notebook_bar(title: str, total: float, unit: str, first: float) -> Iterator[Advance]:
    notebook = import_module("IPython.display")
    HTML = notebook.HTML
    began = time.monotonic()
    handle: Any = notebook.display(HTML(""), display_id=True)
    last, noted = 0.0, ""

    def advance(done: float, note: str) -> None:
        nonlocal began, first, last, noted
        now = time.monotonic()
        if noted:  # the time of compilation does not predict the time left
            began, first = now, done
        noted = note
        if now - last < _NOTEBOOK_SECONDS and done < total:
            return
        last = now
        text = f"{100 * done / total:.0f} %" if unit == "%" else f"{done:,} of {total:,} {unit}"
        if done > first:
            text += f", about {clock_time((now - began) / (done - first) * (total - done))} left"
        text += f", {note}" if note else ""
        bar = f'<progress max="{total}" value="{done}"></progress>'
        handle.update(HTML(f"{bar} {html.escape(f'{title}: {text}')}"))

    try:
        yield advance
    finally:
        handle.update(HTML(""))
