"""The ledger: what the heat of an image is spent on, for pairs, the optimum and the first machine.

heat          by part, and along the steps, with the discretization error
dissipation   βQ + ΔS between the speed limit W₂²/(μk_BT t_f) and a Gaussian bound on ΔS
distance      how much of online − batch is distance travelled
first code    hidden units that copy pixels, 100 cycles: the machine that the method began with
free energy   of a small machine of the same kind, with error bars (``small_machine``)
joules        at a temperature, beside Landauer's bound and the user's prices (``prices``)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.export.physical_units import ROOM_TEMPERATURE, joules
from thermoloom.machine.parameters import layout
from thermoloom.measures.dissipation import FEWEST
from thermoloom.measures.heat_ledger import Ledger
from thermoloom.measures.paired import RULES
from thermoloom.measures.prices import event_counts, price_list, price_rows
from thermoloom.measures.statistics import compare_pairs
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import STAGES, Case, finished
from thermoloom.studies.gather import Gathered, Record, save_rows
from thermoloom.studies.ledger.small_machine import free_energy_bounds, has_pymbar, shrunk
from thermoloom.studies.pairs import PairPlan, collect_pairs, optimum_records
from thermoloom.studies.study import SECTION, Figure, Study, brief

SWITCHES, REST = 40, 16.0
"""Jumps in which couplings are switched on, and the time after each."""
MEANS = ("heat", "work", "step_error", "speed_limit", "share", "most_entropy", "most_production")
"""Columns that are averaged by rule."""
DIFFERENCES = {
    "heat": "heat",
    "speed_limit": "speed limit: distance travelled",
    "most_entropy": "entropy of the states, upper bound",
}
"""Columns whose difference online − batch is reported, with their labels."""


@dataclass(frozen=True)
class LedgerPlan(PairPlan):
    """Pairs, the optimum beside them, and what an image costs besides heat."""

    first_cycles: int = 100
    """Cycles of the machine whose hidden units copy pixels."""
    free_energy_pixels: int = 49
    """Pixels of the machine whose free energy is measured, a square number; 0: none."""
    free_energy_samples: int = 200
    temperature: float = ROOM_TEMPERATURE
    """Kelvin, at which k_BT is turned into joules."""
    price_read: float | None = None
    """Joules for reading one pixel; None: not charged."""
    price_write: float | None = None
    """Joules for writing one coupling or bias."""
    price_hold: float | None = None
    """Joules for holding one label unit during one generation."""
    price_list: str = ""
    """Name of a list (z1, dtca, random-bit, landauer) for prices that are not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("temperature", "price_read", "price_write", "price_hold"):
            number = getattr(self, key)
            if number is not None and not number > 0:
                raise UserError(f"{SECTION}.{key} = {number:g}: must be positive")
        if self.price_list:
            price_list(self.price_list, f"{SECTION}.price_list")
        if self.settings.generation.samples < FEWEST:
            raise UserError(
                f"generation.samples = {self.settings.generation.samples}: at least {FEWEST} are "
                "needed to bound dissipation"
            )

    @property
    def prices(self) -> dict[str, float | None]:
        """Joules by event: the user's prices, then those of the named list."""
        prices = {"read": self.price_read, "write": self.price_write, "hold": self.price_hold}
        if self.price_list:
            listed = price_list(self.price_list, f"{SECTION}.price_list").prices
            for event in ("read", "write", "hold", "relax"):
                if prices.get(event) is None and event in listed:
                    prices[event] = listed[event].joules
        return prices

    @property
    def first_code_cases(self) -> list[Case]:
        """The machine of the method's first code, trained by both rules."""
        seed = self.seeds[0]
        machine, training = {"code": "copy"}, {"cycles": self.first_cycles}
        return [
            self.case(
                f"copy, {rule}",
                seed,
                self.computer(rule, seed).updated({"machine": machine, "training": training}),
            )
            for rule in RULES
        ]

    @property
    def free_energy_case(self) -> Case:
        """The free energy of a small machine."""
        return Case(
            {"pixels": self.free_energy_pixels},
            shrunk(self.optimum(self.seeds[0]), self.free_energy_pixels),
            free_energy_bounds,
            {"samples": self.free_energy_samples, "switches": SWITCHES, "rest": REST},
        )


def cases(plan: LedgerPlan, folder: Path) -> list[Case]:
    """The optimum, the pairs, the first machine, and a free energy where it can be measured."""
    computers = [*plan.optimum_cases, *plan.pair_cases, *plan.first_code_cases]
    if not plan.free_energy_pixels:
        return computers
    free_energy = plan.free_energy_case
    measurable = has_pymbar() or finished(folder / free_energy.path) is not None
    return [*computers, free_energy] if measurable else computers


