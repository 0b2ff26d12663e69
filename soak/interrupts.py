"""Real signals at random moments of commands, each continued by the same command.

Every signal must end its process soon, without a traceback and with the exit code of that signal.
After a few signals the same command, undisturbed, must produce the same bytes as a run that was
never interrupted.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from soak.cases import Ended, Forked, Tally, call, describe, prepare
from soak.interrupting import PATIENCE, End, catches, finish, interrupt, thermoloom

SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LONGEST = 3600.0
IN_A_ROW = 5
"""Interrupts before a command may finish undisturbed."""


@dataclass(frozen=True)
class Scene:
    """A command, its prerequisite, and its share of the interrupts."""

    command: tuple[str, ...]
    fresh: float
    """Share of interrupts of a new process, also while it imports, loads kernels and exits."""
    warm: float
    """Share of interrupts of a process forked with everything loaded, which starts at once."""
    before: tuple[str, ...] = ()
    """A command to run beforehand."""


SHORT = ("--set", "duration=0.2")
"""Full-size machine, short trajectories: these have as many points of interruption."""
TRAIN = ("train", *SHORT, "--seed", "7", "--cycles", "20", "--checkpoint-every", "0", "--out", "X")
SCENES = {
    "train online": Scene((*TRAIN, "--rule", "online"), 0.05, 0.3),
    "train batch": Scene((*TRAIN, "--rule", "batch"), 0.03, 0.25),
    "generate": Scene(("generate", "X", "--samples", "20"), 0.03, 0.2,
                      ("train", *SHORT, "--cycles", "2", "--out", "X")),
    "solve": Scene(("solve", *SHORT, "--out", "X"), 0.02, 0.1),
    "run": Scene(("run", "prototypes", *SHORT, "--seeds", "101", "--set", "cycles=4",
                  "--set", "samples=8", "--set", "study.paths_per_pattern=1", "--workers", "2",
                  "--out", "X"), 0.02, 0.0),
}  # fmt: skip


class Fresh:
    """Commands in separate processes, as a shell starts them."""

    def call(self, arguments: list[str], folder: Path) -> Ended:
        try:
            done = subprocess.run(
                thermoloom(*arguments), cwd=folder, capture_output=True, text=True,
                timeout=LONGEST, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Ended(-signal.SIGKILL, "", "", hung=True)
        return Ended(done.returncode, done.stdout, done.stderr)

    def interrupt(self, arguments: list[str], folder: Path, moment: float, signum: int) -> End:
        return interrupt(thermoloom(*arguments), folder, [moment], signum)[0]


class Warm:
    """Commands in forked processes that have everything loaded."""

    def call(self, arguments: list[str], folder: Path) -> Ended:
        return call(arguments, folder, LONGEST)

    def interrupt(self, arguments: list[str], folder: Path, moment: float, signum: int) -> End:
        process = Forked(arguments, folder)
        while not catches(process.pid, signal.SIGTERM):
            time.sleep(0.001)
        code = process.wait(moment)
        sent = time.monotonic()
        if code is None:
            process.send(signum)
            code = process.wait(PATIENCE)
        if code is None:
            process.send(signal.SIGKILL)
            process.wait(PATIENCE)
        return End(signum, moment, code, time.monotonic() - sent, *process.printed())


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    # otherwise compilation would count towards the duration of the reference
    finish([sys.executable, "-c", "import thermoloom.engines as e; e.engine().warm_up()"], Path())
    for start in (Fresh(), Warm()):
        if isinstance(start, Warm):
            prepare()  # after the fresh processes, which need all cores
        for name, scene in SCENES.items():
            share = scene.warm if isinstance(start, Warm) else scene.fresh
            wanted = max(1, round(count * share)) if share else 0
            with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
                play(name, scene, start, wanted, Path(temporary), rng, tally, say)


def play(
    name: str,
    scene: Scene,
    start: Fresh | Warm,
    wanted: int,
    folder: Path,
    rng: random.Random,
    tally: Tally,
    say: Callable[[str], None],
) -> None:
    """Send ``wanted`` signals to one command, in as many tries as needed."""
    if not wanted:
        return
    beginning, command = folder / "beginning", list(scene.command)
    beginning.mkdir()
    if scene.before:
        assert start.call(list(scene.before), beginning).code == 0, name
    reference = shutil.copytree(beginning, folder / "reference")
    began = time.monotonic()
    ended = start.call(command, reference)
    duration = time.monotonic() - began
    expected = results(reference)
    assert ended.code == 0, ended.err
    assert expected, f"{name}: no results to compare"
    sent = 0
    while sent < wanted:
        say(f"{name}: {sent} of {wanted} interrupts; {duration:.1f} s if uninterrupted")
        trial = shutil.copytree(beginning, folder / "trial")
        signals: list[str] = []
        for _ in range(min(IN_A_ROW, wanted - sent)):
            # each try continues the previous one, so less work is left
            signum, moment = rng.choice(SIGNALS), rng.uniform(0, duration / (1 + len(signals) / 2))
            end = start.interrupt(command, trial, moment, signum)
            if end.verdict == "finished":
                break  # it ended before the signal
            sent += 1
            signals.append(f"{signal.Signals(signum).name} at {moment:.2f} s")
            kind = f"interrupt: {name}, {signal.Signals(signum).name}"
            last = (end.stderr.strip() or "-").splitlines()[-1]
            tally.add(kind, verdict_of(end), f"{signals[-1]}: {end.verdict} → {last[:200]}")
        ended = start.call(command, trial)
        verdict = continued(ended, results(trial), expected)
        left = results(trial)
        different = [file for file in sorted(expected) if left.get(file) != expected[file]]
        why = (
            f"after {', '.join(signals)}: different {', '.join(different)}"
            if ended.code == 0
            else ""
        )
        tally.add(f"continued: {name}", verdict, describe(command, ended, why))
        shutil.rmtree(trial)


def continued(ended: Ended, files: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Verdict: a continued run must have the same bytes as one that was never interrupted."""
    if ended.hung:
        return "hang"
    if ended.traceback:
        return "traceback"
    if ended.code != 0:
        return "more lines"
    return "fine" if files == expected else "silently wrong"


def results(folder: Path) -> dict[str, bytes]:
    """Bytes of all permanent arrays and tables, without manifests, which contain times."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".safetensors", ".csv") and not file.name.startswith("checkpoint-")
    }


def verdict_of(end: End) -> str:
    """Verdict, in the terms of the table, on a command stopped by a signal."""
    if end.verdict in ("hang", "traceback"):
        return end.verdict
    # -signum: the interpreter had already restored its own handlers before it exits
    return "one line" if end.code in (-end.signum, 128 + end.signum) else "more lines"
