"""The ledger: what the heat of an image is spent on, for pairs, the optimum and the first machine.

heat          by part, and along the steps, with the discretization error
dissipation   βQ + ΔS between the speed limit W₂²/(μk_BT t_f) and an entropy of few directions
distance      how much of online − batch is distance travelled
first code    hidden units that copy pixels, 100 cycles: the machine that the method began with
free energy   of a small machine of the same kind, with error bars (``ledger.switched``)
joules        at a temperature, beside Landauer's bound and prices that the user gives
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.ledger.switched import available, small
from thermoloom.experiments.optimum import optimum_measures, optimum_model, optimum_models
from thermoloom.experiments.pair_tables import timing
from thermoloom.experiments.pairs import PairPlan, Pairs, collect
from thermoloom.experiments.plan import SECTION, Experiment, brief
from thermoloom.experiments.results import Model, save_rows
from thermoloom.experiments.works import Work
from thermoloom.export.physical_units import ROOM_TEMPERATURE, joules
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.measures.dissipation import FEWEST
from thermoloom.measures.heat_ledger import Ledger
from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import compare_pairs
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings

SWITCHES, REST = 40, 16.0
"""Jumps in which couplings are switched on, and the time after each."""
PRICES = {
    "price_read": "reading a pixel",
    "price_write": "writing a coupling or bias",
    "price_hold": "holding a label unit",
}


@dataclass(frozen=True)
class LedgerPlan(PairPlan):
    """Pairs, the optimum beside them, and what an image costs besides heat."""

    first_cycles: int = 100
    """Cycles of the machine whose hidden units copy pixels."""
    free_energy_pixels: int = 49
    """Pixels of the machine whose free energy is measured, a square; 0: none."""
    free_energy_samples: int = 200
    temperature: float = ROOM_TEMPERATURE
    """Kelvin, at which k_BT is turned into joules."""
    price_read: float | None = None
    """Joules for reading one pixel; not counted if not given. No device is assumed."""
    price_write: float | None = None
    """Joules for writing one coupling or bias."""
    price_hold: float | None = None
    """Joules for holding one label unit during one generation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("temperature", *PRICES):
            value = getattr(self, key)
            if value is not None and not value > 0:
                raise UserError(f"{SECTION}.{key} = {value:g}: must be positive")
        if self.settings.generation.samples < FEWEST:
            raise UserError(
                f"generation.samples = {self.settings.generation.samples}: at least {FEWEST} are "
                "needed to bound dissipation"
            )

    def first(self, rule: str) -> Settings:
        """The machine of the method's first code, trained by a rule."""
        return self.model(rule, self.seeds[0]).updated(
            {"machine": {"code": "copy"}, "training": {"cycles": self.first_cycles}}
        )

    @property
    def switched(self) -> Work | None:
        """The free energy of a small machine; None where none is asked for."""
        if not self.free_energy_pixels:
            return None
        settings = small(optimum_model(self, self.seeds[0]), self.free_energy_pixels)
        more = {"samples": self.free_energy_samples, "switches": SWITCHES, "rest": REST}
        return Work("free-energy", settings, more)


def models(plan: LedgerPlan) -> list[Settings]:
    return [*optimum_models(plan), *plan.models, *(plan.first(rule) for rule in RULES)]


def tasks(plan: LedgerPlan, folder: Path, workers: int) -> list[Task]:
    """The optimum, the pairs, and the first machine."""
    first = [plan.first(rule) for rule in RULES]
    groups = [("the optimum", optimum_models(plan)), ("", plan.models), ("first code", first)]
    found = measuring_tasks(groups, folder, workers, plan.paths)
    if plan.switched is not None and available():
        found.append(plan.switched.task("free energy of a small machine"))
    return found


