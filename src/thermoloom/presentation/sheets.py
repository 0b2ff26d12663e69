"""Two quick pictures of a run: its loss curve and a sheet of its samples."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

INK, ACCENT = "#333333", "#0072b2"


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, facecolor="white")
    return buffer.getvalue()


def grey_scale(images: NDArray[Any]) -> tuple[float, float]:
    """One grey scale for all: 1st and 99th percentile of every value shown."""
    low, high = np.percentile(images, [1, 99])
    return float(low), float(high)


def tiled(images: NDArray[Any], gap: int) -> NDArray[np.float64]:
    """Images (rows, columns, height, width) as one, with so many empty pixels between them."""
    apart = np.pad(images, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    rows, _, height, _ = apart.shape
    return apart.swapaxes(1, 2).reshape(rows * height, -1)


def loss_curve(curve: dict[str, NDArray[Any]], title: str) -> bytes:
    """Validation loss per step, without its θ-independent squared-increment term, over cycles."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(curve["cycle"], curve["reduced_loss"], "o-", color=ACCENT, markersize=3.5)
    axes.set_xlabel("training cycle (one noising trajectory each)")
    axes.set_ylabel("validation loss per step\nminus squared-increment term")
    axes.set_title(title, fontsize=10, color=INK, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return png(figure)


class Sheet(Figure):
    """A figure that notebooks display, whatever its backend."""

    def _repr_png_(self) -> bytes:
        return png(self)


def sample_figure(
    images: NDArray[np.float32],
    shape: tuple[int, int],
    title: str,
    most: int = 60,
    names: Sequence[str] | None = None,
) -> Sheet:
    """The first samples of an archive in archive order, one shared grey scale.

    ``names``: a few letters over each sample, such as the requested class.
    """
    shown = images[:most]
    columns = min(10, len(shown))
    rows = math.ceil(len(shown) / columns)
    low, high = grey_scale(images)
    height = 0.85 if names is None else 1.0
    figure = Sheet(figsize=(0.85 * columns + 0.3, height * rows + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=9, color=INK, parse_math=False)
    for axes in np.ravel(figure.subplots(rows, columns, squeeze=False)):
        axes.axis("off")
    for axes, image, name in zip(figure.axes, shown, names or [""] * len(shown), strict=False):
        axes.imshow(image.reshape(shape), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(name, fontsize=7, color=INK, pad=1.5, parse_math=False)
    return figure
