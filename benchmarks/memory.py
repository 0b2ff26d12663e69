"""Peak memory of tasks, each in its own process.

    peak of the process at the end − resident memory before the work began

Memory before includes the interpreter, its libraries and compiled kernels. If importing or
compiling had a higher peak, the difference is an upper bound.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import (
    Options,
    Result,
    Row,
    clocked,
    default_drive,
    force_flops,
    many_fields,
    parameter_bytes,
    update_flops,
)
from thermoloom.engines import engine
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee, train

MEGABYTE = 1e6
CYCLES = 3
STATUS = Path("/proc/self/status")


class Spent(NamedTuple):
    """Memory, time and FLOP that a process needed for its work."""

    before: float
    """Bytes in memory when the work began."""
    peak: float
    """Most bytes in memory."""
    seconds: float
    flops: float = 0.0
    """FLOP that the work cannot do without, float64 counted twice."""
    inherent: float = 0.0
    """Bytes that the work cannot do without."""


def train_both() -> None:
    """Train online and batch on shared paths."""
    rules = [{"training": {"rule": rule, "cycles": CYCLES}} for rule in ("online", "batch")]
    conditions = [Settings().updated(rule) for rule in rules]
    train([Trainee.new(c) for c in conditions], default_drive(conditions[0]))


def solve(count: int) -> tuple[float, float]:
    """Solve for this many patterns; return the FLOP and bytes that the optimum cannot do without.

    Few patterns are kept as modes m, and every step of the solver multiplies J by them and the
    result by them again. For many, Σ m mᵀ and Σ d mᵀ are summed first, and a step multiplies J by
    these.
    Memory: four vectors as long as θ, and the modes or sums.
    """
    from thermoloom.theory.expected_loss import TimeModes
    from thermoloom.theory.marginals import solve_marginals
    from thermoloom.theory.solver import solve_optimum

    machine, fields = Settings().machine, many_fields(count)
    steps = solve_optimum(machine, Drive(fields)).iterations
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    n, modes = machine.units, count * len(TimeModes(marginals, 0, machine.steps).one)
    of_modes = 2 * force_flops(machine) * modes * steps
    v, h = machine.visible, machine.hidden
    of_sums = 4 * n * n * modes + 2 * (v * h * h + h * n * n) * steps
    vectors = 4 * 2 * parameter_bytes(machine)
    return 2.0 * min(of_modes, of_sums), vectors + 8.0 * min(2 * modes * n, 2 * n * n)


def solve_images() -> None:
    """Solve for 64 × 64 images: all pairs wired, four stages, 1,000 patterns."""
    from scipy.ndimage import gaussian_filter

    from thermoloom.theory.solver import solve_optimum

    side, patterns = 64, 1000
    noise = np.random.default_rng(1).standard_normal((patterns, side, side))
    blobs = gaussian_filter(noise, (0, side / 16, side / 16)) > 0
    images = blobs.reshape(patterns, -1).astype(np.float32)
    images = (images - images.mean(1, keepdims=True)) / images.std(1, keepdims=True)
    machine = Machine(
        visible=side * side, hidden=0, wiring=("visible-visible",), biases=("visible",), stages=4
    )
    solve_optimum(machine, Drive(images))


SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Units of the machines of growing size."""


def growing_machine(units: int) -> Machine:
    """Visible and hidden units at 3 to 2, nearly as in the paper, and four blocks of steps."""
    hidden = 2 * units // 5
    return replace(Machine(), visible=units - hidden, hidden=hidden, duration=0.288)


def inherent_memory(machine: Machine) -> int:
    """Bytes of a path, its drives, and θ before and after it."""
    return 2 * 4 * (machine.steps + 1) * machine.units + 2 * parameter_bytes(machine)


def train_growing(units: int) -> Spent:
    """Learn noising paths of a machine of this many units; the fastest of three tries."""
    machine, before = growing_machine(units), resident()
    learner = engine().learner(replace(Settings(), machine=machine))
    field, theta = np.ones(units, np.float32), Parameters.zeros(machine)

    def learn() -> None:
        learner.update(theta, {}, engine().path(machine, field, 1, 0))

    seconds = clocked(learn, tries=4)()  # the first try also allocates its memory
    flops = machine.steps * (force_flops(machine) + update_flops(machine))
    return Spent(before, peak(), seconds, flops, inherent_memory(machine))


LARGE = 100_000
"""Units of the machines with few wires whose time and memory are measured."""
LARGE_WIRINGS: dict[str, dict[str, Any]] = {
    "grid": {"topology": "grid", "radius": 3},
    "random": {"topology": "random", "degree": 24},
}


def large_machine(wiring: str, steps: int = 256) -> Machine:
    """A sheet of visible units with 24 wires each."""
    wires = {"wiring": ("visible-visible",), "biases": ("visible",)}
    time = {"duration": steps * Machine().dt}
    return Machine(visible=LARGE, hidden=0, **wires, **time, **LARGE_WIRINGS[wiring])


def train_large(wiring: str) -> Spent:
    """Learn paths of a large machine; seconds per wire and step, the fastest of three tries."""
    machine, before = large_machine(wiring), resident()
    learner = engine().learner(replace(Settings(), machine=machine))
    field, theta = np.ones(LARGE, np.float32), Parameters.zeros(machine)

    def learn() -> None:
        learner.update(theta, {}, engine().path(machine, field, 1, 0))

    seconds = clocked(learn, tries=4)()
    return Spent(before, peak(), seconds / machine.steps / theta.layout.size)


def use_large(wiring: str) -> None:
    """Run a cycle of 2,500 steps with validation, draw ten samples, and solve for ten patterns."""
    from thermoloom.generation import generate
    from thermoloom.theory.solver import solve_optimum

    machine = large_machine(wiring, 2500)
    fields = np.random.default_rng(1).standard_normal((10, LARGE), np.float32)
    settings = replace(Settings(), machine=machine).updated({"training": {"cycles": 1}})
    train([Trainee.new(settings)], Drive(fields))
    generate(solve_optimum(machine, Drive(fields)).parameters, 10, 1)


WORK: dict[str, Callable[[], tuple[float, float] | None]] = {
    "training": train_both,
    "solve images": solve_images,
    **{f"large {wiring}": partial(use_large, wiring) for wiring in LARGE_WIRINGS},
    **{f"solve {n}": partial(solve, n) for n in (1, 3, 10, 100, 1000, 10000)},
}


def resident() -> float:
    """Bytes in memory now. ru_maxrss would not do: a process inherits it from its parent."""
    return _status("VmRSS")


def peak() -> float:
    """Most bytes in memory since the process began."""
    return _status("VmHWM")


def _status(key: str) -> float:
    if not STATUS.exists():  # macOS reports only the peak, in bytes
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024.0 * int(lines[key].split()[0])


def measure(work: str) -> Spent:
    """Do ``work`` in its own process."""
    command = [sys.executable, "-m", "benchmarks.memory", work]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return Spent(**json.loads(done.stdout))


def run(options: Options) -> Result:
    options.say("memory of a training run, in its own process")
    machine = Settings().machine
    memory = measure("training")
    inherent = inherent_memory(machine)
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
    kind, _, units = work.partition(" ")
    if kind == "units":
        spent = train_growing(int(units))
    elif kind == "wires":
        spent = train_large(units)
    else:
        before, began = resident(), time.perf_counter()
        needed = WORK[work]() or (0.0, 0.0)
        spent = Spent(before, peak(), time.perf_counter() - began, *needed)
    print(json.dumps(spent._asdict()))


if __name__ == "__main__":
    _child(sys.argv[1])
