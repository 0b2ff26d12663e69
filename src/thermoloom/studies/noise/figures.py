"""Figure 4 of the paper: heat by the errors of training."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.presentation.style import BLUE, GREEN, INK, ORANGE, PURPLE
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    Trace,
    curve_of,
    draw_reference,
    draw_screen,
    finish,
    in_rows,
    logarithmic,
)
from thermoloom.studies.noise.study import (
    BELOW_CROSSOVER,
    BEYOND_CROSSOVER,
    MEMORY,
    OFFSET,
    PERIODS,
    RESIDUAL,
    SCREENS,
    UPDATE,
    variant,
)
from thermoloom.studies.verdicts import NOT_MEASURED, TOO_SHORT

COLOURS = {UPDATE: ORANGE, RESIDUAL: BLUE, OFFSET: PURPLE, MEMORY: GREEN}
AMPLITUDES = {
    UPDATE: r"update noise $\sigma_{\rm upd}$",
    RESIDUAL: r"residual noise $\sigma_{\rm res}$",
    OFFSET: r"residual offset $\mu_{\rm bias}$",
    MEMORY: r"correlation $\rho$ of successive errors",
}


def draw_heat(saved: StudyTables) -> Figure:
    """Heat against (a) update noise, (b) residual noise, (c) offset, (d) AR(1) correlation."""
    figure, panels = in_rows(2, 2, 4.5)
    level = rf"$\sigma_{{\rm res}}$ = {saved.summary['amplitude']:g}"
    titles = {
        UPDATE: "noise on formed updates",
        RESIDUAL: "independent noise on residuals",
        OFFSET: f"offset, {level}",
        MEMORY: f"AR(1) noise, {level}",
    }
    for axes, screen, letter in zip(panels, SCREENS, "abcd", strict=True):
        draw_screen(axes, saved, screen, {"": Trace(COLOURS[screen])}, even=False)
        draw_reference(axes, saved, screen, 0.0)
        if screen == UPDATE:
            _mark_crossover(axes, saved)
        if screen == OFFSET:
            _space_offsets(axes, saved)
        if screen in (OFFSET, MEMORY):
            logarithmic(axes, curve_of(saved, screen))
        else:
            low, high = axes.get_ylim()
            axes.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
        finish(axes, letter, titles[screen], xlabel=AMPLITUDES[screen])
    return figure


def draw_accumulated(saved: StudyTables) -> Figure:
    """Heat against update noise, relative to the heat without noise, for each update period."""
    figure, (axes,) = in_rows(1, 1, 2.6)
    curves = {"M = 1": curve_of(saved, UPDATE)} | {
        variant(period): curve_of(saved, PERIODS, variant(period))
        for period in saved.summary["periods"]
    }
    for (name, curve), colour, marker in zip(
        curves.items(), (ORANGE, BLUE, GREEN, PURPLE, INK), "osD^v", strict=False
    ):
        baseline = float(curve["heat"][curve["value"] == 0][0])
        percent = 100 * (curve["heat"].astype(float) - baseline) / abs(baseline)
        bars = 100 * np.nan_to_num(curve["bar"].astype(float)) / abs(baseline)
        axes.errorbar(curve["value"], percent, yerr=bars, color=colour, marker=marker, label=name,
                      capsize=1.8, elinewidth=0.9, linewidth=1.1)  # fmt: skip
    axes.axhline(0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_ylabel("change of heat (%)")
    axes.legend(frameon=False, fontsize=7)
    finish(axes, "a", "updates accumulated over M steps", xlabel=AMPLITUDES[UPDATE])
    return figure


def _mark_crossover(axes: Axes, saved: StudyTables) -> None:
    """Shade the paper's crossover, if this run may be compared with the paper."""
    verdicts = {row["key"]: row["verdict"] for row in saved.summary["statements"]}
    low, high = BELOW_CROSSOVER, BEYOND_CROSSOVER
    if verdicts["crossover"] in (NOT_MEASURED, TOO_SHORT) or axes.get_xlim()[1] < high:
        return
    axes.axvspan(low, high, color=INK, alpha=0.07, linewidth=0, zorder=0)
    axes.annotate("crossover\nin the paper", (low, 0.96), xytext=(-3, 0), ha="right",
                  va="top", fontsize=6.5, textcoords="offset points",
                  xycoords=axes.get_xaxis_transform())  # fmt: skip


def _space_offsets(axes: Axes, saved: StudyTables) -> None:
    """A logarithmic axis that begins at the smallest offset, with zero at its left."""
    values = np.unique(curve_of(saved, OFFSET)["value"])
    nonzero = np.abs(values[values != 0])
    if len(nonzero):
        axes.set_xscale("symlog", linthresh=nonzero.min(), linscale=0.5)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_xlim(min(0.0, 1.3 * values.min()) - 0.3 * nonzero.min(), 1.3 * values.max())
