"""The paper on perturbations: heat stays near its baseline up to a crossover; coherent errors
raise it most.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from thermoloom.measures.responses import Curve, ResponseChange
from thermoloom.studies import verdicts
from thermoloom.studies.noise.study import MEMORY, OFFSET, RESIDUAL, SCREENS, UPDATE, NoisePlan
from thermoloom.studies.verdicts import Evidence, Statements

said = Statements.beside(__file__)


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    curves = {name: evidence.responses.curve(name) for name in SCREENS}
    return {
        "quantities": quantities(curves),
        "statements": statements(curves, evidence.summary["cycles"]["update"]),
    }


def quantities(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives one of them."""
    near, marked = said.limit("crossover", "near"), said.limit("smallest_offset", "marked")
    note = "interpolated between the conditions of the grid"
    label = f"σ_upd that raises heat by {100 * near:.0f} %"
    amplitude = raised_at(curves[UPDATE], 1 + near)
    rows = [said.quantity("crossover", label, amplitude, digits=".3f", note=note)]
    for name, key, label in (
        (UPDATE, "update_baseline", "heat without noise, update screen"),
        (RESIDUAL, "residual_baseline", "heat without noise, residual screens"),
    ):
        if curves[name].has(0):
            rows.append(said.quantity(key, label, curves[name].heat(0), unit="E₀", digits=".1f"))
    for name, label in (
        (RESIDUAL, "heat at the largest σ_res, times the baseline"),
        (OFFSET, "heat at the largest offset, times that without"),
        (MEMORY, "heat at the largest ρ, times that at ρ = 0"),
    ):
        curve = curves[name]
        if curve.has(0) and len(curve.values) > 1:
            ratio = curve.ratio(curve.values[-1], 0)
            finite = ratio if math.isfinite(ratio) else None
            rows.append(said.quantity(f"{name} ratio", label, finite, digits=".3g"))
    label = f"offset that raises heat by {100 * marked:.0f} %"
    offset = raised_at(curves[OFFSET], 1 + marked)
    rows.append(said.quantity("offset_marked", label, offset, digits=".2g", note=note))
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


def statements(curves: dict[str, Curve], update_cycles: int) -> list[dict[str, Any]]:
    """All statements. Update noise adds up, so its crossover belongs to a number of cycles.

    Fewer cycles than the paper's are too short to judge; more cycles are another experiment.
    """
    update, residual, offset, memory = (curves[screen] for screen in SCREENS)
    cycles = NoisePlan.update_cycles
    longer = f"{update_cycles} cycles: noise adds up over training, the paper has {cycles}"
    of_update = {"near_baseline": near_baseline, "crossover": crossing_over, "low_noise": low_noise}
    return [
        *(
            check(update) if update_cycles <= cycles else said.missing(key, longer)
            for key, check in of_update.items()
        ),
        monotone(residual),
        baselines(update, residual),
        smallest_offset(offset),
        orders(offset),
        correlation(memory),
        two_largest(memory),
        coherent(update, offset, memory),
    ]


def near_baseline(curve: Curve) -> dict[str, Any]:
    near, last = said.limit("near_baseline", "near"), said.limit("near_baseline", "up_to")
    if not curve.has(0, last):
        return said.missing("near_baseline", f"the grid lacks 0 or {last:.2f}")
    within = _up_to(curve, last)
    changes = {value: curve.change(value, 0).percent for value in within}
    worst = max(changes, key=lambda value: abs(changes[value]))
    change, verdict = changes[worst], verdicts.holds_if(abs(changes[worst]) <= 100 * near)
    return said.statement(
        "near_baseline", verdict, last=within[-1], change=change, worst=worst, near=100 * near
    )


def _up_to(curve: Curve, last: float) -> list[float]:
    """The amplitudes of a grid up to ``last``, without 0."""
    return [value for value in curve.values if 0 < value <= last + 1e-9]


