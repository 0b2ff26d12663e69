"""Rows, timers and limits that all groups of benchmarks share.

Contestants are measured alternately in one run, and the best round of each counts: another process
that takes a core for a while then disturbs all of them alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from inspect import isgeneratorfunction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive, drive_of, unit_fields
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.settings import Settings
from thermoloom.threads import in_threads, thread_count, threads

Seconds = float
Contestant = Callable[[], Seconds]
"""Does its work once and returns the seconds per unit of work."""

SGEMM_SIZE = 1024
SETTLE_SECONDS = 0.05
"""Pause before each measurement: thread pools keep spinning for some milliseconds after work."""


@dataclass(frozen=True)
class Row:
    """One measured number, its limit, and the bar it has to clear."""

    name: str
    value: float
    unit: str
    better: str = "less"
    """``less`` or ``more``: the better direction."""
    limit: float | None = None
    """The best value that the hardware (or the definition) allows, in the same unit."""
    bar: float | None = None
    note: str = ""

    @property
    def fraction(self) -> float | None:
        """Fraction of the limit that is reached; 1 is the limit itself."""
        if self.limit is None:
            return None
        return self.limit / self.value if self.better == "less" else self.value / self.limit

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.better == "less" else self.value >= self.bar

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"fraction": self.fraction, "met": self.met}


@dataclass(frozen=True)
class Share:
    """One part of a task, and the time it takes."""

    part: str
    value: float
    unit: str
    fraction: float


@dataclass
class Result:
    """Results of a group of benchmarks."""

    rows: list[Row] = field(default_factory=list)
    profiles: dict[str, list[Share]] = field(default_factory=dict)
    """Where the time of each task goes."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Options:
    """How thoroughly to measure."""

    full: bool = False
    """Full lengths instead of scaled-down ones in long benchmarks."""
    rounds: int = 5
    """Rounds for each contestant."""
    say: Callable[[str], None] = lambda text: None
    """Receives a line about each measurement before it begins."""


def clocked(work: Callable[[], object], count: int = 1, tries: int = 1) -> Contestant:
    """A contestant that returns the seconds of ``work`` per ``count``, best of its tries."""

    def once() -> Seconds:
        began = time.perf_counter()
        work()
        return (time.perf_counter() - began) / count

    return lambda: min(once() for _ in range(tries))


def limited(count: int, contestant: Contestant) -> Contestant:
    """The contestant on ``count`` threads, both ours and those of linear algebra."""

    def run() -> Seconds:
        with threads(count):
            return contestant()

    return run


def in_turns(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, Seconds]:
    """The best time of each contestant over ``rounds`` rounds, after one warm-up round."""
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds + 1):
        for name, contestant in contestants.items():
            time.sleep(SETTLE_SECONDS)
            seconds = contestant()
            if turn > 0:
                best[name] = min(best[name], seconds)
    return best


