"""The paper on fifteen prototypes: less heat online again, and what becomes of quality."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.pair_statements import change, lower_heat, quantities
from thermoloom.studies.verdicts import Evidence, Statements

said = Statements.beside(__file__)


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    return {
        "quantities": quantities(said, evidence.summary),
        "statements": [
            lower_heat(said, evidence),
            change(said, evidence, "softmax", "quality.max_softmax", 0),
            change(said, evidence, "target_fraction", "quality.target_fraction", 0),
            change(said, evidence, "diversity", "quality.pairwise_distance", -1),
            change(said, evidence, "pattern_distance", "quality.pattern_distance", +1),
        ],
    }
