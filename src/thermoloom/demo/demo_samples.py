"""Samples of the demo: the trajectories of a ten-digit machine, solved on the bundled images.

    noise x₀ ──▶ x(t) at about forty times ──▶ ten digits, equally often
    heat   Q(t) = Σ_stages V_t(start) − V_t(x)       work   W(t) = Σ_switches V_t(x) − V_{t+1}(x)

The machine has harmonic units, all coupled with each other, and a label unit for each class and
style; a window of development makes its images sharp. ``demo.demo_page`` builds the page from the
arrays and numbers returned here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thermoloom.generation import course, drawn_words, generate, requested_classes
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.presets import SHARP
from thermoloom.machine.protocol import watched_steps, window_names
from thermoloom.measures.classifier import classify
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import load_patterns
from thermoloom.settings import PatternSettings
from thermoloom.theory.solver import Solution, solve_optimum

MACHINE = replace(SHARP, styles=10)
"""A label unit for each of the hundred bundled images."""
DIGITS = PatternSettings(digits=tuple(range(10)), per_digit=10)
TOLERANCE = 1e-3
"""|∇L(θ)|/|∇L(0)| below which neither heat nor images change visibly."""
SAMPLES, FRAMES, SEED = 30, 40, 90101


def solve_demo(
    machine: Machine = MACHINE, on_iteration: Callable[[int, float], None] | None = None
) -> Solution:
    """The machine's optimum for the bundled digits."""
    patterns = load_patterns(DIGITS, machine)
    return solve_optimum(machine, drive_of(patterns, machine), TOLERANCE, on_iteration)


def draw_demo(
    theta: Parameters, samples: int = SAMPLES, frames: int = FRAMES, seed: int = SEED
) -> dict[str, Any]:
    """Samples of all digits in turn: images and energies at ``frames`` times and all switches."""
    began, machine = time.perf_counter(), theta.machine
    steps = watched_steps(machine, frames)
    requested = requested_classes(theta, samples, None)
    assert requested is not None  # this machine has labels
    generated = generate(
        theta,
        samples,
        seed,
        requested.tolist(),
        snapshot_steps=steps,
        snapshot_samples=range(samples),
    )
    seconds = time.perf_counter() - began
    words = drawn_words(theta, samples, seed, requested.tolist())
    images = generated.snapshots[..., : machine.visible]
    scores = classify(images[:, -1])
    return {
        "units": machine.visible,
        "stages": machine.stages,
        "styles": machine.styles,
        "windows": window_names(machine),
        "time_steps": machine.generation_steps,
        "kT": machine.kT,
        "seed": seed,
        "seconds": seconds,
        "images": images,
        "steps": steps,
        "requested": requested,
        "seen": scores.argmax(axis=1),
        "scores": scores.max(axis=1),
        "course": course(theta, generated, steps, words),
        "stage_heat": generated.stage_heat,
        "switching_work": generated.switching_work,
        "starts": generated.starts.total,
        "ends": generated.ends.total,
    }
