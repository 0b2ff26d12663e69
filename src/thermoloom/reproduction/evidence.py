"""What an experiment saved, as its verdicts need it."""

from __future__ import annotations

from functools import cached_property

from thermoloom.measures.paired import PairedModels
from thermoloom.measures.responses import Responses
from thermoloom.runs.formats import Table, only
from thermoloom.runs.study_tables import StudyTables


class Evidence(StudyTables):
    """What an experiment saved, with the computers and conditions of its tables."""

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
