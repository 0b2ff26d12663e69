"""Environment variables: invalid values of ours are refused, and those of others change no result.

Ours are tried in forked processes. Python and libraries read theirs when they start, so these are
tried in fresh processes, which take seconds: one in twenty trials.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from soak.cases import TIMEOUT, Ended, Forked, Tally, describe, verdict_of
from soak.inputs import SMALL
from soak.interrupting import thermoloom

COMMAND = ["solve", "-c", "small.toml", "--out", "out"]
RESULT = "out/computer.safetensors"
FRESH = 0.05
"""Share of trials in fresh processes."""
THREADS_WRONG = ("0", "-1", "1.5", "1e3", "eight", "²", "٣", "1_0", "0x2", "99999999999", "1025",
                 "2 4", "2,4", "+", "auto", "None", "1" * 5000, "\u00a02x", "true")  # fmt: skip
THREADS_RIGHT = ("1", "2", "3", "1024", " 2 ", "", "  ", "0004")
ENGINE_WRONG = ("fast", "portable:nothing", "portable:", ":", "compiled:torch", "portable:numpy:x",
                "nowhere:Engine", "os:path", "²", "a" * 5000, "portable:numpy:cpu:float16",
                "../compiled", "compiled compiled", "portable:numpy:cuda")  # fmt: skip
ENGINE_RIGHT = ("compiled", " compiled ", "", "compiled:numpy")
OURS = {
    "THERMOLOOM_THREADS": (THREADS_WRONG, THREADS_RIGHT),
    "THERMOLOOM_ENGINE": (ENGINE_WRONG, ENGINE_RIGHT),
}
OTHERS = (
    {"COLUMNS": "x"}, {"COLUMNS": "0"}, {"COLUMNS": "-5", "LINES": "²"}, {"TERM": "dumb"},
    {"TERM": ""}, {"LANG": "nowhere", "LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"},
    {"PYTHONUTF8": "0", "LC_ALL": "POSIX"}, {"HOME": "/nowhere"}, {"HOME": "/proc"}, {"HOME": ""},
    {"TMPDIR": "/nowhere"}, {"XDG_CACHE_HOME": "/proc/nowhere"}, {"XDG_CACHE_HOME": "relative"},
    {"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_NUM_THREADS": "1"}, {"NUMBA_CACHE_DIR": "/proc/nowhere"},
    {"OMP_NUM_THREADS": "7"}, {"OPENBLAS_NUM_THREADS": "x"}, {"MPLBACKEND": "nowhere"},
    {"MPLCONFIGDIR": "/proc/nowhere"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"},
    {"PYTHONHASHSEED": "5"}, {"PYTHONOPTIMIZE": "2"}, {"PYTHONDONTWRITEBYTECODE": "1"},
    {"PYTHONWARNINGS": "error"}, {"TZ": "nowhere"},
)  # fmt: skip


def forked(folder: Path, name: str, value: str) -> Ended:
    """Run the command with one of our variables."""
    process = Forked(partial(with_variable, name, value), folder)
    code, hung = process.wait(TIMEOUT), False
    if code is None:
        process.send(9)
        code, hung = process.wait(60), True
    return Ended(-9 if code is None else code, *process.printed(), hung=hung)


def with_variable(name: str, value: str) -> None:
    from thermoloom.cli import main

    os.environ[name], sys.argv = value, ["thermoloom", *COMMAND]
    main()


def fresh(folder: Path, variables: dict[str, str]) -> Ended:
    """Run the command in a process that starts with these variables."""
    try:
        done = subprocess.run(
            thermoloom(*COMMAND), cwd=folder, env=os.environ | variables, capture_output=True,
            timeout=10 * TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ended(-9, "", "", hung=True)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    # if kernels cannot be cached, a notice on standard error reports compilation
    lines = [line for line in err.splitlines() if not line.startswith("compil")]
    return Ended(done.returncode, out, "\n".join(lines))


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        expected = result(Path(temporary), forked, "THERMOLOOM_THREADS", "1")[1]
    others = iter(rng.sample(OTHERS, len(OTHERS)) * count)
    for number in range(count):
        if number % 50 == 0:
            say(f"environment: {number} of {count}")
        name, wrong = rng.choice(list(OURS)), rng.random() < 0.7
        value = rng.choice(OURS[name][not wrong])
        with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
            if number % round(1 / FRESH) == 0:
                name, wrong, value = "variable of others", False, next(others)
                ended, left = result(Path(temporary), fresh, value)
            else:
                ended, left = result(Path(temporary), forked, name, value)
        verdict = judge(ended, left, expected, wrong)
        tally.add(name, verdict, f"{str(value)[:100]!r} " + describe(COMMAND, ended))


def result(folder: Path, run: Callable[..., Ended], *how: object) -> tuple[Ended, bytes]:
    """Return how the command ended, and the computer that it saved."""
    (folder / "small.toml").write_text(SMALL)
    ended = run(folder, *how)
    file = folder / RESULT
    return ended, file.read_bytes() if file.exists() else b""


def judge(ended: Ended, left: bytes, expected: bytes, wrong: bool) -> str:
    """Refused in one line, or the same bytes as without the variable."""
    verdict = verdict_of(ended)
    if verdict is not None:
        return verdict if not left else "silently wrong"
    if wrong:
        return "silently wrong" if ended.code == 0 else "more lines"
    if ended.code != 0:
        return "more lines"
    return "fine" if left == expected else "silently wrong"
