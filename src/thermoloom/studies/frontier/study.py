"""The frontier: the least heat at every loss, and whether trained computers lie on it.

    θ(λ) = argmin E[L] + λ E[Q]/k_BT       exact for every weight λ, one solve each

E[Q], the heat of noising paths run backwards, is linear in θ, so along the frontier it falls
linearly with λ and the loss rises with the square of the heat saved. Heat and quality of the
samples that computers generate are measured, all with the same random numbers. Batch and online
computers are compared with the curve.

    variants    the machine with another t_f, k_BT or number of stages, at a few weights
    schedules   window edges, ramp and t_f of least heat at equal quality (``schedules``)

The machine is that of the plan: the paper's, or with ``--preset demand`` one that draws the digit
requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.presets import HARMONIC, ONLINE_AMPLITUDE, ONLINE_RATE
from thermoloom.machine.protocol import ramp
from thermoloom.measures.dissipation import FEWEST, dissipation
from thermoloom.measures.paired import RULES
from thermoloom.measures.quality import MEASURES
from thermoloom.patterns.drive import drive_of
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import PatternSettings, Settings, Training
from thermoloom.studies.case import STAGES, Case
from thermoloom.studies.frontier.schedules import (
    SEARCHED,
    UNCHANGED,
    is_as_good,
    least_heat_schedule,
)
from thermoloom.studies.gather import Gathered, Record, save_rows
from thermoloom.studies.pairs import OPTIMUM, PairPlan
from thermoloom.studies.screens import check_grid
from thermoloom.studies.study import Figure, Study, brief
from thermoloom.theory.expected_heat import expected_heats
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import is_harmonic, solve_marginals

WEIGHTS = (
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35,
    0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9,
)  # fmt: skip
CURVE_POINTS, RAMP_POINTS = 200, 100
"""Points of the parabola, and of a ramp, in the figures."""
VARIED = {"durations": "duration", "temperatures": "kT", "stages": "stages"}
"""The setting of the machine that each list of the plan varies."""

Row = dict[str, Any]


@dataclass(frozen=True)
class FrontierPlan(PairPlan):
    """Weights of the frontier, the pairs beside it, other machines, and schedules."""

    weights: tuple[float, ...] = WEIGHTS
    """λ in E[L] + λ E[Q]/k_BT, the weight of the expected heat; 0 is the optimum itself."""
    few_weights: tuple[float, ...] = (0.0, 0.15, 0.4)
    """The weights at which other machines are solved."""
    durations: tuple[float, ...] = (1.25, 5.0)
    """t_f of other machines."""
    temperatures: tuple[float, ...] = (0.05, 0.2)
    """k_BT of other machines."""
    stages: tuple[int, ...] = (2, 4)
    """T of other machines."""
    schedule_durations: tuple[float, ...] = (1.25, 2.5, 5.0, 10.0)
    """t_f at which the schedule of least heat is searched for, beside that of the machine."""
    schedule_stages: int = 4
    """Stages of the machine whose schedule is searched for, if the plan's is not harmonic."""
    schedule_evaluations: int = 60
    """Largest number of schedules that are tried for each t_f."""
    schedule_pixels: int = 196
    """Pixels of the images on which schedules are tried, a square number; 0: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("weights", self.weights, 0.0, reference=0.0)
        check_grid("few_weights", self.few_weights, 0.0, reference=0.0)
        for weight in self.few_weights:
            check_grid("weights", self.weights, reference=weight)
        for duration in self.schedule_durations:
            replace(self.settings.machine, duration=duration)  # refuses impossible ones

    def weighted(self, weight: float, **machine: Any) -> Settings:
        """The optimum at a weight, sampled with the random numbers of the first pair."""
        return self.optimum(self.seeds[0]).updated(
            {"machine": machine, "solver": {"heat_weight": weight}}
        )

    @property
    def curve_cases(self) -> list[Case]:
        """The points of the frontier; every weight is a separate task."""
        return [
            Case(
                {"rule": OPTIMUM, "seed": self.seeds[0], "weight": weight},
                self.weighted(weight),
                arguments=self.paths,
                group=f"weight {weight:g}",
            )
            for weight in self.weights
        ]

    @property
    def variant_cases(self) -> list[Case]:
        """Other machines, at a few weights."""
        return [
            Case(
                {"varied": key, "value": float(number), "weight": weight},
                self.weighted(weight, **{key: number} | even_windows),
                arguments=self.paths,
                group=f"weight {weight:g}",
            )
            for field, key in VARIED.items()
            for even_windows in [{"windows": ()} if key == "stages" else {}]
            for number in getattr(self, field)
            if number != getattr(self.settings.machine, key)
            for weight in self.few_weights
        ]

    @property
    def on_demand(self) -> Settings | None:
        """A harmonic machine that draws the pattern requested: the plan's, or one of its units.

        None for images without classes.
        """
        optimum = self.weighted(0.0)
        patterns = optimum.patterns
        if optimum.machine.labels and is_harmonic(optimum.machine):
            return optimum
        if patterns.source == "images":
            return None
        return optimum.updated(
            {
                "machine": {
                    "hidden": 0,
                    "labels": max(patterns.digits) + 1,
                    "styles": max(1, min(patterns.per_digit, HARMONIC.styles)),
                    "wiring": HARMONIC.wiring,
                    "biases": HARMONIC.biases,
                    "J4": HARMONIC.J4,
                    "stages": self.schedule_stages,
                    "windows": (),
                }
            }
        )

    @property
    def schedule_cases(self) -> list[Case]:
        """A search for every t_f."""
        settings = self.on_demand
        if settings is None:
            return []
        fewer = 0 < self.schedule_pixels < settings.machine.visible
        search = {
            "evaluations": self.schedule_evaluations,
            "pixels": self.schedule_pixels if fewer else 0,
        }
        return [
            Case({"duration": t}, settings, least_heat_schedule, {"duration": t} | search)
            for t in sorted({*self.schedule_durations, settings.machine.duration})
        ]


def cases(plan: FrontierPlan, folder: Path) -> list[Case]:
    """The curve, the pairs beside it, other machines, and schedules."""
    return [*plan.curve_cases, *plan.pair_cases, *plan.variant_cases, *plan.schedule_cases]


def summarize(plan: FrontierPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """One row per computer: exact expected loss and heat; heat, bounds, quality of its samples."""
    finite, missing = gathered.finite, list(gathered.finite.missing)
    if not finite.where(rule=OPTIMUM):
        raise UserError(f"{gathered.folder}: no point of the frontier: {' | '.join(missing)}")
    rows, parabola = computer_rows([record for record in finite if "rule" in record.labels])
    rate = None if parabola is None else parabola.rate
    curve = [row for row in rows if row["rule"] == OPTIMUM]
    save_rows(run, "computers", rows)
    if parabola is not None and rate:
        run.save_table("parabola", parabola.points(max(plan.weights)))
    variants = variant_rows(plan, curve, finite)
    if variants:
        save_rows(run, "variants", variants)
    if plan.on_demand is None:
        missing.append("schedules: these images have no classes that could be requested")
    searches = [record for record in finite if record.case.measure is least_heat_schedule]
    schedules = schedule_rows(searches)
    if schedules:
        save_rows(run, "schedules", schedules)
        save_rows(run, "ramps", ramp_rows(schedules, plan.settings.machine))
    return {
        "seeds": sorted({row["seed"] for row in rows}),
        "missing": missing,
        "points": len(curve),
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "kT": plan.settings.machine.kT,
        "rate": rate,
        "fall": None if rate is None else -rate,
        "least": min(curve, key=lambda row: float(row["heat"])),
        "trained": trained_means(rows),
        "rows": rows,
        "variants": variants,
        "schedules": schedules,
        "schedule": schedule_headline(schedules, plan.settings.machine.duration),
        "quality": quality_column(rows[0]),
        "timing": gathered.seconds(STAGES)
        | {"schedules": sum(record.results["seconds"] for record in searches)},
    }


# --- computers ---


def computer_rows(computers: Sequence[Record]) -> tuple[list[Row], Parabola | None]:
    """The computers of the frontier and beside it, and the frontier."""
    rows = [
        {key: record.labels.get(key) for key in ("rule", "seed", "weight")}
        | expected
        | sample_columns(record)
        for record, expected in zip(computers, expectations(computers), strict=True)
    ]
    parabola = Parabola.through(rows, computers[0].settings.machine.kT)
    return [row | excess_columns(row, parabola) for row in rows], parabola


def expectations(computers: Sequence[Record]) -> Iterator[Row]:
    """E[L] of a path in nats and E[Q] in E₀, exactly, of computers of one machine."""
    machine = computers[0].settings.machine
    fields, words = drive_of(computers[0].patterns, machine)
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    losses = list(expected_losses(machine, fields, marginals, words))
    heats = expected_heats(machine, fields, marginals, words)
    for record in computers:
        stages = record.parameters.vector.astype(np.float64)
        yield {
            "expected_loss": sum(e.total(theta) for e, theta in zip(losses, stages, strict=True)),
            "expected_heat": sum(e.value(theta) for e, theta in zip(heats, stages, strict=True)),
        }


def sample_columns(record: Record) -> Row:
    """Numbers of the samples of a computer."""
    archive, results = record.archive, record.results
    enough = len(archive.heat) >= FEWEST
    bounds = dissipation(record.settings.machine, archive) if enough else None
    return {
        "heat": results["heat"]["mean"],
        "heat_sem": results["heat"]["sem"],
        "work": float(archive.work.mean()),
        "step_error": float(archive.discretization_error.mean()),
        "speed_limit": None if bounds is None else bounds.speed_limit.mean,
        "share": None if bounds is None else bounds.share,
        "correct_class": correct_class_rate(record),
        **{name: results["quality"][name] for name in MEASURES},
    }


def correct_class_rate(record: Record) -> float | None:
    """Fraction of the samples with the correct class; None without labels or classifier."""
    requested = record.classes
    if requested is None or record.results["quality"]["max_softmax"] is None:
        return None
    return float(np.mean(record.samples["class"] == np.asarray(requested)))


def quality_column(row: Row) -> str:
    """The measure of quality that is drawn: the first of these that the computers have."""
    columns = ("correct_class", "max_softmax", "absolute_correlation")
    return next(column for column in columns if row[column] is not None)


@dataclass(frozen=True)
class Parabola:
    """The frontier: E[Q] = E[Q*] + λ·rate, E[L] − E[L*] = −λ²·rate/2k_BT."""

    loss: float
    """E[L*] of the optimum, in nats."""
    heat: float
    """E[Q*] of the optimum, in E₀."""
    rate: float | None
    """dE[Q]/dλ in E₀, the same everywhere; None where the curve is one point."""
    kT: float

    @classmethod
    def through(cls, rows: Sequence[Row], kT: float) -> Parabola | None:
        """The parabola of the solved computers; None without the optimum."""
        curve = [row for row in rows if row["rule"] == OPTIMUM]
        optimum = next((row for row in curve if row["weight"] == 0), None)
        if optimum is None:
            return None
        first, last = curve[0], curve[-1]
        weight = last["weight"] - first["weight"]
        change = last["expected_heat"] - first["expected_heat"]
        rate = float(change / weight) if weight else None
        return cls(optimum["expected_loss"], optimum["expected_heat"], rate, kT)

    def least_excess(self, heat: float) -> float | None:
        """The least loss above the optimum's at this expected heat, in nats."""
        if not self.rate:
            return None
        weight = (heat - self.heat) / self.rate
        return float(-(weight**2) * self.rate / (2 * self.kT))

    def points(self, last_weight: float) -> dict[str, Any]:
        """Columns of the curve from the optimum to a weight."""
        heats = self.heat + (self.rate or 0.0) * np.linspace(0, last_weight, CURVE_POINTS)
        return {"expected_heat": heats, "excess": [self.least_excess(heat) for heat in heats]}


