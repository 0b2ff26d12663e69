"""Training with couplings on a grid of b bits: every update moves them by whole levels.

    y = −α (r_i x_j′ + r_j x_i′)/Δ,   Δ = A_max/(2^(b−1) − 1)
    nearest      n → n + round(y)
    stochastic   n → n + ⌊y + u⌋        u uniform in (0, 1)

clipped to the grid, step by step. J_vh and J_hh are on grids; biases and label couplings are not. u has
23 bits, u = (128 m + l + ½)/2²³, with 16 bits m of its own and seven bits l that its row has in common.
A Philox counter serves two columns of four rows, so that words are those of the compiled engine; levels
then differ from its where round-off crosses the boundary between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thermoloom.engines import Path
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks
from thermoloom.engines.portable.learner import Learner
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.random_streams import Stream, philox
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine import quantization

TILE = 4, 16
"""Rows and columns that share eight counters."""


class Grid(NamedTuple):
    """The levels of J_vh and J_hh."""

    machine: Machine
    top: int
    spacing: tuple[tuple[str, float], ...]
    """Δ by the name of the block."""
    stochastic: bool


def uniforms(library: NumPy, machine: Machine, keys: Array, step: Array, path: Array) -> Blocks:
    """u of J_vh and J_hh in one step of a trajectory; that of J_hh is the same both ways."""
    xp, word, (height, width) = library.xp, library.word, TILE
    tiles, first = -(-machine.hidden // width), -(-machine.visible // height)
    rows = first + -(-machine.hidden // height)
    zero = library.arange(1, word)
    words = philox(library, keys, (library.arange(rows * tiles * 8, word), step, path, zero))
    shared = philox(library, keys, (library.arange(rows, word), step, path, zero + 1))
    halves = [[(w >> shift) & 0xFFFF for w in words[s : s + 2]] for s in (0, 2) for shift in (0, 16)]
    of_rows = [xp.stack(pair, -1).reshape(rows, tiles * width) for pair in halves]
    bits = xp.stack(of_rows, 1) * 128 + (xp.stack(list(shared), -1) >> 25)[:, :, None]
    u = (library.cast(bits.reshape(rows * height, -1), library.real) + 0.5) * 2.0**-23
    between = u[: machine.visible, : machine.hidden]
    lower = xp.tril(u[first * height :][: machine.hidden, : machine.hidden], -1)
    return {"visible_hidden": between, "hidden_hidden": lower + lower.T}


def learn_steps(
    library: NumPy, grid: Grid, codes: Blocks, wires: Blocks, rate: Array, word: Any,
    after: Array, alone: Array, keys: Array, steps: Array, path: Array,
) -> Blocks:  # fmt: skip
    """Levels, and couplings that are on no grid, after the steps of a window."""
    xp, machine, spacing = library.xp, grid.machine, dict(grid.spacing)

    def learn_step(codes: Blocks, inputs: tuple[Array, ...]) -> tuple[Blocks, tuple[()]]:
        state, uncoupled, step = inputs
        x = couplings.all_groups(library, machine, state[None], word)
        theta = {name: n * spacing.get(name, 1.0) for name, n in codes.items()}
        r = uncoupled + machine.residual_scale * couplings.forces(library, machine, theta, x)
        change = couplings.update(library, machine, wires, x, couplings.free_groups(machine, rate * r))
        u = uniforms(library, machine, keys, step, path) if grid.stochastic else {}
        following = {}
        for name, n in codes.items():
            down = change[name] / spacing.get(name, 1.0)
            if name in spacing:
                down = -xp.floor(u[name] - down) if name in u else xp.round(down)
                down = down * wires[name] if name in wires else down
            following[name] = n - down
            if name in spacing:
                following[name] = xp.clip(following[name], -grid.top, grid.top)
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
        ranges = {name: getattr(errors, f"range_{name}") for name in ("visible_hidden", "hidden_hidden")}
        spacing = tuple((name, span / top) for name, span in ranges.items())
        return Grid(machine, top, spacing, errors.rounding == "stochastic")

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        """θ after one noising path; couplings off the grid are rounded to nearest first."""
        library, grid, machine = self.library, self.grid, self.settings.machine
        bits, lesson = self.settings.imperfections.bits, self.lesson(path)
        keys = Stream(library, self.settings.training.seed, "rounding").keys
        learned = theta.vector.astype(library.precision)
        for stage, (begin, end) in enumerate(machine.stage_windows):
            codes = couplings.blocks_of(library, machine, learned[stage])
            for name, spacing in grid.spacing:
                n = quantization.levels(theta[name][stage], bits, spacing * grid.top)
                codes[name] = library.array(n)
            steps = library.array(np.arange(begin, end), library.word)
            codes = library.run(
                learn_steps, grid, codes, self.wires, library.array(lesson.rate), lesson.word,
                lesson.states[begin + 1 : end + 1], lesson.alone[begin:end], keys, steps,
                library.array(path.number, library.word),
            )  # fmt: skip
            for name, spacing in grid.spacing:
                n = library.numpy(codes[name]).astype(np.int32)
                codes[name] = library.array(quantization.couplings(n, bits, spacing * grid.top))
            learned[stage] = couplings.vector_of(library, machine, codes)
        return self.finish(theta, learned)
