"""One call of the command line, how it ended, and the verdict."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

GOOD = ("one line", "fine")
BAD = ("more lines", "traceback", "hang", "silently wrong")
"""``more lines``: refused, but not in one line with exit code 2."""
VERDICTS = (*GOOD, *BAD)

TIMEOUT = 60.0
"""Seconds before a call is interrupted; if it stops, it was busy, otherwise it hangs."""
PATIENCE = 15.0
"""Seconds that an interrupted call may take to end."""
MEMORY = 3 << 30
"""Bytes that a call may allocate; a size that does not fit must be refused, not tried."""


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    code: int
    out: str
    err: str
    busy: bool = False
    """The call was still running when its time was up, and stopped when interrupted."""
    hung: bool = False

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.err or "Exception ignored" in self.err

    @property
    def one_line(self) -> bool:
        return self.code == 2 and len(self.err.strip().splitlines()) == 1


@dataclass
class Tally:
    """Verdicts by class, and an example of each bad one."""

    say: Callable[[str], None]
    """Reports bad verdicts as they come."""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, verdict: str, example: str = "") -> None:
        assert verdict in VERDICTS, verdict
        counts = self.counts.setdefault(kind, Counter())
        counts[verdict] += 1
        if verdict in BAD:
            self.say(f"{kind}: {verdict}: {example}")
            if counts[verdict] <= 3:
                self.examples.append(f"{kind}: {verdict}: {example}")

    @property
    def bad(self) -> int:
        return sum(counts[verdict] for counts in self.counts.values() for verdict in BAD)


def verdict_of(ended: Ended) -> str | None:
    """Verdict from the end alone; None if it depends on the command."""
    if ended.hung:
        return "hang"
    if ended.traceback:
        return "traceback"
    if ended.code == 2:
        return "one line" if ended.one_line else "more lines"
    return None


def describe(arguments: list[str], ended: Ended, why: str = "") -> str:
    """Format a call with its last line of output."""
    shown = " ".join(a if re.fullmatch(r"[!-~]+", a) else repr(a) for a in arguments)
    lines = (ended.err.strip() or ended.out.strip() or "-").splitlines()
    return f"{shown[:300]}  (exit code {ended.code}) → {why or lines[-1][:200]}"


def prepare() -> None:
    """Load everything once, so that a call is a fork and takes milliseconds.

    One thread loads the kernels, because a fork would lose any others.
    """
    os.environ["THERMOLOOM_THREADS"] = "1"
    for module in ("cli", "studies.run", "studies.report", "measures.classifier"):
        import_module(f"thermoloom.{module}")
    import_module("thermoloom.engines").engine().warm_up()


class Forked:
    """``thermoloom ARGUMENTS``, or a function, in ``folder``, in its own forked process."""

    def __init__(self, work: list[str] | Callable[[], None], folder: Path) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115  # ``printed`` closes it
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, folder, self._out.fileno(), self._err.fileno())

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None if the process still runs after this time."""
        return _wait(self.pid, seconds)

    def printed(self) -> tuple[str, str]:
        """Return standard output and standard error of the ended process."""
        texts = []
        for file in (self._out, self._err):
            with file:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return texts[0], texts[1]


def call(arguments: list[str], folder: Path, timeout: float = TIMEOUT) -> Ended:
    """Run ``thermoloom ARGUMENTS`` in ``folder`` to its end."""
    process = Forked(arguments, folder)
    code, busy, hung = process.wait(timeout), False, False
    if code is None:
        busy = True
        process.send(signal.SIGINT)
        code = process.wait(PATIENCE)
    if code is None:
        busy, hung = False, True
        process.send(signal.SIGKILL)
        code = process.wait(60)
    return Ended(code if code is not None else -9, *process.printed(), busy=busy, hung=hung)


def _wait(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def _child(work: list[str] | Callable[[], None], folder: Path, out: int, err: int) -> None:
    """Make one call and exit; like the interpreter, print the traceback of any exception."""
    code = 1
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        if callable(work):
            work()
        else:
            sys.argv = ["thermoloom", *work]
            from thermoloom.cli import main

            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # this process must end here
                stream.flush()
        os._exit(code)
