"""Interrupts (Ctrl-C, SIGTERM): they take effect between the steps of a computation, never within.

    with interrupts_deferred() as honour:   signals wait until the end of the block,
        honour()                            or until this call

An exception in the middle of a step could be swallowed by a callback, leave a lock held, or make
one thread wait for another. Python delivers signals only to the main thread, so other threads need
no deferral. The previous handler (of Python, a notebook or a test) still runs, only later. A signal
that is ignored or ends the process at once keeps doing so.

The command line treats SIGTERM like Ctrl-C. It imports and compiles before it touches a file: until
then an interrupt ends the process at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_ended_by: int | None = None
"""The signal that ends this command, in case a callback swallows the exception."""


class Interrupted(BaseException):
    """An interrupt on its way out of the command line, which would swallow a KeyboardInterrupt."""


class _Late:
    """A handler that holds signals back, then passes them to the previous handlers."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.waiting = True
        self._came: list[int] = []

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.waiting:
            self._came.append(signum)
        else:
            self.before[signum](signum, frame)

    def deliver(self) -> None:
        signals, self._came = self._came, []
        for signum in dict.fromkeys(signals):  # a repeated signal counts once
            self.before[signum](signum, sys._getframe())
        if _ended_by is not None:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Defer interrupts until the end of the block, or until the yielded function is called."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    late = _Late()
    try:
        for signum in SIGNALS:
            handler = signal.getsignal(signum)
            if callable(handler) and handler is not end_at_once:
                late.before[signum] = handler
                signal.signal(signum, late)
        yield late.deliver
    finally:
        late.waiting = False  # first, so that a signal that arrives now is passed on
        for replaced, handler in late.before.items():
            signal.signal(replaced, handler)
        late.deliver()


# --- the command line's own handlers --------------------------------------------------------------


def end_at_once(signum: int, frame: FrameType | None) -> None:
    """End the process at once. This is safe because every file is written atomically."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # a progress display may have hidden the cursor
    os._exit(128 + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """End the command in good order; a second interrupt ends it at once."""
    global _ended_by
    if _ended_by is not None:
        end_at_once(signum, frame)
    _ended_by = signum
    raise KeyboardInterrupt


def interrupts_end_at_once() -> None:
    """Let interrupts end the process at once, while a command has written nothing."""
    _handle(end_at_once)


def interrupts_wind_up() -> None:
    """Let interrupts end the command in good order, after ``interrupts_end_at_once``."""
    if end_at_once in [signal.getsignal(signum) for signum in SIGNALS]:
        _handle(_interrupt)
        sys.unraisablehook = _report_unraisable


def _report_unraisable(unraisable: Any) -> None:
    """Report what a destructor or callback raised, but not the interrupt that it swallowed."""
    if _ended_by is None or not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def interrupts_ignored() -> None:
    """Ignore interrupts once a command is over."""
    _handle(signal.SIG_IGN)


def _handle(handler: Any) -> None:
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(signum, handler)


def exit_code() -> int:
    """128 + the signal that ended the command, as shells count."""
    return 128 + (signal.SIGINT if _ended_by is None else _ended_by)
