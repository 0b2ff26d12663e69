"""What the theory's tasks left, put side by side: predicted and measured, in tables.

    scan     a short training near a critical learning rate
    curves   an evaluation of the validation loss, predicted and measured
    noise    a parameter block of a rule: spread around its mean
    offset   the shift that an offset has made after so many cycles
    bits     a bit depth: updates that survive, couplings that have moved
    origin   the heat of a mixture, with the random numbers of one pair
    norms    a parameter block of a rule: distance from θ*
    paths    a computer on an additional noising path, θ* among them

What could not be predicted or measured has no table, and None in the summary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.experiments.optimum import RULE as OPTIMUM
from thermoloom.experiments.optimum import optimum_measures, optimum_path
from thermoloom.experiments.pairs import Pairs
from thermoloom.experiments.results import Model, ended, finished, save_rows, stacked, trained_path
from thermoloom.experiments.theory import account
from thermoloom.experiments.theory.mixtures import Split, norm_rows, read_split
from thermoloom.experiments.theory.predicted import COUPLINGS
from thermoloom.experiments.theory.scope import TheoryPlan
from thermoloom.experiments.works import Work
from thermoloom.measures.paired import RULES
from thermoloom.runs.store import RunDirectory
from thermoloom.theory.predictions import offset_bias_law, offset_rate, stationary_variance

Row = dict[str, Any]
Table = dict[str, NDArray[Any]]
OFFSETS = ("bias", *COUPLINGS)


@dataclass(frozen=True)
class Findings:
    """What was predicted and measured of a plan."""

    plan: TheoryPlan
    folder: Path
    pairs: Pairs

    @cached_property
    def limits(self) -> RunDirectory | None:
        return self.plan.limits.found(self.folder)

    @cached_property
    def predictions(self) -> dict[str, RunDirectory]:
        """By rule; a rule whose prediction failed is not there."""
        found = {rule: self.plan.prediction(rule).found(self.folder) for rule in RULES}
        return {rule: run for rule, run in found.items() if run is not None}

    @cached_property
    def spread(self) -> RunDirectory | None:
        """The noise of the trained computers of all complete pairs."""
        return self.plan.spread(self.pairs.seeds).found(self.folder)

    @cached_property
    def split(self) -> Split | None:
        """The trained computers of all complete pairs; None without θ* or with one pair."""
        solved = finished(optimum_path(self.plan, self.folder))
        if len(self.pairs.seeds) < 2 or solved is None:
            return None
        return read_split(self.folder, self.plan.base, self.pairs.seeds)

    @cached_property
    def optimum(self) -> list[Model]:
        return optimum_measures(self.plan, self.folder, self.pairs.seeds)

    @cached_property
    def origin(self) -> Table | None:
        """The heats of all pairs, one under the other; None if one is missing."""
        tables: list[tuple[int, Table]] = []
        for seed in self.plan.seeds:
            for work in self.plan.origin(seed):
                run = work.found(self.folder)
                if run is None:
                    return None
                tables.append((seed, run.load_table("heats")))
        lengths = [len(table["heat"]) for _, table in tables]
        columns = {
            name: np.concatenate([table[name] for _, table in tables]) for name in tables[0][1]
        }
        return {"seed": np.repeat([seed for seed, _ in tables], lengths)} | columns

    @cached_property
    def predicted_heat(self) -> Table | None:
        """Heat of E[θ] of both rules, for every pair's random numbers."""
        run = self.plan.predicted_heat.found(self.folder)
        return None if run is None else run.load_table("heats")

    def seconds(self, works: Sequence[Work]) -> float:
        """Seconds that works took, those that are done."""
        runs = [work.found(self.folder) for work in works]
        return float(sum(run.results["seconds"] for run in runs if run is not None))


# --- tables, and the numbers of each topic ------------------------------------------------------


