"""Figures of devices: quality and heat as written and after recalibration, recovery, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import ScalarFormatter
from numpy.typing import NDArray

from thermoloom.presentation.image_sheet import draw_image_sheet
from thermoloom.presentation.style import BLUE, FAINT, GREY, INK, ORANGE, SKY, WIDTH
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.devices.study import LEARNING, NONE, WRITTEN, device_name, image_key
from thermoloom.studies.drawing import empty, in_a_row, light_grid, panel

GAP = 2
"""Pixels between images."""
WORDS = {WRITTEN: "θ* as written", LEARNING: "after recalibration"}
COLOURS = (SKY, ORANGE, INK, BLUE, GREY)
"""Colours by strength; with more strengths than colours, all curves look alike."""

Rows = list[dict[str, Any]]


def draw_devices(saved: StudyTables) -> Figure:
    """(a) quality and (b) heat before and after, (c) recovery of every imperfection."""
    figure = Figure(figsize=(WIDTH, 6.9), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.05))
    above, below = figure.subfigures(2, 1, height_ratios=(1.35, 1), squeeze=False).flat
    quality, heat = above.subplots(1, 2, sharey=True)
    rows = saved.summary["conditions"]
    _dumbbells(quality, rows, "before", "after", ("sem", "after_sem"))
    _dumbbells(heat, rows, "heat_before", "heat_after")
    quality.set_yticks(range(len(rows)), [device_name(row) for row in reversed(rows)], fontsize=6)
    quality.set_xlabel(saved.summary["measured"])
    heat.set_xlabel("heat ($E_0$)")
    _heat_axis(heat, rows)
    quality.legend(loc="lower left", fontsize=6.5)
    panel(quality, "a", "quality")
    panel(heat, "b", "heat")
    _recovery(below, saved)
    return figure


def _dumbbells(
    axes: Axes, rows: Rows, before: str, after: str, errors: tuple[str, str] | None = None
) -> None:
    """Draw a row for each device, with a line from its value before to its value after."""
    places = len(rows) - 1 - np.arange(len(rows))
    for place, row in zip(places, rows, strict=True):
        ends = row[before], row[after]
        if None not in ends:
            axes.plot(ends, [place, place], color=GREY, linewidth=1.6, zorder=1)
    for key, colour, fill, how, error in (
        (before, BLUE, "white", WRITTEN, errors and errors[0]),
        (after, ORANGE, ORANGE, LEARNING, errors and errors[1]),
    ):
        known = [row for row in rows if row[key] is not None]
        axes.errorbar(
            [row[key] for row in known],
            places[[row[key] is not None for row in rows]],
            xerr=[row[error] or 0.0 for row in known] if error else None,
            fmt="o", color=colour, markerfacecolor=fill, markersize=4, elinewidth=0.8,
            label=WORDS[how],
        )  # fmt: skip
    if rows[0][before] is not None:
        axes.axvline(rows[0][before], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    light_grid(axes)


def _heat_axis(axes: Axes, rows: Rows) -> None:
    """Make the axis logarithmic if heats differ by more than a factor of five."""
    ideal, most = rows[0]["heat_before"], max(row["heat_before"] or 0.0 for row in rows)
    if ideal and most > 5 * abs(ideal):
        ticks = [factor * 10**power for power in range(1, 6) for factor in (0.5, 1, 2)]
        axes.set_xscale("symlog", linthresh=abs(ideal))
        axes.set_xticks([0, *(tick for tick in ticks if abs(ideal) / 3 < tick < 1.1 * most)])
        axes.xaxis.set_major_formatter(ScalarFormatter())


def _recovery(figure: SubFigure, saved: StudyTables) -> None:
    """A panel for each imperfection: quality along trajectories, at every strength."""
    names, measure = saved.summary["imperfections"], saved.summary["measure"]
    table = saved.table("courses")
    panels = np.ravel(figure.subplots(2, (len(names) + 1) // 2, sharex=True, sharey=True))
    ideal = float(only(table, imperfection=NONE, how=WRITTEN)[measure].astype(float).mean())
    steps = sorted(set(table["trajectories"].tolist()))
    for axes, (name, label) in zip(panels, names.items(), strict=False):
        courses = only(table, imperfection=name)
        strengths = sorted(set(courses["strength"].tolist()))
        colours = COLOURS if len(strengths) <= len(COLOURS) else [INK] * len(strengths)
        for strength, colour in zip(strengths, colours, strict=False):
            _draw_course(axes, only(courses, strength=strength), measure, colour, f"{strength:g}")
        axes.axhline(ideal, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(-0.15, 1.25 * steps[-1])
        axes.set_xticks(steps, [f"{step}" for step in steps])
        axes.minorticks_off()
        axes.set_title(label, fontsize=6.5)
        if strengths:
            axes.legend(fontsize=5.5, loc="best", handlelength=1.0)
        light_grid(axes)
    for axes in panels[len(names) :]:
        axes.axis("off")
    figure.supxlabel("trajectories on the device", fontsize=7)
    figure.supylabel(saved.summary["measured"], fontsize=7)
    figure.suptitle(r"$\bf{(c)}$  recovery", x=0.01, ha="left", fontsize=8)


def _draw_course(axes: Axes, course: Table, measure: str, colour: str, label: str) -> None:
    """Draw the course from θ* as written through further learning; dotted: without learning."""
    written, learning = only(course, how=WRITTEN), only(course, how=LEARNING)
    lines = [(learning, "o-", label)]
    if len(written["how"]) > len(set(course["seed"].tolist())):  # it changes without learning
        lines.append((written, "x:", ""))
    for rows, look, name in lines:
        joined = {key: np.concatenate([written[key][written["trajectories"] == 0], rows[key]])
                  for key in ("trajectories", measure)}  # fmt: skip
        steps = sorted(set(joined["trajectories"].tolist()))
        means = [
            float(np.mean(joined[measure][joined["trajectories"] == step].astype(float)))
            for step in steps
        ]
        axes.plot(steps, means, look, color=colour, markersize=2.8, linewidth=1, label=name or None)


def draw_samples(saved: StudyTables) -> Figure:
    """Samples of the strongest case of each imperfection, as written and after recalibration."""
    arrays, metadata = saved.arrays("images")
    strongest = list({row["imperfection"]: row for row in saved.summary["conditions"]}.values())
    figure, halves = in_a_row((1, 1), 0.3 * len(strongest) + 0.5)
    for axes, how, letter in zip(halves, (WRITTEN, LEARNING), "ab", strict=True):
        panel(axes, letter, WORDS[how])
        if metadata["shape"] is None:
            empty(axes, "the visible layer is not an image")
            continue
        samples = [arrays.get(image_key(row, how)) for row in strongest]
        names = [device_name(row) for row in strongest] if how == WRITTEN else []
        sheet = _sheet(samples, metadata["shape"])
        draw_image_sheet(axes, sheet, (-1.0, 1.0), GAP, row_names=names)
        axes.tick_params(axis="y", labelsize=6)
    return figure


def _sheet(samples: list[NDArray[Any] | None], shape: list[int]) -> NDArray[np.float64]:
    """Images (rows, columns, height, width), a row for each computer; NaN where there are none."""
    count = max((len(states) for states in samples if states is not None), default=1)
    sheet = np.full((len(samples), count, *shape), np.nan)
    for row, states in zip(sheet, samples, strict=True):
        if states is not None:
            row[: len(states)] = np.nan_to_num(states, posinf=1, neginf=-1).reshape(-1, *shape)
    return sheet
