"""Images to learn from any source: bundled digits, MNIST, files, arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.ma import MaskedArray
from numpy.typing import ArrayLike, NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import user_path, whole_number
from thermoloom.machine.machine import Machine
from thermoloom.machine.wires import text_of
from thermoloom.patterns.edge_lists import read_edges
from thermoloom.patterns.images import read_images, refuse_colours_first
from thermoloom.patterns.mnist import BUNDLED, bundled_digits, load_mnist
from thermoloom.patterns.patterns import Patterns, from_images, in_turn, numbered_classes
from thermoloom.patterns.scale import Scale

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
    """Values, (n, h, w) or (n, h, w, c), or (n, N_v) where the visible layer is not an image."""
    classes: tuple[int, ...] = ()
    """Class of every image, a number from 0 up, or empty."""
    names: tuple[str, ...] | None = None
    """One name per image; None: the images are numbered."""
    digits: bool = False
    """Whether the classes are MNIST digits, which the bundled classifier can judge."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, by number, or empty."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a table, or empty."""

    def __repr__(self) -> str:
        shapes = sorted({np.shape(values) for values in self.pixels})
        sizes = [" × ".join(str(n) for n in shape) for shape in shapes]
        size = sizes[0] if len(sizes) == 1 else "different sizes"
        count = len(set(self.classes))
        classes = f", {count} class{'es' if count > 1 else ''}" if count else ""
        return f"Images({len(self)} of {size}{classes})"

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Array:
        """The values of one image."""
        return self.pixels[index]


def digits(*classes: int, per_class: int = 1, mnist: bool | str | Path = False) -> Images:
    """The first MNIST training images of each class, classes in turn.

    ``classes``: digits from 0 to 9; all ten if none is named. ``per_class``: number of images of
    each class, one by default; 0 takes all. Ten per class come with the package; for more,
    ``mnist`` is a folder of the IDX files, or True to download them once. The images are arrays
    (28, 28) of bytes.

    >>> import thermoloom as tl
    >>> tl.digits(0, 1, 2, per_class=2).names
    ('0', '1', '2', '0', '1', '2')
    """
    if any(np.ndim(number) for number in classes):
        raise UserError("classes: pass each digit as an argument, such as digits(0, 1, 2)")
    wanted = [whole_number("classes", number, 0, 9) for number in classes or range(10)]
    if len(set(wanted)) < len(wanted):
        raise UserError(f"classes = {classes}: must not repeat a class")
    if whole_number("per_class", per_class, 0) > BUNDLED and not mnist:
        raise UserError(
            f"per_class = {per_class}: {BUNDLED} images per class come with the package; use "
            "mnist=True for more"
        )
    pixels, labels = load_mnist(None if mnist is True else mnist) if mnist else bundled_digits()
    order = in_turn(labels, wanted, per_class)
    digit_of_each = tuple(int(label) for label in labels[order])
    names = tuple(str(digit) for digit in digit_of_each)
    return Images(pixels[order], digit_of_each, names, digits=True)


def images(path: str | Path, *, grey: bool = False, labels: str | Path | None = None) -> Images:
    """Read images, or rows of a table, from files.

    ``path``: a picture in any format that Pillow reads, a folder of pictures, a folder of such
    folders (one for each class), an IDX file or a folder of IDX files, or an .npy array (n, h, w),
    (n, h, w, c) or (n, N_v). ``grey``: reduce colours to their luminance. ``labels``: the IDX file
    of the classes, if it is not beside the images.

    >>> import numpy as np, thermoloom as tl
    >>> np.save("stripes.npy", np.tile([0, 255], (3, 4, 2)))
    >>> tl.images("stripes.npy").names
    ('0', '1', '2')
    """
    classes_file = None if labels is None else user_path("labels", labels)
    pixels, names, classes = read_images(user_path("path", path), grey, classes_file)
    numbers, class_names = numbered_classes(classes)
    return Images(pixels, numbers, tuple(names), class_names=class_names)


def edges(source: str | Path | ArrayLike) -> str:
    """A list of wires for ``Machine(topology="edges", edges=…)``.

    ``source``: pairs of units, counted from 0, visible units first, or a file of them (two numbers
    on each line, or an .npy array).

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
    classes: ArrayLike | None,
    machine: Machine,
    resize: bool | None = False,
    code: Array | Callable[[Array], ArrayLike] | None = None,
    scale: Scale | str | None = "",
    mean: ArrayLike | None = None,
    deviation: ArrayLike | None = None,
) -> Patterns:
    """Patterns from data of any source, fitted to the machine.

    ``code``: fields of the hidden units, or a function that returns them for patterns.
    ``resize`` is None where the caller has no such argument.
    """
    data = as_images(source)
    patterns = from_images(
        list(data.pixels),
        machine,
        data.names,
        classes=data.classes if classes is None else classes,
        class_names=data.class_names if classes is None else (),
        columns=data.columns,
        digits=data.digits and classes is None,
        resize=resize,
        scale=scale,
        mean=mean,
        deviation=deviation,
    )
    if code is None:
        return patterns
    fields = code(patterns.patterns) if callable(code) else code
    return replace(patterns, code=numpy_array("code", fields).astype(np.float32))


def as_images(source: Source) -> Images:
    """Data of any source: a path, a pandas table, an array of any library, a list of arrays."""
    if isinstance(source, Images):
        return source
    if isinstance(source, str | Path):
        return images(source)
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        return _table(source)
    try:
        array = _any_array("images", source)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        return Images(list(source))  # type: ignore[arg-type]  # of different sizes: refused, or resized
    if array.ndim not in (2, 3, 4):
        raise UserError(
            f"images: an array of shape {array.shape}; expected (n, h, w), (n, h, w, c) or "
            "(n, machine.visible)"
        )
    refuse_colours_first("images", array.shape)
    return Images(array)


def _table(table: Any) -> Images:
    """A pandas table; columns that are not numbers are refused by name."""
    text = [str(name) for name, kind in table.dtypes.items() if kind.kind not in "biuf"]
    if text:
        raise UserError(f"columns {', '.join(text)}: not numbers; encode them, or leave them out")
    numbers = table.to_numpy(dtype=np.float64, na_value=np.nan)
    return Images(numbers, columns=tuple(str(name) for name in table.columns))


def numpy_array(name: str, source: Any) -> Array:
    """An array as one of NumPy, from any library that supports DLPack, such as PyTorch and JAX."""
    try:
        return _any_array(name, source)
    except UserError:
        raise
    except ValueError:
        raise UserError(f"{name}: its rows have different lengths") from None


def _any_array(name: str, source: Any) -> Array:
    """Like ``numpy_array``; raises a ValueError if rows have different lengths."""
    if isinstance(source, list | tuple) and any(isinstance(row, MaskedArray) for row in source):
        return np.ma.array(source)  # a plain array would lose which values are unknown
    if isinstance(source, np.ndarray) or not hasattr(source, "__dlpack__"):
        return np.asanyarray(source)
    try:
        return np.from_dlpack(source.detach() if hasattr(source, "detach") else source)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{name}: this {type(source).__name__} cannot be read ({reason}); move it to the CPU, "
            "as float32"
        ) from None
