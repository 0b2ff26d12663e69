"""The paper on precision: four bits store a computer, sixteen train one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.measures.quality import CLASSIFIED, MEASURES, on_panel, value_range
from thermoloom.measures.responses import Curve, ResponseChange, Responses
from thermoloom.studies.precision.study import (
    NEAREST,
    REFERENCE,
    ROUNDINGS,
    STOCHASTIC,
    STORAGE,
    TRAINING,
)
from thermoloom.studies.verdicts import Criterion, Evidence, Statements

said = Statements.beside(__file__)
SUMMARIES = ("max_softmax", "pattern_distance", "pairwise_distance")
"""Measures of quality that the paper's statements mention."""
WORDS = {
    "heat": "heat",
    "max_softmax": "softmax",
    "pattern_distance": "pattern distance",
    "pairwise_distance": "diversity",
}
LOW_BITS, ENOUGH_BITS = (4, 6, 8), 16
Row = dict[str, Any]


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    curves = Curves.of(evidence.responses)
    return {
        "quantities": quantities(curves),
        "statements": statements(curves, evidence.classifiers),
    }


@dataclass(frozen=True)
class Curves:
    """The curves of both screens, each with its 32-bit reference."""

    storage: Curve
    training: dict[str, Curve]
    """By rounding; the reference is the 32-bit point of both."""

    @classmethod
    def of(cls, responses: Responses) -> Curves:
        reference = responses.curve(TRAINING, REFERENCE).measured
        return cls(
            responses.curve(STORAGE),
            {
                rounding: Curve([*responses.curve(TRAINING, rounding).measured, *reference])
                for rounding in ROUNDINGS
            },
        )


def measures(curve: Curve, bits: float, classifier: str = "") -> dict[str, str]:
    """Columns of heat and of the qualities that are defined, by the name of the measure."""
    named = {name: column(name, classifier) for name in SUMMARIES}
    defined = {
        name: key
        for name, key in named.items()
        if curve.mean(bits, key) is not None and curve.mean(UNQUANTIZED, key)
    }
    return {"heat": "heat"} | defined


def column(measure: str, classifier: str) -> str:
    """The measure by this classifier, where it depends on one."""
    return on_panel(measure, classifier if measure in CLASSIFIED else "")


def differences(curve: Curve, bits: float, classifier: str = "") -> dict[str, ResponseChange]:
    """Changes from the 32-bit reference: heat, and quality where it is defined.

    Diversity is one number of all samples, so its change has no error.
    """
    changes = {}
    for name, key in measures(curve, bits, classifier).items():
        if name != "pairwise_distance":
            changes[name] = curve.change(bits, UNQUANTIZED, key)
            continue
        here, there = (curve.mean(b, key) or 0.0 for b in (bits, UNQUANTIZED))
        changes[name] = ResponseChange(here - there, None, there, (here - there, here - there))
    return changes


def quantities(curves: Curves) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    rows, storage = [], curves.storage
    if storage.has(UNQUANTIZED, 2):
        label = "heat with two-bit storage, relative to the reference"
        percent = 100 * storage.ratio(2, UNQUANTIZED)
        rows.append(said.quantity("two_bit_heat", label, percent, unit="%", digits=".1f"))
    within = said.limit("lowest_tested", "close")
    close = f"within {within:.0f} % of the reference"
    screens = {"storage": (f"fewest bits of storage {close}", storage)} | {
        rounding: (f"fewest bits of training {close}, {rounding}", curve)
        for rounding, curve in curves.training.items()
    }
    return rows + [
        said.quantity(f"{name}_bits", label, lowest_close(curve, within), digits=".0f")
        for name, (label, curve) in screens.items()
    ]


def lowest_close(curve: Curve, within: float) -> float | None:
    """Fewest bits with which, as with all larger depths, heat and quality are close to 32 bits."""
    if not curve.has(UNQUANTIZED):
        return None
    descending = [bits for bits in reversed(curve.values) if bits != UNQUANTIZED]
    close = list(takewhile(lambda bits: is_close(curve, bits, within), descending))
    return close[-1] if close else None


def is_close(curve: Curve, bits: float, within: float) -> bool:
    """Whether heat and quality are all within so many per cent of the reference."""
    return all(abs(change.percent) <= within for change in differences(curve, bits).values())


def largest_change(
    curve: Curve, bits: float, classifier: str = "", heat: bool = True
) -> tuple[str, ResponseChange]:
    """The measure that is farthest from the reference."""
    changes = differences(curve, bits, classifier)
    names = [name for name in changes if heat or name != "heat"]
    farthest = max(names, key=lambda name: abs(changes[name].percent))
    return WORDS[farthest], changes[farthest]


# --- the paper's statements ---


def statements(curves: Curves, classifiers: Sequence[str]) -> list[dict[str, Any]]:
    return [
        *two_bits(curves.storage, classifiers),
        four_and_five_bits(curves),
        four_bit_quality(curves.storage, classifiers),
        zero_couplings(curves),
        enough_bits(curves, NEAREST, "sixteen_bits", classifiers),
        stochastic_nonzero(curves),
        stochastic_recovery(curves, classifiers),
        stochastic_quality(curves, classifiers),
        enough_bits(curves, STOCHASTIC, "stochastic_sixteen", classifiers),
        lowest_tested(curves, classifiers),
    ]


def two_bits(curve: Curve, classifiers: Sequence[str]) -> list[dict[str, Any]]:
    """Low heat of the two-bit computer, and the quality of its samples."""
    keys = ("two_bit_heat", "two_bit_softmax", "two_bit_distance", "two_bit_diversity")
    if not curve.has(UNQUANTIZED, 2):
        return [said.missing(key, "two bits were not tested") for key in keys]
    heat = curve.change(2, UNQUANTIZED)
    numbers = {"two": curve.heat(2), "reference": curve.heat(UNQUANTIZED), "percent": heat.percent}
    return [
        said.judge("two_bit_heat", [said.check_change("two_bit_heat", "change", heat)], **numbers),
        *(
            _two_bit_measure(curve, key, measure, classifiers)
            for key, measure in zip(keys[1:], SUMMARIES, strict=True)
        ),
    ]


def _two_bit_measure(
    curve: Curve, key: str, measure: str, classifiers: Sequence[str]
) -> dict[str, Any]:
    if measure not in (main := differences(curve, 2)):
        return said.missing(key, "not defined for these samples or this visible layer")
    (name,) = said.entry(key)["threshold"]
    changes = {c: differences(curve, 2, c)[measure] for c in classifiers}
    reference = main[measure].reference
    numbers = {"here": reference + main[measure].mean, "there": reference}
    text = MEASURES[measure] + " {here:.3f} against {there:.3f}, {percent:+.0f} %"
    numbers["percent"] = main[measure].percent
    if measure not in CLASSIFIED:
        return said.judge(key, [said.check_change(key, name, main[measure])], text, **numbers)
    criteria = {c: [said.check_change(key, name, change)] for c, change in changes.items()}
    least, most = value_range(change.percent for change in changes.values()) or (None, None)
    text += "; over the panel {least:+.0f} to {most:+.0f} %"
    return said.judge_panel(key, criteria, text, **numbers, least=least, most=most)


def four_and_five_bits(curves: Curves) -> dict[str, Any]:
    key, curve = "four_five_bits", curves.storage
    if not curve.has(UNQUANTIZED, 2, 4, 5):
        return said.missing(key, "2, 4 or 5 bits were not tested")
    two, four, five = (curve.mean(bits, "ks_distance") or 0.0 for bits in (2, 4, 5))
    changes = {name: curve.change(bits, UNQUANTIZED) for name, bits in (("four", 4), ("five", 5))}
    criteria = [
        said.check_change(key, "change", c, f"({name} bits)") for name, c in changes.items()
    ]
    ratio = 100 * max(four, five) / two if two else math.inf
    percents = {f"{name}_change": change.percent for name, change in changes.items()}
    return said.judge(
        key,
        [*criteria, said.check(key, "KS_distance", ratio)],
        two=two,
        four=four,
        five=five,
        **percents,
    )


