"""The paper on fifteen prototypes: less heat online again, and what becomes of quality."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction.comparison import change, lower_heat, quantities
from thermoloom.reproduction.evidence import Evidence

NAME = "prototypes"


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    return {
        "quantities": quantities(NAME, evidence.summary),
        "statements": [
            lower_heat(NAME, evidence),
            change(NAME, evidence, "softmax", "quality.max_softmax", 0),
            change(NAME, evidence, "target_fraction", "quality.target_fraction", 0),
            change(NAME, evidence, "diversity", "quality.pairwise_distance", -1),
            change(NAME, evidence, "prototype_distance", "quality.prototype_distance", +1),
        ],
    }
