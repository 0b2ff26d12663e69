"""Figure 5 of the paper: heat by bits of storage and of training; and the quality at each depth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, SKY
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    Trace,
    draw_reference,
    draw_screen,
    evenly,
    finish,
    in_a_row,
    in_rows,
    legend_above,
)
from thermoloom.studies.precision.study import (
    NEAREST,
    REFERENCE,
    ROUNDINGS,
    STOCHASTIC,
    STORAGE,
    TRAINING,
)

COLOURS = {NEAREST: BLUE, STOCHASTIC: ORANGE}
MARKERS = {NEAREST: "s", STOCHASTIC: "o"}
NAMES = {NEAREST: "rounding to nearest", STOCHASTIC: "stochastic rounding"}
QUALITY = {
    "max_softmax": ("maximum softmax", BLUE, "s"),
    "pattern_distance": ("pattern distance", GREEN, "^"),
    "pairwise_distance": ("pairwise distance", PURPLE, "D"),
}


# --- heat ---


def draw_heat(saved: StudyTables) -> Figure:
    """(a) heat by bits of storage, (b) by bits of training."""
    figure, (storage, training) = in_a_row([1, 1], 2.6)
    draw_screen(storage, saved, STORAGE, {"": Trace(PURPLE, "D")})
    draw_reference(storage, saved, STORAGE, UNQUANTIZED, "--")
    traces = {
        NEAREST: _trace(saved, NEAREST),
        REFERENCE: Trace(INK, "D"),
        STOCHASTIC: _trace(saved, STOCHASTIC),
    }
    draw_screen(training, saved, TRAINING, traces)
    draw_reference(training, saved, TRAINING, UNQUANTIZED, "--", "unquantized float32")
    training.plot([], [], "s", color=FAINT, markerfacecolor="white",
                  label="$J_{vh}$ identically zero")  # fmt: skip
    for axes in (storage, training):
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    finish(storage, "a", "couplings stored after training", xlabel="storage bits")
    finish(training, "b", "rounded after every update", xlabel="training bits")
    legend_above(training, 0.3, ncols=2)
    return figure


def _trace(saved: StudyTables, rounding: str) -> Trace:
    """A curve of training; hollow where every visible–hidden coupling is zero, in all seeds."""
    table = only(_conditions(saved, TRAINING), variant=rounding)
    uncoupled = [
        bits
        for bits in np.unique(table["value"])
        if (only(table, value=bits)["nonzero_visible_hidden"] == 0).all()
    ]
    return Trace(COLOURS[rounding], MARKERS[rounding], NAMES[rounding], hollow=uncoupled)


def _conditions(saved: StudyTables, screen: str) -> Table:
    return only(saved.table("conditions"), screen=screen)


# --- distributions, quality, couplings ---


def draw_quality(saved: StudyTables) -> Figure:
    """(a) heats by bits of storage, (b, c) quality, (d) nonzero couplings."""
    figure, (heats, storage, training, couplings) = in_rows(2, 2, 4.7)
    _draw_distributions(heats, saved)
    _draw_quality(storage, saved, STORAGE, {"": "-"})
    _draw_quality(training, saved, TRAINING, {NEAREST: ":", STOCHASTIC: "-"})
    _draw_couplings(couplings, saved)
    labels = ("storage bits", "storage bits", "training bits", "training bits")
    titles = (
        "heats, and KS distance to 32 bits",
        "quality of stored computers",
        "quality of computers trained with few bits",
        "couplings that are not zero",
    )
    for axes, letter, title, xlabel in zip(figure.axes, "abcd", titles, labels, strict=True):
        finish(axes, letter, title, xlabel=xlabel)
    return figure


def _draw_distributions(axes: Axes, saved: StudyTables) -> None:
    """Heats of the single trajectories, and how far each distribution is from the reference."""
    samples = only(saved.table("samples"), screen=STORAGE)
    conditions = _conditions(saved, STORAGE)
    places = evenly(axes, conditions["value"])
    for bits, place in places.items():
        heats = only(samples, value=bits)["heat"]
        if len(heats) < 2 or np.ptp(heats) == 0:
            continue
        body = axes.violinplot([heats], [place], widths=0.8, showextrema=False, points=200)
        for patch in body["bodies"]:  # type: ignore[attr-defined]
            patch.set_facecolor(SKY if bits != UNQUANTIZED else FAINT)
            patch.set_alpha(0.6)
        axes.plot([place - 0.18, place + 0.18], [heats.mean()] * 2, color=INK, linewidth=1.2)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.18 * (high - low))
    for bits, place in places.items():
        distances = only(conditions, value=bits)["ks_distance"]
        distances = distances[np.isfinite(distances)]
        if bits != UNQUANTIZED and len(distances):
            axes.annotate(f"{distances.mean():.2f}", (place, 0.98), ha="center", va="top",
                          fontsize=6.5, xycoords=axes.get_xaxis_transform())  # fmt: skip
    axes.annotate("KS:", (0, 0.98), xytext=(-12, 0), ha="right", va="top", fontsize=6.5,
                  textcoords="offset points", xycoords=axes.get_xaxis_transform(),
                  annotation_clip=False)  # fmt: skip
    axes.set_ylabel("heat of a trajectory ($E_0$)")
    axes.set_xlim(-0.5 - 0.08 * len(places), len(places) - 0.5)


def _draw_quality(axes: Axes, saved: StudyTables, screen: str, lines: Mapping[str, str]) -> None:
    """Measures of quality relative to those of the 32-bit reference, one line for each variant."""
    table = _conditions(saved, screen)
    places = evenly(axes, table["value"])
    reference = only(table, value=UNQUANTIZED)
    for measure, (label, colour, marker) in QUALITY.items():
        base = float(np.mean(reference[measure])) if len(reference[measure]) else np.nan
        if not np.isfinite(base):
            continue
        for variant, line in lines.items():
            means = {
                bits: np.mean(only(table, value=bits, variant=variant)[measure])
                for bits in np.unique(only(table, variant=variant)["value"])
            } | {UNQUANTIZED: base}
            axes.plot([places[bits] for bits in means],
                      100 * np.array(list(means.values())) / base, line, color=colour,
                      marker=marker, markersize=3.5,
                      label=label if line == "-" else None)  # fmt: skip
    axes.axhline(100, color=FAINT, linewidth=1, linestyle="--", zorder=0)
    axes.set_ylabel("relative to 32 bits (%)")
    if screen == TRAINING:
        for rounding, line in lines.items():
            axes.plot([], [], line, color=INK, label=NAMES[rounding])
    legend_above(axes, 0.4, ncols=2)


def _draw_couplings(axes: Axes, saved: StudyTables) -> None:
    """Share of the couplings that are not zero, by block and rounding."""
    table = _conditions(saved, TRAINING)
    places = evenly(axes, table["value"])
    blocks = {
        "nonzero_visible_hidden": ("$J_{vh}$", "-"),
        "nonzero_hidden_hidden": ("$J_{hh}$", ":"),
    }
    for rounding in ROUNDINGS:
        trained = only(table, variant=rounding)
        for column, (label, line) in blocks.items():
            bits = np.unique(trained["value"])
            share = [100 * np.mean(only(trained, value=b)[column]) for b in bits]
            axes.plot([places[b] for b in bits], share, line, color=COLOURS[rounding],
                      marker=MARKERS[rounding], markersize=3.5,
                      label=f"{label}, {rounding}")  # fmt: skip
    axes.set(ylim=(-5, 105), yticks=range(0, 101, 25), ylabel="nonzero couplings (%)")
    legend_above(axes, 0.3, ncols=2)
