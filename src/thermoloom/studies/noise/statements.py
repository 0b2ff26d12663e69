"""The paper on perturbations: heat stays near its baseline up to a crossover; coherent errors
raise it most.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from thermoloom.measures.responses import Curve
from thermoloom.studies.noise.study import (
    BELOW_CROSSOVER,
    BEYOND_CROSSOVER,
    MEMORY,
    OFFSET,
    PERIODS,
    RESIDUAL,
    SCREENS,
    UPDATE,
    NoisePlan,
    variant,
)
from thermoloom.studies.verdicts import Evidence, Statements, own_quantity

said = Statements.beside(__file__)
LOW_NOISE = 0.15
"""Largest σ_upd that counts as low: half of the paper's crossover. The paper gives no number."""


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    curves = {name: evidence.responses.curve(name) for name in SCREENS}
    periods = {
        period: evidence.responses.curve(PERIODS, variant(period))
        for period in evidence.summary["periods"]
    }
    return {
        "quantities": quantities(curves),
        "statements": statements(curves, periods, evidence.summary["cycles"]["update"]),
    }


def quantities(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them except a bracket on its grid."""
    near, marked = said.limit("near_baseline", "change"), said.limit("smallest_offset", "change")
    note = "interpolated between points of the grid"
    bracket = f"{note}; the paper gives a bracket on its grid, 0.30 to 0.35, not an interval"
    label = f"σ_upd that raises heat by {near:.0f} %"
    amplitude = raised_at(curves[UPDATE], 1 + near / 100)
    rows = [own_quantity("crossover", label, amplitude, digits=".3f", note=bracket)]
    for name, key, label in (
        (UPDATE, "update_baseline", "heat without noise, screen of update noise"),
        (RESIDUAL, "residual_baseline", "heat without noise, screens of residual errors"),
    ):
        if curves[name].has(0):
            rows.append(own_quantity(key, label, curves[name].heat(0), unit="E₀", digits=".1f"))
    for name, label in (
        (RESIDUAL, "heat at the largest σ_res, relative to the baseline"),
        (OFFSET, "heat at the largest offset, relative to that without an offset"),
        (MEMORY, "heat at the largest ρ, relative to that at ρ = 0"),
    ):
        curve = curves[name]
        if curve.has(0) and len(curve.values) > 1:
            ratio = curve.ratio(curve.values[-1], 0)
            finite = ratio if math.isfinite(ratio) else None
            rows.append(own_quantity(f"{name} ratio", label, finite, digits=".3g"))
    label = f"offset that raises heat by {marked:.0f} %"
    offset = raised_at(curves[OFFSET], 1 + marked / 100)
    rows.append(own_quantity("offset_marked", label, offset, digits=".2g", note=note))
    return rows


def raised_at(curve: Curve, factor: float) -> float | None:
    """Interpolated value at which heat first exceeds ``factor`` × baseline, if it does."""
    crossed = crossover(curve, factor)
    return None if crossed is None else crossed[2]


def crossover(curve: Curve, factor: float) -> tuple[float, float, float] | None:
    """(low, high, between): neighbours between which heat first exceeds ``factor`` × baseline.

    ``between`` interpolates the logarithm of heat. None where heat never exceeds it.
    """
    if not curve.has(0) or curve.heat(0) <= 0:
        return None
    level = factor * curve.heat(0)
    for low, high in pairwise(curve.values):
        before, after = curve.heat(low), curve.heat(high)
        if 0 < before < level <= after:
            if math.isinf(after):
                return low, high, high
            share = math.log(level / before) / math.log(after / before)
            return low, high, low + share * (high - low)
    return None


# --- the paper's statements ---


def statements(
    curves: dict[str, Curve], periods: dict[int, Curve], update_cycles: int
) -> list[dict[str, Any]]:
    """All statements. Update noise adds up, so its crossover belongs to a number of cycles.

    Fewer cycles than the paper's are too short to judge; more cycles are another experiment.
    """
    update, residual, offset, memory = (curves[screen] for screen in SCREENS)
    cycles = NoisePlan.update_cycles
    longer = f"{update_cycles} cycles: noise adds up over training, and the paper has {cycles}"
    of_update = {"near_baseline": near_baseline, "crossover": crossing_over, "low_noise": low_noise}
    return [
        *(
            check(update) if update_cycles <= cycles else said.missing(key, longer)
            for key, check in of_update.items()
        ),
        averaging(update, periods)
        if update_cycles <= cycles
        else said.missing("averaging", longer),
        monotone(residual),
        baselines(update, residual),
        smallest_offset(offset),
        orders(offset),
        correlation(memory),
        two_largest(memory),
        coherent(update, offset, memory),
    ]


def _up_to(curve: Curve, last: float) -> list[float]:
    """The amplitudes of a grid up to ``last``, without 0."""
    return [value for value in curve.values if 0 < value <= last + 1e-9]


def _farthest(curve: Curve, last: float) -> float:
    """The amplitude up to ``last`` at which heat is farthest from its baseline."""
    return max(_up_to(curve, last), key=lambda value: abs(curve.change(value, 0).percent))


def near_baseline(curve: Curve) -> dict[str, Any]:
    key, last = "near_baseline", BELOW_CROSSOVER
    if not curve.has(0, last):
        return said.missing(key, f"the grid lacks 0 or {last:.2f}")
    worst = _farthest(curve, last)
    change = curve.change(worst, 0)
    criteria = [said.check_change(key, "change", change, f"at {worst:.2f}")]
    return said.judge(key, criteria, last=last, change=change.percent, worst=worst)


def crossing_over(curve: Curve) -> dict[str, Any]:
    """Near the baseline before the paper's crossover, far above the baseline beyond it."""
    key, ends = "crossover", (BELOW_CROSSOVER, BEYOND_CROSSOVER)
    if not curve.has(0, *ends):
        return said.missing(key, f"the grid lacks 0, {ends[0]:.2f} or {ends[1]:.2f}")
    before, after = (curve.change(value, 0) for value in ends)
    criteria = [
        said.check_change(key, "change_before", before, f"at {ends[0]:.2f}"),
        said.check_change(key, "change_beyond", after, f"at {ends[1]:.2f}"),
    ]
    last = curve.values[-1]
    end = curve.change(last, 0).percent
    return said.judge(key, criteria, before=before.percent, after=after.percent, end=end, last=last)


def low_noise(curve: Curve) -> dict[str, Any]:
    """The mean change over all low amplitudes, so that no single amplitude is picked.

    The distance to the patterns is reported too: the paper warns that less heat need not be better.
    """
    key, low = "low_noise", _up_to(curve, LOW_NOISE)
    if not low or not curve.has(0):
        return said.missing(key, f"no amplitude up to {LOW_NOISE:.2f} was tested")
    change = curve.mean_change(low, 0)
    lowest = min(_up_to(curve, BELOW_CROSSOVER), key=curve.heat)
    distance, reference = (curve.mean(value, "pattern_distance") for value in (lowest, 0))
    return said.judge(
        key,
        [said.check_change(key, name, change) for name in ("change", "size_of_change")],
        percent=change.percent,
        last=low[-1],
        lowest=lowest,
        lowest_percent=curve.change(lowest, 0).percent,
        distance=distance,
        reference=reference,
    )


def averaging(update: Curve, periods: dict[int, Curve]) -> dict[str, Any]:
    """Update noise that is accumulated over M steps, up to the paper's range of online training.

    M = 1 is listed too; another statement judges it.
    """
    key, last = "averaging", BELOW_CROSSOVER
    changes = {
        m: (worst, curve.change(worst, 0))
        for m, curve in ({1: update} | periods).items()
        if curve.has(0) and _up_to(curve, last)
        for worst in [_farthest(curve, last)]
    }
    if set(changes) <= {1}:
        return said.missing(key, "no accumulated updates were tested")
    return said.judge(
        key,
        [
            said.check_change(key, "change", change, f"(M = {m}, at {worst:.2f})")
            for m, (worst, change) in changes.items()
            if m > 1
        ],
        "largest change up to σ_upd = {last:.2f}: "
        + ", ".join(f"{{m{m}:+.1f}} % at M = {m}" for m in changes),
        last=last,
        **{f"m{m}": change.percent for m, (_, change) in changes.items()},
    )


def _smallest_step(curve: Curve) -> tuple[float, float]:
    """Neighbours of the grid between which heat rises least, or falls most."""
    return min(pairwise(curve.values), key=lambda ends: curve.change(ends[1], ends[0]).mean)


def monotone(curve: Curve) -> dict[str, Any]:
    """The smallest step of the grid must be a rise, the largest only a part of the whole rise."""
    key = "monotone"
    if len(curve.values) < 3 or not curve.has(0):
        return said.missing(key, "fewer than three amplitudes")
    before, after = _smallest_step(curve)
    whole_rise = curve.change(curve.values[-1], curve.values[0])
    steps = [curve.change(high, low).mean for low, high in pairwise(curve.values)]
    finite = math.isfinite(whole_rise.mean) and whole_rise.mean > 0
    largest = 100 * max(steps) / whole_rise.mean if finite else math.inf
    return said.judge(
        key,
        [
            said.check_change(
                key,
                "smallest_step",
                curve.change(after, before),
                f"from {before:.2f} to {after:.2f}",
            ),
            said.check(key, "largest_step", largest),
        ],
        rising=sum(step > 0 for step in steps),
        count=len(steps),
        percent=whole_rise.percent,
        last=curve.values[-1],
        largest=largest,
    )


def baselines(update: Curve, residual: Curve) -> dict[str, Any]:
    """Two computers with independent samples, so their errors add in quadrature."""
    key = "baselines"
    if not (update.has(0) and residual.has(0)):
        return said.missing(key, "a baseline is missing")
    rows = {"update": update.at(0)[0].row, "residual": residual.at(0)[0].row}
    heats = {"update": update.heat(0), "residual": residual.heat(0)}
    error = math.hypot(*(row["heat_sem"] or 0.0 for row in rows.values()))
    scale = 100 / abs(heats["update"])
    percent, half = scale * (heats["residual"] - heats["update"]), 1.96 * scale * error
    criteria = [said.check(key, "difference", percent, (percent - half, percent + half))]
    lengths = {f"{k}_{n}": row[n] for k, row in rows.items() for n in ("cycles", "samples")}
    return said.judge(key, criteria, **heats, **lengths)


def smallest_offset(curve: Curve) -> dict[str, Any]:
    key, offsets = "smallest_offset", [value for value in curve.values if value > 0]
    if not offsets or not curve.has(0):
        return said.missing(key, "no offset was tested")
    change = curve.change(offsets[0], 0)
    criteria = [said.check_change(key, "change", change, f"at {offsets[0]:g}")]
    least = said.limit(key, "change")
    marked = [value for value in offsets if curve.change(value, 0).percent > least]
    return said.judge(
        key,
        criteria,
        "{percent:+.0f} % at μ_bias = {value:g}, the smallest tested (the paper gives no grid)"
        + ("; more than {least:.0f} % first at {first:g}" if marked else ""),
        percent=change.percent,
        value=offsets[0],
        least=least,
        first=marked[0] if marked else None,
    )


def orders(curve: Curve) -> dict[str, Any]:
    key = "orders"
    if not curve.has(0) or curve.values[-1] <= 0:
        return said.missing(key, "no offset was tested")
    largest, factor = curve.values[-1], said.limit(key, "factor")
    ratio = curve.ratio(largest, 0)
    reached = [value for value in curve.values if curve.ratio(value, 0) >= factor]
    return said.judge(
        key,
        [said.check_change(key, "factor", curve.change(largest, 0), f"at {largest:g}", unit=100)],
        "{ratio:.3g} times the heat without an offset at μ_bias = {value:g}"
        + ("; at least {factor:.0f} times first at {first:g}" if reached else ""),
        ratio=ratio,
        value=largest,
        factor=factor,
        first=reached[0] if reached else None,
    )


def correlation(curve: Curve) -> dict[str, Any]:
    key = "correlation"
    if len(curve.values) < 2 or not curve.has(0):
        return said.missing(key, "no correlation was tested")
    before, after = _smallest_step(curve)
    change, about = curve.change(after, before), f"from {before:g} to {after:g}"
    steps = [curve.change(high, low).mean > 0 for low, high in pairwise(curve.values)]
    return said.judge(
        key,
        [said.check_change(key, "smallest_step", change, about)],
        rising=sum(steps),
        count=len(steps),
        last=curve.values[-1],
        ratio=curve.ratio(curve.values[-1], 0),
    )


def two_largest(curve: Curve) -> dict[str, Any]:
    """The rises above ρ = 0 at the two largest correlations, against the largest other rise."""
    key, tested = "two_largest", [value for value in curve.values if value > 0]
    if len(tested) < 3 or not curve.has(0):
        return said.missing(key, "fewer than three correlations were tested")
    rises = {value: curve.change(value, 0) for value in tested}
    others = max(rises[value].percent for value in tested[:-2])
    unit = max(others, math.ulp(0.0))
    first, second = (rises[value] for value in tested[-2:])
    return said.judge(
        key,
        [
            said.check_change(key, "factor", rises[value], f"at {value:g}", unit)
            for value in tested[-2:]
        ],
        first=first.percent,
        first_value=tested[-2],
        second=second.percent,
        second_value=tested[-1],
        others=others,
    )


def coherent(update: Curve, offset: Curve, memory: Curve) -> dict[str, Any]:
    """Largest relative change of each screen, update noise below the paper's crossover."""
    key, below = "coherent", _up_to(update, BELOW_CROSSOVER)
    measured = all(curve.has(0) and len(curve.values) > 1 for curve in (update, offset, memory))
    if not measured or not below:
        return said.missing(key, "one of the screens was not measured")
    independent, of_offset, of_memory = (
        curve.change(_farthest(curve, last), 0)
        for curve, last in ((update, below[-1]), (offset, math.inf), (memory, math.inf))
    )
    unit = abs(independent.percent) or math.ulp(0.0)
    return said.judge(
        key,
        [
            said.check_change(key, "factor", change, name, unit)
            for name, change in (("(offset)", of_offset), ("(AR(1))", of_memory))
        ],
        offset=abs(of_offset.percent),
        memory=abs(of_memory.percent),
        independent=abs(independent.percent),
        last=below[-1],
    )
