"""Pages of the lab that do not read, send nothing or leave must not disturb other pages.

Every trial opens a few such pages over raw sockets, and then a well-behaved page. The latter must
soon get the same answer as when it is alone. At the end no page is left and Ctrl-C closes the lab.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from soak.cases import Tally
from soak.interrupting import thermoloom

SOON = 15.0
"""Seconds within which a well-behaved page must be answered; alone, it takes less than one."""
ORDER = {"do": "generate", "number": 1, "samples": 3, "seed": 5, "classes": [7]}
LARGE = {"do": "generate", "number": 1, "samples": 24}
TEACH = {"do": "teach", "number": 1, "patterns": ["AAAA"]}


@contextmanager
def open_lab(folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a lab with a computer that draws digits quickly; yields its port and process."""
    import thermoloom as tl

    machine = tl.Machine(
        hidden=0, labels=10, wiring=("visible-label",), biases=("visible",), J4=0.0, dt=1e-2,
    )  # fmt: skip
    machine.solve(tl.digits()).save(folder / "digits.safetensors")
    with (folder / "said").open("w") as said:
        lab = subprocess.Popen(
            thermoloom("lab", "digits.safetensors", "--port", "0"), cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip
    assert lab.stdout
    try:
        yield int(lab.stdout.readline().rpartition(":")[2]), lab
    finally:
        lab.kill()
        lab.wait()
        lab.stdout.close()


# --- badly behaved pages ------------------------------------------------------------------------


def page(port: int) -> socket.socket:
    """Open a page that reads nothing more, with a tiny receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(SOON)
    connection.connect(("127.0.0.1", port))
    host = f"127.0.0.1:{port}"
    connection.sendall(
        f"GET /viewer HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    connection.recv(64)
    return connection


def frame(order: dict[str, Any]) -> bytes:
    """Encode a message as a browser would, with a mask of zeros."""
    text = json.dumps(order).encode()
    return b"\x81" + struct.pack(">BH4x", 0x80 | 126, len(text)) + text


def never_reads(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(frame(LARGE))


def asks_again_and_again(connection: socket.socket, rng: random.Random) -> None:
    for _ in range(50):
        connection.sendall(frame(LARGE))


def stops_in_a_message(connection: socket.socket, rng: random.Random) -> None:
    message = frame(ORDER)
    connection.sendall(message[: rng.randrange(1, len(message))])


def leaves(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(frame(rng.choice((LARGE, TEACH))))
    time.sleep(rng.random() / 10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()  # without a closing handshake


def says_nonsense(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(rng.randbytes(rng.randrange(1, 500)))


def reads_a_little(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(frame(LARGE))
    connection.recv(rng.randrange(1, 3000))


MANNERS = (never_reads, never_reads, asks_again_and_again, stops_in_a_message, leaves,
           says_nonsense, reads_a_little)  # fmt: skip


# --- the well-behaved page ----------------------------------------------------------------------


def answered(port: int) -> list[Any]:
    """Reproducible answers to one request: heat and states of all frames."""
    from websockets.sync.client import connect

    heard: list[Any] = []
    with connect(f"ws://127.0.0.1:{port}/viewer", origin=f"http://127.0.0.1:{port}", max_size=None,
                 compression=None) as connection:  # fmt: skip
        said = ""
        while said != "generated":
            content = connection.recv(timeout=4 * SOON)
            length = struct.unpack_from("<I", content)[0]
            head = json.loads(content[4 : 4 + length])
            said = head["say"]
            if said == "ready":
                connection.send(json.dumps(ORDER))
            elif said == "frames":
                heard += [head["heat"], content[4 + length :]]
            elif said == "error":
                raise RuntimeError(head["text"])
    return heard


def status(port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=SOON) as answer:
        numbers: dict[str, int] = json.load(answer)
        return numbers


# --- judgement ----------------------------------------------------------------------------------


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = Path(temporary)
        with open_lab(folder) as (port, lab):
            expected = answered(port)
            for number in range(count):
                if number % 10 == 0:
                    say(f"slow viewers of the lab: {number} of {count}")
                manners = rng.choices(MANNERS, k=rng.randrange(1, 9))
                verdict, why = trial(port, manners, expected, rng)
                names = ", ".join(manner.__name__ for manner in manners)
                tally.add("slow viewers of the lab", verdict, f"{names}: {why}")
            verdict, why = closing(port, lab, folder / "said")
            tally.add("closing the lab", verdict, why)


def trial(
    port: int, manners: list[Callable[..., None]], expected: list[Any], rng: random.Random
) -> tuple[str, str]:
    """Check a well-behaved page while others misbehave."""
    with ExitStack() as stack:
        try:
            for manner in manners:
                manner(stack.enter_context(page(port)), rng)
            began = time.monotonic()
            heard = answered(port)
        except TimeoutError:
            return "hang", "no answer"
        except Exception as error:
            return "traceback", repr(error)
        if (seconds := time.monotonic() - began) > SOON:
            return "hang", f"answered after {seconds:.0f} s"
        return ("fine", "") if heard == expected else ("silently wrong", "another answer")


def closing(port: int, lab: subprocess.Popen[str], said: Path) -> tuple[str, str]:
    """Check that all pages are forgotten and that the lab then ends at once without complaint."""
    deadline = time.monotonic() + 4 * SOON
    while any((left := status(port)).values()):
        if time.monotonic() > deadline:
            return "hang", f"still open: {left}"
        time.sleep(0.2)
    os.kill(lab.pid, signal.SIGINT)
    try:
        code = lab.wait(SOON)
    except subprocess.TimeoutExpired:
        return "hang", "the lab does not close"
    text = said.read_text()
    if "Traceback" in text or "Exception" in text:
        return "traceback", text.strip().splitlines()[-1]
    return ("fine", "") if code == 0 else ("more lines", f"exit code {code}")
