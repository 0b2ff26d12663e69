"""Schedules of least heat at equal quality: window edges and ramp, every one an exact solve.

    least E[Q]    over the ends of the windows and the ramp a(t) = 2 [1 − t/(e t_f)]₊ⁿ
    such that     miss ≤ miss of the machine with its schedule unchanged
    miss²       = W₂²(generated image, image as it is imprinted)/E|imprinted image|²

of a harmonic machine that draws the class requested. The law of its states is a Gaussian, so its
heat, its miss and its speed limit are exact: no sample is drawn, and nothing is noisy.

The search runs on the same images with fewer pixels, where a solve takes a second. The schedule of
least heat is then solved with all pixels, beside the unchanged one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.settings import Settings
from thermoloom.studies.case import Job
from thermoloom.theory.generation_law import gelbrich, generation_law, imprinted_law
from thermoloom.theory.solver import solve_optimum
from thermoloom.threads import threads

TOLERANCE = 1e-3
"""|∇L(θ)|/|∇L(0)| of a solve: below it, heat and miss no longer change."""
SLACK = 1e-3
"""Two misses are equal up to this fraction."""
BOUNDS = ((0.3, 1.0), (math.log(0.4), math.log(4.0)))
"""Bounds on the end of the ramp and on the logarithm of its power."""
LONGEST = 1.5
"""Bound on the logarithm of the length of a window, that of the last one being 0."""
FIRST_STEP = 0.25
UNCHANGED, SEARCHED = "own", "best"
"""Schedules by their names in tables: the machine's, and the one of least heat."""

Performance = dict[str, float]


def performance(machine: Machine, patterns: Patterns) -> Performance:
    """Exact means over the patterns requested: heat and work in E₀, entropies in nats."""
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

    Returns the machine, its performance and the number of solves. The search is SciPy's COBYLA,
    which needs no derivatives and bounds a second function.
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
    sufficient = [entry for entry in known.values() if is_as_good(entry[1]["miss"], allowed)]
    best, best_performance = (
        min(sufficient, key=lambda entry: entry[1]["heat"])
        if sufficient
        else min(known.values(), key=lambda entry: entry[1]["miss"])
    )
    return best, best_performance, len(known)


def is_as_good(miss: float, allowed: float) -> bool:
    """Whether a miss is no larger than allowed."""
    return miss <= allowed * (1 + SLACK)


def with_fewer_pixels(settings: Settings, pixels: int) -> Settings:
    """The same machine for smaller images."""
    return settings.updated(
        {"machine": {"visible": pixels}, "patterns": {"resize": True, "content": ""}}
    )


def least_heat_schedule(job: Job, duration: float, evaluations: int, pixels: int) -> dict[str, Any]:
    """The schedule of least heat for one t_f, at the quality of the unchanged machine.

    ``pixels``: size of the images on which it is searched for; 0: all. Both schedules are solved
    with all pixels.
    """
    settings, patterns = job.settings, job.patterns
    if pixels:
        settings = with_fewer_pixels(settings, pixels)
        patterns = load_patterns(settings.patterns, settings.machine)
    allowed = performance(settings.machine, patterns)["miss"]
    best, small_performance, solves = least_heat(
        replace(settings.machine, duration=duration),
        patterns,
        allowed,
        evaluations,
        lambda done, heat: job.report(done, evaluations + 4, None),
    )
    unchanged = replace(job.settings.machine, duration=duration)
    schedule = {key: getattr(best, key) for key in ("ramp_end", "ramp_power", "windows")}
    return {
        UNCHANGED: performance(unchanged, job.patterns),
        SEARCHED: performance(replace(unchanged, **schedule), job.patterns),
        **schedule,
        "fewer_pixels": small_performance | {"allowed": allowed},
        "solves": solves,
        "reached": is_as_good(small_performance["miss"], allowed),
    }
