"""The figure of the wirings: quality and heat by the number and the length of wires."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import finish, in_rows
from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.wiring.study import COMPLETE, GRID, NO_HIDDEN, ONLINE, RANDOM, TEN

WORDS = {
    "max_softmax": "mean maximum softmax",
    "correct_class": "fraction with the correct class",
    "absolute_correlation": "correlation with nearest pattern",
    "diversity": "diversity within a class",
    "heat": "heat ($E_0$)",
    "wires": "wires",
    "length": "length of all wires (sites)",
}
LOOKS = {GRID: (BLUE, "o-"), RANDOM: (ORANGE, "s-"), NO_HIDDEN: (GREEN, "D")}


def draw_wiring(saved: StudyTables) -> Figure:
    """A row for each machine: quality by wires and by length, then diversity and heat."""
    machines, classified = saved.summary["measures"], saved.summary["classified"]
    figure, panels = in_rows(len(machines), 4, 2.2 * len(machines) + 0.3)
    columns = [
        (machine, *pair)
        for machine, quality in machines.items()
        for pair in (
            ("wires", quality),
            ("length", quality),
            ("wires", "diversity" if machine == TEN and classified else "absolute_correlation"),
            ("wires", "heat"),
        )
    ]
    for axes, letter, (machine, x, y) in zip(panels, "abcdefgh", columns, strict=True):
        _draw(axes, only(saved.table("points"), machine=machine), x, y)
        finish(axes, letter, f"{machine} digits", xlabel=WORDS[x], ylabel=WORDS[y])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=6.5)
    return figure


def _draw(axes: Axes, table: Table, x: str, y: str) -> None:
    """Draw column y against column x, with a line for each kind of wiring."""
    solved, trained = only(table, rule=OPTIMUM), only(table, rule=ONLINE)
    complete = only(solved, wiring=COMPLETE)
    for level in complete[y]:
        axes.axhline(level, color=FAINT, linewidth=0.8, linestyle=":")
    axes.plot(complete[x], complete[y], "*", color=INK, markersize=7, label=COMPLETE)
    for wiring, (colour, look) in LOOKS.items():
        curve = only(solved, wiring=wiring)
        if len(curve[x]):
            order = np.argsort(curve[x])
            error = curve["heat_sem"][order] if y == "heat" else None
            axes.errorbar(curve[x][order], curve[y][order], error, fmt=look, color=colour,
                          markersize=3.5, elinewidth=0.8, label=wiring)  # fmt: skip
    if len(trained[x]):
        axes.plot(trained[x], trained[y], "x", color=INK, markersize=4, label="trained online")
    axes.set_xscale("log")
