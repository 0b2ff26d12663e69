"""The learner: a noising path → θ and the state of the rule, by blocks of steps (``blocks``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thermoloom import engines
from thermoloom.engines import Diverged, Lesson, Path, State
from thermoloom.engines.library import Array, NumPy
from thermoloom.engines.own_objects import own_rule
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.blocks import THETA, Memory, Rule, learn_blocks
from thermoloom.engines.portable.noising import uncoupled_residuals
from thermoloom.engines.residual_errors import error_normals, residual_errors
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.rules import longest_block
from thermoloom.settings import Settings
from thermoloom.streams import Stream
from thermoloom.threads import linear_algebra

LONGEST_BLOCK = 64
"""Largest number of steps in a block of several updates."""
STRONGEST_FEEDBACK = 0.5
"""Largest 2αcB|x|², by which a block changes its own residuals: above, sweeps converge slowly."""


@dataclass(frozen=True)
class Learner(engines.Learner):
    """The learner of some settings: with their rule, residual errors, grid and device."""

    library: NumPy
    settings: Settings
    rule: Rule

    def init(self, theta: Parameters) -> State:
        """Zeros for each memory of a linear rule, or the initial state of a user's own rule."""
        if not self.rule.own.step:
            names = [f"memory_{m:02}" for m in range(self.rule.own.linear.memories)]
            return {name: np.zeros_like(theta.vector) for name in names}
        begin: Any = getattr(own_rule(self.rule.own.step), "init", lambda theta: {})
        library, machine = self.library, self.rule.machine
        stages = [begin(couplings.blocks_of(library, machine, J)) for J in theta.vector[:, None]]
        return stored(library, machine, stages)[0]

    @linear_algebra()
    def update(self, theta: Parameters, state: State, path: Path) -> Lesson:
        """θ and state after one noising path."""
        lesson = learn_together([self], [theta], [state], path)[0]
        if lesson is None:
            raise Diverged("couplings are no longer finite")
        return lesson

    def lesson(self, path: Path) -> tuple[Array, Any]:
        """Residuals (K, N) of uncoupled units, and a final change of θ."""
        alone = uncoupled_residuals(self.library, self.rule.machine, path.states)
        return alone + residual_errors(self.library, self.settings, path.number), 0.0

    def finish(self, theta: Parameters, vector: Any, state: State) -> Lesson | None:
        """θ and state at the end of a trajectory, on the grid and after drift; None: θ diverged."""
        if not np.isfinite(vector).all():
            return None
        learned, machine, grid = replace(theta, vector=vector), self.rule.machine, self.rule.grid
        learned = learned if grid is None else grid.nearest(learned)
        if isinstance(machine, BuiltMachine):
            learned = machine.drifted_parameters(learned)
        return learned, state

    def block_length(self, states: Array, rate: float) -> int:
        """B: whole periods, as many as ``STRONGEST_FEEDBACK`` allows."""
        rule, machine, steps = self.rule, self.rule.machine, int(states.shape[1])
        alone = machine.sparse or self.settings.device.couples or rule.own.stepwise
        if alone or rule.grid is not None or rule.period >= LONGEST_BLOCK:
            return min(rule.period, steps)
        largest = float(self.library.xp.einsum("...i,...i->...", states, states).max())
        feedback = 2 * rate * machine.residual_scale * largest / STRONGEST_FEEDBACK
        longest = longest_block(rule.own.linear, LONGEST_BLOCK, rule.period, feedback)
        return min(max(1, longest // rule.period) * rule.period, steps)


def learn_together(
    learners: Sequence[Learner], thetas: Sequence[Parameters], states: Sequence[State],
    path: Path | Sequence[Path],
) -> list[Lesson | None]:  # fmt: skip
    """θ and state of trainings after one path each, or after the same path; None if θ diverged.

    Computing them side by side fills a GPU. They may differ in seed, rate and additive errors, not
    in ``rule``. A training on a grid runs alone, because it needs a separate rounding stream.
    """
    first, rule, library = learners[0], learners[0].rule, learners[0].library
    xp, machine, paths = library.xp, rule.machine, [path] if isinstance(path, Path) else path
    trainings = [(learner, paths[n % len(paths)]) for n, learner in enumerate(learners)]
    lessons = [learner.lesson(path) for learner, path in trainings]
    of_steps = [
        xp.stack([library.array(path.states[1:]) for path in paths]),
        xp.stack([residuals for residuals, _ in lessons]),
        None,
    ]
    if rule.own.error:
        drawn = [error_normals(library, each.settings, path.number) for each, path in trainings]
        of_steps[2] = xp.stack(drawn)
    words = [path.word for path in paths if path.word is not None]
    rates = np.array([each.settings.learning_rate_of(path.number) for each, path in trainings])
    wires = couplings.wires_of(library, machine)
    wires |= {name: rate * wires.get(name, 1.0) for name, rate in rule.own.linear.rates}
    fixed = (
        wires,
        couplings.sensing_of(library, machine),
        library.array(rates[:, None, None]),
        library.array(np.stack(words)[:, None]) if words else None,
        Stream(library, first.settings.training.seed, "rounding").keys,
    )
    start = [theta if rule.grid is None else rule.grid.nearest(theta) for theta in thetas]
    remembered = [{THETA: t.vector, **state} for t, state in zip(start, states, strict=True)]
    counters = np.stack([np.arange(machine.steps), np.full(machine.steps, paths[0].number)], 1)
    stages = []
    for stage, (begin, end) in enumerate(machine.stage_windows):
        vectors = {name: np.stack([z[name][stage] for z in remembered]) for name in remembered[0]}
        z = {name: couplings.blocks_of(library, machine, each) for name, each in vectors.items()}
        length = first.block_length(of_steps[0][:, begin:end], float(rates.max()))
        leftover = end - (end - begin) % length
        for low, high, size in ((begin, leftover, length), (leftover, end, end - leftover)):
            if high > low:
                shape = -1, (high - low) // size, size, machine.units
                blocks = [
                    None if each is None else xp.swapaxes(each[:, low:high].reshape(shape), 0, 1)
                    for each in of_steps
                ]
                blocks.append(library.array(counters[low:high:size], library.word))
                z = library.run(learn_blocks, rule, z, *fixed, tuple(blocks))
        stages.append(z)
    after = zip(learners, thetas, stored(library, machine, stages), lessons, strict=True)
    return [each.finish(theta, z.pop(THETA) + end, z) for each, theta, z, (_, end) in after]


def stored(library: NumPy, machine: Machine, stages: Sequence[Memory]) -> list[State]:
    """The memory of each training in every stage, by name: (stages, size of θ)."""
    vectors = {
        name: np.stack([couplings.vector_of(library, machine, z[name]) for z in stages], axis=1)
        for name in stages[0]
    }
    trainings = max(map(len, vectors.values()), default=1)
    return [{name: each[i] for name, each in vectors.items()} for i in range(trainings)]
