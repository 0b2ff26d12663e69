"""Images to learn from any source: bundled digits, MNIST, files, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import user_path
from thermoloom.machine.machine import Machine
from thermoloom.machine.wires import text_of
from thermoloom.patterns.edge_lists import read_edges
from thermoloom.patterns.images import read_images, read_png
from thermoloom.patterns.mnist import bundled_digits, load_mnist
from thermoloom.patterns.patterns import Patterns, from_images, in_turn
from thermoloom.settings import PatternSettings

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Images:
    """Images to learn, with names and classes.

    >>> import thermoloom as tl
    >>> images = tl.digits(3, 5)
    >>> images.pixels.shape, images.classes, images[0].dtype
    ((2, 28, 28), (3, 5), dtype('uint8'))
    """

    pixels: Array | Sequence[Array]
    """Grey values, (n, h, w), or (n, N_v) where the visible layer is not an image."""
    classes: tuple[int, ...] = ()
    """Class of every image, from 0 on, or empty."""
    names: tuple[str, ...] | None = None
    """One name per image; its number if None."""
    digits: bool = False
    """Whether the classes are those of MNIST, so that the bundled classifier can judge."""

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Array:
        """The grey values of one image."""
        return self.pixels[index]


def digits(*classes: int, per_class: int = 1, mnist: bool | str | Path = False) -> Images:
    """The first MNIST training images of each class, in turn; all ten classes if none is named.

    Ten images per class come with the package. For more, ``mnist`` is a folder of the IDX files,
    or True to download them once.

    >>> import thermoloom as tl
    >>> tl.digits(0, 1, 2, per_class=2).names
    ('0', '1', '2', '0', '1', '2')
    """
    source = "mnist" if mnist else "bundled"
    wanted = PatternSettings(source=source, digits=classes or tuple(range(10)), per_digit=per_class)
    pixels, labels = load_mnist(None if mnist is True else mnist) if mnist else bundled_digits()
    order = in_turn(labels, wanted.digits, wanted.per_digit)
    digit_of_each = tuple(int(label) for label in labels[order])
    names = tuple(str(digit) for digit in digit_of_each)
    return Images(pixels[order], digit_of_each, names, digits=True)


def images(path: str | Path) -> Images:
    """A PNG image, a folder of them, a folder of folders (one for each class), or an .npy array.

    >>> import numpy as np, thermoloom as tl
    >>> np.save("stripes.npy", np.tile([0, 255], (3, 4, 2)))
    >>> tl.images("stripes.npy").names
    ('0', '1', '2')
    """
    file = user_path("images", path)
    if file.suffix.lower() == ".png" and file.is_file():
        return Images([read_png(file)], names=(file.stem,))
    pixels, names, classes = read_images(file)
    return Images(pixels, tuple(classes), tuple(names))


def edges(source: str | Path | ArrayLike) -> str:
    """A list of wires for ``Machine(topology="edges", edges=…)``: pairs of units (visible ones
    first, counted from 0), or a file of them (two to a line, or .npy).

    >>> import thermoloom as tl
    >>> wires = tl.edges([(0, 4), (4, 5)])
    >>> machine = tl.Machine(visible=4, hidden=2, topology="edges", edges=wires)
    """
    if isinstance(source, str | Path):
        return read_edges(user_path("edges", source))
    return text_of(np.asarray(source), "edges")


Source = Images | str | Path | ArrayLike


def patterns_from_source(
    source: Source,
    classes: Sequence[int] | None,
    machine: Machine,
    resize: bool = False,
    code: Array | None = None,
) -> Patterns:
    """Patterns from images of any source, fitted to the machine."""
    if isinstance(source, str | Path):
        source = images(source)
    elif not isinstance(source, Images):
        source = Images(_pixels(source))
    return from_images(
        list(source.pixels),
        machine,
        source.names,
        classes=source.classes if classes is None else _classes(classes),
        digits=source.digits and classes is None,
        resize=resize,
        code=None if code is None else np.asarray(code, np.float32),
    )


def _pixels(source: ArrayLike) -> Sequence[Array]:
    try:
        array = np.asanyarray(source)
    except ValueError:
        return list(source)  # type: ignore[arg-type]  # of different sizes: refused, or resized
    if array.ndim not in (2, 3):
        raise UserError(
            f"images: an array of shape {array.shape}; expected (n, h, w) or (n, machine.visible)"
        )
    return list(array)


def _classes(classes: Iterable[int]) -> tuple[int, ...]:
    array = np.asarray(classes)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError("classes: must be whole numbers, one for each image")
    return tuple(int(number) for number in array)
