"""A scene: one generation, with the numbers and frames that the page shows.

frames   states of all free units at about a hundred steps, one byte each
forming  the same frames during the computation, as often as the eye can follow
course   V in its parts, heat and work so far at these steps
verdict  class by the classifier, or of the nearest pattern if the patterns are not digits
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
"""Maximum bytes of states in one viewer's scene; larger machines have fewer frames."""
PIECE_BYTES = 1 << 19
"""Maximum bytes of frames in one message."""
LIVE_SECONDS = 0.03
"""Time between two frames that are shown during the computation."""
MOST_COMPARED = 1000
"""Maximum number of patterns that a sample is compared with."""
DARKEST, BRIGHTEST = 1.0, 99.5
"""Percentiles of the visible states that are shown black and white."""

OnFrame = Callable[[dict[str, Any], bytes], None]
"""``on_frame(numbers, bytes)``: one frame of samples during the computation."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A generation that is ready to be computed."""

    order: Generate
    computer: Computer
    """The computer that generates, with its damage."""
    clamp: Clamp | None
    steps: list[int]
    words: NDArray[np.float32] | None
    requested: NDArray[np.int64] | None
    contrast: Contrast
    """The same for all frames, live or replayed."""

    @property
    def frames(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, eq=False)
class Scene(Prepared):
    """A generation with its energies over time."""

    generated: Generated
    course: dict[str, Any]


def picture_shape(computer: Computer) -> tuple[int, int]:
    """Rows and columns in which visible units are shown; nearly square if they are not an image."""
    shape = computer.patterns.shape
    if shape is None:
        return nearly_square(computer.machine.visible)
    return shape[0], math.prod(shape[1:])  # the colours of a pixel beside each other


def nearly_square(count: int) -> tuple[int, int]:
    """(rows, columns) with room for ``count`` units."""
    columns = max(1, math.ceil(math.sqrt(count)))
    return math.ceil(count / columns), columns


def prepare(computer: Computer, order: Generate) -> Prepared:
    """Prepare the generation of a request; raises ``UserError`` if it is impossible."""
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
    requested = requested_classes(theta, order.samples, classes)
    contrast = imprinted_contrast(computer.patterns, computer.settings.machine)
    return Prepared(order, broken, known, steps, words, requested, contrast)


def make_scene(
    prepared: Prepared, on_progress: Callable[[int], None], on_frame: OnFrame | None = None
) -> Scene:
    """Generate the samples of a request."""
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
    with np.errstate(all="ignore"):  # a heavily damaged machine diverges
        energies = course(theta, generated, steps, prepared.words, prepared.clamp)
    return Scene(**vars(prepared), generated=generated, course=energies)


class _Live:
    """Shows samples during the computation: the first frame, the last, and some in between."""

    def __init__(self, prepared: Prepared, on_frame: OnFrame) -> None:
        theta, samples = prepared.computer.parameters, prepared.order.samples
        self._prepared, self._on_frame = prepared, on_frame
        self._course = LiveCourse(theta, samples, prepared.words, prepared.clamp)
        self._due = 0.0

    def __call__(self, step: int, first: int, states: NDArray[np.float32]) -> None:
        machine = self._prepared.computer.machine
        shown = step in (0, machine.generation_steps) or time.monotonic() >= self._due
        if not shown and not self._course.needs(step):
            return
        with np.errstate(all="ignore"):
            energies = self._course.at(step, first, states)
        if shown:
            frame = [self._prepared.steps.index(step)] * len(energies["stage"])
            grey = as_bytes(states[:, None], machine.visible, self._prepared.contrast)
            self._on_frame({"sample": first, "frame": frame, **_numbers(energies)}, grey.tobytes())
            self._due = time.monotonic() + LIVE_SECONDS


def frame_steps(computer: Computer, samples: int) -> list[int]:
    """Steps that are shown: evenly spaced, and every switch of stages."""
    machine = computer.machine
    most = KEPT_BYTES // (4 * samples * machine.units)
    windows = machine.stages + len(machine.development)
    if most < 2 + windows:
        raise UserError(f"samples = {samples}: too many for {machine.units} units; request fewer")
    return watched_steps(machine, min(FRAMES, most - windows))


def pieces(scene: Scene) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Frames in portions: the numbers of each and the bytes, (frames, samples, N)."""
    states, energies = scene.generated.snapshots, scene.course
    grey = as_bytes(states, scene.computer.machine.visible, scene.contrast)
    size = max(1, PIECE_BYTES // (states.shape[0] * states.shape[2]))
    for first in range(0, scene.frames, size):
        last = min(first + size, scene.frames)
        points = [p for p, frame in enumerate(energies["frame"]) if first <= frame < last]
        frame = [energies["frame"][p] for p in points]
        numbers = {"first": first, "frame": frame, **_numbers(energies, points)}
        yield numbers, grey[:, first:last].swapaxes(0, 1).tobytes()


def _numbers(
    energies: dict[str, Any], points: Sequence[int] | slice = slice(None)
) -> dict[str, Any]:
    """Energies at some points, rounded for the page."""
    return {
        "stage": np.asarray(energies["stage"])[points].tolist(),
        "heat": rounded(energies["heat"][:, points]),
        "work": rounded(energies["work"][:, points]),
        "parts": {name: rounded(values[:, points]) for name, values in energies["parts"].items()},
    }


class Contrast(NamedTuple):
    """Visible states shown black and white, and the size of a hidden state in full colour."""

    low: float
    high: float
    largest: float


@lru_cache(maxsize=4)
def learned_drive(patterns: Patterns, machine: Machine) -> Drive:
    """The drive of the learned patterns, cached because styles need a k-means."""
    return drive_of(patterns, machine)


@lru_cache(maxsize=4)
def imprinted_contrast(patterns: Patterns, machine: Machine) -> Contrast:
    """The range of resting states of the patterns, with the thermal noise of dark pixels.

    It is known before the generation begins. Without patterns, fields of ±1 take their place.
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
    """States (samples, frames, N) as bytes: visible units dark to bright, hidden ones by sign.

    Without a contrast, that of the last frame is used.
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
        {"requested": None if scene.requested is None else int(scene.requested[s]),
         "heat": number(generated.heat[s]), "work": number(generated.work[s]), "seen": None}
        for s in range(len(final))
    ]  # fmt: skip
    finite = np.flatnonzero(np.isfinite(final).all(axis=1) & (final.std(axis=1) > 0))
    for s, seen in zip(finite, _seen(final[finite], scene.computer.patterns), strict=False):
        rows[s] |= seen
    return rows


def _seen(images: NDArray[np.float32], patterns: Patterns) -> list[dict[str, Any]]:
    """Class of each image by the classifier or the nearest pattern; empty if neither applies."""
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
