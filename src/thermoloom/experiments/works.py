"""Runs of an experiment's own: a prediction, a probe, a measure, found by its settings.

One task function carries out all of them: it opens the run, leaves it alone if it is done, and
else calls the function of its kind, ``function(job, **more)``, which fills it and returns its
results; None where it diverged, which is noted in the run already.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.pattern_store import patterns_of
from thermoloom.computers.training_runs import training_settings
from thermoloom.experiments.cutting import in_products
from thermoloom.experiments.models import SAMPLE_IN_CYCLES
from thermoloom.experiments.results import RUNS, finished, patterns_input
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.measures.classifier import classifier_sha256
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.manifest import run_path
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Report, Task, resolve
from thermoloom.settings import PatternSettings, Settings
from thermoloom.theory.expected_loss import ExpectedLoss
from thermoloom.theory.marginals import Marginals, solve_marginals
from thermoloom.theory.solver import conjugate_gradients

TOLERANCE = 1e-6
"""Relative gradient at which θ* counts as solved, as in ``thermoloom solve``."""
FUNCTIONS = {
    "limits": "theory.predicted:predict_limits",
    "prediction": "theory.predicted:predict_rule",
    "offset-probe": "theory.probes:train_with_offset",
    "grid-probe": "theory.probes:train_on_grids",
    "heat-origin": "theory.mixtures:measure_heats",
    "heat-predicted": "theory.mixtures:measure_predicted",
    "spread": "theory.mixtures:measure_spread",
    "digits-machine": "digits.parts:measure_machine",
    "digits-point": "digits.parts:measure_point",
    "digits-windows": "digits.parts:measure_windows",
    "digits-unlabelled": "digits.parts:measure_unlabelled",
    "digits-peer": "digits.peers:measure_peer",
    "digits-inpainting": "digits.parts:measure_inpainting",
    "digits-classes": "digits.parts:measure_classes",
    "digits-online": "digits.parts:learn_online",
    "schedule": "frontier.schedules:search",
    "free-energy": "ledger.switched:measure_free_energy",
    "recalibration": "devices:recalibrate",
    "storage": "precision:store",
    "wiring-point": "wiring.points:measure_point",
}
"""What carries out each kind of work."""

SOLUTION_IN_CYCLES = 500
"""What θ* costs in training cycles, to begin with what takes longest."""

SAMPLED = ("devices", "digits", "precision", "wiring")
"""Experiments whose works draw samples by the generation seed and have them judged."""


@dataclass(frozen=True)
class Work:
    """A run of its own: its kind, the settings of the computer it is about, and what else it takes.

    ``more`` are the further arguments of its function, JSON.
    """

    kind: str
    settings: Settings
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        more = {k: list(v) if isinstance(v, tuple) else v for k, v in self.more.items()}
        room = FUNCTIONS[self.kind].partition(":")[0].partition(".")[0]
        training = {"training": self.settings.as_dict()["training"]}  # works draw by its seeds
        return training_settings(self.settings) | training | {room: more} | self._sampled(room)

    def _sampled(self, room: str) -> dict[str, Any]:
        """What else determines samples and how they are judged."""
        if room not in SAMPLED:
            return {}
        judge = classifier_sha256(self.settings.measures.classifier)
        seed = self.settings.generation_seed
        return {"generation": {"seed": seed}, "classifier": {"sha256": judge}}

    @property
    def path(self) -> Path:
        """Run directory, relative to the results folder."""
        return run_path(Path(RUNS), self.kind, self.identity)

    def task(self, name: str, inputs: Sequence[Path] = ()) -> Task:
        return Task(
            name=name,
            function="thermoloom.experiments.works:carry_out",
            arguments={
                "kind": self.kind,
                "model": self.settings.as_dict(),
                "more": dict(self.more),
            },
            outputs=(str(self.path),),
            inputs=(patterns_input(self.settings), *(str(path) for path in inputs)),
            cost=self._cost(),
        )

    def _cost(self) -> float | None:
        """Samples, trajectories and solutions; not known of works that draw no samples."""
        if "samples" not in self.more:
            return None
        solutions = self.more.get("pieces", 1)  # a search for windows solves many
        cycles = self.more.get("cycles", 0) + SOLUTION_IN_CYCLES * solutions
        cycles += SAMPLE_IN_CYCLES * self.more["samples"]
        return in_products(self.settings.machine, cycles)

    def found(self, folder: Path) -> RunDirectory | None:
        """The run, if it is there and done."""
        return finished(folder / self.path)


@dataclass(frozen=True)
class Job:
    """Work on its way: where it may read and write, and what predictions stand on."""

    workdir: Path
    settings: Settings
    run: RunDirectory
    report: Report

    @cached_property
    def patterns(self) -> Patterns:
        """What is learned, kept in the results folder."""
        chosen, machine = self.settings.patterns, self.settings.machine
        return _read(chosen, machine.visible, self.workdir / RUNS)

    @cached_property
    def fields(self) -> NDArray[np.float32]:
        """Fields of the patterns."""
        return unit_fields(self.patterns, self.settings.machine)

    @cached_property
    def marginals(self) -> Marginals:
        return solve_marginals(self.settings.machine, float(np.abs(self.fields).max()))

    @cached_property
    def loss(self) -> ExpectedLoss:
        return ExpectedLoss(self.settings.machine, self.fields, self.marginals)

    @cached_property
    def optimum(self) -> NDArray[np.float64]:
        """θ* as a flat vector."""
        return conjugate_gradients(self.loss, TOLERANCE)[0]

    def parameters(self, vector: NDArray[np.float64]) -> Parameters:
        """θ of a flat vector, in float32, symmetric to the bit."""
        machine = self.settings.machine
        flat = layout(machine).symmetrized(vector[None])
        return Parameters(machine, flat.astype(np.float32))


@lru_cache(maxsize=1)
def _read(patterns: PatternSettings, visible: int, folder: Path) -> Patterns:
    """Patterns that are kept, read once by all works of a process: 60,000 images take seconds."""
    return patterns_of(Settings(Machine(visible=visible), patterns), folder)


def carry_out(
    workdir: Path, report: Report, kind: str, model: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    """Do the work that is not done yet."""
    work = Work(kind, Settings.from_dict(model), more)
    with RunDirectory.create(workdir / work.path, kind, work.identity) as run:
        if run.state not in ("done", "diverged"):
            began = time.perf_counter()
            function = resolve(f"thermoloom.experiments.{FUNCTIONS[kind]}")
            results = function(Job(workdir, work.settings, run, report), **more)
            if results is not None:
                run.finish({**results, "seconds": time.perf_counter() - began})
    return {}
