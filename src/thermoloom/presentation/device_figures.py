"""Figures of devices: quality and heat as written and after recalibration, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from thermoloom.presentation.drawing import empty, image, light_grid, panel, tag
from thermoloom.presentation.saved import Saved, Table, only
from thermoloom.presentation.style import BLUE, FAINT, GREY, INK, ORANGE, SKY, WIDTH


def draw_devices(saved: Saved) -> Figure:
    """(a) quality and (b) heat before and after, (c) the way back of every imperfection."""
    figure = Figure(figsize=(WIDTH, 6.9), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.05))
    above, below = figure.subfigures(2, 1, height_ratios=(1.35, 1), squeeze=False).flat
    quality, heat = above.subplots(1, 2, sharey=True)
    rows = saved.summary["conditions"]
    _dumbbells(quality, rows, "before", "after", ("sem", "after_sem"))
    _dumbbells(heat, rows, "heat_before", "heat_after")
    names = [
        f"{row['label']} {row['strength']:g}" if row["strength"] else row["label"] for row in rows
    ]
    quality.set_yticks(range(len(rows)), list(reversed(names)), fontsize=6)
    quality.set_xlabel(saved.summary["measured"])
    heat.set_xlabel("heat ($E_0$)")
    quality.legend(loc="lower left", fontsize=6.5)
    panel(quality, "a", "quality")
    panel(heat, "b", "heat")
    _ways_back(below, saved)
    return figure


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


def _ways_back(figure: SubFigure, saved: Saved) -> None:
    """A panel for each imperfection: quality along trajectories, at every strength."""
    names, measure = saved.summary["imperfections"], saved.summary["measure"]
    table = saved.table("courses")
    columns = (len(names) + 1) // 2
    grid = np.ravel(figure.subplots(2, columns, sharex=True, sharey=True))
    ideal = float(only(table, imperfection="none", how="written")[measure].astype(float).mean())
    last = saved.summary["trajectories"]
    for axes, (name, label) in zip(grid, names.items(), strict=False):
        own = only(table, imperfection=name)
        strengths = sorted(set(own["strength"].tolist()))
        for strength, colour in zip(strengths, _shades(len(strengths)), strict=True):
            _course(axes, only(own, strength=strength), measure, colour, f"{strength:g}")
        axes.axhline(ideal, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(-0.15, 1.25 * last)
        axes.set_title(label, fontsize=6.5)
        axes.legend(fontsize=5.5, loc="lower right", handlelength=1.0)
        light_grid(axes)
    for axes in grid[len(names) :]:
        axes.axis("off")
    figure.supxlabel("trajectories on the device", fontsize=7)
    figure.supylabel(saved.summary["measured"], fontsize=7)
    figure.suptitle("(c)", x=0.01, ha="left", fontweight="bold", fontsize=8)


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


def draw_samples(saved: Saved) -> Figure:
    """Samples of the strongest case of each imperfection, as written and after recalibration."""
    arrays, about = saved.arrays("images")
    shape = about["shape"]
    strongest = {row["imperfection"]: row for row in saved.summary["conditions"]}
    height = 0.34 * len(strongest) + 0.5
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01))
    halves = figure.subfigures(1, 2, squeeze=False).flat
    for half, how, letter in zip(halves, ("written", "learning"), "ab", strict=True):
        first = arrays.get(f"none 0 {how}")
        count = 1 if first is None else len(first)
        grid = half.subplots(len(strongest), count + 1, squeeze=False,
                             width_ratios=[2.6, *([1] * count)])  # fmt: skip
        for line, row in zip(grid, strongest.values(), strict=True):
            states = arrays.get(f"{row['imperfection']} {row['strength']:g} {how}")
            name = row["label"].replace(" of ", " of\n").replace(" couplings", "\ncouplings")
            empty(line[0], name + (f" {row['strength']:g}" if row["strength"] else ""))
            line[0].texts[0].set(fontsize=5.5, style="normal", color=INK)
            for place, axes in enumerate(line[1:]):
                if states is None or shape is None or not np.isfinite(states[place]).all():
                    empty(axes, "–")
                else:
                    image(axes, states[place], shape, (-1.0, 1.0))
        title = "θ* as written" if how == "written" else "after recalibration"
        tag(half, 0.02, 1.0, letter, title)
    return figure
