"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′)                        every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is linear in θ
and an update is a masked rank-2 change. So the residuals of a block of B steps obey, with
c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where the update
of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

for the paper's wiring; in general a group has such terms for every group it is coupled to. U is
strictly causal, so sweeps R ← R⁰ − αc[…] are exact after B of them; three reach round-off. Then θ
takes one rank-2B update. All of it is products of matrices, where a loop over steps would read and
write θ at every step.

Where couplings are not those of whole groups (few wires, a device that distorts them) the products
do not factorize: then a block is one period of M steps, within which θ does not change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from thermoloom import engines
from thermoloom.engines import Diverged, Lesson, Path, State
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks, Groups
from thermoloom.engines.portable.grid import moved
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.noising import uncoupled_residuals
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import Grid
from thermoloom.settings import Settings
from thermoloom.streams import Stream

LONGEST_BLOCK = 64
"""Most steps in a block of several updates."""
STRONGEST_FEEDBACK = 0.5
"""Largest 2αcB|x|², by which a block changes its own residuals: beyond, sweeps converge slowly."""


class Rule(NamedTuple):
    """What a kernel is compiled for."""

    machine: Machine
    period: int
    grid: Grid | None


def solve_block(library: NumPy, rule: Rule, feedback: Array, x: Groups, start: Groups) -> Any:
    """R of a block from R⁰ (``start``); ``feedback`` = αc."""
    transposed, partners = library.transposed, layout(rule.machine).partners
    number = np.arange(x["one"].shape[-2]) // rule.period
    weight = feedback * library.array(number[:, None] > number)  # αcU
    coupled = {g: [b.rows if turned else b.columns for b, turned in partners(g)] for g in start}
    overlap = {g: weight * sum(x[h] @ transposed(x[h]) for h in coupled[g]) for g in start}

    def sweep(r: Groups) -> Groups:
        crossed = {group: x[group] @ transposed(r[group]) for group in r}
        following = {}
        for group in r:
            change = overlap[group] @ r[group]
            if moving := [crossed[other] for other in coupled[group] if other in r]:
                change = change + (weight * sum(moving)) @ x[group]
            if group in coupled[group]:  # no unit is coupled to itself
                change = change - (2 * weight @ (r[group] * x[group])) * x[group]
            following[group] = start[group] - change
        return following

    return library.iterate(sweep, start, len(number))


def learn_blocks(
    library: NumPy, rule: Rule, theta: Blocks, wires: Blocks, sensing: list[Blocks] | None,
    rate: Array, word: Array | None, keys: Array, blocks: tuple[Array, ...],
) -> Any:  # fmt: skip
    """θ after blocks of steps: x′ and uncoupled residuals, each (blocks, trainings, B, N), and the
    counters of the rounding stream (blocks, 2), which matter on a grid, where B = 1.
    """
    machine, scale = rule.machine, rule.machine.residual_scale

    def learn_block(theta: Blocks, inputs: tuple[Array, ...]) -> tuple[Blocks, tuple[()]]:
        states, alone, counter = inputs
        x = couplings.all_groups(library, machine, states, word)
        force = couplings.sensed_forces(library, machine, sensing, theta, x)
        r = couplings.free_groups(machine, alone + scale * force)
        if states.shape[-2] > rule.period:
            r = solve_block(library, rule, rate * scale, x, r)
        r = {group: rate * values for group, values in r.items()}
        change = couplings.update(library, machine, wires, x, r)
        if rule.grid is not None:
            return moved(library, rule.grid, theta, change, wires, keys, counter), ()
        return {name: J - change[name] for name, J in theta.items()}, ()

    return library.scan(learn_block, theta, blocks)[0]