def _in_words(changes: Mapping[str, ResponseChange]) -> tuple[str, dict[str, float]]:
    """``heat +3.1 %, softmax −0.2 %, …`` as a template and its numbers."""
    template = ", ".join(f"{WORDS[name]} {{{name}:+.1f}} %" for name in changes)
    return template, {name: change.percent for name, change in changes.items()}


def _close(key: str, curve: Curve, bits: float, classifiers: Sequence[str], heat: bool) -> Row:
    """A statement that all measures are close to the reference, by every classifier."""

    def checked(classifier: str) -> list[Criterion]:
        return [
            said.check_change(key, "change", change, f"({WORDS[name]})")
            for name, change in differences(curve, bits, classifier).items()
            if heat or name != "heat"
        ]

    changes = {k: v for k, v in differences(curve, bits).items() if heat or k != "heat"}
    template, percents = _in_words(changes)
    softmax = [differences(curve, bits, c).get("max_softmax") for c in classifiers]
    ends = value_range(change.percent for change in softmax if change is not None)
    text = f"{template} relative to 32 bits" + (
        "; softmax over the panel {least:+.1f} to {most:+.1f} %" if ends else ""
    )
    least, most = ends or (None, None)
    return said.judge_panel(
        key, {c: checked(c) for c in classifiers}, text, **percents, least=least, most=most
    )


def four_bit_quality(curve: Curve, classifiers: Sequence[str]) -> Row:
    key = "four_bit_quality"
    if not curve.has(UNQUANTIZED, 4):
        return said.missing(key, "4 bits were not tested")
    return _close(key, curve, 4, classifiers, heat=False)


def enough_bits(curves: Curves, rounding: str, key: str, classifiers: Sequence[str]) -> Row:
    curve = curves.training[rounding]
    if not curve.has(UNQUANTIZED, ENOUGH_BITS):
        return said.missing(key, f"{ENOUGH_BITS} bits were not trained, or the reference was not")
    return _close(key, curve, ENOUGH_BITS, classifiers, heat=True)


def _nonzero(curve: Curve, block: str) -> dict[int, float]:
    """Nonzero part of a block at the low bit depths that were trained, in per cent."""
    parts = {bits: curve.mean(bits, f"nonzero_{block}") for bits in LOW_BITS if curve.at(bits)}
    return {bits: 100 * part for bits, part in parts.items() if part is not None}


NOT_LOW = "no computer was trained with 4, 6 or 8 bits"


def zero_couplings(curves: Curves) -> Row:
    curve = curves.training[NEAREST]
    vh, hh = (_nonzero(curve, block) for block in ("visible_hidden", "hidden_hidden"))
    text = "; of J_hh: " + ", ".join(f"{{hh{bits}:.3g}} %" for bits in hh)
    return _nonzero_part("zero_couplings", vh, text, **{f"hh{b}": part for b, part in hh.items()})


def stochastic_nonzero(curves: Curves) -> Row:
    vh = _nonzero(curves.training[STOCHASTIC], "visible_hidden")
    return _nonzero_part("stochastic_nonzero", vh)


def _nonzero_part(key: str, parts: Mapping[int, float], more: str = "", **values: float) -> Row:
    """A statement on the nonzero part of J_vh at every low bit depth."""
    if not parts:
        return said.missing(key, NOT_LOW)
    (name,) = said.entry(key)["threshold"]
    listed = ", ".join(f"{{vh{bits}:.3g}} % at {bits} bits" for bits in parts)
    return said.judge(
        key,
        [said.check(key, name, part, about=f"at {bits} bits") for bits, part in parts.items()],
        f"nonzero part of J_vh: {listed}{more}",
        **{f"vh{bits}": part for bits, part in parts.items()},
        **values,
    )


