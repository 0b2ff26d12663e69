"""Interrupt commands with real signals at chosen moments, continue them, and compare the results.

ends = interrupt(command, folder, moments, signal.SIGINT)     one try per moment
finish(command, folder)                                       then run to the end
contents(folder / "X", "**/computer.safetensors", …)          and compare with another folder
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PATIENCE = 30.0
"""Seconds after which a process that should end counts as hanging; it needs about 0.2 s."""


def thermoloom(*arguments: str) -> list[str]:
    """The command line, as its entry point calls it."""
    return [sys.executable, "-c", "from thermoloom.cli import main; main()", *arguments]


@dataclass(frozen=True)
class End:
    """How an interrupted command ended."""

    signum: int
    moment: float
    """Seconds from the start to the signal."""
    code: int | None
    """Exit code, negative if a signal killed it; None if it hung and had to be killed."""
    seconds: float
    """Seconds from the signal to the end."""
    stdout: str
    stderr: str

    @property
    def verdict(self) -> str:
        """``finished``, ``stopped``, ``traceback``, ``hang``, or ``exit code N``."""
        if self.code is None:
            return "hang"
        if "Traceback" in self.stderr or "Exception ignored" in self.stderr:
            return "traceback"
        if self.code == 0:
            return "finished"
        expected = -self.signum if self.signum == signal.SIGKILL else 128 + self.signum
        return "stopped" if self.code == expected else f"exit code {self.code}"

    @property
    def good(self) -> bool:
        return self.verdict in ("finished", "stopped")


def interrupt(
    command: list[str],
    folder: Path,
    moments: Iterable[float],
    signum: int = signal.SIGINT,
    after: Callable[[], bool] | None = None,
    times: int = 1,
) -> list[End]:
    """Start ``command`` anew for each moment and send it the signal then, ``times`` in a row.

    Moments are seconds from the program's first line (earlier, Python itself is starting), or from
    when ``after()`` is true. Ends early once the command has finished by itself.
    """
    ends: list[End] = []
    for moment in moments:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        began = time.monotonic()
        _wait(process, partial(catches, process.pid, signal.SIGTERM))
        if after:
            _wait(process, after)
        time.sleep(moment)
        sent = time.monotonic()
        for _ in range(times):
            process.send_signal(signum)  # no effect if it has ended by itself
            time.sleep(0.01 if times > 1 else 0)
        code: int | None
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            code = None
        now = time.monotonic()
        ends.append(End(signum, sent - began, code, now - sent, stdout, stderr))
        if code == 0:
            break
    return ends


def finish(command: list[str], folder: Path, timeout: float = 600) -> None:
    """Run to the end; the exit code must be 0."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr


def contents(folder: Path, *patterns: str) -> dict[str, bytes]:
    """Contents of files by path in the folder; every pattern must match at least one file."""
    bytes_by_path: dict[str, bytes] = {}
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        assert files, f"no {pattern} in {folder}"
        bytes_by_path |= {str(file.relative_to(folder)): file.read_bytes() for file in files}
    return bytes_by_path


def _wait(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.002)


def catches(pid: int, signum: int) -> bool:
    """Whether a process handles a signal; our first line handles SIGTERM, Python does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signum - 1) & 1)
