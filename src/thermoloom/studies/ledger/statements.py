"""Headline numbers of the ledger; the paper says nothing about them."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.verdicts import Evidence, own_quantity

BY_RULE = {"heat": "heat of an image", "speed_limit": "speed limit"}


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat and speed limit of each kind of computer, and how much of online − batch is distance."""
    means = [
        own_quantity(
            f"{row['rule']}_{key}", f"{label}, {row['rule']}", row[key], unit="kT", digits=".0f"
        )
        for row in evidence.summary["means"]
        for key, label in BY_RULE.items()
    ]
    differences = [
        own_quantity(
            f"difference_{row['key']}",
            f"online − batch, {row['label']}",
            row["difference"],
            interval=row["interval"],
            unit="kT",
            digits=".1f",
        )
        for row in evidence.summary["differences"]
    ]
    return {"quantities": means + differences}
