"""A scene: one generation with all that is shown of it, and its frames as bytes.

frames   states of all free units at some hundred steps, one byte each
forming  the same while it is computed, as often as the eye can follow
course   V in its parts, heat and work so far at these steps
verdict  what the classifier sees, or the nearest pattern where it is not its business
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.computer import Computer
from thermoloom.errors import UserError
from thermoloom.generation import LiveCourse, course, drawn_words, generate, requested_classes
from thermoloom.lab.damage import damaged
from thermoloom.lab.messages import Generate
from thermoloom.machine.clamp import Clamp, resting_states
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import watched_steps
from thermoloom.measures.classifier import SIDE, classify
from thermoloom.measures.quality import measure_quality
from thermoloom.patterns.clamps import clamp_of
from thermoloom.patterns.drive import Drive, drive_of
from thermoloom.patterns.patterns import Patterns

FRAMES = 120
KEPT_BYTES = 1 << 24
"""States of one viewer's scene; of larger machines fewer frames are kept."""
PIECE_BYTES = 1 << 19
"""Frames that are sent together."""
LIVE_SECONDS = 0.03
"""Between two frames that are shown while they are computed."""
MOST_COMPARED = 1000
"""Most patterns that a sample is compared with."""
DARKEST, BRIGHTEST = 1.0, 99.5
"""Percentiles of what is shown that are black and white."""

