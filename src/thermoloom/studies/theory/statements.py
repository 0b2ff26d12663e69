"""Prediction, measurement and verdict: a row for each prediction of the theory about training.

A quantity that was not measured keeps its row, with the reason.
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
    """Rows by topic, the verdict on the hypothesis about the heat, and the headline numbers."""
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
        "statements": [],  # the paper makes no statement about the optimum
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
        "from_mean": "… from the positions of their means",
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


def row(key: str, holds: bool, /, **values: Any) -> Row:
    """A line of the table, in the words of ``rows.KEY`` in statements.toml.

    Texts among the values are filled in; {name:format} stands for a number on the page.
    """
    entry = said.entries["rows"][key]
    texts = {part: _filled(entry[part], values) for part in ("quantity", "predicted", "measured")}
    return {
        **texts,
        "verdict": verdicts.holds_if(holds),
        "thresholds": said.thresholds(entry["judged_by"]) if "judged_by" in entry else [],
        "values": verdicts.named(values, *texts.values()),
    }


def _filled(text: str, values: Row) -> str:
    for name, words in values.items():
        if isinstance(words, str):
            text = text.replace(f"{{{name}}}", words)
    return text


def unmeasured(key: str, reason: str, **names: str) -> Row:
    entry = said.entries["rows"][key]
    quantity = _filled(entry.get("title", entry["quantity"]), names)
    verdict = {"verdict": verdicts.NOT_MEASURED, "thresholds": [], "values": {}}
    return {"quantity": quantity, "predicted": "–", "measured": reason, **verdict}


def near(predicted: float, measured: float) -> bool:
    return abs(measured - predicted) <= said.limit("sizes", "near") * abs(predicted)


def sized(key: str, predicted: float, measured: float, **values: Any) -> Row:
    """A row that holds where the measurement is near the prediction."""
    numbers = {"predicted": predicted, "measured": measured} | values
    return row(key, near(predicted, measured), **numbers)


def solve_rows(evidence: Evidence) -> list[Row]:
    """θ* on the additional paths beside every trained computer, paired by path."""
    solved = evidence.summary["solved"]
    if solved is None:
        return [unmeasured("optimum_beside_trained", "no additional paths")]
    table = evidence.table("paths")
    best = only(table, rule="optimum")["loss"]
    above = table["loss"][table["rule"] != "optimum"].reshape(-1, len(best)) - best
    means = above.mean(axis=1)
    mean, error = float(best.mean()), float(best.std(ddof=1) / math.sqrt(len(best)))
    expected = abs(mean - solved["expected_loss"]) <= said.limit("optimum", "error") * error
    counts = {"models": len(means), "below": int((means > 0).sum()), "paths": len(best)}
    single = {"single": int((above > 0).sum()), "all": int(above.size), "worst": float(means.min())}
    numbers = solved | {"mean": mean, "error": error, "paths": len(best)}
    return [
        row("optimum_beside_trained", bool((means > 0).all()), **counts, **single),
        row("expected_loss", expected, **numbers),
    ]


def is_unstable(entry: Row) -> bool:
    """Whether the excess loss of a short training grows in the end, or ceases to be finite."""
    return entry["ratio"] is None or bool(entry["ratio"] > said.limit("stability", "growth"))


def stability_rows(evidence: Evidence) -> list[Row]:
    """Critical learning rates, compared with scans around them."""
    limits, scan = evidence.summary["limits"], evidence.summary["scan"]
    rows = []
    for rule in RULES:
        key, trainings = f"stability_{rule}", [entry for entry in scan if entry["rule"] == rule]
        if limits is None or not trainings:
            reason = "no training of the scan is done" if limits else "no prediction"
            rows.append(unmeasured(key, reason))
            continue
        stable = [entry["scale"] for entry in trainings if not entry["unstable"]]
        unstable = [entry["scale"] for entry in trainings if entry["unstable"]]
        spec = said.entries["rows"][key]["digits"]
        measured = [f"stable up to {{stable:{spec}}}"] if stable else []
        measured += [f"unstable at {{unstable:{spec}}} and above"] if unstable else []
        rows.append(
            row(
                key,
                all(e["unstable"] == (e["factor"] > 1) for e in trainings),
                course=", ".join(measured),
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
    return [
        sized("growth", steepest["predicted_growth"], steepest["growth"], **steepest)
        for steepest in growing[-1:]
    ]


def curve_rows(evidence: Evidence) -> list[Row]:
    """Validation loss along training: predicted in the mean, with noise, and measured."""
    table = evidence.table("curves") if evidence.has("curves") else {"rule": np.array([])}
    rows = []
    for rule in RULES:
        curve = only(table, rule=rule)
        if not len(curve["rule"]):
            rows.append(unmeasured("validation_loss", "no prediction", rule=rule))
            continue
        predicted, measured = curve["predicted"], curve["measured"]
        distance = float(np.abs(predicted - measured).max())
        fall = float(measured[0] - measured[-1])
        rows.append(
            row(
                "validation_loss",
                distance <= said.limit("curves", "distance") * fall,
                rule=rule,
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
        return [unmeasured("noise_of_block", "some computers are not trained")]
    table, rows = evidence.table("noise"), []
    for rule, numbers in noise["rules"].items():
        of_rule = numbers | {"rule": rule, "seeds": noise["seeds"]}
        for block, label in LABELS.items():
            size = only(table, rule=rule, block=block)
            sizes = (float(size[kind][0]) for kind in ("predicted", "measured"))
            rows.append(sized("noise_of_block", *sizes, label=label, **of_rule))
        for key, predicted, measured in (
            ("excess_loss", "predicted_excess", "measured_excess"),
            ("noise_of_mean", "noise_of_mean", "from_prediction"),
        ):
            rows.append(sized(key, numbers[predicted], numbers[measured], **of_rule))
    return rows


def offset_rows(evidence: Evidence) -> list[Row]:
    """The shift that a residual offset causes, compared with trainings with and without it."""
    offset = evidence.summary["offset"]
    by_rule = {} if offset is None else offset["rules"]
    rows = [law_row(offset)] if offset is not None else []
    for rule in RULES:
        if rule not in by_rule:
            rows.append(unmeasured("shift", "no training with an offset", rule=rule))
            continue
        shift = by_rule[rule]
        same = all(near(shift[f"predicted_{key}"], shift[f"measured_{key}"]) for key in SHIFTED)
        rows.append(row("shift", same, **offset | shift | {"rule": rule}))
    return rows


def law_row(offset: Row) -> Row:
    """The law for an offset that moves only the biases."""
    ends = {rule: values["measured_bias"] for rule, values in offset["rules"].items()}
    response = "; {response:.3f} in the end where couplings move too"
    texts = {
        "in_the_end": response if offset["response"] is not None else "",
        "ends": ", ".join(f"{{{rule}:.3f}} ({rule})" for rule in ends),
    }
    same = all(near(offset["alone"], end) for end in ends.values())
    return row("offset_law", same, **texts, **offset, **ends)


def bits_rows(evidence: Evidence) -> list[Row]:
    """Updates that survive rounding on a grid, and couplings that move in a short training."""
    if not evidence.has("bits"):
        return [unmeasured("surviving_updates", "no training on a grid")]
    table, limits = evidence.table("bits"), evidence.summary["limits"]
    bits = table["bits"].tolist()
    distance = float(np.abs(table["predicted"] - table["measured"]).max())
    least = said.limit("bits", "idle")
    idle = [last_below(table["bits"], table[key], least) for key in ("expected_moves", "nonzero")]
    kinds = ("predicted", "measured")
    shares = {f"{k}_{b}": v for k in kinds for b, v in zip(bits, table[k].tolist(), strict=True)}
    lists = {f"{k}_shares": ", ".join(f"{{{k}_{b}:.3f}}" for b in bits) for k in kinds}
    return [
        row(
            "surviving_updates",
            distance <= said.limit("bits", "distance"),
            depths=", ".join(str(b) for b in bits),
            vanishing=limits["vanishing_bits"]["visible_hidden"],
            distance=distance,
            **lists,
            **shares,
        ),
        row(
            "idle_bits",
            idle[0] == idle[1],
            most_predicted="up to {predicted}" if idle[0] else "none of those tried",
            most_measured="up to {measured}" if idle[1] else "none of those tried",
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
    accounts = (evidence.summary["origin"] or {}).get("accounts", {})
    if "predicted_mean" not in accounts:
        return [unmeasured("heat_of_means", "heats are missing")]
    predicted, measured = accounts["predicted_mean"]["mean"], accounts["from_mean"]
    low, high = measured["interval"]
    numbers = {"predicted": predicted, "measured": measured["mean"], "low": low, "high": high}
    return [row("heat_of_means", low <= predicted <= high, **numbers, seeds=accounts["seeds"])]


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
    """Text on whether noise around the optimum explains the difference in heat.

    {name[key]:format} stands for a number of ``values``.
    """
    difference, around = account["difference"]["mean"], account["around_optimum"]["mean"]
    low, high = account["difference"]["interval"]
    share, of_mean = around / difference, account["from_mean"]["mean"] / difference
    most, some = (said.limit("origin", name) for name in ("most", "some"))
    cases = {
        "unresolved": low * high <= 0,
        "holds": share >= most,
        "holds_in_part": share >= some,
        "fails_for_the_means": of_mean >= most,
        "fails": True,
    }
    texts = said.entries["origin"]
    predicted = texts["predicted"] if "predicted_mean" in account else ""
    last = texts[next(name for name, applies in cases.items() if applies)]
    text = _filled(texts["account"], {"predicted": predicted, "last": last})
    values = account | {"low": low, "high": high, "share": 100 * share, "rest": difference - around}
    return {"text": text, "values": verdicts.named(values, text)}
