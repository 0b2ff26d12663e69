"""The lab: its server refuses strangers, its numbers are the engine's, and a browser drives it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser, Page
from msgspec.structs import replace
from plain_rules import energy_gradient

import thermoloom as tl
from thermoloom.cli import laboratory
from thermoloom.computers.computer import Computer
from thermoloom.computers.computer_files import latest_samples
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.lab import downloads, inspection, lessons, messages, scenes
from thermoloom.lab.damage import Damage, damaged
from thermoloom.lab.messages import Generate, Inspect, Known, Teach
from thermoloom.lab.viewer import LabTask
from thermoloom.machine.action import gradient_of_residuals, residuals
from thermoloom.machine.energy import energy
from thermoloom.machine.protocol import generation_windows
from thermoloom.measures.classifier import classify
from thermoloom.patterns.drive import drive_of
from thermoloom.threads import process_threads, threads

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
websockets = pytest.importorskip("websockets")

from websockets.sync.client import connect  # noqa: E402

from thermoloom.lab import server as lab_server  # noqa: E402


@cache
def digits() -> Computer:
    """Draws any digit in a hundredth of a second: labels alone tell the pixels what to be."""
    machine = tl.Machine(
        hidden=0, labels=10, stages=2, wiring=("visible-label",), biases=("visible",), J4=0.0,
        dt=1e-2,
    )  # fmt: skip
    with threads(1):
        return machine.solve(tl.digits())


@cache
def wired() -> Computer:
    """Every kind of wire, two stages, labels with styles."""
    machine = tl.Machine(
        visible=16, hidden=6, labels=2, styles=2, stages=2, duration=0.5, dt=5e-3,
        wiring=("visible-hidden", "hidden-hidden", "visible-visible", "visible-label",
                "hidden-label"),
        biases=("visible", "hidden"),
    )  # fmt: skip
    with threads(1):
        return machine.solve(tl.digits(0, 1, per_class=2), resize=True)


def nothing(_: int) -> None:
    pass


def scene_of(computer: Computer, **order: Any) -> scenes.Scene:
    return scenes.make_scene(scenes.prepare(computer, Generate(number=1, **order)), nothing)


# --- scenes ---------------------------------------------------------------------------------------


def half_known() -> Known:
    pixels = np.random.default_rng(3).integers(0, 256, 16).astype(np.uint8)
    return Known(pixels.tobytes(), bytes([1] * 8 + [0] * 8))


@pytest.mark.parametrize("known", [False, True])
def test_the_first_law_holds_at_every_frame_also_where_clamps_move(known: bool) -> None:
    scene = scene_of(wired(), samples=3, seed=5, known=half_known() if known else None)
    way, made = scene.course, scene.generated
    total = sum(way["parts"].values())
    np.testing.assert_allclose(total - total[:, :1], way["work"] - way["heat"], atol=1e-4)
    np.testing.assert_allclose(way["heat"][:, -1], made.heat, rtol=1e-9)
    np.testing.assert_allclose(way["work"][:, -1], made.work, rtol=1e-9)
    if known:
        between = made.clamp_work_so_far
        assert between is not None
        # work of moving clamps by its definition, V(f', c') − V(f', c), step by step
        theta, clamp = scene.computer.parameters.astype(np.float64), scene.clamp
        steps = list(range(scene.computer.machine.steps + 1))
        every = generate(theta.astype(np.float32), 3, 5, None, clamp, steps, range(3))
        x = every.snapshots.astype(np.float64)
        mixed = x[:, 1:].copy()
        held = np.flatnonzero(clamp.units(theta.machine))
        mixed[:, :, held] = x[:, :-1, held]
        done = np.zeros((3, len(steps)))
        mask = clamp.units(theta.machine)
        words = scene.words[:, None]
        for stage, first, last in generation_windows(theta.machine):
            own = slice(first, last)
            done[:, first + 1 : last + 1] = energy(
                theta, x[:, 1:][:, own], stage, words, mask
            ) - energy(theta, mixed[:, own], stage, words, mask)
        np.testing.assert_allclose(np.cumsum(done, axis=1)[:, scene.steps], between, atol=2e-4)
        assert np.abs(between).max() > 0.1


@pytest.mark.parametrize("known", ["nothing", "still", "moving"])
def test_numbers_of_forming_samples_are_those_of_the_scene(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "LIVE_SECONDS", 0.0)
    half = None if known == "nothing" else replace(half_known(), hold=known == "still")
    prepared = scenes.prepare(wired(), Generate(number=1, samples=12, seed=5, known=half))
    shown: list[tuple[dict[str, Any], bytes]] = []
    with threads(1):
        scene = scenes.make_scene(prepared, nothing, lambda *frame: shown.append(frame))
    assert {numbers["sample"] for numbers, _ in shown} == ({0, 10} if known == "moving" else {0})
    pieces = b"".join(data for _, data in scenes.pieces(scene))
    replayed = np.frombuffer(pieces, np.uint8).reshape(scene.frames, 12, -1)
    for numbers, data in shown:
        own = slice(numbers["sample"], numbers["sample"] + len(numbers["heat"]))
        frame = numbers["frame"][0]
        points = [p for p, place in enumerate(scene.course["frame"]) if place == frame]
        assert numbers["stage"] == [scene.course["stage"][p] for p in points]
        total = sum(np.array(values) for values in numbers["parts"].values())
        expected = sum(values[own][:, points] for values in scene.course["parts"].values())
        np.testing.assert_allclose(total, expected, atol=0.05)  # each part is rounded
        for book in ("heat", "work"):
            if known == "moving":
                assert np.equal(numbers[book], None).all()
            else:
                np.testing.assert_allclose(
                    numbers[book], scene.course[book][own][:, points], atol=0.006
                )
        assert data == replayed[frame, own].tobytes()
    assert len(shown) == prepared.frames * len({numbers["sample"] for numbers, _ in shown})


def test_frames_are_bounded_and_have_every_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    computer = wired()
    steps = scenes.frame_steps(computer, 4)
    assert {first for _, first, _ in generation_windows(computer.machine)} <= set(steps)
    assert steps[0] == 0
    assert steps[-1] == computer.machine.steps
    monkeypatch.setattr(scenes, "KEPT_BYTES", 4 * 4 * 22 * 10)
    assert len(scenes.frame_steps(computer, 4)) <= 10
    monkeypatch.setattr(scenes, "KEPT_BYTES", 100)
    with pytest.raises(UserError, match="request fewer"):
        scenes.frame_steps(computer, 4)


def test_a_machine_that_runs_away_is_shown_as_such() -> None:
    scene = scene_of(wired(), samples=2, seed=1, damage=Damage(noise=10.0, temperature=100.0))
    assert len(scenes.verdicts(scene)) == 2
    for numbers, data in scenes.pieces(scene):
        json.dumps(numbers, allow_nan=False)
        assert len(data) % (2 * 22) == 0


# --- damage ---------------------------------------------------------------------------------------


def test_no_damage_changes_no_bit_and_every_knob_changes_something() -> None:
    whole = wired()
    same = damaged(whole, Damage()).parameters
    assert same.same_as(whole.parameters)
    assert same.machine.kT == whole.machine.kT
    for knob in (Damage(bits=4), Damage(noise=0.1), Damage(dead_wires=0.2), Damage(dead_units=0.2)):
        theta = damaged(whole, knob).parameters
        theta.check()  # symmetric, zero diagonal
        assert not theta.same_as(whole.parameters)
    hot = damaged(whole, Damage(temperature=2.0))
    assert hot.machine.kT == 2 * whole.machine.kT
    assert hot.parameters.same_as(whole.parameters)


def test_more_damage_contains_less_of_it_and_dead_units_are_cut_off() -> None:
    whole = wired()
    cut = [damaged(whole, Damage(dead_wires=f)).parameters["visible_hidden"] == 0
           for f in (0.2, 0.5)]  # fmt: skip
    assert np.all(cut[1][cut[0]])
    assert cut[1].mean() == pytest.approx(0.5, abs=0.15)
    gone = damaged(whole, Damage(dead_units=1.0)).parameters
    assert not gone.vector.any()
    noise = Damage(noise=0.5)
    change = damaged(whole, noise).parameters["visible_visible"] - whole["visible_visible"]
    for stage in range(2):
        rms = np.sqrt(np.mean(whole["visible_visible"][stage] ** 2))
        assert np.std(change[stage]) == pytest.approx(0.5 * rms, rel=0.25)


# --- inspection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [3, 18])
def test_the_parts_of_a_force_are_minus_the_gradient_of_the_energy(unit: int) -> None:
    scene = scene_of(wired(), samples=2, seed=8)
    frame = scene.steps.index(75)
    found, data = inspection.inspect(scene, Inspect(number=1, sample=1, frame=frame, unit=unit))
    state = scene.generated.snapshots[1, frame].astype(np.float64)
    gradient = energy_gradient(scene.computer.parameters, state, 0, scene.words[1])
    assert found["window"] == 1
    assert found["total"] == pytest.approx(-gradient[unit], rel=1e-5)
    assert found["mapped"] == "visible"
    assert len(data) == 16
    assert len(found["forces"]) == 5  # its own potential, three kinds of wires, the bias
    strength = [abs(partner["force"]) for partner in found["partners"]]
    assert strength == sorted(strength, reverse=True)


@pytest.mark.parametrize(
    ("i", "j", "block"), [(3, 18, "visible_hidden"), (3, 7, "visible_visible"),
                          (18, 17, "hidden_hidden"), (2, 23, "visible_label"),
                          (19, 26, "hidden_bias")],
)  # fmt: skip
def test_the_local_rule_is_the_gradient_of_the_loss_of_one_step(i: int, j: int, block: str) -> None:
    computer = wired()
    scene = scene_of(computer, samples=2, seed=8)
    frame = scene.steps.index(75)
    order = Inspect(number=1, sample=1, frame=frame, unit=i, partner=j)
    rule = inspection.inspect(scene, order)[0]["rule"]
    machine, theta = computer.parameters.machine, computer.parameters
    fields, words = drive_of(computer.patterns, machine)
    pattern = int(np.argmax((words == scene.words[1]).all(axis=1)))
    path = engine().path(machine, fields[pattern], 101, 0, words[pattern]).states.astype(float)
    r = residuals(theta.astype(np.float64), path, words[pattern])
    only = np.zeros_like(r)
    only[rule["step"]] = r[rule["step"]]
    slope = gradient_of_residuals(machine, only, path[1:], words[pattern])[block][0]
    groups = {"visible": 0, "hidden": 16, "label": 22, "one": 26}
    rows, columns = (theta.layout[block].rows, theta.layout[block].columns)
    place = (i - groups[rows], j - groups[columns])
    expected = slope[place[0]] if columns == "one" else slope[place]
    assert rule["wired"]
    assert rule["step"] == machine.steps - 75 - 1
    assert rule["update"] == pytest.approx(-computer.settings.learning_rate * expected, rel=2e-3)
    assert rule["after"] - rule["J"] == pytest.approx(rule["update"])


def test_what_is_not_there_is_said_to_be_missing() -> None:
    scene = scene_of(wired(), samples=2)
    for wrong in ({"unit": 22}, {"sample": 2}, {"frame": 999}, {"unit": 1, "partner": 27}):
        order = {"number": 1, "sample": 0, "frame": 0, "unit": 0} | wrong
        with pytest.raises(UserError, match="must be from"):
            inspection.inspect(scene, Inspect(**order))
    sparse = tl.Machine(
        visible=16, hidden=0, duration=0.1, wiring=("visible-visible",), biases=("visible",),
        topology="grid", radius=1,
    ).solve(tl.digits(0, 1), resize=True)  # fmt: skip
    broken = damaged(sparse, Damage(noise=1.0)).parameters
    broken.check()  # no coupling where there is no wire
    assert not broken.same_as(sparse.parameters)
    found = scene_of(sparse, samples=1)
    for partner, wired_to in ((1, True), (15, False), (16, True)):
        order = Inspect(number=1, sample=0, frame=3, unit=0, partner=partner)
        assert inspection.inspect(found, order)[0]["rule"]["wired"] is wired_to
    alone = inspection.inspect(scene_of(digits(), samples=1),
                               Inspect(number=1, sample=0, frame=0, unit=5, partner=6))  # fmt: skip
    assert alone[0]["rule"]["wired"] is False


# --- lessons --------------------------------------------------------------------------------------

CROSS = np.array([[255 * (abs(x - y) < 2 or abs(x + y - 13) < 2) for x in range(14)]
                  for y in range(14)], np.uint8)  # fmt: skip
BARS = np.tile(np.repeat([255, 0], [7, 7]), (14, 1)).astype(np.uint8)


def taught(*orders: dict[str, Any]) -> tuple[lessons.Lesson, list[dict[str, Any]]]:
    lesson, shown = None, []
    for order in orders:
        wanted = Teach(number=1, patterns=[CROSS.tobytes(), BARS.tobytes()], hidden=4, **order)
        lesson = lessons.teach(
            wanted, lesson, lambda numbers, _: shown.append(numbers), lambda: False
        )
    assert lesson is not None
    return lesson, shown


def test_a_lesson_goes_on_as_if_it_had_never_stopped() -> None:
    parts, shown = taught({"cycles": 4}, {"cycles": 3, "more": True})
    whole, _ = taught({"cycles": 7})
    assert parts.computer.parameters.same_as(whole.computer.parameters)
    assert shown[-1]["trial"]["samples"] == 2
    assert [p[0] for numbers in shown for p in numbers["loss"]][-1] == 7
    other, _ = taught({"cycles": 4}, {"cycles": 3, "more": False})
    assert other.computer.settings.training.cycles == 3


def test_a_lesson_that_is_stopped_keeps_what_was_learned() -> None:
    cycles = iter(range(100))
    wanted = Teach(number=1, patterns=[CROSS.tobytes(), BARS.tobytes()], hidden=4, cycles=50)
    lesson = lessons.teach(wanted, None, lambda *_: None, lambda: next(cycles) == 2)
    assert lesson.computer.settings.training.cycles == 3
    assert lesson.taught[-1].cycles == 3
    assert lesson.computer.parameters.same_as(taught({"cycles": 3})[0].computer.parameters)


# --- exports --------------------------------------------------------------------------------------


def run_lines(lines: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    exec(compile(lines, "lines", "exec"), found)
    assert (folder / "drawn.png").exists()
    return found


@pytest.mark.parametrize(
    "order",
    [
        {"classes": [1], "samples": 3},
        {"known": half_known(), "damage": Damage(bits=5, dead_units=0.1, temperature=0.5)},
    ],
)
def test_the_python_lines_do_the_same_to_the_bit(
    order: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(wired(), seed=11, **order)
    (tmp_path / downloads.FILE).write_bytes(downloads.computer_file(wired()))
    drawn = run_lines(downloads.lines_of(scene, None), tmp_path, monkeypatch)["drawn"]
    np.testing.assert_array_equal(drawn.states, scene.generated.final_states)
    np.testing.assert_array_equal(drawn.heat, scene.generated.heat)


@pytest.mark.parametrize("rule", ["delayed", "optimum"])
def test_the_python_lines_teach_the_same(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson, _ = taught({"rule": rule, "cycles": 4}, {"rule": rule, "cycles": 2, "more": True})
    order = Generate(number=1, computer="taught", samples=2)
    scene = scenes.make_scene(scenes.prepare(lesson.computer, order), nothing)
    drawn = run_lines(downloads.lines_of(scene, lesson), tmp_path, monkeypatch)["drawn"]
    np.testing.assert_array_equal(drawn.states, scene.generated.final_states)


def test_the_run_directory_is_one_that_everything_else_opens(tmp_path: Path) -> None:
    scene = scene_of(wired(), samples=3, seed=4, classes=[1])
    packed = downloads.run_directory(wired(), scene)
    zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path)
    computer = tl.load(tmp_path / downloads.RUN)
    assert computer.parameters.same_as(wired().parameters)
    latest = latest_samples(tmp_path / downloads.RUN)
    assert latest is not None
    np.testing.assert_array_equal(latest[1].heat, scene.generated.heat)
    assert latest[2] == [1, 1, 1]


# --- the server -----------------------------------------------------------------------------------


class Running:
    """A lab on a free port, in threads of this process."""

    def __init__(self, computer: Callable[[], Computer] = digits) -> None:
        self.socket = lab_server.listening(0)
        self.port = self.socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = lab_server.server_of(lambda _: computer())
        self.thread = threading.Thread(
            target=lambda: self.server.run(sockets=[self.socket]), daemon=True
        )
        self.thread.start()

    @property
    def status(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.address}/status", timeout=60) as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def connect(self, host: str = "127.0.0.1", origin: str | None = "own") -> Any:
        """A connection of a page of this origin that takes the server for ``host``."""
        return connect(
            f"ws://{host}:{self.port}/viewer",
            sock=socket.create_connection(("127.0.0.1", self.port)),
            origin=self.address if origin == "own" else origin,
            compression=None, max_size=None,
        )  # fmt: skip

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.socket.close()


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Running]:
    with process_threads(1):
        found = Running()
        yield found
        found.close()


@pytest.fixture
def running(shared_lab: Running) -> Running:
    """The lab that all tests share, once the pages of the test before have left."""
    until = time.monotonic() + 10
    while shared_lab.status["viewers"] and time.monotonic() < until:
        time.sleep(0.01)
    return shared_lab


def answers(connection: Any, *wanted: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Answers up to the first of a wanted kind."""
    while True:
        content = connection.recv(timeout=60)
        length = struct.unpack_from("<I", content)[0]
        head = json.loads(content[4 : 4 + length])
        yield head, content[4 + length :]
        if head["say"] in wanted:
            return


