"""The frontier: the least heat at every loss, and whether trained computers are on it.

    θ(λ) = argmin E[L] + λ E[Q]/k_BT       exact for every weight λ, one solve each

E[Q], the heat of noising paths run backwards, is linear in θ, so along the frontier it falls
linearly with λ and the loss rises with the square of what is saved. What computers do with it when
they generate (heat, quality) is sampled, all with the same random numbers; batch and online
computers stand beside the curve.

    variants    the machine with another t_f, k_BT or number of stages, at a few weights
    schedules   window edges, ramp and t_f of least heat at equal quality (``frontier.schedules``)

The machine is that of the plan: the paper's, or with ``--preset demand`` one that draws the digit
it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.sample_archives import archived_classes
from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.digits import HARMONIC
from thermoloom.experiments.frontier.schedules import SLACK
from thermoloom.experiments.optimum import RULE
from thermoloom.experiments.pairs import PairPlan
from thermoloom.experiments.plan import Experiment, brief
from thermoloom.experiments.results import (
    Model,
    measures_path,
    order_of,
    save_rows,
    seconds_by_stage,
    why_missing,
)
from thermoloom.experiments.screens import STAGES, check_grid
from thermoloom.experiments.works import Work
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import ramp
from thermoloom.measures.dissipation import FEWEST, dissipation
from thermoloom.measures.paired import RULES
from thermoloom.measures.quality import MEASURES
from thermoloom.patterns.drive import drive_of
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import PatternSettings, Settings, Training
from thermoloom.theory.expected_heat import ExpectedHeat, expected_heats
from thermoloom.theory.expected_loss import ExpectedLoss, expected_losses
from thermoloom.theory.marginals import is_harmonic, solve_marginals

WEIGHTS = (
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35,
    0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9,
)  # fmt: skip
CURVE_POINTS, RAMP_POINTS = 200, 100
"""Points of the parabola, and of a ramp, in the figures."""
OTHERS = {"durations": "duration", "temperatures": "kT", "stages": "stages"}
"""Which setting of the machine each list of the plan varies."""


@dataclass(frozen=True)
class FrontierPlan(PairPlan):
    """Weights of the frontier, the pairs beside it, other machines, and schedules."""

    weights: tuple[float, ...] = WEIGHTS
    """λ, what a k_BT of expected heat costs beside the loss; 0 is the optimum itself."""
    few_weights: tuple[float, ...] = (0.0, 0.15, 0.4)
    """The weights at which other machines are solved."""
    durations: tuple[float, ...] = (1.25, 5.0)
    """t_f of other machines."""
    temperatures: tuple[float, ...] = (0.05, 0.2)
    """k_BT of other machines."""
    stages: tuple[int, ...] = (2, 4)
    """T of other machines."""
    schedule_durations: tuple[float, ...] = (1.25, 2.5, 5.0, 10.0)
    """t_f at which the schedule of least heat is searched for, beside the machine's own."""
    schedule_stages: int = 4
    """Stages of the machine whose schedule it is, where the plan's own is not harmonic."""
    schedule_evaluations: int = 60
    """Schedules that are tried at most, for each t_f."""
    schedule_pixels: int = 196
    """Pixels of the images on which schedules are tried, a square; 0: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("weights", self.weights, 0.0, reference=0.0)
        check_grid("few_weights", self.few_weights, 0.0, reference=0.0)
        for weight in self.few_weights:
            check_grid("weights", self.weights, reference=weight)

    def weighed(self, weight: float, **machine: Any) -> Settings:
        """The optimum at a weight, sampled with the random numbers of the first pair."""
        own = self.model(RULE, self.seeds[0])
        seed = self.model("batch", self.seeds[0]).generation_seed
        return own.updated(
            {"machine": machine, "solver": {"heat_weight": weight}, "generation": {"seed": seed}}
        )

    def variants(self) -> Iterator[tuple[str, float, float, Settings]]:
        """(setting, its value, weight, model) of every other machine."""
        for name, key in OTHERS.items():
            for value in getattr(self, name):
                if value != getattr(self.settings.machine, key):
                    changed = {key: value} | ({"windows": []} if key == "stages" else {})
                    for weight in self.few_weights:
                        yield key, value, weight, self.weighed(weight, **changed)

    @property
    def on_demand(self) -> Settings | None:
        """A harmonic machine that is asked for the plan's patterns: its own, or one of its units.

        None for images without classes.
        """
        own = self.weighed(0.0)
        if own.machine.labels and is_harmonic(own.machine):
            return own
        if own.patterns.source == "images":
            return None
        return own.updated(
            {
                "machine": {
                    "hidden": 0,
                    "labels": max(own.patterns.digits) + 1,
                    "styles": max(1, min(own.patterns.per_digit, HARMONIC.styles)),
                    "wiring": HARMONIC.wiring,
                    "biases": HARMONIC.biases,
                    "J4": HARMONIC.J4,
                    "stages": self.schedule_stages,
                    "windows": (),
                }
            }
        )

    def schedules(self) -> list[tuple[float, Work]]:
        """(t_f, work) of every search."""
        settings = self.on_demand
        if settings is None:
            return []
        fewer = 0 < self.schedule_pixels < settings.machine.visible
        more = {
            "evaluations": self.schedule_evaluations,
            "pixels": self.schedule_pixels if fewer else 0,
        }
        durations = sorted({*self.schedule_durations, settings.machine.duration})
        return [(t, Work("schedule", settings, {"duration": t} | more)) for t in durations]


def models(plan: FrontierPlan) -> list[Settings]:
    others = [model for *_, model in plan.variants()]
    for duration, work in plan.schedules():
        replace(work.settings.machine, duration=duration)  # refuses impossible ones
    return [*(plan.weighed(weight) for weight in plan.weights), *plan.models, *others]


def tasks(plan: FrontierPlan, folder: Path, workers: int) -> list[Task]:
    """One task per weight; the pairs beside them; other machines; schedules."""
    groups = [(f"weight {w:g}", [plan.weighed(w)]) for w in plan.weights]
    groups += [("", plan.models)]
    groups += [(f"{key} {value:g}, weight {w:g}", [m]) for key, value, w, m in plan.variants()]
    searches = [work.task(f"schedule, duration {t:g}") for t, work in plan.schedules()]
    return measuring_tasks(groups, folder, workers, plan.paths) + searches


def assemble(plan: FrontierPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """One row per computer: exact expected loss and heat; heat, bounds, quality of its samples."""
    wanted = [*map(plan.weighed, plan.weights), *plan.models]
    found, missing = _collected(wanted, plan, folder)
    curve = [model for model in found if model.rule == RULE]
    if not curve:
        raise UserError(f"{folder}: no point of the frontier was measured: {' | '.join(missing)}")
    scale = Scale.of(curve[0])
    rows = [row(model, scale) for model in found]
    base = next((r for r in rows if r["weight"] == 0), None)
    for own in rows:
        own["excess"] = None if base is None else own["expected_loss"] - base["expected_loss"]
    along = [r for r in rows if r["rule"] == RULE]
    rate, kT = slope(along), plan.settings.machine.kT
    for own in rows:
        own["least_excess"] = least_excess(own["expected_heat"], base, rate, kT)
    save_rows(run, "computers", rows)
    if base is not None and rate:
        heats = base["expected_heat"] + rate * np.linspace(0, max(plan.weights), CURVE_POINTS)
        least = [least_excess(heat, base, rate, kT) for heat in heats]
        run.save_table("parabola", {"expected_heat": heats, "excess": least})
    others = _variants(plan, folder, rows, missing)
    if others:
        save_rows(run, "variants", others)
    schedules = _schedules(plan, folder, missing)
    if schedules:
        save_rows(run, "schedules", schedules)
        save_rows(run, "ramps", ramp_rows(schedules, plan.settings.machine))
    asked = rows[0]["asked"] is not None
    return {
        "seeds": sorted({r["seed"] for r in rows}),
        "missing": missing,
        "points": len(along),
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "kT": kT,
        "rate": rate,
        "fall": None if rate is None else -rate,
        "least": min(along, key=lambda own: float(own["heat"])),
        "trained": trained_means(rows),
        "rows": rows,
        "variants": others,
        "schedules": schedules,
        "schedule": _headline(schedules, plan.settings.machine.duration),
        "quality": "asked" if asked else _quality(rows[0]),
        "timing": seconds_by_stage(found, (*STAGES, "diagnostics")),
    }


def _quality(row: dict[str, Any]) -> str:
    """The measure that quality is drawn by."""
    return "absolute_correlation" if row["max_softmax"] is None else "max_softmax"


def _collected(
    wanted: Sequence[Settings], plan: FrontierPlan, folder: Path
) -> tuple[list[Model], list[str]]:
    found, missing = [], []
    for settings in wanted:
        model = Model.found(folder, settings, plan.paths)
        if model is None:
            training = settings.training
            solver = settings.solver
            rule = training.rule if solver is None else RULE
            own = training.seed if solver is None else solver.heat_weight
            reason = why_missing(measures_path(folder, settings, plan.paths))
            missing.append(f"{rule} {own:g} is left out ({reason})")
        else:
            found.append(model)
    return found, missing


@dataclass(frozen=True)
class Scale:
    """Expected loss and heat of any computer of a machine, exactly."""

    losses: Sequence[ExpectedLoss]
    heats: Sequence[ExpectedHeat]

    @classmethod
    def of(cls, model: Model) -> Scale:
        machine, patterns = model.settings.machine, model.patterns
        fields, words = drive_of(patterns, machine)
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
    solver = model.settings.solver
    weight = None if solver is None else solver.heat_weight
    known = {"rule": model.rule, "seed": model.seed, "weight": weight}
    return known | {"expected_loss": loss, "expected_heat": heat} | sampled(model)


def sampled(model: Model) -> dict[str, Any]:
    """What the samples of a computer show."""
    archive, results = model.archive, model.results
    bounded = len(archive.heat) >= FEWEST
    bound = dissipation(model.settings.machine, archive) if bounded else None
    return {
        "heat": results["heat"]["mean"],
        "heat_sem": results["heat"]["sem"],
        "work": float(archive.work.mean()),
        "step_error": float(archive.discretization_error.mean()),
        "speed_limit": None if bound is None else bound.speed_limit.mean,
        "share": None if bound is None else bound.share,
        "asked": asked_rate(model),
        **{name: results["quality"][name] for name in MEASURES},
    }


def asked_rate(model: Model) -> float | None:
    """Fraction of the samples recognized as requested; None without labels or classifier."""
    asked = archived_classes(model.training, order_of(model.settings).archive)
    if asked is None or model.results["quality"]["max_softmax"] is None:
        return None
    return float(np.mean(model.samples["class"] == np.asarray(asked)))


def slope(along: Sequence[dict[str, Any]]) -> float | None:
    """dE[Q]/dλ of the frontier in E₀, the same everywhere on it; None where it is one point."""
    if len(along) < 2:
        return None
    first, last = along[0], along[-1]
    change = last["expected_heat"] - first["expected_heat"]
    return float(change / (last["weight"] - first["weight"]))


def least_excess(
    heat: float, base: dict[str, Any] | None, rate: float | None, kT: float
) -> float | None:
    """The least loss above the optimum's that a computer of this expected heat can have, in nats.

    E[Q] = E[Q*] + λ·rate and E[L] − E[L*] = −λ²·rate/2k_BT along the frontier.
    """
    if base is None or not rate:
        return None
    weight = (heat - base["expected_heat"]) / rate
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


# --- other machines and schedules -----------------------------------------------------------------


def _variants(
    plan: FrontierPlan, folder: Path, rows: Sequence[dict[str, Any]], missing: list[str]
) -> list[dict[str, Any]]:
    """Other machines, and the plan's own among them; the loss above that of the machine's λ = 0."""
    found = []
    machine = plan.settings.machine
    for name, key in OTHERS.items():
        if any(value != getattr(machine, key) for value in getattr(plan, name)):
            here = {"varied": key, "value": float(getattr(machine, key)), "kT": machine.kT}
            found += [
                here | {k: v for k, v in own.items() if k not in ("rule", "seed", "least_excess")}
                for own in rows
                if own["rule"] == RULE and own["weight"] in plan.few_weights
            ]
    base: dict[tuple[str, float], float] = {}
    for key, value, weight, settings in plan.variants():
        models, absent = _collected([settings], plan, folder)
        missing += [f"{key} {value:g}: {line}" for line in absent]
        for model in models:
            solved = model.training.results
            loss = solved["expected_loss"] * settings.machine.steps
            least = base.setdefault((key, value), loss) if weight == 0 else base.get((key, value))
            found.append(
                {"varied": key, "value": float(value), "kT": settings.machine.kT, "weight": weight}
                | {"expected_loss": loss, "expected_heat": solved["expected_heat"]}
                | sampled(model)
                | {"excess": None if least is None else loss - least}
            )
    return sorted(found, key=lambda r: (list(OTHERS.values()).index(r["varied"]), r["value"]))


def _schedules(plan: FrontierPlan, folder: Path, missing: list[str]) -> list[dict[str, Any]]:
    """Two rows for each t_f: with the machine's own schedule and with the best that was found."""
    rows: list[dict[str, Any]] = []
    if plan.on_demand is None:
        missing.append("schedules: these images have no classes to ask for")
        return rows
    machine = plan.on_demand.machine
    for duration, work in plan.schedules():
        run = work.found(folder)
        if run is None:
            missing.append(f"schedule, duration {duration:g}: not searched for")
            continue
        results = run.results
        own: dict[str, Any] = {
            "ramp_end": machine.ramp_end,
            "ramp_power": machine.ramp_power,
            "windows": [last / machine.steps for _, last in machine.stage_windows],
            "solves": 1,
            "reached": None,
        }
        best = {key: results[key] for key in own if key != "solves"}
        best["solves"] = results["searched"]["solves"]
        for kind, schedule in (("own", own), ("best", best)):
            ends = " ".join(f"{end:.3f}" for end in schedule["windows"])
            about = {"duration": duration, "schedule": kind, **results[kind], "kT": machine.kT}
            rows.append(about | own | schedule | {"windows": ends})
    return rows


