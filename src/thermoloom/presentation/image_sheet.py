"""Sheets of images: rows and columns on one grey scale.

Samples, trajectories and comparisons of images are all drawn by ``draw_image_sheet``, or image by
image by ``draw_image``.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

INK = "#333333"
EITHER = "#888888"
"""Ink that is legible on light and on dark pages."""


def png(figure: Figure, background: str = "white") -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, facecolor=background)
    return buffer.getvalue()


def grey_scale(images: NDArray[Any]) -> tuple[float, float]:
    """One grey scale for all images: the 1st and 99th percentile of their pixels."""
    low, high = np.percentile(images, [1, 99])
    return float(low), float(high)


def draw_image(
    axes: Axes, state: NDArray[Any], shape: Sequence[int] | None, limits: tuple[float, float]
) -> None:
    """Draw a picture, grey or RGB, between these limits; a strip if the layer is not an image."""
    picture = state.reshape(tuple(shape) if shape else (1, -1))
    if picture.ndim == 3:
        low, high = limits
        picture = np.clip((picture - low) / max(high - low, 1e-12), 0, 1)
    axes.imshow(
        picture,
        cmap="gray",
        vmin=limits[0],
        vmax=limits[1],
        interpolation="nearest",
        aspect="equal" if shape else "auto",
    )
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_image_sheet(
    axes: Axes,
    images: NDArray[Any],
    limits: tuple[float, float],
    gap: int = 0,
    column_names: Sequence[str] = (),
    row_names: Sequence[str] = (),
) -> None:
    """Draw images (rows, columns, height, width) ``gap`` pixels apart; NaN is left white."""
    _, _, height, width = images.shape
    sheet = _tiled(images, gap)
    draw_image(axes, sheet, sheet.shape, limits)
    axes.xaxis.tick_top()
    axes.set_xticks(_centres(len(column_names), width, gap), column_names)
    axes.set_yticks(_centres(len(row_names), height, gap), row_names)
    axes.tick_params(length=0)


def _tiled(images: NDArray[Any], gap: int) -> NDArray[np.float64]:
    """The images as one, each followed by ``gap`` white pixels to the right and below."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    rows, _, height, _ = padded.shape
    return padded.swapaxes(1, 2).reshape(rows * height, -1)


def _centres(count: int, size: int, gap: int) -> list[float]:
    """Pixel coordinates of the middle of each image."""
    return [(size + gap) * number + (size - 1) / 2 for number in range(count)]


class SampleFigure(Figure):
    """A figure that notebooks display, whatever its backend."""

    def _repr_png_(self) -> bytes:
        return png(self)


def sample_figure(
    images: NDArray[np.float32],
    shape: Sequence[int],
    title: str,
    most: int = 60,
    names: Sequence[str] | None = None,
    ink: str = INK,
) -> SampleFigure:
    """The first samples of an archive in archive order, on one grey scale.

    ``names``: a short text above each sample, such as the requested class.
    """
    shown = images[:most]
    columns = min(10, len(shown))
    rows = math.ceil(len(shown) / columns)
    limits = grey_scale(images)
    height = 0.85 if names is None else 1.0
    figure = SampleFigure(figsize=(0.85 * columns + 0.3, height * rows + 0.6), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=9, color=ink, parse_math=False)
    for axes in np.ravel(figure.subplots(rows, columns, squeeze=False)):
        axes.axis("off")
    for axes, image, name in zip(figure.axes, shown, names or [""] * len(shown), strict=False):
        draw_image(axes, image, shape, limits)
        axes.set_title(name, fontsize=7, color=ink, pad=1.5, parse_math=False)
    return figure
