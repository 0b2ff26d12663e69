"""Figures of devices: quality and heat as written and after recalibration, and recovery."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import ScalarFormatter
from numpy.typing import NDArray

from thermoloom.presentation.drawing import empty, in_a_row, light_grid, panel
from thermoloom.presentation.image_sheet import draw_image_sheet
from thermoloom.presentation.style import BLUE, FAINT, GREY, INK, ORANGE, SKY, WIDTH
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables

GAP = 2
"""Pixels between images."""


def draw_devices(saved: StudyTables) -> Figure:
    """(a) quality and (b) heat before and after, (c) recovery of every imperfection."""
    figure = Figure(figsize=(WIDTH, 6.9), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.05))
    above, below = figure.subfigures(2, 1, height_ratios=(1.35, 1), squeeze=False).flat
    quality, heat = above.subplots(1, 2, sharey=True)
    rows = saved.summary["conditions"]
    _dumbbells(quality, rows, "before", "after", ("sem", "after_sem"))
    _dumbbells(heat, rows, "heat_before", "heat_after")
    names = [_name(row) for row in reversed(rows)]
    quality.set_yticks(range(len(rows)), names, fontsize=6)
    quality.set_xlabel(saved.summary["measured"])
    heat.set_xlabel("heat ($E_0$)")
    ideal, most = rows[0]["heat_before"], max(row["heat_before"] or 0.0 for row in rows)
    if ideal and most > 5 * abs(ideal):
        heat.set_xscale("symlog", linthresh=abs(ideal))
        heat.set_xticks([0, *(m * 10**d for d in range(1, 6) for m in (0.5, 1, 2) if
                              abs(ideal) / 3 < m * 10**d < 1.1 * most)])  # fmt: skip
        heat.xaxis.set_major_formatter(ScalarFormatter())
    quality.legend(loc="lower left", fontsize=6.5)
    panel(quality, "a", "quality")
    panel(heat, "b", "heat")
    _ways_back(below, saved)
    return figure


def _name(row: dict[str, Any]) -> str:
    return f"{row['label']} {row['strength']:g}" if row["strength"] else str(row["label"])


def _dumbbells(
    axes: Axes,
    rows: list[dict[str, Any]],
    before: str,
    after: str,
    errors: tuple[str, str] | None = None,
) -> None:
    """A row for each device, joined from what it was to what it became."""
    places = len(rows) - 1 - np.arange(len(rows))
    for place, row in zip(places, rows, strict=True):
        ends = row[before], row[after]
        if None not in ends:
            axes.plot(ends, [place, place], color=GREY, linewidth=1.6, zorder=1)
    for key, colour, fill, name, error in (
        (before, BLUE, "white", "θ* as written", 0),
        (after, ORANGE, ORANGE, "after recalibration", 1),
    ):
        known = [row[key] is not None for row in rows]
        x = [row[key] for row in rows if row[key] is not None]
        bars = None if errors is None else [row[errors[error]] or 0.0 for row in rows
                                            if row[key] is not None]  # fmt: skip
        axes.errorbar(x, places[known], xerr=bars, fmt="o", color=colour, markerfacecolor=fill,
                      markersize=4, elinewidth=0.8, label=name)  # fmt: skip
    if rows[0][before] is not None:
        axes.axvline(rows[0][before], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    light_grid(axes)


def _ways_back(figure: SubFigure, saved: StudyTables) -> None:
    """A panel for each imperfection: quality along trajectories, at every strength."""
    names, measure = saved.summary["imperfections"], saved.summary["measure"]
    table = saved.table("courses")
    columns = (len(names) + 1) // 2
    grid = np.ravel(figure.subplots(2, columns, sharex=True, sharey=True))
    ideal = float(only(table, imperfection="none", how="written")[measure].astype(float).mean())
    steps = sorted(set(table["trajectories"].tolist()))
    for axes, (name, label) in zip(grid, names.items(), strict=False):
        own = only(table, imperfection=name)
        strengths = sorted(set(own["strength"].tolist()))
        for strength, colour in zip(strengths, _shades(len(strengths)), strict=True):
            _course(axes, only(own, strength=strength), measure, colour, f"{strength:g}")
        axes.axhline(ideal, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(-0.15, 1.25 * steps[-1])
        axes.set_xticks(steps, [f"{step}" for step in steps])
        axes.minorticks_off()
        axes.set_title(label, fontsize=6.5)
        if strengths:
            axes.legend(fontsize=5.5, loc="best", handlelength=1.0)
        light_grid(axes)
    for axes in grid[len(names) :]:
        axes.axis("off")
    figure.supxlabel("trajectories on the device", fontsize=7)
    figure.supylabel(saved.summary["measured"], fontsize=7)
    figure.suptitle(r"$\bf{(c)}$  recovery", x=0.01, ha="left", fontsize=8)


def _course(axes: Axes, own: Table, measure: str, colour: str, label: str) -> None:
    """From θ* as written through the points of learning; dashed: left alone."""
    written, learning = only(own, how="written"), only(own, how="learning")
    for rows, style in ((learning, "o-"), (written, "x:")):
        if style == "x:" and len(rows["how"]) <= len(set(own["seed"].tolist())):
            continue  # nothing changes while it is left alone
        joined = {k: np.concatenate([written[k][written["trajectories"] == 0], rows[k]])
                  for k in ("trajectories", measure)}  # fmt: skip
        steps = sorted(set(joined["trajectories"].tolist()))
        means = [
            float(np.mean(joined[measure][joined["trajectories"] == step].astype(float)))
            for step in steps
        ]
        axes.plot(steps, means, style, color=colour, markersize=2.8, linewidth=1,
                  label=label if style == "o-" else None)  # fmt: skip


def _shades(count: int) -> list[str]:
    return [SKY, ORANGE, INK, BLUE, GREY][:count] if count <= 5 else [INK] * count


def draw_samples(saved: StudyTables) -> Figure:
    """Samples of the strongest case of each imperfection, as written and after recalibration."""
    arrays, about = saved.arrays("images")
    strongest = list({row["imperfection"]: row for row in saved.summary["conditions"]}.values())
    names = [_name(row) for row in strongest]
    figure, halves = in_a_row((1, 1), 0.3 * len(names) + 0.5)
    for axes, how, letter in zip(halves, ("written", "learning"), "ab", strict=True):
        panel(axes, letter, "θ* as written" if how == "written" else "after recalibration")
        if about["shape"] is None:
            empty(axes, "the visible layer is not an image")
            continue
        keys = [f"{row['imperfection']} {row['strength']:g} {how}" for row in strongest]
        rows = [arrays.get(key) for key in keys]
        sheet = _sheet(rows, about["shape"])
        row_names = names if how == "written" else ()
        draw_image_sheet(axes, sheet, (-1.0, 1.0), GAP, row_names=row_names)
        axes.tick_params(axis="y", labelsize=6)
    return figure


def _sheet(rows: list[NDArray[Any] | None], shape: list[int]) -> NDArray[np.float64]:
    """Images (rows, columns, height, width), a row for each computer; NaN where there are none."""
    count = max((len(row) for row in rows if row is not None), default=1)
    states = np.full((len(rows), count, *shape), np.nan)
    for place, row in zip(states, rows, strict=True):
        if row is not None:
            place[: len(row)] = np.nan_to_num(row, posinf=1, neginf=-1).reshape(-1, *shape)
    return states
