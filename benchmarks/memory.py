"""Peak memory, each in a process of its own.

    peak of the process at the end − resident memory before the work began

Memory before counts the interpreter, its libraries and compiled kernels. Where a peak of
importing or compiling was higher, the difference is an upper bound.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import (
    Options,
    Result,
    Row,
    clocked,
    default_fields,
    many_fields,
    parameter_bytes,
)
from thermoloom.config import Settings
from thermoloom.engine import engine
from thermoloom.training.trainer import Trainee, train_together

MEGABYTE = 1e6
CYCLES = 3
STATUS = Path("/proc/self/status")


class Spent(NamedTuple):
    """What a process needed for its work."""

    before: float
    """Bytes in memory when it began."""
    peak: float
    """Most bytes in memory."""
    seconds: float


def train_both() -> None:
    """Online and batch on shared paths."""
    rules = [{"training": {"rule": rule, "cycles": CYCLES}} for rule in ("online", "batch")]
    conditions = [Settings().updated(rule) for rule in rules]
    for _ in train_together([Trainee.new(c) for c in conditions], default_fields(conditions[0])):
        pass


def solve(prototypes: int) -> None:
    """The exact optimum for so many prototypes."""
    from thermoloom.theory.solver import solve_optimum

    solve_optimum(Settings().machine, many_fields(prototypes))


WORK: dict[str, Callable[[], None]] = {
    "training": train_both,
    **{f"solve {n}": partial(solve, n) for n in (3, 10, 100, 1000)},
}


def resident() -> float:
    """Bytes in memory now. ru_maxrss would not do: a process inherits it from its parent."""
    return _status("VmRSS")


def peak() -> float:
    """Most bytes in memory since the process began."""
    return _status("VmHWM")


def _status(key: str) -> float:
    if not STATUS.exists():  # macOS gives the peak only, in bytes
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024.0 * int(lines[key].split()[0])


def measure(work: str) -> Spent:
    """Do ``work`` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", work]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return Spent(**json.loads(done.stdout))


def run(options: Options) -> Result:
    options.say("memory of a training run, in a process of its own")
    machine = Settings().machine
    memory = measure("training")
    path = 4 * (machine.steps + 1) * machine.units
    inherent = 2 * path + 2 * parameter_bytes(machine)
    return Result(
        [
            Row(
                "training run, memory beyond libraries",
                (memory.peak - memory.before) / MEGABYTE,
                "MB",
                limit=inherent / MEGABYTE,
                bar=500.0,
                note="online and batch together; limit: one path, its drive and both θ; "
                f"interpreter and libraries: {memory.before / MEGABYTE:.0f} MB",
            )
        ]
    )


def _child(work: str) -> None:
    engine().warm_up()
    before = resident()
    seconds = clocked(WORK[work])()
    print(json.dumps(Spent(before, peak(), seconds)._asdict()))


if __name__ == "__main__":
    _child(sys.argv[1])
