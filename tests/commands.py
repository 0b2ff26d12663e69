"""``thermoloom ARGUMENTS`` in the process of the tests, because a new one imports for seconds.

``test_bad_input`` starts processes where the process itself is tested.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from thermoloom.cli import main


def call(*arguments: str) -> int:
    """The exit code of a command."""
    before, sys.argv = sys.argv, ["thermoloom", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def thermoloom(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The exit code and the output of a command in a folder."""
    with chdir(cwd), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
        code = call(*arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())
