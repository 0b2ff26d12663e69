"""What an image costs besides heat, at prices that the user gives.

    cost = Σ count · price          an entry without a price is counted but not charged

Another entry is one line of ``PRICES`` and one field of the plan. No device is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout


@dataclass(frozen=True)
class Priced:
    """Something that happens a number of times for every image."""

    label: str
    count: Callable[[Machine, int], float]
    """``count(machine, samples)``: how often, for each of so many images."""


def _written_parameters(machine: Machine, samples: int) -> float:
    """Parameters of one stage are written once for all samples, those of several for every one."""
    edges = sum(block.edges for block in layout(machine).blocks)
    return edges / samples if machine.stages == 1 else float(edges * machine.stages)


PRICES = {
    "price_read": Priced("reading a pixel", lambda machine, _: float(machine.visible)),
    "price_write": Priced("writing a coupling or bias", _written_parameters),
    "price_hold": Priced(
        "holding a label unit", lambda machine, _: float(machine.size_of("label"))
    ),
}
"""By the field of the plan that holds the price, in joules."""


def price_rows(
    heat: float, prices: Mapping[str, float | None], machine: Machine, samples: int
) -> list[dict[str, Any]]:
    """The entries of an image, most expensive first, those without a price last.

    ``heat``: that of an online computer, in joules.
    """
    rows: list[dict[str, Any]] = [
        {"label": "heat (online)", "count": 1.0, "price": None, "joules": heat}
    ]
    for key, priced in PRICES.items():
        count, price = priced.count(machine, samples), prices[key]
        cost = None if price is None else count * price
        rows.append({"label": priced.label, "count": count, "price": price, "joules": cost})
    return sorted(rows, key=lambda row: math.inf if row["joules"] is None else -row["joules"])
