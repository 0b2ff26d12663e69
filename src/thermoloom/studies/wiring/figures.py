"""The figure of the wirings: what a wire buys."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import light_grid, panel

WORDS = {
    "max_softmax": "mean maximum softmax",
    "asked": "recognized as requested",
    "absolute_correlation": "correlation with nearest pattern",
    "diversity": "diversity within a class",
    "heat": "heat ($E_0$)",
}
LOOKS = {"grid": (BLUE, "o-"), "random": (ORANGE, "s-"), "no hidden-hidden": (GREEN, "D")}


def draw_wiring(saved: StudyTables) -> Figure:
    """A row for each machine: quality by wires and by length, then its price, by wires."""
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.06)
    machines, classified = saved.summary["measures"], saved.summary["classified"]
    figure = Figure(figsize=(WIDTH, 2.2 * len(machines) + 0.3), layout=layout)
    places = figure.subplots(len(machines), 4, squeeze=False)
    letters = iter("abcdefgh")
    for row, (machine, measure) in zip(places, machines.items(), strict=True):
        table = only(saved.table("points"), machine=machine)
        second = "diversity" if machine == "ten" and classified else "absolute_correlation"
        panels = (("wires", measure), ("length", measure), ("wires", second), ("wires", "heat"))
        for axes, (along, value) in zip(row, panels, strict=True):
            _panel(axes, table, along, value)
            panel(axes, next(letters), f"{machine} digits")
    handles, labels = places[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=6.5)
    return figure


def _panel(axes: Axes, table: Table, along: str, value: str) -> None:
    solved = only(table, rule="optimum")
    whole = only(solved, wiring="complete")
    for level in whole[value]:
        axes.axhline(level, color=FAINT, linewidth=0.8, linestyle=":")
    axes.plot(whole[along], whole[value], "*", color=INK, markersize=7, label="complete")
    for wiring, (colour, look) in LOOKS.items():
        own = only(solved, wiring=wiring)
        if not len(own[along]):
            continue
        order = np.argsort(own[along])
        x, y = (own[key][order] for key in (along, value))
        error = own["heat_sem"][order] if value == "heat" else None
        axes.errorbar(x, y, error, fmt=look, color=colour, markersize=3.5, elinewidth=0.8,
                      label=wiring)  # fmt: skip
    trained = only(table, rule="online")
    if len(trained[along]):
        axes.plot(
            trained[along], trained[value], "x", color=INK, markersize=4, label="trained online"
        )
    axes.set_xscale("log")
    axes.set_xlabel("wires" if along == "wires" else "length of all wires (sites)")
    axes.set_ylabel(WORDS[value])
    light_grid(axes)
