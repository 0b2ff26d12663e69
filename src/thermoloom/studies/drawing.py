"""Draw figures from tables, as PNG (200 dpi) and PDF beside the tables; nothing is simulated.

Also the pieces that figures share: panels, response curves, images, legends.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from thermoloom.errors import warnings_become
from thermoloom.presentation.style import (
    DPI,
    FAINT,
    GRID,
    INK,
    MARK,
    MARK_BACK,
    STYLE,
    WIDTH,
)  # fmt: skip
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.verdicts import mark

Draw = Callable[[StudyTables], Figure]
DrawTable = Callable[[Axes, Table], None]
MARK_HEIGHT = 0.28
"""Height in inches of the mark above the figures of a short run."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the package, whatever the user's matplotlib settings are."""
    # a file name in a script that the font lacks is drawn as boxes, without a warning
    glyphs = warnings_become("ignore", message="Glyph .* missing from")
    with glyphs, matplotlib.style.context(["default", STYLE]):
        yield


def render(name: str, draw: Draw, tables: StudyTables, pdf: bool = True) -> dict[str, bytes]:
    """The figure as ``{file name: bytes}``, PNG and PDF, the same bytes for the same tables."""
    with styled():
        figure = draw(tables)
        box = _marked(figure, text) if (text := mark(tables.summary)) else None
        files = {f"{name}.png": _bytes(figure, "png", {"Software": None}, box)}
        if pdf:
            figure.set_layout_engine("none")  # laid out once, and alike in both
            files[f"{name}.pdf"] = _bytes(figure, "pdf", {"CreationDate": None}, box)
        return files


def _marked(figure: Figure, text: str) -> Bbox:
    """Tint the figure of a run that is too short, and write a line above it; returns its box."""
    width, height = figure.get_size_inches()
    figure.set_facecolor(MARK_BACK)
    line = figure.text(0.5, 1 + 0.4 * MARK_HEIGHT / height, text, ha="center", va="center",
                       color=MARK, fontweight="bold", fontsize=9)  # fmt: skip
    line.set_in_layout(False)
    return Bbox.from_bounds(0, 0, width, height + MARK_HEIGHT)


def _bytes(figure: Figure, kind: str, metadata: Mapping[str, Any], box: Bbox | None) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=dict(metadata), bbox_inches=box)
    return buffer.getvalue()


# --- pieces that figures share ---


def in_a_row(widths: Sequence[float], height: float) -> tuple[Figure, list[Axes]]:
    """A figure across the page with panels of these relative widths side by side."""
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.04)
    figure = Figure(figsize=(WIDTH, height), layout=layout)
    panels = figure.subplots(1, len(widths), width_ratios=list(widths), squeeze=False)
    return figure, list(np.ravel(panels))


