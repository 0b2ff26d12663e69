"""Strict reading of user input: numbers, paths, files, TOML.

All input goes through this module, so that the same mistake always gives the same ``UserError``,
which names the input.
"""

from __future__ import annotations

import math
import numbers
import os
import reprlib
import stat
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError

LARGEST_SEED = 2**63 - 1
LARGEST_COUNT = 2**31 - 1
"""Units, steps, trajectories and samples number the random streams, in 32 bits."""
SMALLEST, LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Range of positive numbers that float32 has at full precision; the kernels compute in it."""
SETTINGS_BYTES = 1 << 20
"""Longer settings files are refused; a file of all settings has a hundredth of this size."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def shown(value: object) -> str:
    """A short ``repr`` for messages; where ``repr`` fails, as for very long numbers, the type."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"


def named_object(name: str) -> Any:
    """The object behind ``package.module:object``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


# --- numbers --------------------------------------------------------------------------------------


def whole_number(
    name: str, value: object, low: int | None = None, high: int = LARGEST_COUNT
) -> int:
    """A whole number from ``low`` to ``high``: NumPy's integers too, but no float and no bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise UserError(f"{name} = {shown(value)}: expected a whole number")
    number = int(value)
    if number > high or number < -LARGEST_SEED or (low is not None and number < low):
        bounds = f"from {low} to {high}" if low is not None else f"at most {high} in magnitude"
        raise UserError(f"{name} = {shown(number)}: must be {bounds}")
    return number


def seed_number(name: str, value: object) -> int:
    """A seed: a whole number from 0 to 2⁶³ − 1."""
    return whole_number(name, value, 0, LARGEST_SEED)


def real_number(name: str, value: object) -> float:
    """A finite number that float32 can hold: NumPy's too, but no bool and no text."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UserError(f"{name} = {shown(value)}: expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UserError(f"{name} = {shown(value)}: must be finite")
    if number and not SMALLEST <= abs(number) <= LARGEST:
        raise UserError(
            f"{name} = {shown(value)}: must be 0 or within ±{SMALLEST:.2g} … ±{LARGEST:.2g}, "
            "the numbers of float32"
        )
    return number


# --- paths and files ------------------------------------------------------------------------------


def user_path(name: str, text: str | os.PathLike[str]) -> Path:
    """The path that a user names, with ``~`` expanded; an impossible path is refused.

    The file need not exist. ``name``: the option or setting of the user.
    """
    if not isinstance(text, str | os.PathLike):
        raise UserError(f"{name} = {shown(text)}: expected the name of a file or folder")
    where = f"{name} {shown(str(text))}"
    if not str(text).strip():
        raise UserError(f"{name}: is empty; name a file or folder")
    try:
        path = Path(text).expanduser()
        path.lstat()
    except FileNotFoundError:
        pass
    except RuntimeError:  # ~nouser
        raise UserError(f"{where}: there is no such user") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: {_why(error)}") from None
    return path


def is_folder(name: str, path: Path) -> bool:
    """Whether a path is a folder; a path that cannot be examined is refused."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise UserError(f"{name} {shown(str(path))}: {_why(error)}") from None


def read_file(path: Path, most: int, kind: str = "file", first: int = -1) -> bytes:
    """The bytes (or the ``first`` of them) of a regular file of at most ``most`` bytes.

    The file is opened without blocking: a pipe would otherwise wait for its writer forever.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path}: is not a regular file")
            if status.st_size > most:
                raise UserError(
                    f"{path}: has {status.st_size:,} bytes; a {kind} has at most {most:,}"
                )
            return file.read(first)
    except FileNotFoundError:
        raise UserError(f"{path}: no such {kind}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a {kind}") from None
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{shown(str(path))}: cannot be read ({_why(error)})") from None


def read_text(path: Path, most: int, kind: str = "file") -> str:
    """The text of a UTF-8 file of at most ``most`` bytes."""
    try:
        text = read_file(path, most, kind).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise UserError(f"{path}: begins with a byte-order mark; save it as UTF-8 without one")
    return text


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


# --- TOML -----------------------------------------------------------------------------------------


class InvalidTomlError(UserError):
    """Text that does not follow TOML's grammar."""


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """TOML as a dictionary; ``where`` names it in errors."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTomlError(f"{where}: not valid TOML ({error})") from None
    except ValueError:  # Python refuses numbers of more than a few thousand digits
        raise UserError(f"{where}: has a number with too many digits") from None
    except RecursionError:
        raise UserError(f"{where}: is nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary."""
    return parse_toml(read_text(path, SETTINGS_BYTES, "settings file"), str(path))
