"""What is predicted and measured, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thermoloom.computers.pattern_store import patterns_of
from thermoloom.errors import UserError
from thermoloom.experiments.pairs import PairPlan
from thermoloom.experiments.plan import SECTION
from thermoloom.experiments.theory.mixtures import PARTS
from thermoloom.experiments.works import Work
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings


@dataclass(frozen=True)
class TheoryPlan(PairPlan):
    """The pairs whose spread is explained, and the probes that predictions are compared with."""

    batch_scan: tuple[float, ...] = (0.7, 0.9, 0.95, 1.05, 1.1, 1.3)
    """Learning rates of short batch trainings, in units of the predicted critical one."""
    batch_scan_cycles: int = 45
    online_scan: tuple[float, ...] = (0.5, 0.8, 0.95, 1.05, 1.2)
    """The same for online training."""
    online_scan_cycles: int = 6
    offset: float = 0.01
    """Residual offset μ_bias of the trainings that show the offset law."""
    offset_cycles: int = 100
    bits: tuple[int, ...] = (4, 6, 8, 10, 12, 14, 16)
    """Bit depths of the grid on which updates may vanish."""
    grid_cycles: int = 3
    heat_samples: int = 50
    """Samples of every mixture whose heat is measured."""
    line_points: int = 5
    """Points on each line between θ*, batch and online, both ends included."""
    line_pairs: int = 1
    """Pairs for which the lines are measured."""
    noise_sizes: tuple[float, ...] = (0.7, 1.0, 1.4)
    """Amplitudes of isotropic noise around θ*, in units of the trained computers' own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.seeds) < 2:
            raise UserError(
                f"{SECTION}.seeds = {list(self.seeds)}: noise across seeds needs at least two"
            )

        machine = self.settings.machine
        wired = {"visible-hidden", "hidden-hidden"} <= set(machine.wiring)
        if (
            machine.stages > 1
            or machine.labels
            or not wired
            or machine.wired("visible-visible")
            or machine.biases != ("hidden",)
            or machine.sparse
        ):
            raise UserError(
                "machine.stages, labels, wiring, topology, biases: the theory experiment is about "
                "the paper's machine; leave them at their defaults"
            )

    # Works whose arguments follow from the plan alone.

    @property
    def base(self) -> Settings:
        """The computer of the first seed; probes are trained on its paths."""
        return self.model("online", self.seeds[0])

    @property
    def _offset(self) -> dict[str, Any]:
        return {"offset": self.offset, "offset_cycles": self.offset_cycles}

    @property
    def limits(self) -> Work:
        return Work("limits", self.base, {"factors": self.batch_scan, "bits": self.bits})

    def prediction(self, rule: str) -> Work:
        return Work("prediction", self.model(rule, self.seeds[0]), self._offset)

    def offset_probe(self, rule: str) -> Work:
        return Work("offset-probe", self.model(rule, self.seeds[0]), self._offset)

    def origin(self, seed: int) -> list[Work]:
        """Heat of mixtures with the random numbers of this pair, part by part."""
        lines = self.line_points_of(seed) > 2
        return [self._origin(seed, part) for part in PARTS if part != "line" or lines]

    def _origin(self, seed: int, part: str) -> Work:
        settings = self.model("batch", seed)
        return Work(
            "heat-origin",
            settings,
            {
                "part": part,
                "seeds": self.seeds,
                "heat_samples": self.heat_samples,
                "line_points": self.line_points_of(seed),
                "noise_sizes": self.noise_sizes,
                "generation_seed": settings.generation_seed,
            },
        )

    @property
    def predicted_heat(self) -> Work:
        """Heat of E[θ] of both rules; the offset only names the predictions that hold E[θ]."""
        more = {"seeds": self.seeds, "heat_samples": self.heat_samples}
        return Work("heat-predicted", self.base, more | self._offset)

    def spread(self, seeds: Sequence[int]) -> Work:
        """Noise of the trained computers of these seeds around their means."""
        return Work("spread", self.base, {"seeds": tuple(seeds)} | self._offset)

    def line_points_of(self, seed: int) -> int:
        """Points on the lines of this pair: none beyond the first ``line_pairs``."""
        return self.line_points if self.seeds.index(seed) < self.line_pairs else 0

    # Works that follow from the predicted limits.

    def scan(self, rule: str, limits: RunDirectory) -> list[tuple[float, Settings]]:
        """(factor, settings) of the short trainings around the critical rate of a rule."""
        critical = limits.results[rule]["critical_rate"] / limits.results["learning_rate"]
        factors = self.batch_scan if rule == "batch" else self.online_scan
        cycles = self.batch_scan_cycles if rule == "batch" else self.online_scan_cycles
        every = len(patterns_of(self.settings, limits.path.parent)) if rule == "batch" else 1
        scale = self.settings.training.learning_rate_scale
        model, lengths = (
            self.model(rule, self.seeds[0]),
            {"cycles": cycles, "validation_every": every},
        )
        found = []
        for factor in factors:
            rate = {"learning_rate_scale": float(f"{scale * factor * critical:.5g}")}
            found.append((factor, model.updated({"training": lengths | rate})))
        return found

    def grid(self, limits: RunDirectory) -> Work:
        more = {"bits": self.bits, "grid_cycles": self.grid_cycles}
        return Work("grid-probe", self.base, {"ranges": limits.results["ranges"]} | more)
