"""The paper on precision: four bits store a computer, sixteen train one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thermoloom.experiments.precision import (
    NEAREST,
    REFERENCE,
    ROUNDINGS,
    STOCHASTIC,
    STORAGE,
    TRAINING,
)
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.responses import Curve, Responses
from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("precision")
SUMMARIES = ("max_softmax", "prototype_distance", "pairwise_distance")
"""Measures of quality that the paper's statements speak of."""
WORDS = {
    "heat": "heat",
    "max_softmax": "softmax",
    "prototype_distance": "prototype distance",
    "pairwise_distance": "diversity",
}
LOW_BITS, ENOUGH_BITS = (4, 6, 8), 16


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    found = Screened.of(evidence.responses)
    return {"quantities": quantities(found), "statements": statements(found)}


@dataclass(frozen=True)
class Screened:
    """The curves of both screens, each with its 32-bit reference."""

    storage: Curve
    training: dict[str, Curve]
    """By rounding; the reference is the 32-bit point of both."""

    @classmethod
    def of(cls, responses: Responses) -> Screened:
        shared = responses.curve(TRAINING, REFERENCE).measured
        return cls(
            responses.curve(STORAGE),
            {
                rounding: Curve([*responses.curve(TRAINING, rounding).measured, *shared])
                for rounding in ROUNDINGS
            },
        )


def differences(curve: Curve, bits: float) -> dict[str, float]:
    """Relative differences to the 32-bit reference: heat, and quality where it is defined."""
    found = {"heat": _change(curve, bits)}
    for name in SUMMARIES:
        here, there = curve.mean(bits, name), curve.mean(UNQUANTIZED, name)
        if here is not None and there:
            found[name] = here / there - 1
    return found


def _change(curve: Curve, bits: float) -> float:
    """Heat minus that of the reference, in units of it."""
    reference = curve.heat(UNQUANTIZED)
    return (curve.heat(bits) - reference) / abs(reference)


def quantities(found: Screened) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    rows = []
    if found.storage.has(UNQUANTIZED, 2):
        ratio = found.storage.ratio(2, UNQUANTIZED)
        rows.append(
            said.quantity("two_bit_heat", "heat with two-bit storage, of the reference",
                100 * ratio, unit="%", digits=".1f",
            )
        )  # fmt: skip
    within = said.limit("lowest_tested", "close")
    bits = lowest_close(found.storage, within)
    rows.append(
        said.quantity("storage_bits", f"fewest bits of storage within {100 * within:.0f} %",
            bits, digits=".0f",
        )
    )  # fmt: skip
    for rounding, curve in found.training.items():
        label = f"fewest bits of training within {100 * within:.0f} %, {rounding}"
        bits = lowest_close(curve, within)
        rows.append(said.quantity(f"{rounding}_bits", label, bits, digits=".0f"))
    return rows


def lowest_close(curve: Curve, within: float) -> float | None:
    """Fewest bits from which on heat and quality are all close to the reference."""
    if not curve.has(UNQUANTIZED):
        return None
    lowest = None
    for bits in reversed([value for value in curve.values if value != UNQUANTIZED]):
        if not is_close(curve, bits, within):
            break
        lowest = bits
    return lowest


def is_close(curve: Curve, bits: float, within: float) -> bool:
    return all(abs(value) <= within for value in differences(curve, bits).values())


# --- the paper's statements -----------------------------------------------------------------------


def statements(found: Screened) -> list[dict[str, Any]]:
    return [
        *two_bits(found.storage),
        four_and_five_bits(found),
        four_bit_quality(found.storage),
        zero_couplings(found),
        enough_bits(found, NEAREST, "sixteen_bits"),
        stochastic_nonzero(found),
        stochastic_recovery(found),
        stochastic_quality(found),
        enough_bits(found, STOCHASTIC, "stochastic_sixteen"),
        lowest_tested(found),
    ]


def two_bits(curve: Curve) -> list[dict[str, Any]]:
    """Low heat of the two-bit computer, and what becomes of its samples."""
    keys = ("two_bit_heat", "two_bit_softmax", "two_bit_distance", "two_bit_diversity")
    if not curve.has(UNQUANTIZED, 2):
        return [said.missing(key, "two bits were not tested") for key in keys]
    ratio, very_low = curve.ratio(2, UNQUANTIZED), said.limit("two_bit_heat", "ratio")
    heat = said.statement(
        "two_bit_heat",
        paper.holds_if(ratio <= very_low),
        "{two:.1f} E₀ against {reference:.1f} E₀ with 32 bits, {percent:.0f} % of it; very low: "
        "below {limit:.0f} %",
        two=curve.heat(2),
        reference=curve.heat(UNQUANTIZED),
        percent=100 * ratio,
        limit=100 * very_low,
    )
    measures = zip(keys[1:], SUMMARIES, (-1, +1, -1), strict=True)
    return [heat, *(_two_bit_measure(curve, *measure) for measure in measures)]


