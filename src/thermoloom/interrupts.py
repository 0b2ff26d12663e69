"""Interrupts (Ctrl-C, SIGTERM): honoured between the steps of a computation, never within one.

    with interrupts_deferred() as honour:   what arrives in the block waits for its end,
        honour()                            or for a moment within that suits

An exception out of nowhere, in the middle of a step, could be swallowed by a callback, leave a lock
held, or one thread waiting for another. Python delivers signals to the main thread alone; elsewhere
there is nothing to defer. Whatever handles a signal (Python's own handler, a notebook's, a test's)
still does, only later; a signal that is ignored or ends the process at once goes on doing so.

The command line treats SIGTERM as it does Ctrl-C. It imports and compiles before it touches a file:
until then an interrupt ends the process on the spot.
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
"""The signal that ends this command: remembered, should the exception get lost in a callback."""


class Interrupted(BaseException):
    """An interrupt on its way out of the command line, which would swallow a KeyboardInterrupt."""


class _Late:
    """A handler that keeps signals until they are wanted, then gives them to those before it."""

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
        came, self._came = self._came, []
        for signum in dict.fromkeys(came):  # impatience is no second interrupt
            self.before[signum](signum, sys._getframe())
        if _ended_by is not None:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Interrupts wait for the end of the block, or until the function that it yields is called."""
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
        late.waiting = False  # first: should one arrive right now, it is passed on
        for replaced, handler in late.before.items():
            signal.signal(replaced, handler)
        late.deliver()


# --- the command line's own handlers --------------------------------------------------------------


def end_at_once(signum: int, frame: FrameType | None) -> None:
    """End the process where it stands: safe, as every file is written atomically."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # a progress display may have hidden the cursor
    os._exit(128 + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Wind up in good order; end at once if that is not fast enough for the user."""
    global _ended_by
    if _ended_by is not None:
        end_at_once(signum, frame)
    _ended_by = signum
    raise KeyboardInterrupt


def interrupts_end_at_once() -> None:
    """From the first line of a command on: there is nothing to lose yet."""
    _handle(end_at_once)


def interrupts_wind_up() -> None:
    """Once a command computes and writes, if it came by way of ``interrupts_end_at_once``."""
    if end_at_once in [signal.getsignal(signum) for signum in SIGNALS]:
        _handle(_interrupt)


def interrupts_ignored() -> None:
    """When a command is over: whatever arrives now comes too late."""
    _handle(signal.SIG_IGN)


def _handle(handler: Any) -> None:
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(signum, handler)


def exit_code() -> int:
    """128 + the signal that ended the command, as shells count."""
    return 128 + (signal.SIGINT if _ended_by is None else _ended_by)
