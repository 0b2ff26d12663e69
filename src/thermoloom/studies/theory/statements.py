"""Prediction, measurement, verdict: a row for everything that the theory says of training.

A row that could not be measured says so; nothing is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.measures.paired import RULES
from thermoloom.runs.formats import only
from thermoloom.studies import verdicts
from thermoloom.studies.theory.training_predictions import COUPLINGS, SHIFTED
from thermoloom.studies.verdicts import Evidence, Statements, own_quantity

said = Statements.beside(__file__)
LABELS = {name: f"{name.replace('_', '–')} couplings" for name in COUPLINGS}
Row = dict[str, Any]


def judge(evidence: Evidence) -> dict[str, Any]:
    """Rows by topic, the verdict of the heat on the hypothesis, and the headline numbers."""
    summary = evidence.summary
    scan = [row | {"unstable": is_unstable(row)} for row in summary["scan"]]
    evidence = Evidence(evidence.run, summary | {"scan": scan})
    topics = [{"topic": topic, "rows": rows(evidence)} for topic, rows in TOPICS.items()]
    origin = summary["origin"]
    return {
        "topics": topics,
        "scan": scan,
        "origin": origin and origin | {"conclusion": conclusion(origin["accounts"])},
        "quantities": quantities(topics, origin),
        "statements": [],  # the paper makes none about the optimum
    }


def quantities(topics: Sequence[Row], origin: Row | None) -> list[Row]:
    """The headline numbers."""
    judged = [row["verdict"] for topic in topics for row in topic["rows"]]
    judged = [verdict for verdict in judged if verdict != verdicts.NOT_MEASURED]
    label = f"predictions that hold, of {len(judged)} compared with measurements"
    count = own_quantity("predictions", label, judged.count(verdicts.HOLDS), digits="d")
    accounts = {} if origin is None else origin["accounts"]
    labels = {
        "optimum": "mean heat of the optimum",
        "difference": "heat difference, batch − online",
        "around_optimum": "… that noise around the optimum explains",
        "from_noise": "… from the noise of the computers around their means",
        "from_mean": "… from where their means lie",
        "predicted_mean": "… of the means that theory predicts",
    }
    return [count] + [
        own_quantity(
            key, label, accounts[key]["mean"], interval=accounts[key]["interval"], unit="E₀"
        )
        for key, label in labels.items()
        if key in accounts
    ]


# --- rows: prediction, measurement, verdict ---


def row(
    quantity: str, predicted: str, measured: str, verdict: str, by: str = "", /, **values: Any
) -> Row:
    """A line of the table; {name:format} in the texts stands for one of ``values``.

    ``by``: the entry of statements.toml whose thresholds decide the verdict, if any do.
    """
    return {
        "quantity": quantity,
        "predicted": predicted,
        "measured": measured,
        "verdict": verdict,
        "thresholds": said.thresholds(by) if by else [],
        "values": verdicts.named(values, quantity, predicted, measured),
    }


def unmeasured(quantity: str, reason: str) -> Row:
    return row(quantity, "–", reason, verdicts.NOT_MEASURED)


def near(predicted: float, measured: float) -> bool:
    return abs(measured - predicted) <= said.limit("sizes", "near") * abs(predicted)


def sized(
    quantity: str, texts: tuple[str, str], predicted: float, measured: float, **values: Any
) -> Row:
    """A row that holds where the measurement is near the prediction; ``texts`` of both."""
    verdict = verdicts.holds_if(near(predicted, measured))
    numbers = {"predicted": predicted, "measured": measured} | values
    return row(quantity, *texts, verdict, "sizes", **numbers)


def solve_rows(evidence: Evidence) -> list[Row]:
    """θ* on the additional paths beside every trained computer, paired by path."""
    solved = evidence.summary["solved"]
    if solved is None:
        return [unmeasured("loss of the optimum on additional paths", "there are none")]
    table = evidence.table("paths")
    best = only(table, rule="optimum")["loss"]
    above = table["loss"][table["rule"] != "optimum"].reshape(-1, len(best)) - best
    means = above.mean(axis=1)
    mean, error = float(best.mean()), float(best.std(ddof=1) / math.sqrt(len(best)))
    off = abs(mean - solved["expected_loss"])
    return [
        row(
            "loss of the optimum on additional paths, against trained computers",
            "below all {models}",
            "below {below} of {models} in the mean over {paths} paths, on {single} of {all} single "
            "paths; smallest mean distance {worst:.4f} per step",
            verdicts.holds_if(bool((means > 0).all())),
            models=len(means),
            below=int((means > 0).sum()),
            paths=len(best),
            single=int((above > 0).sum()),
            all=int(above.size),
            worst=float(means.min()),
        ),
        row(
            "expected loss per step at the optimum",
            "{expected_loss:.3f}, after {iterations} conjugate-gradient steps and {seconds:.1f} s",
            "{mean:.3f} ± {error:.3f} (mean over {paths} paths and its standard error)",
            verdicts.holds_if(off <= said.limit("optimum", "error") * error),
            "optimum",
            **solved | {"mean": mean, "error": error, "paths": len(best)},
        ),
    ]


def is_unstable(entry: Row) -> bool:
    """Whether the excess loss of a short training grows in the end, or ceases to be finite."""
    return entry["ratio"] is None or bool(entry["ratio"] > said.limit("stability", "growth"))


def stability_rows(evidence: Evidence) -> list[Row]:
    """Critical learning rates against scans around them."""
    titles = {rule: f"learning-rate scale at which {rule} training is unstable" for rule in RULES}
    limits, scan = evidence.summary["limits"], evidence.summary["scan"]
    if limits is None:
        return [unmeasured(title, "no prediction") for title in titles.values()]
    texts = {
        "batch": ("{critical:.2f}, λ_max = {curvature:.0f}", ".2f"),
        "online": ("{critical:.0f}; no step overshoots below {safe:.0f}", ".0f"),
    }
    rows = []
    for rule, title in titles.items():
        trainings = [entry for entry in scan if entry["rule"] == rule]
        if not trainings:
            rows.append(unmeasured(title, "no training of the scan is done"))
            continue
        predicted, spec = texts[rule]
        stable = [entry["scale"] for entry in trainings if not entry["unstable"]]
        unstable = [entry["scale"] for entry in trainings if entry["unstable"]]
        measured = [f"stable up to {{stable:{spec}}}"] if stable else []
        measured += [f"unstable from {{unstable:{spec}}} on"] if unstable else []
        rows.append(
            row(
                title,
                predicted,
                f"{', '.join(measured)}, in {{cycles}} cycles",
                verdicts.holds_if(all(e["unstable"] == (e["factor"] > 1) for e in trainings)),
                "stability",
                critical=limits[rule]["critical_rate"] / limits["learning_rate"],
                curvature=limits[rule]["curvature"],
                safe=limits["online"]["safe_rate"] / limits["learning_rate"],
                stable=max(stable, default=None),
                unstable=min(unstable, default=None),
                cycles=trainings[0]["cycles"],
            )
        )
    return [*rows, *growth_rows(scan)]


def growth_rows(scan: Sequence[Row]) -> list[Row]:
    """Growth of the deviation in one round of patterns, where batch training is unstable."""
    growing = [e for e in scan if e["rule"] == "batch" and e["unstable"] and e["growth"]]
    if not growing:
        return []
    steepest = growing[-1]
    return [
        sized(
            "growth of the deviation in one round of prototypes, batch at {factor:g} × critical",
            (
                "× {predicted:.2f} (of the mean)",
                "× {measured:.2f} (root of the growth of the excess loss)",
            ),
            steepest["predicted_growth"],
            steepest["growth"],
            **steepest,
        )
    ]


def curve_rows(evidence: Evidence) -> list[Row]:
    """Validation loss along training: predicted in the mean, with noise, and measured."""
    table = evidence.table("curves") if evidence.has("curves") else {"rule": np.array([])}
    rows = []
    for rule in RULES:
        title = f"validation loss of {rule} training"
        curve = only(table, rule=rule)
        if not len(curve["rule"]):
            rows.append(unmeasured(title, "no prediction"))
            continue
        predicted, measured = curve["predicted"], curve["measured"]
        distance = float(np.abs(predicted - measured).max())
        fall = float(measured[0] - measured[-1])
        rows.append(
            row(
                title,
                "{half:.3f} at cycle {half_cycle}, {end:.3f} at cycle {cycles}",
                "{half_measured:.3f} and {end_measured:.3f}; never more than {distance:.1f} % of "
                "the fall apart (s.d. across seeds at the end {sd:.3f})",
                verdicts.holds_if(distance <= said.limit("curves", "distance") * fall),
                "curves",
                half=float(predicted[1]),
                half_cycle=int(curve["cycle"][1]),
                end=float(predicted[-1]),
                cycles=int(curve["cycle"][-1]),
                half_measured=float(measured[1]),
                end_measured=float(measured[-1]),
                distance=100 * distance / fall,
                sd=float(curve["sd"][-1]),
            )
        )
    return rows


def noise_rows(evidence: Evidence) -> list[Row]:
    """Spread of trained computers across seeds: by block, as excess loss, and of their mean."""
    noise = evidence.summary["noise"]
    if noise is None:
        return [unmeasured("noise of trained computers around their mean", "not all were trained")]
    table, seeds = evidence.table("noise"), noise["seeds"]
    rows = []
    for rule, numbers in noise["rules"].items():
        for block, label in LABELS.items():
            sizes = only(table, rule=rule, block=block)
            rows.append(
                sized(
                    f"noise of {label}, {rule}",
                    (
                        "{predicted:.5f} ({stationary:.5f} once stationary)",
                        "{measured:.5f} (standard deviation across {seeds} seeds)",
                    ),
                    float(sizes["predicted"][0]),
                    float(sizes["measured"][0]),
                    **numbers | {"seeds": seeds},
                )
            )
        rows.append(
            sized(
                f"loss per step that the noise adds, {rule}",
                ("{predicted:.4f}", "{measured:.4f}"),
                numbers["predicted_excess"],
                numbers["measured_excess"],
            )
        )
        rows.append(
            sized(
                f"mean of {rule} computers over seeds: distance from E[θ], visible–hidden",
                (
                    "{predicted:.5f} (noise/√{seeds} alone)",
                    "{measured:.5f}; θ̄ − θ* itself is {from_optimum:.5f}",
                ),
                numbers["noise_of_mean"],
                numbers["from_prediction"],
                **numbers | {"seeds": seeds},
            )
        )
    return rows


def offset_rows(evidence: Evidence) -> list[Row]:
    """The shift that a residual offset makes, against trainings with and without it."""
    offset = evidence.summary["offset"]
    by_rule = {} if offset is None else offset["rules"]
    rows = [law_row(offset)] if offset is not None else []
    for rule in RULES:
        title = f"mean shift of hidden biases by an offset, {rule}"
        if rule not in by_rule:
            rows.append(unmeasured(title, "no training with an offset"))
            continue
        values = by_rule[rule]
        same = all(near(values[f"predicted_{key}"], values[f"measured_{key}"]) for key in SHIFTED)
        predicted, measured = (
            f"{{{kind}_bias:.4f}}; couplings {{{kind}_visible_hidden:.5f}} (vh), "
            f"{{{kind}_hidden_hidden:.5f}} (hh)"
            for kind in ("predicted", "measured")
        )
        rows.append(
            row(
                f"{title} of {{offset:g}} after {{cycles}} cycles",
                predicted,
                measured,
                verdicts.holds_if(same),
                "sizes",
                **offset | values,
            )
        )
    return rows


def law_row(offset: Row) -> Row:
    """The law for biases that an offset moves alone."""
    ends = {rule: values["measured_bias"] for rule, values in offset["rules"].items()}
    response = "; {response:.3f} in the end where couplings move too"
    return row(
        "hidden biases under an offset of {offset:g} after {cycles} cycles, if biases alone move",
        "{alone:.3f}, on the way to {final:.2f} by {rate_percent:.2f} % per cycle"
        + (response if offset["response"] is not None else ""),
        ", ".join(f"{{{rule}:.3f}} ({rule})" for rule in ends),
        verdicts.holds_if(all(near(offset["alone"], end) for end in ends.values())),
        "sizes",
        **offset | ends,
    )


def bits_rows(evidence: Evidence) -> list[Row]:
    """Updates that survive rounding on a grid, and couplings that move in a short training."""
    title = "updates that move a coupling on a grid, nearest rounding"
    if not evidence.has("bits"):
        return [unmeasured(title, "no training on a grid")]
    table, limits = evidence.table("bits"), evidence.summary["limits"]
    bits = table["bits"].tolist()
    distance = float(np.abs(table["predicted"] - table["measured"]).max())
    least = said.limit("bits", "idle")
    idle = [last_below(table["bits"], table[key], least) for key in ("expected_moves", "nonzero")]
    kinds = ("predicted", "measured")
    texts = [", ".join(f"{{{kind}_{b}:.3f}}" for b in bits) for kind in kinds]
    shares = {f"{k}_{b}": v for k in kinds for b, v in zip(bits, table[k].tolist(), strict=True)}
    return [
        row(
            f"{title}: fraction at {', '.join(str(b) for b in bits)} bits",
            f"{texts[0]}; half a level is the typical update at {{vanishing:.1f}} bits",
            f"{texts[1]}; at most {{distance:.3f}} apart",
            verdicts.holds_if(distance <= said.limit("bits", "distance")),
            "bits",
            vanishing=limits["vanishing_bits"]["visible_hidden"],
            distance=distance,
            **shares,
        ),
        row(
            "bits with which less than {idle:.0f} % of the couplings have moved after {cycles} "
            "cycles",
            "up to {predicted}" if idle[0] else "none of those tried",
            "up to {measured}" if idle[1] else "none of those tried",
            verdicts.holds_if(idle[0] == idle[1]),
            "bits",
            idle=100 * least,
            cycles=evidence.summary["grid_cycles"],
            predicted=idle[0],
            measured=idle[1],
        ),
    ]


def last_below(bits: NDArray[Any], fraction: NDArray[Any], most: float) -> int | None:
    """The most bits at which a fraction is still less than ``most``."""
    few = [int(b) for b, value in zip(bits, fraction, strict=True) if value < most]
    return max(few, default=None)


def heat_rows(evidence: Evidence) -> list[Row]:
    """Heat difference between the rules' means: those predicted, those of the trained computers."""
    title = "heat difference batch − online of the rules' means, without noise"
    accounts = (evidence.summary["origin"] or {}).get("accounts", {})
    if "predicted_mean" not in accounts:
        return [unmeasured(title, "heats are missing")]
    predicted, measured = accounts["predicted_mean"]["mean"], accounts["from_mean"]
    low, high = measured["interval"]
    return [
        row(
            title,
            "{predicted:+.2f} E₀ (from E[θ], before any training)",
            "{measured:+.2f} E₀, 95 % interval [{low:+.2f}, {high:+.2f}] E₀ across {seeds} pairs",
            verdicts.holds_if(low <= predicted <= high),
            predicted=predicted,
            measured=measured["mean"],
            low=low,
            high=high,
            seeds=accounts["seeds"],
        )
    ]


