"""The paper on precision: four bits store a computer, sixteen train one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.responses import Curve, Responses
from thermoloom.studies import verdicts
from thermoloom.studies.precision.study import (
    NEAREST,
    REFERENCE,
    ROUNDINGS,
    STOCHASTIC,
    STORAGE,
    TRAINING,
)
from thermoloom.studies.verdicts import Evidence, Statements

said = Statements.beside(__file__)
SUMMARIES = ("max_softmax", "pattern_distance", "pairwise_distance")
"""Measures of quality that the paper's statements speak of."""
WORDS = {
    "heat": "heat",
    "max_softmax": "softmax",
    "pattern_distance": "pattern distance",
    "pairwise_distance": "diversity",
}
LOW_BITS, ENOUGH_BITS = (4, 6, 8), 16


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    curves = Curves.of(evidence.responses)
    return {"quantities": quantities(curves), "statements": statements(curves)}


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


def differences(curve: Curve, bits: float) -> dict[str, float]:
    """Relative differences to the 32-bit reference: heat, and quality where it is defined."""
    changes = {"heat": _change(curve, bits)}
    for name in SUMMARIES:
        here, there = curve.mean(bits, name), curve.mean(UNQUANTIZED, name)
        if here is not None and there:
            changes[name] = here / there - 1
    return changes


def _change(curve: Curve, bits: float) -> float:
    """Heat minus that of the reference, in units of it."""
    reference = curve.heat(UNQUANTIZED)
    return (curve.heat(bits) - reference) / abs(reference)


def quantities(curves: Curves) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    rows, storage = [], curves.storage
    if storage.has(UNQUANTIZED, 2):
        label = "heat with two-bit storage, of the reference"
        percent = 100 * storage.ratio(2, UNQUANTIZED)
        rows.append(said.quantity("two_bit_heat", label, percent, unit="%", digits=".1f"))
    within = said.limit("lowest_tested", "close")
    close = f"within {100 * within:.0f} %"
    screens = {"storage": (f"fewest bits of storage {close}", storage)} | {
        rounding: (f"fewest bits of training {close}, {rounding}", curve)
        for rounding, curve in curves.training.items()
    }
    return rows + [
        said.quantity(f"{name}_bits", label, lowest_close(curve, within), digits=".0f")
        for name, (label, curve) in screens.items()
    ]


def lowest_close(curve: Curve, within: float) -> float | None:
    """Fewest bits from which on heat and quality are all close to the reference."""
    if not curve.has(UNQUANTIZED):
        return None
    descending = [bits for bits in reversed(curve.values) if bits != UNQUANTIZED]
    close = list(takewhile(lambda bits: is_close(curve, bits, within), descending))
    return close[-1] if close else None


def is_close(curve: Curve, bits: float, within: float) -> bool:
    """Whether heat and quality are all within this part of the reference."""
    return all(abs(change) <= within for change in differences(curve, bits).values())


# --- the paper's statements ---


def statements(curves: Curves) -> list[dict[str, Any]]:
    return [
        *two_bits(curves.storage),
        four_and_five_bits(curves),
        four_bit_quality(curves.storage),
        zero_couplings(curves),
        enough_bits(curves, NEAREST, "sixteen_bits"),
        stochastic_nonzero(curves),
        stochastic_recovery(curves),
        stochastic_quality(curves),
        enough_bits(curves, STOCHASTIC, "stochastic_sixteen"),
        lowest_tested(curves),
    ]


def two_bits(curve: Curve) -> list[dict[str, Any]]:
    """Low heat of the two-bit computer, and the quality of its samples."""
    keys = ("two_bit_heat", "two_bit_softmax", "two_bit_distance", "two_bit_diversity")
    if not curve.has(UNQUANTIZED, 2):
        return [said.missing(key, "two bits were not tested") for key in keys]
    two, reference, ratio = curve.heat(2), curve.heat(UNQUANTIZED), curve.ratio(2, UNQUANTIZED)
    low = said.limit("two_bit_heat", "ratio")
    numbers = {"two": two, "reference": reference, "percent": 100 * ratio, "limit": 100 * low}
    measures = zip(keys[1:], SUMMARIES, (-1, +1, -1), strict=True)
    return [
        said.statement("two_bit_heat", verdicts.holds_if(ratio <= low), **numbers),
        *(_two_bit_measure(curve, *measure) for measure in measures),
    ]


