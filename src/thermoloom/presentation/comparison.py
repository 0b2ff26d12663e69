"""The main comparison in the report: figures 1–3 of the paper, one of ours, and its tables."""

from __future__ import annotations

from html import escape
from typing import Any

from thermoloom.presentation import page
from thermoloom.presentation.figures import FigureSpec
from thermoloom.presentation.pairs import (
    draw_comparison,
    draw_energies,
    draw_samples,
    draw_trajectories,
)


def _counted(noun: str, pairs: int) -> str:
    """``{pairs} pairs`` in a template, in the right number."""
    return f"{{pairs}} {noun}" + ("" if pairs == 1 else "s")


def trajectories_caption(summary: dict[str, Any]) -> str:
    how = (
        "assigned to it by the frozen classifier"
        if summary["classifier"]
        else "whose nearest prototype it is (this visible layer has no classifier)"
    )
    replayed = (
        "The archive was generated a second time: {differing} of its samples differ in any bit of "
        "start, end or heat. "
        if summary["replay"]
        else ""
    )
    return page.fill(
        f"For each target, the trajectory with the smallest nearest-prototype distance among the "
        f"{{samples}} archived samples {how}; online training, seed {{seed}}, generation seed "
        "{generation_seed}. Six equally spaced times; at the right, for comparison, the prototype. "
        f"{replayed}All states share one grey scale, set by their 1st and 99th percentiles.",
        summary["shown"] | {"samples": summary["samples"]} | (summary["replay"] or {}),
    )


def comparison_caption(summary: dict[str, Any]) -> str:
    heat = summary["heat"]
    test = (
        "With one pair there is no interval and no test."
        if heat["t_test_p"] is None
        else "Paired t-test p = {t:.2g}; exact two-sided sign test p = {sign:.4g}."
    )
    known = heat["percent"] is not None
    shading = "; shading: one standard deviation across seeds" if heat["pairs"] > 1 else ""
    percent = ", with a mean relative reduction of {percent:.1f} %" if known else ""
    return page.fill(
        "(a) Validation loss on the fixed path, mean of "
        f"{_counted('training seed', heat['pairs'])}{shading}. (b) Seed-level mean "
        "heat; each line joins the batch and the online run of one pair. Online is lower in "
        f"{{lower}} of {{pairs}}{percent}. {test} "
        "(c) Heat of the single trajectories of pair {seed} ({samples} for each model); dashed: "
        "means. Panel (c) describes sampling within one pair, panel (b) compares independently "
        "trained pairs.",
        {
            "pairs": summary["pairs"],
            "lower": heat["lower"],
            "percent": heat["percent"],
            "t": heat["t_test_p"],
            "sign": heat["sign_test_p"],
            "seed": summary["shown"]["seed"],
            "samples": summary["samples"],
        },
    )


def samples_caption(summary: dict[str, Any]) -> str:
    classes = (
        "(b, c) Classes and maximum softmax that the classifier gives to all {samples} samples of "
        "this model; orange: learned classes, grey: all other classes, each with its digit. The "
        "score is not a calibrated probability. "
        if summary["classifier"]
        else "(b, c) There is no classifier for this visible layer. "
    )
    across = (
        "(d) Paired differences online − batch across {pairs} pairs with 95 % Student-t intervals, "
        "as a percentage of the batch seed-level mean."
        if summary["pairs"] > 1
        else "(d) Difference online − batch of the one pair, as a percentage of the batch value; "
        "one pair has no interval (hollow)."
    )
    return page.fill(
        "(a) For each target, the four archived samples nearest to a prototype ({rule}, seed "
        "{seed}), with archive index and maximum softmax; one grey scale, set by the 1st and 99th "
        "percentiles of all {samples} samples. This shows low-distance examples, not typical ones. "
        f"{classes}{across}",
        summary["shown"] | {"samples": summary["samples"], "pairs": summary["pairs"]},
    )


def energies_caption(summary: dict[str, Any]) -> str:
    many = summary["pairs"] > 1
    across = "95 % intervals across {pairs} pairs" if many else "one pair, without interval"
    return page.fill(
        "Ours, beside the paper's text. (a) Parts of the mean energy at the start and at the end "
        "of generation, each model in its own potential, online − batch, "
        f"{across}. (b) Mean energy drop of both ensembles in both potentials: filled, a "
        "model's own states, which is the heat; hollow, the other's, a diagnosis and no heat. "
        "(c) Change of the Frobenius norms of both coupling blocks, a point for each pair, a bar "
        "for the mean.",
        {"pairs": summary["pairs"]},
    )


FIGURES = (
    FigureSpec("figure-1", "Denoising trajectories", draw_trajectories, trajectories_caption),
    FigureSpec("figure-2", "Online and batch in pairs", draw_comparison, comparison_caption),
    FigureSpec("figure-3", "Samples and their quality", draw_samples, samples_caption),
    FigureSpec(
        "figure-energies", "Where the heat difference sits", draw_energies, energies_caption
    ),
)


