"""Real signals at random moments of full-size commands, each continued by the same command.

Every signal must end its process soon, without a traceback and with the exit code of that signal;
and after a few of them the same command, left alone, must leave the very bytes of a run that was
never interrupted.
"""

from __future__ import annotations

import os
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

from soak.cases import PATIENCE, Ended, Tally, describe

PROGRAM = "import os; os.write({}, b'.'); from thermoloom.cli import main; main()"
"""Says that the interpreter is ready: signals before that are none of ours."""
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
                  "--set", "experiment.paths_per_prototype=1", "--workers", "2", "--out", "X"),
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
        finish(scene.before, start)
    reference = shutil.copytree(start, folder / "reference")
    began = time.monotonic()
    finish(scene.command, reference)
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
            ended = interrupted(scene.command, trial, moment, signum)
            if ended.code == 0:
                break  # it was faster
            sent += 1
            told.append(f"{signal.Signals(signum).name} at {moment:.2f} s")
            kind = f"interrupt: {name}, {signal.Signals(signum).name}"
            verdict = verdict_of(ended, signum)
            tally.add(kind, verdict, f"{told[-1]}: {describe(list(scene.command), ended)}")
        ended = call(scene.command, trial, LONGEST)
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


def verdict_of(ended: Ended, signum: int) -> str:
    if ended.hung:
        return "hang"
    if ended.traceback:
        return "traceback"
    return "one line" if ended.code in (-signum, 128 + signum) else "more lines"


# --- processes ----------------------------------------------------------------------------------


def begin(command: tuple[str, ...], folder: Path, out: int, err: int) -> subprocess.Popen[bytes]:
    """A process of its own group, once the interpreter is ready."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(writer), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        pass_fds=(writer,),
        process_group=0,
    )
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    return process


def interrupted(command: tuple[str, ...], folder: Path, moment: float, signum: int) -> Ended:
    """The command, with a signal to it after ``moment`` seconds."""
    return call(command, folder, PATIENCE, (moment, signum))


def call(
    command: tuple[str, ...],
    folder: Path,
    patience: float,
    disturbance: tuple[float, int] | None = None,
) -> Ended:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = begin(command, folder, out.fileno(), err.fileno())
        try:
            if disturbance is not None:
                moment, signum = disturbance
                try:
                    process.wait(moment)
                except subprocess.TimeoutExpired:
                    process.send_signal(signum)
            hung = False
            process.wait(patience)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ended(process.returncode, *texts, hung=hung)


def finish(command: tuple[str, ...], folder: Path) -> None:
    """Left alone; it must end well, or there is nothing to compare with."""
    ended = call(command, folder, LONGEST)
    if ended.code != 0:
        raise RuntimeError(f"{' '.join(command)}: {ended.err}")
