"""Schedules: window edges, ramp and t_f for least heat at equal quality, every one an exact solve.

    least E[Q]    over the ends of the windows and the ramp a(t) = 2 [1 − t/(e t_f)]₊ⁿ
    such that     miss ≤ miss of the machine's own schedule
    miss²       = W₂²(generated image, image as it is imprinted)/E|imprinted image|²

of a harmonic machine that draws what it is asked for. The law of its states is a Gaussian, so its
heat, its miss and its speed limit are exact: no sample is drawn, and nothing is noisy.

The loop runs on the same images with fewer pixels, where a solve takes a second. What it finds is
then solved with all of them, beside the machine's own schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from thermoloom.experiments.works import Job
from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.settings import Settings
from thermoloom.theory.generation_law import gelbrich, generation_law, imprinted_law
from thermoloom.theory.solver import solve_optimum
from thermoloom.threads import threads

TOLERANCE = 1e-3
"""|∇L(θ)|/|∇L(0)| at which heat and miss do not change any more."""
SLACK = 1e-3
"""A miss is the same as another up to this fraction of it."""
BOUNDS = ((0.3, 1.0), (math.log(0.4), math.log(4.0)))
"""Bounds on the end of the ramp and on the logarithm of its power."""
LONGEST = 1.5
"""Bound on the logarithm of the length of a window, that of the last one being 0."""
FIRST_STEP = 0.25

Performance = dict[str, float]


def performance(machine: Machine, patterns: Patterns) -> Performance:
    """Exact means over the patterns asked for: heat and work in E₀, entropies in nats."""
    drive = drive_of(patterns, machine)
    fields, words = drive
    assert words is not None
    with threads(1):  # a second thread gains little and waits for busy cores
        solved = solve_optimum(machine, drive, TOLERANCE)
        law = generation_law(solved.parameters, words.astype(np.float64))
        imprinted = imprinted_law(machine, fields.astype(np.float64))
        away = gelbrich(imprinted, law.laws[-1]).mean()
        return {
            "heat": float(law.heat.mean()),
            "work": float(law.work.mean()),
            "production": float(law.entropy_production.mean()),
            "speed_limit": float(law.speed_limit.mean()),
            "entropy_change": law.entropy_change,
            "miss": math.sqrt(away / (imprinted.mean**2).sum(axis=1).mean()),
        }


def scheduled(machine: Machine, x: Sequence[float] | NDArray[np.float64]) -> Machine:
    """The machine with the ramp and the windows of a point: e, ln n, then logarithms of lengths."""
    end, power = (min(max(v, low), high) for v, (low, high) in zip(x[:2], BOUNDS, strict=True))
    lengths = np.exp(np.clip([*x[2:], 0.0], -LONGEST, LONGEST))
    edges = np.cumsum(lengths) / lengths.sum()
    return replace(
        machine,
        ramp_end=float(end),
        ramp_power=math.exp(power),
        windows=(*edges[:-1].tolist(), 1.0) if machine.stages > 1 else (),
    )


def least_heat(
    machine: Machine,
    patterns: Patterns,
    allowed: float,
    evaluations: int,
    report: Callable[[int, float], None] | None = None,
) -> tuple[Machine, Performance, int]:
    """The schedule of least heat whose miss is ``allowed``; of least miss, where none reaches it.

    Also how many were solved. COBYLA of SciPy: no derivatives, and bounds on a second function.
    """
    known: dict[tuple[float, ...], tuple[Machine, Performance]] = {}

    def at(x: NDArray[np.float64]) -> Performance:
        key = tuple(x.tolist())
        if key not in known:
            tried = scheduled(machine, x)
            known[key] = tried, performance(tried, patterns)
            if report:
                report(len(known), known[key][1]["heat"])
        return known[key][1]

    start = np.array(
        [machine.ramp_end, math.log(machine.ramp_power)] + [0.0] * (machine.stages - 1)
    )
    scale = at(start)["heat"]
    minimize(
        lambda x: at(x)["heat"] / scale,
        start,
        method="COBYLA",
        bounds=[*BOUNDS, *[(-LONGEST, LONGEST)] * (machine.stages - 1)],
        constraints={"type": "ineq", "fun": lambda x: math.log(allowed / at(x)["miss"])},
        options={"rhobeg": FIRST_STEP, "maxiter": evaluations, "tol": 1e-2},
    )
    good = [found for found in known.values() if found[1]["miss"] <= allowed * (1 + SLACK)]
    best, seen = (
        min(good, key=lambda found: found[1]["heat"])
        if good
        else min(known.values(), key=lambda found: found[1]["miss"])
    )
    return best, seen, len(known)


def with_fewer_pixels(settings: Settings, pixels: int) -> Settings:
    """The same machine for smaller images."""
    return settings.updated(
        {"machine": {"visible": pixels}, "patterns": {"resize": True, "content": ""}}
    )


def search(job: Job, duration: float, evaluations: int, pixels: int) -> dict[str, Any]:
    """The best schedule of one t_f at the quality of the machine's own, and both at full size.

    ``pixels``: of the images on which it is searched for; 0, all of them.
    """
    settings, patterns = job.settings, job.patterns
    if pixels:
        settings = with_fewer_pixels(settings, pixels)
        patterns = load_patterns(settings.patterns, settings.machine)
    own = performance(settings.machine, patterns)
    found, small, solves = least_heat(
        replace(settings.machine, duration=duration),
        patterns,
        own["miss"],
        evaluations,
        lambda done, heat: job.report(done, evaluations + 4, None),
    )
    machine = replace(job.settings.machine, duration=duration)
    best = replace(
        machine, ramp_end=found.ramp_end, ramp_power=found.ramp_power, windows=found.windows
    )
    return {
        "own": performance(machine, job.patterns),
        "best": performance(best, job.patterns),
        "ramp_end": best.ramp_end,
        "ramp_power": best.ramp_power,
        "windows": list(best.windows),
        "searched": small | {"allowed": own["miss"], "solves": solves},
        "reached": small["miss"] <= own["miss"] * (1 + SLACK),
    }