def save_paths(found: Findings, run: RunDirectory) -> Row | None:
    """θ* on the additional paths beside every trained computer; how it was solved."""
    first = optimum_measures(found.plan, found.folder, found.plan.seeds[:1])
    if not first or not first[0].measures.has("paths.csv"):
        return None
    models = [*first, *found.pairs.models.values()]
    tables = []
    for model in models:
        table = model.measures.load_table("paths")
        owner = {"rule": model.rule, "seed": 0 if model.rule == OPTIMUM else model.seed}
        tables.append((owner, {name: table[name] for name in ("path", "loss")}))
    run.save_table("paths", stacked(tables))
    return first[0].training.results


def save_scan(found: Findings, run: RunDirectory) -> list[Row]:
    """The short trainings of both rules near their critical rates."""
    if found.limits is None or not found.predictions:
        return []
    rows = [row for rule in RULES for row in _scan(found, found.limits, rule)]
    if rows:
        save_rows(run, "scan", rows)
    return rows


def _scan(found: Findings, limits: RunDirectory, rule: str) -> list[Row]:
    best = next(iter(found.predictions.values())).results["optimum_validation"]
    table = limits.load_table("growth")
    predicted = dict(zip(table["factor"].tolist(), table["growth"].tolist(), strict=True))
    rows = []
    for factor, settings in found.plan.scan(rule, limits):
        training = ended(trained_path(found.folder, settings))
        if training is None:
            continue
        loss = training.load_table("curve")["reduced_loss"]
        diverged = training.state == "diverged"
        ratio, growth = growth_of(loss - best, diverged)
        rows.append(
            {
                "rule": rule,
                "factor": factor,
                "scale": settings.training.learning_rate_scale,
                "cycles": settings.training.cycles,
                "diverged_in": training.results["cycle"] if diverged else None,
                "largest_loss": float(np.nanmax(loss)),
                "final_loss": float(loss[-1]),
                "ratio": ratio,
                "growth": growth,
                "predicted_growth": predicted.get(factor) if rule == "batch" else None,
            }
        )
    return rows


def growth_of(excess: NDArray[np.float64], diverged: bool) -> tuple[float | None, float | None]:
    """Excess loss of the last third of a training over that of the second, and the growth of θ.

    The loss is quadratic, so θ grows from one value to the next as its square root. The ratio is
    None where the excess ceased to be finite, 0 where there is none.
    """
    if diverged or not np.isfinite(excess).all():
        return None, None
    thirds = np.array_split(excess, 3)
    before, after = float(thirds[1].mean()), float(thirds[2].mean())
    if not (before > 0 and after > 0):
        return 0.0, None
    apart = (len(thirds[1]) + len(thirds[2])) / 2
    return after / before, (after / before) ** (0.5 / apart)


def save_curves(found: Findings, run: RunDirectory) -> None:
    """Validation loss along training: predicted in the mean with noise, and measured."""
    rows = []
    for rule, prediction in found.predictions.items():
        predicted = prediction.load_table("curve")
        curves = [model.curve["reduced_loss"] for model in found.pairs.of(rule)]
        sd = np.std(curves, axis=0, ddof=1) if len(curves) > 1 else np.full(len(curves[0]), np.nan)
        columns = (predicted["cycle"], predicted["validation"], np.mean(curves, axis=0), sd)
        rows += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m, "sd": s}
            for c, p, m, s in zip(*columns, strict=True)
        ]
    if rows:
        save_rows(run, "curves", rows)