@dataclass(frozen=True)
class Learner(engines.Learner):
    """The learner of some settings: with their residual errors, grid and device."""

    library: NumPy
    settings: Settings
    rule: Rule

    def residual_errors(self, trajectory: int) -> Array | float:
        """e_k = μ_bias + σ_res ξ_k, (K, N);  ξ_{k+1} = ρ ξ_k + √(1 − ρ²) ε_k,  ξ_0 = ε_0."""
        errors, machine = self.settings.imperfections, self.rule.machine
        if errors.residual_noise == 0:
            return errors.residual_offset
        stream = Stream(self.library, self.settings.training.seed, "residual error")
        xi = stream.normals([trajectory], 0, machine.steps, machine.units)[:, 0]
        rho = errors.residual_correlation

        def step(xi: Array, inputs: tuple[Array]) -> tuple[Array, tuple[Array]]:
            xi = rho * xi + math.sqrt(1 - rho * rho) * inputs[0]
            return xi, (xi,)

        if rho > 0:
            (later,) = self.library.scan(step, xi[0], (xi[1:],))[1]
            xi = self.library.xp.concatenate([xi[:1], later], 0)
        return errors.residual_offset + errors.residual_noise * xi

    def update(self, theta: Parameters, state: State, path: Path) -> Lesson:
        """θ after one noising path."""
        return learn_together([self], [theta], [path])[0], {}

    def lesson(self, path: Path) -> tuple[Array, Any]:
        """Residuals (K, N) of units that are coupled to nothing, and what θ gets at the end."""
        alone = uncoupled_residuals(self.library, self.rule.machine, path.states)
        return alone + self.residual_errors(path.number), 0.0

    def finish(self, theta: Parameters, vector: Any) -> Parameters:
        """θ with what was learned, as it is at the end of the trajectory; raises ``Diverged``."""
        if not np.isfinite(vector).all():
            raise Diverged("couplings are no longer finite")
        learned, (machine, _, grid) = replace(theta, vector=vector), self.rule
        learned = learned if grid is None else grid.nearest(learned)
        return machine.drifted_parameters(learned) if isinstance(machine, BuiltMachine) else learned

    def block_length(self, states: Array, rate: float) -> int:
        """B: whole periods, as many as ``STRONGEST_FEEDBACK`` allows."""
        (machine, period, grid), steps = self.rule, int(states.shape[1])
        whole_groups = not (machine.sparse or self.settings.device.couples)
        if grid is not None or not whole_groups or period >= LONGEST_BLOCK:
            return min(period, steps)
        largest = float(self.library.xp.max((states * states).sum(-1)))
        feedback = 2 * rate * machine.residual_scale * largest
        longest = LONGEST_BLOCK
        while longest > 1 and feedback * longest > STRONGEST_FEEDBACK:
            longest //= 2  # few different lengths, so that JAX compiles few kernels
        return min(max(1, longest // period) * period, steps)


def learn_together(
    learners: Sequence[Learner], thetas: Sequence[Parameters], paths: Sequence[Path]
) -> list[Parameters]:
    """θ of several trainings after one path each, side by side, which fills a GPU; on a grid, where
    each needs its own rounding stream, one after the other. They may differ in seed, rate and
    residual errors, not in machine, device, grid and period.
    """
    if learners[0].rule.grid is not None and len(learners) > 1:
        return [each.update(thetas[i], {}, paths[i])[0] for i, each in enumerate(learners)]
    library, rule, settings = learners[0].library, learners[0].rule, learners[0].settings
    xp, machine, trainings = library.xp, rule.machine, list(zip(learners, paths, strict=True))
    lessons = [learner.lesson(path) for learner, path in trainings]
    states = xp.stack([library.array(path.states) for path in paths])
    alone = xp.stack([residuals for residuals, _ in lessons])
    learned, words = [], [path.word for path in paths if path.word is not None]
    word = library.array(np.stack(words)[:, None]) if words else None
    rates = np.array([each.settings.learning_rate_of(path.number) for each, path in trainings])
    rate, keys = rates[:, None, None], Stream(library, settings.training.seed, "rounding").keys
    fixed = couplings.wires_of(library, machine), couplings.sensing_of(library, machine)
    start = [theta if rule.grid is None else rule.grid.nearest(theta) for theta in thetas]
    counters = np.stack([np.arange(machine.steps), np.full(machine.steps, paths[0].number)], 1)
    for stage, (begin, end) in enumerate(machine.stage_windows):
        J = couplings.blocks_of(library, machine, np.stack([t.vector[stage] for t in start]))
        length = learners[0].block_length(states[:, begin + 1 : end + 1], float(rates.max()))
        leftover = end - (end - begin) % length
        for low, high, size in ((begin, leftover, length), (leftover, end, end - leftover)):
            if high > low:
                shape = len(paths), (high - low) // size, size, machine.units
                pieces = states[:, low + 1 : high + 1], alone[:, low:high]
                blocks = [xp.swapaxes(piece.reshape(shape), 0, 1) for piece in pieces]
                blocks.append(library.array(counters[low:high:size], library.word))
                inputs = *fixed, library.array(rate), word, keys, tuple(blocks)
                J = library.run(learn_blocks, rule, J, *inputs)
        learned.append(couplings.vector_of(library, machine, J))
    results = zip(learners, thetas, np.stack(learned, axis=1), lessons, strict=True)
    return [each.finish(theta, vector + change) for each, theta, vector, (_, change) in results]