def last(connection: Any, *wanted: str) -> dict[str, Any]:
    return list(answers(connection, *wanted))[-1][0]


def test_ten_viewers_at_once_get_what_the_engine_makes(running: Running) -> None:
    with ExitStack() as stack:
        look_at(running, [stack.enter_context(running.connect()) for _ in range(10)])


def look_at(running: Running, pages: list[Any]) -> None:
    for number, page in enumerate(pages):
        last(page, "ready")
        order = {"do": "generate", "number": 5, "samples": 2, "seed": number, "classes": [number]}
        page.send(json.dumps(order))
    assert running.status["viewers"] == 10
    for number, page in enumerate(pages):
        drawn = digits().generate(2, seed=number, classes=[number])
        heat, frames, scene = [], b"", {}
        for head, data in answers(page, "generated"):
            assert head["number"] == 5
            scene = head if head["say"] == "scene" else scene
            if head["say"] == "frames":
                heat += [head["heat"][0][-1]]
                frames += data
        assert len(frames) == len(scene["times"]) * 2 * 784
        assert heat[-1] == pytest.approx(drawn.heat[0], abs=0.006)
        assert [v["seen"] for v in scene["verdicts"]] == [number, number]


def held_back(monkeypatch: pytest.MonkeyPatch, until: threading.Event) -> None:
    """Let the engine take no step after its first snapshot before the event."""

    def patient(*order: Any, on_snapshot: Any, **more: Any) -> Any:
        def see(step: int, first: int, states: np.ndarray) -> None:
            on_snapshot(step, first, states)
            assert until.wait(20)

        return generate(*order, on_snapshot=see, **more)

    monkeypatch.setattr(scenes, "generate", patient)
    monkeypatch.setattr(scenes, "LIVE_SECONDS", 0.0)


