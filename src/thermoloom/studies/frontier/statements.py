"""Headline numbers of the frontier; the paper says nothing about them."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.verdicts import Evidence, own_quantity

EXCESS = {
    "excess": "loss above the optimum's",
    "least_excess": "least that its expected heat allows",
}
SCHEDULES = {"unchanged": "even windows, the paper's ramp", "searched": "searched"}


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat along the curve, distance of trained computers from it, and heat of both schedules."""
    summary = evidence.summary
    schedule = summary["schedule"] or {}
    return {
        "quantities": [
            *_curve(summary),
            *(
                own_quantity(
                    f"{row['rule']}_{key}", f"{row['rule']}: {label}", row[key], unit="nats",
                    digits=".1f",
                )
                for row in summary["trained"]
                for key, label in EXCESS.items()
            ),
            *(
                quantity
                for kind, label in SCHEDULES.items()
                if kind in schedule
                for quantity in _schedule(kind, label, schedule[kind])
            ),
        ]
    }  # fmt: skip


def _curve(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Heat at the ends of the curve, and the least along it."""
    curve = [row for row in summary["rows"] if row["rule"] == OPTIMUM]
    ends = {row["weight"]: row["heat"] for row in (curve[0], curve[-1])}
    least = summary["least"]
    return [
        *(
            own_quantity(f"heat_{w:g}", f"heat at λ = {w:g}", heat, unit="E₀", digits=".1f")
            for w, heat in ends.items()
        ),
        own_quantity("least_heat", "least heat of the curve", least["heat"], unit="E₀"),
        own_quantity("least_weight", "at λ", least["weight"]),
    ]


def _schedule(kind: str, label: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        own_quantity(
            f"schedule_{kind}", f"heat on demand, {label}", row["heat"], unit="E₀", digits=".1f"
        ),
        own_quantity(
            f"above_{kind}", f"Σ above the speed limit, {label}", row["percent_above"], unit="%",
            digits=".1f",
        ),
    ]  # fmt: skip
