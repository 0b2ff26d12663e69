"""Real signals at random moments of full-size commands, each continued by the same command.

Every signal must end its process soon, without a traceback and with the exit code of that signal;
and after a few of them the same command, left alone, must leave the very bytes of a run that was
never interrupted.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from soak.cases import Ended, Tally, describe
from soak.interrupting import End, finish, interrupt, thermoloom

SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LONGEST = 3600.0
IN_A_ROW = 5
"""Interrupts before a command is left alone to finish."""


@dataclass(frozen=True)
class Scene:
    """A command, what it needs beforehand, and the files that it must leave."""

    command: tuple[str, ...]
    share: float
    """Of all interrupts."""
    before: tuple[str, ...] = ()
    """A command that makes what it needs."""


TRAIN = ("train", "--seed", "7", "--cycles", "20", "--checkpoint-every", "0", "--out", "X")
SCENES = {
    "train online": Scene((*TRAIN, "--rule", "online"), 0.3),
    "train batch": Scene((*TRAIN, "--rule", "batch"), 0.2),
    "generate": Scene(("generate", "X", "--samples", "100"), 0.2,
                      ("train", "--cycles", "2", "--out", "X")),
    "solve": Scene(("solve", "--out", "X"), 0.1),
    "run": Scene(("run", "prototypes", "--seeds", "101", "--set", "cycles=8", "--set", "samples=20",
                  "--set", "study.paths_per_pattern=1", "--workers", "2", "--out", "X"),
                 0.2),
}  # fmt: skip


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    for name, scene in SCENES.items():
        wanted = max(1, round(count * scene.share))
        with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
            play(name, scene, wanted, Path(temporary), rng, tally, say)


def play(
    name: str,
    scene: Scene,
    wanted: int,
    folder: Path,
    rng: random.Random,
    tally: Tally,
    say: Callable[[str], None],
) -> None:
    """Signals to one command, ``wanted`` in all, in as many tries as that takes."""
    start = folder / "start"
    start.mkdir()
    if scene.before:
        finish(thermoloom(*scene.before), start)
    reference = shutil.copytree(start, folder / "reference")
    began = time.monotonic()
    command = thermoloom(*scene.command)
    finish(command, reference, LONGEST)
    whole = time.monotonic() - began
    expected = results(reference)
    assert expected, f"{name}: left nothing to compare"
    sent = 0
    while sent < wanted:
        say(f"{name}: {sent} of {wanted} interrupts; uninterrupted it takes {whole:.0f} s")
        trial = shutil.copytree(start, folder / "trial")
        told = []
        for _ in range(min(IN_A_ROW, wanted - sent)):
            signum, moment = rng.choice(SIGNALS), rng.uniform(0, whole)
            end = interrupt(command, trial, [moment], signum)[0]
            if end.verdict == "finished":
                break  # it was faster
            sent += 1
            told.append(f"{signal.Signals(signum).name} at {moment:.2f} s")
            kind = f"interrupt: {name}, {signal.Signals(signum).name}"
            last = (end.stderr.strip() or "-").splitlines()[-1]
            tally.add(kind, verdict_of(end), f"{told[-1]}: {end.verdict} → {last[:200]}")
        ended = left_alone(command, trial)
        found = results(trial)
        if ended.hung:
            verdict = "hang"
        elif ended.traceback:
            verdict = "traceback"
        elif ended.code != 0:
            verdict = "more lines"
        else:
            verdict = "fine" if found == expected else "silently wrong"
        other = sorted(f for f in expected | found if expected.get(f) != found.get(f))
        why = f"after {', '.join(told)}: other {', '.join(other)}" if ended.code == 0 else ""
        tally.add(f"continued: {name}", verdict, describe(list(scene.command), ended, why))
        shutil.rmtree(trial)


def results(folder: Path) -> dict[str, bytes]:
    """Every array and table that lasts, byte for byte; manifests hold times."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".safetensors", ".csv") and not file.name.startswith("checkpoint-")
    }


def verdict_of(end: End) -> str:
    """Stopped by its signal, in the words of the table."""
    if end.verdict in ("hang", "traceback"):
        return end.verdict
    # -signum: the interpreter had put its own handlers back, as the last thing that it does
    return "one line" if end.code in (-end.signum, 128 + end.signum) else "more lines"


def left_alone(command: list[str], folder: Path) -> Ended:
    """The command, continued to its end."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return Ended(-signal.SIGKILL, "", "", hung=True)
    return Ended(done.returncode, done.stdout, done.stderr)
