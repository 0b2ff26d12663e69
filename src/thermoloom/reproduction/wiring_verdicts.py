"""What a wire buys is ours: headline numbers, and nothing of the paper's to judge."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("wiring")


def judge(evidence: Evidence) -> dict[str, Any]:
    """How few wires, and how short, are enough for three digits; how often ten are recognized."""
    quantities = []
    for row in evidence.summary["least"]:
        for key, label in (("percent_wires", "wires"), ("percent_length", "length of wire")):
            quantities.append(
                said.quantity(
                    f"{row['machine']}_{row['wiring']}_{key}",
                    f"{row['machine']} digits, {row['wiring']}: {label} that is enough",
                    row[key],
                    unit="% of complete",
                    digits=".2g",
                )
            )
    for row in evidence.summary["asked"]:
        label = f"ten digits, {row['wiring']} {row['value'] or ''}".strip()
        key = f"ten_{row['wiring']}_asked"
        found = said.quantity(key, f"{label}: as asked for", 100 * row["asked"], unit="%")
        quantities.append(found)
    return {"quantities": quantities, "statements": []}
