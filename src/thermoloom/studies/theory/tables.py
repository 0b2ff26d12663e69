"""Predictions and measurements side by side, in tables.

    scan     a short training near a critical learning rate
    curves   an evaluation of the validation loss, predicted and measured
    noise    a parameter block of a rule: spread around its mean
    offset   the shift that an offset has caused after so many cycles
    bits     a bit depth: updates that survive, couplings that have moved
    origin   the heat of a mixture, with the random numbers of one pair
    norms    a parameter block of a rule: distance from θ*
    paths    a computer on an additional noising path, θ* among them

A quantity that could not be predicted or measured has no table, and None in the summary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.gather import Gathered, Record, save_rows, stacked
from thermoloom.studies.pairs import OPTIMUM, Pairs, optimum_records
from thermoloom.studies.theory.expectation import Vector
from thermoloom.studies.theory.heat_account import heat_account, heat_curves, predicted_difference
from thermoloom.studies.theory.mixtures import mixture_heats, predicted_mean_heats, seed_noise
from thermoloom.studies.theory.plan import TheoryPlan
from thermoloom.studies.theory.probes import grid_probe, offset_probe, rate_probe
from thermoloom.studies.theory.training_predictions import (
    COUPLINGS,
    SHIFTED,
    predicted_training,
    training_limits,
)
from thermoloom.theory.predictions import offset_bias_law, offset_rate, stationary_variance

Row = dict[str, Any]


def predictions_of(gathered: Gathered) -> dict[str, Record]:
    """Predictions by rule; a rule whose prediction failed is left out."""
    records = {rule: gathered.of(predicted_training).one(rule=rule) for rule in RULES}
    return {rule: record for rule, record in records.items() if record is not None}


def save_paths(plan: TheoryPlan, gathered: Gathered, pairs: Pairs, run: RunDirectory) -> Row | None:
    """θ* on the additional paths beside every trained computer; how it was solved."""
    optimum = optimum_records(gathered, plan.seeds[:1])
    if not optimum or not optimum[0].run.has("paths.csv"):
        return None
    tables = []
    for record in (*optimum, *pairs.records):
        table = record.table("paths")
        owner = {"rule": record.rule, "seed": 0 if record.rule == OPTIMUM else record.seed}
        tables.append((owner, {name: table[name] for name in ("path", "loss")}))
    run.save_table("paths", stacked(tables))
    return optimum[0].training.results


# --- learning rates ---


def save_scan(gathered: Gathered, run: RunDirectory) -> list[Row]:
    """The short trainings of both rules near their critical rates."""
    limits, predictions = gathered.of(training_limits).one(), predictions_of(gathered)
    if limits is None or not predictions:
        return []
    table = limits.table("growth")
    growth = dict(zip(table["factor"].tolist(), table["growth"].tolist(), strict=True))
    least = next(iter(predictions.values())).results["optimum_validation"]
    rows = [_scan_row(probe, least, growth) for probe in gathered.of(rate_probe)]
    if rows:
        save_rows(run, "scan", rows)
    return rows


def _scan_row(probe: Record, least: float, predicted_growth: dict[float, float]) -> Row:
    """A short training; ``least``: validation loss of θ*."""
    loss, diverged_in = probe.table("curve")["reduced_loss"], probe.results["diverged_in"]
    ratio, growth = growth_of(loss - least, diverged_in is not None)
    rule, factor = probe.labels["rule"], probe.labels["factor"]
    return {
        "rule": rule,
        "factor": factor,
        "scale": probe.results["scale"],
        "cycles": probe.settings.training.cycles,
        "diverged_in": diverged_in,
        "largest_loss": float(np.nanmax(loss)),
        "final_loss": float(loss[-1]),
        "ratio": ratio,
        "growth": growth,
        "predicted_growth": predicted_growth.get(factor) if rule == "batch" else None,
    }


def growth_of(excess: Vector, diverged: bool) -> tuple[float | None, float | None]:
    """Excess loss of the last third of a training over that of the second, and the growth of θ.

    The loss is quadratic, so θ grows from one evaluation to the next as its square root. The ratio
    is None where the excess ceased to be finite, 0 where there is none.
    """
    if diverged or not np.isfinite(excess).all():
        return None, None
    thirds = np.array_split(excess, 3)
    before, after = float(thirds[1].mean()), float(thirds[2].mean())
    if not (before > 0 and after > 0):
        return 0.0, None
    evaluations = (len(thirds[1]) + len(thirds[2])) / 2
    return after / before, (after / before) ** (0.5 / evaluations)


# --- the course of training ---


def save_curves(gathered: Gathered, pairs: Pairs, run: RunDirectory) -> None:
    """Validation loss along training: predicted in the mean with noise, and measured."""
    rows = []
    for rule, prediction in predictions_of(gathered).items():
        predicted = prediction.table("curve")
        curves = [pairs.computers[rule, seed].curve["reduced_loss"] for seed in pairs.seeds]
        sd = np.std(curves, axis=0, ddof=1) if len(curves) > 1 else np.full(len(curves[0]), np.nan)
        columns = (predicted["cycle"], predicted["validation"], np.mean(curves, axis=0), sd)
        rows += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m, "sd": s}
            for c, p, m, s in zip(*columns, strict=True)
        ]
    if rows:
        save_rows(run, "curves", rows)


def save_noise(plan: TheoryPlan, gathered: Gathered, run: RunDirectory) -> Row | None:
    """Spread of trained computers across seeds: by block, as excess loss, and of their mean."""
    record = gathered.of(seed_noise).one()
    if record is None:
        return None
    measured, rows, by_rule = record.results, [], {}
    for rule, prediction in predictions_of(gathered).items():
        predicted, of_rule = prediction.results["noise"], measured["rules"][rule]
        rows += [
            {
                "rule": rule,
                "block": norm["block"],
                "predicted": math.sqrt(predicted["blocks"][norm["block"]]),
                "measured": norm["noise_rms"],
            }
            for norm in measured["norms"]
            if norm["rule"] == rule
        ]
        rate = plan.computer(rule, 1).learning_rate
        by_rule[rule] = {
            "stationary": math.sqrt(stationary_variance(rate)),
            "predicted_excess": predicted["excess_loss"],
            "measured_excess": of_rule["excess_loss"],
            "noise_of_mean": math.sqrt(predicted["blocks"]["visible_hidden"] / measured["seeds"]),
            "from_prediction": math.sqrt(of_rule["from_prediction"]),
            "from_optimum": math.sqrt(of_rule["from_optimum"]),
        }
    save_rows(run, "noise", rows)
    return {"seeds": measured["seeds"], "rules": by_rule}


# --- offset and bits ---


def save_offset(plan: TheoryPlan, gathered: Gathered, run: RunDirectory) -> Row | None:
    """The shift that a residual offset causes, and the law if it moves only the biases.

    b = −(2k_BT/μΔt) μ_bias (1 − (1 − ρ)^n)
    """
    rows, by_rule = [], {}
    for rule, prediction in predictions_of(gathered).items():
        probe = gathered.of(offset_probe).one(rule=rule)
        if probe is None:
            continue
        predicted, measured = prediction.table("offset"), probe.table("offset")
        columns = (predicted["cycle"], predicted["bias"], measured["bias"])
        rows += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m}
            for c, p, m in zip(*columns, strict=True)
        ]
        by_rule[rule] = {
            f"{kind}_{key}": float(source[key][-1])
            for kind, source in (("predicted", predicted), ("measured", measured))
            for key in SHIFTED
        }
    if not rows:
        return None
    save_rows(run, "offset", rows)
    machine, noise = plan.settings.machine, gathered.of(seed_noise).one()
    law, rate = offset_bias_law(machine), offset_rate(machine, plan.base.learning_rate)
    return {
        "offset": plan.offset,
        "cycles": plan.offset_cycles,
        "rules": by_rule,
        "alone": law * plan.offset * (1 - (1 - rate) ** plan.offset_cycles),
        "final": law * plan.offset,
        "rate_percent": 100 * rate,
        "response": None if noise is None else noise.results["offset_response"] * plan.offset,
    }


def save_bits(plan: TheoryPlan, gathered: Gathered, run: RunDirectory) -> None:
    """Updates that survive rounding on a grid, and couplings that move in a short training."""
    limits, probe = gathered.of(training_limits).one(), gathered.of(grid_probe).one()
    if limits is None or probe is None:
        return
    predicted, measured = limits.table("bits"), probe.table("bits")
    visible, hidden = (f"surviving_{name}" for name in COUPLINGS)
    steps = plan.grid_cycles * plan.settings.machine.steps
    run.save_table(
        "bits",
        {
            "bits": predicted["bits"],
            "predicted": predicted[visible],
            "measured": measured[visible],
            # at most so many couplings have moved: some move more than once, some return
            "expected_moves": steps * predicted[visible],
            "nonzero": measured[f"nonzero_{COUPLINGS[0]}"],
            "predicted_hidden": predicted[hidden],
            "measured_hidden": measured[hidden],
        },
    )


# --- where the heat comes from ---


def save_origin(plan: TheoryPlan, gathered: Gathered, run: RunDirectory) -> Row | None:
    """Distances of the trained computers from θ*, and their heat; None where heats are missing."""
    noise, mixtures = gathered.of(seed_noise).one(), gathered.of(mixture_heats).records
    if noise is None or len(mixtures) < sum(len(plan.mixtures(seed)) for seed in plan.seeds):
        return None
    heats = stacked(({"seed": record.seed}, record.table("heats")) for record in mixtures)
    save_rows(run, "norms", noise.results["norms"])
    run.save_table("origin", heats)
    accounts = heat_account(heats)
    predicted = gathered.of(predicted_mean_heats).one()
    if predicted is not None:
        accounts["predicted_mean"] = predicted_difference(predicted.table("heats"))
    return {
        "norms": noise.results["norms"],
        "size": noise.results["size"],
        "accounts": accounts,
        "curves": heat_curves(heats),
        "samples": plan.heat_samples,
        "line_pairs": min(plan.line_pairs, len(plan.seeds)),
    }