def in_rows(rows: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure across the page with rows of panels, row by row."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    figure = Figure(figsize=(WIDTH, height), layout=layout)
    return figure, list(np.ravel(figure.subplots(rows, columns)))


def panel(axes: Axes, letter: str, title: str = "") -> None:
    """The letter in bold, as in (a), and the title, in one line above the panel."""
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


def finish(axes: Axes, letter: str, title: str = "", axis: str = "y", **labels: Any) -> None:
    """Set labels and limits of a panel (as ``Axes.set``), with grid, letter and title."""
    axes.set(**labels)
    light_grid(axes, axis)
    panel(axes, letter, title)


def finish_all(row: Iterable[Axes], titles: Iterable[str], axis: str = "y") -> None:
    """Grids, letters that start with (a), and titles of panels in a row."""
    for axes, letter, title in zip(row, "abcdefghijkl", titles, strict=False):
        finish(axes, letter, title, axis)


def inset(axes: Axes, place: tuple[float, float, float, float], margin: float) -> Axes:
    """A small panel within a panel, for details that the full range hides."""
    small = axes.inset_axes(place)
    small.tick_params(labelsize=5.5, length=2)
    small.margins(y=margin)
    light_grid(small)
    return small


def empty(axes: Axes, text: str) -> None:
    """An empty panel with the reason why nothing is drawn there."""
    axes.axis("off")
    axes.text(
        0.5, 0.5, text, ha="center", va="center", color=FAINT, style="italic",
        transform=axes.transAxes, parse_math=False,
    )  # fmt: skip


def nothing(why: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    figure, (axes,) = in_a_row((1,), 0.6)
    empty(axes, why)
    return figure


def drawn(
    axes: Axes, saved: StudyTables, table: str, draw: DrawTable, why: str = "not measured"
) -> None:
    """Draw a saved table, or say why there is none."""
    if saved.has(table):
        draw(axes, saved.table(table))
    else:
        empty(axes, why)


def intervals(
    axes: Axes,
    labels: Sequence[str],
    means: Sequence[float | None],
    bounds: Sequence[Sequence[float] | None],
    colour: str = INK,
    offset: float = 0.0,
    name: str | None = None,
) -> None:
    """Means with their intervals, one row per label, the first on top; hollow without interval."""
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
    """One line per pair between the conditions; names at the right end."""
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


def evenly(axes: Axes, values: NDArray[Any]) -> dict[float, int]:
    """Places of values at equal distances; sets ticks and limits of the axis."""
    places = {float(value): place for place, value in enumerate(np.unique(values))}
    axes.set_xticks(list(places.values()), [f"{value:g}" for value in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    return places


def legend_above(axes: Axes, share: float, **options: Any) -> None:
    """A legend above the data, in a share of the axis that is added for it."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + share * (high - low))
    axes.legend(**{"loc": "upper left", "fontsize": 6.5} | options)


# --- response curves of screens ---

SHIFT = 0.08
"""Half of the distance between the curves of a screen, in places of an even axis."""


class Trace(NamedTuple):
    """How a curve is drawn."""

    colour: str
    marker: str = "o"
    label: str | None = None
    hollow: Sequence[float] = ()
    """Values whose markers are hollow."""


def draw_screen(
    axes: Axes,
    saved: StudyTables,
    screen: str,
    traces: Mapping[str, Trace],
    even: bool = True,
) -> dict[str, dict[float, float]]:
    """Mean heat along a screen, one trace for each variant; × where a condition diverged.

    On an ``even`` axis, values lie at equal distances, and curves side by side. Returns the place
    of every value on the axis, by variant.
    """
    places: dict[float, float] = {}
    if even:
        places |= evenly(axes, only(saved.table("curves"), screen=screen)["value"])
    count = len(traces)
    shifts = np.linspace(-SHIFT, SHIFT, count) if even and count > 1 else np.zeros(count)
    places_by_variant = {}
    for (variant, trace), shift in zip(traces.items(), shifts, strict=True):
        curve = curve_of(saved, screen, variant)
        x = {float(v): places.get(float(v), float(v)) + float(shift) for v in curve["value"]}
        _draw_curve(axes, curve, list(x.values()), trace)
        places_by_variant[variant] = x
    axes.set_ylabel("mean heat ($E_0$)")
    return places_by_variant


def curve_of(saved: StudyTables, screen: str, variant: str = "") -> Table:
    """The points of one curve."""
    return only(saved.table("curves"), screen=screen, variant=variant)


def _draw_curve(axes: Axes, curve: Table, x: Sequence[float], trace: Trace) -> None:
    """Mean heats with their error bars, joined."""
    bars = np.nan_to_num(curve["bar"].astype(float))
    axes.errorbar(
        x, curve["heat"], yerr=bars, color=trace.colour, marker=trace.marker, label=trace.label,
        capsize=1.8, elinewidth=0.9, capthick=0.9, linewidth=1.1,
    )  # fmt: skip
    if len(trace.hollow):
        hollow = np.isin(curve["value"], trace.hollow)
        axes.plot(np.array(x)[hollow], curve["heat"][hollow], trace.marker, color=trace.colour,
                  markerfacecolor="white", zorder=3)  # fmt: skip
    _mark_diverged(axes, x, curve)


def _mark_diverged(axes: Axes, x: Sequence[float], curve: Table) -> None:
    """An × at the upper edge for every condition that has no heat, with its cycle."""
    for position, count, cycle in zip(x, curve["diverged"], curve["diverged_in"], strict=True):
        if count:
            axes.plot([position], [1], "x", color=FAINT, clip_on=False, markersize=6,
                      transform=axes.get_xaxis_transform())  # fmt: skip
            axes.annotate(f"diverged\n(cycle {cycle:.0f})", (position, 1), fontsize=6, ha="center",
                          va="top", xytext=(0, -5), textcoords="offset points", color=FAINT,
                          xycoords=axes.get_xaxis_transform())  # fmt: skip


def draw_reference(
    axes: Axes,
    saved: StudyTables,
    screen: str,
    value: float,
    line: str = ":",
    label: str | None = None,
) -> None:
    """A line across the panel at the heat of one value, with which all others are compared."""
    for heat in only(saved.table("curves"), screen=screen, value=value)["heat"]:
        if np.isfinite(heat):
            axes.axhline(heat, color=FAINT, linewidth=1, linestyle=line, zorder=0, label=label)


def logarithmic(axes: Axes, curve: Table) -> None:
    """A logarithmic heat axis, linear around zero where heats are not all positive."""
    heats = curve["heat"][np.isfinite(curve["heat"])]
    if len(heats) and heats.min() > 0:
        axes.set_yscale("log")
    elif len(heats):
        linear = max(float(-heats.min()), 1e-3)
        axes.set_yscale("symlog", linthresh=linear)
        axes.set_ylim(-3 * linear, 3 * max(float(heats.max()), linear))
