"""The command line: reads arguments, calls the packages below, prints results."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from typing import NoReturn

from thermoloom.errors import UserError, printable
from thermoloom.interrupts import Interrupted, exit_code, interrupts_end_at_once, interrupts_ignored


def main() -> None:
    """Run the command line; user errors print one line and exit with 2, interrupts with 130."""
    interrupts_end_at_once()  # before the slow imports
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed; redirect it to a file, or to /dev/null")
        _run()
    except UserError as error:
        _refuse(str(error))
    except (KeyboardInterrupt, Interrupted) as interruption:
        if str(interruption):
            _say(str(interruption))
        sys.exit(exit_code())
    except MemoryError:
        _refuse("not enough memory; use a smaller machine, fewer samples or fewer workers")
    except (ImportError, RuntimeError, OSError) as error:
        if re.search(OUT_OF_MEMORY, str(error)):
            _refuse("not enough memory to load a library or start a thread; raise ulimit -v")
        if not isinstance(error, OSError) or error.errno not in OUTPUT_ERRORS or error.filename:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would fail again when it exits
        if error.errno == errno.EPIPE:  # the reader has closed the pipe
            sys.exit(128 + 13)
        _refuse(f"standard output cannot be written ({error.strerror})")
    finally:
        interrupts_ignored()


OUT_OF_MEMORY = "(?i)allocate memory|map segment|load shared object|start new thread"
"""Messages of Python and of libraries when the address space is too small."""
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)


def _run() -> None:
    """Run the command; its output is flushed before the process ends."""
    from thermoloom.cli.commands import app

    try:
        app()
    except SystemExit:
        sys.stdout.flush()
        raise


def _refuse(reason: str) -> NoReturn:
    _say(reason, "error: ")
    sys.exit(2)


def _say(text: str, kind: str = "") -> None:
    """Print a line on standard error without loading the libraries of other output."""
    red, plain = ("\x1b[31m", "\x1b[0m") if kind and _coloured() else ("", "")
    with contextlib.suppress(OSError, ValueError):
        print(f"{red}{kind}{plain}{printable(text)}", file=sys.stderr, flush=True)


def _coloured() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ
