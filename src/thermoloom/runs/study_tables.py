"""Summary, tables and arrays of a study, as verdicts, figures and pages read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermoloom.runs.files import reading
from thermoloom.runs.formats import Table, from_json
from thermoloom.runs.store import RunDirectory

SUMMARY = "summary.json"


@dataclass(frozen=True)
class StudyTables:
    """Summary, tables and arrays of a study; read only."""

    run: RunDirectory
    summary: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> StudyTables:
        run = RunDirectory.open(path)
        data = run.load_bytes(SUMMARY)
        with reading(run.path / SUMMARY):
            return cls(run, from_json(json.loads(data), dict[str, Any]))

    def has(self, table: str) -> bool:
        return self.run.has(f"{table}.csv")

    def table(self, name: str) -> Table:
        return self.run.load_table(name)

    def arrays(self, name: str) -> tuple[Table, dict[str, Any]]:
        """Arrays of a file, and its metadata."""
        return self.run.load_arrays(name), self.run.load_metadata(name)
