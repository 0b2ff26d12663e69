"""One open page: it sends requests, a thread computes, and the answers go back.

    page ──▶ receive ──▶ go_on ──▶ thread: _generate or _teach ──▶ LabTask.tell ──▶ page

A viewer has one task at a time. A new request ends the task before it, and so does closing the
page: a task checks every hundred steps, and before each answer, whether it is still wanted. A
lesson that is stopped keeps the couplings learned so far. Message size, samples, stored states and
computing time of a viewer are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from thermoloom.computers.computer import Computer
from thermoloom.errors import UserError
from thermoloom.lab import downloads, inspection, lessons, messages, scenes
from thermoloom.machine.parameters import layout
from thermoloom.machine.protocol import window_names

WORK_SECONDS = 120.0
"""Longer tasks are ended."""
SEND_SECONDS = 20.0
"""A page that does not accept an answer within this time is disconnected."""
SOON = 0.05
"""Seconds that a task waits for its page before it lets another one compute."""

MOST_SHOWN = 20
"""Maximum number of learned patterns that are shown to start from."""

Send = Callable[[bytes], Any]
"""``await send(content)``"""


class Ended(Exception):
    """The page no longer wants this task."""


@dataclass(eq=False)
class Bench:
    """Shared by all viewers: the computer, the threads, and the state of the preparations."""

    pool: ThreadPoolExecutor
    """Threads for tasks, one for each viewer."""
    cores: threading.Semaphore
    """Limits the tasks that compute at once; a task that waits for its page does not count."""
    quick: ThreadPoolExecutor
    """Threads for short requests, which then need not wait for tasks."""
    computer: Computer | None = None
    doing: str = "starting"
    """The current preparation of the lab, or the reason why it cannot open."""
    failed: bool = False
    teaches: threading.Event = field(default_factory=threading.Event)
    """Set once the learner is compiled."""


class LabTask:
    """A request under way, as its worker thread sees it."""

    def __init__(
        self,
        number: int,
        loop: asyncio.AbstractEventLoop,
        send: Send,
        cores: threading.Semaphore,
    ) -> None:
        self.number = number
        self.ended = threading.Event()
        """The page does not want the result."""
        self.enough = threading.Event()
        """The page wants the result as it is now."""
        self.over = threading.Event()
        """The thread is free again."""
        self._loop, self._send, self._cores = loop, send, cores
        self._until = 0.0
        self._offered: Future[Any] | None = None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Compute once a core is free; the time limit counts from then on."""
        with self._cores:
            self._until = time.monotonic() + WORK_SECONDS
            yield

    def check(self) -> None:
        """Raise an error if the task has taken too long."""
        if time.monotonic() > self._until:
            raise UserError(f"ended after {WORK_SECONDS:.0f} s; request fewer samples or cycles")

    def tell(self, kind: str, numbers: dict[str, Any], data: bytes = b"") -> None:
        """Send an answer and wait until it is sent; raises ``Ended`` if the page has gone."""
        sent = self._hand_over(kind, numbers, data)
        try:
            sent.result(SOON)
        except TimeoutError:
            self._wait_for_page(sent)
        except Exception:  # whatever a closed connection or a closing server raises
            raise Ended from None

    def _wait_for_page(self, sent: Future[Any]) -> None:
        """Wait for a slow page, while another task has the core."""
        self._cores.release()
        began = time.monotonic()
        try:
            sent.result(2 * SEND_SECONDS)
        except Exception:
            raise Ended from None
        finally:
            self._cores.acquire()
            self._until += time.monotonic() - began

    def offer(self, kind: str, numbers: dict[str, Any], data: bytes = b"") -> None:
        """Send an answer without waiting; drop it if the previous one is still being sent."""
        if self._offered is None or self._offered.done():
            self._offered = self._hand_over(kind, numbers, data)

    def _hand_over(self, kind: str, numbers: dict[str, Any], data: bytes) -> Future[Any]:
        if self.ended.is_set():
            raise Ended
        content = packed(kind, self.number, numbers, data)
        return asyncio.run_coroutine_threadsafe(self._send(content), self._loop)