def section(summary: dict[str, Any], figures: dict[str, str]) -> str:
    """The comparison in the order a reader asks: what came out, does it agree, why."""
    name = summary["experiment"]
    return "".join(
        [
            page.heading(3, "Result", f"{name}-result"),
            page.paragraph(headline(summary)),
            figures["figure-1"],
            page.quantity_table(summary["quantities"]),
            figures["figure-2"],
            heat_table(summary),
            page.heading(3, "The paper's statements", f"{name}-statements"),
            page.statement_table(summary["statements"]),
            page.heading(3, "Samples and their quality", f"{name}-quality"),
            figures["figure-3"],
            quality_tables(summary),
            page.heading(3, "Why the heat differs", f"{name}-energies"),
            figures["figure-energies"],
            diagnostic_tables(summary),
        ]
    )


def headline(summary: dict[str, Any]) -> str:
    """The result in two sentences, whatever it is."""
    heat = summary["heat"]
    lower = heat["reduction"] > 0
    change = "less" if lower else "more"
    first = (
        f"Computers trained online released {change} heat on average than those trained in "
        "batches on the same paths: {online:.1f} against {batch:.1f} E₀ per sample, lower in "
        f"{{lower}} of {_counted('pair', heat['pairs'])}."
    )
    second = (
        " The mean reduction is {reduction:.2f} E₀, 95 % interval [{low:.2f}, {high:.2f}] E₀."
        if heat["interval"]
        else " One pair is one observation: it has no interval, and nothing follows from it about "
        "training in general."
    )
    low, high = heat["interval"] or (None, None)
    return page.fill(first + second, heat | {"low": low, "high": high})


def heat_table(summary: dict[str, Any]) -> str:
    columns = [
        page.value_column("training seed", "seed", "d"),
        page.value_column("batch (E₀)", "batch"),
        page.value_column("s.d. over trajectories", "batch_sd"),
        page.value_column("online (E₀)", "online"),
        page.value_column("s.d. over trajectories", "online_sd"),
        page.value_column("reduction (E₀)", "reduction", "+.2f"),
        page.value_column("%", "percent", "+.2f"),
    ]
    if summary.get("optimum"):
        columns += [
            page.value_column(f"{page.OURS} (E₀)", "optimum"),
            page.value_column("s.d. over trajectories", "optimum_sd"),
        ]
    table = page.table("Mean heat of every pair.", columns, summary["heat_rows"])
    return table + (optimum_note(summary["optimum"]) if summary.get("optimum") else "")


def optimum_note(optimum: dict[str, Any]) -> str:
    """What the third column is; the paper has none."""
    return page.note(
        page.fill(
            "Optimum (ours): the computer of least expected loss over all noising paths, solved "
            "without a trajectory in {seconds:.1f} s and sampled with the random numbers of every "
            "pair. It is no result of the paper's and has no part in its statements.",
            optimum,
        )
    )


def quality_tables(summary: dict[str, Any]) -> str:
    measured = [row for row in summary["quality"] if row["measured"]]
    left_out = [row["label"] for row in summary["quality"] if not row["measured"]]
    text = page.difference_table(
        "Quality of the samples: seed-level means and paired differences.", measured, ".3f"
    )
    if left_out:
        text += page.note(
            "Not measured, for want of a classifier (it judges 28 × 28 MNIST digits alone): "
            f"{escape(', '.join(left_out))}."
        )
    return text + class_table(summary)


def class_table(summary: dict[str, Any]) -> str:
    if not summary["classes"]:
        return ""

    def count(digit: int) -> page.Column:
        return page.Column(str(digit), lambda row: page.number(row["counts"][digit], "d"))

    columns = [
        page.value_column("seed", "seed", "d"),
        page.text_column("rule", "rule"),
        *(count(digit) for digit in range(10)),
    ]
    return page.table(
        "Samples that the classifier assigns to each of the ten classes",
        columns,
        summary["classes"],
        folded=True,
    )


def diagnostic_tables(summary: dict[str, Any]) -> str:
    cross = page.table(
        "Mean energy drop ⟨V(start) − V(end)⟩ of the states of one model in the potential of one "
        "model. Only in the potential that generated the states is it heat.",
        [
            page.text_column("potential", "potential"),
            page.text_column("states", "ensemble"),
            page.value_column("drop (E₀)", "drop"),
            page.value_column("s.d. across pairs", "sd"),
            page.text_column("", "kind"),
        ],
        summary["cross"],
    )
    parts = [
        page.difference_table(
            "Mean energy by part (E₀), each model in its own potential.",
            summary["energies"],
            leading=[page.text_column("", "moment")],
            percent=False,
        ),
        cross,
        page.difference_table(
            "Norms of the trained parameters (E₀); a hidden–hidden edge counts once, so the norm "
            "of the whole symmetric matrix is √2 times larger.",
            summary["norms"],
            ".3f",
        ),
    ]
    if summary["paths"]:
        parts.append(
            page.difference_table(
                page.fill(
                    "Loss and path-action identity on {paths} additional noising paths that all "
                    "models share, mean over paths. R is the sum of its heat-like and its "
                    "force-squared term; both sides agree to a relative {error:.0e}.",
                    {"paths": summary["additional_paths"], "error": summary["identity_error"]},
                ),
                summary["paths"],
                ".3f",
                percent=False,
            )
        )
    return "".join(parts)