def sgemm(count: int) -> Contestant:
    """NumPy's float32 product of two 1024 × 1024 matrices on ``count`` threads, timed per FLOP."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SGEMM_SIZE, SGEMM_SIZE), np.float32)
    out = np.empty_like(a)
    return limited(count, clocked(lambda: np.matmul(a, b, out=out), 2 * SGEMM_SIZE**3, tries=10))


def memory_copy(nbytes: int, count: int, repetitions: int = 200) -> Contestant:
    """Repeated copying of ``nbytes``, one part on each of ``count`` threads, timed per byte."""
    parts = [np.ones((2, nbytes // 4 // count), np.float32) for _ in range(count)]

    def copy(part: NDArray[np.float32]) -> None:
        for _ in range(repetitions):
            np.copyto(part[0], part[1])

    pieces = [(part,) for part in parts]
    return limited(count, clocked(lambda: in_threads(copy, pieces), nbytes * repetitions, tries=3))


def default_fields(settings: Settings) -> NDArray[np.float32]:
    """Fields of the patterns in the settings, by default of the three bundled ones."""
    return unit_fields(load_patterns(settings.patterns, settings.machine), settings.machine)


def default_drive(settings: Settings) -> Drive:
    """Fields and label words of the patterns in the settings."""
    return drive_of(load_patterns(settings.patterns, settings.machine), settings.machine)


def many_fields(count: int) -> NDArray[np.float32]:
    """Fields of this many patterns: three digits, all bundled ones, or also shifted copies."""
    settings = Settings()
    if count <= 3:
        return default_fields(settings)[:count]
    every = replace(settings.patterns, digits=tuple(range(10)), per_digit=10)
    bundled = load_patterns(every, settings.machine)
    images = bundled.patterns.reshape(-1, 28, 28)
    moved = [np.roll(images, (i % 4, i // 4), axis=(1, 2)) for i in range(-(-count // 100))]
    patterns = np.concatenate(moved).reshape(-1, 784)[:count]
    names = tuple(str(i) for i in range(count))
    return unit_fields(Patterns(patterns, names), settings.machine)


def force_flops(machine: Machine) -> int:
    """J x of one state: 2 (2 N_v N_h + N_h²)."""
    v, h = machine.visible, machine.hidden
    return 2 * (2 * v * h + h * h)


def update_flops(machine: Machine) -> int:
    """One rank-2 update, 4 per coupling, each undirected edge once: 4 N_v N_h + 2 N_h²."""
    v, h = machine.visible, machine.hidden
    return 4 * v * h + 2 * h * h


def parameter_bytes(machine: Machine) -> int:
    """Size of θ in float32."""
    v, h = machine.visible, machine.hidden
    return 4 * (v * h + h * h + h)


# Where the time goes: timers wrapped around the engine's functions.


@dataclass(frozen=True)
class Place:
    """A function to be timed: an attribute of a module or class."""

    owner: Any
    name: str
    part: str
    """The name under which its time is recorded."""
    side_by_side: int = 1
    """Number of threads on which it runs at the same time."""


class Stopwatch:
    """Seconds of each part, summed over threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, Seconds] = {}
        self._lock = threading.Lock()

    def add(self, part: str, seconds: Seconds) -> None:
        with self._lock:
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def around(self, place: Place, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.add(place.part, (time.perf_counter() - began) / place.side_by_side)

        def timed_steps(*args: Any, **kwargs: Any) -> Generator[None, None, Any]:
            steps = function(*args, **kwargs)
            advance = self.around(place, steps.__next__)
            while True:  # time between two steps does not count
                try:
                    advance()
                except StopIteration as end:
                    return end.value
                yield

        return timed_steps if isgeneratorfunction(function) else timed


@contextmanager
def stopwatch(places: Sequence[Place]) -> Iterator[Stopwatch]:
    """Time these functions within a block."""
    watch = Stopwatch()
    originals = [getattr(place.owner, place.name) for place in places]
    try:
        for place, original in zip(places, originals, strict=True):
            setattr(place.owner, place.name, watch.around(place, original))
        yield watch
    finally:
        for place, original in zip(places, originals, strict=True):
            setattr(place.owner, place.name, original)


def present(*places: Place) -> list[Place]:
    """Places that the engine still has; the time of the others is part of the remainder."""
    return [place for place in places if hasattr(place.owner, place.name)]


def where_time_goes(
    places: Sequence[Place], work: Callable[[], object], count: int, repetitions: int = 4
) -> list[Share]:
    """Parts of the fastest repetition, in µs per ``count``; the last one is the remainder."""
    fastest, parts = float("inf"), dict[str, Seconds]()
    for _ in range(repetitions):
        with stopwatch(places) as watch:
            whole = clocked(work)()
        if whole < fastest:
            fastest, parts = whole, watch.seconds
    parts["waiting and everything else"] = fastest - sum(parts.values())
    return [Share(part, s / count * 1e6, "µs", s / fastest) for part, s in parts.items()]


def all_threads() -> int:
    """Number of threads that the engine uses."""
    return thread_count()
