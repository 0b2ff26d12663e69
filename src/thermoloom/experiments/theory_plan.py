"""What is predicted and measured, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.experiments.heat_origin import origin_work, predicted_work
from thermoloom.experiments.pairs import PairPlan
from thermoloom.experiments.plan import SECTION
from thermoloom.experiments.predicted import limits_work, rule_work
from thermoloom.experiments.probes import grid_work, offset_work
from thermoloom.experiments.theory_runs import Work
from thermoloom.computers.kept_patterns import patterns_of
from thermoloom.runs.store import RunDirectory


@dataclass(frozen=True)
class TheoryPlan(PairPlan):
    """The pairs whose spread is explained, and the probes that predictions are held against."""

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

    # Works whose arguments follow from the plan alone.

    @property
    def base(self) -> Settings:
        """The computer of the first seed; probes are trained on its paths."""
        return self.model("online", self.seeds[0])

    @property
    def limits(self) -> Work:
        return limits_work(self.base, self.batch_scan, self.bits)

    def prediction(self, rule: str) -> Work:
        return rule_work(self.model(rule, self.seeds[0]), self.offset, self.offset_cycles)

    def offset_probe(self, rule: str) -> Work:
        return offset_work(self.model(rule, self.seeds[0]), self.offset, self.offset_cycles)

    def origin(self, seed: int) -> Work:
        points = self.line_points_of(seed)
        return origin_work(
            self.model("batch", seed), self.seeds, self.heat_samples, points, self.noise_sizes
        )

    @property
    def predicted_heat(self) -> Work:
        return predicted_work(
            self.base, self.seeds, self.heat_samples, self.offset, self.offset_cycles
        )

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
        return [
            (
                factor,
                self.model(rule, self.seeds[0]).updated(
                    {
                        "training": {
                            "cycles": cycles,
                            "validation_every": every,
                            "learning_rate_scale": float(f"{scale * factor * critical:.5g}"),
                        }
                    }
                ),
            )
            for factor in factors
        ]

    def grid(self, limits: RunDirectory) -> Work:
        return grid_work(self.base, limits.results["ranges"], self.bits, self.grid_cycles)