def excess_columns(row: Row, parabola: Parabola | None) -> Row:
    """The loss of a computer above the optimum's, and the least that its expected heat allows."""
    if parabola is None:
        return {"excess": None, "least_excess": None}
    return {
        "excess": row["expected_loss"] - parabola.loss,
        "least_excess": parabola.least_excess(row["expected_heat"]),
    }


def trained_means(rows: Sequence[Row]) -> list[Row]:
    """Means over the computers of each rule beside the curve; none where there is no curve."""
    means = []
    for rule in RULES:
        trained = [row for row in rows if row["rule"] == rule and row["least_excess"] is not None]
        if trained:
            keys = ("excess", "least_excess", "expected_heat", "heat")
            numbers = {key: float(np.mean([row[key] for row in trained])) for key in keys}
            means.append({"rule": rule, "computers": len(trained), **numbers})
    return means


# --- other machines ---


def variant_rows(plan: FrontierPlan, curve: Sequence[Row], finite: Gathered) -> list[Row]:
    """Other machines, and the plan's among them; the loss above that of the machine's λ = 0."""
    machine = plan.settings.machine
    rows: list[Row] = []
    points: list[Row] = [
        {key: number for key, number in row.items() if key not in ("rule", "seed", "least_excess")}
        for row in curve
        if row["weight"] in plan.few_weights
    ]
    for key in VARIED.values():
        if any(case.labels["varied"] == key for case in plan.variant_cases):
            labels: Row = {"varied": key, "value": float(getattr(machine, key)), "kT": machine.kT}
            of_plan = [labels | point for point in points]
            others = [_variant_row(record, finite) for record in finite.where(varied=key)]
            rows += sorted([*of_plan, *others], key=lambda row: float(row["value"]))
    return rows


