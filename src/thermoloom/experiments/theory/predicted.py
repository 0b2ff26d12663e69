"""What the theory says before anything is trained: limits of a rule, and its course in the mean.

limits      critical learning rates, growth near them, bits at which updates vanish
prediction  E[θ] and its noise along a training: loss, distance from θ*, spread, offset shift
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import engine
from thermoloom.experiments.results import save_rows
from thermoloom.experiments.works import Job
from thermoloom.machine.parameters import Layout
from thermoloom.machine.quantization import largest_magnitude
from thermoloom.theory.expected_loss import ExpectedLoss
from thermoloom.theory.predictions import (
    MeanRule,
    batch_stability,
    mean_parameters,
    mean_rule,
    mean_squares,
    online_stability,
    parameter_scatter,
    round_growth,
    sampled_deviations,
    surviving_fraction,
    update_size,
    vanishing_bits,
)
from thermoloom.training.trainer import validation_path

DRAWS = 50_000
"""Random pairs, steps and states from which the fraction of surviving updates is found."""
COUPLINGS = ("visible_hidden", "hidden_hidden")


def predict_limits(job: Job, factors: list[float], bits: list[int]) -> dict[str, Any]:
    """Critical rates of both rules, growth at ``factors`` of the batch one, update sizes."""
    machine, fields, marginals = job.settings.machine, job.fields, job.marginals
    batch = batch_stability(machine, fields, marginals)
    online = online_stability(machine, fields, marginals)
    job.report(1, 3, None)
    windows = mean_rule(machine, fields, marginals, 1.0, machine.steps).prototypes
    growth = [round_growth(MeanRule(f * batch.critical_rate, windows)) for f in factors]
    job.run.save_table("growth", {"factor": factors, "growth": growth})
    job.report(2, 3, None)
    rate, form = job.settings.learning_rate, job.loss.layout
    ranges = {name: largest_magnitude(form[name].of(job.optimum)) for name in COUPLINGS}
    sizes = asdict(update_size(machine, fields, marginals))
    surviving = {
        f"surviving_{name}": [
            surviving_fraction(
                machine, fields, marginals, rate, largest, b, form[name].symmetric, DRAWS
            )
            for b in bits
        ]
        for name, largest in ranges.items()
    }
    job.run.save_table("bits", {"bits": bits, **surviving})
    return {
        "batch": asdict(batch),
        "online": asdict(online),
        "learning_rate": rate,
        "ranges": list(ranges.values()),
        "update": sizes,
        "vanishing_bits": {
            name: vanishing_bits(largest, rate * sizes[name]) for name, largest in ranges.items()
        },
    }


def predict_rule(job: Job, offset: float, offset_cycles: int) -> dict[str, Any]:
    """E[θ] and one sample of its noise along a training of this rule, and the offset's shift."""
    settings, machine, loss = job.settings, job.settings.machine, job.loss
    rule = mean_rule(machine, job.fields, job.marginals, settings.learning_rate, settings.period)
    cycles, every = settings.training.cycles, settings.training.validation_every
    watched = ExpectedLoss(machine, job.fields[:1], job.marginals)
    loss_of = engine().watch(validation_path(settings, job.fields))

    def on_path(vector: NDArray[np.float64]) -> float:
        return loss_of(job.parameters(vector)).reduced_loss

    best, rows = loss.total(job.optimum) / loss.steps, []
    means = mean_parameters(rule, cycles, every)
    deviations = sampled_deviations(rule, cycles, every)
    for (cycle, mean), (_, deviation) in zip(means, deviations, strict=True):
        validation = on_path(mean) + parameter_scatter(watched, deviation).excess_loss
        rows.append(
            {
                "cycle": cycle,
                "validation": validation,
                "mean_excess": loss.total(mean) / loss.steps - best,
                "noise_excess": parameter_scatter(loss, deviation).excess_loss,
            }
        )
        job.report(cycle, cycles, validation)
    save_rows(job.run, "curve", rows)
    job.run.save_arrays("mean", job.parameters(mean).arrays)
    shifts = []
    plain = mean_parameters(rule, offset_cycles, every)
    biased = mean_parameters(rule, offset_cycles, every, offset)
    for (cycle, without), (_, with_offset) in zip(plain, biased, strict=True):
        shift = with_offset - without
        shifts.append({"cycle": cycle} | shift_sizes(loss.layout, shift))
    save_rows(job.run, "offset", shifts)
    job.run.save_arrays("shift", job.parameters(shift).arrays)
    return {
        "noise": asdict(parameter_scatter(loss, deviation)),
        "distance": asdict(parameter_scatter(loss, mean - job.optimum)),
        "optimum_validation": on_path(job.optimum),
    }


def shift_sizes(form: Layout, shift: NDArray[np.float64]) -> dict[str, float]:
    """Mean hidden bias and root mean squares of the coupling blocks of a flat vector."""
    squares = mean_squares(form, shift)
    return {"bias": float(form["hidden_bias"].of(shift).mean())} | {
        name: float(np.sqrt(squares[name])) for name in COUPLINGS
    }
