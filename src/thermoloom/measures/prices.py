"""Cost of an image besides heat: events are counted, and a price list charges them.

    cost = Σ count · price          an event without a price is counted but not charged

Named lists with source and evidence are in ``data/prices.toml``; users may set prices themselves.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout

EVENTS = {
    "read": "reading a pixel",
    "write": "writing a coupling or bias",
    "hold": "holding a clamped unit",
    "update": "updating a p-bit",
    "relax": "one relaxation time of a unit",
}
"""Events that are counted for every image, in words."""
EVIDENCE = ("measured", "simulated", "assumed")


@dataclass(frozen=True)
class Price:
    """Joules of one event, and the evidence for them."""

    joules: float
    evidence: str
    """One of ``EVIDENCE``."""
    note: str = ""

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE or not self.joules > 0:
            raise ValueError(f"{self}: joules must be positive, evidence among {EVIDENCE}")


@dataclass(frozen=True)
class PriceList:
    """Prices of events from one source."""

    name: str
    title: str
    source: str
    prices: Mapping[str, Price]
    """By event; an event that is missing is not charged."""

    def costs(self, counts: Mapping[str, float]) -> dict[str, float | None]:
        """Joules by event; None where there is no price."""
        charged = {event: self.prices.get(event) for event in counts}
        return {
            event: None if price is None else counts[event] * price.joules
            for event, price in charged.items()
        }

    def total(self, counts: Mapping[str, float]) -> float:
        """Joules of all events that have a price."""
        return sum(cost for cost in self.costs(counts).values() if cost is not None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each price, for a table."""
        return [
            {"list": self.name, "event": EVENTS[event], "joules": price.joules,
             "evidence": price.evidence, "note": price.note, "source": self.source}
            for event, price in self.prices.items()
        ]  # fmt: skip


@cache
def price_lists() -> dict[str, PriceList]:
    """All named price lists."""
    tables = tomllib.loads((files("thermoloom") / "data" / "prices.toml").read_text("utf-8"))
    return {
        name: PriceList(
            name,
            table["title"],
            table["source"],
            {event: Price(**table[event]) for event in EVENTS if event in table},
        )
        for name, table in tables.items()
    }


def price_list(name: str, setting: str) -> PriceList:
    """The list of this name; ``setting``: the setting that names it."""
    if name not in price_lists():
        raise UserError(f"{setting} = {name}: must be one of {', '.join(price_lists())}")
    return price_lists()[name]


def event_counts(machine: Machine, images_per_writing: float) -> dict[str, float]:
    """Events of one image of a Langevin machine.

    Parameters of a single stage are written once for ``images_per_writing`` images, those of
    several stages for every image. A relaxation time is 1/(μV″(0)) of the reference potential.
    """
    edges = sum(block.edges for block in layout(machine).blocks)
    time = machine.generation_steps * machine.dt * machine.mobility
    return {
        "read": float(machine.visible),
        "write": float(edges * machine.stages)
        if machine.stages > 1
        else edges / images_per_writing,
        "hold": float(machine.size_of("label")),
        "relax": machine.units * time * float(machine.potential.curvature(0.0)),
    }


def price_rows(
    heat: float, prices: Mapping[str, float | None], counts: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The costs of an image, most expensive first, those without a price last.

    ``heat``: heat of an online computer, in joules; ``prices``: joules by event.
    """
    rows: list[dict[str, Any]] = [
        {"label": "heat (online)", "count": 1.0, "price": None, "joules": heat}
    ]
    for event, price in prices.items():
        cost = None if price is None else counts[event] * price
        entry = {"label": EVENTS[event], "count": counts[event], "price": price, "joules": cost}
        rows.append(entry)
    return sorted(rows, key=lambda row: math.inf if row["joules"] is None else -row["joules"])