def _variant_row(record: Record, finite: Gathered) -> Row:
    """One other machine at one weight."""
    loss = _expected_loss(record)
    optimum = finite.one(**{**record.labels, "weight": 0.0})
    return {
        **record.labels,
        "kT": record.settings.machine.kT,
        "expected_loss": loss,
        "expected_heat": record.training.results["expected_heat"],
        **sample_columns(record),
        "excess": None if optimum is None else loss - _expected_loss(optimum),
    }


def _expected_loss(record: Record) -> float:
    """E[L] of a path of a solved computer, in nats."""
    loss: float = record.training.results["expected_loss"] * record.settings.machine.steps
    return loss


# --- schedules ---


def schedule_rows(searches: Sequence[Record]) -> list[Row]:
    """Two rows for each t_f: with the schedule unchanged, and with the best one."""
    rows: list[Row] = []
    for record in searches:
        results, machine = record.results, record.settings.machine
        unchanged: Row = {
            "ramp_end": machine.ramp_end,
            "ramp_power": machine.ramp_power,
            "windows": [last / machine.steps for _, last in machine.stage_windows],
            "solves": 1,
            "reached": None,
        }
        searched = {key: results[key] for key in unchanged}
        for kind, schedule in ((UNCHANGED, unchanged), (SEARCHED, searched)):
            labels = {**record.labels, "schedule": kind}
            edges = " ".join(f"{edge:.3f}" for edge in schedule["windows"])
            rows.append(labels | results[kind] | {"kT": machine.kT} | schedule | {"windows": edges})
    return rows


