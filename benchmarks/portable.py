"""The portable engine in each array library, compared with a loop that a user would write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.harness import (
    Contestant,
    Options,
    Result,
    Row,
    all_threads,
    clocked,
    default_fields,
    in_turns,
)
from benchmarks.training import NEVER, SAME, first_steps
from thermoloom.engines import Path, compiled
from thermoloom.engines.portable import PortableEngine, select
from thermoloom.engines.portable.learner import learn_together
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.threads import threads

STEPS = 400
TOGETHER = 16
"""Trajectories that are simulated together."""
SIDE_BY_SIDE = 64
"""Number of trainings on one path that fill a GPU."""
CYCLES = 3
"""Cycles after which θ of the two engines is compared."""
LOOPS: dict[str, tuple[str, Callable[..., Any], float]] = {
    "numpy": ("NumPy loop, tuned", peers.numpy_tuned, 1.3),
    "torch": ("PyTorch loop, in-place addr_", peers.torch_loop, 2.5),
}
"""The step-by-step loop in each library, and the required speedup."""
WITH_PATHS = {"torch": 1.8}
"""Required speedup of training with its paths over a loop that is given them."""


def run(options: Options) -> Result:
    result = Result()
    settings = Settings().updated({"training": {"cycles": NEVER}})
    for name, (loop, peer, bar) in LOOPS.items():
        if find_spec(name) is None:
            result.notes.append(f"{name}: skipped, not installed")
            continue
        options.say(f"portable:{name} and its loop, alternating")
        engine, path = select(name), first_steps(settings, STEPS)
        counts = sorted({1, all_threads()})
        contestants: dict[str, Contestant] = {}
        for count in counts:
            limit = _limit(name, count)
            contestants[f"learner/{count}"] = limit(_learner(engine, settings, path))
            contestants[f"paths/{count}"] = limit(_paths(engine, settings, path))
            loop_steps = clocked(peer(path.machine, settings.learning_rate, path.states), STEPS)
            contestants[f"loop/{count}"] = limit(loop_steps)
        best = in_turns(contestants, options.rounds)
        learner, paths, stepwise = (
            min(best[f"{part}/{count}"] for count in counts)
            for part in ("learner", "paths", "loop")
        )
        note = f"{learner * 1e6:.0f} µs against {stepwise * 1e6:.0f} µs per step"
        ratio = stepwise / learner
        result.rows.append(
            Row(f"portable:{name}, learner × {loop}", ratio, "×", "more", bar=bar, note=note)
        )
        note = f"paths {paths * 1e6:.0f} µs per step and trajectory, {TOGETHER} together"
        ratio, bar_with_paths = stepwise / (learner + paths), WITH_PATHS.get(name)
        result.rows.append(
            Row("  with its paths", ratio, "×", "more", bar=bar_with_paths, note=note)
        )
        difference = _difference(engine, settings)
        result.rows.append(
            Row(f"  θ after {CYCLES} cycles, against compiled", difference, "relative", bar=SAME)
        )
    for name, device in accelerators():
        options.say(f"portable:{name}:{device}")
        result.rows += accelerated(name, device, settings)
    if not accelerators():
        result.notes.append("no GPU visible to PyTorch or JAX: none measured")
    return result


def accelerators() -> list[tuple[str, str]]:
    """(library, device) of the GPUs that are visible to PyTorch and JAX."""
    seen = []
    if find_spec("torch"):
        import torch

        seen += [("torch", "cuda")] * torch.cuda.is_available()
    if find_spec("jax"):
        import jax

        seen += [("jax", "cuda")] * any(each.platform == "gpu" for each in jax.devices())
    return seen


def accelerated(name: str, device: str, settings: Settings) -> list[Row]:
    """Training (alone and side by side), paths and samples on a device; results are copied back."""
    engine, path = select(name, device), first_steps(settings, STEPS)
    learners = [engine.learner(_of_steps(settings, path))] * SIDE_BY_SIDE
    thetas, states = [Parameters.zeros(path.machine)] * SIDE_BY_SIDE, [{}] * SIDE_BY_SIDE
    samples = 1000
    contestants = {
        "learner": (_learner(engine, settings, path), 1),
        f"  {SIDE_BY_SIDE} trainings side by side, each": (
            clocked(lambda: learn_together(learners, thetas, states, path), STEPS),
            SIDE_BY_SIDE,
        ),
        f"  paths, {TOGETHER} together, each": (_paths(engine, settings, path), 1),
        f"  generation of {samples}, a step of all": (
            clocked(lambda: engine.generate(thetas[0], samples, 1), STEPS),
            1,
        ),
    }
    best = in_turns({name: contestant for name, (contestant, _) in contestants.items()}, 3)
    return [
        Row(f"portable:{name}:{device}, {part}" if part == "learner" else part,
            1e6 * best[part] / among, "µs per step")
        for part, (_, among) in contestants.items()
    ]  # fmt: skip


def _limit(name: str, count: int) -> Callable[[Contestant], Contestant]:
    """A function that limits the threads of a contestant in its library."""

    def limited(contestant: Contestant) -> Contestant:
        def run() -> float:
            if name == "torch":
                import torch

                torch.set_num_threads(count)
            with nullcontext() if name == "torch" else threads(count):
                return contestant()

        return run

    return limited


def _learner(engine: PortableEngine, settings: Settings, path: Path) -> Contestant:
    """Learning from a given path, timed per step."""
    learner, theta = engine.learner(_of_steps(settings, path)), Parameters.zeros(path.machine)
    return clocked(lambda: learner.update(theta, {}, path), STEPS)


def _of_steps(settings: Settings, path: Path) -> Settings:
    """The settings of a training on paths as short as this one, at the same learning rate."""
    short = settings.updated({"machine": {"duration": path.machine.duration}})
    return short.updated({"training": {"learning_rate": settings.learning_rate}})


def _paths(engine: PortableEngine, settings: Settings, path: Path) -> Contestant:
    """Preparation and noising of trajectories together, timed per step and trajectory."""
    fields = default_fields(settings)[np.arange(TOGETHER) % len(default_fields(settings))]
    numbers = range(TOGETHER)
    return clocked(lambda: engine.paths(path.machine, fields, 1, numbers), STEPS * TOGETHER)


def _difference(engine: PortableEngine, settings: Settings) -> float:
    """Largest difference of a coupling after some cycles, relative to the largest coupling."""
    learned = []
    for each in (engine, compiled):
        learner, theta = each.learner(settings), Parameters.zeros(settings.machine)
        for cycle, field in enumerate(default_fields(settings)[:CYCLES]):
            path = each.path(settings.machine, field, 101, cycle)
            theta, _ = learner.update(theta, {}, path)
        learned.append(theta.vector)
    return float(np.abs(learned[0] - learned[1]).max() / np.abs(learned[1]).max())
