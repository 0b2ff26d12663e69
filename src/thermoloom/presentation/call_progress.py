"""Progress of a call in Python: a bar after two seconds, in a terminal or in a notebook.

There is none where standard error is neither, in other threads than the main one, under a command
(which shows its own), and after ``tl.progress(False)``.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from thermoloom.errors import is_command_line
from thermoloom.presentation.terminal import Advance, console, terminal_bar

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
def call_progress(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yields a function that is called with the units of work done so far."""
    bar = None if _switch["busy"] or is_command_line() or not _switch["on"] else _bar_here()
    if bar is None:
        yield lambda done: None
        return
    began = time.monotonic()
    advance: Advance | None = None
    _switch["busy"] = True
    with ExitStack() as stack:
        stack.callback(_switch.update, busy=False)

        def report(done: int) -> None:
            nonlocal advance
            if advance is None and time.monotonic() - began >= WAIT_SECONDS and done < total:
                advance = stack.enter_context(bar(title, total, unit))
            if advance is not None:
                advance(done, "")

        yield report


def _bar_here() -> Any:
    if threading.current_thread() is not threading.main_thread():
        return None
    if _in_notebook():
        return _notebook_bar
    screen = console()
    if not screen.is_terminal:
        return None
    return lambda title, total, unit: terminal_bar(screen, title, total, unit, 0)


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def _notebook_bar(title: str, total: int, unit: str) -> Iterator[Advance]:
    notebook = import_module("IPython.display")
    HTML = notebook.HTML
    began = time.monotonic()
    handle: Any = notebook.display(HTML(""), display_id=True)
    last = 0.0

    def advance(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _NOTEBOOK_SECONDS and done < total:
            return
        last = now
        left = (now - began) / max(done, 1) * (total - done)
        text = html.escape(f"{title}: {done:,} of {total:,} {unit}, about {left:.0f} s left")
        handle.update(HTML(f'<progress max="{total}" value="{done}"></progress> {text}'))

    try:
        yield advance
    finally:
        handle.update(HTML(""))
