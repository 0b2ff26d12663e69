"""Runs of the theory's own: a prediction or a probe in its run directory, found by its settings.

A task function opens its run with ``Work.begin``; a run that is done is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.experiments.models import RUNS, patterns_input
from thermoloom.prototypes import unit_fields
from thermoloom.computers.trained import training_settings
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.computers.kept_patterns import patterns_of
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.theory.marginals import Marginals, solve_marginals
from thermoloom.theory.optimum import ExpectedLoss, conjugate_gradients

TOLERANCE = 1e-6
"""Relative gradient at which θ* counts as solved, as in ``thermoloom solve``."""


@dataclass(frozen=True)
class Work:
    """A run of its own: its kind, the settings of the computer it is about, and what else it takes.

    ``more`` are the further arguments of its task function, JSON.
    """

    kind: str
    settings: Settings
    more: dict[str, Any] = field(default_factory=dict)

    def fields(self, folder: Path) -> NDArray[np.float32]:
        """Fields of the patterns, which are kept in the results folder."""
        return unit_fields(patterns_of(self.settings, folder / RUNS), self.settings)

    @property
    def identity(self) -> dict[str, Any]:
        return training_settings(self.settings) | {"theory": self.more}

    @property
    def path(self) -> Path:
        """Run directory, relative to the results folder."""
        return run_path(Path(RUNS), self.kind, self.identity)

    def task(self, name: str, function: str, inputs: Sequence[Path] = ()) -> Task:
        """The task that carries it out: ``function(workdir, report, model, **more)``."""
        return Task(
            name=name,
            function=f"thermoloom.experiments.{function}",
            arguments={"model": self.settings.as_dict(), **self.more},
            outputs=(str(self.path),),
            inputs=(patterns_input(self.settings), *(str(path) for path in inputs)),
        )

    @contextmanager
    def begin(self, workdir: Path) -> Iterator[Pending | None]:
        """The run, to be filled; None where it is done already."""
        with RunDirectory.create(workdir / self.path, self.kind, self.identity) as run:
            if run.state == "done":
                yield None
                return
            pending = Pending(run, self.fields(workdir))
            began = time.perf_counter()
            yield pending
            run.finish(pending.results | {"seconds": time.perf_counter() - began})

    def found(self, folder: Path) -> RunDirectory | None:
        """The run, if it is there and done."""
        path = folder / self.path
        run = RunDirectory.open(path) if (path / MANIFEST).exists() else None
        return run if run is not None and run.state == "done" else None


@dataclass
class Pending:
    """A run on its way: files go to ``run``, small results to ``results``."""

    run: RunDirectory
    fields: NDArray[np.float32]
    results: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ground:
    """What predictions stand on: marginals, expected loss and θ* as a flat vector."""

    settings: Settings
    fields: NDArray[np.float32]

    @cached_property
    def marginals(self) -> Marginals:
        return solve_marginals(self.settings.machine, float(np.abs(self.fields).max()))

    @cached_property
    def loss(self) -> ExpectedLoss:
        return ExpectedLoss(self.settings.machine, self.fields, self.marginals)

    @cached_property
    def optimum(self) -> NDArray[np.float64]:
        return conjugate_gradients(self.loss, TOLERANCE)[0]
