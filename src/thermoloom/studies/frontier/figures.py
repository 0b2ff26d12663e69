"""The least heat at every loss, of other machines, and of other schedules."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.measures.paired import RULES
from thermoloom.presentation.style import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    PURPLE,
    SKY,
)
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import finish, finish_all, in_a_row, in_rows, nothing
from thermoloom.studies.frontier.schedules import SEARCHED, UNCHANGED
from thermoloom.studies.frontier.study import VARIED
from thermoloom.studies.pairs import OPTIMUM

QUALITIES = {
    "max_softmax": "mean maximum softmax",
    "absolute_correlation": "correlation with nearest pattern",
    "correct_class": "fraction with the correct class",
}
AXES = {"duration": "duration $t_f$", "kT": "$k_BT$ ($E_0$)", "stages": "stages"}
SCHEDULES: dict[str, dict[str, Any]] = {
    UNCHANGED: {"color": GREY, "marker": "s", "label": "the paper's schedule"},
    SEARCHED: {"color": GREEN, "marker": "o", "label": "searched"},
}
CURVE: dict[str, Any] = {
    "color": COLOURS[OPTIMUM], "markersize": 3.5, "label": r"$\theta(\lambda)$",
}  # fmt: skip


# --- the frontier ---


def draw_frontier(tables: StudyTables) -> Figure:
    """(a) expected heat and loss, (b) heat of generation by weight, (c) quality and heat."""
    figure, (plane, heats, quality) = in_a_row((1, 1, 1), 2.6)
    computers, measure = tables.table("computers"), tables.summary["quality"]
    curve = only(computers, rule=OPTIMUM)
    _draw_plane(plane, curve, tables)
    _draw_heats(heats, curve, tables.summary["kT"])
    quality.plot(curve["heat"], curve[measure], "^-", **CURVE)
    quality.set(xlabel="heat of generation ($E_0$)", ylabel=QUALITIES[measure])
    for rule in RULES:
        trained = only(computers, rule=rule)
        if not len(trained["heat"]):
            continue
        style: dict[str, Any] = {"color": COLOURS[rule], "markersize": 4, "label": rule}
        plane.plot(trained["expected_heat"], trained["excess"], MARKERS[rule], **style)
        quality.plot(trained["heat"], trained[measure], MARKERS[rule], **style)
        for heat in trained["heat"]:
            heats.axhline(heat, color=COLOURS[rule], linewidth=0.5, alpha=0.5, zorder=0)
    plane.legend(fontsize=6, loc="lower left")
    heats.legend(fontsize=6)
    quality.legend(fontsize=6)
    titles = ("least loss at every heat", "heat of generation", "quality and heat")
    finish_all((plane, heats, quality), titles)
    return figure


def _draw_plane(axes: Axes, curve: Table, tables: StudyTables) -> None:
    """The frontier, a parabola, and its points."""
    axes.plot(curve["expected_heat"], curve["excess"], "^", **CURVE)
    if tables.has("parabola"):
        parabola = tables.table("parabola")
        axes.plot(parabola["expected_heat"], parabola["excess"], color=CURVE["color"], linewidth=1)
    axes.set_xlabel("expected heat of the reverse path ($E_0$)")
    axes.set_ylabel("loss above the optimum's (nats)")
    axes.set_yscale("symlog", linthresh=1.0)


def _draw_heats(axes: Axes, curve: Table, kT: float) -> None:
    """Heat of generation between the speed limit and the expected heat of the reverse path."""
    weight = curve["weight"]
    axes.plot(weight, curve["expected_heat"], "--", color=FAINT, label="expected (reverse path)")
    style = CURVE | {"label": "generated"}
    axes.errorbar(weight, curve["heat"], curve["heat_sem"], fmt="^-", elinewidth=0.8, **style)
    axes.plot(weight, curve["speed_limit"] * kT, ":", color=PURPLE, label="speed limit")
    axes.set(xlabel=r"weight of heat $\lambda$", ylabel="heat ($E_0$)")


# --- other machines ---


def draw_variants(tables: StudyTables) -> Figure:
    """Heat with its speed limit, and quality, by t_f, k_BT and number of stages."""
    if not tables.has("variants"):
        return nothing("no other machine was solved")
    table, measure = tables.table("variants"), tables.summary["quality"]
    settings = [key for key in VARIED.values() if key in table["varied"]]
    figure, panels = in_rows(2, len(settings), 4.1)
    upper, lower = panels[: len(settings)], panels[len(settings) :]
    for column, key in enumerate(settings):
        heats, quality = upper[column], lower[column]
        _draw_variation(heats, quality, only(table, varied=key), measure)
        quality.set(xlabel=AXES[key], ylim=(0, 1.04))
        heats.set_ylim(bottom=0)
        finish(heats, "abc"[column])
        finish(quality, "def"[column])
    upper[0].set_ylabel("heat ($E_0$); dotted: speed limit")
    lower[0].set_ylabel(QUALITIES[measure])
    upper[0].legend(fontsize=6.5)
    return figure


def _draw_variation(heats: Axes, quality: Axes, table: Table, measure: str) -> None:
    """One setting varied, a line for each weight."""
    colours = _colours(np.unique(table["weight"]))
    for index, (weight, colour) in enumerate(colours.items()):
        rows = only(table, weight=weight)
        ticks = np.arange(len(rows["value"]))
        places = ticks + 0.06 * (index - (len(colours) - 1) / 2)  # equal values side by side
        style: dict[str, Any] = {"markersize": 3.5, "color": colour}
        heats.errorbar(places, rows["heat"], rows["heat_sem"], fmt="^-", elinewidth=0.8,
                       label=rf"$\lambda = {weight:g}$", **style)  # fmt: skip
        heats.plot(places, rows["speed_limit"] * rows["kT"], ":", color=colour, linewidth=1)
        quality.plot(places, rows[measure], "^-", **style)
        for axes in (heats, quality):
            axes.set_xticks(ticks, [f"{number:g}" for number in rows["value"]])


def _colours(numbers: Any) -> dict[float, str]:
    """A colour for each of a few numbers."""
    return dict(zip(numbers, cycle((INK, GREEN, ORANGE, SKY, PURPLE, BLUE)), strict=False))


# --- schedules ---


def draw_schedules(tables: StudyTables) -> Figure:
    """(a) heat and its bound by t_f, (b) ramps and windows of least heat, (c) quality."""
    if not tables.has("schedules"):
        return nothing("no schedule was searched for")
    figure, (heats, ramps, quality) = in_a_row((1, 1.1, 0.9), 2.7)
    table = tables.table("schedules")
    searched = only(table, schedule=SEARCHED)
    for kind, style in SCHEDULES.items():
        rows = only(table, schedule=kind)
        heats.plot(rows["duration"], rows["heat"], **style)
        quality.plot(rows["duration"], 100 * rows["miss"], **style)
    _draw_limits(heats, searched)
    _draw_ramps(ramps, searched, tables.table("ramps"))
    if headline := tables.summary["schedule"]:
        allowed = headline["unchanged"]["percent_missed"]
        quality.axhline(allowed, color=FAINT, linestyle="--", linewidth=0.8)
    quality.set_ylabel("miss (%)")
    for axes in (heats, quality):
        axes.set_xscale("log")
        axes.set_xticks(searched["duration"], [f"{t:g}" for t in searched["duration"]])
        axes.minorticks_off()
        axes.set_xlabel("duration $t_f$")
    titles = ("heat at equal quality", "ramps and windows", "distance from the image")
    finish_all((heats, ramps, quality), titles)
    heats.legend(fontsize=6, loc="lower left")
    ramps.legend(fontsize=6)
    return figure


def _draw_limits(axes: Axes, searched: Table) -> None:
    """The speed limit of the schedules of least heat, and 1/t_f."""
    duration, limit = searched["duration"], searched["speed_limit"] * searched["kT"]
    axes.plot(duration, limit, ":", color=PURPLE, label="speed limit (searched)")
    axes.plot(duration, float((limit * duration).min()) / duration, "--", color=FAINT,
              linewidth=0.8, label=r"$\propto 1/t_f$")  # fmt: skip
    axes.set_yscale("log")
    axes.set_yticks(searched["heat"], [f"{heat:.0f}" for heat in searched["heat"]])
    axes.set_ylabel("heat ($E_0$)")


def _draw_ramps(axes: Axes, searched: Table, ramps: Table) -> None:
    """Ramps of least heat with the ends of their windows; dashed, the paper's ramp."""
    windows = dict(zip(searched["duration"], searched["windows"], strict=True))
    for duration, colour in _colours(searched["duration"]).items():
        ramp = only(ramps, duration=duration, schedule=SEARCHED)
        axes.plot(ramp["time"], ramp["amplitude"], color=colour, label=f"$t_f = {duration:g}$")
        edges = [float(edge) for edge in str(windows[duration]).split()][:-1]
        amplitudes = np.interp(edges, ramp["time"], ramp["amplitude"])
        axes.plot(edges, amplitudes, "|", color=colour, markersize=8)
    unchanged = only(ramps, schedule=UNCHANGED, duration=ramps["duration"][0])
    axes.plot(unchanged["time"], unchanged["amplitude"], "--", color=FAINT, linewidth=0.8)
    axes.set(xlabel="time on the noising path / $t_f$", ylabel="amplitude of the field $a(t)$")
