"""Figures of the machine for ten digits: samples, trajectories, what makes it work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from thermoloom.presentation.drawing import empty, image, in_a_row, light_grid, panel
from thermoloom.presentation.saved import Saved, Table, only
from thermoloom.presentation.sheets import grey_scale
from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH

CURVES = {
    "styles": "styles of each class",
    "stages": "stages $T$",
    "patterns a class": "patterns of each class",
    "duration": "duration $t_f$",
    "temperature": "thermal energy $k_BT$ ($E_0$)",
    "label amplitude": "label amplitude",
    "quartic": "quartic coefficient $J_4$ ($E_0$)",
    "code": "code of 512 hidden units",
}
"""Curves of the tables with the words for their axes, in the order of the panels."""
LOGARITHMIC = ("styles", "stages", "patterns a class", "label amplitude")


def draw_sheet(saved: Saved) -> Figure:
    """Samples as they came, a column for each class."""
    arrays, about = saved.arrays("images")
    return _grid(arrays["sheet"], about["shape"], [str(c) for c in range(10)])


def _grid(images: NDArray[np.float32], shape: Sequence[int], names: Sequence[str]) -> Figure:
    """Images in rows of as many as there are names, on one grey scale."""
    rows = max(1, len(images) // len(names))
    figure = Figure(figsize=(WIDTH, WIDTH / len(names) * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, len(names), squeeze=False)
    limits = grey_scale(images)
    for place, own in zip(axes.ravel(), images, strict=False):
        image(place, own, shape, limits)
    for place in axes.ravel()[len(images) :]:
        place.axis("off")
    for place, name in zip(axes[0], names, strict=True):
        place.set_title(name)
    return figure


def draw_denoising(saved: Saved) -> Figure:
    """One trajectory of each class, a row for each."""
    arrays, about = saved.arrays("images")
    frames = arrays["frames"]
    names = [rf"$t$ = {step / about['last']:.2g} $t_f$" for step in about["steps"]]
    return _grid(frames.reshape(-1, frames.shape[-1]), about["shape"], names)


def draw_confusion(saved: Saved) -> Figure:
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
    left.set_xticks(range(10))
    left.set_yticks(range(10))
    left.set_xlabel("recognized as")
    left.set_ylabel("requested")
    panel(left, "a")
    if saved.run.has("inpainting.safetensors"):
        _completed(right, saved)
    else:
        empty(right, "inpainting: not measured")
    panel(right, "b")
    return figure


def _completed(axes: Axes, saved: Saved) -> None:
    """Rows: known top, completed; known left, completed; truth."""
    arrays, about = saved.arrays("inpainting")
    truth, (height, width) = arrays["truth"], about["shape"]
    low, high = grey_scale(truth)
    rows = []
    for name in ("top", "left"):
        known = arrays[f"{name}_known"].astype(bool)
        rows += [np.where(known, truth, 0.5 * (low + high)), np.where(known, truth, arrays[name])]
    rows.append(truth)
    sheet = np.concatenate(
        [np.concatenate([one.reshape(height, width) for one in row], axis=1) for row in rows]
    )
    image(axes, sheet.ravel(), sheet.shape, (low, high))
    names = ["top known", "drawn", "left known", "drawn", "truth"]
    axes.set_yticks([(i + 0.5) * height for i in range(len(names))], names)
    axes.tick_params(length=0)


def draw_curves(saved: Saved) -> Figure:
    """Rate of the asked class and diversity against what was varied, a panel for each."""
    figure = Figure(figsize=(WIDTH, 7.4), layout="constrained")
    places = list(np.ravel(figure.subplots(3, 3)))
    table = saved.table("points") if saved.has("points") else None
    for letter, place, (curve, words) in zip("abcdefgh", places, CURVES.items(), strict=False):
        own = None if table is None else only(table, curve=curve)
        if own is None or not len(own["value"]):
            empty(place, "not measured")
        else:
            _curve(place, own, curve)
        place.set_xlabel(words)
        panel(place, letter)
    _online(places[8], saved)
    panel(places[8], "i")
    places[0].legend(loc="center right")
    return figure


def _curve(axes: Axes, table: Table, curve: str) -> None:
    names = [str(value) for value in table["value"]]
    numeric = curve != "code"
    x = np.array([float(name) for name in names]) if numeric else np.arange(float(len(names)))
    diversity = table["diversity"].astype(float) / table["data_diversity"].astype(float)
    axes.plot(x, table["asked"].astype(float), "o-", color=BLUE, label="as asked")
    axes.plot(x, diversity, "s--", color=ORANGE, label="diversity / data's")
    axes.plot(x, table["negatives"].astype(float), "^:", color=GREEN, label="negatives")
    lost = np.array([str(value) in ("True", "1") for value in table["diverged"]])
    axes.plot(x[lost], np.zeros(lost.sum()), "x", color=INK)
    if curve in LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xticks(x, names)
    axes.minorticks_off()
    axes.set_ylim(-0.05, 1.3)
    light_grid(axes)


def _online(axes: Axes, saved: Saved) -> None:
    """The local rule on its way to the optimum."""
    axes.set_xlabel("noising trajectories, online rule")
    if not saved.has("online"):
        empty(axes, "not measured")
        return
    table = saved.table("online")
    axes.plot(table["cycles"], table["asked"].astype(float), "o-", color=BLUE)
    best = saved.summary["online_optimum"]
    if best is not None:
        axes.axhline(best, color=FAINT, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(table["cycles"], [str(cycles) for cycles in table["cycles"]])
    axes.minorticks_off()
    axes.set_ylim(-0.05, 1.3)
    light_grid(axes)
