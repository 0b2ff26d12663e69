"""The style of all figures: sizes for a two-column page, colours that all readers can distinguish.

The palette is that of Okabe and Ito. A rule has one colour and one marker throughout.
"""

from __future__ import annotations

from typing import Any

WIDTH = 7.1
"""Width of a figure across the page, in inches."""
DPI = 200

INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e4e4e4"
BLUE, ORANGE, GREEN, PURPLE, SKY, GREY = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b3b3b3",
)  # fmt: skip

MARK, MARK_BACK = "#8a4b00", "#fff6e6"
"""Text and background colours of results that are marked as too short."""

RULES = ("batch", "online")
COLOURS = {"batch": BLUE, "online": ORANGE, "optimum": GREEN}
MARKERS = {"batch": "s", "online": "o", "optimum": "^"}
LINES: dict[str, Any] = {"batch": (0, (4, 1.5)), "online": "-"}

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 1.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "figure.facecolor": "white",
    "savefig.facecolor": "auto",
    "pdf.fonttype": 42,
    "mathtext.fontset": "dejavusans",
}


def block_name(block: str) -> str:
    """A block of the parameters in words: visible–hidden couplings, hidden biases."""
    group, _, other = block.rpartition("_")
    return f"{group} biases" if other == "bias" else f"{group}–{other} couplings"