class Viewer:
    """The state of one open page."""

    def __init__(self, bench: Bench, send: Send) -> None:
        self.name = secrets.token_urlsafe(12)
        self.bench = bench
        self.scene: scenes.Scene | None = None
        self.lesson: lessons.Lesson | None = None
        self.task: LabTask | None = None
        self._send = send
        self._next: messages.Generate | messages.Teach | None = None
        self._wanted = asyncio.Event()

    def computer(self, which: str) -> Computer:
        """The computer of the lab, or the one taught on this page."""
        if which == "taught":
            if self.lesson is None:
                raise UserError("nothing has been taught yet; teach the small machine first")
            return self.lesson.computer
        if self.bench.computer is None:
            raise UserError(f"the machine is not ready yet ({self.bench.doing}); wait a moment")
        return self.bench.computer

    # --- in the event loop ------------------------------------------------------------------------

    async def receive(self, content: str | bytes) -> None:
        """Answer one message, valid or not."""
        try:
            order = messages.read(content)
        except UserError as error:
            await self._answer("error", messages.number_of(content), {"text": str(error)})
            return
        if isinstance(order, messages.Inspect):
            await self._inspect(order)
            return
        if isinstance(order, messages.Stop):
            if self.task is not None:
                self.task.enough.set()
            await self._answer("stopped", order.number, {})
        else:
            self.end_task()
            self._next = order
            self._wanted.set()

    async def go_on(self) -> None:
        """Run the requested tasks one after the other, until cancelled."""
        await self._greet()
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            order, self._next = self._next, None
            if order is None:
                continue
            self.task = LabTask(order.number, loop, self._send, self.bench.cores)
            try:
                await loop.run_in_executor(self.bench.pool, self._do, order, self.task)
            finally:
                self.task = None

    def end_task(self) -> None:
        """End the current task and drop the one that waits."""
        self._next = None
        if self.task is not None:
            self.task.ended.set()

    async def _greet(self) -> None:
        notice = ""
        while self.bench.computer is None:
            if self.bench.doing != notice:
                notice = self.bench.doing
                await self._answer("wait", None, {"text": notice, "failed": self.bench.failed})
            await asyncio.sleep(0.1)
        about = description(self.bench.computer)
        await self._answer("ready", None, {"viewer": self.name, "given": about})

    async def _inspect(self, order: messages.Inspect) -> None:
        scene, loop = self.scene, asyncio.get_running_loop()
        try:
            if scene is None:
                raise UserError("nothing has been generated yet; generate samples first")
            quick, inspect = self.bench.quick, inspection.inspect
            inspected = await loop.run_in_executor(quick, inspect, scene, order)
        except Exception as error:
            await self._answer("error", order.number, {"text": _text(error)})
        else:
            await self._answer("inspected", order.number, *inspected)

    async def _answer(
        self, kind: str, number: int | None, numbers: dict[str, Any], data: bytes = b""
    ) -> None:
        await self._send(packed(kind, number, numbers, data))

    # --- in a thread ------------------------------------------------------------------------------

    def _do(self, order: messages.Generate | messages.Teach, task: LabTask) -> None:
        try:
            with task.at_work():
                if isinstance(order, messages.Generate):
                    self._generate(order, task)
                else:
                    self._teach(order, task)
        except Ended:
            pass
        except Exception as error:
            with contextlib.suppress(Ended):
                task.tell("error", {"text": _text(error)})
        finally:
            task.over.set()

    def _generate(self, order: messages.Generate, task: LabTask) -> None:
        began, computer = time.perf_counter(), self.computer(order.computer)
        done, all_steps = 0, order.samples * computer.machine.generation_steps

        def on_progress(new_steps: int) -> None:
            nonlocal done
            done += new_steps
            if task.enough.is_set():
                raise Ended
            task.check()
            task.tell("progress", {"done": min(1.0, done / all_steps)})

        task.tell("progress", {"done": 0.0})
        prepared = scenes.prepare(computer, order)
        machine, words = prepared.computer.machine, prepared.words
        about = {
            "samples": order.samples, "units": machine.units, "visible": machine.visible,
            "times": [step / machine.generation_steps for step in prepared.steps],
            "steps": prepared.steps,
            "windows": [n if isinstance(n, str) else f"stage {n}" for n in window_names(machine)],
            "kT": machine.kT,
            "words": None if words is None else words.argmax(axis=1).tolist(),
        }  # fmt: skip

        def on_frame(numbers: dict[str, Any], data: bytes) -> None:
            ends = numbers["frame"][-1] == prepared.frames - 1
            (task.tell if ends else task.offer)("forming", numbers, data)

        task.tell("begun", about)
        scene = scenes.make_scene(prepared, on_progress, on_frame)
        seconds = time.perf_counter() - began
        self.scene = scene
        verdicts, lines = scenes.verdicts(scene), downloads.lines_of(scene, self.lesson)
        task.tell("scene", {**about, "seconds": seconds, "verdicts": verdicts, "lines": lines})
        for numbers, data in scenes.pieces(scene):
            task.tell("frames", numbers, data)
        task.tell("generated", {})

    def _teach(self, order: messages.Teach, task: LabTask) -> None:
        while not self.bench.teaches.wait(0.2):
            task.check()
            if self.bench.failed:
                raise UserError(self.bench.doing)
            if task.enough.is_set():
                raise UserError("stopped before the first cycle")
            task.tell("progress", {"done": 0.0, "text": "compiling the learner"})

        def show(numbers: dict[str, Any], data: bytes) -> None:
            task.check()
            task.tell("taught", numbers, data)

        self.lesson = lessons.teach(order, self.lesson, show, task.enough.is_set)
        about = description(self.lesson.computer)
        task.tell("learned", {"taught": about, "lines": downloads.lines_of(None, self.lesson)})


