"""A scene: one generation with all that is shown of it, and its frames as bytes.

frames   states of all free units at some hundred steps, one byte each
course   V in its parts, heat and work so far at these steps
verdict  what the classifier sees, or the nearest pattern where it is not its business
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.api import Computer
from thermoloom.errors import UserError
from thermoloom.generation import asked_classes, course, drawn_words, generate
from thermoloom.lab.damage import damaged
from thermoloom.lab.messages import Generate
from thermoloom.machine.books import Generated
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.protocol import generation_windows
from thermoloom.measures.classifier import SIDE, classify
from thermoloom.measures.quality import measure_quality
from thermoloom.patterns.known import clamp_of
from thermoloom.patterns.patterns import Patterns

FRAMES = 120
KEPT_BYTES = 1 << 24
"""States of one viewer's scene; of larger machines fewer frames are kept."""
PIECE_BYTES = 1 << 19
"""Frames that are sent together."""
MOST_COMPARED = 1000
"""Most patterns that a sample is compared with."""
DARKEST, BRIGHTEST = 1.0, 99.5
"""Percentiles of the final images that are black and white."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One generation."""

    order: Generate
    computer: Computer
    """The computer that generated, damaged as it may be."""
    clamp: Clamp | None
    steps: list[int]
    made: Generated
    words: NDArray[np.float32] | None
    asked: NDArray[np.int64] | None
    course: dict[str, Any]

    @property
    def frames(self) -> int:
        return len(self.steps)


def picture_shape(computer: Computer) -> tuple[int, int]:
    """Rows and columns in which visible units are shown; nearly square where they are no image."""
    return computer.patterns.shape or nearly_square(computer.machine.visible)


def nearly_square(count: int) -> tuple[int, int]:
    """(rows, columns) with room for ``count`` units."""
    columns = max(1, math.ceil(math.sqrt(count)))
    return math.ceil(count / columns), columns


def make_scene(computer: Computer, order: Generate, on_progress: Callable[[int], None]) -> Scene:
    """Generate to order."""
    whole = computer.machine
    known = None
    if order.known is not None:
        pixels, mask = (
            np.frombuffer(data, np.uint8) for data in (order.known.pixels, order.known.mask)
        )
        known = clamp_of(
            whole, computer.patterns, pixels, order.samples, mask > 0, order.known.hold
        )
    broken = damaged(computer, order.damage)
    theta = broken.parameters
    steps = frame_steps(broken, order.samples)
    classes = order.classes or None
    made = generate(
        theta, order.samples, order.seed, classes, known, steps, range(order.samples), on_progress
    )
    words = drawn_words(theta, order.samples, order.seed, classes)
    asked = asked_classes(theta, order.samples, classes)
    with np.errstate(all="ignore"):  # a machine damaged enough runs away
        way = course(theta, made, steps, words, known)
    return Scene(order, broken, known, steps, made, words, asked, way)


def frame_steps(computer: Computer, samples: int) -> list[int]:
    """Steps that are shown: evenly spaced, and every switch of stages."""
    machine = computer.machine
    most = KEPT_BYTES // (4 * samples * machine.units)
    if most < 2 + machine.stages:
        raise UserError(f"samples = {samples}: too many of {machine.units} units; take fewer")
    even = np.linspace(0, machine.steps, min(FRAMES, most - machine.stages) + 1)
    switches = (first for _, first, _ in generation_windows(machine))
    return sorted({*even.round().astype(int).tolist(), *switches})


def pieces(scene: Scene) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Frames in portions: the numbers of each and the bytes, (frames, samples, N)."""
    states, way = scene.made.snapshots, scene.course
    grey = as_bytes(states, scene.computer.machine.visible)
    size = max(1, PIECE_BYTES // (states.shape[0] * states.shape[2]))
    for first in range(0, scene.frames, size):
        last = min(first + size, scene.frames)
        points = [p for p, frame in enumerate(way["frame"]) if first <= frame < last]
        numbers = {
            "first": first,
            "frame": [way["frame"][p] for p in points],
            "stage": [way["stage"][p] for p in points],
            "heat": rounded(way["heat"][:, points]),
            "work": rounded(way["work"][:, points]),
            "parts": {name: rounded(values[:, points]) for name, values in way["parts"].items()},
        }
        yield numbers, grey[:, first:last].swapaxes(0, 1).tobytes()


def as_bytes(states: NDArray[np.float32], visible: int) -> NDArray[np.uint8]:
    """States (samples, frames, N): visible units dark to bright, hidden ones −largest to largest.

    On one scale each, by what is there in the end.
    """
    calm = np.nan_to_num(states, nan=0.0, posinf=1e30, neginf=-1e30)
    grey = np.empty(states.shape, np.uint8)
    seen, code = calm[..., :visible], calm[..., visible:]
    low, high = np.percentile(seen[:, -1], (DARKEST, BRIGHTEST))
    grey[..., :visible] = _scaled(seen, low, high)
    if code.size:
        largest = np.percentile(np.abs(code[:, -1]), BRIGHTEST)
        grey[..., visible:] = _scaled(code, -largest, largest)
    return grey


def _scaled(values: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    unit = (values.astype(np.float64) - low) / max(high - low, 1e-12)
    return (np.clip(unit, 0, 1) * 255).round()


def verdicts(scene: Scene) -> list[dict[str, Any]]:
    """For each sample: the class requested, the class recognized with its score, heat and work."""
    made = scene.made
    final = made.final_states[:, : scene.computer.machine.visible]
    rows: list[dict[str, Any]] = [
        {"asked": None if scene.asked is None else int(scene.asked[s]),
         "heat": number(made.heat[s]), "work": number(made.work[s]), "seen": None}
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
    found = zip(quality.sample_prototype, quality.sample_correlation, strict=True)
    return [{"seen": patterns.classes[nearest], "score": number(r), "by": "the nearest pattern"}
            for nearest, r in found]  # fmt: skip


def number(value: Any) -> float | None:
    """A number for JSON, which has neither NaN nor infinity."""
    return round(float(value), 4) if math.isfinite(value) else None


def rounded(values: NDArray[Any]) -> list[list[float | None]]:
    """Rows of numbers with two digits after the point: a hundredth of E₀ is a tenth of k_BT."""
    plain: list[list[float | None]] = [
        [round(v, 2) if math.isfinite(v) else None for v in row] for row in values.tolist()
    ]
    return plain
