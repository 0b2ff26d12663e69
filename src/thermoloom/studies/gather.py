"""Read the results of the cases of a study from a results folder; nothing is computed here.

    results/runs/patterns-ID            patterns, read by every task
    results/runs/training-ID            parameters, validation curve, archive of samples
    results/runs/sampled-computer-ID    samples.csv, paths.csv, and the numbers of the computer
    results/runs/MEASURE-ID             what another measure saved

``gather(cases, folder)`` reads them: a record for each case that was computed, a line for each
that was not, and the seconds that all of them took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.sample_archives import SampleRequest, archived_classes, read_archive
from thermoloom.computers.training_runs import learned_patterns, parameters_of
from thermoloom.errors import UserError
from thermoloom.machine.energy import label_word
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.formats import Table
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import STAGES, TIMING, Case, Measure, ended, trained_path, why_missing


@dataclass(frozen=True, eq=False)
class Record:
    """A case that was computed; everything is read when it is needed."""

    case: Case
    folder: Path
    """Results folder."""
    run: RunDirectory
    """Run of the case, done or diverged."""

    @classmethod
    def of(cls, case: Case, folder: Path) -> Record | None:
        """The record of a case, if it is done or diverged."""
        run = ended(folder / case.path)
        return None if run is None else cls(case, folder, run)

    @property
    def labels(self) -> Mapping[str, Any]:
        return self.case.labels

    @property
    def settings(self) -> Settings:
        return self.case.settings

    @property
    def rule(self) -> str:
        return "optimum" if self.settings.solved else self.settings.training.rule

    @property
    def seed(self) -> int:
        return self.settings.training.seed

    @property
    def diverged(self) -> bool:
        return self.run.state == "diverged"

    @property
    def results(self) -> dict[str, Any]:
        """The numbers of the case."""
        return self.run.results

    def table(self, name: str) -> Table:
        """A table that the measure saved."""
        return self.run.load_table(name)

    # results of a sampled computer

    @cached_property
    def samples(self) -> Table:
        """The table of samples; empty where the computer diverged."""
        return {} if self.diverged else self.run.load_table("samples")

    @cached_property
    def training(self) -> RunDirectory:
        """Run of its training or solution."""
        return RunDirectory.open(trained_path(self.folder, self.settings))

    @cached_property
    def curve(self) -> Table:
        """The validation curve."""
        return self.training.load_table("curve")

    @property
    def parameters(self) -> Parameters:
        return parameters_of(self.training)

    @property
    def archive(self) -> Generated:
        """The samples themselves."""
        return read_archive(self.training, order_of(self.settings).archive)

    @property
    def classes(self) -> Sequence[int] | None:
        """The class requested for each sample, where there are labels."""
        return archived_classes(self.training, order_of(self.settings).archive)

    @property
    def words(self) -> Array | None:
        """Label states of the samples, where there are labels."""
        classes = self.classes
        return label_word(self.settings.machine, None if classes is None else np.array(classes))

    @property
    def patterns(self) -> Patterns:
        """The patterns that the computer learned."""
        return learned_patterns(self.training)


def order_of(settings: Settings) -> SampleRequest:
    """The request for the samples of a computer: their number and seed."""
    return SampleRequest(settings.generation.samples, settings.generation_seed)


def has_archive(training: RunDirectory, settings: Settings) -> bool:
    """Whether the samples of a computer are in the run of its training."""
    file = f"{order_of(settings).archive}.safetensors"
    return training.has(file) and not training.is_lost(file)


@dataclass(frozen=True)
class Gathered:
    """The cases of a study: those that were computed, and lines about the others."""

    folder: Path
    records: Sequence[Record]
    """In the order of the cases."""
    missing: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def of(self, measure: Measure) -> Gathered:
        """The cases of one measure."""
        return replace(self, records=[r for r in self.records if r.case.measure is measure])

    def where(self, **labels: Any) -> list[Record]:
        """Records with these labels."""
        return [r for r in self.records if all(r.labels.get(k) == v for k, v in labels.items())]

    def one(self, **labels: Any) -> Record | None:
        """The first record with these labels that did not diverge."""
        return next((record for record in self.where(**labels) if not record.diverged), None)

    def rows(self, **labels: Any) -> list[dict[str, Any]]:
        """Labels and results of the records with these labels."""
        return [{**record.labels, **record.results} for record in self.where(**labels)]

    @property
    def finite(self) -> Gathered:
        """The cases that did not diverge; the others are named among the missing."""
        diverged = [left_out(r.case, self.folder) for r in self.records if r.diverged]
        records = [record for record in self.records if not record.diverged]
        return Gathered(self.folder, records, [*self.missing, *diverged])

    @property
    def total_seconds(self) -> dict[str, float]:
        """Seconds of work by kind of case."""
        runs = {record.run.path: record for record in self.records}
        total: dict[str, float] = {}
        for record in runs.values():
            timing = record.results.get(TIMING) or {}
            stages = sum(timing.get(stage, 0.0) for stage in STAGES)
            kind = record.case.kind.replace("-", " ")
            total[kind] = total.get(kind, 0.0) + record.results.get("seconds", stages)
        return total

    def seconds(self, stages: Iterable[str], **labels: Any) -> dict[str, float]:
        """Seconds of work by stage, summed over all computers and processes."""
        runs = {r.run.path: r.results.get(TIMING, {}) for r in self.where(**labels)}
        return {stage: sum((s.get(stage, 0.0) for s in runs.values()), 0.0) for stage in stages}


def gather(cases: Iterable[Case], folder: Path) -> Gathered:
    """The cases that were computed; the others are named, with the reason."""
    records: list[Record] = []
    missing: list[str] = []
    for case in cases:
        record = Record.of(case, folder)
        if record is not None:
            records.append(record)
        else:
            missing.append(left_out(case, folder))
    if not records:
        raise UserError(f"{folder}: nothing was measured: {' | '.join(missing)}")
    return Gathered(folder, records, missing)


def left_out(case: Case, folder: Path) -> str:
    """A line that names a case missing from the tables, and the reason."""
    return f"{case.name} is left out ({why_missing(folder / case.path)})"


# --- tables ---


def save_rows(run: RunDirectory, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table from its rows, which all have the columns of the first."""
    run.save_table(name, {key: [row[key] for row in rows] for key in rows[0]})


def stacked(tables: Iterable[tuple[Mapping[str, Any], Table]]) -> Table:
    """Tables one under the other, with the labels of each table as further columns."""
    parts = list(tables)
    lengths = [len(next(iter(columns.values()))) for _, columns in parts]
    owner = {key: np.repeat([labels[key] for labels, _ in parts], lengths) for key in parts[0][0]}
    return owner | {name: np.concatenate([t[name] for _, t in parts]) for name in parts[0][1]}
