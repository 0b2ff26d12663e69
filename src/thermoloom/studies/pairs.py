"""Pairs of computers, batch and online, trained on the same paths: one pair is one observation.

The optimum θ* is compared with them: solved once, sampled with the random numbers of every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.measures.diagnostics import EnergyDrop, cross_energies
from thermoloom.measures.paired import RULES, PairedModels, number
from thermoloom.patterns.patterns import Patterns
from thermoloom.settings import Settings
from thermoloom.studies.case import STAGES, Case
from thermoloom.studies.gather import Gathered, Record
from thermoloom.studies.sampled_computer import SAMPLE_IN_CYCLES, replay
from thermoloom.studies.study import Plan

OPTIMUM = "optimum"
"""Label of θ* in the column ``rule``."""
REPLAYED = 5
"""Largest number of pairs whose archives are replayed; the paper has this many pairs."""


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
                "for which online and batch are the same rule; use at least two steps"
            )

    def computer(self, rule: str, seed: int) -> Settings:
        """Settings of one computer of a pair."""
        return self.settings.updated({"training": {"rule": rule, "seed": seed, "period": None}})

    def optimum(self, seed: int) -> Settings:
        """Settings of θ*, sampled with the random numbers of the pair of this training seed.

        Solving does not depend on the seed, so there is one solution for all of them.
        """
        generation = {"seed": self.computer("online", seed).generation_seed}
        first = self.computer("online", self.seeds[0])
        return first.updated({"solver": {}, "generation": generation})

    def case(self, rule: str, seed: int, settings: Settings, group: str = "") -> Case:
        """A sampled computer, compared on the additional paths."""
        return Case({"rule": rule, "seed": seed}, settings, arguments=self.paths, group=group)

    @property
    def paths(self) -> dict[str, int]:
        """Arguments of a case that is compared on the additional paths."""
        return {"path_seed": self.path_seed, "paths_per_pattern": self.paths_per_pattern}

    @property
    def pair_cases(self) -> list[Case]:
        """Both rules of every seed."""
        return [
            self.case(rule, seed, self.computer(rule, seed))
            for seed in self.seeds
            for rule in RULES
        ]

    @property
    def optimum_cases(self) -> list[Case]:
        """θ* with the generation seed of every pair."""
        return [self.case(OPTIMUM, seed, self.optimum(seed), "the optimum") for seed in self.seeds]

    @property
    def replay_cases(self) -> list[Case]:
        """Replays of the archives of the first ``REPLAYED`` pairs."""
        cycles = SAMPLE_IN_CYCLES * self.settings.generation.samples
        return [
            Case(
                {"checkpoint": "{rule} {seed}".format(**case.labels)},
                case.settings,
                replay,
                needs=(case,),
                cycles=cycles,
            )
            for case in self.pair_cases
            if case.labels["seed"] in self.seeds[:REPLAYED]
        ]


@dataclass(frozen=True)
class Pairs:
    """The complete pairs of a plan, and lines about those that are missing."""

    plan: PairPlan
    computers: dict[tuple[str, int], Record]
    """By rule and seed."""
    missing: list[str] = field(default_factory=list)
    replays: dict[tuple[str, int], Record] = field(default_factory=dict)
    """Replayed archives by rule and seed."""

    @property
    def seeds(self) -> list[int]:
        """Seeds for which every rule was measured."""
        return list(dict.fromkeys(seed for _, seed in self.computers))

    @cached_property
    def numbers(self) -> PairedModels:
        """Seed-level numbers, to be compared in pairs."""
        return PairedModels([{**record.labels, **record.results} for record in self.records])

    @property
    def records(self) -> list[Record]:
        return list(self.computers.values())

    @property
    def displayed(self) -> Record:
        """The computer whose samples are displayed: online, first complete pair."""
        return self.computers["online", self.seeds[0]]

    @property
    def displayed_replay(self) -> Record | None:
        """The replay of the displayed computer, with its snapshots."""
        return self.replays.get(("online", self.seeds[0]))

    @cached_property
    def patterns(self) -> Patterns:
        return self.displayed.patterns

    @cached_property
    def cross(self) -> list[tuple[int, EnergyDrop]]:
        """Energy drops of both ensembles of a pair in both potentials, by seed; one stage only."""
        drops = []
        for seed in self.seeds if self.plan.settings.machine.stages == 1 else []:
            pair = {rule: self.computers[rule, seed] for rule in RULES}
            of_pair = cross_energies(
                {rule: record.parameters for rule, record in pair.items()},
                {rule: record.archive for rule, record in pair.items()},
                pair["online"].words,
            )
            drops += [(seed, drop) for drop in of_pair]
        return drops


def collect_pairs(plan: PairPlan, gathered: Gathered) -> Pairs:
    """The pairs whose two computers are both trained and measured."""
    computers: dict[tuple[str, int], Record] = {}
    missing = []
    for seed in plan.seeds:
        pair = {(rule, seed): gathered.one(rule=rule, seed=seed) for rule in RULES}
        complete = {key: record for key, record in pair.items() if record is not None}
        if len(complete) == len(RULES):
            computers |= complete
        else:
            absent = [rule for rule, _ in pair if (rule, seed) not in complete]
            reasons = [f"{rule}: {_reason(gathered, rule, seed)}" for rule in absent]
            missing.append(f"pair {seed} is left out ({'; '.join(reasons)})")
    if not computers:
        raise UserError(f"{gathered.folder}: no pair is complete: {' | '.join(missing)}")
    replays = {(r.rule, r.seed): r for r in gathered if r.case.measure is replay}
    return Pairs(plan, computers, missing, {k: r for k, r in replays.items() if k in computers})


def _reason(gathered: Gathered, rule: str, seed: int) -> str:
    diverged = gathered.where(rule=rule, seed=seed)
    if diverged:
        return f"{diverged[0].run.state} {diverged[0].run.manifest.reason}".strip()
    return "not measured"


def complete_pairs(plan: PairPlan, folder: Path) -> int:
    """Number of pairs that are trained and measured."""
    done = [(case, Record.of(case, folder)) for case in plan.pair_cases]
    measured = [case.labels["seed"] for case, r in done if r is not None and not r.diverged]
    return sum(measured.count(seed) == len(RULES) for seed in plan.seeds)


def optimum_records(gathered: Gathered, seeds: Sequence[int]) -> list[Record]:
    """θ* as it was sampled beside the pairs of these seeds; empty if one of them is missing."""
    records = [gathered.one(rule=OPTIMUM, seed=seed) for seed in seeds]
    measured = [record for record in records if record is not None]
    return measured if len(measured) == len(seeds) else []


def with_optimum(summary: dict[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """The summary of pairs with the optimum's number in every row, mean over the pairs' seeds.

    An addition to the paper's two rules; left out where it was not measured.
    """
    if not records:
        return summary | {OPTIMUM: None}
    heats = [record.results["heat"] for record in records]
    solved = records[0].training.results
    sampling = sum(
        record.results["timing"].get(stage, 0.0) for record in records for stage in STAGES[1:]
    )

    def mean(*keys: str) -> float | None:
        """Mean of a sum of results, such as ``quality.max_softmax``; None if one is missing."""
        values = [[number(record.results, key) for key in keys] for record in records]
        if any(value is None for row in values for value in row):
            return None
        return float(np.array(values, np.float64).sum(axis=1).mean())

    return summary | {
        OPTIMUM: {"heat": float(np.mean([heat["mean"] for heat in heats])), **solved},
        "heat_rows": [
            row | {OPTIMUM: heat["mean"], "optimum_sd": heat["sd"]}
            for row, heat in zip(summary["heat_rows"], heats, strict=True)
        ],
        **{
            table: [row | {OPTIMUM: mean(f"{table}.{row['key']}")} for row in summary[table]]
            for table in ("quality", "norms", "paths")
        },
        "energies": [row | {OPTIMUM: mean(*row["key"])} for row in summary["energies"]],
        "timing": summary["timing"] | {OPTIMUM: solved["seconds"] + sampling},
    }
