"""Results of studies: tables of NumPy arrays, for Python users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import user_path
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import SUMMARY, StudyTables

Array = NDArray[Any]


class Results(Mapping[str, dict[str, Array]]):
    """The results of a study: tables by name, each a dict of columns, and a summary.

    Every file is checked against its SHA-256 when it is read.

    >>> import thermoloom as tl
    >>> results = tl.results("results/comparison")
    >>> results["models"]["seed"].dtype, results.summary["study"]
    (dtype('int64'), 'comparison')
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def __getitem__(self, table: str) -> dict[str, Array]:
        if table not in self:
            raise KeyError(f"{table}: no such table; the tables are {', '.join(self)}")
        return self._run.load_table(table)

    def __contains__(self, table: object) -> bool:
        return self._run.has(f"{table}.csv")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(n.removesuffix(".csv") for n in self._run.manifest.files if ".csv" in n))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"Results({self._run.kind}, {self._run.state}: {', '.join(self)})"

    @property
    def summary(self) -> dict[str, Any]:
        """All numbers of the page (summary.json), or the results of a run without a summary."""
        if not self._run.has(SUMMARY):
            return dict(self._run.results)
        return StudyTables.open(self._run.path).summary

    def frame(self, table: str) -> Any:
        """A table as a pandas DataFrame; needs pandas.

        ``table``: its name.

        >>> import thermoloom as tl
        >>> results = tl.results("results/comparison")
        >>> heat = results.frame("models").groupby("rule")["heat.mean"].mean()  # doctest: +SKIP
        """
        return _library("pandas", table).DataFrame(self[table])

    def dataset(self, table: str, *dimensions: str) -> Any:
        """A table as an xarray Dataset; needs xarray and, with ``dimensions``, pandas.

        ``table``: its name. ``dimensions``: columns that together name each row, such as rule and
        seed; without them there is one dimension, ``row``.

        >>> import thermoloom as tl
        >>> results = tl.results("results/comparison")
        >>> models = results.dataset("models", "rule", "seed")  # doctest: +SKIP
        >>> models["heat.mean"].sel(rule="online").mean()  # doctest: +SKIP
        """
        xarray = _library("xarray", table)
        columns = self[table]
        if not dimensions:
            return xarray.Dataset({name: ("row", values) for name, values in columns.items()})
        if unknown := [name for name in dimensions if name not in columns]:
            raise UserError(f"{unknown[0]}: no such column of {table}; it has {', '.join(columns)}")
        frame = self.frame(table).set_index(list(dimensions))
        if not frame.index.is_unique:
            raise UserError(
                f"{', '.join(dimensions)}: these columns are equal in several rows of {table}; "
                "name more columns"
            )
        return frame.to_xarray()


def _library(name: str, table: str) -> Any:
    """Import an optional table library."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(
            f"{name} is not installed: pip install {name}, or take the columns as NumPy arrays "
            f"with results[{table!r}]"
        ) from None


def results(path: str | Path) -> Results:
    """Open the tables and the summary of a study.

    ``path``: the folder of the study, such as results/comparison, or any other run directory.

    >>> import thermoloom as tl
    >>> samples = tl.results("results/comparison")["samples"]
    >>> online = samples["rule"] == "online"
    >>> samples["heat"][online].shape
    (16,)
    """
    return Results(RunDirectory.open(user_path("path", path)))
