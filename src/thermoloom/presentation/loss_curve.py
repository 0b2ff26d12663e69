"""A figure of the validation loss of one training."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from thermoloom.presentation.image_sheet import INK, png

ACCENT = "#0072b2"


def loss_curve(curve: dict[str, NDArray[Any]], title: str) -> bytes:
    """PNG of the validation loss per step, without its squared-increment term, against cycles."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(curve["cycle"], curve["reduced_loss"], "o-", color=ACCENT, markersize=3.5)
    axes.set_xlabel("training cycle (one noising trajectory each)")
    axes.set_ylabel("validation loss per step\nminus squared-increment term")
    axes.set_title(title, fontsize=10, color=INK, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return png(figure)
