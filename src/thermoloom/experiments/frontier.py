"""The frontier: the least heat at every loss, and whether trained computers are on it.

    θ(λ) = argmin E[L] + λ E[Q]/k_BT       exact for every weight λ, one solve each

E[Q], the heat of noising paths run backwards, is linear in θ, so along the frontier it falls
linearly with λ and the loss rises with the square of what is saved. What computers do with it when
they generate (heat, quality) is sampled, all with the same random numbers; batch and online
computers stand beside the curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import GenerationSettings, Settings, Training
from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.optimum import RULE
from thermoloom.experiments.pairs import PairPlan
from thermoloom.experiments.plan import Experiment
from thermoloom.experiments.results import Model, finished, measures_path, save_rows, why_missing
from thermoloom.experiments.screens import STAGES, check_grid
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.dissipation import FEWEST, dissipation
from thermoloom.measures.paired import RULES
from thermoloom.measures.quality import MEASURES
from thermoloom.patterns.fields import label_words, unit_fields
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.theory.expected_heat import ExpectedHeat, expected_heats
from thermoloom.theory.expected_loss import ExpectedLoss, expected_losses
from thermoloom.theory.marginals import solve_marginals

WEIGHTS = (
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35,
    0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9,
)  # fmt: skip


@dataclass(frozen=True)
class FrontierPlan(PairPlan):
    """Weights of the frontier, and the pairs beside it."""

    weights: tuple[float, ...] = WEIGHTS
    """λ, weight of the expected heat (in k_BT) beside the loss; 0 is the optimum itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("weights", self.weights, 0.0, reference=0.0)

    def weighed(self, weight: float) -> Settings:
        """The optimum at a weight, sampled with the random numbers of the first pair."""
        own = self.model(RULE, self.seeds[0])
        seed = self.model("batch", self.seeds[0]).generation_seed
        return own.updated({"training": {"heat_weight": weight}, "generation": {"seed": seed}})


def models(plan: FrontierPlan) -> list[Settings]:
    return [*(plan.weighed(weight) for weight in plan.weights), *plan.models]


def tasks(plan: FrontierPlan, folder: Path, workers: int) -> list[Task]:
    """One task per weight; the pairs beside them."""
    weighed = [(f"weight {w:g}", [plan.weighed(w)]) for w in plan.weights]
    return measuring_tasks([*weighed, ("", plan.models)], folder, workers, plan.paths)


