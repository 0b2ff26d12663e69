"""The numbers that head the report, and sentences that they can confirm or contradict."""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.runs.formats import only
from thermoloom.studies.verdicts import Evidence, Statements, holds_if, own_quantity

said = Statements.beside(__file__)


def judge(evidence: Evidence) -> dict[str, Any]:
    """Heat at the lowest and the highest temperature, and whether it rises."""
    table = evidence.table("heats")
    temperatures = sorted(set(table["temperature"].tolist()))
    cold, warm = (
        float(np.mean(only(table, temperature=t)["heat"]))
        for t in (temperatures[0], temperatures[-1])
    )
    rise = 100 * (warm / cold - 1)
    return {
        "quantities": [
            own_quantity("cold", f"mean heat at k_BT = {temperatures[0]:g}", cold, unit="E₀"),
            own_quantity("warm", f"mean heat at k_BT = {temperatures[-1]:g}", warm, unit="E₀"),
        ],
        "statements": [
            said.statement("rises", holds_if(rise > said.limit("rises", "percent")), rise=rise)
        ],
    }
