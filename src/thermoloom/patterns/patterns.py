"""The patterns to learn: scaled data, with names and classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from thermoloom.errors import UserError, advice, warn
from thermoloom.feasibility import require_memory, size_memory
from thermoloom.inputs import LARGEST, named_object, shown, user_path
from thermoloom.machine.machine import Machine
from thermoloom.patterns.datasets import Bytes, class_names, labelled_images
from thermoloom.patterns.images import read_images, read_npy
from thermoloom.patterns.scale import Scale, scale_of
from thermoloom.settings import SOURCES, PatternSettings

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Patterns:
    """P patterns s, the fields of visible units, in training order."""

    patterns: Float32
    """s, shape (P, N_v)."""
    labels: tuple[str, ...]
    """One name per pattern: the digit (MNIST), the file name stem or the index (own images)."""
    shape: tuple[int, ...] | None = None
    """Shape of an image, (h, w) or (h, w, c); None where the visible layer is not an image."""
    classes: tuple[int, ...] = ()
    """Class of every pattern, from 0 on, or empty; label units request these classes."""
    digits: bool = False
    """Whether the classes are those of MNIST, so that the MNIST classifier can judge samples."""
    code: Float32 | None = None
    """Fields of the hidden units for each pattern, (P, N_h), where machine.code = given."""
    pixels: Bytes | None = None
    """Values (P, N_v) of the data, where they are bytes. ``scale`` restores the patterns, which
    are four times as large."""
    scale: Scale = field(default_factory=Scale)
    """How the data became patterns, and how samples become data."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, by number, or empty."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a table, or empty."""

    def __post_init__(self) -> None:
        if self.patterns.ndim != 2 or len(self.patterns) != len(self.labels):
            raise UserError(
                f"patterns: {len(self.labels)} labels do not fit patterns of shape "
                f"{self.patterns.shape}; give one label for each row"
            )
        if self.classes and len(self.classes) != len(self.labels):
            raise UserError(
                f"patterns: {len(self.classes)} classes for {len(self.labels)} patterns; "
                "give one for each pattern, or none"
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

    def __repr__(self) -> str:
        size = " × ".join(map(str, self.shape or self.patterns.shape[1:]))
        classes = f", {len(self.targets)} classes" if self.classes else ""
        return f"Patterns({len(self)} of {size}{classes})"

    def needed_for(self, purpose: str) -> None:
        """Refuse a purpose that needs patterns if there are none, as in a table of couplings."""
        if not len(self):
            raise UserError(
                f"{purpose}: this computer was loaded without its learned patterns, as a table "
                "of couplings; load the run or the .safetensors file from which it was exported"
            )

    def names_of(self, classes: Iterable[int]) -> list[str]:
        """Names of these classes; their numbers where they have no names."""
        known = dict(enumerate(self.class_names))
        return [known.get(int(number), str(number)) for number in classes]

    def class_numbers(self, classes: ArrayLike) -> list[int]:
        """Numbers of classes that are requested by name or number."""
        numbers = {name: number for number, name in enumerate(self.class_names)}
        requested = []
        for wanted in np.atleast_1d(np.asarray(classes, object)).tolist():
            if isinstance(wanted, str) and wanted not in numbers:
                known = ", ".join(self.class_names)
                problem = f"no such class; known: {known}" if known else "no names; use numbers"
                raise UserError(f"class {wanted!r}: {problem}")
            requested.append(numbers[wanted] if isinstance(wanted, str) else wanted)
        return requested

    @property
    def targets(self) -> tuple[int, ...]:
        """The classes that are learned, each once, in training order."""
        return tuple(dict.fromkeys(self.classes))


def load_patterns(settings: PatternSettings, machine: Machine) -> Patterns:
    """The patterns that the settings name, fitted to the visible layer of the machine."""
    require_memory(size_memory(machine))
    code = _given_code(settings, machine)
    images, labels, classes = named_object(SOURCES[settings.source])(settings)
    fixed = machine.scale == "fixed"
    return from_images(
        images,
        machine,
        labels,
        classes=classes,
        class_names=class_names(settings),
        digits=settings.are_digits,
        resize=settings.resize,
        code=code,
        mean=settings.mean if fixed else None,
        deviation=settings.deviation if fixed else None,
    )


Labelled = tuple[
    Sequence[NDArray[Any]] | NDArray[Any], Sequence[str], Sequence[int] | Sequence[str]
]
"""Images, their names, and their classes (numbers or names) or ()."""


def read_digits(settings: PatternSettings) -> Labelled:
    """Images of a labelled data set, classes in turn."""
    images, classes = labelled_images(settings)
    order = in_turn(classes, settings.digits, settings.per_digit)
    return images[order], [str(digit) for digit in classes[order]], classes[order].tolist()


def read_own_images(settings: PatternSettings) -> Labelled:
    """The user's images, at ``patterns.path``."""
    return read_images(user_path("patterns.path", settings.path), settings.grey)


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
    classes: ArrayLike = (),
    class_names: Sequence[str] = (),
    columns: Sequence[str] = (),
    digits: bool = False,
    resize: bool | None = False,
    code: Float32 | None = None,
    scale: Scale | str | None = "",
    mean: ArrayLike | None = None,
    deviation: ArrayLike | None = None,
) -> Patterns:
    """Patterns from arrays (h, w), (h, w, c), or (N_v,) where the visible layer is not an image.

    Images of another size are resized to the square visible layer with ``resize`` and refused
    without it. ``classes``: numbers, with or without ``class_names``, or names. ``digits``: the
    classes are MNIST's. ``code``: fields of the hidden units. ``scale``: the scale of other
    patterns, or a kind of scale; by default the machine's kind.
    """
    names = [str(i) for i in range(len(images))] if labels is None else list(labels)
    if not len(images):
        raise UserError("patterns: no images given; at least one is needed")
    if len(names) != len(images):
        raise UserError(
            f"patterns: {len(names)} labels for {len(images)} images; give one for each"
        )
    fitted = _stacked(images, names, machine, resize)
    shape, rows = fitted.shape[1:], fitted.reshape(len(fitted), -1)
    if scale == "" and machine.scale == "sample" and len(shape) == 1:
        warn(_scaled_by_row(rows.shape[1]))
    if not isinstance(scale, Scale):
        scale = scale_of(rows, machine.scale if scale == "" else scale, names, mean, deviation)
    else:
        scale = scale.like(rows, names)
    numbers, texts = numbered_classes(classes)
    if not numbers and machine.labels == 1:  # data without classes is one class, of many styles
        numbers = (0,) * len(names)
    return Patterns(
        patterns=scale.fields(rows),
        labels=tuple(names),
        shape=tuple(shape) if len(shape) > 1 else None,
        classes=numbers,
        class_names=texts or tuple(class_names),
        columns=tuple(columns),
        digits=digits,
        code=code,
        pixels=rows if rows.dtype == np.uint8 else None,
        scale=scale,
    )