def assemble(plan: FrontierPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """One row per computer: exact expected loss and heat; heat, bounds, quality of its samples."""
    found, missing = _collected(plan, folder)
    curve = [model for model in found if model.rule == RULE]
    if not curve:
        raise UserError(f"{folder}: no point of the frontier was measured: {' | '.join(missing)}")
    scale = Scale.of(curve[0])
    rows = [row(model, scale) for model in found]
    base = next((r for r in rows if r["weight"] == 0), None)
    for own in rows:
        own["excess"] = None if base is None else own["expected_loss"] - base["expected_loss"]
    along = [r for r in rows if r["rule"] == RULE]
    rate = slope(along)
    for own in rows:
        own["least_excess"] = least_excess(own, base, rate, plan.settings.machine.kT)
    save_rows(run, "computers", rows)
    return {
        "seeds": sorted({r["seed"] for r in rows}),
        "missing": missing,
        "points": len(along),
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "kT": plan.settings.machine.kT,
        "rate": rate,
        "fall": None if rate is None else -rate,
        "least": min(along, key=lambda own: float(own["heat"])),
        "trained": trained_means(rows),
        "rows": rows,
        "classified": rows[0]["max_softmax"] is not None,
        "timing": _timing(found),
    }


def _collected(plan: FrontierPlan, folder: Path) -> tuple[list[Model], list[str]]:
    found, missing = [], []
    for settings in models(plan):
        path = measures_path(folder, settings, plan.paths)
        done = finished(path)
        if done is None:
            training = settings.training
            what = f"{training.rule} {training.heat_weight or training.seed:g}"
            missing.append(f"{what} is left out ({why_missing(path)})")
        else:
            found.append(Model(folder, settings, done))
    return found, missing


@dataclass(frozen=True)
class Scale:
    """Expected loss and heat of any computer of a machine, exactly."""

    losses: Sequence[ExpectedLoss]
    heats: Sequence[ExpectedHeat]

    @classmethod
    def of(cls, model: Model) -> Scale:
        machine, patterns = model.settings.machine, model.patterns
        fields, words = unit_fields(patterns, machine), label_words(patterns, machine)
        marginals = solve_marginals(machine, float(np.abs(fields).max()))
        return cls(
            expected_losses(machine, fields, marginals, words),
            expected_heats(machine, fields, marginals, words),
        )

    def weigh(self, theta: Parameters) -> tuple[float, float]:
        """E[L] of a whole path in nats, E[Q] in E₀."""
        vectors = theta.vector.astype(np.float64)
        return (
            sum(loss.total(v) for loss, v in zip(self.losses, vectors, strict=True)),
            sum(heat.value(v) for heat, v in zip(self.heats, vectors, strict=True)),
        )


def row(model: Model, scale: Scale) -> dict[str, Any]:
    """One computer of the frontier or beside it."""
    loss, heat = scale.weigh(model.parameters)
    archive, results = model.archive, model.results
    bounded = len(archive.heat) >= FEWEST
    bound = dissipation(model.settings.machine, archive) if bounded else None
    return {
        "rule": model.rule,
        "seed": model.seed,
        "weight": model.settings.training.heat_weight if model.rule == RULE else None,
        "expected_loss": loss,
        "expected_heat": heat,
        "heat": results["heat"]["mean"],
        "heat_sem": results["heat"]["sem"],
        "work": float(archive.work.mean()),
        "step_error": float(archive.discretization_error.mean()),
        "speed_limit": None if bound is None else bound.speed_limit.mean,
        "share": None if bound is None else bound.share,
        **{name: results["quality"][name] for name in MEASURES},
    }


def slope(along: Sequence[dict[str, Any]]) -> float | None:
    """dE[Q]/dλ of the frontier in E₀, the same everywhere on it; None where it is one point."""
    if len(along) < 2:
        return None
    first, last = along[0], along[-1]
    change = last["expected_heat"] - first["expected_heat"]
    return float(change / (last["weight"] - first["weight"]))


def least_excess(
    own: dict[str, Any], base: dict[str, Any] | None, rate: float | None, kT: float
) -> float | None:
    """The least loss above the optimum's that a computer of this expected heat can have, in nats.

    E[Q] = E[Q*] + λ·rate and E[L] − E[L*] = −λ²·rate/2k_BT along the frontier.
    """
    if base is None or not rate:
        return None
    weight = (own["expected_heat"] - base["expected_heat"]) / rate
    return float(-(weight**2) * rate / (2 * kT))


def trained_means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the computers of each rule beside the curve; of none where there is no curve."""
    means = []
    for rule in RULES:
        own = [row for row in rows if row["rule"] == rule and row["least_excess"] is not None]
        if own:
            keys = ("excess", "least_excess", "expected_heat", "heat")
            found = {key: float(np.mean([row[key] for row in own])) for key in keys}
            means.append({"rule": rule, "computers": len(own), **found})
    return means


def _timing(found: Sequence[Model]) -> dict[str, float]:
    total = dict.fromkeys((*STAGES, "diagnostics"), 0.0)
    for model in found:
        for stage, seconds in model.results.get("timing", {}).items():
            if stage in total:
                total[stage] += seconds
    return total


EXPERIMENT = Experiment(
    name="frontier",
    title="The frontier of heat and loss",
    presets={
        "paper": FrontierPlan(),
        "quick": FrontierPlan(
            settings=Settings(
                training=Training(cycles=60), generation=GenerationSettings(samples=40)
            ),
            seeds=(101,),
            weights=(0.0, 0.1, 0.3, 0.5, 0.7),
        ),
    },
    models=models,
    tasks=tasks,
    assemble=assemble,
    varied=("training.rule", "training.period", "training.seed", "training.heat_weight"),
)
