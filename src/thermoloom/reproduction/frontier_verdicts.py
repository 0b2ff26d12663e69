"""The frontier is ours: headline numbers, and nothing of the paper's to judge."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("frontier")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat at the ends of the curve, and how far trained computers are from it."""
    rows = evidence.summary["rows"]
    along = [row for row in rows if row["rule"] == "optimum"]
    quantities = [
        said.quantity(
            f"heat_{row['weight']:g}",
            f"heat at λ = {row['weight']:g}",
            row["heat"],
            unit="E₀",
            digits=".1f",
        )
        for row in (along[0], along[-1])[: len(along)]
    ]
    least = evidence.summary["least"]
    quantities += [
        said.quantity("least_heat", "least heat of the curve", least["heat"], unit="E₀"),
        said.quantity("least_weight", "at λ", least["weight"]),
    ]  # fmt: skip
    for row in evidence.summary["trained"]:
        for key, label in (
            ("excess", "loss above the optimum's"),
            ("least_excess", "least that its expected heat allows"),
        ):
            name = f"{row['rule']}: {label}"
            found = said.quantity(f"{row['rule']}_{key}", name, row[key], unit="nats",
                                   digits=".1f")  # fmt: skip
            quantities.append(found)
    schedule = evidence.summary["schedule"]
    if schedule is not None:
        for kind, label in (("own", "even windows, the paper's ramp"), ("best", "searched")):
            quantities += [
                said.quantity(f"schedule_{kind}", f"heat on demand, {label}",
                               schedule[kind]["heat"], unit="E₀", digits=".1f"),
                said.quantity(f"above_{kind}", f"Σ above the speed limit, {label}",
                               schedule[f"{kind}_above"], unit="%", digits=".1f"),
            ]  # fmt: skip
    return {"quantities": quantities, "statements": []}
