"""What an experiment saved, as its verdicts need it: the summary and the tables, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from thermoloom.measures.paired import PairedModels
from thermoloom.measures.responses import Responses
from thermoloom.runs.formats import Table, only
from thermoloom.runs.store import RunDirectory


@dataclass(frozen=True)
class Evidence:
    """The summary of an experiment, and its tables in its run directory."""

    summary: dict[str, Any]
    run: RunDirectory

    def table(self, name: str) -> Table:
        """A table by name."""
        return self.run.load_table(name)

    def has(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return self.run.has(f"{name}.csv")

    @cached_property
    def models(self) -> PairedModels:
        """The computers of an experiment of pairs."""
        return PairedModels(self.summary["models"])

    @cached_property
    def responses(self) -> Responses:
        """The conditions of an experiment of screens."""
        return Responses.of_tables(self.table("conditions"), self.table("samples"))

    @property
    def shown_samples(self) -> Table:
        """Samples of the displayed computer of an experiment of pairs."""
        shown = self.summary["shown"]
        return only(self.table("samples"), rule=shown["rule"], seed=shown["seed"])

    def drops(self, potential: str, ensemble: str) -> list[float]:
        """Mean energy drop of an ensemble in a potential, per seed."""
        own = only(self.table("cross"), potential=potential, ensemble=ensemble)
        found: list[float] = own["drop"].tolist()
        return found