def _two_bit_measure(curve: Curve, key: str, measure: str, sign: int) -> dict[str, Any]:
    here, there = curve.mean(2, measure), curve.mean(UNQUANTIZED, measure)
    if here is None or there is None:
        return said.missing(key, "not defined for these samples or this visible layer")
    if measure == "pairwise_distance":
        strongly = said.limit(key, "ratio")
        holds = here <= strongly * there
        note = f"; strongly: below {100 * strongly:.0f} %"
    else:
        holds, note = (here - there) * sign > 0, ""
    return said.statement(
        key,
        paper.holds_if(holds),
        MEASURES[measure] + " {here:.3f} against {there:.3f}, {percent:.0f} % of it" + note,
        here=here,
        there=there,
        percent=100 * here / there,
    )


def four_and_five_bits(found: Screened) -> dict[str, Any]:
    key, curve = "four_five_bits", found.storage
    if not curve.has(UNQUANTIZED, 2, 4, 5):
        return said.missing(key, "2, 4 or 5 bits were not tested")
    two, four, five = (found.storage.mean(bits, "ks_distance") for bits in (2, 4, 5))
    changes = [_change(curve, bits) for bits in (4, 5)]
    approach = all(abs(change) <= said.limit(key, "close") for change in changes)
    if two is not None and four is not None and five is not None:
        approach &= max(four, five) < said.limit(key, "distance") * two
    return said.statement(
        key,
        paper.holds_if(approach),
        "KS distance to 32 bits {four:.2f} at 4 and {five:.2f} at 5 bits ({two:.2f} at 2); mean "
        "heat {four_change:+.1f} % and {five_change:+.1f} %",
        two=two,
        four=four,
        five=five,
        four_change=100 * changes[0],
        five_change=100 * changes[1],
    )


def _in_words(changes: dict[str, float]) -> tuple[str, dict[str, float]]:
    """``heat +3.1 %, softmax −0.2 %, …`` as a template and its numbers."""
    template = ", ".join(f"{WORDS[name]} {{{name}:+.1f}} %" for name in changes)
    return template, {name: 100 * value for name, value in changes.items()}


def four_bit_quality(curve: Curve) -> dict[str, Any]:
    key = "four_bit_quality"
    if not curve.has(UNQUANTIZED, 4):
        return said.missing(key, "4 bits were not tested")
    changes = {k: v for k, v in differences(curve, 4).items() if k != "heat"}
    template, values = _in_words(changes)
    holds = all(abs(change) <= said.limit(key, "close") for change in changes.values())
    return said.statement(key, paper.holds_if(holds), template + " of 32 bits", **values)


def _tested(curve: Curve, wanted: tuple[int, ...]) -> list[int]:
    return [bits for bits in wanted if curve.at(bits)]


