"""The ledger of a generation: heat and work by stage and part, and its entropy production.

    by stage   Q, the sum of heat along the steps (which differs by the discretization error), W
    by part    onsite, each block of couplings, biases
    total      first law, entropy production between its bounds, joules at a temperature

All energies are means over samples in E₀.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.export.physical_units import ROOM_TEMPERATURE, joules
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import window_names
from thermoloom.measures.dissipation import FEWEST, Dissipation, dissipation
from thermoloom.measures.statistics import MeanEstimate, estimate_mean


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """Heat and work of a generation, from ``Drawn.ledger``; prints as a table.

    All energies are means over samples in E₀; an estimate has ``mean`` and ``sem``, its standard
    error.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> ledger = machine.solve(tl.digits(0, 1), resize=True).generate(20, seed=1).ledger()
    >>> ledger.heat.sem < ledger.heat.mean, ledger.joules(temperature=300) < 1e-18
    (True, True)
    """

    machine: Machine
    """The machine that generated the samples."""
    generated: Generated
    """Its samples, with their energies by part and stage."""
    clamped: bool = False
    """Whether some units were clamped."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the terms of the energy."""
        return tuple(self.generated.starts.parts)

    @cached_property
    def stages(self) -> list[dict[str, Any]]:
        """One row per stage, in the order of generation: heat, work, and their parts.

        ``work`` is done by switching to the stage and, within the stage, by moving clamps and by
        couplings that are not reciprocal. ``path_heat`` is the heat summed along the steps.
        """
        return [self._stage(position) for position in range(self.generated.stage_heat.shape[1])]

    def _stage(self, position: int) -> dict[str, Any]:
        generated = self.generated
        starts, ends = generated.starts.parts, generated.ends.parts
        heat = {p: _mean(starts[p][:, position] - ends[p][:, position]) for p in self.parts}
        switch = dict.fromkeys(self.parts, 0.0)
        if position:
            switch = {p: _mean(starts[p][:, position] - ends[p][:, position - 1]) for p in switch}
        external = generated.clamp_work + generated.active_work
        moving = _mean(external[:, position])
        return {
            "stage": window_names(self.machine)[position],
            "heat": estimate_mean(generated.stage_heat[:, position]),
            "path_heat": _mean(generated.path_heat[:, position]),
            "heat_parts": heat,
            "work": sum(switch.values()) + moving,
            "work_parts": switch,
            "clamp_work": _mean(generated.clamp_work[:, position]),
        }

    @property
    def heat(self) -> MeanEstimate:
        """Heat Q of a sample, positive when released to the environment."""
        return estimate_mean(self.generated.heat)

    @property
    def work(self) -> MeanEstimate:
        """Work W done on a sample."""
        return estimate_mean(self.generated.work)

    @property
    def discretization_error(self) -> MeanEstimate:
        """Heat summed along the steps, minus Q."""
        return estimate_mean(self.generated.discretization_error)

    @property
    def first_law_error(self) -> float:
        """Largest |ΔV − (W − Q)| of a sample, relative to the largest energy."""
        return self.generated.first_law_error

    @cached_property
    def dissipation(self) -> Dissipation | None:
        """Bounds on the entropy production; None for fewer than 8 samples or with clamped units."""
        if self.clamped or len(self.generated.final_states) < FEWEST:
            return None
        return dissipation(self.machine, self.generated)

    def joules(self, temperature: float = ROOM_TEMPERATURE) -> float:
        """Mean heat of a sample in joules, at a ``temperature`` in kelvin (300)."""
        return joules(self.machine, self.heat.mean, temperature)

    def __repr__(self) -> str:
        count, kT = len(self.generated.final_states), self.machine.kT
        error = self.first_law_error
        law = f"to {error:.0e} of the energies" if error else "exactly"
        names = ["stage", "heat", "by steps", *self.parts, "work"]
        lines = [
            f"Ledger of {count} samples: mean energies in E0, kT = {kT:g} E0",
            *_aligned([names, *self._rows()]),
            f"first law holds {law}; discretization error {self.discretization_error.mean:+.3f} E0",
            f"heat {self.heat.mean / kT:.1f} kT = {self.joules():.2e} J at {ROOM_TEMPERATURE:g} K",
        ]
        bounds = self.dissipation
        if bounds is not None:
            low, high = bounds.production
            least, most = bounds.entropy_interval
            lines.append(
                f"entropy produced: at least {low:.1f} ± {bounds.speed_limit.sem:.1f} k (speed "
                f"limit, {100 * bounds.share:.0f} % of the heat), at most {high:.1f} k; entropy of "
                f"the states changes by {least:.0f} to {most:.0f} k"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, *rest = repr(self).splitlines()
        names = ["stage", "heat", "by steps", *self.parts, "work"]
        lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in self._rows()]
        notes = "<br>".join(escape(line) for line in rest[len(lines) :])
        caption = f"<caption style='text-align: left'><b>{escape(title)}</b></caption>"
        return f"<table>{caption}{''.join(lines)}</table><p>{notes}</p>"

    def _rows(self) -> list[list[str]]:
        rows = [
            [
                str(row["stage"]),
                format_mean(row["heat"]),
                f"{row['path_heat']:.2f}",
                *(f"{value:.2f}" for value in row["heat_parts"].values()),
                f"{row['work']:.2f}",
            ]
            for row in self.stages
        ]
        if len(rows) > 1:
            sums = [sum(row["heat_parts"][part] for row in self.stages) for part in self.parts]
            path = sum(row["path_heat"] for row in self.stages)
            means = [f"{value:.2f}" for value in (path, *sums, self.work.mean)]
            rows.append(["all", format_mean(self.heat), *means])
        return rows


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values))


def format_mean(estimate: MeanEstimate) -> str:
    """``3.47 ± 0.16``."""
    return f"{estimate.mean:.2f}" + ("" if estimate.sem is None else f" ± {estimate.sem:.2f}")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
