"""Figure 4 of the paper: heat by the errors of training."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.presentation.style import BLUE, GREEN, INK, ORANGE, PURPLE
from thermoloom.runs.formats import only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    baseline,
    curve_of,
    finish,
    in_rows,
    logarithmic,
    response,
)  # fmt: skip
from thermoloom.studies.noise.study import MEMORY, OFFSET, RESIDUAL, UPDATE


def draw_heat(saved: StudyTables) -> Figure:
    """(a) update noise, (b) residual noise, (c) offset, (d) AR(1) correlation."""
    figure, (update, residual, offset, memory) = in_rows(2, 2, 4.5)
    amplitude = saved.summary["amplitude"]
    _screen(update, saved, UPDATE, ORANGE)
    _mark_crossover(update, saved)
    _screen(residual, saved, RESIDUAL, BLUE)
    _screen(offset, saved, OFFSET, PURPLE)
    _offset_axis(offset, saved)
    _screen(memory, saved, MEMORY, GREEN)
    logarithmic(offset, curve_of(saved, OFFSET))
    logarithmic(memory, curve_of(saved, MEMORY))
    for axes in (update, residual):
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    level = rf"$\sigma_{{\rm res}}$ = {amplitude:g}"
    for axes, letter, title, along in (
        (update, "a", "noise on formed updates", r"update noise $\sigma_{\rm upd}$"),
        (residual, "b", "independent noise on residuals", r"residual noise $\sigma_{\rm res}$"),
        (offset, "c", f"offset, {level}", r"residual offset $\mu_{\rm bias}$"),
        (memory, "d", f"AR(1) noise, {level}", r"correlation $\rho$ of successive errors"),
    ):
        finish(axes, letter, title, xlabel=along, ylabel="mean heat ($E_0$)")
    return figure


def _screen(axes: Axes, saved: StudyTables, name: str, colour: str) -> None:
    curve = curve_of(saved, name)
    response(axes, curve, colour=colour)
    for heat in only(curve, value=0.0)["heat"]:
        baseline(axes, heat)


def _mark_crossover(axes: Axes, saved: StudyTables) -> None:
    """Where the paper has its crossover, if this run may be compared with it."""
    limits = {
        limit["name"]: limit["value"]
        for statement in saved.summary["statements"]
        if statement["key"] == "crossover"
        for limit in statement["thresholds"]
    }
    if "low" not in limits or "high" not in limits:
        return
    low, high = limits["low"], limits["high"]
    if axes.get_xlim()[1] < high:
        return
    axes.axvspan(low, high, color=INK, alpha=0.07, linewidth=0, zorder=0)
    axes.annotate("crossover\nin the paper", (low, 0.96), xytext=(-3, 0), ha="right",
                  va="top", fontsize=6.5, textcoords="offset points",
                  xycoords=axes.get_xaxis_transform())  # fmt: skip


def _offset_axis(axes: Axes, saved: StudyTables) -> None:
    """Logarithmic from the smallest offset on, with zero at its left."""
    values = np.unique(curve_of(saved, OFFSET)["value"])
    nonzero = np.abs(values[values != 0])
    if len(nonzero):
        axes.set_xscale("symlog", linthresh=nonzero.min(), linscale=0.5)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_xlim(min(0.0, 1.3 * values.min()) - 0.3 * nonzero.min(), 1.3 * values.max())
