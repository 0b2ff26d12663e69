"""The plan of the study: lengths of predictions and measurements, and their cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thermoloom.errors import UserError
from thermoloom.measures.paired import RULES
from thermoloom.settings import Settings
from thermoloom.studies.case import Case
from thermoloom.studies.pairs import PairPlan
from thermoloom.studies.study import SECTION
from thermoloom.studies.theory.mixtures import (
    PARTS,
    mixture_heats,
    predicted_mean_heats,
    seed_noise,
)
from thermoloom.studies.theory.probes import grid_probe, offset_probe, rate_probe
from thermoloom.studies.theory.training_predictions import predicted_training, training_limits


@dataclass(frozen=True)
class TheoryPlan(PairPlan):
    """The pairs whose spread is explained, and the probes that predictions are compared with."""

    batch_scan: tuple[float, ...] = (0.7, 0.9, 0.95, 1.05, 1.1, 1.3)
    """Learning rates of short batch trainings, in units of the predicted critical one."""
    batch_scan_cycles: int = 45
    online_scan: tuple[float, ...] = (0.5, 0.8, 0.95, 1.05, 1.2)
    """Learning rates of short online trainings, in units of the predicted critical one."""
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
    """Amplitudes of isotropic noise around θ*, in units of that of the trained computers."""

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
                "machine.stages, labels, wiring, topology, biases: the theory study is about the "
                "paper's machine; leave them at their defaults"
            )

    @property
    def base(self) -> Settings:
        """The computer of the first seed; probes are trained on its paths."""
        return self.computer("online", self.seeds[0])

    # --- predictions ---

    @property
    def limits(self) -> Case:
        """Critical learning rates and sizes of updates."""
        return Case({}, self.base, training_limits, {"factors": self.batch_scan, "bits": self.bits})

    @property
    def predictions(self) -> list[Case]:
        """The course of training, one case per rule."""
        return [
            Case(
                {"rule": rule}, self.computer(rule, self.seeds[0]), predicted_training, self._offset
            )
            for rule in RULES
        ]

    @property
    def _offset(self) -> dict[str, Any]:
        return {"offset": self.offset, "offset_cycles": self.offset_cycles}

    # --- probes ---

    @property
    def offset_probes(self) -> list[Case]:
        """Trainings with and without an offset, one case per rule."""
        return [
            Case({"rule": rule}, self.computer(rule, self.seeds[0]), offset_probe, self._offset)
            for rule in RULES
        ]

    @property
    def rate_probes(self) -> list[Case]:
        """Short trainings around the critical rate of each rule."""
        scans = {
            "batch": (self.batch_scan, self.batch_scan_cycles),
            "online": (self.online_scan, self.online_scan_cycles),
        }
        return [
            Case(
                {"rule": rule, "factor": factor},
                self.computer(rule, self.seeds[0]).updated({"training": {"cycles": cycles}}),
                rate_probe,
                {"limits": self.limits.path.as_posix(), "factor": factor},
                needs=(self.limits,),
            )
            for rule, (factors, cycles) in scans.items()
            for factor in factors
        ]

    @property
    def grid_probe(self) -> Case:
        """Training on grids of bits, as wide as θ*."""
        limits = self.limits
        lengths = {"bits": self.bits, "grid_cycles": self.grid_cycles}
        arguments = {"limits": limits.path.as_posix()} | lengths
        return Case({}, self.base, grid_probe, arguments, needs=(limits,))

    # --- where the heat comes from ---

    def mixtures(self, seed: int) -> list[Case]:
        """Heat of mixtures with the random numbers of this pair, part by part."""
        lines = self.line_points_of(seed) > 2
        return [
            Case(
                {"part": part, "pair": seed},
                self.computer("batch", seed),
                mixture_heats,
                {
                    "part": part,
                    "seeds": self.seeds,
                    "heat_samples": self.heat_samples,
                    "line_points": self.line_points_of(seed),
                    "noise_sizes": self.noise_sizes,
                },
                needs=(*self.pair_cases, self.optimum_cases[0]),
            )
            for part in PARTS
            if part != "line" or lines
        ]

    def line_points_of(self, seed: int) -> int:
        """Points on the lines of this pair: none beyond the first ``line_pairs``."""
        return self.line_points if self.seeds.index(seed) < self.line_pairs else 0

    @property
    def predicted_heats(self) -> Case:
        """Heat of the E[θ] of both rules."""
        arguments = {"seeds": self.seeds, "heat_samples": self.heat_samples}
        predictions = self.predictions
        paths = {"predictions": _paths(predictions)}
        return Case({}, self.base, predicted_mean_heats, paths | arguments, (*predictions,))

    def seed_noise(self, seeds: Sequence[int]) -> Case:
        """Noise of the trained computers of these seeds around their means."""
        predictions = self.predictions
        pairs = [case for case in self.pair_cases if case.labels["seed"] in seeds]
        return Case(
            {"seeds": len(seeds)},
            self.base,
            seed_noise,
            {"predictions": _paths(predictions), "seeds": tuple(seeds)},
            needs=(*predictions, *pairs, self.optimum_cases[0]),
        )


def _paths(predictions: Sequence[Case]) -> dict[str, str]:
    """Run of each rule's prediction, relative to the results folder."""
    return {case.labels["rule"]: case.path.as_posix() for case in predictions}
