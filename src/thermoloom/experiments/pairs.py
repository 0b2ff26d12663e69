"""Pairs of computers, batch and online, trained on the same paths: one pair is one observation.

Tables that an experiment of pairs leaves behind (CSV, one row as named):

    models   a computer: heat, quality, energies, norms, losses
    samples  a denoising trajectory
    curves   an evaluation of the validation loss
    paths    a computer on an additional noising path
    cross    a potential on the states of an ensemble
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.experiments.models import (
    RUNS,
    Paths,
    assignment,
    classified,
    measures_path,
    measuring_tasks,
    nearest_samples,
    replay_path,
    trained_prototypes,
)
from thermoloom.experiments.plan import Plan
from thermoloom.measures.diagnostics import PARTS, EnergyDrop, cross_energies
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.statistics import Interval, PairedComparison, compare_pairs, spread
from thermoloom.prototypes import Prototypes
from thermoloom.runs.jobs import computer_of, generate_run, training_path
from thermoloom.runs.manifest import MANIFEST, flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task

RULES = ("batch", "online")
"""Reference first: a difference is online − batch."""
DISPLAYED = 4
"""Samples of each target on the sheet of images."""


@dataclass(frozen=True)
class PairPlan(Plan):
    """Seeds, and the paths on which all computers are compared after training."""

    path_seed: int = 555001
    """Seed of the additional noising paths."""
    paths_per_prototype: int = 10
    """Additional noising paths from every prototype."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings.machine.steps < 2:
            raise UserError(
                f"machine.duration = {self.settings.machine.duration:g}: a trajectory of one step, "
                "in which online and batch are the same rule; take at least two"
            )

    @property
    def paths(self) -> Paths:
        return Paths(self.path_seed, self.paths_per_prototype)

    def model(self, rule: str, seed: int) -> Settings:
        """Settings of one computer of a pair."""
        return self.settings.updated({"training": {"rule": rule, "seed": seed, "period": None}})

    @property
    def shown(self) -> Settings:
        """The computer whose samples are displayed: online, first seed."""
        return self.model("online", self.seeds[0])


def tasks(plan: PairPlan) -> list[Task]:
    """Both rules of every seed; the displayed computer is also replayed."""
    models = [plan.model(rule, seed) for seed in plan.seeds for rule in RULES]
    return measuring_tasks(models, plan.paths, replay=plan.shown)


# --- reading what the tasks left --------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A measured computer of a pair."""

    rule: str
    seed: int
    settings: Settings
    measures: RunDirectory
    training: RunDirectory

    @property
    def results(self) -> dict[str, Any]:
        return self.measures.results

    @cached_property
    def samples(self) -> dict[str, NDArray[Any]]:
        return self.measures.load_table("samples")

    def value(self, key: str) -> float | None:
        """A seed-level number by its path, such as ``quality.max_softmax``."""
        found: Any = self.results
        for part in key.split("."):
            found = None if found is None else found.get(part)
        return None if found is None else float(found)


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
        """Seeds of which every rule was measured."""
        return list(dict.fromkeys(seed for _, seed in self.models))

    def of(self, rule: str) -> list[Model]:
        return [self.models[rule, seed] for seed in self.seeds]

    def values(self, rule: str, key: str) -> list[float | None]:
        return [model.value(key) for model in self.of(rule)]

    def compare(self, *keys: str) -> PairedComparison | None:
        """online − batch of the sum of seed-level numbers; None where one was not measured."""
        batch, online = (
            [model.value(key) for model in self.of(rule) for key in keys] for rule in RULES
        )
        if None in batch or None in online:
            return None
        shape = (len(self.seeds), len(keys))
        return compare_pairs(_row_sums(batch, shape), _row_sums(online, shape))

    @property
    def shown(self) -> Model:
        """The displayed computer; of the first complete pair."""
        return self.models["online", self.seeds[0]]

    @cached_property
    def prototypes(self) -> Prototypes:
        return trained_prototypes(self.folder, self.shown.settings)

    @cached_property
    def cross(self) -> list[tuple[int, EnergyDrop]]:
        """Every potential on every ensemble of its pair, by seed."""
        found = []
        for seed in self.seeds:
            pair = {rule: self.models[rule, seed] for rule in RULES}
            drops = cross_energies(
                self.plan.settings.machine,
                {rule: computer_of(model.training) for rule, model in pair.items()},
                {
                    rule: generate_run(
                        model.training.path,
                        model.settings.generation.samples,
                        model.settings.generation_seed,
                    )
                    for rule, model in pair.items()
                },
            )
            found += [(seed, drop) for drop in drops]
        return found

    def drops(self, potential: str, ensemble: str) -> list[float]:
        """Mean energy drop of an ensemble in a potential, per seed."""
        wanted = (potential, ensemble)
        return [d.drop for _, d in self.cross if (d.potential, d.ensemble) == wanted]


