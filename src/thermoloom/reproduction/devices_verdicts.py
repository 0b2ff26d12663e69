"""Devices are ours: headline numbers, and nothing of the paper's to judge."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("devices")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Quality on each device before and after recalibration."""
    summary = evidence.summary
    quantities = []
    for row in summary["conditions"]:
        name = row["label"] + (f" {row['strength']:g}" if row["strength"] else "")
        for when in ("before", "after"):
            key = f"{row['imperfection']}_{row['strength']:g}_{when}"
            label = f"{summary['measured']}, {name}: {when}"
            quantities.append(said.quantity(key, label, row[when], digits=".3f"))
    return {"quantities": quantities, "statements": []}
