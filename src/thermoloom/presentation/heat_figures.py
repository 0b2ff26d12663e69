"""Figures of the ledger and of the frontier: what heat is spent on, and how little would do."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    RULES,
    SKY,
)  # fmt: skip
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    finish,
    finish_all,
    in_a_row,
    in_rows,
    legend_above,
    nothing,
)


def draw_ledger(saved: StudyTables) -> Figure:
    """(a) heat, its bound and what is left of it; (b) heat by part; (c) pairs."""
    figure, (bars, parts, pairs) = in_a_row((1.15, 1.15, 0.9), 2.7)
    means = saved.summary["means"]
    names = [row["rule"].replace(", ", "\n") for row in means]
    places = np.arange(len(means))
    bars.bar(places, [row["heat"] for row in means], 0.62, color=GREY, label="heat")
    bars.bar(places, [row["speed_limit"] for row in means], 0.62, color=SKY, label="speed limit")
    most = [row["most_production"] for row in means]
    bars.plot(places, most, "_", color=INK, markersize=13, label="most that is produced")
    bars.set_xticks(places, names, fontsize=6)
    bars.set_ylabel("per image ($k_BT$)")
    legend_above(bars, 0.3, ncols=2, columnspacing=0.9, handlelength=1.0)
    _parts(parts, means)
    for rule in RULES:
        own = only(saved.table("ledger"), rule=rule)
        pairs.errorbar(own["heat"], own["speed_limit"], own["speed_limit_sem"], own["heat_sem"],
                       MARKERS[rule], color=COLOURS[rule], markersize=4, elinewidth=0.8,
                       label=rule)  # fmt: skip
    pairs.set(xlabel="heat ($k_BT$)", ylabel="speed limit ($k_BT$)")
    pairs.legend(fontsize=6.5)
    titles = ("heat and its bounds", "heat by part", "distance and heat")
    finish_all((bars, parts, pairs), titles)
    return figure


def _parts(axes: Axes, means: list[dict[str, Any]]) -> None:
    """Drop of each part of the energy, side by side for each kind of computer."""
    shown = [row for row in means if row["rule"] in COLOURS]
    names = list(shown[0]["parts"])
    width = 0.8 / len(shown)
    for number, row in enumerate(shown):
        places = np.arange(len(names)) + (number - (len(shown) - 1) / 2) * width
        axes.bar(places, list(row["parts"].values()), width, color=COLOURS[row["rule"]],
                 label=row["rule"])  # fmt: skip
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set_xticks(range(len(names)), [n.replace("_", "\n") for n in names], fontsize=6)
    axes.set_ylabel("drop in energy ($k_BT$)")
    axes.legend(fontsize=6.5)


QUALITIES = {
    "max_softmax": "mean maximum softmax",
    "absolute_correlation": "correlation with nearest pattern",
    "asked": "recognized as requested",
}
VARIED = {"duration": "duration $t_f$", "kT": "$k_BT$ ($E_0$)", "stages": "stages"}


def draw_frontier(saved: StudyTables) -> Figure:
    """(a) expected heat and loss, (b) heat of generation by weight, (c) quality and heat."""
    figure, (plane, heats, quality) = in_a_row((1, 1, 1), 2.6)
    table, summary = saved.table("computers"), saved.summary
    along = only(table, rule="optimum")
    measure, label = summary["quality"], QUALITIES[summary["quality"]]
    _plane(plane, along, saved)
    heats.plot(
        along["weight"], along["expected_heat"], "--", color=FAINT, label="expected (reverse path)"
    )
    heats.errorbar(along["weight"], along["heat"], along["heat_sem"], fmt="^-", markersize=3.5,
                   color=COLOURS["optimum"], elinewidth=0.8, label="generated")  # fmt: skip
    limit = along["speed_limit"] * summary["kT"]
    heats.plot(along["weight"], limit, ":", color=PURPLE, label="speed limit")
    heats.set(xlabel=r"weight of heat $\lambda$", ylabel="heat ($E_0$)")
    quality.plot(along["heat"], along[measure], "^-", color=COLOURS["optimum"], markersize=3.5,
                 label=r"$\theta(\lambda)$")  # fmt: skip
    quality.set(xlabel="heat of generation ($E_0$)", ylabel=label)
    for rule in RULES:
        own = only(table, rule=rule)
        if not len(own["heat"]):
            continue
        style: dict[str, Any] = {"color": COLOURS[rule], "markersize": 4, "label": rule}
        plane.plot(own["expected_heat"], own["excess"], MARKERS[rule], **style)
        quality.plot(own["heat"], own[measure], MARKERS[rule], **style)
        for value in own["heat"]:
            heats.axhline(value, color=COLOURS[rule], linewidth=0.5, alpha=0.5, zorder=0)
    titles = ("least loss at every heat", "what generation does", "quality and heat")
    plane.legend(fontsize=6, loc="lower left")
    heats.legend(fontsize=6)
    quality.legend(fontsize=6)
    finish_all((plane, heats, quality), titles)
    return figure


def _plane(axes: Axes, along: Table, saved: StudyTables) -> None:
    """The frontier, a parabola, and its points."""
    axes.plot(along["expected_heat"], along["excess"], "^", color=COLOURS["optimum"],
              markersize=3.5, label=r"$\theta(\lambda)$")  # fmt: skip
    if saved.has("parabola"):
        curve = saved.table("parabola")
        axes.plot(curve["expected_heat"], curve["excess"], "-", color=COLOURS["optimum"],
                  linewidth=1)  # fmt: skip
    axes.set_xlabel("expected heat of the reverse path ($E_0$)")
    axes.set_ylabel("loss above the optimum's (nats)")
    axes.set_yscale("symlog", linthresh=1.0)


def draw_variants(saved: StudyTables) -> Figure:
    """Heat with its speed limit, and quality, by t_f, k_BT and number of stages."""
    if not saved.has("variants"):
        return nothing("no other machine was solved")
    measure = saved.summary["quality"]
    table = saved.table("variants")
    shown = [key for key in VARIED if key in table["varied"]]
    figure, axes = in_rows(2, len(shown), 4.1)
    shades = _shades(np.unique(table["weight"]))
    for column, key in enumerate(shown):
        heats, quality = axes[column], axes[len(shown) + column]
        for index, (weight, colour) in enumerate(shades.items()):
            own = only(table, varied=key, weight=weight)
            ticks = np.arange(len(own["value"]))
            places = ticks + 0.06 * (index - (len(shades) - 1) / 2)  # equal values side by side
            label = rf"$\lambda = {weight:g}$"
            heats.errorbar(places, own["heat"], own["heat_sem"], fmt="^-", markersize=3.5,
                           color=colour, elinewidth=0.8, label=label)  # fmt: skip
            heats.plot(places, own["speed_limit"] * own["kT"], ":", color=colour, linewidth=1)
            quality.plot(places, own[measure], "^-", markersize=3.5, color=colour)
            for panels in (heats, quality):
                panels.set_xticks(ticks, [f"{value:g}" for value in own["value"]])
        quality.set(xlabel=VARIED[key], ylim=(0, 1.04))
        heats.set_ylim(bottom=0)
        finish(heats, "abc"[column])
        finish(quality, "def"[column])
    axes[0].set_ylabel("heat ($E_0$); dotted: speed limit")
    axes[len(shown)].set_ylabel(QUALITIES[measure])
    axes[0].legend(fontsize=6.5)
    return figure


def _shades(values: Any) -> dict[float, str]:
    """A colour for each of a few values."""
    return dict(zip(values, cycle((INK, GREEN, ORANGE, SKY, PURPLE, BLUE)), strict=False))


SCHEDULES = {"own": (GREY, "s", "the paper's schedule"), "best": (GREEN, "o", "searched")}


def draw_schedules(saved: StudyTables) -> Figure:
    """(a) heat and its bound by t_f, (b) the ramps and windows that were found, (c) quality."""
    if not saved.has("schedules"):
        return nothing("no schedule was searched for")
    figure, (heats, ramps, quality) = in_a_row((1, 1.1, 0.9), 2.7)
    table, lines = saved.table("schedules"), saved.table("ramps")
    for kind, (colour, marker, label) in SCHEDULES.items():
        own = only(table, schedule=kind)
        style: dict[str, Any] = {"color": colour, "marker": marker, "label": label}
        heats.plot(own["duration"], own["heat"], **style)
        quality.plot(own["duration"], 100 * own["miss"], **style)
    best = only(table, schedule="best")
    limit = best["speed_limit"] * best["kT"]
    heats.plot(best["duration"], limit, ":", color=PURPLE, label="speed limit (searched)")
    least = float((limit * best["duration"]).min())
    heats.plot(best["duration"], least / best["duration"], "--", color=FAINT, linewidth=0.8,
               label=r"$\propto 1/t_f$")  # fmt: skip
    heats.set_yscale("log")
    heats.set_yticks(best["heat"], [f"{heat:.0f}" for heat in best["heat"]])
    for duration, colour in _shades(best["duration"]).items():
        own = only(lines, duration=duration, schedule="best")
        ramps.plot(own["time"], own["amplitude"], color=colour, label=f"$t_f = {duration:g}$")
        text = str(only(best, duration=duration)["windows"][0])
        edges = [float(end) for end in text.split()][:-1]
        ramps.plot(edges, np.interp(edges, own["time"], own["amplitude"]), "|", color=colour,
                   markersize=8)  # fmt: skip
    own = only(lines, schedule="own", duration=lines["duration"][0])
    ramps.plot(own["time"], own["amplitude"], "--", color=FAINT, linewidth=0.8)
    reference = saved.summary["schedule"]["own"]["miss"]
    quality.axhline(100 * reference, color=FAINT, linestyle="--", linewidth=0.8)
    ramps.set(xlabel="time on the noising path / $t_f$", ylabel="amplitude of the field $a(t)$")
    heats.set_ylabel("heat ($E_0$)")
    quality.set_ylabel("miss (%)")
    for axes in (heats, quality):
        axes.set_xscale("log")
        axes.set_xticks(best["duration"], [f"{t:g}" for t in best["duration"]])
        axes.minorticks_off()
        axes.set_xlabel("duration $t_f$")
    titles = ("heat at equal quality", "ramps and windows found", "distance from the image")
    finish_all((heats, ramps, quality), titles)
    heats.legend(fontsize=6, loc="lower left")
    ramps.legend(fontsize=6)
    return figure
