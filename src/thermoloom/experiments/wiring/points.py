"""One machine on one wiring: solved or trained, sampled, judged; nothing of it is kept."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np

from thermoloom.experiments.digits.parts import first_patterns
from thermoloom.experiments.results import is_classified
from thermoloom.experiments.works import Job
from thermoloom.generation import asked_classes, generate
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.class_accuracy import Asked
from thermoloom.measures.quality import measure_quality
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.fields import label_words, unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum
from thermoloom.training.trainer import train

TOLERANCE = 1e-4
"""|∇L(θ)|/|∇L(0)| at which θ* counts as solved: heat and images do not change any more."""


def measure_point(job: Job, patterns: int, samples: int) -> dict[str, Any]:
    """Expected loss, heat, work, quality and asked class of a machine that learned the first
    ``patterns``.
    """
    began = time.perf_counter()
    learned, settings = first_patterns(job.patterns, patterns), job.settings
    theta, loss = learned_machine(job, learned)
    learning = time.perf_counter() - began
    made = generate(theta, samples, settings.generation_seed)
    images = made.final_states[:, : settings.machine.visible]
    asked = asked_classes(theta, samples, None)
    judged: dict[str, Any] = {"asked": None, "diversity": None}
    if asked is not None and is_classified(settings):
        seen = Asked(images, asked.astype(np.intp), settings.measures.classifier).few(learned)
        judged = {key: seen[key] for key in judged}
    return judged | {
        "learning": learning,
        "expected_loss": loss,
        "heat": asdict(estimate_mean(made.heat)),
        "work": asdict(estimate_mean(made.work)),
        "quality": measure_quality(images, learned, settings.measures.classifier).summary(),
    }


def learned_machine(job: Job, learned: Patterns) -> tuple[Parameters, float]:
    """θ by the rule of the settings, and its expected loss per step."""
    machine = job.settings.machine
    fields, words = unit_fields(learned, machine), label_words(learned, machine)
    if job.settings.training.rule == "optimum":
        optimum = solve_optimum(machine, fields, words, TOLERANCE)
        return optimum.parameters, optimum.expected_loss
    cycles = job.settings.training.cycles
    theta = train(
        job.settings, fields, words, on_cycle=lambda t: job.report(t.cycle, cycles, None)
    ).parameters
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    losses = expected_losses(machine, fields, marginals, words)
    vectors = theta.vector.astype(np.float64)
    total = sum(loss.total(vector) for loss, vector in zip(losses, vectors, strict=True))
    return theta, total / machine.steps
