"""The learner: a noising path → θ, stepwise and exact, a block of steps at a time.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′)                        every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path does not see θ, the residual is linear in θ
and an update is a masked rank-2 change. So the residuals of a block of B steps obey, with
c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where the update
of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

for the paper's wiring; in general a group has such terms for every group that it is coupled to. U is
strictly causal, so sweeps R ← R⁰ − αc[…] are exact after B of them; three reach round-off. Then θ
takes one rank-2B update. All of it is products of matrices, where a loop over steps would read and
write θ at every step.

Where couplings are not those of whole groups (few wires, a device that distorts them) the products
do not factorize: then a block is one period of M steps, within which θ does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thermoloom.engines import Diverged, Path
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks, Groups, Sensing
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.noising import DevicePath
from thermoloom.engines.portable.random_streams import Stream
from thermoloom.machine.device import Built
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.settings import Settings

LONGEST_BLOCK = 64
"""Most steps in a block of several updates."""
STRONGEST_FEEDBACK = 0.5
"""Largest 2αcB|x|²: how much the updates of a block may change its own residuals. Blocks are shorter
where the learning rate is so large that sweeps would converge slowly."""


class Rule(NamedTuple):
    """What a kernel is compiled for."""

    machine: Machine
    period: int


class Lesson(NamedTuple):
    """What θ is learned from: one path, in the library."""

    states: Array
    """(K + 1, N)"""
    alone: Array
    """Residuals of units that are coupled to nothing, with errors, (K, N)."""
    word: Array | None
    """States of the label units, (1, L)."""
    rate: float


def autoregression(library: NumPy, static: None, normals: Array, rho: Array) -> Array:
    """ξ_{k+1} = ρ ξ_k + √(1 − ρ²) ε_k from ε (K, N); ξ_0 = ε_0."""

    def step(xi: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array]]:
        xi = rho * xi + library.xp.sqrt(1 - rho * rho) * inputs[0]
        return xi, (xi,)

    later = library.scan(step, normals[0], (normals[1:],))[1]
    return library.xp.concatenate([normals[:1], *later], 0)


def residual_errors(library: NumPy, settings: Settings, trajectory: int) -> Array | float:
    """e_k = μ_bias + σ_res ξ_k, (K, N), of one training trajectory: added to its residuals."""
    errors, machine = settings.imperfections, settings.machine
    if errors.residual_noise == 0:
        return errors.residual_offset
    stream = Stream(library, settings.training.seed, "residual error")
    xi = stream.normals([trajectory], 0, machine.steps, machine.units)[:, 0]
    if errors.residual_correlation > 0:
        xi = library.run(autoregression, None, xi, library.array(errors.residual_correlation))
    return errors.residual_offset + errors.residual_noise * xi


def solve_block(library: NumPy, rule: Rule, feedback: Array, x: Groups, start: Groups) -> Groups:
    """R of a block from R⁰ (``start``); ``feedback`` = αc."""
    transposed, (machine, period) = (lambda a: library.xp.swapaxes(a, -1, -2)), rule
    update_number = np.arange(x["one"].shape[-2]) // period
    weight = feedback * library.array(update_number[:, None] > update_number)  # αcU
    coupled = {
        group: [b.rows if on_columns else b.columns for b, on_columns in layout(machine).partners(group)]
        for group in start
    }
    overlap = {
        group: weight * sum(x[other] @ transposed(x[other]) for other in coupled[group])
        for group in start
    }

    def sweep(r: Groups) -> Groups:
        crossed = {group: x[group] @ transposed(r[group]) for group in r}
        following = {}
        for group in r:
            change = overlap[group] @ r[group]
            if moving := [crossed[other] for other in coupled[group] if other in r]:
                change = change + (weight * sum(moving)) @ x[group]
            if group in coupled[group]:  # no unit is coupled to itself
                change = change - 2 * (weight @ (r[group] * x[group])) * x[group]
            following[group] = start[group] - change
        return following

    return library.iterate(sweep, start, len(update_number))


def learn_blocks(
    library: NumPy, rule: Rule, theta: Blocks, wires: Blocks, sensing: Sensing | None,
    rate: Array, word: Array | None, after: Array, alone: Array,
) -> Blocks:  # fmt: skip
    """θ after blocks of steps, from x′ and uncoupled residuals, each (blocks, trainings, B, N)."""
    machine, scale = rule.machine, rule.machine.residual_scale

    def learn_block(theta: Blocks, inputs: tuple[Array, Array]) -> tuple[Blocks, tuple[()]]:
        states, uncoupled = inputs
        x = couplings.all_groups(library, machine, states, word)
        force = couplings.sensed_forces(library, machine, sensing, theta, x)
        r = couplings.free_groups(machine, uncoupled + scale * force)
        if states.shape[-2] > rule.period:
            r = solve_block(library, rule, rate * scale, x, r)
        r = {group: rate * values for group, values in r.items()}
        change = couplings.update(library, machine, wires, x, r)
        return {name: J - change[name] for name, J in theta.items()}, ()

    return library.scan(learn_block, theta, (after, alone))[0]


@dataclass(frozen=True)
class Learner:
    """The learner of some settings: with their residual errors and on their device."""

    library: NumPy
    settings: Settings

    @cached_property
    def machine(self) -> Machine:
        return self.settings.built

    @cached_property
    def sensing(self) -> Sensing | None:
        return Sensing.of(self.library, self.machine)

    @cached_property
    def wires(self) -> Blocks:
        return couplings.wires_of(self.library, self.machine)

    def lesson(self, path: Path) -> Lesson:
        """The path as this learner sees it."""
        known = DevicePath.of(self.library, path, self.machine)
        alone = known.alone + residual_errors(self.library, self.settings, path.number)
        rate = self.settings.learning_rate_of(path.number)
        return Lesson(known.states, alone, known.word, rate)

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        """θ after one noising path."""
        return self.finish(theta, self.learn_lessons(theta.vector[None], [self.lesson(path)])[0])

    def finish(self, theta: Parameters, vector: Any) -> Parameters:
        """θ with what was learned, as it is at the end of the trajectory; raises ``Diverged``."""
        if not np.isfinite(vector).all():
            raise Diverged("couplings are no longer finite")
        learned = replace(theta, vector=vector)
        return self.machine.kept(learned) if isinstance(self.machine, Built) else learned

    def learn_lessons(self, vectors: Any, lessons: Sequence[Lesson]) -> Any:
        """Flat θ (trainings, T, size) after one lesson each, side by side, in NumPy."""
        library, xp, machine = self.library, self.library.xp, self.machine
        states, alone = (xp.stack([lesson[i] for lesson in lessons]) for i in (0, 1))
        labelled = lessons[0].word is not None
        word = xp.stack([lesson.word for lesson in lessons]) if labelled else None
        rates = np.array([lesson.rate for lesson in lessons])
        learned = []
        for stage, (begin, end) in enumerate(machine.stage_windows):
            theta = couplings.blocks_of(library, machine, vectors[:, stage])
            after, uncoupled = states[:, begin + 1 : end + 1], alone[:, begin:end]
            length = self.block_length(after, float(rates.max()))
            leftover = (end - begin) % length
            for size, piece in (
                (length, slice(0, end - begin - leftover)),
                (leftover, slice(end - begin - leftover, None)),
            ):
                if size and piece.start != piece.stop:
                    blocks = (self.in_blocks(each[:, piece], size) for each in (after, uncoupled))
                    theta = library.run(
                        learn_blocks, Rule(machine, self.settings.period), theta, self.wires,
                        self.sensing, library.array(rates[:, None, None]), word, *blocks,
                    )  # fmt: skip
            learned.append(couplings.vector_of(library, machine, theta))
        return np.stack(learned, axis=1)

    def in_blocks(self, values: Array, length: int) -> Array:
        """(trainings, steps, N) → (blocks, trainings, length, N)."""
        trainings, steps, units = values.shape
        blocks = values.reshape(trainings, steps // length, length, units)
        return self.library.xp.swapaxes(blocks, 0, 1)

    def block_length(self, states: Array, rate: float) -> int:
        """B: whole periods, as many as ``STRONGEST_FEEDBACK`` allows."""
        period, steps = self.settings.period, states.shape[1]
        if self.sensing is not None or self.machine.sparse or period >= LONGEST_BLOCK:
            return min(period, steps)
        largest = float(self.library.xp.max((states * states).sum(-1)))
        feedback = 2 * rate * self.machine.residual_scale * largest
        weak = not feedback * LONGEST_BLOCK > STRONGEST_FEEDBACK  # or not a number
        longest = LONGEST_BLOCK if weak else max(1, int(STRONGEST_FEEDBACK / feedback))
        power_of_two = 1 << (longest.bit_length() - 1)  # few lengths, so that few are compiled
        return min(max(1, power_of_two // period) * period, steps)


def learn_together(
    learners: Sequence[Learner], thetas: Sequence[Parameters], paths: Sequence[Path]
) -> list[Parameters]:
    """θ of several trainings after one path each, computed side by side, which fills a GPU.

    They may differ in seed, rate and residual errors, not in machine, device and period.
    """
    lessons = [learner.lesson(path) for learner, path in zip(learners, paths, strict=True)]
    vectors = learners[0].learn_lessons(np.stack([theta.vector for theta in thetas]), lessons)
    everything = zip(learners, thetas, vectors, strict=True)
    return [learner.finish(theta, vector) for learner, theta, vector in everything]