def _row_sums(values: list[float | None], shape: tuple[int, int]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = np.array(values, np.float64).reshape(shape).sum(axis=1)
    return sums


def collect(plan: PairPlan, folder: Path) -> Pairs:
    """The pairs of which both computers are trained and measured."""
    models: dict[tuple[str, int], Model] = {}
    missing = []
    for seed in plan.seeds:
        pair = {rule: _model(plan, folder, rule, seed) for rule in RULES}
        reasons = [f"{rule}: {model}" for rule, model in pair.items() if isinstance(model, str)]
        if reasons:
            missing.append(f"pair {seed} is left out ({'; '.join(reasons)})")
        else:
            models |= {(rule, seed): m for rule, m in pair.items() if isinstance(m, Model)}
    if not models:
        raise UserError(f"{folder}: no pair is complete: {' | '.join(missing)}")
    return Pairs(plan, folder, models, missing)


def _model(plan: PairPlan, folder: Path, rule: str, seed: int) -> Model | str:
    """A computer of a pair, or the reason why there is none."""
    settings = plan.model(rule, seed)
    path = measures_path(folder, settings, plan.paths)
    if not (path / MANIFEST).exists():
        return "not measured"
    measures = RunDirectory.open(path)
    if measures.state != "done":
        return f"{measures.state} {measures.manifest.reason}".strip()
    training = RunDirectory.open(training_path(folder / RUNS, settings))
    return Model(rule, seed, settings, measures, training)


# --- tables -----------------------------------------------------------------------------------


def save_tables(pairs: Pairs, run: RunDirectory) -> None:
    """The tables of an experiment of pairs; figures and report read these and nothing else."""
    models = list(pairs.models.values())
    run.save_table("models", _model_columns(models))
    run.save_table("samples", _stacked(models, lambda model: model.samples))
    run.save_table("curves", _stacked(models, lambda model: model.training.load_table("curve")))
    if all(model.measures.has("paths.csv") for model in models):
        run.save_table("paths", _stacked(models, lambda m: m.measures.load_table("paths")))
    run.save_table("cross", _cross_columns(pairs.cross))
    _save_pictures(pairs, run)


def _model_columns(models: Sequence[Model]) -> dict[str, Any]:
    """Seed-level numbers, without the times: a table does not depend on where it was computed."""
    rows = [
        {"rule": m.rule, "seed": m.seed}
        | {
            key: value
            for key, value in flatten(m.results).items()
            if key != "class_counts" and not key.startswith("timing.")
        }
        for m in models
    ]
    return {key: [row.get(key) for row in rows] for key in rows[0]}


def _stacked(
    models: Sequence[Model], table: Callable[[Model], dict[str, NDArray[Any]]]
) -> dict[str, Any]:
    """The models' tables one under the other, with columns that say whose rows they are."""
    tables = [table(model) for model in models]
    lengths = [len(next(iter(columns.values()))) for columns in tables]
    return {
        "rule": np.repeat([model.rule for model in models], lengths),
        "seed": np.repeat([model.seed for model in models], lengths),
        **{name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]},
    }


def _cross_columns(cross: Sequence[tuple[int, EnergyDrop]]) -> dict[str, Any]:
    return {
        "seed": [seed for seed, _ in cross],
        "potential": [d.potential for _, d in cross],
        "ensemble": [d.ensemble for _, d in cross],
        "drop": [d.drop for _, d in cross],
        "is_heat": [d.is_heat for _, d in cross],
        **{f"initial_{part}": [d.initial[part] for _, d in cross] for part in PARTS},
        **{f"final_{part}": [d.final[part] for _, d in cross] for part in PARTS},
    }