def summarize(plan: LedgerPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Save one row per computer, and summarize the rows."""
    finite, pairs = gathered.finite, collect_pairs(plan, gathered)
    first_code = [r for case in plan.first_code_cases for r in finite.where(**case.labels)]
    computers = [*pairs.records, *optimum_records(gathered, pairs.seeds), *first_code]
    rows = [ledger_row(record) for record in computers]
    parts = [{**record.labels, **row["parts"]} for record, row in zip(computers, rows, strict=True)]
    save_rows(run, "ledger", [{k: v for k, v in row.items() if k != "parts"} for row in rows])
    save_rows(run, "parts", parts)
    machine, samples = plan.settings.machine, plan.settings.generation.samples
    means = {rule: mean_row(rule, rows) for rule in dict.fromkeys(row["rule"] for row in rows)}
    heat = joules(machine, means["online"]["heat"] * machine.kT, plan.temperature)
    free_energy, without_free_energy = _free_energy(plan, gathered)
    return {
        "free_energy": free_energy,
        "seeds": pairs.seeds,
        "pairs": len(pairs.seeds),
        "missing": [*pairs.missing, *finite.missing, *without_free_energy],
        "samples": samples,
        "first_cycles": plan.first_cycles,
        "kT": machine.kT,
        "rows": rows,
        "parts": list(layout(machine).parts),
        "means": list(means.values()),
        "differences": differences(rows),
        "joules": joule_rows(plan, len(pairs.patterns), list(means.values())),
        "prices": price_rows(heat, plan.prices, event_counts(machine, samples)),
        "timing": gathered.seconds(STAGES)
        | ({} if free_energy is None else {"free energy": free_energy["seconds"]}),
    }


def _free_energy(
    plan: LedgerPlan, gathered: Gathered
) -> tuple[dict[str, Any] | None, Sequence[str]]:
    """The free energy, or a line that says why it is missing although the plan includes it."""
    record = gathered.one(pixels=plan.free_energy_pixels)
    if record is not None:
        refusal = record.results["refused"]
        return record.results, [f"the free energy: {refusal}"] if refusal else []
    if plan.free_energy_pixels and not has_pymbar():
        return None, ["the free energy needs pymbar (the extra free-energy)"]
    return None, []


# --- rows ---


def ledger_row(record: Record) -> dict[str, Any]:
    """The ledger of one computer, in kT; its heat by part."""
    machine = record.settings.machine
    ledger = Ledger(machine, record.archive)
    bounds = ledger.dissipation
    assert bounds is not None  # the plan refuses too few samples
    least_production, most_production = bounds.production
    return {
        **record.labels,
        "heat": bounds.heat.mean,
        "heat_sem": bounds.heat.sem,
        "work": ledger.work.mean / machine.kT,
        "step_error": ledger.discretization_error.mean / machine.kT,
        "first_law_error": ledger.first_law_error,
        "distance": bounds.distance,
        "speed_limit": least_production,
        "speed_limit_sem": bounds.speed_limit.sem,
        "share": bounds.share,
        "most_entropy": bounds.entropy_change.mean,
        "most_production": most_production,
        "parts": {
            part: sum(stage["heat_parts"][part] for stage in ledger.stages) / machine.kT
            for part in ledger.parts
        },
    }


def mean_row(rule: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the computers of a rule."""
    computers = [row for row in rows if row["rule"] == rule]
    parts = computers[0]["parts"]
    return {
        "rule": rule,
        "computers": len(computers),
        **{key: float(np.mean([row[key] for row in computers])) for key in MEANS},
        "percent": 100 * float(np.mean([row["share"] for row in computers])),
        "parts": {p: float(np.mean([row["parts"][p] for row in computers])) for p in parts},
    }


def differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """online − batch in pairs: heat, and the part of it that is distance travelled."""
    batch, online = ([row for row in rows if row["rule"] == rule] for rule in RULES)
    compared = {
        key: compare_pairs([row[key] for row in batch], [row[key] for row in online])
        for key in DIFFERENCES
    }
    heat = compared["heat"].mean_difference
    return [
        {
            "key": key,
            "label": DIFFERENCES[key],
            "difference": comparison.mean_difference,
            "interval": comparison.interval,
            "percent": 100 * comparison.mean_difference / heat if heat else None,
        }
        for key, comparison in compared.items()
    ]


def joule_rows(
    plan: LedgerPlan, patterns: int, means: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Heat and bounds of an image in kT and in joules, beside Landauer's bound."""
    machine = plan.settings.machine
    energies = {
        **{f"heat of an image, {row['rule']}": row["heat"] for row in means},
        **{f"speed limit, {row['rule']}": row["speed_limit"] for row in means},
        "Landauer: a label of ten classes, ln 10": math.log(10),
        f"Landauer: which of the {patterns} patterns, ln {patterns}": math.log(patterns),
        f"Landauer: a black-and-white image, {machine.visible} ln 2": machine.visible * math.log(2),
    }
    return [
        {
            "label": label,
            "kT": energy,
            "joules": joules(machine, energy * machine.kT, plan.temperature),
        }
        for label, energy in energies.items()
    ]


STUDY = Study(
    name="ledger",
    title="The ledger: what the heat of an image is spent on",
    question="Beyond the paper: what is the heat of an image spent on?",
    presets={
        "paper": LedgerPlan(),
        "quick": LedgerPlan(
            settings=brief(60, 40),
            seeds=(101,),
            first_cycles=20,
            free_energy_pixels=16,
            free_energy_samples=40,
        ),
    },
    cases=cases,
    summarize=summarize,
    figures=(Figure("ledger", "What the heat is spent on", "draw_ledger"),),
    order=8,
    together=True,
)