def zero_couplings(found: Screened) -> dict[str, Any]:
    tested = _tested(found.training[NEAREST], LOW_BITS)
    if not tested:
        return said.missing("zero_couplings", "none of 4, 6 and 8 bits was trained")
    fractions = {
        bits: found.training[NEAREST].mean(bits, "nonzero_visible_hidden") for bits in tested
    }
    hidden = {bits: found.training[NEAREST].mean(bits, "nonzero_hidden_hidden") for bits in tested}
    return said.statement(
        "zero_couplings",
        paper.holds_if(all(fraction == 0 for fraction in fractions.values())),
        "nonzero part of J_vh: "
        + ", ".join(f"{{vh{bits}:.3g}} % at {bits} bits" for bits in tested)
        + "; of J_hh: "
        + ", ".join(f"{{hh{bits}:.3g}} %" for bits in tested),
        **{f"vh{bits}": _percent(fraction) for bits, fraction in fractions.items()},
        **{f"hh{bits}": _percent(fraction) for bits, fraction in hidden.items()},
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def enough_bits(found: Screened, rounding: str, key: str) -> dict[str, Any]:
    curve = found.training[rounding]
    if not curve.has(UNQUANTIZED, ENOUGH_BITS):
        return said.missing(key, f"{ENOUGH_BITS} bits or the reference were not trained")
    template, values = _in_words(differences(curve, ENOUGH_BITS))
    verdict = paper.holds_if(is_close(curve, ENOUGH_BITS, said.limit(key, "close")))
    return said.statement(key, verdict, template + " of the reference", **values)


def stochastic_nonzero(found: Screened) -> dict[str, Any]:
    tested = _tested(found.training[STOCHASTIC], LOW_BITS)
    if not tested:
        return said.missing("stochastic_nonzero", "none of 4, 6 and 8 bits was trained")
    fractions = {
        bits: found.training[STOCHASTIC].mean(bits, "nonzero_visible_hidden") for bits in tested
    }
    return said.statement(
        "stochastic_nonzero",
        paper.holds_if(all(fractions.values())),
        "nonzero part of J_vh: "
        + ", ".join(f"{{vh{bits}:.3g}} % at {bits} bits" for bits in tested),
        **{f"vh{bits}": _percent(fraction) for bits, fraction in fractions.items()},
    )


def stochastic_recovery(found: Screened) -> dict[str, Any]:
    """Heat nearer to the reference than with rounding to nearest, at every low bit depth."""
    key, curves = "stochastic_recovery", found.training
    tested = [b for b in LOW_BITS if all(curves[r].has(UNQUANTIZED, b) for r in ROUNDINGS)]
    if not tested:
        return said.missing(key, "none of 4, 6 and 8 bits was trained both ways")
    away = {
        rounding: [100 * differences(curves[rounding], bits)["heat"] for bits in tested]
        for rounding in ROUNDINGS
    }
    nearer = sum(abs(s) < abs(n) for s, n in zip(away[STOCHASTIC], away[NEAREST], strict=True))
    verdict = paper.HOLDS if nearer == len(tested) else paper.DIFFERS
    if 0 < nearer < len(tested):
        verdict = paper.UNRESOLVED
    return said.statement(
        key,
        verdict,
        "heat relative to the reference, stochastic (nearest): "
        + ", ".join(f"{{s{b}:+.1f}} % ({{n{b}:+.1f}} %) at {b} bits" for b in tested),
        **{f"s{b}": value for b, value in zip(tested, away[STOCHASTIC], strict=True)},
        **{f"n{b}": value for b, value in zip(tested, away[NEAREST], strict=True)},
    )


def stochastic_quality(found: Screened) -> dict[str, Any]:
    """A measure that is not close to the reference, or is resolved from it in paired samples."""
    key, curve = "stochastic_quality", found.training[STOCHASTIC]
    if not curve.has(UNQUANTIZED, 8):
        return said.missing(key, "8 bits or the reference were not trained")
    changes = {k: v for k, v in differences(curve, 8).items() if k != "heat"}
    paired = [name for name in changes if name != "pairwise_distance"]  # one value a sample
    errors = said.limit(key, "resolved")
    resolved = [name for name in paired if curve.change(8, UNQUANTIZED, name).resolved(errors)]
    template, values = _in_words(changes)
    far = any(abs(change) > said.limit(key, "close") for change in changes.values())
    differ = bool(resolved) or far
    return said.statement(
        key,
        paper.holds_if(differ),
        template + " of the reference; resolved in paired samples: {resolved}",
        **values,
        resolved=", ".join(WORDS[name] for name in resolved) or "none",
    )


def lowest_tested(found: Screened) -> dict[str, Any]:
    """Of the paper's bit depths only 16 is close, with either rounding; ours are also reported."""
    key, curves = "lowest_tested", found.training
    wanted = (UNQUANTIZED, 8, ENOUGH_BITS)
    if not all(curves[rounding].has(*wanted) for rounding in ROUNDINGS):
        return said.missing(key, "8 or 16 bits or the reference were not trained")
    within = said.limit(key, "close")
    holds = all(
        is_close(curve, ENOUGH_BITS, within)
        and not any(is_close(curve, bits, within) for bits in _tested(curve, LOW_BITS))
        for curve in curves.values()
    )
    lowest = {rounding: lowest_close(curves[rounding], within) for rounding in ROUNDINGS}
    return said.statement(
        key,
        paper.holds_if(holds),
        f"among all depths tested here, heat and quality are within {100 * within:.0f} % of the "
        "reference from {nearest:.0f} bits (nearest) and {stochastic:.0f} bits (stochastic) on",
        **lowest,
    )
