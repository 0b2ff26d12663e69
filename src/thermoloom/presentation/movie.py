"""An animation of samples from noise to images, with their mean heat so far."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from thermoloom.presentation.image_sheet import grey_scale

SHOWN = 10
"""Samples side by side, in two rows."""
FRAMES = 48
MILLISECONDS, LAST = 70, 2500
"""Durations of a frame and of the last frame."""
WIDTH = 480
"""Approximate width of the animation in pixels."""
GREYS = 24
"""Number of grey values; few are enough for the eye, and noise compresses badly."""
COLUMNS, GAP, LINE = 5, 4, 26


def animation(
    states: NDArray[np.float32],
    shape: Sequence[int],
    heat: Sequence[float] | NDArray[Any],
    kT: float,
) -> bytes:
    """GIF of visible states (samples, frames, N_v); ``heat`` (frames,) is the mean heat in E₀.

    All frames have the grey scale of the last one.
    """
    low, high = grey_scale(states[:, -1])
    grey = np.clip((states - low) / max(high - low, 1e-12), 0, 1)
    pixels = np.round(255 / (GREYS - 1) * np.round((GREYS - 1) * grey)).astype(np.uint8)
    columns = min(COLUMNS, len(states))
    zoom = max(1, (WIDTH // columns - GAP) // shape[1])
    font = ImageFont.load_default(14)
    frames = [
        _frame(pixels[:, number].reshape(-1, *shape), columns, zoom, _counted(value, kT), font)
        for number, value in enumerate(heat)
    ]
    buffer = io.BytesIO()
    pauses = [MILLISECONDS] * (len(frames) - 1) + [LAST]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0)
    return buffer.getvalue()


def _counted(heat: float, kT: float) -> str:
    return f"heat released: {heat:.1f} E0 = {heat / kT:.0f} kT per image"


def _frame(images: NDArray[np.uint8], columns: int, zoom: int, text: str, font: Any) -> Image.Image:
    """The images in rows, and a line of text below."""
    height, width = (zoom * side + GAP for side in images.shape[1:3])
    rows = -(-len(images) // columns)
    colours = images.ndim == 4 and images.shape[3] == 3
    size = (columns * width + GAP, rows * height + GAP + LINE)
    frame = Image.new("RGB" if colours else "L", size, "white")
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        plain = image if colours else image.reshape(image.shape[0], -1)
        large = Image.fromarray(plain.repeat(zoom, axis=0).repeat(zoom, axis=1))
        frame.paste(large, (GAP + column * width, GAP + row * height))
    ImageDraw.Draw(frame).text((GAP, rows * height + GAP + 6), text, "black", font)
    return frame
