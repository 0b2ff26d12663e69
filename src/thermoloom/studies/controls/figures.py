"""Figure 6 of the paper: heat by learning rate and by update period."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.measures.paired import RULES
from thermoloom.presentation.style import COLOURS, FAINT, GREEN, INK, MARKERS, PURPLE
from thermoloom.runs.formats import only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.controls.study import PERIOD, RATE
from thermoloom.studies.drawing import Trace, draw_screen, finish, in_rows, legend_above


def draw_heat(saved: StudyTables) -> Figure:
    """(a) heat by learning rate, (b) in pairs, (c) heat by update period, (d) in pairs."""
    figure, (rates, rate_pairs, periods, period_pairs) = in_rows(2, 2, 4.6)
    _draw_rates(rates, saved)
    _draw_pairs(rate_pairs, saved.summary["rate_differences"], PURPLE)
    _draw_periods(periods, saved)
    _draw_pairs(period_pairs, saved.summary["period_differences"], GREEN)
    rate, period = r"learning rate $\alpha$ / ($\Delta t/t_f$)", "update period $M$ (steps)"
    rules, first = "batch − online ($E_0$)", "heat relative to $M$ = 1 ($E_0$)"
    finish(rates, "a", "learning rate", xlabel=rate)
    finish(rate_pairs, "b", "paired difference of the rules", xlabel=rate, ylabel=rules)
    finish(periods, "c", "update period", xlabel=period)
    finish(period_pairs, "d", "paired difference from $M$ = 1", xlabel=period, ylabel=first)
    return figure


def _draw_rates(axes: Axes, saved: StudyTables) -> None:
    """Draw both rules side by side, with the single seeds behind them."""
    traces = {rule: Trace(COLOURS[rule], MARKERS[rule], rule) for rule in RULES}
    places = draw_screen(axes, saved, RATE, traces)
    for rule in RULES:
        runs = only(saved.table("conditions"), screen=RATE, variant=rule)
        axes.plot([places[rule][scale] for scale in runs["value"]], runs["heat_mean"],
                  MARKERS[rule], color=COLOURS[rule], alpha=0.3, markersize=3,
                  zorder=1)  # fmt: skip
    legend_above(axes, 0.12, ncols=2)


def _draw_periods(axes: Axes, saved: StudyTables) -> None:
    """Draw the mean over seeds, with a line for each seed behind it."""
    places = draw_screen(axes, saved, PERIOD, {"": Trace(GREEN)})[""]
    runs = only(saved.table("conditions"), screen=PERIOD)
    for seed in np.unique(runs["seed"]):
        of_seed = only(runs, seed=seed)
        axes.plot([places[period] for period in of_seed["value"]], of_seed["heat_mean"], ".-",
                  color=FAINT, linewidth=0.8, markersize=3, zorder=1)  # fmt: skip


def _draw_pairs(axes: Axes, rows: list[dict[str, Any]], colour: str) -> None:
    """Draw an open circle for each seed and, beside them, their mean with its 95 % interval."""
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