def _two_bit_measure(curve: Curve, key: str, measure: str, sign: int) -> dict[str, Any]:
    here, there = curve.mean(2, measure), curve.mean(UNQUANTIZED, measure)
    if here is None or there is None:
        return said.missing(key, "not defined for these samples or this visible layer")
    if measure == "pairwise_distance":
        strongly = said.limit(key, "ratio")
        holds, note = here <= strongly * there, f"; strongly: below {100 * strongly:.0f} %"
    else:
        holds, note = (here - there) * sign > 0, ""
    text = MEASURES[measure] + " {here:.3f} against {there:.3f}, {percent:.0f} % of it" + note
    percent = 100 * here / there
    return said.statement(
        key, verdicts.holds_if(holds), text, here=here, there=there, percent=percent
    )


def four_and_five_bits(curves: Curves) -> dict[str, Any]:
    key, curve = "four_five_bits", curves.storage
    if not curve.has(UNQUANTIZED, 2, 4, 5):
        return said.missing(key, "2, 4 or 5 bits were not tested")
    two, four, five = (curve.mean(bits, "ks_distance") for bits in (2, 4, 5))
    changes = {name: _change(curve, bits) for name, bits in (("four", 4), ("five", 5))}
    approach = all(abs(change) <= said.limit(key, "close") for change in changes.values())
    if two is not None and four is not None and five is not None:
        approach &= max(four, five) < said.limit(key, "distance") * two
    percents = {f"{name}_change": 100 * change for name, change in changes.items()}
    return said.statement(
        key, verdicts.holds_if(approach), two=two, four=four, five=five, **percents
    )


def _in_words(changes: dict[str, float]) -> tuple[str, dict[str, float]]:
    """``heat +3.1 %, softmax −0.2 %, …`` as a template and its numbers."""
    template = ", ".join(f"{WORDS[name]} {{{name}:+.1f}} %" for name in changes)
    return template, {name: 100 * change for name, change in changes.items()}


def four_bit_quality(curve: Curve) -> dict[str, Any]:
    key = "four_bit_quality"
    if not curve.has(UNQUANTIZED, 4):
        return said.missing(key, "4 bits were not tested")
    changes = {k: v for k, v in differences(curve, 4).items() if k != "heat"}
    template, percents = _in_words(changes)
    holds = all(abs(change) <= said.limit(key, "close") for change in changes.values())
    return said.statement(key, verdicts.holds_if(holds), template + " of 32 bits", **percents)


def _nonzero(curve: Curve, block: str, short: str) -> dict[str, float | None]:
    """Nonzero part of a block at the low bit depths that were trained, in per cent."""
    parts = {bits: curve.mean(bits, f"nonzero_{block}") for bits in LOW_BITS if curve.at(bits)}
    return {f"{short}{bits}": part and 100 * part for bits, part in parts.items()}


NOT_LOW = "none of 4, 6 and 8 bits was trained"


def zero_couplings(curves: Curves) -> dict[str, Any]:
    curve = curves.training[NEAREST]
    vh, hh = _nonzero(curve, "visible_hidden", "vh"), _nonzero(curve, "hidden_hidden", "hh")
    if not vh:
        return said.missing("zero_couplings", NOT_LOW)
    text = _nonzero_words(vh) + "; of J_hh: " + ", ".join(f"{{{name}:.3g}} %" for name in hh)
    verdict = verdicts.holds_if(all(part == 0 for part in vh.values()))
    return said.statement("zero_couplings", verdict, text, **vh, **hh)


def stochastic_nonzero(curves: Curves) -> dict[str, Any]:
    vh = _nonzero(curves.training[STOCHASTIC], "visible_hidden", "vh")
    if not vh:
        return said.missing("stochastic_nonzero", NOT_LOW)
    verdict = verdicts.holds_if(all(vh.values()))
    return said.statement("stochastic_nonzero", verdict, _nonzero_words(vh), **vh)


