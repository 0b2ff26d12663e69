"""Figure of the ledger: heat of an image, its bounds and its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.measures.paired import RULES
from thermoloom.presentation.style import COLOURS, FAINT, GREY, INK, MARKERS, SKY
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import finish_all, in_a_row, legend_above

Means = list[dict[str, Any]]


def draw_ledger(tables: StudyTables) -> Figure:
    """(a) heat between its bounds; (b) heat by part; (c) heat and speed limit of each computer."""
    figure, (bounds, parts, computers) = in_a_row((1.15, 1.15, 0.9), 2.7)
    _draw_bounds(bounds, tables.summary["means"])
    _draw_parts(parts, tables.summary["means"])
    _draw_computers(computers, tables.table("ledger"))
    titles = ("heat and its bounds", "heat by part", "distance and heat")
    finish_all((bounds, parts, computers), titles)
    return figure


def _draw_bounds(axes: Axes, means: Means) -> None:
    places = np.arange(len(means))
    axes.bar(places, [row["heat"] for row in means], 0.62, color=GREY, label="heat")
    axes.bar(places, [row["speed_limit"] for row in means], 0.62, color=SKY, label="speed limit")
    axes.plot(places, [row["most_production"] for row in means], "_", color=INK, markersize=13,
              label="entropy produced, at most")  # fmt: skip
    axes.set_xticks(places, [row["rule"].replace(", ", "\n") for row in means], fontsize=6)
    axes.set_ylabel("per image ($k_BT$)")
    legend_above(axes, 0.3, ncols=2, columnspacing=0.9, handlelength=1.0)


def _draw_parts(axes: Axes, means: Means) -> None:
    """Drop of each part of the energy, side by side for each kind of computer."""
    rows = [row for row in means if row["rule"] in COLOURS]
    parts, width = list(rows[0]["parts"]), 0.8 / len(rows)
    for number, row in enumerate(rows):
        places = np.arange(len(parts)) + (number - (len(rows) - 1) / 2) * width
        axes.bar(places, list(row["parts"].values()), width, color=COLOURS[row["rule"]],
                 label=row["rule"])  # fmt: skip
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set_xticks(range(len(parts)), [part.replace("_", "\n") for part in parts], fontsize=6)
    axes.set_ylabel("drop in energy ($k_BT$)")
    axes.legend(fontsize=6.5)


def _draw_computers(axes: Axes, ledger: Table) -> None:
    for rule in RULES:
        rows = only(ledger, rule=rule)
        axes.errorbar(rows["heat"], rows["speed_limit"], rows["speed_limit_sem"], rows["heat_sem"],
                      MARKERS[rule], color=COLOURS[rule], markersize=4, elinewidth=0.8,
                      label=rule)  # fmt: skip
    axes.set(xlabel="heat ($k_BT$)", ylabel="speed limit ($k_BT$)")
    axes.legend(fontsize=6.5)