def test_samples_are_seen_while_they_are_computed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()
    held_back(monkeypatch, until=seen)
    with running.connect() as page:
        last(page, "ready")
        page.send('{"do": "generate", "number": 5, "samples": 3, "seed": 2}')
        live, frames, scene = [], b"", {}
        for head, data in answers(page, "generated"):
            if head["say"] == "forming":
                seen.set()  # only now does the engine go on
                assert not scene
                live.append((head, data))
            scene = head if head["say"] == "scene" else scene
            frames += data if head["say"] == "frames" else b""
    at = [head["frame"][-1] for head, _ in live]
    assert at == sorted(at)
    assert (at[0], at[-1]) == (0, len(scene["times"]) - 1)
    assert live[-1][1] == frames[-3 * 784 :]
    heat = [row[-1] for row in live[-1][0]["heat"]]
    assert heat == pytest.approx([v["heat"] for v in scene["verdicts"]], abs=0.006)


def test_generation_ends_when_its_page_is_closed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()
    held_back(monkeypatch, until=gone)
    with running.connect() as page:
        last(page, "ready")
        page.send('{"do": "generate", "number": 5}')
        last(page, "forming")
        (viewer,) = running_viewers(running).values()
        work = viewer.task
    began = time.monotonic()
    while running.status["viewers"] and time.monotonic() - began < 10:
        time.sleep(0.01)
    gone.set()
    assert work.over.wait(10)
    assert viewer.scene is None