def _scaled_by_row(count: int) -> str:
    return (
        f"every row of {count} values is scaled to zero mean and unit variance, as images are; for "
        f"a table use {advice('machine.scale', 'feature')}, which scales columns"
    )


def numbered_classes(classes: ArrayLike) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Classes as numbers, and their names if they were names, in alphabetical order."""
    array = np.asarray(classes)
    if (array.ndim == 1 and array.dtype.kind in "iu") or not array.size:
        return tuple(int(number) for number in array), ()
    are_names = array.dtype.kind == "U" or all(isinstance(name, str) for name in array.flat)
    if array.ndim != 1 or not are_names:
        raise UserError("classes: must be whole numbers or names, one for each image")
    names, numbers = np.unique(array.astype(str), return_inverse=True)
    return tuple(numbers.tolist()), tuple(names.tolist())


def in_turn(classes: Bytes, digits: Sequence[int], per_digit: int) -> list[int]:
    """Indices of the first images of each class, digits in turn: 0, 1, 2, 0, 1, 2, …

    Consecutive cycles then alternate between classes, and the first pattern is of the first digit.
    ``per_digit`` = 0 takes all images; classes with fewer images end earlier.
    """
    by_digit = [np.flatnonzero(classes == digit)[: per_digit or None] for digit in digits]
    for digit, indices in zip(digits, by_digit, strict=True):
        if len(indices) < max(per_digit, 1):
            raise UserError(
                f"patterns.per_digit = {per_digit}: class {digit} has only {len(indices)} images; "
                "use fewer per class, or leave this class out of patterns.digits"
            )
    ranks = np.concatenate([np.arange(len(indices)) for indices in by_digit])
    turns = np.repeat(np.arange(len(by_digit)), [len(indices) for indices in by_digit])
    order: list[int] = np.concatenate(by_digit)[np.lexsort((turns, ranks))].tolist()
    return order


def _stacked(
    images: Sequence[NDArray[Any]] | NDArray[Any],
    names: Sequence[str],
    machine: Machine,
    resize: bool | None,
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
            f"patterns: images of different shapes {sorted(shapes)}; give all one shape, or use "
            f"{advice('patterns.resize', True)}"
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
        sample = "row" if plain.ndim == 1 else "image"
        raise UserError(f"pattern {name}: has values that are not finite; remove the {sample}")
    if plain.size and max(abs(float(plain.min())), abs(float(plain.max()))) > LARGEST:
        raise UserError(f"pattern {name}: has values beyond ±{LARGEST:.2g}; scale the image")
    return plain


def _fit(image: NDArray[Any], name: str, machine: Machine, resize: bool | None) -> NDArray[Any]:
    """The image as it is where it has N_v values, else resized on request."""
    if resize and image.ndim in (2, 3):
        return _resized(image, machine)
    if image.size == machine.visible:
        return image
    size = " × ".join(str(n) for n in image.shape)
    if resize is None:
        raise UserError(
            f"pattern {name}: is {size}, but this computer has {machine.visible} visible units; "
            "resize the data"
        )
    visible = advice("machine.visible", int(image.size))
    if image.ndim == 3 and image[..., 0].size == machine.visible:
        raise UserError(
            f"pattern {name}: has {image.shape[2]} colours, {image.size} values; use {visible}, "
            f"or {advice('patterns.grey', True)} where it is read"
        )
    if image.ndim in (2, 3):
        raise UserError(
            f"pattern {name}: is {size} pixels, machine.visible = {machine.visible}; "
            f"use {advice('patterns.resize', True)} or {visible}"
        )
    raise UserError(
        f"pattern {name}: has {size} values, machine.visible = {machine.visible}; "
        f"use {visible} (only images can be resized)"
    )


def _resized(image: NDArray[Any], machine: Machine) -> NDArray[Any]:
    """The image on the square visible layer, each colour by itself."""
    colours = image.shape[2] if image.ndim == 3 else 1
    side = math.isqrt(machine.visible // colours)
    if colours * side * side != machine.visible:
        square = "square number" if colours == 1 else f"square number times {colours}"
        raise UserError(
            f"machine.visible = {machine.visible}: {advice('patterns.resize', True)} needs a "
            f"{square}, such as {colours * side * side}"
        )
    if image.shape[:2] == (side, side):
        return image
    require_memory({f"machine.visible = {machine.visible}": 16 * machine.visible})
    layers = np.asarray(image, dtype=np.float32).reshape(*image.shape[:2], colours)
    resized = [_on_square(layers[..., colour], side) for colour in range(colours)]
    return resized[0] if image.ndim == 2 else np.stack(resized, axis=2)


def _on_square(layer: Float32, side: int) -> NDArray[Any]:
    # bilinear: averages on shrinking (Pillow widens the filter) and never overshoots
    picture = Image.fromarray(np.ascontiguousarray(layer))
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))
