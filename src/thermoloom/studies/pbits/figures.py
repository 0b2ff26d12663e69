"""Quality against energy, images of both machines, and the Ising limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from thermoloom.measures.prices import price_lists
from thermoloom.presentation.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, PURPLE
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import finish, in_a_row
from thermoloom.studies.pbits.study import LANGEVIN, PBITS

LOOKS = {LANGEVIN: (BLUE, "o"), PBITS: (ORANGE, "s")}
PUBLISHED = {8: (24.9, 15.7e-9), 4: (28.5, None), 2: (32.6, None), 1: (78.4, 2.0e-9)}
"""Steps of denoising thermodynamic models: Fréchet distance on binarized Fashion-MNIST in features
of the Inception network, and joules of a sample (simulated; arXiv:2510.23972)."""
READING = 784 * price_lists()["z1"].prices["read"].joules
"""Joules for all pixels of such an image, at the simulated price."""
COLUMNS = 10
"""Images in a row of the sheet."""


def draw_energy(tables: StudyTables) -> Figure:
    """(a) Fréchet distance against joules; (b) what an image costs; (c) published models."""
    figure, (quality, account, published) = in_a_row((1.3, 1.2, 0.8), 2.9)
    price_list = tables.summary["settings"]["study"]["price_list"]
    _draw_quality(quality, tables.table("points"), price_list)
    _draw_account(account, tables.summary["account"])
    _draw_published(published)
    finish(quality, "a", "quality and energy", xlabel="joules per image", ylabel="Fréchet distance")
    finish(account, "b", f"one image, prices of {price_list}", axis="x", xlabel="joules")
    finish(
        published, "c", "published models", xlabel="joules per image", ylabel="Fréchet, other scale"
    )
    return figure


def _draw_quality(axes: Axes, points: Table, price_list: str) -> None:
    """Draw heat alone and the total, joined from the shortest to the longest run."""
    for machine, (colour, marker) in LOOKS.items():
        rows = only(points, machine=machine)
        if not len(rows["value"]):
            continue
        kinds = (
            ("heat_joules", "heat", "white", ":"),
            (f"total_{price_list}", "total", colour, "-"),
        )
        for column, kind, face, line in kinds:
            axes.plot(rows[column], rows["frechet"], line, marker=marker, color=colour,
                      markerfacecolor=face, label=f"{machine}, {kind}")  # fmt: skip
        _name_points(axes, rows, rows[f"total_{price_list}"], machine)
    best = min(only(points, machine=LANGEVIN)["frechet"])
    heat, total = (
        float(only(points, machine=LANGEVIN, frechet=best)[c][0])
        for c in ("heat_joules", f"total_{price_list}")
    )
    height = 1.6 * float(points["frechet"].max())
    axes.annotate("", (total, height), (heat, height), arrowprops={"arrowstyle": "<->"})
    axes.text(
        (heat * total) ** 0.5,
        1.06 * height,
        f"× 10$^{{{round(np.log10(total / heat))}}}$",
        ha="center",
        fontsize=6.5,
    )
    axes.set(xscale="log", yscale="log")
    axes.set_xlim(1e-18, 3e-6)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks([50, 100, 200, 500, 1000])
    axes.set_ylim(0.8 * float(points["frechet"].min()), 5 * float(points["frechet"].max()))
    axes.legend(fontsize=6, loc="upper left", ncols=2, columnspacing=0.8)


def _name_points(axes: Axes, rows: Table, x: Any, machine: str) -> None:
    """Write the duration or the sweeps beside points that are far enough apart."""
    langevin, last = machine == LANGEVIN, 0.0
    for value, place, y in zip(rows["value"], x, rows["frechet"], strict=True):
        if abs(y - last) < 0.25 * last:
            continue
        last = y
        text = f"$t_f$ = {value:g}" if langevin else f"{value:g} sweep" + "s" * int(value > 1)
        axes.annotate(text, (place, y), xytext=(-5 if langevin else 5, 0), fontsize=5.5,
                      textcoords="offset points", color=LOOKS[machine][0], va="center",
                      ha="right" if langevin else "left")  # fmt: skip


def _draw_account(axes: Axes, account: list[dict[str, Any]]) -> None:
    """A row for each event and a point for each machine, on the scale of joules."""
    rows = [row for row in account if row["joules"] is not None]
    labels = {_entry(row): row["event"] for row in rows}
    places = {event: len(labels) - 1 - n for n, event in enumerate(labels.values())}
    for row in rows:
        colour, marker = LOOKS[row["machine"]]
        place = places[row["event"]] + (0.16 if row["machine"] == LANGEVIN else -0.16)
        axes.hlines(place, 1e-19, row["joules"], color=colour, linewidth=1)
        axes.plot([row["joules"]], [place], marker, color=colour, markersize=3.5)
        axes.annotate(f"{row['joules']:.1e}", (row["joules"], place), xytext=(4, 0),
                      textcoords="offset points", fontsize=5.5, va="center",
                      color=colour)  # fmt: skip
    axes.set_yticks(list(places.values()), list(labels), fontsize=6)
    axes.set_xscale("log")
    axes.set_xlim(1e-19, 1e5 * max(row["joules"] for row in rows))
    axes.set_xticks([1e-18, 1e-15, 1e-12, 1e-9])


def _entry(row: dict[str, Any]) -> str:
    """An event in words, with the evidence for its price."""
    words = str(row["event"]).replace(" a coupling or bias", "\ncouplings")
    words = words.replace(" one ", "\none ").replace(" of a unit", "").replace(" a ", "\na ")
    return words if row["price"] is None else f"{words}\n({row['evidence']})"


def _draw_published(axes: Axes) -> None:
    """Models with a published energy filled, others at an energy in proportion to their steps."""
    per_step = [joules / steps for steps, (_, joules) in PUBLISHED.items() if joules]
    for steps, (frechet, joules) in PUBLISHED.items():
        x = joules or steps * float(np.mean(per_step))
        axes.plot([x], [frechet], "D", color=PURPLE, markerfacecolor=PURPLE if joules else "white")
        axes.annotate(f"{steps}", (x, frechet), xytext=(0, 6), textcoords="offset points",
                      fontsize=6.5, ha="center")  # fmt: skip
    axes.text(0.38, 0.72, "denoising\nsteps: 1, 2, 4, 8", transform=axes.transAxes, fontsize=6)
    axes.axvline(READING, color=FAINT, linewidth=0.8, linestyle="--")
    axes.text(READING, 2, " reading 784 pixels", fontsize=5.5, color=FAINT)
    axes.set(xscale="log", xlim=(7e-10, 4e-8), ylim=(0, 95))
    axes.set_xticks([1e-9, 1e-8])
    axes.xaxis.set_minor_formatter(NullFormatter())


def draw_samples(tables: StudyTables) -> Figure:
    """Samples of each class, one row of the sheet below the other, machine by machine."""
    sheets, about = tables.arrays("sheets")
    figure, panels = in_a_row([1] * len(sheets), 2.1)
    for axes, letter, (machine, images) in zip(panels, "ab", sheets.items(), strict=False):
        h, w = about["shape"][:2]
        rows = len(images) // COLUMNS
        grid = images[: rows * COLUMNS].reshape(rows, COLUMNS, h, w).transpose(0, 2, 1, 3)
        axes.imshow(-grid.reshape(rows * h, COLUMNS * w), cmap="gray", interpolation="nearest")
        axes.set_axis_off()
        point = _last(tables.table("points"), machine)
        title = f"$t_f$ = {point:g}" if machine == LANGEVIN else f"{point:g} sweeps"
        axes.set_title(f"({letter}) {machine}, {title}", loc="left")
    return figure


def _last(points: Table, machine: str) -> float:
    return float(only(points, machine=machine)["value"][-1])


def draw_ising(tables: StudyTables) -> Figure:
    """(a) distance from the Ising law by barrier; (b) over time; (c) the time to cross."""
    figure, (barrier, course, crossing) = in_a_row((1.1, 1.1, 0.9), 2.8)
    units, largest = (tables.summary["settings"]["study"]["units"][n] for n in (0, -1))
    limit = only(tables.table("ising"), units=units)
    _draw_barrier(barrier, limit)
    if largest != units:
        other = only(tables.table("ising"), units=largest)
        for column, look, colour in (
            ("deviation", "o", ORANGE),
            ("corrected_deviation", "^", BLUE),
        ):
            barrier.plot(other["barrier"], other[column], look, color=colour, markersize=6,
                         markerfacecolor="none")  # fmt: skip
    _draw_course(course, tables, units)
    _draw_crossing(crossing, limit)
    finish(barrier, "a", f"{units} units, after equal times", xlabel="barrier ($k_BT$)",
           ylabel="rms error of moments")  # fmt: skip
    finish(course, "b", "over time", xlabel="time (crossings of a lone unit; sweeps)",
           ylabel="rms error of moments")  # fmt: skip
    finish(crossing, "c", "time to cross", xlabel="barrier ($k_BT$)",
           ylabel="steps between crossings")  # fmt: skip
    return figure


def _draw_barrier(axes: Axes, limit: Table) -> None:
    x = limit["barrier"]
    axes.fill_between(x, limit["sampling_error"] * 0, limit["sampling_error"], color=GREY,
                      alpha=0.4, linewidth=0, label="noise of exact draws")  # fmt: skip
    axes.plot(x, limit["deviation"], "o", color=ORANGE, label="against the Ising law")
    axes.plot(x, limit["predicted_deviation"], "--", color=ORANGE, label="… as predicted")
    axes.plot(x, limit["corrected_deviation"], "^-", color=BLUE, label="against the corrected law")
    axes.set_yscale("log")
    low, high = float(limit["corrected_deviation"].min()), float(limit["deviation"].max())
    axes.set_ylim(0.5 * low, 6 * high)
    axes.legend(fontsize=6, loc="upper left")


def _draw_course(axes: Axes, tables: StudyTables, units: int) -> None:
    courses = only(tables.table("courses"), units=units)
    barriers = np.unique(courses["barrier"])
    for number, barrier in enumerate(barriers):
        curve = only(courses, barrier=barrier)
        shade = 0.15 + 0.75 * number / max(1, len(barriers) - 1)
        axes.plot(curve["crossings"], curve["deviation"], color=(0, 0.45 * shade, shade),
                  linewidth=0.9, label=f"{barrier:g} $k_BT$")  # fmt: skip
    if tables.has("chains"):
        chain = only(tables.table("chains"), units=units)
        axes.plot(chain["sweeps"], chain["deviation"], "s-", color=ORANGE, markersize=3,
                  label="p-bits (sweeps)")  # fmt: skip
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(None, 4 * float(courses["deviation"].max()))
    axes.legend(fontsize=5.5, ncols=2, loc="upper right")


def _draw_crossing(axes: Axes, limit: Table) -> None:
    x = limit["barrier"]
    axes.plot(x, limit["kramers_steps"], "--", color=FAINT, label="Kramers")
    axes.plot(x, limit["crossing_steps"], "-", color=INK, label="slowest mode")
    axes.plot(x, limit["measured_crossing_steps"], "o", color=GREEN, label="measured")
    axes.set_yscale("log")
    axes.legend(fontsize=6.5)
