"""Predictions and measurements, and where the heat comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from thermoloom.presentation.style import (
    COLOURS,
    FAINT,
    GREY,
    INK,
    LINES,
    MARKERS,
    PURPLE,
    RULES,
    block_name,
)
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    drawn,
    empty,
    in_a_row,
    inset,
    intervals,
    legend_above,
    light_grid,
    panel,
)  # fmt: skip
from thermoloom.studies.theory import mixtures
from thermoloom.studies.theory.heat_account import ISOTROPIC

# --- training ---


def draw_training(saved: StudyTables) -> Figure:
    """Learning curves and noise across seeds, predicted and measured."""
    figure, axes = in_a_row([1.5, 1.25], 2.5)
    drawn(axes[0], saved, "curves", _curves, "no predicted curves")
    panel(axes[0], "a", "validation loss: lines predicted, points measured")
    drawn(axes[1], saved, "noise", _noise, "no spread across seeds")
    panel(axes[1], "b", "noise across seeds")
    return figure


def _curves(axes: Axes, table: Table) -> None:
    _courses(axes, table, 1.2, markersize=2.6, elinewidth=0.7, markeredgewidth=0.8)
    axes.set(xlabel="training cycle", ylabel="validation loss per step\nminus squared increments")
    axes.legend(loc="upper right")
    light_grid(axes)
    if len(np.unique(table["cycle"])) > 15:  # the initial fall hides everything else
        late = table["cycle"] >= table["cycle"].max() / 3
        small = inset(axes, (0.36, 0.27, 0.62, 0.45), 0.12)
        later = {name: column[late] for name, column in table.items()}
        _courses(small, later, 0.9, markersize=2, elinewidth=0.6, markeredgewidth=0.6)


def _courses(axes: Axes, table: Table, line: float, **points: Any) -> None:
    """Lines for predictions, points for measurements."""
    for rule in RULES:
        curve = only(table, rule=rule)
        if len(curve["cycle"]):
            axes.plot(curve["cycle"], curve["predicted"], color=COLOURS[rule], label=rule,
                      linestyle=LINES[rule], linewidth=line)  # fmt: skip
            axes.errorbar(curve["cycle"], curve["measured"], curve["sd"], fmt=MARKERS[rule],
                          color=COLOURS[rule], markerfacecolor="white", **points)  # fmt: skip


def _noise(axes: Axes, table: Table) -> None:
    labels = list(dict.fromkeys(table["block"].tolist()))
    for rule, offset in zip(RULES, (0.16, -0.16), strict=True):
        noise = only(table, rule=rule)
        rows = [len(labels) - 1 - labels.index(block) + offset for block in noise["block"]]
        axes.plot(noise["predicted"], rows, "|", color=COLOURS[rule], markersize=11,
                  markeredgewidth=1.6, label=f"{rule}, predicted")  # fmt: skip
        axes.plot(noise["measured"], rows, MARKERS[rule], color=COLOURS[rule], markersize=4,
                  markerfacecolor="white", label=f"{rule}, measured")  # fmt: skip
    axes.set_yticks(
        range(len(labels)), [block_name(b).replace(" ", "\n") for b in reversed(labels)]
    )
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_xlim(0, 1.12 * max(table["predicted"].max(), table["measured"].max()))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("standard deviation of a parameter (E₀)")
    legend_above(axes, 0.22, ncols=2, fontsize=6)
    light_grid(axes, "x")


# --- limits ---


def draw_limits(saved: StudyTables) -> Figure:
    """Critical learning rates, the offset's shift, and bits."""
    figure, axes = in_a_row([1.1, 1.1, 1.1, 1.15], 2.35)
    titles = ("batch learning rate", "online learning rate", "offset", "bits")
    scan = _columns(saved.summary["scan"])
    for part, rule in zip(axes, RULES, strict=False):
        if scan is not None and (scan["rule"] == rule).any():
            _scan(part, only(scan, rule=rule), rule)
        else:
            empty(part, "not measured")
    drawn(axes[2], saved, "offset", _offset)
    drawn(axes[3], saved, "bits", _bits)
    for part, letter, title in zip(axes, "abcd", titles, strict=True):
        panel(part, letter, title)
    return figure


def _columns(rows: list[dict[str, Any]]) -> Table | None:
    """Rows of the summary as a table; None where there are none."""
    if not rows:
        return None
    return {
        key: np.array([np.nan if row[key] is None else row[key] for row in rows]) for key in rows[0]
    }


def _scan(axes: Axes, table: Table, rule: str) -> None:
    """Draw the final loss against the learning rate; a loss that is not finite is at the top."""
    ended = np.isfinite(table["diverged_in"]) | ~np.isfinite(table["final_loss"])
    finite = np.where(ended, -np.inf, table["final_loss"])
    top = 10 * max(100.0, float(finite.max()))
    shown = np.where(ended, top, finite)
    axes.set_yscale("symlog", linthresh=10, linscale=0.6)
    axes.axvline(1, color=FAINT, linewidth=0.9, linestyle="--", zorder=0)
    colour = COLOURS[rule]
    for grows, fill in ((False, colour), (True, "white")):
        alike = (table["unstable"] == grows) & ~ended
        axes.plot(table["factor"][alike], shown[alike], MARKERS[rule], color=colour,
                  markerfacecolor=fill)  # fmt: skip
    axes.plot(table["factor"][ended], shown[ended], "x", color=colour, markersize=4.5)
    axes.set_xlabel("rate / predicted critical rate")
    axes.set_ylabel("loss per step at the end,\nminus squared increments")
    axes.yaxis.set_minor_formatter(NullFormatter())
    decades = np.arange(1, np.log10(top) + 1, max(1, np.ceil(np.log10(top) / 6)))
    axes.set_yticks([0, *10**decades])
    axes.set_ylim(min(-3.0, 1.3 * float(shown.min())), 5 * top)
    axes.margins(x=0.12)
    light_grid(axes)