OnFrame = Callable[[dict[str, Any], bytes], None]
"""``on_frame(numbers, bytes)``: samples on their way, while they are computed."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """One generation that is to be computed."""

    order: Generate
    computer: Computer
    """The computer that generates, with its damage."""
    clamp: Clamp | None
    steps: list[int]
    words: NDArray[np.float32] | None
    asked: NDArray[np.int64] | None
    contrast: Contrast
    """The same for all frames, live or replayed."""

    @property
    def frames(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, eq=False)
class Scene(Prepared):
    """One generation."""

    generated: Generated
    course: dict[str, Any]


def picture_shape(computer: Computer) -> tuple[int, int]:
    """Rows and columns in which visible units are shown; nearly square if they are not an image."""
    return computer.patterns.shape or nearly_square(computer.machine.visible)


def nearly_square(count: int) -> tuple[int, int]:
    """(rows, columns) with room for ``count`` units."""
    columns = max(1, math.ceil(math.sqrt(count)))
    return math.ceil(count / columns), columns


def prepare(computer: Computer, order: Generate) -> Prepared:
    """What is to be generated to this order; a ``UserError`` where it cannot be."""
    intact = computer.machine
    known = None
    if order.known is not None:
        pixels, mask = (
            np.frombuffer(data, np.uint8) for data in (order.known.pixels, order.known.mask)
        )
        known = clamp_of(
            intact, computer.patterns, pixels, order.samples, mask > 0, order.known.hold
        )
    broken = damaged(computer, order.damage)
    theta = broken.parameters
    steps = frame_steps(broken, order.samples)
    classes = order.classes or None
    words = drawn_words(theta, order.samples, order.seed, classes)
    asked = requested_classes(theta, order.samples, classes)
    contrast = imprinted_contrast(computer.patterns, computer.settings.machine)
    return Prepared(order, broken, known, steps, words, asked, contrast)


def make_scene(
    prepared: Prepared, on_progress: Callable[[int], None], on_frame: OnFrame | None = None
) -> Scene:
    """Generate to order."""
    order, theta, steps = prepared.order, prepared.computer.parameters, prepared.steps
    generated = generate(
        theta,
        order.samples,
        order.seed,
        order.classes or None,
        prepared.clamp,
        steps,
        range(order.samples),
        on_progress,
        on_snapshot=None if on_frame is None else _Live(prepared, on_frame),
    )
    with np.errstate(all="ignore"):  # a machine damaged enough runs away
        way = course(theta, generated, steps, prepared.words, prepared.clamp)
    return Scene(**vars(prepared), generated=generated, course=way)


class _Live:
    """Shows samples while they are computed: the first frame, the last, and some between them."""

    def __init__(self, prepared: Prepared, on_frame: OnFrame) -> None:
        theta, samples = prepared.computer.parameters, prepared.order.samples
        self._prepared, self._on_frame = prepared, on_frame
        self._course = LiveCourse(theta, samples, prepared.words, prepared.clamp)
        self._due = 0.0

    def __call__(self, step: int, first: int, states: NDArray[np.float32]) -> None:
        machine = self._prepared.computer.machine
        shown = step in (0, machine.steps) or time.monotonic() >= self._due
        if not shown and not self._course.needs(step):
            return
        with np.errstate(all="ignore"):
            way = self._course.at(step, first, states)
        if shown:
            frame = [self._prepared.steps.index(step)] * len(way["stage"])
            grey = as_bytes(states[:, None], machine.visible, self._prepared.contrast)
            self._on_frame({"sample": first, "frame": frame, **_numbers(way)}, grey.tobytes())
            self._due = time.monotonic() + LIVE_SECONDS


def frame_steps(computer: Computer, samples: int) -> list[int]:
    """Steps that are shown: evenly spaced, and every switch of stages."""
    machine = computer.machine
    most = KEPT_BYTES // (4 * samples * machine.units)
    if most < 2 + machine.stages:
        raise UserError(f"samples = {samples}: too many of {machine.units} units; take fewer")
    return watched_steps(machine, min(FRAMES, most - machine.stages))


def pieces(scene: Scene) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Frames in portions: the numbers of each and the bytes, (frames, samples, N)."""
    states, way = scene.generated.snapshots, scene.course
    grey = as_bytes(states, scene.computer.machine.visible, scene.contrast)
    size = max(1, PIECE_BYTES // (states.shape[0] * states.shape[2]))
    for first in range(0, scene.frames, size):
        last = min(first + size, scene.frames)
        points = [p for p, frame in enumerate(way["frame"]) if first <= frame < last]
        frame = [way["frame"][p] for p in points]
        numbers = {"first": first, "frame": frame, **_numbers(way, points)}
        yield numbers, grey[:, first:last].swapaxes(0, 1).tobytes()


def _numbers(way: dict[str, Any], points: Sequence[int] | slice = slice(None)) -> dict[str, Any]:
    """Points of a course for the page."""
    return {
        "stage": np.asarray(way["stage"])[points].tolist(),
        "heat": rounded(way["heat"][:, points]),
        "work": rounded(way["work"][:, points]),
        "parts": {name: rounded(values[:, points]) for name, values in way["parts"].items()},
    }


class Contrast(NamedTuple):
    """States that are shown in black and white, and the size of a hidden one in full colour."""

    low: float
    high: float
    largest: float


@lru_cache(maxsize=4)
def learned_drive(patterns: Patterns, machine: Machine) -> Drive:
    """The drive of the learned patterns, computed once: styles take a k-means each time."""
    return drive_of(patterns, machine)


@lru_cache(maxsize=4)
def imprinted_contrast(patterns: Patterns, machine: Machine) -> Contrast:
    """The range of patterns as they are imprinted, with the thermal noise of the dark pixels.

    It is known before anything is generated. Without patterns, fields of ±1 take their place.
    """
    fields = learned_drive(patterns, machine).fields if len(patterns) else np.array([[-1.0, 1.0]])
    seen, code = fields[:, : machine.visible], fields[:, machine.visible :]
    largest = np.percentile(np.abs(code), BRIGHTEST) if code.size else 1.0
    edges = np.array([*np.percentile(seen, (DARKEST, BRIGHTEST)), largest])
    low, high, top = resting_states(machine, edges).tolist()
    stiffness = max(float(machine.potential.curvature(low)), 1e-12)
    return Contrast(low - 2 * math.sqrt(machine.kT / stiffness), high, top)


def final_contrast(states: NDArray[np.float32], visible: int) -> Contrast:
    """The range of states (samples, frames, N) in the last frame."""
    last = np.nan_to_num(states[:, -1])
    low, high = np.percentile(last[:, :visible], (DARKEST, BRIGHTEST))
    code = np.abs(last[:, visible:])
    largest = np.percentile(code, BRIGHTEST) if code.size else 1.0
    return Contrast(float(low), float(high), float(largest))


def as_bytes(
    states: NDArray[np.float32], visible: int, contrast: Contrast | None = None
) -> NDArray[np.uint8]:
    """States (samples, frames, N): visible units dark to bright, hidden ones −largest to largest.

    With the contrast of the last frame, if none is given.
    """
    low, high, largest = contrast or final_contrast(states, visible)
    calm = np.nan_to_num(states, nan=0.0, posinf=1e30, neginf=-1e30)
    grey = np.empty(states.shape, np.uint8)
    grey[..., :visible] = _scaled(calm[..., :visible], low, high)
    grey[..., visible:] = _scaled(calm[..., visible:], -largest, largest)
    return grey


def _scaled(values: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    unit = (values.astype(np.float64) - low) / max(high - low, 1e-12)
    return (np.clip(unit, 0, 1) * 255).round()


def verdicts(scene: Scene) -> list[dict[str, Any]]:
    """For each sample: the class requested, the class recognized with its score, heat and work."""
    generated = scene.generated
    final = generated.final_states[:, : scene.computer.machine.visible]
    rows: list[dict[str, Any]] = [
        {"asked": None if scene.asked is None else int(scene.asked[s]),
         "heat": number(generated.heat[s]), "work": number(generated.work[s]), "seen": None}
        for s in range(len(final))
    ]  # fmt: skip
    finite = np.flatnonzero(np.isfinite(final).all(axis=1) & (final.std(axis=1) > 0))
    for s, seen in zip(finite, _seen(final[finite], scene.computer.patterns), strict=False):
        rows[s] |= seen
    return rows


def _seen(images: NDArray[np.float32], patterns: Patterns) -> list[dict[str, Any]]:
    """The class of each image by the classifier, or of the nearest pattern; nothing if neither."""
    if not len(images):
        return []
    if patterns.digits and patterns.shape == (SIDE, SIDE):
        scores = classify(images)
        return [{"seen": int(row.argmax()), "score": number(row.max()), "by": "the classifier"}
                for row in scores]  # fmt: skip
    if not patterns.classes or len(patterns) > MOST_COMPARED:
        return []
    quality = measure_quality(images, patterns)
    nearest_patterns = zip(quality.nearest_pattern, quality.sample_correlation, strict=True)
    return [{"seen": patterns.classes[nearest], "score": number(r), "by": "the nearest pattern"}
            for nearest, r in nearest_patterns]  # fmt: skip


def number(value: Any) -> float | None:
    """A number for JSON, which has neither NaN nor infinity."""
    return round(float(value), 4) if math.isfinite(value) else None


def rounded(values: NDArray[Any]) -> list[list[float | None]]:
    """Rows of numbers with two digits after the point: a hundredth of E₀ is a tenth of k_BT."""
    plain: list[list[float | None]] = [
        [round(v, 2) if math.isfinite(v) else None for v in row] for row in values.tolist()
    ]
    return plain
