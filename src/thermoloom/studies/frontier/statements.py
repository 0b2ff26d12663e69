"""Headline numbers of the frontier; the paper says nothing about them."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.verdicts import Evidence, own_quantity

EXCESS = {
    "excess": "loss above the optimum's",
    "least_excess": "least loss above the optimum's at its expected heat",
}
SCHEDULES = {"unchanged": "equal windows, the paper's ramp", "searched": "searched"}


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat along the curve, distance of trained computers from it, and heat of both schedules."""
    summary = evidence.summary
    curve = [row for row in summary["rows"] if row["rule"] == OPTIMUM]
    ends = {row["weight"]: row["heat"] for row in (curve[0], curve[-1])}
    rows = [
        *((f"heat_{w:g}", f"heat at λ = {w:g}", heat, "E₀", ".1f") for w, heat in ends.items()),
        ("least_heat", "least heat of the curve", summary["least"]["heat"], "E₀", ".2f"),
        ("least_weight", "λ of least heat", summary["least"]["weight"], "", ".2f"),
    ]
    for row in summary["trained"]:
        for key, label in EXCESS.items():
            name = row["rule"]
            rows.append((f"{name}_{key}", f"{name}: {label}", row[key], "nats", ".1f"))
    for kind, label in SCHEDULES.items() if summary["schedule"] else ():
        row = summary["schedule"][kind]
        heat, above = f"heat on demand, {label}", f"entropy above the speed limit, {label}"
        rows.append((f"schedule_{kind}", heat, row["heat"], "E₀", ".1f"))
        rows.append((f"above_{kind}", above, row["percent_above"], "%", ".1f"))
    return {
        "quantities": [
            own_quantity(key, label, number, unit=unit, digits=digits)
            for key, label, number, unit, digits in rows
        ]
    }