def test_a_page_that_is_slow_misses_frames_and_holds_nothing_up() -> None:
    sent = []

    async def look() -> None:
        free = asyncio.Event()

        async def send(content: bytes) -> None:
            await free.wait()
            sent.append(content)

        work = LabTask(1, asyncio.get_running_loop(), send, threading.Semaphore(1))
        for place in range(100):
            work.offer("forming", {"place": place})
        free.set()
        await asyncio.to_thread(work.tell, "scene", {})

    asyncio.run(look())
    assert [json.loads(content[4:])["say"] for content in sent] == ["forming", "scene"]


def test_a_task_that_waits_for_its_page_lets_another_one_compute() -> None:
    """One core, and a page that never reads: the other viewer's task goes on at once."""
    cores = threading.Semaphore(1)

    async def look() -> None:
        free = asyncio.Event()

        async def send(content: bytes) -> None:
            await free.wait()

        def stuck() -> None:
            with slow.at_work():
                slow.tell("scene", {})

        def computed() -> bool:
            with quick.at_work():
                return True

        loop = asyncio.get_running_loop()
        slow, quick = (LabTask(number, loop, send, cores) for number in (1, 2))
        waiting = asyncio.create_task(asyncio.to_thread(stuck))
        await asyncio.sleep(0.2)
        assert await asyncio.wait_for(asyncio.to_thread(computed), 5)
        assert not waiting.done()
        free.set()
        await waiting

    asyncio.run(look())
    assert cores.acquire(blocking=False)