def _nonzero_words(parts: dict[str, float | None]) -> str:
    listed = ", ".join(f"{{{name}:.3g}} % at {name[2:]} bits" for name in parts)
    return f"nonzero part of J_vh: {listed}"


def enough_bits(curves: Curves, rounding: str, key: str) -> dict[str, Any]:
    curve = curves.training[rounding]
    if not curve.has(UNQUANTIZED, ENOUGH_BITS):
        return said.missing(key, f"{ENOUGH_BITS} bits or the reference were not trained")
    template, percents = _in_words(differences(curve, ENOUGH_BITS))
    verdict = verdicts.holds_if(is_close(curve, ENOUGH_BITS, said.limit(key, "close")))
    return said.statement(key, verdict, template + " of the reference", **percents)


def stochastic_recovery(curves: Curves) -> dict[str, Any]:
    """Heat nearer to the reference than with rounding to nearest, at every low bit depth."""
    key, trained = "stochastic_recovery", curves.training
    tested = [b for b in LOW_BITS if all(trained[r].has(UNQUANTIZED, b) for r in ROUNDINGS)]
    if not tested:
        return said.missing(key, f"{NOT_LOW} both ways")
    nearest, stochastic = (
        [100 * _change(trained[rounding], bits) for bits in tested] for rounding in ROUNDINGS
    )
    nearer = sum(abs(s) < abs(n) for s, n in zip(stochastic, nearest, strict=True))
    some = verdicts.UNRESOLVED if nearer else verdicts.DIFFERS
    return said.statement(
        key,
        verdicts.HOLDS if nearer == len(tested) else some,
        "heat relative to the reference, stochastic (nearest): "
        + ", ".join(f"{{s{b}:+.1f}} % ({{n{b}:+.1f}} %) at {b} bits" for b in tested),
        **{f"s{b}": change for b, change in zip(tested, stochastic, strict=True)},
        **{f"n{b}": change for b, change in zip(tested, nearest, strict=True)},
    )


def stochastic_quality(curves: Curves) -> dict[str, Any]:
    """A measure that is not close to the reference, or is resolved from it in paired samples."""
    key, curve = "stochastic_quality", curves.training[STOCHASTIC]
    if not curve.has(UNQUANTIZED, 8):
        return said.missing(key, "8 bits or the reference were not trained")
    changes = {k: v for k, v in differences(curve, 8).items() if k != "heat"}
    paired = [name for name in changes if name != "pairwise_distance"]  # one value per sample
    errors = said.limit(key, "resolved")
    resolved = [name for name in paired if curve.change(8, UNQUANTIZED, name).resolved(errors)]
    template, percents = _in_words(changes)
    far = any(abs(change) > said.limit(key, "close") for change in changes.values())
    return said.statement(
        key,
        verdicts.holds_if(bool(resolved) or far),
        template + " of the reference; resolved in paired samples: {resolved}",
        **percents,
        resolved=", ".join(WORDS[name] for name in resolved) or "none",
    )


def lowest_tested(curves: Curves) -> dict[str, Any]:
    """Of the paper's bit depths, only 16 is close, with either rounding.

    The fewest bits among all depths tested here are reported, too.
    """
    key, trained = "lowest_tested", curves.training
    wanted = (UNQUANTIZED, 8, ENOUGH_BITS)
    if not all(trained[rounding].has(*wanted) for rounding in ROUNDINGS):
        return said.missing(key, "8 or 16 bits or the reference were not trained")
    within = said.limit(key, "close")
    holds = all(
        is_close(curve, ENOUGH_BITS, within)
        and not any(is_close(curve, bits, within) for bits in LOW_BITS if curve.at(bits))
        for curve in trained.values()
    )
    lowest = {rounding: lowest_close(trained[rounding], within) for rounding in ROUNDINGS}
    return said.statement(
        key,
        verdicts.holds_if(holds),
        f"among all depths tested here, heat and quality are within {100 * within:.0f} % of the "
        "reference from {nearest:.0f} bits (nearest) and {stochastic:.0f} bits (stochastic) on",
        **lowest,
    )
