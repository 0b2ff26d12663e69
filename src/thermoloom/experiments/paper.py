"""What the paper says beside what was measured here, with a plain verdict.

The paper's numbers and sentences are in data/paper.toml. A quantity is a number of ours with its
interval; a statement is a sentence of the paper that our numbers can bear out or not.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from thermoloom.measures.statistics import Interval, PairedComparison

INSIDE = "inside the paper's interval"
COVERS = "our interval covers the paper's value"
EQUAL = "as in the paper"
SAME_SIDE = "same side of 0.05"
HIGHER, LOWER = "higher than the paper's", "lower than the paper's"
SAME_SIGN = "same sign"
HOLDS = "holds"
UNRESOLVED = "same sign, not resolved"
DIFFERS = "differs"
NOT_MEASURED = "not measured"


@cache
def paper() -> dict[str, Any]:
    """data/paper.toml as it is: {experiment: {quantities | statements: {key: entry}}}."""
    text = (files("thermoloom") / "data" / "paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class Quantity:
    """A number of ours, with the paper's beside it where the paper gives one."""

    key: str
    label: str
    value: float | None
    interval: Interval | None = None
    """95 % interval; None where none can be given."""
    unit: str = ""
    digits: str = ".2f"
    """Format of value and interval on the page."""
    note: str = ""
    paper_value: float | None = None
    paper_interval: Interval | None = None
    sentence: str = ""
    verdict: str = ""


def quantity(
    experiment: str,
    key: str,
    label: str,
    value: float | None,
    compare: Callable[[float | None, float], str] | None = None,
    **details: Any,
) -> dict[str, Any]:
    """A ``Quantity`` as a dictionary, the paper's part filled in from paper.toml.

    ``compare(value, paper_value)``: verdict where intervals and signs say nothing.
    """
    entry = paper().get(experiment, {}).get("quantities", {}).get(key)
    if entry is None:
        return asdict(Quantity(key, label, value, **details))
    interval = tuple(entry["interval"]) if "interval" in entry else None
    if compare is not None:
        verdict = compare(value, entry["value"])
    else:
        verdict = compare_with_paper(value, details.get("interval"), entry["value"], interval)
    return asdict(
        Quantity(
            key,
            label,
            value,
            **details,
            paper_value=float(entry["value"]),
            paper_interval=interval,
            sentence=entry["sentence"],
            verdict=verdict,
        )
    )


def compare_with_paper(
    value: float | None,
    interval: Interval | None,
    paper_value: float,
    paper_interval: Interval | None,
) -> str:
    """The closest of: inside the paper's interval, ours covers its value, same sign, differs."""
    if value is None:
        return NOT_MEASURED
    if value == paper_value:
        return EQUAL
    if paper_interval and paper_interval[0] <= value <= paper_interval[1]:
        return INSIDE
    if interval and interval[0] <= paper_value <= interval[1]:
        return COVERS
    return SAME_SIGN if value * paper_value > 0 else DIFFERS


def compare_p(p: float | None, paper_p: float) -> str:
    """A p value has no sign: whether it falls on the paper's side of 0.05."""
    if p is None:
        return NOT_MEASURED
    if abs(p - paper_p) <= 1e-9 * paper_p:
        return EQUAL
    return SAME_SIDE if (p < 0.05) == (paper_p < 0.05) else DIFFERS


def compare_size(value: float | None, paper_value: float) -> str:
    """A number that is positive by nature: whether it is higher or lower."""
    if value is None:
        return NOT_MEASURED
    return EQUAL if value == paper_value else HIGHER if value > paper_value else LOWER


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper and what our numbers say of it."""

    key: str
    sentence: str
    where: str
    verdict: str
    measured: str
    """Ours in words; {name:format} stands for a number of ``values``."""
    values: dict[str, Any] = field(default_factory=dict)


def statement(
    experiment: str, key: str, verdict: str, measured: str, **values: Any
) -> dict[str, Any]:
    """A ``Statement`` as a dictionary, with the paper's sentence."""
    entry = paper()[experiment]["statements"][key]
    return asdict(Statement(key, entry["sentence"], entry["where"], verdict, measured, values))


def verdict_counts(statements: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many statements have which verdict, and how many there are in all."""
    verdicts = [statement["verdict"] for statement in statements]
    order = (HOLDS, UNRESOLVED, DIFFERS, NOT_MEASURED)
    return {v: verdicts.count(v) for v in order if v in verdicts} | {"all": len(verdicts)}


def missing(experiment: str, key: str, reason: str) -> dict[str, Any]:
    """A statement that this run cannot speak to, and why."""
    return statement(experiment, key, NOT_MEASURED, reason)


def direction(comparison: PairedComparison, sign: int) -> str:
    """Whether other − reference has this sign: resolved by its interval, in the mean, or not.

    One pair has no interval, so it cannot resolve anything.
    """
    if comparison.mean_difference * sign <= 0:
        return DIFFERS
    if comparison.interval is None:
        return UNRESOLVED
    low, high = comparison.interval
    return HOLDS if low * sign > 0 and high * sign > 0 else UNRESOLVED


def no_change(comparison: PairedComparison) -> str:
    """Whether the interval of the difference contains zero; one pair cannot say."""
    if comparison.interval is None:
        return NOT_MEASURED
    low, high = comparison.interval
    return HOLDS if low <= 0 <= high else DIFFERS


def in_all_pairs(comparison: PairedComparison, sign: int) -> str:
    """Whether other − reference has this sign in every pair, or in the mean at least.

    One pair cannot speak for all.
    """
    if comparison.pairs > 1 and all(d * sign > 0 for d in comparison.differences):
        return HOLDS
    return UNRESOLVED if comparison.mean_difference * sign > 0 else DIFFERS
