"""Headline numbers of the devices; the paper says nothing about them."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.devices.study import device_name
from thermoloom.studies.verdicts import Evidence, own_quantity


def judge(evidence: Evidence) -> dict[str, Any]:
    """Quality on the ideal device, and before and after recalibration wherever it had fallen."""
    ideal, *others = evidence.summary["conditions"]
    fallen = [row for row in others if row["recovered"] is not None]
    quantities = [
        own_quantity(
            f"{row['imperfection']}_{row['strength']:g}_{key}",
            f"{evidence.summary['measured']}, {device_name(row)}: {moment}",
            row[key],
            digits=".3f",
        )
        for row in (ideal, *fallen)
        for key, moment in (("before", "θ* as written"), ("after", "after recalibration"))
    ]
    return {"quantities": quantities}
