"""Training with couplings on a grid of b bits: every update moves them by whole levels.

    y = −α (r_i x_j′ + r_j x_i′)/Δ,   Δ = A_max/(2^(b−1) − 1)
    nearest      n → n + round(y)
    stochastic   n → n + ⌊y + u⌋,   u = (128 m + l + ½)/2²³ uniform in (0, 1)

clipped to the grid, step by step. J_vh and J_hh are on grids; biases and label couplings are not. Of u,
16 bits m are its own and seven bits l are common to a row. Words are those of the compiled engine;
levels differ from its where round-off crosses the boundary between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from thermoloom.engines import Path
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks
from thermoloom.engines.portable.learner import Learner
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.random_streams import Stream, philox
from thermoloom.errors import UserError
from thermoloom.machine import quantization
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters

ON_GRID = "visible_hidden", "hidden_hidden"


class Grid(NamedTuple):
    """The levels n of J_vh and J_hh, |n| ≤ top, and their distances Δ."""

    machine: Machine
    top: int
    spacing: tuple[float, float]
    stochastic: bool


def uniforms(library: NumPy, machine: Machine, keys: Array, step: Array, number: Array) -> Blocks:
    """u of J_vh and J_hh in a step of trajectory ``number``; that of J_hh is the same both ways.

    Eight counters serve a tile of 4 rows and 16 columns: each has two columns, and a half of a word
    for each row and column.
    """
    xp, tiles, first = library.xp, -(-machine.hidden // 16), -(-machine.visible // 4)
    rows = library.count(first + -(-machine.hidden // 4))
    counters = library.count(len(rows) * tiles * 8)
    words = philox(library, keys, (counters, step, number, 0 * counters))
    common = philox(library, keys, (rows, step, number, 0 * rows + 1))
    halves = [[(w >> shift) & 0xFFFF for w in words[i : i + 2]] for i in (0, 2) for shift in (0, 16)]
    m = xp.stack([xp.stack(pair, -1).reshape(len(rows), tiles * 16) for pair in halves], 1)
    bits = m * 128 + (xp.stack(common, -1) >> 25)[:, :, None]
    u = (library.cast(bits.reshape(len(rows) * 4, -1), library.real) + 0.5) * 2.0**-23
    lower = xp.tril(u[first * 4 :][: machine.hidden, : machine.hidden], -1)
    return dict(zip(ON_GRID, (u[: machine.visible, : machine.hidden], lower + lower.T), strict=True))


def learn_steps(
    library: NumPy, grid: Grid, codes: Blocks, wires: Blocks, rate: Array, word: Array | None,
    after: Array, alone: Array, keys: Array, steps: Array, number: Array,
) -> Blocks:  # fmt: skip
    """Levels, and couplings that are on no grid, after the steps of a window."""
    xp, machine, spacing = library.xp, grid.machine, dict(zip(ON_GRID, grid.spacing, strict=True))

    def learn_step(codes: Blocks, inputs: tuple[Array, ...]) -> tuple[Blocks, tuple[()]]:
        state, uncoupled, step = inputs
        x = couplings.all_groups(library, machine, state[None], word)
        theta = codes | {name: codes[name] * spacing[name] for name in ON_GRID}
        r = uncoupled + machine.residual_scale * couplings.forces(library, machine, theta, x)
        r = couplings.free_groups(machine, rate * r)
        change = couplings.update(library, machine, wires, x, r)
        u = uniforms(library, machine, keys, step, number) if grid.stochastic else {}
        following = {name: n - change[name] for name, n in codes.items()}
        for name in ON_GRID:
            down = change[name] / spacing[name]
            move = xp.floor(u[name] - down) if u else -xp.round(down)
            move = move * wires[name] if name in wires else move
            following[name] = xp.clip(codes[name] + move, -grid.top, grid.top)
        return following, ()

    return library.scan(learn_step, codes, (after, alone, steps))[0]


@dataclass(frozen=True)
class QuantizedLearner(Learner):
    """The learner of settings with imperfections.bits < 32."""

    @cached_property
    def grid(self) -> Grid:
        machine, errors = self.settings.machine, self.settings.imperfections
        wired = machine.wired("visible-hidden") and machine.wired("hidden-hidden")
        if not wired or machine.wired("visible-visible") or machine.sparse:
            raise UserError(
                "imperfections.bits: training on a grid is defined for the wiring visible-hidden "
                "and hidden-hidden, complete, with or without labels"
            )
        top = quantization.top_level(errors.bits)
        between, within = (getattr(errors, f"range_{name}") / top for name in ON_GRID)
        return Grid(machine, top, (between, within), errors.rounding == "stochastic")

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        """θ after one noising path; couplings off the grid are rounded to nearest first."""
        library, grid, machine = self.library, self.grid, self.settings.machine
        bits, lesson = self.settings.imperfections.bits, self.lesson(path)
        keys = Stream(library, self.settings.training.seed, "rounding").keys
        learned = theta.vector.astype(library.precision)
        for stage, (begin, end) in enumerate(machine.stage_windows):
            codes = couplings.blocks_of(library, machine, learned[stage])
            for name, spacing in zip(ON_GRID, grid.spacing, strict=True):
                n = quantization.levels(theta[name][stage], bits, spacing * grid.top)
                codes[name] = library.array(n)
            numbers = (np.arange(begin, end), path.number)
            codes = library.run(
                learn_steps, grid, codes, self.wires, library.array(lesson.rate), lesson.word,
                lesson.states[begin + 1 : end + 1], lesson.alone[begin:end], keys,
                *(library.array(number, library.word) for number in numbers),
            )  # fmt: skip
            for name, spacing in zip(ON_GRID, grid.spacing, strict=True):
                n = library.numpy(codes[name]).astype(np.int32)
                codes[name] = library.array(quantization.couplings(n, bits, spacing * grid.top))
            learned[stage] = couplings.vector_of(library, machine, codes)
        return self.finish(theta, learned)