def assemble(plan: LedgerPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """One row per computer, and their summary."""
    pairs = collect(plan, folder)
    rows = [entry(model, model.rule, seed) for (_, seed), model in pairs.models.items()]
    solved = zip(pairs.seeds, optimum_measures(plan, folder, pairs.seeds), strict=False)
    rows += [entry(model, "optimum", seed) for seed, model in solved]
    missing = list(pairs.missing)
    for rule in RULES:
        first = Model.found(folder, plan.first(rule), plan.paths)
        if first is None:
            missing.append(f"the first code, {rule}, was not measured")
        else:
            rows.append(entry(first, f"copy, {rule}", first.seed))
    save_rows(run, "ledger", [{k: v for k, v in r.items() if k != "parts"} for r in rows])
    parts = [{"rule": r["rule"], "seed": r["seed"], **r["parts"]} for r in rows]
    save_rows(run, "parts", parts)
    machine = plan.settings.machine
    means = [mean_row(rule, rows) for rule in dict.fromkeys(r["rule"] for r in rows)]
    return {
        "free_energy": _free_energy(plan, folder, missing),
        "seeds": pairs.seeds,
        "pairs": len(pairs.seeds),
        "missing": missing,
        "samples": plan.settings.generation.samples,
        "first_cycles": plan.first_cycles,
        "kT": machine.kT,
        "rows": rows,
        "parts": list(layout(machine).parts),
        "means": means,
        "differences": differences(rows),
        "joules": joule_rows(plan, pairs, means),
        "prices": price_rows(plan, rows),
        "timing": timing(pairs),
    }


def _free_energy(plan: LedgerPlan, folder: Path, missing: list[str]) -> dict[str, Any] | None:
    work = plan.switched
    run = None if work is None else work.found(folder)
    if work is not None and run is None:
        reason = "was not measured" if available() else "needs pymbar (the extra free-energy)"
        missing.append(f"the free energy {reason}")
    if run is not None and run.results["refused"]:
        missing.append(f"the free energy: {run.results['refused']}")
    return None if run is None else dict(run.results)


def entry(model: Model, rule: str, seed: int) -> dict[str, Any]:
    """The ledger of one computer, in kT; its heat by part."""
    machine = model.settings.machine
    ledger = Ledger(machine, model.archive)
    found = ledger.dissipation
    assert found is not None
    low, high = found.production
    return {
        "rule": rule,
        "seed": seed,
        "heat": found.heat.mean,
        "heat_sem": found.heat.sem,
        "work": ledger.work.mean / machine.kT,
        "step_error": ledger.discretization_error.mean / machine.kT,
        "first_law_error": ledger.first_law_error,
        "distance": found.distance,
        "speed_limit": low,
        "speed_limit_sem": found.speed_limit.sem,
        "share": found.share,
        "most_entropy": found.entropy_change.mean,
        "most_production": high,
        "parts": {
            part: sum(row["heat_parts"][part] for row in ledger.stages) / machine.kT
            for part in ledger.parts
        },
    }


COLUMNS = ("heat", "work", "step_error", "speed_limit", "share", "most_entropy", "most_production")


def mean_row(rule: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds of a rule."""
    own = [row for row in rows if row["rule"] == rule]
    return {
        "rule": rule,
        "computers": len(own),
        **{key: float(np.mean([row[key] for row in own])) for key in COLUMNS},
        "percent": 100 * float(np.mean([row["share"] for row in own])),
        "parts": {
            part: float(np.mean([row["parts"][part] for row in own])) for part in own[0]["parts"]
        },
    }


def differences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """online − batch in pairs: heat, and the part of it that is distance travelled."""
    found = []
    heat = 0.0
    for key, label in (("heat", "heat"), ("speed_limit", "speed limit: distance travelled"),
                       ("most_entropy", "entropy of the states, upper bound")):  # fmt: skip
        batch, online = ([r[key] for r in rows if r["rule"] == rule] for rule in RULES)
        compared = compare_pairs(batch, online)
        heat = compared.mean_difference if key == "heat" else heat
        found.append(
            {
                "key": key,
                "label": label,
                "difference": compared.mean_difference,
                "interval": compared.interval,
                "percent": 100 * compared.mean_difference / heat if heat else None,
            }
        )
    return found


# --- joules ---------------------------------------------------------------------------------------


def joule_rows(
    plan: LedgerPlan, pairs: Pairs, means: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Heat and bounds of an image in kT and in joules, beside Landauer's bound."""
    machine, count = plan.settings.machine, len(pairs.patterns)
    energies = {f"heat of an image, {row['rule']}": row["heat"] for row in means}
    energies |= {f"speed limit, {row['rule']}": row["speed_limit"] for row in means}
    energies |= {
        "Landauer: a label of ten classes, ln 10": math.log(10),
        f"Landauer: which of the {count} patterns, ln {count}": math.log(count),
        f"Landauer: a black-and-white image, {machine.visible} ln 2": machine.visible * math.log(2),
    }
    return [
        {
            "label": label,
            "kT": value,
            "joules": joules(machine, value * machine.kT, plan.temperature),
        }
        for label, value in energies.items()
    ]


def counts(machine: Machine, samples: int) -> dict[str, float]:
    """How often each priced thing happens for one image.

    Parameters of one stage are written once for all samples, those of several for every image.
    """
    edges = sum(block.edges for block in layout(machine).blocks)
    writes = edges / samples if machine.stages == 1 else float(edges * machine.stages)
    labels = float(machine.size_of("label"))
    return dict(zip(PRICES, (float(machine.visible), writes, labels), strict=True))


def price_rows(plan: LedgerPlan, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What an image costs at the user's prices, most expensive first; heat of the online rule."""
    machine = plan.settings.machine
    heat = mean_row("online", rows)["heat"] * machine.kT
    found = [
        {"label": "heat (online)", "count": 1.0, "price": None,
         "joules": joules(machine, heat, plan.temperature)}
    ]  # fmt: skip
    for key, count in counts(machine, plan.settings.generation.samples).items():
        price = getattr(plan, key)
        cost = None if price is None else count * price
        found.append({"label": PRICES[key], "count": count, "price": price, "joules": cost})
    return sorted(found, key=lambda row: math.inf if row["joules"] is None else -row["joules"])


_QUICK = LedgerPlan(
    settings=brief(60, 40),
    seeds=(101,),
    first_cycles=20,
    free_energy_pixels=16,
    free_energy_samples=40,
)

EXPERIMENT = Experiment(
    name="ledger",
    title="The ledger: what the heat of an image is spent on",
    presets={"paper": LedgerPlan(), "quick": _QUICK},
    models=models,
    tasks=tasks,
    assemble=assemble,
)