def ramp_rows(schedules: Sequence[dict[str, Any]], machine: Machine) -> list[dict[str, Any]]:
    """a(t) of every schedule."""
    rows = []
    for own in schedules:
        used = {key: own[key] for key in ("duration", "ramp_end", "ramp_power")}
        amplitude = ramp(replace(machine, **used))
        steps = np.linspace(0, len(amplitude) - 1, RAMP_POINTS).round().astype(int)
        rows += [
            {
                "duration": own["duration"],
                "schedule": own["schedule"],
                "time": float(step / len(amplitude)),
                "amplitude": float(amplitude[step]),
            }
            for step in steps
        ]
    return rows


def _headline(rows: Sequence[dict[str, Any]], duration: float) -> dict[str, Any] | None:
    """Own and best schedule of the machine's own t_f, and what the search saves there."""
    here = {row["schedule"]: row for row in rows if row["duration"] == duration}
    if not here:
        return None
    own, best = here["own"], here["best"]
    return {
        "own": own,
        "best": best,
        "saved": 100 * (1 - best["heat"] / own["heat"]),
        "own_above": 100 * (own["production"] / own["speed_limit"] - 1),
        "best_above": 100 * (best["production"] / best["speed_limit"] - 1),
        "own_miss": 100 * own["miss"],
        "best_miss": 100 * best["miss"],
        "equal": best["miss"] <= own["miss"] * (1 + SLACK),
    }


QUICK = FrontierPlan(
    settings=brief(60, 40),
    seeds=(101,),
    weights=(0.0, 0.1, 0.3, 0.5, 0.7),
    few_weights=(0.0, 0.3),
    durations=(1.25,),
    temperatures=(0.2,),
    stages=(2,),
    schedule_durations=(1.25, 2.5),
    schedule_evaluations=20,
)
DEMAND = FrontierPlan(
    settings=Settings(
        replace(HARMONIC, styles=10, label_amplitude=30.0),
        PatternSettings(digits=tuple(range(10)), per_digit=10),
        Training(cycles=1000, learning_rate=4e-4, learning_rate_decay=2000.0),
    ),
    seeds=(101,),
    weights=(0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6),
    stages=(1, 2, 8),
)
"""The ten digits of the bundled images, each image with a label unit of its own.

The paper's rate is too large for these machines: batch training diverges. Rate and label amplitude
are those of ``run digits``; the optimum does not depend on the amplitude."""

EXPERIMENT = Experiment(
    name="frontier",
    title="The frontier of heat and loss",
    presets={"paper": FrontierPlan(), "quick": QUICK, "demand": DEMAND},
    models=models,
    tasks=tasks,
    assemble=assemble,
)