def crossing_over(curve: Curve) -> dict[str, Any]:
    """The neighbours of the grid between which heat leaves its baseline."""
    near, *ends = (said.limit("crossover", name) for name in ("near", "low", "high"))
    if not curve.has(0, *ends):
        return said.missing("crossover", f"the grid lacks 0, {ends[0]:.2f} or {ends[1]:.2f}")
    crossed = crossover(curve, 1 + near)
    where = (
        "heat never exceeds the baseline by {near:.0f} %"
        if crossed is None
        else "heat exceeds the baseline by {near:.0f} % between {low:.2f} and {high:.2f}"
    )
    low, high, _ = crossed or (None, None, None)
    before, after = (curve.change(value, 0).percent for value in ends)
    return said.statement(
        "crossover",
        verdicts.holds_if([low, high] == ends),
        where + f"; {{before:+.1f}} % at {ends[0]:.2f}, {{after:+.1f}} % at "
        f"{ends[1]:.2f}, {{end:+.1f}} % at {{last:.2f}}",
        near=100 * near,
        low=low,
        high=high,
        before=before,
        after=after,
        end=curve.change(curve.values[-1], 0).percent,
        last=curve.values[-1],
    )


def low_noise(curve: Curve) -> dict[str, Any]:
    """Heat before the crossover: below the baseline at most amplitudes, modestly, and resolved.

    The distance to the patterns is reported too: the paper warns that less heat need not be better.
    """
    last = said.limit("low_noise", "up_to")
    low = _up_to(curve, last)
    if not low or not curve.has(0):
        return said.missing("low_noise", f"no amplitude up to {last:.2f}")
    lowest = min(low, key=curve.heat)
    change = curve.change(lowest, 0)
    modest = -100 * said.limit("low_noise", "modest") <= change.percent < 0
    resolved = change.mean < 0 and change.resolved(said.limit("low_noise", "lowest"))
    below = sum(curve.heat(value) < curve.heat(0) for value in low)
    mostly = below > said.limit("low_noise", "share") * len(low)
    distance, reference = (curve.mean(value, "pattern_distance") for value in (lowest, 0))
    return said.statement(
        "low_noise",
        verdicts.DIFFERS
        if not modest
        else verdicts.HOLDS
        if resolved and mostly
        else verdicts.UNRESOLVED,
        below=below,
        count=len(low),
        last=low[-1],
        lowest=lowest,
        change=change.mean,
        error=change.error,
        percent=change.percent,
        distance=distance,
        reference=reference,
    )


def rising(curve: Curve, errors: float) -> tuple[str, list[ResponseChange]]:
    """Whether heat rises in every step of the grid, or from end to end without a resolved fall."""
    steps = [curve.change(after, before) for before, after in pairwise(curve.values)]
    if all(step.mean > 0 for step in steps):
        return verdicts.HOLDS, steps
    falls = any(step.mean <= 0 and step.resolved(errors) for step in steps)
    up = curve.heat(curve.values[-1]) > curve.heat(curve.values[0])
    return verdicts.UNRESOLVED if up and not falls else verdicts.DIFFERS, steps


def _rising(key: str, curve: Curve, **values: float) -> dict[str, Any]:
    """A statement on the number of steps of a grid in which heat rises."""
    verdict, steps = rising(curve, said.limit(key, "resolved"))
    counts = {"rising": sum(step.mean > 0 for step in steps), "count": len(steps)}
    return said.statement(key, verdict, **counts, last=curve.values[-1], **values)


def monotone(curve: Curve) -> dict[str, Any]:
    if len(curve.values) < 3 or not curve.has(0):
        return said.missing("monotone", "fewer than three amplitudes")
    percent = curve.change(curve.values[-1], 0).percent
    step = max(curve.change(after, before).mean for before, after in pairwise(curve.values))
    return _rising("monotone", curve, percent=percent, largest=100 * step / abs(curve.heat(0)))


