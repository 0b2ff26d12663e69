"""The command line: reads arguments, calls the packages below, prints results."""

from __future__ import annotations

import sys

from thermoloom.errors import UserError
from thermoloom.interrupts import Interrupted, exit_code, interrupts_end_at_once, interrupts_ignored


def main() -> None:
    """Entry point: user errors are one line and exit code 2, an interruption is 130."""
    interrupts_end_at_once()  # before the slow imports
    from thermoloom.cli.commands import app
    from thermoloom.cli.options import say

    try:
        app()
    except UserError as error:
        say(f"[red]error:[/red] {_escaped(str(error))}")
        sys.exit(2)
    except (KeyboardInterrupt, Interrupted) as interruption:
        if str(interruption):
            say(_escaped(str(interruption)))
        sys.exit(exit_code())
    finally:
        interrupts_ignored()


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
