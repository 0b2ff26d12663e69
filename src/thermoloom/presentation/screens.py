"""Pieces that the screens share in the report: response curves and tables of conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from thermoloom.presentation import page
from thermoloom.presentation.figures import Saved, Table, only
from thermoloom.presentation.style import FAINT, ORANGE, WIDTH


def two_by_two(height: float) -> tuple[Figure, list[Axes]]:
    """A figure across the page with four panels."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    figure = Figure(figsize=(WIDTH, height), layout=layout)
    return figure, list(np.ravel(figure.subplots(2, 2)))


def curve_of(saved: Saved, screen: str, variant: str = "") -> Table:
    """The points of one curve."""
    return only(saved.table("curves"), screen=screen, variant=variant)


def response(
    axes: Axes,
    curve: Table,
    positions: Sequence[float] | None = None,
    colour: str = ORANGE,
    marker: str = "o",
    hollow: Sequence[bool] = (),
    label: str | None = None,
) -> None:
    """Mean heat with its error bars, joined; hollow where asked for, × where it diverged."""
    x = np.array(curve["value"] if positions is None else positions, float)
    bars = np.nan_to_num(curve["bar"].astype(float))
    axes.errorbar(
        x, curve["heat"], yerr=bars, color=colour, marker=marker, label=label, capsize=1.8,
        elinewidth=0.9, capthick=0.9, linewidth=1.1,
    )  # fmt: skip
    if any(hollow):
        chosen = np.array(hollow, bool)
        axes.plot(x[chosen], curve["heat"][chosen], marker, color=colour, markerfacecolor="white",
                  zorder=3)  # fmt: skip
    mark_diverged(axes, x, curve)


def mark_diverged(axes: Axes, x: Any, curve: Table) -> None:
    """An × at the upper edge for every condition that has no heat, with its cycle."""
    for position, count, cycle in zip(x, curve["diverged"], curve["diverged_in"], strict=True):
        if count:
            axes.plot([position], [1], "x", color=FAINT, clip_on=False, markersize=6,
                      transform=axes.get_xaxis_transform())  # fmt: skip
            axes.annotate(f"diverged\n(cycle {cycle:.0f})", (position, 1), fontsize=6, ha="center",
                          va="top", xytext=(0, -5), textcoords="offset points", color=FAINT,
                          xycoords=axes.get_xaxis_transform())  # fmt: skip


def baseline(axes: Axes, heat: float, style: str = ":", label: str | None = None) -> None:
    """The heat that all others are compared with."""
    if np.isfinite(heat):
        axes.axhline(heat, color=FAINT, linewidth=1, linestyle=style, zorder=0, label=label)


def logarithmic(axes: Axes, curve: Table) -> None:
    """A logarithmic heat axis, linear around zero where heats are not all positive."""
    heats = curve["heat"][np.isfinite(curve["heat"])]
    if len(heats) and heats.min() > 0:
        axes.set_yscale("log")
    elif len(heats):
        linear = max(float(-heats.min()), 1e-3)
        axes.set_yscale("symlog", linthresh=linear)
        axes.set_ylim(-3 * linear, 3 * max(float(heats.max()), linear))


# --- tables ---------------------------------------------------------------------------------------


def state(row: Mapping[str, Any]) -> str:
    """How a condition ended, for a cell of a table."""
    if row["state"] == "diverged":
        cycle = page.number(row["diverged_in"], "d")
        return f"diverged in {escape(row['stage'])}, cycle {cycle}"
    return ""


def heat_columns() -> list[page.Column]:
    return [
        page.value_column("heat (E₀)", "heat_mean"),
        page.value_column("SEM", "heat_sem"),
        page.value_column("s.d.", "heat_sd"),
    ]


def quality_columns() -> list[page.Column]:
    return [
        page.value_column("max. softmax", "max_softmax", ".3f"),
        page.value_column("target fraction", "target_fraction", ".3f"),
        page.value_column("prototype distance", "prototype_distance", ".2f"),
        page.value_column("pairwise distance", "pairwise_distance", ".2f"),
        page.Column("", state, numeric=False),
    ]


def condition_table(
    caption: str, leading: Sequence[page.Column], rows: Sequence[Mapping[str, Any]]
) -> str:
    """Heat and quality of every condition of a screen."""
    return page.table(caption, [*leading, *heat_columns(), *quality_columns()], rows, folded=True)


def rows_of(summary: Mapping[str, Any], screen: str) -> list[dict[str, Any]]:
    return [row for row in summary["rows"] if row["screen"] == screen]


def opening(summary: Mapping[str, Any], about: str, figure: str) -> list[str]:
    """How the section of every screen begins: its question, its figure, the paper's statements."""
    name = summary["experiment"]
    return [
        page.heading(3, "Result", f"{name}-result"),
        _shortened_note(summary),
        page.paragraph(about),
        figure,
        _diverged_note(summary),
        page.quantity_table(summary["quantities"]),
        page.heading(3, "The paper's statements", f"{name}-statements"),
        page.statement_table(summary["statements"]),
    ]


def seeds_note(summary: Mapping[str, Any]) -> str:
    """What the error bars of a screen are, by the number of its seeds."""
    seeds = summary["seeds"]
    if len(seeds) > 1:
        return page.fill(
            "Points are means over {seed_count} training seeds; bars: one standard deviation "
            "across seed means.",
            summary,
        )
    return page.fill(
        "Bars: standard error over trajectories. Each curve is that of one trained seed, {seed}: "
        "it describes sampling, not replication.",
        {"seed": seeds[0]},
    )


def _shortened_note(summary: Mapping[str, Any]) -> str:
    """A shorter run than the paper's says so."""
    if not summary["shortened"]:
        return ""
    lengths = escape(", ".join(summary["shortened"]))
    return page.note(
        f"⚠ A shorter run than the paper's: {lengths}. What it is too short to judge "
        "is not judged; the other verdicts speak of this run."
    )


def _diverged_note(summary: Mapping[str, Any]) -> str:
    if not summary["diverged"]:
        return ""
    return page.note(
        page.fill(
            "{diverged} of {conditions} conditions diverged: parameters or samples ceased to be "
            "finite. They are marked ×, with the cycle.",
            summary,
        )
    )