def baselines(update: Curve, residual: Curve) -> dict[str, Any]:
    if not (update.has(0) and residual.has(0)):
        return said.missing("baselines", "a baseline is missing")
    rows = {"update": update.at(0)[0].row, "residual": residual.at(0)[0].row}
    heats = {"update": update.heat(0), "residual": residual.heat(0)}
    error = math.hypot(*(row["heat_sem"] or 0.0 for row in rows.values()))
    difference = heats["update"] - heats["residual"]
    resolved = abs(difference) > said.limit("baselines", "resolved") * error
    lengths = {f"{k}_{n}": row[n] for k, row in rows.items() for n in ("cycles", "samples")}
    verdict = verdicts.HOLDS if resolved else verdicts.UNRESOLVED
    return said.statement("baselines", verdict, **heats, **lengths)


def smallest_offset(curve: Curve) -> dict[str, Any]:
    offsets = [value for value in curve.values if value > 0]
    if not offsets or not curve.has(0):
        return said.missing("smallest_offset", "no offset was tested")
    change = curve.change(offsets[0], 0)
    least = 100 * said.limit("smallest_offset", "marked")
    resolved = change.resolved(said.limit("smallest_offset", "resolved"))
    marked = resolved and change.percent > least
    verdict = (
        verdicts.HOLDS if marked else verdicts.UNRESOLVED if change.mean > 0 else verdicts.DIFFERS
    )
    return said.statement(
        "smallest_offset", verdict, percent=change.percent, value=offsets[0], near=least
    )


def orders(curve: Curve) -> dict[str, Any]:
    if not curve.has(0) or curve.values[-1] <= 0:
        return said.missing("orders", "no offset was tested")
    ratio, factor = curve.ratio(curve.values[-1], 0), said.limit("orders", "factor")
    reached = [value for value in curve.values if curve.ratio(value, 0) >= factor]
    return said.statement(
        "orders",
        verdicts.holds_if(ratio >= factor),
        "{ratio:.3g} times the heat without at μ_bias = {value:g}"
        + ("; more than {factor:.0f} times from {first:g} on" if reached else ""),
        ratio=ratio,
        value=curve.values[-1],
        factor=factor,
        first=reached[0] if reached else None,
    )


def correlation(curve: Curve) -> dict[str, Any]:
    if len(curve.values) < 2 or not curve.has(0):
        return said.missing("correlation", "no correlation was tested")
    return _rising("correlation", curve, ratio=curve.ratio(curve.values[-1], 0))


def two_largest(curve: Curve) -> dict[str, Any]:
    """The rises above ρ = 0 at the two largest correlations, against the largest other rise."""
    tested = [value for value in curve.values if value > 0]
    if len(tested) < 3 or not curve.has(0):
        return said.missing("two_largest", "fewer than three correlations were tested")
    rises = [curve.change(value, 0).percent for value in tested]
    others = max(rises[:-2])
    factor = said.limit("two_largest", "factor")
    return said.statement(
        "two_largest",
        verdicts.holds_if(min(rises[-2:]) > factor * max(others, 0.0)),
        first=rises[-2],
        first_value=tested[-2],
        second=rises[-1],
        second_value=tested[-1],
        others=others,
    )


def coherent(update: Curve, offset: Curve, memory: Curve) -> dict[str, Any]:
    """Largest relative change of each screen, update noise below the paper's crossover."""
    measured = all(curve.has(0) and len(curve.values) > 1 for curve in (update, offset, memory))
    below = _up_to(update, said.limit("coherent", "up_to"))
    if not measured or not below:
        return said.missing("coherent", "one of the screens was not measured")
    independent, of_offset, of_memory = (
        max(abs(curve.change(value, 0).percent) for value in values)
        for curve, values in (
            (update, below),
            (offset, offset.values[1:]),
            (memory, memory.values[1:]),
        )
    )
    larger = min(of_offset, of_memory) > said.limit("coherent", "factor") * independent
    changes = {"offset": of_offset, "memory": of_memory, "independent": independent}
    return said.statement("coherent", verdicts.holds_if(larger), **changes, last=below[-1])
