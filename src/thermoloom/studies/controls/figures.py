"""Figure 6 of the paper: heat by learning rate and by update period."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.presentation.style import COLOURS, FAINT, GREEN, INK, MARKERS, PURPLE, RULES
from thermoloom.runs.formats import only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    curve_of,
    evenly,
    finish,
    in_rows,
    legend_above,
    response,
)

RATE, PERIOD = "learning rate", "update period"
"""Names of the two screens in the tables."""


def draw_heat(saved: StudyTables) -> Figure:
    """(a) heat by learning rate, (b) in pairs, (c) heat by update period, (d) in pairs."""
    figure, (rates, rate_pairs, periods, period_pairs) = in_rows(2, 2, 4.6)
    _rates(rates, saved)
    _pairs(rate_pairs, saved.summary["rate_differences"], PURPLE)
    _periods(periods, saved)
    _pairs(period_pairs, saved.summary["period_differences"], GREEN)
    rate, period = r"learning rate $\alpha$ / ($\Delta t/t_f$)", "update period $M$ (steps)"
    heat, against = "mean heat ($E_0$)", "heat relative to $M$ = 1 ($E_0$)"
    finish(rates, "a", "learning rate", xlabel=rate, ylabel=heat)
    title = "paired difference of the rules"
    finish(rate_pairs, "b", title, xlabel=rate, ylabel="batch − online ($E_0$)")
    finish(periods, "c", "update period", xlabel=period, ylabel=heat)
    finish(period_pairs, "d", "paired difference to $M$ = 1", xlabel=period, ylabel=against)
    return figure


def _rates(axes: Axes, saved: StudyTables) -> None:
    table = only(saved.table("conditions"), screen=RATE)
    places = evenly(axes, table["value"], 0.4)
    for rule, shift in zip(RULES, (-0.08, 0.08), strict=True):
        curve = curve_of(saved, RATE, rule)
        x = [places[v] + shift for v in curve["value"]]
        response(axes, curve, x, COLOURS[rule], MARKERS[rule], label=rule)
        own = only(table, variant=rule)
        axes.plot([places[v] + shift for v in own["value"]], own["heat_mean"], MARKERS[rule],
                  color=COLOURS[rule], alpha=0.3, markersize=3, zorder=1)  # fmt: skip
    legend_above(axes, 0.12, ncols=2)


def _periods(axes: Axes, saved: StudyTables) -> None:
    table = only(saved.table("conditions"), screen=PERIOD)
    places = evenly(axes, table["value"], 0.4)
    for seed in np.unique(table["seed"]):
        own = only(table, seed=seed)
        axes.plot([places[v] for v in own["value"]], own["heat_mean"], ".-", color=FAINT,
                  linewidth=0.8, markersize=3, zorder=1)  # fmt: skip
    curve = curve_of(saved, PERIOD)
    response(axes, curve, [places[v] for v in curve["value"]], GREEN)


def _pairs(axes: Axes, rows: list[dict[str, Any]], colour: str) -> None:
    """An open circle for each seed; beside them their mean with its 95 % interval."""
    for position, row in enumerate(rows):
        differences = row["differences"]
        shift = np.linspace(-0.22, -0.02, len(differences)) if len(differences) > 1 else [-0.12]
        axes.plot(position + np.array(shift), differences, "o", color=colour,
                  markerfacecolor="none", markersize=5, markeredgewidth=0.9)  # fmt: skip
        if row["interval"] is not None:
            axes.plot([position + 0.14] * 2, row["interval"], color=INK, linewidth=1.2)
        axes.plot([position + 0.14], [row["mean"]], "D", color=INK, markersize=3.5)
    axes.axhline(0, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_xticks(range(len(rows)), [f"{row['value']:g}" for row in rows])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.margins(y=0.1)
