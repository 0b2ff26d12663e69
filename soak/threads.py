"""Threads of one process: concurrent calls give the same bits as serial calls, and leave no trace.

A trial is a forked process in which eight threads use small computers at once: they solve, train,
generate, estimate and read files, some within ``threads(n)``. Every call must return the same as
alone. Afterwards the process must have the same numbers of threads (ours and those of linear
algebra) and the same warning filters as before.
"""

from __future__ import annotations

import os
import random
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from soak.cases import Forked, Tally

THREADS = 8
CALLS = 50
"""Calls in a trial."""
PATIENCE = 300.0
"""Seconds after which a trial counts as hanging; undisturbed, it takes two."""

Bits = bytes


def calls(rng: random.Random) -> list[tuple[str, Callable[[], Bits]]]:
    """Random calls with their names and arguments; they read files in the current folder."""
    import thermoloom as tl
    from thermoloom.patterns.images import read_picture

    digits = tl.digits(0, 1)
    machine = tl.Machine(visible=64, hidden=16, duration=0.02, labels=2)
    computer = machine.solve(digits, resize=True)
    computer.export("five.csv", bits=5)
    Image.fromarray(np.eye(64, dtype=np.uint8) * 255).save("eye.png")
    kinds: dict[str, Callable[[int], Any]] = {
        "solve": lambda n: machine.solve(digits, resize=True).parameters.vector,
        "train": lambda n: machine.train(digits, cycles=2, resize=True, seed=n).parameters.vector,
        "generate": lambda n: computer.generate(5, seed=n).states,
        "trajectories": lambda n: computer.trajectories(2, seed=n).states,
        "likelihood": lambda n: computer.log_likelihoods(computer.patterns.patterns),
        "table": lambda n: tl.load("five.csv").parameters.vector,
        "picture": lambda n: read_picture(Path("eye.png")),
    }
    chosen = []
    for _ in range(CALLS):
        name, number, limit = rng.choice(list(kinds)), rng.randrange(1, 9), rng.randrange(4)
        chosen.append((name, partial(limited, partial(kinds[name], number), limit)))
    return chosen


def limited(function: Callable[[], Any], limit: int) -> Bits:
    """The bits of a result computed with this many threads; 0: all threads."""
    from thermoloom.threads import threads

    with threads(limit) if limit else nullcontext():
        return np.ascontiguousarray(function()).tobytes()


def thread_limits() -> list[int]:
    """Numbers of threads: ours, and those of every linear-algebra library."""
    from threadpoolctl import threadpool_info

    from thermoloom.threads import thread_count

    return [thread_count(), *(library["num_threads"] for library in threadpool_info())]


def trial(seed: int) -> str:
    """Describe what is wrong with concurrent calls, or return ""."""
    rng = random.Random(seed)
    os.environ["THERMOLOOM_THREADS"] = "4"
    chosen = calls(rng)
    before = thread_limits()
    alone = [call() for _, call in chosen]
    filters = list(warnings.filters)  # after all imports
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda named: named[1](), chosen))
    wrong = [name for (name, _), a, b in zip(chosen, alone, together, strict=True) if a != b]
    if wrong:
        return f"different bits from {', '.join(sorted(set(wrong)))}: {len(wrong)} of {CALLS} calls"
    if warnings.filters != filters:
        return f"warning filters {filters} → {warnings.filters}"
    return "" if thread_limits() == before else f"threads {before} → {thread_limits()}"


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    """Make ``count`` calls, in trials of fifty."""
    for number in range(-(-count // CALLS)):
        say(f"threads: {number * CALLS} of {count} calls")
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            verdict, why = judge(partial(trial, seed + number), Path(folder))
        tally.add(f"{CALLS} calls of {THREADS} threads", verdict, f"seed {seed + number}: {why}")


def judge(function: Callable[[], str], folder: Path) -> tuple[str, str]:
    """Run a trial in its own process and judge how it ends."""
    process = Forked(partial(reported, function), folder)
    code = process.wait(PATIENCE)
    if code is None:
        process.send(9)
        process.wait(60)
        return "hang", f"more than {PATIENCE:.0f} s"
    out, err = process.printed()
    if code or "Traceback" in err:
        return "traceback", (err.strip() or f"exit code {code}").splitlines()[-1]
    return ("silently wrong", out.strip()) if out.strip() else ("fine", "")


def reported(function: Callable[[], str]) -> None:
    """Print what is wrong."""
    print(function())
