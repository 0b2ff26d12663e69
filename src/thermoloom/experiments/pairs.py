"""Pairs of computers, batch and online, trained on the same paths: one pair is one observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.plan import Plan
from thermoloom.experiments.results import (
    Model,
    Paths,
    finished,
    measures_path,
    replay_path,
    why_missing,
)
from thermoloom.measures.diagnostics import EnergyDrop, cross_energies
from thermoloom.measures.paired import RULES, PairedModels
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings


@dataclass(frozen=True)
class PairPlan(Plan):
    """Seeds, and the paths on which all computers are compared after training."""

    path_seed: int = 555001
    """Seed of the additional noising paths."""
    paths_per_pattern: int = 10
    """Additional noising paths from every pattern."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings.machine.steps < 2:
            raise UserError(
                f"machine.duration = {self.settings.machine.duration:g}: a trajectory of one step, "
                "in which online and batch are the same rule; take at least two"
            )

    @property
    def paths(self) -> Paths:
        return Paths(self.path_seed, self.paths_per_pattern)

    def model(self, rule: str, seed: int) -> Settings:
        """Settings of one computer of a pair."""
        return self.settings.updated({"training": {"rule": rule, "seed": seed, "period": None}})

    @property
    def models(self) -> list[Settings]:
        """Both rules of every seed."""
        return [self.model(rule, seed) for seed in self.seeds for rule in RULES]

    @property
    def shown(self) -> Settings:
        """The computer whose samples are displayed: online, first seed."""
        return self.model("online", self.seeds[0])


def pair_tasks(
    plan: PairPlan, folder: Path, workers: int, replay: bool = True, more: Sequence[Settings] = ()
) -> list[Task]:
    """Both rules of every seed; the displayed computer is also replayed. ``more``: before them."""
    shown = plan.shown if replay else None
    groups = [("the optimum", more), ("", plan.models)]
    return measuring_tasks(groups, folder, workers, plan.paths, shown)


# --- what the tasks left --------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """The complete pairs of a plan, and what is missing."""

    plan: PairPlan
    folder: Path
    models: dict[tuple[str, int], Model]
    missing: list[str] = field(default_factory=list)
    """Lines that name pairs left out and why."""

    @property
    def seeds(self) -> list[int]:
        """Seeds for which every rule was measured."""
        return list(dict.fromkeys(seed for _, seed in self.models))

    def of(self, rule: str) -> list[Model]:
        return [self.models[rule, seed] for seed in self.seeds]

    @cached_property
    def numbers(self) -> PairedModels:
        """Seed-level numbers, to be compared in pairs."""
        return PairedModels(
            [{"rule": m.rule, "seed": m.seed, **m.results} for m in self.models.values()]
        )

    @property
    def shown(self) -> Model:
        """The displayed computer, from the first complete pair."""
        return self.models["online", self.seeds[0]]

    @cached_property
    def patterns(self) -> Patterns:
        return self.shown.patterns

    @cached_property
    def replay(self) -> RunDirectory | None:
        """The replay of the displayed computer; None if there was none."""
        return finished(replay_path(self.folder, self.shown.settings, self.plan.paths))

    @cached_property
    def cross(self) -> list[tuple[int, EnergyDrop]]:
        """Every potential on every ensemble of its pair, by seed; of machines of one stage."""
        found = []
        for seed in self.seeds if self.plan.settings.machine.stages == 1 else []:
            pair = {rule: self.models[rule, seed] for rule in RULES}
            drops = cross_energies(
                {rule: model.parameters for rule, model in pair.items()},
                {rule: model.archive for rule, model in pair.items()},
                pair["online"].words,
            )
            found += [(seed, drop) for drop in drops]
        return found


def complete_pairs(plan: PairPlan, folder: Path) -> int:
    """How many pairs are trained and measured."""
    return sum(
        all(Model.found(folder, plan.model(rule, seed), plan.paths) for rule in RULES)
        for seed in plan.seeds
    )


def collect(plan: PairPlan, folder: Path) -> Pairs:
    """The pairs whose two computers are both trained and measured."""
    models: dict[tuple[str, int], Model] = {}
    missing = []
    for seed in plan.seeds:
        pair, reasons = {}, []
        for rule in RULES:
            settings = plan.model(rule, seed)
            model = Model.found(folder, settings, plan.paths)
            if model is None:
                reason = why_missing(measures_path(folder, settings, plan.paths))
                reasons.append(f"{rule}: {reason}")
            else:
                pair[rule, seed] = model
        if reasons:
            missing.append(f"pair {seed} is left out ({'; '.join(reasons)})")
        else:
            models |= pair
    if not models:
        raise UserError(f"{folder}: no pair is complete: {' | '.join(missing)}")
    return Pairs(plan, folder, models, missing)