GARBAGE = [
    "", "nonsense", "[]", "null", "{}", "\x00", '{"do": "fly", "number": 1}', b"\xff\xfe\x00",
    '{"do": "generate"}', '{"do": "generate", "number": -1}', "[" * 5000, '{"a":' * 3000,
    '{"do": "generate", "number": 1, "samples": 1000000}',
    '{"do": "generate", "number": 1, "classes": [99]}',
    '{"do": "generate", "number": 1, "classes": ["x"]}',
    '{"do": "generate", "number": 1, "seed": 1e400}',
    '{"do": "generate", "number": 1, "computer": "taught"}',
    '{"do": "generate", "number": 1, "damage": {"bits": 1}}',
    '{"do": "generate", "number": 1, "damage": {"bits": 27}}',
    '{"do": "generate", "number": 1, "known": {"pixels": "AAAA", "mask": "AQEB"}}',
    '{"do": "generate", "number": 1, "extra": 1}',
    '{"do": "teach", "number": 1, "patterns": []}',
    '{"do": "teach", "number": 1, "patterns": ["AAAA"]}',
    json.dumps({"do": "teach", "number": 1, "patterns": [base64.b64encode(bytes(196)).decode()]}),
    '{"do": "teach", "number": 1, "patterns": ["AAAA"], "cycles": 1e9}',
    '{"do": "inspect", "number": 1, "sample": 0, "frame": 0, "unit": 0}',
]  # fmt: skip


def test_garbage_is_answered_and_nothing_dies(running: Running) -> None:
    with running.connect() as page:
        last(page, "ready")
        for wrong in GARBAGE:
            page.send(wrong)
            told = last(page, "error")["text"]
            assert told
            assert "unexpected" not in told, (wrong, told)
        page.send('{"do": "generate", "number": 9, "samples": 1, "classes": [4]}')
        assert last(page, "generated")["number"] == 9
        page.send("x" * (messages.MESSAGE_BYTES + 1))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            page.recv(timeout=10)
        assert closed.value.rcvd.code == 1009
    with running.connect() as page:
        assert last(page, "ready")["given"]["visible"] == 784