def _text(error: Exception) -> str:
    """The message of an error; unexpected errors also print a traceback to the terminal."""
    if isinstance(error, UserError):
        return str(error)
    traceback.print_exception(error)
    return f"unexpected error: {error!r}; the terminal of the lab shows where"


_json = msgspec.json.Encoder(enc_hook=lambda value: value.item())  # NumPy's numbers


def packed(kind: str, number: int | None, numbers: dict[str, Any], data: bytes = b"") -> bytes:
    """An answer: length of the JSON (four bytes), the JSON, then the bytes."""
    head = _json.encode({"say": kind, "number": number, **numbers})
    return struct.pack("<I", len(head)) + head + data


def description(computer: Computer) -> dict[str, Any]:
    """Sizes, classes and learned patterns of a computer, for the page."""
    machine, patterns = computer.machine, computer.patterns
    one_per_class = [patterns.classes.index(number) for number in sorted(set(patterns.classes))]
    shown = (one_per_class or list(range(len(patterns))))[:MOST_SHOWN]
    pixels = [scenes.as_bytes(patterns.patterns[p, None, None], machine.visible) for p in shown]
    return {
        "visible": machine.visible, "hidden": machine.hidden, "labels": machine.labels,
        "styles": machine.styles, "stages": machine.stages, "parts": layout(machine).parts,
        "couplings": sum(block.edges for block in layout(machine).blocks),
        "shape": scenes.picture_shape(computer),
        "hidden_shape": scenes.nearly_square(machine.hidden),
        "digits": patterns.digits, "learned": len(patterns), "unfinished": computer.unfinished,
        "classes": [{"class": class_number, "name": _class_name(computer, class_number)}
                    for class_number in range(machine.labels)],
        "patterns": [{"name": patterns.labels[p], "pixels": grey.tobytes()}
                     for p, grey in zip(shown, pixels, strict=True)],
    }  # fmt: skip


def _class_name(computer: Computer, class_number: int) -> str:
    patterns = computer.patterns
    if patterns.digits or class_number not in patterns.classes:
        return str(class_number)
    return patterns.labels[patterns.classes.index(class_number)].partition("/")[0]
