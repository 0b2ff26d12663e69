"""Time until the first output: the command's help, a first training, and the next one.

Each runs in its own process, in wall-clock time. The first training finds an empty kernel cache and
compiles all kernels that it needs; the next one finds them in the cache.
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
    """A first training of one cycle and the next one, with a separate kernel cache."""
    kernels = {"NUMBA_CACHE_DIR": str(folder / f"kernels-{number}")}
    commands = (
        ("train", "--cycles", "1", "--out", str(folder / f"{number}-{turn}")) for turn in range(2)
    )
    first, second = (_seconds(folder, *command, **kernels) for command in commands)
    return first, second


def _seconds(folder: Path, *arguments: str, **environment: str) -> Seconds:
    """Run a command from start to end."""
    command = [sys.executable, "-m", "thermoloom", *arguments]

    def work() -> None:
        subprocess.run(
            command, cwd=folder, env=os.environ | environment, check=True, capture_output=True
        )

    return clocked(work)()