def lesson_of(cycles: int) -> str:
    pictures = [base64.b64encode(image.tobytes()).decode() for image in (CROSS, BARS)]
    return json.dumps({"do": "teach", "number": 3, "patterns": pictures, "cycles": cycles})


def test_work_is_stopped_replaced_and_limited(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running.connect() as page:
        last(page, "ready")
        page.send(lesson_of(1000))
        last(page, "taught")
        page.send('{"do": "stop", "number": 4}')
        assert last(page, "learned")["number"] == 3  # and keeps what was learned
        (viewer,) = running_viewers(running).values()
        assert 1 <= viewer.lesson.computer.settings.training.cycles < 1000
        page.send(lesson_of(1000))
        last(page, "taught")
        page.send('{"do": "generate", "number": 5, "samples": 1, "classes": [2]}')
        said = [(head["say"], head["number"]) for head, _ in answers(page, "generated")]
        assert said[-1] == ("generated", 5)
        assert ("learned", 3) not in said
        monkeypatch.setattr("thermoloom.lab.viewer.WORK_SECONDS", 0.1)
        page.send(lesson_of(1000))
        assert "request fewer" in last(page, "error", "learned")["text"]


@pytest.mark.skipif(
    int(version("websockets").partition(".")[0]) < 15,
    reason="older clients lose what came before the close",
)
def test_one_page_too_many_is_told_so(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_server, "MOST_VIEWERS", 1)
    with running.connect() as first, running.connect() as second:
        last(first, "ready")
        assert "close one" in last(second, "full")["text"]


@pytest.mark.parametrize(
    "stranger",
    [
        {"origin": "http://example.com"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": None},
        {"host": "rebound.example.com"},
    ],
)
def test_strangers_do_not_get_a_connection(running: Running, stranger: dict[str, Any]) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused, running.connect(**stranger):
        pass
    assert refused.value.response.status_code == 403
    assert running.status["viewers"] == 0


def refusal(request: str | urllib.request.Request) -> int:
    """The status of a request that the server refuses."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    refused.value.close()
    return refused.value.code


@pytest.mark.parametrize(
    "headers", [{"Host": "rebound.example.com"}, {"Host": "127.0.0.1"}, {"Origin": "http://a.com"}]
)
def test_strangers_do_not_get_the_page(running: Running, headers: dict[str, str]) -> None:
    request = urllib.request.Request(running.address, headers=headers)
    assert refusal(request) == 403


def test_only_loopback_is_let_through() -> None:
    scope = {"type": "http", "server": ("127.0.0.1", 8377), "client": ("127.0.0.1", 5),
             "headers": [(b"host", b"localhost:8377")]}  # fmt: skip
    assert lab_server.refused(scope) == ""
    assert lab_server.refused(scope | {"client": ("10.0.0.7", 5)}) == "not from this machine"
    assert lab_server.refused(scope | {"client": None}) == "not from this machine"
    twice = [*scope["headers"], (b"host", b"localhost:8377")]
    assert "Host" in lab_server.refused(scope | {"headers": twice})


def test_the_page_may_load_nothing_from_elsewhere(running: Running) -> None:
    with urllib.request.urlopen(running.address) as answer:
        policy, text = answer.headers["content-security-policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == {"data:,", "lab.css", "lab.js"}
    for file in (Path(lab_server.__file__).parent / "page").iterdir():
        assert "//" not in re.sub(r"(?m)(^|\s)//.*$|ws://\$", "", file.read_text("utf-8"))


def test_files_are_given_to_those_who_made_them(running: Running) -> None:
    with running.connect() as page:
        viewer = last(page, "ready")["viewer"]
        with urllib.request.urlopen(
            f"{running.address}/export/{viewer}/given-{downloads.FILE}"
        ) as file:
            assert file.read() == downloads.computer_file(digits())
        for path, code in ((f"{viewer}/taught-{downloads.FILE}", 409), ("nobody/given-x", 404),
                           (f"{viewer}/given-../../secret", 404)):  # fmt: skip
            assert refusal(f"{running.address}/export/{path}") == code


# --- in a real browser ----------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
IDLE = "document.querySelector('#state').className === 'ready'"
WHOLE = f"window.lab?.player.whole && {IDLE}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def page(running: Running, browser: Browser) -> Iterator[Page]:
    """The lab, with its first samples made."""
    opened = browser.open(running.address)
    opened.until(WHOLE)
    try:
        yield opened
        assert opened.complaints == []
    finally:
        opened.close()


def shown_images(page: Page) -> np.ndarray:
    """The samples as they are on the page, by the brightness of their colours."""
    found = page.run(
        "(copy => [...document.querySelectorAll('#sheet canvas')].map(canvas => {"
        "  copy.drawImage(canvas, 0, 0); return [...copy.getImageData(0, 0, 28, 28).data]; }))"
        "(document.createElement('canvas').getContext('2d', {willReadFrequently: true}))"
    )
    colours = np.array(found, float).reshape(len(found), 784, 4)
    return colours[..., :3] @ [0.3, 0.59, 0.11]


@needs_browser
def test_a_requested_class_is_on_the_page(page: Page) -> None:
    page.click("#panel-generate [data-class='7']")
    page.click("#panel-generate [data-class='4']")
    page.run("document.querySelector('#samples').value = 4")
    page.run(  # the time and the last picture, whenever samples are drawn while they form
        "lab.live = []; const {player} = lab, formed = player.formed; player.formed = (...frame) =>"
        "{ formed.apply(player, frame); lab.live.push("
        "[player.time, player.sheet.lastChild.firstElementChild.toDataURL()]); }"
    )
    page.click("#generate")
    page.until(f"lab.player.scene.samples === 4 && {WHOLE}")
    times, pictures = zip(*page.run("lab.live"), strict=True)
    assert (times[0], times[-1]) == (0, 1)
    assert len(set(pictures)) == len(times)
    page.run("document.activeElement.blur()")
    assert page.run("lab.player.playing")
    page.press(" ")  # pauses
    assert not page.run("lab.player.playing")
    noise = shown_images(page)
    page.run("lab.player.seek(1)")
    assert classify(shown_images(page)).argmax(axis=1).tolist() == [4, 7, 4, 7]
    assert np.abs(noise - shown_images(page)).mean() > 10
    told = page.run("[...document.querySelectorAll('#sheet b')].map(e => e.textContent)")
    assert told == ["4 ✓", "7 ✓", "4 ✓", "7 ✓"]
    seed = page.run("Number(document.querySelector('#seed').value)")
    drawn = digits().generate(4, seed=seed, classes=[4, 7])
    numbers = page.run(
        "['heat', 'heat-kt', 'work'].map(id => document.getElementById(id).textContent)"
    )
    heat, in_kT, work = (float(text.replace(",", "").replace("−", "-")) for text in numbers)
    assert heat == pytest.approx(drawn.heat.mean(), abs=0.51)
    assert in_kT == pytest.approx(drawn.heat.mean() / 0.1, abs=0.6)
    assert work == pytest.approx(drawn.work.mean(), abs=0.51)


@needs_browser
def test_the_brush_holds_what_the_machine_completes(page: Page, running: Running) -> None:
    page.click("#tab-complete")
    page.run(  # a picture with dark ink on white paper
        "new Promise(done => { const c = document.createElement('canvas'), d = c.getContext('2d');"
        "c.width = c.height = 140; d.fillStyle = '#fff'; d.fillRect(0, 0, 140, 140);"
        "d.fillStyle = '#000'; d.fillRect(60, 20, 20, 100); c.toBlob(b => {"
        "const t = new DataTransfer(), i = document.querySelector('#picture');"
        "t.items.add(new File([b], 'one.png')); i.files = t.files;"
        "i.dispatchEvent(new Event('change')); done(); }); })"
    )
    page.until(  # the bar, and not the digit that was there before
        "[5, 9, 14, 18, 23].every(row => lab.known.ink[row * 28 + 14] > 250)"
        " && lab.known.ink[14 * 28 + 20] < 5"
    )
    page.click("#examples button:nth-child(4)")
    page.click("[data-mask=none]")
    page.click("#complete")
    assert "Hold some pixels" in page.run("document.querySelector('#notice').textContent")
    page.run("lab.known.size = 7")
    page.drag("#known", (0.02, 0.1), (0.98, 0.1))
    page.drag("#known", (0.02, 0.35), (0.98, 0.35))
    mask = np.array(page.run("[...lab.known.mask]"), bool).reshape(28, 28)
    assert mask[:12].mean() > 0.7
    assert not mask[15:].any()
    page.click("#panel-complete [data-class='8']")
    page.click("#complete")
    page.until(f"lab.player.scene.verdicts.every(v => v.requested === 8) && {WHOLE}")
    scene = next(iter(running_viewers(running).values())).scene
    assert scene is not None
    assert scene.clamp is not None
    np.testing.assert_array_equal(scene.clamp.mask.reshape(28, 28), mask)
    final = scene.generated.final_states.reshape(-1, 28, 28).mean(axis=0)
    three, eight = digits().patterns.patterns[[3, 8]].reshape(2, 28, 28)
    assert np.corrcoef(final[mask], three[mask])[0, 1] > 0.95
    assert np.corrcoef(final[~mask], eight[~mask])[0, 1] > 0.9


def running_viewers(running: Running) -> Any:
    return running.server.config.app.state.lab.viewers


@needs_browser
def test_a_drawn_pattern_is_learned(page: Page) -> None:
    page.click("#tab-teach")
    page.click("#draw-clear")
    page.drag("#draw", (0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8))
    ink = np.array(page.run("[...lab.draw.ink]"), float)
    assert 20 < np.count_nonzero(ink > 128) < 120
    page.run("document.querySelector('#cycles').value = 60")
    page.run("document.querySelector('#hidden-units').value = 8")
    page.click("#teach")
    page.until(f"lab.machines.taught && {IDLE}")
    losses = page.run("document.querySelector('#losses').getAttribute('aria-label')")
    assert losses.endswith("after 60 cycles")
    drawn = np.array(page.run(
        "[...document.querySelector('#trials canvas').getContext('2d')"
        ".getImageData(0, 0, 14, 14).data]"
    ), float).reshape(196, 4)[:, :3] @ [0.3, 0.59, 0.11]  # fmt: skip
    assert np.corrcoef(drawn, ink)[0, 1] > 0.7
    page.click("#tab-generate")  # what was taught shows what it can do
    page.until(f"lab.player.scene.visible === 196 && {WHOLE}")
    page.click("#tab-export")
    assert "machine.train" in page.run("document.querySelector('#lines').textContent")


@needs_browser
def test_damage_inspection_and_export_from_the_page(page: Page) -> None:
    page.click("#tab-damage")
    page.run("document.querySelector('#dead-units').value = 1")
    page.click("#damage")
    page.until("document.querySelectorAll('#history tbody tr').length === 2")
    page.until(IDLE)
    rows = page.run("[...document.querySelectorAll('#history tbody tr')].map(r => r.innerText)")
    assert "100 % dead units" in rows[0]
    assert "none" in rows[1]
    assert "10 / 10" in rows[1]
    page.click("#tab-inspect")
    page.drag("#visible", (0.51, 0.51))
    page.until("document.querySelector('#unit').textContent.includes('visible 406')")
    page.click("#tab-export")
    assert "damaged(computer" in page.run("document.querySelector('#lines').textContent")
    size = page.run("fetch(document.querySelector('#save-run').href).then(r => r.blob())"
                    ".then(b => b.size)")  # fmt: skip
    assert size > 10_000


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_on_a_telephone_and_tabs_turn_by_keyboard(
    page: Page, dark: bool
) -> None:
    page.look(390, 844, dark)
    page.run("document.querySelector('#tab-generate').focus()")
    for name in ("complete", "teach", "damage", "inspect", "export"):
        page.press("ArrowRight")
        assert page.run("document.activeElement.id") == f"tab-{name}"
        assert page.run(f"!document.querySelector('#panel-{name}').hidden")
        wide = page.run("document.documentElement.scrollWidth")
        assert wide <= 390, name
    unnamed = page.run(
        "[...document.querySelectorAll('button, input, select, canvas, a')].filter(e => !e.hidden"
        " && !e.textContent.trim() && !e.getAttribute('aria-label') && !e.closest('label')"
        " && !e.closest('[aria-label]')).map(e => e.outerHTML)"
    )
    assert unnamed == []


@needs_browser
def test_work_ends_when_its_page_is_closed(running: Running, browser: Browser) -> None:
    page = browser.open(running.address)
    page.until(WHOLE)
    page.click("#tab-teach")
    page.run("document.querySelector('#cycles').max = 1000")
    page.run("document.querySelector('#cycles').value = 1000")
    page.click("#teach")
    page.until("Number(document.querySelector('#cycle').textContent) > 0")
    (viewer,) = running_viewers(running).values()
    work = viewer.task
    assert work is not None
    assert running.status["working"] == 1
    page.close()
    began = time.monotonic()
    while running.status["viewers"] or not work.over.is_set():
        assert time.monotonic() - began < 10
        time.sleep(0.02)
    assert viewer.lesson is None  # a thousand cycles were not done


@needs_browser
def test_an_unfinished_training_is_marked(browser: Browser) -> None:
    computer = dataclasses.replace(digits(), planned_cycles=900)
    with process_threads(1):
        lab = Running(lambda: computer)
        try:
            page = browser.open(lab.address)
            mark = page.until("document.querySelector('#unfinished')?.textContent")
            page.close()
        finally:
            lab.close()
    assert mark == computer.unfinished == "unfinished: 300 of 900 cycles"


# --- the command ----------------------------------------------------------------------------------


def test_the_command_opens_a_computer_and_closes_by_an_interrupt(tmp_path: Path) -> None:
    wired().save(tmp_path / "mine.safetensors")
    code = "from thermoloom.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "lab", str(tmp_path / "mine.safetensors"), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    host = address.removeprefix("http://")
    with connect(f"ws://{host}/viewer", origin=address) as page:
        assert last(page, "ready")["given"]["visible"] == 16
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "the lab is closed" in told
    assert "Traceback" not in told


def test_mistakes_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="nowhere"):
        laboratory.lab(tmp_path / "nowhere", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: .*--port 0 selects any free one"):
            laboratory.lab(None, port)
    monkeypatch.delitem(sys.modules, "thermoloom.lab.server")
    for missing in ("uvicorn", "starlette.applications", "websockets"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, missing, None)
            with pytest.raises(UserError, match=r"pip install 'thermoloom\[lab\]'"):
                laboratory.lab(None, 0)
