"""The paper on fifteen prototypes: online training again saves heat, at similar quality."""

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
            change(said, evidence, "softmax", "max_softmax"),
            change(said, evidence, "target_fraction", "target_fraction"),
            change(said, evidence, "diversity", "pairwise_distance"),
            change(said, evidence, "pattern_distance", "pattern_distance"),
        ],
    }
