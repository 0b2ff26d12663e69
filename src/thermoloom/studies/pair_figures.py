"""Figures of a study of pairs: trajectories, paired comparison, samples, energies."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from thermoloom.presentation.image_sheet import draw_image, grey_scale
from thermoloom.presentation.style import (
    COLOURS,
    FAINT,
    GREY,
    INK,
    LINES,
    MARKERS,
    ORANGE,
    PURPLE,
    RULES,
    WIDTH,
)  # fmt: skip
from thermoloom.runs.formats import only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import (
    empty,
    finish,
    in_a_row,
    inset,
    intervals,
    legend_above,
    light_grid,
    paired_lines,
    panel,
    tag,
)  # fmt: skip

MOST_ROWS = 10
"""Largest number of targets with a row of images; of more targets, only the first have one."""


# --- denoising trajectories ---


def draw_trajectories(saved: StudyTables) -> Figure:
    """From thermal noise to an image: six equally spaced times, a row for each target."""
    arrays, about = saved.arrays("pictures")
    targets, shape = about["targets"][:MOST_ROWS], about["shape"]
    if "snapshots" not in arrays:
        figure = Figure(figsize=(WIDTH, 1.2))
        empty(figure.add_subplot(), "no trajectory was replayed for this computer")
        return figure
    snapshots, steps = arrays["snapshots"], arrays["steps"]
    limits = grey_scale(snapshots) if snapshots.size else (0.0, 1.0)
    duration = saved.summary["settings"]["machine"]["duration"]
    columns = len(steps)
    height = 0.905 * len(targets) + 0.25
    figure = Figure(figsize=(WIDTH, height))
    # a narrow column sets the patterns apart
    grid = GridSpec(
        len(targets), columns + 2, figure=figure, width_ratios=[1] * columns + [0.08, 1],
        left=0.09, right=0.995, top=1 - 0.22 / height, bottom=0.005, wspace=0.05, hspace=0.04,
    )  # fmt: skip
    shown = iter(range(len(snapshots)))
    for row, target in enumerate(targets):
        sample = about["nearest"][target][:1]
        if not sample:
            empty(figure.add_subplot(grid[row, :columns]), _no_sample(about, target))
        else:
            states = snapshots[next(shown)]
            for column, state in enumerate(states):
                axes = figure.add_subplot(grid[row, column])
                draw_image(axes, state, shape, limits)
                if column == 0:
                    axes.set_ylabel(
                        f"{target}\n", rotation=0, fontsize=11, ha="right", va="center",
                        fontweight="bold", labelpad=4, parse_math=False,
                    )  # fmt: skip
                    axes.annotate(f"sample {sample[0]}", (0, 0.5), xycoords="axes fraction",
                                  xytext=(-6, -8), textcoords="offset points", ha="right",
                                  va="center", fontsize=6, color=FAINT)  # fmt: skip
        axes = figure.add_subplot(grid[row, -1])
        pattern = arrays["patterns"][about["labels"].index(target)]
        draw_image(axes, pattern, shape, limits)
    times = [f"$t = {duration * int(step) / int(steps[-1]):.3g}$" for step in steps]
    places = [*range(columns), columns + 1]
    for column, text in zip(places, [*times, "pattern"], strict=True):
        place = grid[0, column].get_position(figure)
        figure.text((place.x0 + place.x1) / 2, place.y1 + 0.06 / height, text, ha="center",
                    color=INK if column < columns else FAINT)  # fmt: skip
    return figure


def _no_sample(about: dict[str, Any], target: str) -> str:
    if about["classified"]:
        return f"{target}: the classifier assigns no sample to it"
    return f"{target}: not the nearest pattern of any sample"


# --- paired comparison ---


def draw_pairs(saved: StudyTables) -> Figure:
    """(a) validation loss, (b) heat of every pair, (c) heat distributions of one pair."""
    figure, (loss, heat, distribution) = in_a_row([1.15, 0.85, 1.15], 2.45)
    _loss_curves(loss, saved)
    _heat_pairs(heat, saved)
    _heat_distributions(distribution, saved)
    return figure


def _loss_curves(axes: Any, saved: StudyTables) -> None:
    curves = saved.table("curves")
    seeds = saved.summary["seeds"]
    cycle = only(curves, rule=RULES[0], seed=seeds[0])["cycle"]
    losses = {
        rule: np.array([only(curves, rule=rule, seed=seed)["loss"] for seed in seeds])
        for rule in RULES
    }
    _bands(axes, cycle, losses)
    axes.legend(loc="upper right")
    labels = {"xlabel": "training cycle", "ylabel": "validation loss per step"}
    finish(axes, "a", "loss on the fixed path", **labels)
    later = cycle >= cycle[-1] / 3
    if later.sum() >= 8:  # the initial fall hides everything else
        small = inset(axes, (0.42, 0.28, 0.55, 0.4), 0.15)
        _bands(small, cycle[later], {rule: loss[:, later] for rule, loss in losses.items()})


def _bands(axes: Any, cycle: Any, losses: dict[str, np.ndarray[Any, Any]]) -> None:
    """Mean over seeds, and one standard deviation around it where there are several."""
    for rule, loss in losses.items():
        mean = loss.mean(axis=0)
        axes.plot(cycle, mean, color=COLOURS[rule], label=rule, linestyle=LINES[rule])
        if len(loss) > 1:
            sd = loss.std(axis=0, ddof=1)
            axes.fill_between(
                cycle, mean - sd, mean + sd, color=COLOURS[rule], alpha=0.22, linewidth=0
            )


def _heat_pairs(axes: Any, saved: StudyTables) -> None:
    rows = saved.summary["heat_rows"]
    paired_lines(
        axes,
        {rule: [row[rule] for row in rows] for rule in RULES},
        COLOURS,
        MARKERS,
        [str(row["seed"]) for row in rows],
    )
    heat = saved.summary["heat"]
    percent = "" if heat["percent"] is None else f": −{heat['percent']:.1f} %"
    sign = percent.replace("−-", "+")
    title = f"{heat['pairs']} pair{'s' if heat['pairs'] > 1 else ''}{sign}"
    finish(axes, "b", title, ylabel="mean heat $\\langle Q\\rangle$ ($E_0$)")


def _heat_distributions(axes: Any, saved: StudyTables) -> None:
    seed = saved.summary["shown"]["seed"]
    samples = only(saved.table("samples"), seed=seed)
    heats = {rule: only(samples, rule=rule)["heat"] for rule in RULES}
    headroom = 0.18  # of the legend, which lines of the means must not cross
    together = np.concatenate(list(heats.values()))
    edges = np.linspace(together.min(), together.max(), 26 if len(together) > 100 else 12)
    for rule, heat in heats.items():
        axes.hist(heat, edges, color=COLOURS[rule], alpha=0.35, label=rule)
        axes.hist(heat, edges, color=COLOURS[rule], histtype="step", linewidth=0.9)
        top = 1 / (1 + headroom)
        axes.axvline(heat.mean(), ymax=top, color=COLOURS[rule], linestyle="--", linewidth=1.1)
    axes.yaxis.get_major_locator().set_params(integer=True)
    legend_above(axes, headroom, ncols=2)
    labels = {"xlabel": "heat $Q$ of a trajectory ($E_0$)", "ylabel": "samples"}
    finish(axes, "c", f"trajectories of pair {seed}", **labels)


# --- samples and quality ---


def draw_samples(saved: StudyTables) -> Figure:
    """(a) nearest samples of each target, (b) class counts, (c) softmax, (d) paired differences."""
    arrays, about = saved.arrays("pictures")
    targets = about["targets"]
    height = max(3.3, 0.98 * min(len(targets), MOST_ROWS) + 0.45)
    figure = Figure(figsize=(WIDTH, height))
    halves: Any = figure.subfigures(1, 2, width_ratios=[1.04, 1.0])
    left, right = halves
    _sheet(left, arrays, about, saved)
    grid = GridSpec(2, 2, figure=right, left=0.13, right=0.98, top=0.925, bottom=0.11,
                    hspace=0.62, wspace=0.42, height_ratios=[1, 1.12])  # fmt: skip
    samples = only(saved.table("samples"), seed=about["seed"], rule=about["rule"])
    counts, scores = right.add_subplot(grid[0, 0]), right.add_subplot(grid[0, 1])
    if about["classified"]:
        _class_counts(counts, samples["class"], [int(t) for t in targets])
        _softmax(scores, samples["max_softmax"])
    else:
        empty(counts, "no classifier for\nthis visible layer")
        empty(scores, "no classifier for\nthis visible layer")
    panel(counts, "b", "assigned class")
    panel(scores, "c", "maximum softmax")
    lower = GridSpec(1, 1, figure=right, left=0.36, right=0.98, top=0.42, bottom=0.11)
    _quality(right.add_subplot(lower[0, 0]), saved)
    return figure


def _sheet(figure: Any, arrays: Any, about: dict[str, Any], saved: StudyTables) -> None:
    targets, shape = about["targets"][:MOST_ROWS], about["shape"]
    limits = (float(arrays["limits"][0]), float(arrays["limits"][1]))
    samples = only(saved.table("samples"), seed=about["seed"], rule=about["rule"])
    columns = 4
    grid = GridSpec(len(targets), columns, figure=figure, left=0.09, right=0.97, top=0.885,
                    bottom=0.01, wspace=0.08, hspace=0.22)  # fmt: skip
    images = iter(arrays["nearest"])
    for row, target in enumerate(targets):
        nearest = about["nearest"][target]
        if not nearest:
            empty(figure.add_subplot(grid[row, :]), _no_sample(about, target))
        for column, sample in enumerate(nearest):
            axes = figure.add_subplot(grid[row, column])
            draw_image(axes, next(images), shape, limits)
            score = samples["max_softmax"][sample]
            title = f"#{sample}" + (f"  {score:.2f}" if about["classified"] else "")
            axes.set_title(title, fontsize=6.5, pad=2, color=INK)
            if column == 0:
                axes.set_ylabel(target, rotation=0, fontsize=10, fontweight="bold",
                                ha="right", va="center", labelpad=5,
                                parse_math=False)  # fmt: skip
    which = f"{about['rule']}, seed {about['seed']}"
    tag(figure, 0.01, 0.948, "a", f"   nearest to a pattern ({which})")


def _class_counts(axes: Any, classes: np.ndarray[Any, Any], targets: list[int]) -> None:
    """Draw targets in colour and all other classes as one grey bar, labelled with its classes."""
    counts = np.bincount(classes, minlength=10)
    axes.bar(range(len(targets)), counts[targets], color=ORANGE, width=0.72)
    for position, target in enumerate(targets):
        axes.annotate(f"{counts[target]}", (position, counts[target]), ha="center", fontsize=6.5,
                      xytext=(0, 2), textcoords="offset points")  # fmt: skip
    others = [digit for digit in range(10) if digit not in targets]
    bottom = 0
    for digit in sorted(others, key=lambda d: -counts[d]):
        if counts[digit]:
            axes.bar(len(targets), counts[digit], bottom=bottom, color=GREY, width=0.72,
                     edgecolor="white", linewidth=0.6)  # fmt: skip
            if counts[digit] >= 0.06 * max(counts.max(), counts[others].sum()):
                axes.text(len(targets), bottom + counts[digit] / 2, f"class {digit}", ha="center",
                          va="center", fontsize=6, color=INK)  # fmt: skip
            bottom += counts[digit]
    axes.annotate(f"{bottom}", (len(targets), bottom), ha="center", fontsize=6.5,
                  xytext=(0, 2), textcoords="offset points")  # fmt: skip
    axes.set_xticks(range(len(targets) + 1), [str(t) for t in targets] + ["other"])
    axes.set_ylim(0, 1.14 * max(counts[targets].max(), bottom, 1))
    axes.set_ylabel("samples")
    light_grid(axes)


def _softmax(axes: Any, scores: np.ndarray[Any, Any]) -> None:
    axes.hist(scores, np.linspace(0, 1, 21), color=ORANGE, alpha=0.8)
    axes.axvline(scores.mean(), color=INK, linestyle="--", linewidth=1)
    axes.annotate(f"mean {scores.mean():.2f}", (scores.mean(), 0.97), ha="right", fontsize=6.5,
                  xycoords=("data", "axes fraction"), xytext=(-3, 0),
                  textcoords="offset points", va="top")  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xlabel("maximum softmax")
    light_grid(axes)


def _quality(axes: Any, saved: StudyTables) -> None:
    # a percentage of a batch mean near zero says nothing; the table has the numbers themselves
    labels = {
        "max_softmax": "maximum softmax",
        "target_fraction": "target fraction",
        "class_entropy": "class entropy",
        "pattern_distance": "pattern distance",
        "pairwise_distance": "pairwise distance",
        "absolute_correlation": "strongest correlation",
    }
    rows = [row for row in saved.summary["quality"] if row["key"] in labels]
    intervals(
        axes,
        [labels[row["key"]] for row in rows],
        [row.get("percent") for row in rows],
        [row.get("percent_interval") for row in rows],
        colour=PURPLE,
    )
    pairs = saved.summary["pairs"]
    title = f"{pairs} pairs, 95 % intervals" if pairs > 1 else "one pair: no interval"
    finish(axes, "d", title, "x", xlabel="online − batch (% of the batch mean)")


# --- where the heat difference comes from ---


def draw_energies(saved: StudyTables) -> Figure:
    """(a) energy parts, (b) both potentials on both ensembles, (c) coupling norms."""
    figure, (parts, cross, norms) = in_a_row([1.3, 1.0, 0.9], 2.6)
    _energy_parts(parts, saved)
    _cross(cross, saved)
    _norms(norms, saved)
    return figure


def _energy_parts(axes: Any, saved: StudyTables) -> None:
    rows = saved.summary["energies"]
    labels = [row["label"] for row in rows if row["moment"] == "start"]
    for moment, colour, offset in (("start", GREY, 0.16), ("end", PURPLE, -0.16)):
        of_moment = [row for row in rows if row["moment"] == moment]
        intervals(
            axes,
            labels,
            [row["difference"] for row in of_moment],
            [row["interval"] for row in of_moment],
            colour,
            offset,
            moment,
        )
    legend_above(axes, 0.1, ncols=2)
    finish(axes, "a", "energy by part", "x", xlabel="mean energy, online − batch ($E_0$)")


def _cross(axes: Any, saved: StudyTables) -> None:
    panel(axes, "b", "energy drop in both potentials")
    drop = {(row["potential"], row["ensemble"]): row["drop"] for row in saved.summary["cross"]}
    if not drop:
        empty(axes, "not defined\nfor this machine")
        return
    for potential in RULES:
        drops = [drop[potential, ensemble] for ensemble in RULES]
        axes.plot(range(2), drops, color=COLOURS[potential], linewidth=1, zorder=1,
                  label=f"{potential} potential")  # fmt: skip
        for position, ensemble in enumerate(RULES):
            is_heat = ensemble == potential
            axes.plot(
                [position], [drops[position]], MARKERS[potential], color=COLOURS[potential],
                markerfacecolor=COLOURS[potential] if is_heat else "white", markersize=6,
            )  # fmt: skip
    axes.set_xticks(range(2), [f"states of\n{e}" for e in RULES])
    axes.set_xlim(-0.35, 1.35)
    axes.set_ylabel("mean energy drop ($E_0$)")
    legend_above(axes, 0.42, loc="upper center")
    light_grid(axes)


def _norms(axes: Any, saved: StudyTables) -> None:
    """Online against batch of the same pair, in per cent of batch, for each block."""
    table = saved.table("models")
    batch, online = (only(table, rule=rule) for rule in RULES)
    keys = [row["key"] for row in saved.summary["norms"] if "bias" not in row["key"]]
    for position, key in enumerate(keys):
        before, after = batch[f"norms.{key}"], online[f"norms.{key}"]
        percent = 100 * (after - before) / before
        shift = np.linspace(-0.12, 0.12, len(percent)) if len(percent) > 1 else [0.0]
        axes.plot(position + np.array(shift), percent, "o", color=PURPLE, markersize=5,
                  markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip
        axes.plot([position - 0.22, position + 0.22], [percent.mean()] * 2, color=INK)
    axes.axhline(0, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    names = ["$J_{" + "".join(group[0] for group in key.split("_")) + "}$" for key in keys]
    axes.set_xticks(range(len(keys)), names)
    axes.set_xlim(-0.6, len(keys) - 0.4)
    axes.margins(y=0.12)
    finish(axes, "c", "coupling norms", ylabel="norm, online − batch (%)")
