"""Figures of the machine for ten digits: samples, trajectories, effects of its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from thermoloom.presentation.image_sheet import draw_image_sheet, grey_scale
from thermoloom.presentation.style import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.digits.curves import CURVES
from thermoloom.studies.digits.statements import said
from thermoloom.studies.drawing import empty, in_a_row, light_grid, nothing, panel

DrawCurve = Callable[[Axes, NDArray[np.float64], Table], None]


def draw_sheet(saved: StudyTables) -> Figure:
    """The first samples in order, a column for each class."""
    arrays, about = saved.arrays("images")
    return _grid(arrays["sheet"], about["shape"], about["classes"])


def _grid(images: NDArray[np.float32], shape: Sequence[int], names: Sequence[str]) -> Figure:
    """Images on one grey scale, one pixel apart, in rows with a column for each name."""
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
    """The first samples of the machine without labels, in order."""
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
    """(a) requested by recognized class; (b) half-known images and their completions."""
    figure, (matrix, completions) = in_a_row((1, 1.25), 3.1)
    table = saved.table("confusion")
    counts = np.array([table[name] for name in table if name.startswith("as_")]).T
    names = saved.arrays("images")[1]["classes"]
    ticks = range(len(names))
    matrix.imshow(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                colour = "white" if i == j else INK
                matrix.text(j, i, str(count), ha="center", va="center", fontsize=6, color=colour)
    upright = max(map(len, names)) < 3
    matrix.set(xlabel="recognized as", ylabel="requested")
    matrix.set_xticks(ticks, names, rotation=0 if upright else 90)
    matrix.set_yticks(ticks, names)
    panel(matrix, "a")
    if saved.run.has("inpainting.safetensors"):
        _completed(completions, saved)
    else:
        empty(completions, "inpainting: not measured")
    panel(completions, "b")
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
    """Rate of the correct class and diversity against the varied setting, a panel for each."""
    return _curve_panels(saved, _rates)


def draw_online(saved: StudyTables) -> Figure:
    """The online rule on its way to the optimum: (a) correct class, (b) Fréchet distance against
    trajectories, (c) correct class against the amplitude of labels.
    """
    figure, (rates, distances, amplitudes) = in_a_row((1, 1, 1), 2.6)
    optimum = saved.summary["online_optimum"] or {}
    table = saved.table("online") if saved.has("online") else None
    others = saved.table("amplitudes") if saved.has("amplitudes") else None
    _against(rates, table, "cycles", _correct_class, optimum.get("correct_class"))
    _against(distances, table, "cycles", _frechet, optimum.get("frechet"))
    _against(amplitudes, others, "amplitude", _correct_class, optimum.get("correct_class"))
    if optimum.get("frechet"):
        goal = said.limit("online", "percent")
        distances.axhspan(0, (1 + goal / 100) * optimum["frechet"], color=FAINT, alpha=0.3)
    for axes, letter, name, height in (
        (rates, "a", "noising trajectories", "correct class"),
        (distances, "b", "noising trajectories", "Fréchet distance"),
        (amplitudes, "c", "label amplitude", "correct class"),
    ):
        axes.set(xlabel=name, ylabel=height)
        panel(axes, letter)
    return figure


def draw_curve_energies(saved: StudyTables) -> Figure:
    """Heat and work of an image against the varied setting, a panel for each."""
    return _curve_panels(saved, _energies)


def _curve_panels(saved: StudyTables, draw: DrawCurve) -> Figure:
    """A panel for each curve."""
    figure = Figure(figsize=(WIDTH, 9.4), layout="constrained")
    panels = list(np.ravel(figure.subplots(4, 3)))
    points = saved.table("points") if saved.has("points") else None
    for letter, axes, (curve, axis) in zip("abcdefghij", panels, CURVES.items(), strict=False):
        table = {} if points is None else only(points, curve=curve)
        if table and len(table["value"]):
            draw(axes, _positions(axes, table, axis.scale), table)
        else:
            empty(axes, "not measured")
        axes.set_xlabel(axis.label)
        panel(axes, letter)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    for axes in panels[len(CURVES) :]:
        axes.set_visible(False)
    return figure


def _positions(axes: Axes, table: Table, scale: str) -> NDArray[np.float64]:
    """Where the values of a curve lie, with their names as ticks."""
    names = [str(name) for name in table["value"]]
    even = scale == "even"
    x = np.arange(float(len(names))) if even else np.array([float(name) for name in names])
    if scale == "log":
        axes.set_xscale("log")
    axes.set_xticks(x, names)
    if even and len(names) > 3:
        axes.set_xticks(x, names, rotation=40, ha="right", fontsize=6)
    axes.minorticks_off()
    light_grid(axes)
    return x


def _rates(axes: Axes, x: NDArray[np.float64], table: Table) -> None:
    diversity = table["diversity"].astype(float) / table["data_diversity"].astype(float)
    _correct_class(axes, x, table)
    axes.plot(x, diversity, "s--", color=ORANGE, label="diversity (data: 1)")
    axes.plot(x, table["negatives"].astype(float), "^:", color=GREEN, label="negatives")
    diverged = np.array([str(flag) in ("True", "1") for flag in table["diverged"]])
    axes.plot(x[diverged], np.zeros(diverged.sum()), "x", color=INK)
    axes.set_ylim(-0.05, 1.3)


def _correct_class(axes: Axes, x: NDArray[Any], table: Table) -> None:
    """Rates at which the requested class is recognized, with their 95 % intervals."""
    rate, low, high = (table[f"correct_class{end}"].astype(float) for end in ("", "_low", "_high"))
    axes.errorbar(
        x,
        rate,
        (rate - low, high - rate),
        fmt="o-",
        color=BLUE,
        elinewidth=0.8,
        label="correct class",
    )


def _energies(axes: Axes, x: NDArray[np.float64], table: Table) -> None:
    axes.plot(x, table["heat"].astype(float), "o-", color=ORANGE, label="heat ($E_0$)")
    axes.plot(x, table["work"].astype(float), "s--", color=BLUE, label="work ($E_0$)")
    axes.axhline(0, color=FAINT, linewidth=0.8)


def _frechet(axes: Axes, x: NDArray[Any], table: Table) -> None:
    axes.plot(x, table["frechet"].astype(float), "s-", color=ORANGE)
    axes.set_ylim(bottom=0)


def _against(
    axes: Axes, table: Table | None, column: str, draw: DrawCurve, optimum: float | None
) -> None:
    """One measure of the online rule against a column, with that of the optimum."""
    if table is None:
        empty(axes, "not measured")
        return
    x = table[column].astype(float)
    draw(axes, x, table)
    if optimum is not None:
        axes.axhline(optimum, color=INK, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{position:g}" for position in x])
    axes.minorticks_off()
    light_grid(axes)
