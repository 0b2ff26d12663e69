"""Saved tables → figures. Nothing here simulates: what is drawn was written by an experiment.

A figure is a name, a caption and a function of what an experiment saved. It is kept as PNG
(200 dpi) and PDF beside the tables.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from thermoloom.presentation.style import DPI, FAINT, GRID, INK, STYLE, WIDTH
from thermoloom.runs.store import RunDirectory

Table = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Saved:
    """What an experiment left in its directory: summary, tables, arrays; read only."""

    run: RunDirectory
    summary: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Saved:
        run = RunDirectory.open(path)
        return cls(run, json.loads(run.load_bytes("summary.json")))

    def table(self, name: str) -> Table:
        return self.run.load_table(name)

    def arrays(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays of a file and the metadata beside them."""
        return self.run.load_arrays(name), self.run.load_metadata(name)


@dataclass(frozen=True)
class FigureSpec:
    """A figure of an experiment."""

    name: str
    """File name without its ending."""
    title: str
    draw: Callable[[Saved], Figure]
    caption: Callable[[dict[str, Any]], str]
    """HTML, from the summary: every number of a caption is there too."""


def render(spec: FigureSpec, saved: Saved) -> dict[str, bytes]:
    """The figure as ``{file name: bytes}``, PNG and PDF, the same bytes for the same tables."""
    # a file name in a script that the font lacks is drawn as boxes, without a warning
    with mpl.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = spec.draw(saved)
        return {
            f"{spec.name}.png": _bytes(figure, "png", {"Software": None}),
            f"{spec.name}.pdf": _bytes(figure, "pdf", {"CreationDate": None}),
        }


def _bytes(figure: Figure, kind: str, metadata: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=dict(metadata))
    return buffer.getvalue()


def only(table: Table, **wanted: Any) -> Table:
    """The rows of a table whose columns have these values."""
    keep = np.ones(len(next(iter(table.values()))), bool)
    for name, value in wanted.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


# --- pieces that figures share --------------------------------------------------------------------


def in_a_row(widths: Sequence[float], height: float) -> tuple[Figure, list[Axes]]:
    """A figure across the page with panels of these relative widths side by side."""
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.04)
    figure = Figure(figsize=(WIDTH, height), layout=layout)
    return figure, list(figure.subplots(1, len(widths), width_ratios=list(widths)))


def panel(axes: Axes, letter: str, title: str = "") -> None:
    """(a) in bold and the panel's title, in one line above it."""
    axes.set_title(f"({letter})", loc="left", fontweight="bold", x=0.0, ha="left")
    if title:
        axes.annotate(
            title,
            (0, 1),
            xycoords="axes fraction",
            xytext=(16, 6),
            textcoords="offset points",
            va="baseline",
            fontsize=STYLE["axes.titlesize"],
        )


def light_grid(axes: Axes, axis: str = "y") -> None:
    axes.grid(axis=axis, color=GRID, linewidth=0.6)  # type: ignore[arg-type]


def image(
    axes: Axes,
    state: NDArray[Any],
    shape: Sequence[int] | None,
    limits: tuple[float, float],
) -> None:
    """A visible state as a picture on a given grey scale; a strip where the layer is no image."""
    picture = state.reshape(tuple(shape) if shape else (1, -1))
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


def empty(axes: Axes, text: str) -> None:
    """A place where something would be, and why it is not."""
    axes.axis("off")
    axes.text(
        0.5, 0.5, text, ha="center", va="center", color=FAINT, style="italic",
        transform=axes.transAxes, parse_math=False,
    )  # fmt: skip


def intervals(
    axes: Axes,
    labels: Sequence[str],
    means: Sequence[float | None],
    bounds: Sequence[Sequence[float] | None],
    colour: str = INK,
    offset: float = 0.0,
    name: str | None = None,
) -> None:
    """Means with their intervals, one row a label, the first on top; hollow without interval."""
    rows = len(labels) - 1 - np.arange(len(labels)) + offset
    for row, mean, bound in zip(rows, means, bounds, strict=True):
        if mean is None:
            axes.text(0.5, row, "not measured", transform=axes.get_yaxis_transform(), ha="center",
                      va="center", color=FAINT, style="italic")  # fmt: skip
            continue
        if bound is not None:
            axes.plot(bound, [row, row], color=colour, linewidth=1.4, solid_capstyle="butt")
        fill = colour if bound is not None else "white"
        axes.plot(
            [mean], [row], "o", color=colour, markerfacecolor=fill, markersize=4.5, label=name
        )
        name = None  # one entry in the legend
    axes.axvline(0, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_yticks(range(len(labels)), list(reversed(labels)))
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.tick_params(axis="y", length=0)


def paired_lines(
    axes: Axes,
    values: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    markers: Mapping[str, str],
    names: Sequence[str] = (),
) -> None:
    """One line a pair between the conditions; names at the right end."""
    conditions = list(values)
    columns = np.array([values[c] for c in conditions], float)
    axes.plot(range(len(conditions)), columns, color=FAINT, linewidth=0.8, zorder=1)
    for position, condition in enumerate(conditions):
        axes.plot(
            [position] * columns.shape[1], columns[position], markers[condition],
            color=colours[condition], markeredgecolor="white", markeredgewidth=0.4, markersize=5.5,
        )  # fmt: skip
    for name, y in zip(names, spread_apart(columns[-1], axes), strict=False):
        axes.annotate(name, (len(conditions) - 1, y), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=6, color=FAINT)  # fmt: skip
    axes.set_xticks(range(len(conditions)), conditions)
    axes.set_xlim(-0.35, len(conditions) - 0.5)


def spread_apart(values: NDArray[Any], axes: Axes, share: float = 0.055) -> list[float]:
    """Heights of labels near ``values`` that do not overlap, at least a share of the axis apart."""
    low, high = axes.get_ylim()
    gap = share * (high - low)
    order = np.argsort(values)
    placed = np.array(values, float)
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    return [float(v) for v in placed - (placed.mean() - values.mean())]


def tag(figure: Figure | SubFigure, x: float, y: float, letter: str, title: str) -> None:
    """Letter and title of a panel that is made of several axes."""
    figure.text(x, y, f"({letter})", fontweight="bold", fontsize=STYLE["axes.titlesize"])
    figure.text(x + 0.028, y, title, fontsize=STYLE["axes.titlesize"])
