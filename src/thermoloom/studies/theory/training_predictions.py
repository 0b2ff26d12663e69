"""Training as theory predicts it before anything is trained.

training_limits      critical learning rates, growth near them, bits at which updates vanish
predicted_training   E[θ] and its noise along a training: loss, distance from θ*, offset shift
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from thermoloom.engines import engine
from thermoloom.machine.parameters import Layout
from thermoloom.machine.quantization import largest_magnitude
from thermoloom.studies.case import Job
from thermoloom.studies.gather import save_rows
from thermoloom.studies.theory.expectation import Expectation, Vector, parameters_of_vector
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
"""Random pairs, steps and states from which the fraction of surviving updates is estimated."""
COUPLINGS = ("visible_hidden", "hidden_hidden")
SHIFTED = ("bias", *COUPLINGS)
"""Columns of the tables of shifts that an offset causes."""


def training_limits(job: Job, factors: list[float], bits: list[int]) -> dict[str, Any]:
    """Critical rates of both rules, growth at ``factors`` of the batch one, update sizes."""
    machine, fields = job.settings.machine, job.drive.fields
    expectation = Expectation(machine, fields)
    marginals = expectation.marginals
    batch = batch_stability(machine, fields, marginals)
    online = online_stability(machine, fields, marginals)
    job.report(1, 3, None)
    windows = mean_rule(machine, fields, marginals, 1.0, machine.steps).patterns
    growth = [round_growth(MeanRule(f * batch.critical_rate, windows)) for f in factors]
    job.run.save_table("growth", {"factor": factors, "growth": growth})
    job.report(2, 3, None)
    rate, form = job.settings.learning_rate, expectation.loss.layout
    ranges = {name: largest_magnitude(form[name].of(expectation.optimum)) for name in COUPLINGS}
    sizes = asdict(update_size(machine, fields, marginals))
    surviving = {
        f"surviving_{name}": [
            surviving_fraction(
                machine, fields, marginals, rate, largest, depth, form[name].symmetric, DRAWS
            )
            for depth in bits
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


def predicted_training(job: Job, offset: float, offset_cycles: int) -> dict[str, Any]:
    """E[θ] and one sample of its noise along a training of this rule, and the offset's shift."""
    settings, machine, fields = job.settings, job.settings.machine, job.drive.fields
    expectation = Expectation(machine, fields)
    loss, marginals, optimum = expectation.loss, expectation.marginals, expectation.optimum
    rule = mean_rule(machine, fields, marginals, settings.learning_rate, settings.period)
    cycles, every = settings.training.cycles, settings.training.validation_every
    validated = ExpectedLoss(machine, fields[:1], marginals)
    loss_of = engine().watch(validation_path(settings, job.drive))

    def on_path(vector: Vector) -> float:
        return loss_of(parameters_of_vector(machine, vector)).reduced_loss

    least, rows = loss.total(optimum) / loss.steps, []
    means = mean_parameters(rule, cycles, every)
    deviations = sampled_deviations(rule, cycles, every)
    for (cycle, mean), (_, deviation) in zip(means, deviations, strict=True):
        validation = on_path(mean) + parameter_scatter(validated, deviation).excess_loss
        rows.append(
            {
                "cycle": cycle,
                "validation": validation,
                "mean_excess": loss.total(mean) / loss.steps - least,
                "noise_excess": parameter_scatter(loss, deviation).excess_loss,
            }
        )
        job.report(cycle, cycles, validation)
    save_rows(job.run, "curve", rows)
    job.run.save_arrays("mean", parameters_of_vector(machine, mean).arrays)
    without_offset = mean_parameters(rule, offset_cycles, every)
    with_offset = mean_parameters(rule, offset_cycles, every, offset)
    shifts = [
        {"cycle": cycle} | shift_sizes(loss.layout, shifted - plain)
        for (cycle, plain), (_, shifted) in zip(without_offset, with_offset, strict=True)
    ]
    save_rows(job.run, "offset", shifts)
    return {
        "noise": asdict(parameter_scatter(loss, deviation)),
        "distance": asdict(parameter_scatter(loss, mean - optimum)),
        "optimum_validation": on_path(optimum),
    }


def shift_sizes(form: Layout, shift: Vector) -> dict[str, float]:
    """Mean hidden bias and root mean squares of the coupling blocks of a flat vector."""
    squares = mean_squares(form, shift)
    return {"bias": float(form["hidden_bias"].of(shift).mean())} | {
        name: float(np.sqrt(squares[name])) for name in COUPLINGS
    }