TOPICS: dict[str, Callable[[Evidence], list[Row]]] = {
    "The optimum": solve_rows,
    "Stability": stability_rows,
    "Learning curves": curve_rows,
    "Noise around the mean": noise_rows,
    "Offset": offset_rows,
    "Bits": bits_rows,
    "Heat": heat_rows,
}


# --- where the heat comes from ---


def conclusion(account: dict[str, Any]) -> dict[str, Any]:
    """Whether noise around the optimum makes the difference, according to the account of the heat.

    A text with {name[key]:format} for the numbers of ``values``.
    """
    difference, around = account["difference"]["mean"], account["around_optimum"]["mean"]
    low, high = account["difference"]["interval"]
    share = around / difference
    most, some = (said.limit("origin", name) for name in ("most", "some"))
    fails = "So the hypothesis fails: noise around the optimum does not make the difference"
    if low * high <= 0:
        last = (
            "The difference itself is not resolved by {seeds} pairs, so nothing follows about its "
            "origin."
        )
    elif share >= most:
        last = "So the hypothesis holds: noise around the optimum makes most of the difference."
    elif share >= some:
        last = (
            "So the hypothesis holds in part: noise around the optimum makes some of the "
            "difference, and where the rules' means lie the rest."
        )
    elif account["from_mean"]["mean"] / difference >= most:
        last = f"{fails}; it is where the rules' means lie that counts."
    else:
        last = f"{fails}."
    predicted = ", and the means that theory predicts before any training by "
    predicted += "{predicted_mean[mean]:+.2f} E₀"
    text = (
        "Batch computers release {difference[mean]:.2f} E₀ more heat than online computers (95 % "
        "interval [{low:.2f}, {high:.2f}] E₀); the optimum itself releases {optimum[mean]:.1f} E₀. "
        "Put around the optimum, the noise of batch computers adds "
        "{noise_around_optimum[batch][mean]:.2f} E₀ and that of online computers "
        "{noise_around_optimum[online][mean]:.2f} E₀, isotropic noise of the same size "
        "{isotropic[mean]:.2f} E₀. Noise around the optimum thus explains "
        "{around_optimum[mean]:+.2f} E₀ of the difference, {share:.0f} %; {rest:+.2f} E₀ remain. "
        "Around their means the noise of the two rules differs by {from_noise[mean]:+.2f} E₀; "
        "freed of noise, the means themselves differ by {from_mean[mean]:+.2f} E₀ (batch "
        "{mean_shift[batch][mean]:+.2f}, online {mean_shift[online][mean]:+.2f} E₀ against the "
        f"optimum){predicted if 'predicted_mean' in account else ''}. {last}"
    )
    values = account | {"low": low, "high": high, "share": 100 * share, "rest": difference - around}
    return {"text": text, "values": verdicts.named(values, text)}