def _offset(axes: Axes, table: Table) -> None:
    for rule in RULES:
        shift = only(table, rule=rule)
        axes.plot(shift["cycle"], shift["predicted"], color=COLOURS[rule], label=rule,
                  linestyle=LINES[rule])  # fmt: skip
        axes.plot(shift["cycle"], shift["measured"], MARKERS[rule], color=COLOURS[rule],
                  markerfacecolor="white", markersize=3.4)  # fmt: skip
    axes.set(xlabel="training cycle", ylabel="mean shift of hidden biases (E₀)")
    axes.legend(loc="upper right")
    light_grid(axes)


def _bits(axes: Axes, table: Table) -> None:
    axes.plot(table["bits"], table["predicted"], color=INK, label="updates that survive")
    axes.plot(table["bits"], table["measured"], "o", color=INK, markerfacecolor="white")
    axes.plot(table["bits"], table["nonzero"], "D--", color=PURPLE, markersize=3.2, linewidth=0.8,
              label="couplings moved")  # fmt: skip
    axes.set(xlabel="bits", ylabel="fraction", ylim=(-0.04, 1.38))
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_xticks(table["bits"])
    axes.legend(loc="upper left", borderaxespad=0.1)
    light_grid(axes)


# --- where the heat comes from ---

STYLES = ((COLOURS["batch"], "s-"), (COLOURS["online"], "o-"), (GREY, "D-"))
"""Colours and markers of ``mixtures.LINES``, in their order."""
ACCOUNTS = {
    "difference": "batch − online",
    "around_optimum": "noise around θ*",
    "from_noise": "noise around means",
    "from_mean": "means without noise",
    "predicted_mean": "means, predicted",
}


def draw_origin(saved: StudyTables) -> Figure:
    """Heat along lines and against the size of noise, and the account of the difference."""
    figure, axes = in_a_row([1.15, 1.15, 1.1], 2.5)
    origin = saved.summary["origin"]
    if origin is None:
        for part in axes:
            empty(part, "not measured")
        return figure
    _lines(axes[0], origin["curves"])
    _sizes(axes[1], origin)
    accounts = origin["accounts"]
    known = [key for key in ACCOUNTS if key in accounts]
    intervals(
        axes[2],
        [ACCOUNTS[key] for key in known],
        [accounts[key]["mean"] for key in known],
        [accounts[key]["interval"] for key in known],
    )
    axes[2].set_xlabel("heat, batch − online (E₀)")
    light_grid(axes[2], "x")
    titles = ("between θ*, batch and online", "noise around the optimum", "the difference")
    for part, letter, title in zip(axes, "abc", titles, strict=True):
        panel(part, letter, title)
    return figure


def _lines(axes: Axes, curves: list[dict[str, Any]]) -> None:
    if not any(row["curve"] in mixtures.LINES for row in curves):
        empty(axes, "no lines were measured")
        return
    for name, (colour, style) in zip(mixtures.LINES, STYLES, strict=True):
        points = [row for row in curves if row["curve"] == name]
        if points:
            axes.plot([p["value"] for p in points], [p["heat"] for p in points], style,
                      color=colour, markersize=3.4, label=name)  # fmt: skip
    axes.set(xlabel="position on the line", ylabel="mean heat (E₀)")
    legend_above(axes, 0.42)
    light_grid(axes)


def _sizes(axes: Axes, origin: dict[str, Any]) -> None:
    """Draw heat against the variance, in which it is linear to lowest order."""
    points = [row for row in origin["curves"] if row["curve"] == ISOTROPIC]
    size = origin["size"]
    variance = [1e4 * (size * p["value"]) ** 2 for p in points]
    heat, sd = [p["heat"] for p in points], [p["sd"] or 0.0 for p in points]
    axes.errorbar(variance, heat, sd, fmt="^-", color=COLOURS["optimum"], markersize=4,
                  elinewidth=0.7, label="θ* + isotropic noise")  # fmt: skip
    accounts = origin["accounts"]
    for rule in RULES:
        squares = [row for row in origin["norms"] if row["rule"] == rule]
        weight = sum(row["noise"] ** 2 for row in squares)
        count = sum((row["noise"] / row["noise_rms"]) ** 2 for row in squares if row["noise_rms"])
        x = 1e4 * weight / count
        around = accounts["optimum"]["mean"] + accounts["noise_around_optimum"][rule]["mean"]
        axes.plot([x], [around], MARKERS[rule], color=COLOURS[rule])
        axes.plot([x], [accounts[rule]["mean"]], MARKERS[rule], color=COLOURS[rule],
                  markerfacecolor="white")  # fmt: skip
    for fill, label in ((FAINT, "θ* + noise of trained computers"), ("white", "trained computers")):
        axes.plot([], [], "D", color=FAINT, markerfacecolor=fill, markersize=4, label=label)
    axes.set(xlabel="variance of the noise (10⁻⁴ E₀²)", ylabel="mean heat (E₀)")
    legend_above(axes, 0.42)
    light_grid(axes)
