"""The scale of data: the user's units and the fields of visible units.

s = (y − m)/σ        y = m + σ s

sample    m, σ of every row, as in the paper; samples take the mean m and the rms σ of all rows
feature   m, σ of every column: for tables
fixed     m, σ from the user: one number, or one for each column
none      m = 0, σ = 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.errors import UserError
from thermoloom.machine.clamp import fields_at_rest
from thermoloom.machine.machine import SCALES, Machine

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

ROWS_AT_ONCE = 2000
"""Rows that are scaled together: bounds the memory in float64."""


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and deviation that turn data into patterns, and back."""

    kind: str = "sample"
    mean: Float64 = field(default_factory=lambda: np.zeros(()))
    """(rows,) for sample; (columns,) for feature; (columns,) or one number otherwise."""
    deviation: Float64 = field(default_factory=lambda: np.ones(()))
    """As ``mean``; 0 where a column is constant."""

    def fields(self, rows: NDArray[Any]) -> Float32:
        """s of these rows, in float32: the same bits on every machine."""
        mean, deviation = self.mean, self.deviation
        patterns = np.empty(rows.shape, np.float32)
        for some in _blocks(len(rows)):
            by_row = (some, None) if self.kind == "sample" and mean.ndim else ...
            m, sd = mean[by_row], deviation[by_row]
            centred = rows[some].astype(np.float64) - m
            with np.errstate(over="ignore"):
                patterns[some] = np.divide(centred, sd, out=np.zeros_like(centred), where=sd > 0)
        if not np.isfinite(patterns).all():
            raise UserError("data: values are too far from their mean for float32; scale them")
        return patterns

    def data(self, machine: Machine, states: NDArray[Any]) -> NDArray[Any]:
        """Visible states (…, N_v) in the user's units."""
        return self.units(fields_at_rest(machine, states))

    def units(self, fields: NDArray[Any]) -> NDArray[Any]:
        """Fields (…, N_v) in the user's units."""
        if self.kind == "sample":  # one typical image: a sample has no mean of its own
            typical = np.sqrt(np.square(self.deviation).mean())
            return np.asarray(self.mean.mean() + typical * fields, np.float32)
        return np.asarray(self.mean + self.deviation * fields)

    def of_rows(self, rows: slice) -> Scale:
        """The scale of some of the rows."""
        if self.kind != "sample" or not self.mean.ndim:
            return self
        return Scale(self.kind, self.mean[rows], self.deviation[rows])

    def like(self, rows: NDArray[Any], names: Sequence[str] | None = None) -> Scale:
        """This scale for other rows: the same numbers, unless each row has its own."""
        return sample_scale(rows, names) if self.kind == "sample" else self


def sample_scale(rows: NDArray[Any], names: Sequence[str] | None = None) -> Scale:
    """Mean and deviation of every row; a row without contrast is refused by its name."""
    finite = np.isfinite(rows).all(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = moments(rows)
        # min < max, not sd > 0: the mean of equal numbers may be off by round-off
        varies = (rows.min(axis=1) < rows.max(axis=1)) & (deviation > 0) & np.isfinite(deviation)
    if len(wrong := np.flatnonzero(~finite | ~varies)):
        first = int(wrong[0])
        why = "constant image without contrast; remove it"
        if rows[first].min() < rows[first].max():
            why = "its contrast is too small for float64; scale the image"
        if not finite[first]:
            why = "has values that are not finite; remove the image"
        raise UserError(f"pattern {first if names is None else names[first]}: {why}")
    return Scale("sample", mean, deviation)


def feature_scale(rows: NDArray[Any]) -> Scale:
    """Mean and deviation of every column; a constant column has deviation 0 and stays constant."""
    mean, deviation = moments(rows.T)
    constant = rows.min(axis=0) == rows.max(axis=0)
    if constant.all():
        raise UserError("scale = 'feature': no column varies, so there is nothing to learn")
    return Scale("feature", np.where(constant, rows[0], mean), np.where(constant, 0.0, deviation))


def fixed_scale(mean: ArrayLike | None, deviation: ArrayLike | None, columns: int) -> Scale:
    """Mean and deviation from the user."""
    if mean is None or deviation is None:
        raise UserError("scale = 'fixed': needs mean and deviation, such as mean=128, deviation=64")
    numbers = {"mean": np.asarray(mean), "deviation": np.asarray(deviation)}
    for name, array in numbers.items():
        if array.dtype.kind not in "iuf" or array.shape not in ((), (columns,)):
            raise UserError(f"{name}: must be one number, or one for each of the {columns} columns")
        if not np.isfinite(array).all():
            raise UserError(f"{name}: must be finite")
    if (numbers["deviation"] <= 0).any():
        raise UserError("deviation: must be positive")
    return Scale("fixed", *(array.astype(np.float64) for array in numbers.values()))


def scale_of(
    rows: NDArray[Any],
    kind: str | None,
    names: Sequence[str] | None = None,
    mean: ArrayLike | None = None,
    deviation: ArrayLike | None = None,
) -> Scale:
    """The scale of this kind for these rows (n, N_v)."""
    kind = "none" if kind is None else kind
    if kind not in SCALES:
        raise UserError(f"scale = {kind!r}: must be one of {', '.join(SCALES)}")
    if kind != "fixed" and (mean is not None or deviation is not None):
        raise UserError(f"mean, deviation: scale = {kind!r} takes none; use scale='fixed'")
    if kind == "sample":
        return sample_scale(rows, names)
    if kind == "feature":
        return feature_scale(rows)
    return fixed_scale(mean, deviation, rows.shape[1]) if kind == "fixed" else Scale("none")


def normalized(images: NDArray[Any], names: Sequence[str] | None = None) -> Float32:
    """(y − mean)/sd of every row (population sd), computed in float64, cast to float32.

    A row without contrast or with a value that is not finite is refused by its name.
    """
    rows = np.asarray(images)
    rows = rows.reshape(len(rows), -1)
    return sample_scale(rows, names).fields(rows)


def moments(rows: NDArray[Any]) -> tuple[Float64, Float64]:
    """Mean and standard deviation of every row, in float64."""
    mean, deviation = np.empty(len(rows)), np.empty(len(rows))
    for some in _blocks(len(rows)):
        wide = rows[some].astype(np.float64)
        mean[some], deviation[some] = wide.mean(axis=1), wide.std(axis=1)
    return mean, deviation


def _blocks(count: int) -> Iterator[slice]:
    """Slices of rows, so that only some rows are in float64 at a time."""
    return (slice(i, i + ROWS_AT_ONCE) for i in range(0, count, ROWS_AT_ONCE))
