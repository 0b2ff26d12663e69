"""The patterns to learn: images of zero mean and unit variance, with names and classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thermoloom.errors import UserError
from thermoloom.feasibility import require_memory, size_memory
from thermoloom.inputs import LARGEST, named_object, shown, user_path
from thermoloom.machine.machine import Machine
from thermoloom.patterns.images import read_images, read_npy
from thermoloom.patterns.mnist import Bytes, bundled_digits, load_mnist
from thermoloom.settings import SOURCES, PatternSettings

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

ROWS_AT_ONCE = 2000
"""Images that are normalized together: bounds the memory in float64."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """P patterns s, each of zero mean and unit variance, in training order."""

    patterns: Float32
    """s, shape (P, N_v)."""
    labels: tuple[str, ...]
    """One name per pattern: the digit (MNIST), the file name stem or the index (own images)."""
    shape: tuple[int, int] | None = None
    """Image shape for display; None where the visible layer is not an image."""
    classes: tuple[int, ...] = ()
    """Class of every pattern, from 0 on, or empty; label units request these classes."""
    digits: bool = False
    """Whether the classes are those of MNIST, so that the MNIST classifier can judge samples."""
    code: Float32 | None = None
    """Fields of the hidden units for each pattern, (P, N_h), where machine.code = given."""
    pixels: Bytes | None = None
    """Grey values (P, N_v) of the patterns, where they are bytes. ``normalized`` restores the
    patterns, which are four times as large."""

    def __post_init__(self) -> None:
        if self.patterns.ndim != 2 or len(self.patterns) != len(self.labels):
            raise UserError(
                f"patterns: {len(self.labels)} labels do not fit patterns of shape "
                f"{self.patterns.shape}; give one label to each row"
            )
        if self.classes and len(self.classes) != len(self.labels):
            raise UserError(
                f"patterns: {len(self.classes)} classes for {len(self.labels)} patterns; "
                "give one class to each pattern, or none"
            )
        too_large = self.digits and max(self.classes, default=0) > 9
        if min(self.classes, default=0) < 0 or too_large:
            raise UserError(
                f"patterns: classes {shown(self.classes)}: must be numbers from 0 on, and 0 to 9 "
                "for MNIST digits"
            )
        if self.code is not None and self.code.shape[:1] != (len(self.patterns),):
            raise UserError(
                f"patterns: a code of shape {self.code.shape} for {len(self.patterns)} patterns"
            )

    def __len__(self) -> int:
        return len(self.patterns)

    def needed_for(self, purpose: str) -> None:
        """Refuse a purpose that needs patterns if there are none, as in a table of couplings."""
        if not len(self):
            raise UserError(
                f"{purpose}: this computer came without the patterns that it has learned, as a "
                "table of couplings; take the run or the .safetensors file that it was made from"
            )

    @property
    def targets(self) -> tuple[int, ...]:
        """The classes that are learned, each once, in training order."""
        return tuple(dict.fromkeys(self.classes))


def load_patterns(settings: PatternSettings, machine: Machine) -> Patterns:
    """The patterns that the settings name, fitted to the visible layer of the machine."""
    require_memory(size_memory(machine))
    code = _given_code(settings, machine)
    images, labels, classes = named_object(SOURCES[settings.source])(settings)
    return from_images(
        images,
        machine,
        labels,
        classes=classes,
        digits=settings.are_digits,
        resize=settings.resize,
        code=code,
    )


Labelled = tuple[Sequence[NDArray[Any]] | NDArray[Any], Sequence[str], Sequence[int]]
"""Images, their names, and their classes or ()."""


def read_digits(settings: PatternSettings) -> Labelled:
    """MNIST images: the bundled ones, or those of IDX files."""
    bundled = settings.source == "bundled"
    digits, classes = bundled_digits() if bundled else load_mnist(settings.path or None)
    order = in_turn(classes, settings.digits, settings.per_digit)
    return digits[order], [str(digit) for digit in classes[order]], classes[order].tolist()


def read_own_images(settings: PatternSettings) -> Labelled:
    """Images of the user, at ``patterns.path``."""
    return read_images(user_path("patterns.path", settings.path))


def _given_code(settings: PatternSettings, machine: Machine) -> Float32 | None:
    if machine.code != "given":
        return None
    if not settings.code:
        raise UserError("machine.code = 'given': patterns.code must name an .npy array of fields")
    path = user_path("patterns.code", settings.code)
    code = read_npy(path)
    if code.dtype.kind not in "biuf":
        raise UserError(f"{path}: {code.dtype} array; expected real numbers")
    return code.astype(np.float32)


def from_images(
    images: Sequence[NDArray[Any]] | NDArray[Any],
    machine: Machine,
    labels: Sequence[str] | None = None,
    *,
    classes: Sequence[int] = (),
    digits: bool = False,
    resize: bool = False,
    code: Float32 | None = None,
) -> Patterns:
    """Patterns from arrays (h, w), or (N_v,) where the visible layer is not an image.

    Images of another size are scaled to the square visible layer with ``resize`` and refused
    without it. ``digits``: the classes are MNIST's. ``code``: fields of the hidden units.
    """
    names = [str(i) for i in range(len(images))] if labels is None else list(labels)
    if not len(images):
        raise UserError("patterns: no images given; at least one is needed")
    if len(names) != len(images):
        raise UserError(f"patterns: {len(names)} labels for {len(images)} images; one each")
    fitted = _stacked(images, names, machine, resize)
    shape, rows = fitted.shape[1:], fitted.reshape(len(fitted), -1)
    return Patterns(
        patterns=normalized(rows, names),
        labels=tuple(names),
        shape=(shape[0], shape[1]) if len(shape) == 2 else None,
        classes=tuple(int(number) for number in classes),
        digits=digits,
        code=code,
        pixels=rows if rows.dtype == np.uint8 else None,
    )


def normalized(images: NDArray[Any], names: Sequence[str] | None = None) -> Float32:
    """(y − mean)/sd of every row (population sd), computed in float64, cast to float32.

    A row without contrast or with a value that is not finite is refused by its name.
    """
    rows = np.asarray(images)
    rows = rows.reshape(len(rows), -1)
    finite = np.isfinite(rows).all(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = moments(rows)
        # min < max, not sd > 0: the mean of equal numbers may be off by round-off
        varies = (rows.min(axis=1) < rows.max(axis=1)) & (deviation > 0) & np.isfinite(deviation)
    if len(wrong := np.flatnonzero(~finite | ~varies)):
        first = int(wrong[0])
        why = "constant image, it has no contrast to learn; remove it"
        if not finite[first]:
            why = "has values that are not finite; remove the image"
        raise UserError(f"pattern {first if names is None else names[first]}: {why}")
    return scaled(rows, mean, deviation)


def moments(rows: NDArray[Any]) -> tuple[Float64, Float64]:
    """Mean and standard deviation of every row, in float64."""
    mean, deviation = np.empty(len(rows)), np.empty(len(rows))
    for some in _blocks(len(rows)):
        wide = rows[some].astype(np.float64)
        mean[some], deviation[some] = wide.mean(axis=1), wide.std(axis=1)
    return mean, deviation


def scaled(rows: NDArray[Any], mean: Float64, deviation: Float64) -> Float32:
    """(y − mean)/deviation of every row, in float32: the same bits on every machine."""
    patterns = np.empty(rows.shape, np.float32)
    for some in _blocks(len(rows)):
        centred = rows[some].astype(np.float64) - mean[some, None]
        patterns[some] = centred / deviation[some, None]
    return patterns


def _blocks(count: int) -> Iterator[slice]:
    """Rows in portions, so that few of them are in float64 at a time."""
    return (slice(i, i + ROWS_AT_ONCE) for i in range(0, count, ROWS_AT_ONCE))


def in_turn(classes: Bytes, digits: Sequence[int], per_digit: int) -> list[int]:
    """Indices of the first images of each class, digits in turn: 0, 1, 2, 0, 1, 2, …

    Consecutive cycles then alternate between classes, and the first pattern is of the first digit.
    ``per_digit`` = 0 takes all images; classes with fewer images end earlier.
    """
    by_digit = [np.flatnonzero(classes == digit)[: per_digit or None] for digit in digits]
    for digit, indices in zip(digits, by_digit, strict=True):
        if len(indices) < max(per_digit, 1):
            raise UserError(
                f"patterns.per_digit = {per_digit}: class {digit} has only {len(indices)} images"
            )
    ranks = np.concatenate([np.arange(len(indices)) for indices in by_digit])
    turns = np.repeat(np.arange(len(by_digit)), [len(indices) for indices in by_digit])
    order: list[int] = np.concatenate(by_digit)[np.lexsort((turns, ranks))].tolist()
    return order


def _stacked(
    images: Sequence[NDArray[Any]] | NDArray[Any],
    names: Sequence[str],
    machine: Machine,
    resize: bool,
) -> NDArray[Any]:
    """Images of one shape that fit the machine, (P, …)."""
    if type(images) is np.ndarray and images.dtype == np.uint8 and not resize:
        _fit(images[0], names[0], machine, resize)  # bytes are real numbers, and all are alike
        return images
    named = zip(images, names, strict=True)
    fitted = [_fit(_checked(image, name), name, machine, resize) for image, name in named]
    shapes = {image.shape for image in fitted}
    if len(shapes) > 1:
        raise UserError(
            f"patterns: images of different shapes {sorted(shapes)}; make them alike, or set "
            "patterns.resize = true"
        )
    return np.stack(fitted)


def _checked(image: NDArray[Any], name: str) -> NDArray[Any]:
    """An array of real numbers that float32 can hold, without masked values."""
    try:
        array = np.asanyarray(image)
    except ValueError:
        raise UserError(f"pattern {name}: its rows have different lengths") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"pattern {name}: has {array.dtype} values; expected real numbers")
    if np.ma.is_masked(array):
        raise UserError(f"pattern {name}: has masked values; fill them")
    plain = np.asarray(array)
    if plain.size and not np.isfinite(plain).all():
        raise UserError(f"pattern {name}: has values that are not finite; remove the image")
    if plain.size and max(abs(float(plain.min())), abs(float(plain.max()))) > LARGEST:
        raise UserError(f"pattern {name}: has values beyond ±{LARGEST:.2g}; scale the image")
    return plain


def _fit(image: NDArray[Any], name: str, machine: Machine, resize: bool) -> NDArray[Any]:
    """The image as it is where it has N_v values, else resized on request."""
    if resize and image.ndim == 2:
        return _resized(image, machine)
    if image.size == machine.visible:
        return image
    size = " × ".join(str(n) for n in image.shape)
    if image.ndim == 2:
        raise UserError(
            f"pattern {name}: is {size} pixels, machine.visible = {machine.visible}; "
            "set patterns.resize = true, or change machine.visible"
        )
    raise UserError(
        f"pattern {name}: has {size} values, machine.visible = {machine.visible}; "
        "make them equal (only images (n, h, w) can be resized)"
    )


def _resized(image: NDArray[Any], machine: Machine) -> NDArray[Any]:
    """The image on the square visible layer."""
    side = math.isqrt(machine.visible)
    if side * side != machine.visible:
        raise UserError(
            f"machine.visible = {machine.visible}: patterns.resize = true needs a square "
            f"number, such as {side * side}"
        )
    if image.shape == (side, side):
        return image
    require_memory({f"machine.visible = {machine.visible}": 16 * machine.visible})
    # bilinear: averages on shrinking (Pillow widens the filter) and never overshoots
    picture = Image.fromarray(np.asarray(image, dtype=np.float32))
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))
