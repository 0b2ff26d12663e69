"""Devices are ours: headline numbers, and nothing of the paper's to judge."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("devices")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Quality on the ideal device, and before and after recalibration wherever it had fallen."""
    ideal, *others = evidence.summary["conditions"]
    quantities = []
    for row in (ideal, *(row for row in others if row["recovered"] is not None)):
        name = row["label"] + (f" {row['strength']:g}" if row["strength"] else "")
        for key, when in (("before", "θ* as written"), ("after", "recalibrated")):
            label = f"{evidence.summary['measured']}, {name}: {when}"
            own = f"{row['imperfection']}_{row['strength']:g}_{key}"
            quantities.append(said.quantity(own, label, row[key], digits=".3f"))
    return {"quantities": quantities, "statements": []}
