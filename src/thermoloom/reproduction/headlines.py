"""Headline numbers of the experiments that are ours, of which the paper says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thermoloom.reproduction.paper import Rows, own_quantity


def devices(summary: dict[str, Any]) -> Rows:
    """Quality on the ideal device, and before and after recalibration wherever it had fallen."""
    ideal, *others = summary["conditions"]
    moments = {"before": "θ* as written", "after": "recalibrated"}
    return [
        own_quantity(
            f"{row['imperfection']}_{row['strength']:g}_{key}",
            f"{summary['measured']}, {row['label']}"
            + (f" {row['strength']:g}" if row["strength"] else "")
            + f": {when}",
            row[key],
            digits=".3f",
        )
        for row in (ideal, *(row for row in others if row["recovered"] is not None))
        for key, when in moments.items()
    ]


def digits(summary: dict[str, Any]) -> Rows:
    """How often a request is recognized, how diverse and how near to data the samples are."""
    machine = summary["machine"]
    measured, data = machine["measured"], machine["data"]
    samples = f"{measured['images']} samples"
    same_noise = f"{samples}; images with the same noise: {100 * data['asked']:.1f} %"
    rows: list[tuple[str, str, float | None, str, str]] = [
        ("asked", "samples recognized as the class requested", _percent(measured["asked"]), "%",
         same_noise),
        ("negatives", "negatives among them", _percent(measured["negatives"]), "%", ""),
        ("diversity", "diversity within a class, relative to the data's",
         _ratio(measured["diversity"], data["diversity"]), "", "both with thermal noise"),
        ("die", "… of the means of the drawn styles alone",
         _ratio(machine["style_means"]["diversity"], data["diversity"]), "", "without noise"),
        ("frechet", "Fréchet distance in the classifier's 128 features", measured["frechet"], "",
         f"{samples}, {measured['data']} images"),
    ]  # fmt: skip
    rows += [
        (f"kept {row['known']} {row['style']}",
         f"class kept, {row['known']} half known, style: {row['style']}",
         _percent(row["kept"]), "%", f"{row['images']} images")
        for row in summary["inpainting"]
    ]  # fmt: skip
    rows += [
        ("classified", "images classified by path likelihood", _percent(row["accuracy"]), "%",
         f"{row['images']} images")
        for row in summary["classes"][:1]
    ]  # fmt: skip
    return [
        own_quantity(key, label, value, unit=unit, note=note)
        for key, label, value, unit, note in rows
    ]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def frontier(summary: dict[str, Any]) -> Rows:
    """Heat at the ends of the curve, and how far trained computers are from it."""
    along = [row for row in summary["rows"] if row["rule"] == "optimum"]
    least, schedule = summary["least"], summary["schedule"]
    excess = {
        "excess": "loss above the optimum's",
        "least_excess": "least that its expected heat allows",
    }
    found = [
        own_quantity(f"heat_{row['weight']:g}", f"heat at λ = {row['weight']:g}", row["heat"],
                     unit="E₀", digits=".1f")
        for row in (along[0], along[-1])[: len(along)]
    ]  # fmt: skip
    found += [
        own_quantity("least_heat", "least heat of the curve", least["heat"], unit="E₀"),
        own_quantity("least_weight", "at λ", least["weight"]),
    ]
    found += [
        own_quantity(f"{row['rule']}_{key}", f"{row['rule']}: {label}", row[key], unit="nats",
                     digits=".1f")
        for row in summary["trained"]
        for key, label in excess.items()
    ]  # fmt: skip
    kinds = {"own": "even windows, the paper's ramp", "best": "searched"}
    for kind, label in kinds.items() if schedule is not None else ():
        found += [
            own_quantity(f"schedule_{kind}", f"heat on demand, {label}", schedule[kind]["heat"],
                         unit="E₀", digits=".1f"),
            own_quantity(f"above_{kind}", f"Σ above the speed limit, {label}",
                         schedule[f"{kind}_above"], unit="%", digits=".1f"),
        ]  # fmt: skip
    return found


def ledger(summary: dict[str, Any]) -> Rows:
    """Heat and speed limit of each kind of computer, and what of online − batch is distance."""
    found = [
        own_quantity(f"{row['rule']}_{key}", f"{label}, {row['rule']}", row[key], unit="kT",
                     digits=".0f")
        for row in summary["means"]
        for key, label in (("heat", "heat of an image"), ("speed_limit", "speed limit"))
    ]  # fmt: skip
    return found + [
        own_quantity(f"difference_{row['key']}", f"online − batch, {row['label']}",
                     row["difference"], interval=row["interval"], unit="kT", digits=".1f")
        for row in summary["differences"]
    ]  # fmt: skip


def wiring(summary: dict[str, Any]) -> Rows:
    """How few wires, and how short, are enough for three digits; how often ten are recognized."""
    found = [
        own_quantity(f"{row['machine']}_{row['wiring']}_{key}",
                     f"{row['machine']} digits, {row['wiring']}: {label} that is enough",
                     row[key], unit="% of complete", digits=".2g")
        for row in summary["least"]
        for key, label in (("percent_wires", "wires"), ("percent_length", "length of wire"))
    ]  # fmt: skip
    return found + [
        own_quantity(f"ten_{row['wiring']}_asked",
                     f"ten digits, {row['wiring']} {row['value'] or ''}".strip() + ": as asked for",
                     100 * row["asked"], unit="%")
        for row in summary["asked"]
    ]  # fmt: skip


HEADLINES: dict[str, Callable[[dict[str, Any]], Rows]] = {
    "devices": devices, "digits": digits, "frontier": frontier, "ledger": ledger, "wiring": wiring,
}  # fmt: skip
"""By the name of the experiment."""
