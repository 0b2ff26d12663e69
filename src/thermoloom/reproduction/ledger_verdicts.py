"""The ledger is ours: headline numbers, and nothing of the paper's to judge."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("ledger")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat and speed limit of each kind of computer, and what of online − batch is distance."""
    summary = evidence.summary
    quantities = []
    for row in summary["means"]:
        quantities += [
            said.quantity(f"{row['rule']}_{key}", f"{label}, {row['rule']}", row[key],
                           unit="kT", digits=".0f")
            for key, label in (("heat", "heat of an image"), ("speed_limit", "speed limit"))
        ]  # fmt: skip
    quantities += [
        said.quantity(f"difference_{row['key']}", f"online − batch, {row['label']}",
                       row["difference"], interval=row["interval"], unit="kT", digits=".1f")
        for row in summary["differences"]
    ]  # fmt: skip
    return {"quantities": quantities, "statements": []}