def save_noise(found: Findings, run: RunDirectory) -> Row | None:
    """Spread of trained computers across seeds: by block, as excess loss, and of their mean."""
    split = found.split
    if split is None or found.spread is None:
        return None
    rows, by_rule = [], {}
    for rule, prediction in found.predictions.items():
        predicted, measured = prediction.results["noise"], found.spread.results[rule]
        rows += [
            {
                "rule": rule,
                "block": block,
                "predicted": math.sqrt(predicted["blocks"][block]),
                "measured": math.sqrt(split.noise[rule][block]),
            }
            for block in split.counts
        ]
        shift = split.mean_squares(split.means[rule] - split.optimum)
        rate = found.plan.model(rule, 1).learning_rate
        by_rule[rule] = {
            "stationary": math.sqrt(stationary_variance(rate)),
            "predicted_excess": predicted["excess_loss"],
            "measured_excess": measured["excess_loss"],
            "noise_of_mean": math.sqrt(predicted["blocks"]["visible_hidden"] / split.seeds),
            "from_prediction": math.sqrt(measured["from_prediction"]["visible_hidden"]),
            "from_optimum": math.sqrt(shift["visible_hidden"]),
        }
    save_rows(run, "noise", rows)
    return {"seeds": split.seeds, "rules": by_rule}


def save_offset(found: Findings, run: RunDirectory) -> Row | None:
    """The shift that a residual offset makes, and the law for biases that it moves alone.

    b = −(2k_BT/μΔt) μ_bias (1 − (1 − ρ)^n)
    """
    rows, by_rule = [], {}
    for rule, prediction in found.predictions.items():
        probe = found.plan.offset_probe(rule).found(found.folder)
        if probe is None:
            continue
        predicted, measured = prediction.load_table("offset"), probe.load_table("offset")
        columns = (predicted["cycle"], predicted["bias"], measured["bias"])
        rows += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m}
            for c, p, m in zip(*columns, strict=True)
        ]
        by_rule[rule] = {
            f"{kind}_{key}": float(source[key][-1])
            for kind, source in (("predicted", predicted), ("measured", measured))
            for key in OFFSETS
        }
    if not rows:
        return None
    save_rows(run, "offset", rows)
    plan, machine = found.plan, found.plan.settings.machine
    law, rate = offset_bias_law(machine), offset_rate(machine, plan.base.learning_rate)
    response = None if found.spread is None else found.spread.results["offset_response"]
    return {
        "offset": plan.offset,
        "cycles": plan.offset_cycles,
        "rules": by_rule,
        "alone": law * plan.offset * (1 - (1 - rate) ** plan.offset_cycles),
        "final": law * plan.offset,
        "rate_percent": 100 * rate,
        "response": None if response is None else response * plan.offset,
    }


def save_bits(found: Findings, run: RunDirectory) -> None:
    """Updates that survive rounding on a grid, and couplings that move in a short training."""
    probe = None if found.limits is None else found.plan.grid(found.limits).found(found.folder)
    if found.limits is None or probe is None:
        return
    predicted, measured = found.limits.load_table("bits"), probe.load_table("bits")
    own, hidden = (f"surviving_{name}" for name in COUPLINGS)
    steps = found.plan.grid_cycles * found.plan.settings.machine.steps
    run.save_table(
        "bits",
        {
            "bits": predicted["bits"],
            "predicted": predicted[own],
            "measured": measured[own],
            # at most so many couplings have moved: some move more than once, some return
            "expected_moves": steps * predicted[own],
            "nonzero": measured[f"nonzero_{COUPLINGS[0]}"],
            "predicted_hidden": predicted[hidden],
            "measured_hidden": measured[hidden],
        },
    )


def save_origin(found: Findings, run: RunDirectory) -> Row | None:
    """The split of the trained computers and of their heat; None where heats are missing."""
    if found.split is None or found.origin is None:
        return None
    norms = norm_rows(found.split)
    save_rows(run, "norms", norms)
    run.save_table("origin", found.origin)
    accounts = account.accounts(found.origin)
    if found.predicted_heat is not None:
        accounts["predicted_mean"] = account.predicted_difference(found.predicted_heat)
    return {
        "norms": norms,
        "size": found.split.size,
        "accounts": accounts,
        "curves": account.curves(found.origin),
        "samples": found.plan.heat_samples,
        "line_pairs": min(found.plan.line_pairs, len(found.plan.seeds)),
    }