def recovered(curves: Curves, bits: float, classifier: str, heat: bool) -> tuple[float, float]:
    """Part of the distance to the reference that stochastic rounding recovers, per cent.

    The distance of heat, or the mean distance of all qualities; with half of its 95 % interval.
    """
    distances = []
    for rounding in ROUNDINGS:
        changes = differences(curves.training[rounding], bits, classifier)
        compared = [c for name, c in changes.items() if (name == "heat") == heat]
        ends = [c.percent_interval or (0.0, 0.0) for c in compared]
        half = math.hypot(*((high - low) / 2 for low, high in ends)) / len(compared)
        distances.append((sum(abs(c.percent) for c in compared) / len(compared), half))
    (nearest, nearest_half), (stochastic, stochastic_half) = distances
    if not math.isfinite(nearest):
        return (100.0 if math.isfinite(stochastic) else 0.0), 0.0
    if not nearest:
        return 0.0, 0.0
    ratio = stochastic / nearest
    return 100 * (1 - ratio), 100 * math.hypot(stochastic_half, ratio * nearest_half) / nearest


def stochastic_recovery(curves: Curves, classifiers: Sequence[str]) -> Row:
    """Heat and quality nearer to the reference than by rounding to nearest, at every low depth."""
    key, trained = "stochastic_recovery", curves.training
    tested = [b for b in LOW_BITS if all(trained[r].has(UNQUANTIZED, b) for r in ROUNDINGS)]
    if not tested:
        return said.missing(key, f"{NOT_LOW} and both roundings")
    heats = {b: recovered(curves, b, "", heat=True) for b in tested}
    qualities = {c: {b: recovered(curves, b, c, heat=False) for b in tested} for c in classifiers}
    criteria = {
        c: [
            said.check(key, name, part, (part - half, part + half), f"at {b} bits")
            for name, parts in (("heat_recovered", heats), ("quality_recovered", qualities[c]))
            for b, (part, half) in parts.items()
        ]
        for c in classifiers
    }
    return said.judge_panel(
        key,
        criteria,
        "part of the distance to the reference that is recovered, heat (quality): "
        + ", ".join(f"{{h{b}:.0f}} % ({{q{b}:.0f}} %) at {b} bits" for b in tested),
        **{f"h{b}": part for b, (part, _) in heats.items()},
        **{f"q{b}": part for b, (part, _) in qualities[""].items()},
    )


def stochastic_quality(curves: Curves, classifiers: Sequence[str]) -> Row:
    """The quality that is farthest from the reference."""
    key, curve = "stochastic_quality", curves.training[STOCHASTIC]
    if not curve.has(UNQUANTIZED, 8):
        return said.missing(key, "8 bits were not trained, or the reference was not")
    farthest = {c: largest_change(curve, 8, c, heat=False) for c in classifiers}
    criteria = {
        c: [said.check_change(key, "change", change, f"({name})")]
        for c, (name, change) in farthest.items()
    }
    changes = {k: v for k, v in differences(curve, 8).items() if k != "heat"}
    template, percents = _in_words(changes)
    return said.judge_panel(key, criteria, template + " relative to 32 bits", **percents)


def lowest_tested(curves: Curves, classifiers: Sequence[str]) -> Row:
    """Of the paper's bit depths, only 16 is close, with either rounding.

    The fewest bits among all depths tested here are reported, too.
    """
    key, trained = "lowest_tested", curves.training
    wanted = (UNQUANTIZED, 8, ENOUGH_BITS)
    if not all(trained[rounding].has(*wanted) for rounding in ROUNDINGS):
        return said.missing(key, "8 or 16 bits were not trained, or the reference was not")

    def checked(classifier: str) -> list[Criterion]:
        criteria = []
        for rounding, curve in trained.items():
            depths = [(b, "differ") for b in LOW_BITS if curve.at(b)] + [(ENOUGH_BITS, "close")]
            for bits, name in depths:
                measure, change = largest_change(curve, bits, classifier)
                about = f"({rounding}, {bits} bits, {measure})"
                criteria.append(said.check_change(key, name, change, about))
        return criteria

    within = said.limit(key, "close")
    lowest = {rounding: lowest_close(trained[rounding], within) for rounding in ROUNDINGS}
    return said.judge_panel(
        key,
        {c: checked(c) for c in classifiers},
        f"among all depths tested here, heat and quality are within {within:.0f} % of the "
        "reference with at least {nearest:.0f} bits (nearest) or {stochastic:.0f} "
        "bits (stochastic)",
        **lowest,
    )
