"""What the paper says beside what was measured here, with a plain verdict.

The paper's numbers and sentences are in data/paper.toml, each with the thresholds of its verdict
and with the lengths that a run needs to judge it. A quantity is a number of ours with its interval;
a statement is a sentence of the paper that our numbers can bear out or not.
"""

from __future__ import annotations

import math
import re
import string
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
TOO_SHORT = "too short to judge"

KINDS = ("quantities", "statements", "predictions")
"""Tables of an experiment in paper.toml; predictions are ours, all else is the paper's."""


@cache
def paper() -> dict[str, Any]:
    """data/paper.toml: {experiment: {needs, kind: {key: entry}}}."""
    text = (files("thermoloom") / "data" / "paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def entry_of(experiment: str, key: str) -> dict[str, Any]:
    """The entry of a statement, a prediction or a quantity, in this order."""
    own = paper()[experiment]
    for kind in reversed(KINDS):
        if key in own.get(kind, {}):
            entry: dict[str, Any] = own[kind][key]
            return entry
    raise KeyError(f"{experiment}: paper.toml has no {key}")


def thresholds(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All thresholds of an entry, for the page: name, value, unit and reason."""
    return [{"name": name, **found} for name, found in entry.get("threshold", {}).items()]


Rows = list[dict[str, Any]]
FORMAT = string.Formatter()


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
    thresholds: list[dict[str, Any]] = field(default_factory=list)


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
    thresholds: list[dict[str, Any]] = field(default_factory=list)


def own_quantity(key: str, label: str, value: float | None, **details: Any) -> dict[str, Any]:
    """A ``Quantity`` as a dictionary, one that the paper does not give."""
    return asdict(Quantity(key, label, value, **details))


@dataclass(frozen=True)
class Said:
    """What the paper says of one experiment, beside what was measured here."""

    experiment: str

    def limit(self, key: str, name: str) -> float:
        """A threshold: the number that separates one verdict on a statement from another."""
        return float(entry_of(self.experiment, key)["threshold"][name]["value"])

    def quantity(
        self,
        key: str,
        label: str,
        value: float | None,
        compare: Callable[[float | None, float], str] | None = None,
        **details: Any,
    ) -> dict[str, Any]:
        """A ``Quantity`` as a dictionary, the paper's part filled in from paper.toml.

        ``compare(value, paper_value)``: verdict where intervals and signs say nothing.
        """
        entry = paper().get(self.experiment, {}).get("quantities", {}).get(key)
        if entry is None:
            return own_quantity(key, label, value, **details)
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
                thresholds=thresholds(entry),
            )
        )

    def statement(
        self, key: str, verdict: str, measured: str = "", /, **values: Any
    ) -> dict[str, Any]:
        """A ``Statement`` as a dictionary, with the paper's sentence; what diverged is ∞.

        ``measured``: ours in words, those of paper.toml if not given; ``values``: what it names.
        """
        entry = paper()[self.experiment]["statements"][key]
        measured = measured or entry["measured"]
        own = named(values, measured)
        for name, value in own.items():
            if isinstance(value, float) and math.isinf(value):
                measured = re.sub(rf"{{{name}(:[^}}]*)?}}", "−∞" if value < 0 else "∞", measured)
        sentence, where = entry["sentence"], entry["where"]
        return asdict(Statement(key, sentence, where, verdict, measured, own, thresholds(entry)))

    def missing(self, key: str, reason: str) -> dict[str, Any]:
        """A statement that this run cannot speak to, and why."""
        return self.statement(key, NOT_MEASURED, reason)


def named(values: Mapping[str, Any], *texts: str) -> dict[str, Any]:
    """Those of the values that are named in a text by {name:format} or {name[key]:format}."""
    found = {
        name.partition("[")[0] for text in texts for _, name, _, _ in FORMAT.parse(text) if name
    }
    return {name: value for name, value in values.items() if name in found}


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


def compare_p(p: float | None, paper_p: float, level: float) -> str:
    """A p value has no sign: whether it falls on the paper's side of a level."""
    if p is None:
        return NOT_MEASURED
    if abs(p - paper_p) <= 1e-9 * paper_p:
        return EQUAL
    return SAME_SIDE if (p < level) == (paper_p < level) else DIFFERS


def compare_size(value: float | None, paper_value: float) -> str:
    """A number that is positive by nature: whether it is higher or lower."""
    if value is None:
        return NOT_MEASURED
    return EQUAL if value == paper_value else HIGHER if value > paper_value else LOWER


def judged(experiment: str, rows: Rows, lengths: Mapping[str, int]) -> Rows:
    """Statements or quantities, those taken back of which the run is too short to speak.

    ``lengths``: cycles, samples, seeds and what else entries of paper.toml need, as they were run.
    What was not measured at all stays so: a longer run would not help.
    """
    return [_judged(experiment, row, lengths) for row in rows]


def _judged(experiment: str, row: dict[str, Any], lengths: Mapping[str, int]) -> dict[str, Any]:
    if row["verdict"] in ("", NOT_MEASURED):
        return row
    short = {k: n for k, n in needs(experiment, row["key"]).items() if lengths[k] < n}
    if not short:
        return row
    row = row | {"verdict": TOO_SHORT, "thresholds": []}
    have = {f"has_{key}": lengths[key] for key in short}
    want = {f"needs_{key}": value for key, value in short.items()}
    lacking = ", ".join(f"{_words(k)} {{has_{k}}} (needs {{needs_{k}}})" for k in short)
    if "measured" in row:
        measured = f"{row['measured']}; too short to judge: {lacking}"
        return row | {"measured": measured, "values": row["values"] | have | want}
    lacking = f"too short to judge: {lacking}".format(**have, **want)
    return row | {"note": "; ".join(part for part in (row["note"], lacking) if part)}


def _words(length: str) -> str:
    return length.replace("_", " ")


def needs(experiment: str, key: str) -> dict[str, int]:
    """Lengths without which an entry cannot be judged: its own, or those of its experiment."""
    own = paper()[experiment]
    entry = entry_of(experiment, key)
    found = entry["needs"] if "needs" in entry else own.get("needs", {})
    return {name: value for name, value in found.items() if name != "reason"}


def verdict_counts(statements: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many statements have which verdict, and their total."""
    verdicts = [statement["verdict"] for statement in statements]
    order = (HOLDS, UNRESOLVED, DIFFERS, TOO_SHORT, NOT_MEASURED)
    return {v: verdicts.count(v) for v in order if v in verdicts} | {"all": len(verdicts)}


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
    """Whether the interval of the difference contains zero; one pair has none."""
    if comparison.interval is None:
        return TOO_SHORT
    low, high = comparison.interval
    return HOLDS if low <= 0 <= high else DIFFERS


def in_all_pairs(comparison: PairedComparison, sign: int) -> str:
    """Whether other − reference has this sign in every pair, or in the mean at least.

    One pair cannot speak for all.
    """
    if comparison.pairs > 1 and all(d * sign > 0 for d in comparison.differences):
        return HOLDS
    return UNRESOLVED if comparison.mean_difference * sign > 0 else DIFFERS


def weakest(verdicts: Sequence[str]) -> str:
    """The verdict on several things that must all hold."""
    ranked = (NOT_MEASURED, DIFFERS, UNRESOLVED, HOLDS)
    return next(verdict for verdict in ranked if verdict in verdicts)


def holds_if(condition: bool) -> str:
    """A verdict without anything between."""
    return HOLDS if condition else DIFFERS
