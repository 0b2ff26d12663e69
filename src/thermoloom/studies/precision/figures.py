"""Figure 5 of the paper, heat by bits of storage and of training, and quality beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, SKY
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    baseline,
    curve_of,
    evenly,
    finish,
    in_a_row,
    in_rows,
    legend_above,
    light_grid,
    panel,
    response,
)  # fmt: skip

STORAGE, TRAINING = "storage", "training"
"""Names of the two screens in the tables."""
REFERENCE, NEAREST, STOCHASTIC = "reference", "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)
COLOURS = {NEAREST: BLUE, STOCHASTIC: ORANGE}
MARKERS = {NEAREST: "s", STOCHASTIC: "o"}
NAMES = {NEAREST: "rounding to nearest", STOCHASTIC: "stochastic rounding"}
QUALITY = {
    "max_softmax": ("maximum softmax", BLUE, "s"),
    "pattern_distance": ("pattern distance", GREEN, "^"),
    "pairwise_distance": ("pairwise distance", PURPLE, "D"),
}


# --- heat -----------------------------------------------------------------------------------------


def draw_heat(saved: StudyTables) -> Figure:
    """(a) heat by bits of storage, (b) by bits of training."""
    figure, (storage, training) = in_a_row([1, 1], 2.6)
    _storage(storage, saved)
    _training(training, saved)
    for axes in (storage, training):
        axes.set_ylabel("mean heat ($E_0$)")
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        light_grid(axes)
    legend_above(training, 0.3, ncols=2)
    return figure


def _bit_axis(axes: Axes, table: Table, what: str) -> dict[float, int]:
    """Bit depths at equal distances."""
    axes.set_xlabel(f"{what} bits")
    return evenly(axes, table["value"])


def only_screen(saved: StudyTables, screen: str) -> Table:
    return only(saved.table("conditions"), screen=screen)


def _storage(axes: Axes, saved: StudyTables) -> None:
    places = _bit_axis(axes, only_screen(saved, STORAGE), STORAGE)
    curve = curve_of(saved, STORAGE)
    response(axes, curve, [places[v] for v in curve["value"]], PURPLE, "D")
    for heat in only(curve, value=32.0)["heat"]:
        baseline(axes, heat, "--")
    panel(axes, "a", "couplings stored after training")


def _training(axes: Axes, saved: StudyTables) -> None:
    places = _bit_axis(axes, only_screen(saved, TRAINING), TRAINING)
    reference = curve_of(saved, TRAINING, REFERENCE)
    for rounding, shift in zip(ROUNDINGS, (-0.08, 0.08), strict=True):
        curve = curve_of(saved, TRAINING, rounding)
        response(
            axes,
            curve,
            [places[v] + shift for v in curve["value"]],
            COLOURS[rounding],
            MARKERS[rounding],
            hollow=_without_couplings(saved, rounding, curve["value"]),
            label=NAMES[rounding],
        )
    response(axes, reference, [places[v] for v in reference["value"]], INK, "D")
    for heat in reference["heat"]:
        baseline(axes, heat, "--", "unquantized float32")
    axes.plot([], [], "s", color=FAINT, markerfacecolor="white", label="$J_{vh}$ identically zero")
    panel(axes, "b", "rounded after every update")


def _without_couplings(saved: StudyTables, rounding: str, bits: NDArray[Any]) -> list[bool]:
    """Where every visible–hidden coupling is zero, in all seeds."""
    table = only(only_screen(saved, TRAINING), variant=rounding)
    return [bool((only(table, value=b)["nonzero_visible_hidden"] == 0).all()) for b in bits]


# --- distributions, quality, couplings --------------------------------------------------------


def draw_quality(saved: StudyTables) -> Figure:
    """(a) heats by bits of storage, (b, c) quality, (d) nonzero couplings."""
    figure, (heats, storage, training, couplings) = in_rows(2, 2, 4.7)
    _distributions(heats, saved)
    _quality(storage, saved, STORAGE, [("", "-")])
    panel(storage, "b", "quality of stored computers")
    _quality(training, saved, TRAINING, [(NEAREST, ":"), (STOCHASTIC, "-")])
    panel(training, "c", "quality of computers trained in bits")
    _couplings(couplings, saved)
    return figure


def _distributions(axes: Axes, saved: StudyTables) -> None:
    """Heats of the single trajectories, and how far each distribution is from the reference."""
    samples = only(saved.table("samples"), screen=STORAGE)
    conditions = only_screen(saved, STORAGE)
    places = _bit_axis(axes, conditions, STORAGE)
    for bits, place in places.items():
        heats = only(samples, value=bits)["heat"]
        if len(heats) < 2 or np.ptp(heats) == 0:
            continue
        body = axes.violinplot([heats], [place], widths=0.8, showextrema=False, points=200)
        for patch in body["bodies"]:  # type: ignore[attr-defined]
            patch.set_facecolor(SKY if bits != 32 else FAINT)
            patch.set_alpha(0.6)
        axes.plot([place - 0.18, place + 0.18], [heats.mean()] * 2, color=INK, linewidth=1.2)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.18 * (high - low))
    for bits, place in places.items():
        distance = only(conditions, value=bits)["ks_distance"]
        known = distance[np.isfinite(distance)]
        if bits != 32 and len(known):
            axes.annotate(f"{known.mean():.2f}", (place, 0.98), ha="center", va="top", fontsize=6.5,
                          xycoords=axes.get_xaxis_transform())  # fmt: skip
    axes.annotate("KS:", (0, 0.98), xytext=(-12, 0), ha="right", va="top", fontsize=6.5,
                  textcoords="offset points", xycoords=axes.get_xaxis_transform(),
                  annotation_clip=False)  # fmt: skip
    axes.set_ylabel("heat of a trajectory ($E_0$)")
    axes.set_xlim(-0.5 - 0.08 * len(places), len(places) - 0.5)
    finish(axes, "a", "heats, and KS distance to 32 bits")


def _quality(axes: Axes, saved: StudyTables, screen: str, variants: list[tuple[str, str]]) -> None:
    table = only_screen(saved, screen)
    places = _bit_axis(axes, table, screen)
    reference = only(table, value=32.0)
    for measure, (label, colour, marker) in QUALITY.items():
        base = float(np.mean(reference[measure])) if len(reference[measure]) else np.nan
        if not np.isfinite(base):
            continue
        for variant, line in variants:
            own = only(table, variant=variant)
            bits = [b for b in places if b in own["value"] or b == 32]
            level = [np.mean(_with_reference(own, reference, b)[measure]) / base for b in bits]
            axes.plot([places[b] for b in bits], 100 * np.array(level), line, color=colour,
                      marker=marker, markersize=3.5,
                      label=label if line == "-" else None)  # fmt: skip
    axes.axhline(100, color=FAINT, linewidth=1, linestyle="--", zorder=0)
    axes.set_ylabel("of the 32-bit reference (%)")
    if screen == TRAINING:
        for variant, line in variants:
            axes.plot([], [], line, color=INK, label=NAMES[variant])
    legend_above(axes, 0.4, ncols=2)
    light_grid(axes)


def _with_reference(own: Table, reference: Table, bits: float) -> Table:
    return reference if bits == 32 else only(own, value=bits)


def _couplings(axes: Axes, saved: StudyTables) -> None:
    table = only_screen(saved, TRAINING)
    places = _bit_axis(axes, table, TRAINING)
    blocks = {
        "nonzero_visible_hidden": ("$J_{vh}$", "-"),
        "nonzero_hidden_hidden": ("$J_{hh}$", ":"),
    }
    for rounding in ROUNDINGS:
        own = only(table, variant=rounding)
        for column, (label, line) in blocks.items():
            bits = np.unique(own["value"])
            share = [100 * np.mean(only(own, value=b)[column]) for b in bits]
            axes.plot([places[b] for b in bits], share, line, color=COLOURS[rounding],
                      marker=MARKERS[rounding], markersize=3.5,
                      label=f"{label}, {rounding}")  # fmt: skip
    axes.set(ylim=(-5, 105), yticks=range(0, 101, 25), ylabel="nonzero couplings (%)")
    legend_above(axes, 0.3, ncols=2)
    finish(axes, "d", "couplings that are not zero")
