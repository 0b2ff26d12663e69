"""Errors and warnings for users, with advice in the language of the caller (Python or shell)."""

from __future__ import annotations

import json
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal

_COMMAND_LINE = ContextVar("command_line", default=False)


class UserError(ValueError):
    """An error that the user can correct: one line that names the problem and the way out.

    The command line prints it without a traceback and exits with code 2. Line breaks and control
    characters, as in file names, are replaced, so that any terminal can show the message.

    >>> import thermoloom as tl
    >>> tl.Machine(kT=-1)
    Traceback (most recent call last):
    thermoloom.errors.UserError: machine.kT = -1.0: must be positive
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))

    def _render_traceback_(self) -> list[str]:
        """Lines that notebooks show: the error, and the last line of the user's code before it."""
        package = str(Path(__file__).parent)
        calls = traceback.extract_tb(self.__traceback__)
        lines = [call for call in calls if not call.filename.startswith(package)]
        place = [f"  line {lines[-1].lineno}: {lines[-1].line}"] if lines else []
        return [f"{type(self).__name__}: {self}", *place]


class MissingExtensionError(UserError):
    """A setting names a user's own object that this process cannot make."""


class DivergedSamples(UserError):
    """A generation whose states are no longer finite; studies record it as diverged."""


class DataWarning(UserWarning):
    """A result that is probably not what the user wants: one line, like an error.

    >>> import warnings, thermoloom as tl
    >>> warnings.simplefilter("error", tl.DataWarning)  # to stop instead
    """


class SpeedWarning(UserWarning):
    """A computation that is slower than usual, and why."""


def warn(message: str, category: type[Warning] = DataWarning) -> None:
    """Issue a warning that points at the line of user code that called the package."""
    frame, level, outermost = sys._getframe(1), 1, 1
    while frame.f_back is not None:
        frame, level = frame.f_back, level + 1
        if frame.f_globals.get("__name__", "").startswith("thermoloom."):
            outermost = level
    warnings.warn(message, category, stacklevel=outermost + 2)


@cache
def warn_once(message: str) -> None:
    """Issue a ``SpeedWarning``, once in a process."""
    warn(message, SpeedWarning)


_filters = threading.RLock()


@contextmanager
def warnings_become(
    action: Literal["error", "ignore"], category: type[Warning] = Warning, message: str = ""
) -> Iterator[None]:
    """A block in which these warnings are raised, or dropped.

    Python has one list of filters for all threads. Blocks that overlap would restore it out of
    order and leave a filter behind, so they wait for each other.
    """
    with _filters, warnings.catch_warnings():
        warnings.filterwarnings(action, message, category)
        yield


@contextmanager
def command_line() -> Iterator[None]:
    """A block in which advice is worded for the command line."""
    token = _COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(token)


def is_command_line() -> bool:
    """Whether a command is running."""
    return _COMMAND_LINE.get()


def advice(setting: str, value: object) -> str:
    """A setting as the caller writes it: ``resize=True``, or ``--set patterns.resize=true``."""
    if _COMMAND_LINE.get():
        return f"--set {setting}={value if isinstance(value, str) else json.dumps(value)}"
    return f"{setting.rpartition('.')[2]}={value!r}"


def argument(name: str) -> str:
    """An argument as the caller writes it: ``time_unit``, or ``--time-unit``."""
    return f"--{name.replace('_', '-')}" if _COMMAND_LINE.get() else name


def printable(text: str) -> str:
    """The text as one line that any terminal can show."""
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def _visible(character: str) -> str:
    return " " if character.isspace() else ascii(character)[1:-1]