def _save_pictures(pairs: Pairs, run: RunDirectory) -> None:
    """Images of the displayed computer: nearest samples of each target, snapshots on the way."""
    model, prototypes = pairs.shown, pairs.prototypes
    visible = pairs.plan.settings.machine.visible
    nearest = nearest_samples(model.measures, prototypes, DISPLAYED)
    chosen = [sample for found in nearest.values() for sample in found]
    archive = generate_run(
        model.training.path, model.settings.generation.samples, model.settings.generation_seed
    ).final_states[:, :visible]
    arrays: dict[str, NDArray[Any]] = {
        "nearest": archive[chosen],
        "limits": np.percentile(archive, (1, 99)),
        "prototypes": prototypes.patterns,
    }
    replayed = replay_path(pairs.folder, model.settings, pairs.plan.paths)
    snapshot_samples: list[int] = []
    if (replayed / MANIFEST).exists() and RunDirectory.open(replayed).state == "done":
        snapshots = RunDirectory.open(replayed).load_arrays("snapshots")
        arrays |= {"snapshots": snapshots["states"], "steps": snapshots["steps"]}
        snapshot_samples = snapshots["samples"].tolist()
    run.save_arrays(
        "pictures",
        arrays,
        {
            "rule": model.rule,
            "seed": model.seed,
            "generation_seed": model.settings.generation_seed,
            "shape": prototypes.shape,
            "labels": prototypes.labels,
            "targets": assignment(model.samples, prototypes)[0],
            "classified": classified(model.samples),
            "nearest": nearest,
            "snapshots": snapshot_samples,
        },
    )


# --- summary ----------------------------------------------------------------------------------


def comparison_row(label: str, compared: PairedComparison | None, **more: Any) -> dict[str, Any]:
    """A row of a table: both means, the mean difference, its interval and tests."""
    if compared is None:
        return {"label": label, "measured": False, **more}
    return {
        "label": label,
        "measured": True,
        "batch": float(np.mean(compared.reference)),
        "online": float(np.mean(compared.other)),
        "difference": compared.mean_difference,
        "interval": compared.interval,
        "percent": compared.mean_percent_difference,
        "percent_interval": compared.percent_interval,
        "t_test_p": compared.t_test_p,
        "sign_test_p": compared.sign_test_p,
        "lower": sum(d < 0 for d in compared.differences),
        "higher": sum(d > 0 for d in compared.differences),
        "pairs": compared.pairs,
        **more,
    }


def heat_reduction(pairs: Pairs) -> dict[str, Any]:
    """batch − online of the mean heat across pairs, absolute and relative to batch."""
    compared = pairs.compare("heat.mean")
    assert compared is not None  # every measured model has a heat
    batch, online = np.array(compared.reference), np.array(compared.other)
    relative = None
    if batch.all():
        relative = compare_pairs(np.zeros(len(batch)), 100 * (batch - online) / batch)
    return {
        "batch": float(batch.mean()),
        "online": float(online.mean()),
        "reduction": -compared.mean_difference,
        "interval": _negated(compared.interval),
        "percent": None if relative is None else relative.mean_difference,
        "percent_interval": None if relative is None else relative.interval,
        "t_test_p": compared.t_test_p,
        "sign_test_p": compared.sign_test_p if compared.pairs > 1 else None,
        "lower": int((online < batch).sum()),
        "pairs": compared.pairs,
        "note": compared.note,
    }


def _negated(interval: Interval | None) -> Interval | None:
    return None if interval is None else (-interval[1], -interval[0])


def heat_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """A row a pair: both mean heats with their trajectory spread, and the reduction."""
    rows = []
    for seed in pairs.seeds:
        batch, online = (pairs.models[rule, seed].results["heat"] for rule in RULES)
        reduction = batch["mean"] - online["mean"]
        rows.append(
            {
                "seed": seed,
                "batch": batch["mean"],
                "batch_sd": batch["sd"],
                "online": online["mean"],
                "online_sd": online["sd"],
                "reduction": reduction,
                "percent": 100 * reduction / batch["mean"] if batch["mean"] else None,
            }
        )
    return rows


def quality_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """A row a measure of quality, online − batch across pairs."""
    return [
        comparison_row(label, pairs.compare(f"quality.{name}"), key=name)
        for name, label in MEASURES.items()
    ]


ENERGIES = {
    "onsite": ("onsite",),
    "coupling": ("visible_hidden", "hidden_hidden"),
    "visible–hidden": ("visible_hidden",),
    "hidden–hidden": ("hidden_hidden",),
    "bias": ("bias",),
    "total": ("total",),
}
"""Rows of the energy table: what is summed under each name."""


