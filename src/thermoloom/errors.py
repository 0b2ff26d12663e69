"""The one exception that a user is meant to see."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right: one line that names what is wrong and the way out.

    The command line prints it without a traceback and exits with code 2. Whatever a file name or
    a library's message brings along, it stays one line that any terminal can show.

    >>> import thermoloom as tl
    >>> tl.Machine(kT=-1)
    Traceback (most recent call last):
    thermoloom.errors.UserError: machine.kT = -1.0: must be positive
    """

    def __init__(self, message: str = "") -> None:
        super().__init__("".join(c if c.isprintable() else _visible(c) for c in message))


def _visible(character: str) -> str:
    return " " if character.isspace() else ascii(character)[1:-1]