def ramp_rows(schedules: Sequence[Row], machine: Machine) -> list[Row]:
    """a(t) of every schedule."""
    rows = []
    for schedule in schedules:
        changes = {key: schedule[key] for key in ("duration", "ramp_end", "ramp_power")}
        amplitude = ramp(replace(machine, **changes))
        steps = np.linspace(0, len(amplitude) - 1, RAMP_POINTS).round().astype(int)
        rows += [
            {
                "duration": schedule["duration"],
                "schedule": schedule["schedule"],
                "time": float(step / len(amplitude)),
                "amplitude": float(amplitude[step]),
            }
            for step in steps
        ]
    return rows


def schedule_headline(rows: Sequence[Row], duration: float) -> Row | None:
    """Both schedules at the machine's t_f, and the heat that the search saves there."""
    by_kind = {row["schedule"]: row for row in rows if row["duration"] == duration}
    if not by_kind:
        return None
    unchanged, searched = by_kind[UNCHANGED], by_kind[SEARCHED]
    return {
        "unchanged": _in_percent(unchanged),
        "searched": _in_percent(searched),
        "saved": 100 * (1 - searched["heat"] / unchanged["heat"]),
        "equal": is_as_good(searched["miss"], unchanged["miss"]),
    }


def _in_percent(row: Row) -> Row:
    """A schedule with its entropy production above the speed limit and its miss in percent."""
    above = 100 * (row["production"] / row["speed_limit"] - 1)
    return row | {"percent_above": above, "percent_missed": 100 * row["miss"]}


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
        replace(HARMONIC, styles=10, label_amplitude=ONLINE_AMPLITUDE),
        PatternSettings(digits=tuple(range(10)), per_digit=10),
        Training(cycles=1000, learning_rate=ONLINE_RATE, learning_rate_decay=2000.0),
    ),
    seeds=(101,),
    weights=(0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6),
    stages=(1, 2, 8),
)
"""The ten digits of the bundled images, with a separate label unit for each image.

At the paper's rate, batch training of these machines diverges. The optimum does not depend on the
label amplitude."""

STUDY = Study(
    name="frontier",
    title="The frontier of heat and loss",
    question="Beyond the paper: what is the least heat at every loss?",
    presets={"paper": FrontierPlan(), "quick": QUICK, "demand": DEMAND},
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("frontier", "The least heat at every loss", "draw_frontier"),
        Figure("variants", "Other durations, temperatures and stages", "draw_variants"),
        Figure("schedules", "Schedules of least heat", "draw_schedules"),
    ),
    order=9,
    together=True,
)
