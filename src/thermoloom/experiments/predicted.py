"""What the theory says before anything is trained: limits of a rule, and its course in the mean.

limits      critical learning rates, growth near them, bits at which updates vanish, offset law
prediction  E[θ] and its noise along a training: loss, distance from θ*, spread, offset shift
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import Settings
from thermoloom.experiments.theory_runs import Ground, Work
from thermoloom.machine.action import path_loss
from thermoloom.runs.tasks import Report
from thermoloom.theory.optimum import ExpectedLoss, Layout
from thermoloom.theory.predictions import (
    MeanRule,
    batch_stability,
    mean_parameters,
    mean_rule,
    online_stability,
    round_growth,
    sampled_deviations,
    spread,
    surviving_fraction,
    update_size,
    vanishing_bits,
)
from thermoloom.machine.precision import largest_magnitude
from thermoloom.training.trainer import validation_path

LIMITS, PREDICTION = "limits", "prediction"
DRAWS = 50_000
"""Random pairs, steps and states from which the fraction of surviving updates is found."""
BLOCKS = ("visible_hidden", "hidden_hidden", "hidden_bias")


def limits_work(settings: Settings, factors: tuple[float, ...], bits: tuple[int, ...]) -> Work:
    return Work(LIMITS, settings, {"factors": list(factors), "bits": list(bits)})


def predict_limits(
    workdir: Path, report: Report, model: dict[str, Any], factors: list[float], bits: list[int]
) -> dict[str, Any]:
    """Critical rates of both rules, growth at ``factors`` of the batch one, update sizes."""
    work = limits_work(Settings.from_dict(model), tuple(factors), tuple(bits))
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        machine, fields = work.settings.machine, pending.fields
        ground = Ground(work.settings, fields)
        marginals = ground.marginals
        batch = batch_stability(machine, fields, marginals)
        online = online_stability(machine, fields, marginals)
        report(1, 3, None)
        windows = mean_rule(machine, fields, marginals, 1.0, machine.steps).prototypes
        growth = [round_growth(MeanRule(f * batch.critical_rate, windows)) for f in factors]
        pending.run.save_table("growth", {"factor": factors, "growth": growth})
        report(2, 3, None)
        ranges = [largest_magnitude(part) for part in ground.loss.layout.split(ground.optimum)]
        sizes = update_size(machine, fields, marginals)
        rate = work.settings.learning_rate
        pending.run.save_table(
            "bits",
            {"bits": bits}
            | {
                f"surviving_{name}": [
                    surviving_fraction(machine, fields, marginals, rate, largest, b, hidden, DRAWS)
                    for b in bits
                ]
                for name, largest, hidden in zip(BLOCKS, ranges, (False, True), strict=False)
            },
        )
        pending.results |= {
            "batch": asdict(batch),
            "online": asdict(online),
            "learning_rate": rate,
            "ranges": ranges[:2],
            "update": asdict(sizes),
            "vanishing_bits": {
                name: vanishing_bits(largest, rate * getattr(sizes, name))
                for name, largest in zip(BLOCKS, ranges, strict=False)
                if name != "hidden_bias"
            },
        }
    return {}


def rule_work(settings: Settings, offset: float, offset_cycles: int) -> Work:
    return Work(PREDICTION, settings, {"offset": offset, "offset_cycles": offset_cycles})


def predict_rule(
    workdir: Path, report: Report, model: dict[str, Any], offset: float, offset_cycles: int
) -> dict[str, Any]:
    """E[θ] and one sample of its noise along a training of this rule, and the offset's shift."""
    work = rule_work(Settings.from_dict(model), offset, offset_cycles)
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        settings, machine = work.settings, work.settings.machine
        ground = Ground(settings, pending.fields)
        loss, layout = ground.loss, ground.loss.layout
        rule = mean_rule(
            machine, pending.fields, ground.marginals, settings.learning_rate, settings.period
        )
        cycles, every = settings.training.cycles, settings.training.validation_every
        watched = ExpectedLoss(machine, pending.fields[:1], ground.marginals)
        path = validation_path(settings, pending.fields)
        best, rows = loss.total(ground.optimum) / loss.steps, []
        means = mean_parameters(rule, cycles, every)
        deviations = sampled_deviations(rule, cycles, every)
        for (cycle, mean), (_, deviation) in zip(means, deviations, strict=True):
            on_path = path_loss(layout.computer(mean, np.float32), machine, path).reduced
            noise = spread(watched, deviation).excess_loss
            rows.append(
                {
                    "cycle": cycle,
                    "validation": on_path + noise,
                    "mean_excess": loss.total(mean) / loss.steps - best,
                    "noise_excess": spread(loss, deviation).excess_loss,
                }
            )
            report(cycle, cycles, on_path + noise)
        pending.run.save_table("curve", {key: [row[key] for row in rows] for key in rows[0]})
        pending.run.save_arrays("mean", layout.computer(mean, np.float32).arrays)
        _save_offset(pending.run, layout, rule, offset_cycles, every, offset)
        pending.results |= {
            "noise": asdict(spread(loss, deviation)),
            "distance": asdict(spread(loss, mean - ground.optimum)),
            "optimum_validation": path_loss(
                layout.computer(ground.optimum, np.float32), machine, path
            ).reduced,
        }
    return {}


def _save_offset(
    run: Any, layout: Layout, rule: MeanRule, cycles: int, every: int, offset: float
) -> None:
    """Shift of E[θ] that an offset has made after so many cycles: mean bias, sizes by block."""
    rows = []
    plain = mean_parameters(rule, cycles, every)
    biased = mean_parameters(rule, cycles, every, offset)
    for (cycle, without), (_, with_offset) in zip(plain, biased, strict=True):
        shift = with_offset - without
        rows.append({"cycle": cycle} | shift_sizes(layout, shift))
    run.save_table("offset", {key: [row[key] for row in rows] for key in rows[0]})
    run.save_arrays("shift", layout.computer(shift, np.float32).arrays)


def shift_sizes(layout: Layout, shift: np.ndarray[Any, Any]) -> dict[str, float]:
    """Mean hidden bias and root mean squares of the coupling blocks of a flat vector."""
    vh, hh, b = layout.split(shift)
    edges = max(1, b.size * (b.size - 1))
    return {
        "bias": float(b.mean()),
        "visible_hidden": float(np.sqrt((vh**2).mean())),
        "hidden_hidden": float(np.sqrt((hh**2).sum() / edges)),
    }
