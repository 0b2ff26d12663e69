"""Figures of the machine for ten digits: samples, trajectories, what makes it work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from thermoloom.presentation.drawing import (
    empty,
    in_a_row,
    light_grid,
    nothing,
    panel,
)
from thermoloom.presentation.image_sheet import draw_image_sheet, grey_scale
from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables

CURVES = {
    "styles": "styles of each class",
    "stages": "stages $T$",
    "patterns": "patterns of each class",
    "duration": "duration $t_f$",
    "temperature": "thermal energy $k_BT$ ($E_0$)",
    "label amplitude": "label amplitude",
    "quartic": "quartic coefficient $J_4$ ($E_0$)",
    "windows": "windows of the stages",
    "code": "code of 512 hidden units",
    "hidden": "hidden units",
}
"""Curves of the tables with the words for their axes, in the order of the panels."""
LOGARITHMIC = ("styles", "stages", "patterns", "label amplitude", "temperature", "hidden")
EVEN = ("windows", "code", "quartic")
"""Curves whose values are names, or too uneven for a scale."""


def draw_sheet(saved: StudyTables) -> Figure:
    """Samples as they came, a column for each class."""
    arrays, about = saved.arrays("images")
    return _grid(arrays["sheet"], about["shape"], [str(c) for c in range(10)])


def _grid(images: NDArray[np.float32], shape: Sequence[int], names: Sequence[str]) -> Figure:
    """Images in rows of as many as there are names, on one grey scale, one pixel apart."""
    height, width = shape
    columns = len(names)
    rows = -(-len(images) // columns)
    limits = grey_scale(images)
    places = np.full((rows * columns, height * width), np.nan)
    places[: len(images)] = images
    figure = Figure(figsize=(WIDTH, WIDTH / columns * rows + 0.3), layout="constrained")
    axes = figure.subplots()
    draw_image_sheet(axes, places.reshape(rows, columns, height, width), limits, 1, names)
    return figure


def draw_unlabelled(saved: StudyTables) -> Figure:
    """Samples of the machine without labels, as they came."""
    if not saved.run.has("unlabelled.safetensors"):
        return nothing("not measured")
    arrays, about = saved.arrays("unlabelled")
    return _grid(arrays["sheet"][:40], about["shape"], [""] * 10)


def draw_denoising(saved: StudyTables) -> Figure:
    """One trajectory of each class, a row for each."""
    arrays, about = saved.arrays("images")
    frames = arrays["frames"]
    names = [rf"$t$ = {step / about['last']:.2g} $t_f$" for step in about["steps"]]
    return _grid(frames.reshape(-1, frames.shape[-1]), about["shape"], names)


def draw_confusion(saved: StudyTables) -> Figure:
    """(a) asked by recognized; (b) a half hidden: what is known, what was drawn, the truth."""
    figure, (left, right) = in_a_row((1, 1.25), 3.1)
    table = saved.table("confusion")
    counts = np.array([table[f"as_{j}"] for j in range(10)]).T
    left.imshow(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                colour = "white" if i == j else INK
                left.text(j, i, str(count), ha="center", va="center", fontsize=6, color=colour)
    left.set(xticks=range(10), yticks=range(10), xlabel="recognized as", ylabel="requested")
    panel(left, "a")
    if saved.run.has("inpainting.safetensors"):
        _completed(right, saved)
    else:
        empty(right, "inpainting: not measured")
    panel(right, "b")
    return figure


def _completed(axes: Axes, saved: StudyTables) -> None:
    """Rows: known top, completed; known left, completed; truth."""
    arrays, about = saved.arrays("inpainting")
    truth, (height, width) = arrays["truth"], about["shape"]
    low, high = grey_scale(truth)
    rows = []
    for name in ("top", "left"):
        known = arrays[f"{name}_known"].astype(bool)
        rows += [np.where(known, truth, 0.5 * (low + high)), np.where(known, truth, arrays[name])]
    rows.append(truth)
    sheet = np.stack(rows).reshape(len(rows), -1, height, width)
    names = ["top known", "drawn", "left known", "drawn", "truth"]
    draw_image_sheet(axes, sheet, (low, high), row_names=names)


def draw_curves(saved: StudyTables) -> Figure:
    """Rate of the asked class and diversity against what was varied, a panel for each."""
    figure, places = _panels(saved, _rates)
    for letter, place, (table, column, words) in zip("kl", places, ONLINE, strict=True):
        _online(place, saved, table, column)
        place.set_xlabel(words)
        panel(place, letter)
    return figure


def draw_curve_energies(saved: StudyTables) -> Figure:
    """Heat and work of an image against what was varied, a panel for each."""
    figure, places = _panels(saved, _energies)
    for place in places:
        place.set_visible(False)
    return figure


Curve = Callable[[Axes, NDArray[np.float64], Table], None]
ONLINE = (
    ("online", "cycles", "noising trajectories, online rule"),
    ("amplitudes", "amplitude", "label amplitude, online rule"),
)
"""Tables of the local rule: what was varied, and the words for it."""


def _panels(saved: StudyTables, draw: Curve) -> tuple[Figure, list[Axes]]:
    """A panel for each curve, and the places that are left."""
    figure = Figure(figsize=(WIDTH, 9.4), layout="constrained")
    places = list(np.ravel(figure.subplots(4, 3)))
    table = saved.table("points") if saved.has("points") else None
    for letter, place, (curve, words) in zip("abcdefghij", places, CURVES.items(), strict=False):
        own = None if table is None else only(table, curve=curve)
        if own is None or not len(own["value"]):
            empty(place, "not measured")
        else:
            draw(place, _scale(place, own, curve), own)
        place.set_xlabel(words)
        panel(place, letter)
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure, places[len(CURVES) :]


def _scale(axes: Axes, table: Table, curve: str) -> NDArray[np.float64]:
    """Where the values of a curve lie, with their names as ticks."""
    names = [str(value) for value in table["value"]]
    even = curve in EVEN
    x = np.arange(float(len(names))) if even else np.array([float(name) for name in names])
    if curve in LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xticks(x, names)
    if even and len(names) > 3:
        axes.set_xticks(x, names, rotation=40, ha="right", fontsize=6)
    axes.minorticks_off()
    light_grid(axes)
    return x


def _rates(axes: Axes, x: NDArray[np.float64], table: Table) -> None:
    diversity = table["diversity"].astype(float) / table["data_diversity"].astype(float)
    _asked(axes, x, table)
    axes.plot(x, diversity, "s--", color=ORANGE, label="diversity / data's")
    axes.plot(x, table["negatives"].astype(float), "^:", color=GREEN, label="negatives")
    lost = np.array([str(value) in ("True", "1") for value in table["diverged"]])
    axes.plot(x[lost], np.zeros(lost.sum()), "x", color=INK)
    axes.set_ylim(-0.05, 1.3)


def _asked(axes: Axes, x: NDArray[Any], table: Table) -> None:
    """Rates at which the asked class is recognized, with their 95 % intervals."""
    rate, low, high = (table[key].astype(float) for key in ("asked", "asked_low", "asked_high"))
    axes.errorbar(
        x,
        rate,
        (rate - low, high - rate),
        fmt="o-",
        color=BLUE,
        elinewidth=0.8,
        label="as requested",
    )


def _energies(axes: Axes, x: NDArray[np.float64], table: Table) -> None:
    axes.plot(x, table["heat"].astype(float), "o-", color=ORANGE, label="heat ($E_0$)")
    axes.plot(x, table["work"].astype(float), "s--", color=BLUE, label="work ($E_0$)")
    axes.axhline(0, color=FAINT, linewidth=0.8)


def _online(axes: Axes, saved: StudyTables, name: str, column: str) -> None:
    """The local rule on its way to the optimum."""
    if not saved.has(name):
        empty(axes, "not measured")
        return
    table = saved.table(name)
    x = table[column].astype(float)
    _asked(axes, x, table)
    best = saved.summary["online_optimum"]
    if best is not None:
        axes.axhline(best["asked"], color=FAINT, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.minorticks_off()
    axes.set_ylim(-0.05, 1.3)
    light_grid(axes)
