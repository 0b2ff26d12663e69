"""The perturbation response in the report: figure 4 of the paper, and its tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.experiments.noise import MEMORY, OFFSET, RESIDUAL, UPDATE, paper_crossover
from thermoloom.presentation import page
from thermoloom.presentation.figures import FigureSpec, Saved, light_grid, only, panel
from thermoloom.presentation.screens import (
    baseline,
    condition_table,
    curve_of,
    logarithmic,
    opening,
    response,
    rows_of,
    seeds_note,
    two_by_two,
)
from thermoloom.presentation.style import BLUE, GREEN, INK, ORANGE, PURPLE

SYMBOLS = {UPDATE: "σ_upd", RESIDUAL: "σ_res", OFFSET: "μ_bias", MEMORY: "ρ"}


def draw(saved: Saved) -> Figure:
    """(a) update noise, (b) residual noise, (c) offset, (d) AR(1) correlation."""
    figure, (update, residual, offset, memory) = two_by_two(4.5)
    amplitude = saved.summary["amplitude"]
    _screen(update, saved, UPDATE, ORANGE)
    update.set_xlabel(r"update noise $\sigma_{\rm upd}$")
    _mark_crossover(update)
    panel(update, "a", "noise on formed updates")
    _screen(residual, saved, RESIDUAL, BLUE)
    residual.set_xlabel(r"residual noise $\sigma_{\rm res}$")
    panel(residual, "b", "independent noise on residuals")
    _screen(offset, saved, OFFSET, PURPLE)
    _offset_axis(offset, saved)
    offset.set_xlabel(r"residual offset $\mu_{\rm bias}$")
    panel(offset, "c", rf"offset, $\sigma_{{\rm res}}$ = {amplitude:g}")
    _screen(memory, saved, MEMORY, GREEN)
    memory.set_xlabel(r"correlation $\rho$ of successive errors")
    panel(memory, "d", rf"AR(1) noise, $\sigma_{{\rm res}}$ = {amplitude:g}")
    logarithmic(offset, curve_of(saved, OFFSET))
    logarithmic(memory, curve_of(saved, MEMORY))
    for axes in (update, residual):
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    for axes in (update, residual, offset, memory):
        axes.set_ylabel("mean heat ($E_0$)")
        light_grid(axes)
    return figure


def _screen(axes: Axes, saved: Saved, name: str, colour: str) -> None:
    curve = curve_of(saved, name)
    response(axes, curve, colour=colour)
    for heat in only(curve, value=0.0)["heat"]:
        baseline(axes, heat)


def _mark_crossover(axes: Axes) -> None:
    """Where the paper has its crossover, if the panel reaches that far."""
    low, high = paper_crossover()
    if axes.get_xlim()[1] < high:
        return
    axes.axvspan(low, high, color=INK, alpha=0.07, linewidth=0, zorder=0)
    axes.annotate("crossover\nin the paper", (low, 0.96), xytext=(-3, 0), ha="right",
                  va="top", fontsize=6.5, textcoords="offset points",
                  xycoords=axes.get_xaxis_transform())  # fmt: skip


def _offset_axis(axes: Axes, saved: Saved) -> None:
    """Logarithmic from the smallest offset on, with zero at its left."""
    values = np.unique(curve_of(saved, OFFSET)["value"])
    nonzero = np.abs(values[values != 0])
    if len(nonzero):
        axes.set_xscale("symlog", linthresh=nonzero.min(), linscale=0.5)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_xlim(min(0.0, 1.3 * values.min()) - 0.3 * nonzero.min(), 1.3 * values.max())


def caption(summary: dict[str, Any]) -> str:
    return page.fill(
        "Figure 4 of the paper. (a) Zero-mean noise added to every formed update ({uc} cycles, "
        "{us} samples); shaded: where the paper has its crossover. (b) Independent noise added "
        "to node residuals before the symmetric update is formed. (c) Uniform offset on top of "
        "independent residual noise with σ_res = {amplitude}. (d) AR(1) correlation of the "
        "residual noise at the same amplitude. Panels (b–d): {rc} cycles, {rs} samples; (c) "
        "and (d) have logarithmic vertical axes. Dotted: heat at zero perturbation. The "
        "amplitudes of (a) and (b) act on different variables and cannot be compared. ",
        {
            "uc": summary["cycles"]["update"],
            "us": summary["samples"]["update"],
            "rc": summary["cycles"]["residual"],
            "rs": summary["samples"]["residual"],
            "amplitude": summary["amplitude"],
        },
    ) + seeds_note(summary)


FIGURES = (FigureSpec("figure-4", "Perturbation response", draw, caption),)


def section(summary: dict[str, Any], figures: dict[str, str]) -> str:
    """The screens, the paper's statements, every condition."""
    tables = [
        condition_table(
            f"Every condition of the screen of {screen}",
            [
                page.value_column(SYMBOLS[screen], "value", "g"),
                page.value_column("seed", "seed", "d"),
            ],
            rows_of(summary, screen),
        )
        for screen in SYMBOLS
    ]
    return "".join(
        [
            *opening(
                summary,
                "How the heat of the trained computer responds to errors of its training, by "
                "where they enter and how they hang together. Thermal paths, error stream and "
                "generation numbers are the same along each curve.",
                figures["figure-4"],
            ),
            page.note(
                "The paper does not give its offsets and correlations. The offsets here begin "
                "where a first effect shows and end where heat has grown by orders of magnitude; "
                "the correlations reach a memory of 100 steps. Quality, which the paper did not "
                "measure in these screens, is in the tables."
            ),
            *tables,
        ]
    )
