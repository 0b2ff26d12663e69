"""How long a user waits for the first answer: the command's help, a first training, the next one.

Each is a process of its own, by the clock. The first training finds an empty folder of kernels, so
it compiles all that it needs; the next one finds them there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Options, Result, Row, Seconds, clocked

FIRST_CALLS = 3
HELPS = 7


def run(options: Options) -> Result:
    options.say("--help, and a training with nothing compiled")
    with tempfile.TemporaryDirectory() as folder:
        helps = [_seconds(Path(folder), "--help") for _ in range(HELPS)]
        first, second = zip(*(_trainings(Path(folder), n) for n in range(FIRST_CALLS)), strict=True)
    spread = f"{FIRST_CALLS} calls: {', '.join(f'{seconds:.1f}' for seconds in first)} s"
    return Result(
        [
            Row("thermoloom --help", min(helps), "s", bar=0.3, note=f"slowest {max(helps):.2f} s"),
            Row("train --cycles 1, nothing compiled", min(first), "s", bar=10.0, note=spread),
            Row("  … all compiled", min(second), "s"),
        ]
    )


def _trainings(folder: Path, number: int) -> tuple[Seconds, Seconds]:
    """A first training of one cycle and the next one, with a folder of kernels of their own."""
    kernels = {"NUMBA_CACHE_DIR": str(folder / f"kernels-{number}")}
    commands = (
        ("train", "--cycles", "1", "--out", str(folder / f"{number}-{turn}")) for turn in range(2)
    )
    first, second = (_seconds(folder, *command, **kernels) for command in commands)
    return first, second


def _seconds(folder: Path, *arguments: str, **environment: str) -> Seconds:
    """The command line from its start to its end."""
    command = [sys.executable, "-m", "thermoloom", *arguments]

    def work() -> None:
        subprocess.run(
            command, cwd=folder, env=os.environ | environment, check=True, capture_output=True
        )

    return clocked(work)()
