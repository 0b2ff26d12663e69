"""The surroundings of a command: standard streams, pipes, memory, paths that belong to runs.

If its output is lost, a command must end with a line that says so. With standard error closed, a
pipe in place of a file or a small address space, it must give the usual results or be refused in
one line. An output file in a run directory must be refused, and the directory must not change.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from soak.cases import TIMEOUT, Ended, Forked, Tally, describe, verdict_of
from soak.files import COMMANDS, TARGETS, Good, copied, judge, make, outcome

ORDINARY = ("train", "continue", "generate", "show", "saved", "verify", "report", "run")
"""Commands that always print the same text."""
MOST_MEMORY = 200 << 20
"""Bytes that a command may allocate in a small address space."""
Trial = Callable[[Good, random.Random], tuple[list[str], Ended, str, str]]


def main_with(arguments: list[str], prepare: Callable[[], None]) -> None:
    """Prepare the surroundings of a forked process, then run the command in it."""
    from thermoloom.cli import main

    streams = sys.stdout, sys.stderr
    sys.argv = ["thermoloom", *arguments]
    try:
        prepare()
        main()
    finally:
        sys.stdout, sys.stderr = streams


def run(arguments: list[str], folder: Path, prepare: Callable[[], None]) -> Ended:
    process = Forked(partial(main_with, arguments, prepare), folder)
    code, hung = process.wait(TIMEOUT), False
    if code is None:
        process.send(9)
        code, hung = process.wait(60), True
    return Ended(-9 if code is None else code, *process.printed(), hung=hung)


# --- surroundings -------------------------------------------------------------------------------


def nothing() -> None:
    pass


def full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def closed_output() -> None:
    os.close(1)
    sys.stdout = None  # as Python sets it at start-up


def closed_errors() -> None:
    os.close(2)
    sys.stderr = None


def small_memory(count: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + count
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def lost_output(good: Good, rng: random.Random) -> tuple[list[str], Ended, str, str]:
    """The results cannot be written, so the command must say so."""
    name, prepare = rng.choice(ORDINARY), rng.choice((full_output, closed_output))
    with copied(good.folder) as folder:
        ended = run(COMMANDS[name], folder, prepare)
    verdict = end_of(ended) or ("silently wrong" if ended.code == 0 else "more lines")
    return COMMANDS[name], ended, verdict, prepare.__name__


def end_of(ended: Ended) -> str | None:
    """Like ``verdict_of``, but an error may follow progress lines, and OpenBLAS may exit."""
    verdict = verdict_of(ended)
    if verdict == "more lines" and ended.err.strip().splitlines()[-1].startswith("error: "):
        return "one line"
    if verdict is None and ended.code != 0 and "OpenBLAS" in ended.err:
        return "one line"
    return verdict


def no_errors(good: Good, rng: random.Random) -> tuple[list[str], Ended, str, str]:
    return same(good, rng.choice(ORDINARY), closed_errors)


def little_memory(good: Good, rng: random.Random) -> tuple[list[str], Ended, str, str]:
    return same(good, rng.choice(ORDINARY), partial(small_memory, rng.randrange(MOST_MEMORY)))


def same(good: Good, name: str, prepare: Callable[[], None]) -> tuple[list[str], Ended, str, str]:
    """The command must be refused in one line, or give the results of ordinary surroundings."""
    with copied(good.folder) as folder:
        ended = run(COMMANDS[name], folder, prepare)
        text, made = good.outcomes[name]
        said, files = outcome(name, ended, folder)
    verdict = end_of(ended)
    if verdict is not None or ended.code != 0:
        return COMMANDS[name], ended, verdict or "more lines", ""
    other = [file for file in made if files.get(file) != made[file]]
    fine = said == text and not other
    why = "" if fine else f"other {', '.join(other) or 'words'}"
    return COMMANDS[name], ended, "fine" if fine else "silently wrong", why


def pipe(good: Good, rng: random.Random) -> tuple[list[str], Ended, str, str]:
    """A pipe without a writer in place of a file."""
    _, target, readers = rng.choice(TARGETS)
    name = rng.choice(readers)
    with copied(good.folder) as folder:
        (folder / target).unlink()
        os.mkfifo(folder / target)
        ended = run(COMMANDS[name], folder, nothing)
        verdict = verdict_of(ended)
        if verdict is not None:
            return COMMANDS[name], ended, verdict, target
        if name in ("PNG", "npy", "IDX"):
            return COMMANDS[name], ended, "silently wrong", f"{target} was read"
        verdict, why = judge(name, target, ended, folder, good)
    return COMMANDS[name], ended, verdict, why


def in_the_way(good: Good, rng: random.Random) -> tuple[list[str], Ended, str, str]:
    """An output file with the name of a file of a run, or in its directory."""
    place = rng.choice(("done", "begun", "results/comparison", "./done/../begun"))
    name = rng.choice(("curve", "later", "manifest", "models", "samples-90101-3"))
    arguments = rng.choice(
        [
            ["export", "done", "--out", f"{place}/{name}.csv"],
            ["export", "mine.safetensors", "--out", f"{place}/{name}.csv", "--bits", "5"],
            ["export", "done", "--out", f"{place}/{name}.cir", "--format", "spice"],
            ["demo", "--out", f"{place}/{name}.html"],
            ["demo", "--out", place],
        ]
    )
    with copied(good.folder) as folder:
        ended = run(arguments, folder, nothing)
        changed = contents(folder) != contents(good.folder)
    verdict = verdict_of(ended) or "more lines"
    if changed or ended.code == 0:
        verdict = "silently wrong"
    return arguments, ended, verdict, "wrote into a run" if changed else ""


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


TRIALS: dict[str, Trial] = {
    "output lost": lost_output,
    "standard error closed": no_errors,
    "small address space": little_memory,
    "pipe in place of a file": pipe,
    "output path of a run": in_the_way,
}


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        good = make(Path(temporary))
        for number in range(count):
            if number % 50 == 0:
                say(f"surroundings: {number} of {count}")
            kind = rng.choice(list(TRIALS))
            arguments, ended, verdict, why = TRIALS[kind](good, rng)
            tally.add(kind, verdict, f"{describe(arguments, ended)} {why}")
        shutil.rmtree(good.folder / "begun")