def energy_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Mean energies at the start and at the end, in each model's own potential."""
    rows = []
    for moment, name in (("initial", "start"), ("final", "end")):
        for label, parts in ENERGIES.items():
            compared = pairs.compare(*(f"{moment}_energy.{part}" for part in parts))
            rows.append(comparison_row(label, compared, moment=name))
    return rows


def cross_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Mean energy drop of both ensembles in both potentials, across pairs."""
    return [
        {
            "potential": potential,
            "ensemble": ensemble,
            "kind": "heat released" if potential == ensemble else "diagnosis only",
            "drop": spread(pairs.drops(potential, ensemble)).mean,
            "sd": spread(pairs.drops(potential, ensemble)).sd,
        }
        for potential in RULES
        for ensemble in RULES
    ]


def norm_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Frobenius norms, an undirected hidden–hidden edge counted once."""
    labels = {
        "visible_hidden": "‖J_vh‖",
        "hidden_hidden": "‖J_hh‖ (each edge once)",
        "bias": "‖b_h‖",
    }
    return [
        comparison_row(label, pairs.compare(f"norms.{key}"), key=key)
        for key, label in labels.items()
    ]


def path_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Losses and terms of the path-action identity, mean over the additional paths."""
    labels = {
        "loss": "loss per step",
        "reduced_loss": "loss per step without squared increments",
        "log_ratio": "log path-likelihood ratio R",
        "heat_like": "heat-like term of R",
        "force_squared": "force-squared term of R",
    }
    return [
        comparison_row(label, pairs.compare(f"paths.{key}"), key=key)
        for key, label in labels.items()
    ]


def class_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Class counts over all ten classes, a row a model; empty without a classifier."""
    return [
        {"seed": model.seed, "rule": model.rule, "counts": model.results["class_counts"]}
        for model in pairs.models.values()
        if model.results["class_counts"] is not None
    ]


def timing(pairs: Pairs) -> dict[str, float]:
    """Seconds of work by stage, summed over all models, whatever process did it.

    Paths are made inside training; their share is estimated from those made for diagnostics.
    """
    total: dict[str, float] = dict.fromkeys(
        ("paths", "training", "generation", "quality", "diagnostics", "replay"), 0.0
    )
    for model in pairs.models.values():
        spent = model.results["timing"]
        estimate = spent.get("one_path", 0.0) * spent["paths_made"]
        paths = min(estimate, spent["training"])
        total["paths"] += paths
        total["training"] += spent["training"] - paths
        for stage in ("generation", "quality", "diagnostics"):
            total[stage] += spent.get(stage, 0.0)
    total["replay"] = (replay_results(pairs) or {}).get("timing", {}).get("replay", 0.0)
    return total


def replay_results(pairs: Pairs) -> dict[str, Any] | None:
    """What the replay of the displayed archive found; None if there was none."""
    path = replay_path(pairs.folder, pairs.shown.settings, pairs.plan.paths)
    if not (path / MANIFEST).exists():
        return None
    run = RunDirectory.open(path)
    return run.results if run.state == "done" else None


def base_summary(pairs: Pairs) -> dict[str, Any]:
    """What every experiment of pairs reports, before its statements."""
    return {
        "pairs": len(pairs.seeds),
        "seeds": pairs.seeds,
        "missing": pairs.missing,
        "samples": pairs.plan.settings.generation.samples,
        "cycles": pairs.plan.settings.training.cycles,
        "additional_paths": pairs.plan.paths_per_prototype * len(pairs.prototypes),
        "heat": heat_reduction(pairs),
        "heat_rows": heat_rows(pairs),
        "quality": quality_rows(pairs),
        "energies": energy_rows(pairs),
        "cross": cross_rows(pairs),
        "norms": norm_rows(pairs),
        "paths": path_rows(pairs) if pairs.shown.results["paths"] else [],
        "identity_error": max(
            model.value("paths.identity_error") or 0.0 for model in pairs.models.values()
        ),
        "classes": class_rows(pairs),
        "shown": {
            "rule": pairs.shown.rule,
            "seed": pairs.shown.seed,
            "generation_seed": pairs.shown.settings.generation_seed,
        },
        "replay": replay_results(pairs),
        "timing": timing(pairs),
        "models": [{"rule": m.rule, "seed": m.seed, **m.results} for m in pairs.models.values()],
    }
