"""Judge statements: a sentence, a threshold and a number of ours give a verdict.

    holds                       the number is on the right side of the threshold, with its error
    differs                     it is on the wrong side, with its error
    not resolved                its 95 % interval contains the threshold
    depends on the classifier   the classifiers of the panel do not agree
    too short to judge          the run is shorter than the statement needs
    not measured                the run has no such number

A study's ``statements.toml`` holds the sentences:

    [statements.KEY]            a sentence of the paper: sentence, where, and how our numbers are
                                put into words (measured)
    [quantities.KEY]            a number of the paper: value, interval (95 %), sentence
    [predictions.KEY]           a sentence of our theory
    threshold.NAME              where our number must lie for the statement to hold: below,
                                above, at_most, at_least, within (±) or beyond (±) a limit;
                                the unit of the limit, and its reason: from the paper, or our
                                choice. A plain ``value`` has no side: the study's own code uses it
    consequence                 what the sentence follows from; such a statement is judged but not
                                counted
    needs                       shortest run that is judged; [needs] applies to all
                                entries without needs, {} needs nothing

Nothing measured is ever taken from this file.
"""

from __future__ import annotations

import math
import re
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thermoloom.measures.paired import PairedModels
from thermoloom.measures.responses import ResponseChange, Responses
from thermoloom.measures.statistics import (
    Interval,
    PairedComparison,
    Values,
    estimate_mean,
    mean_interval,
)
from thermoloom.runs.formats import Table, jsonable, only
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import StudyTables

if TYPE_CHECKING:
    from thermoloom.studies.study import Study

INSIDE = "inside the paper's interval"
COVERS = "our interval covers the paper's value"
EQUAL = "as in the paper"
SAME_SIDE = "same side of 0.05"
HIGHER, LOWER = "higher than the paper's", "lower than the paper's"
SAME_SIGN = "same sign"
HOLDS = "holds"
DEPENDS = "depends on the classifier"
UNRESOLVED = "not resolved"
DIFFERS = "differs"
NOT_MEASURED = "not measured"
TOO_SHORT = "too short to judge"

COLOURS = {
    HOLDS: "good", DEPENDS: "fair", UNRESOLVED: "fair", DIFFERS: "bad", TOO_SHORT: "none",
    NOT_MEASURED: "none",
    INSIDE: "good", COVERS: "good", EQUAL: "good", SAME_SIDE: "good", HIGHER: "fair",
    LOWER: "fair", SAME_SIGN: "fair",
}  # fmt: skip
"""Kind of each verdict; the first six are those of statements, in the order of a tally."""
SIGNS = {"good": "✓", "fair": "≈", "bad": "✗", "none": "·"}
"""Shown beside the colour, for readers who cannot see it."""
DISTANCES = {
    "good": "margin:",
    "fair": "the interval crosses the limit by",
    "bad": "misses the limit by",
}
"""Words before the distance of a number from its limit, by the kind of the verdict."""
FILE = "statements.toml"

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


SIDES = {
    "below": "below", "above": "above", "at_most": "at most", "at_least": "at least",
    "within": "within ±", "beyond": "beyond ±",
}  # fmt: skip
"""Where a number must lie relative to its limit; the last two are about its magnitude."""


@dataclass(frozen=True)
class Criterion:
    """A number and its limit: one condition for a statement to hold.

    It holds if the whole interval lies on the right side of the limit, differs if all of it lies on
    the wrong side, and is not resolved if the interval contains the limit.
    """

    name: str
    value: float
    side: str
    """A key of ``SIDES``."""
    limit: float
    unit: str
    reason: str
    interval: Interval | None = None
    """95 % interval; None where the number has no error, infinite where its error is unknown."""
    about: str = ""
    """Name of the number, where one limit applies to several numbers."""

    @property
    def _inside(self) -> tuple[float, float]:
        """How far the ends of the interval are inside the limit, the worse end first."""
        low, high = self.interval or (self.value, self.value)
        if self.side in ("within", "beyond"):
            ends = sorted((abs(low), abs(high)))
            low, high = (0.0 if low < 0 < high else ends[0]), ends[1]
        if self.side in ("below", "at_most", "within"):
            return self.limit - high, self.limit - low
        return low - self.limit, high - self.limit

    @property
    def verdict(self) -> str:
        worse, better = self._inside
        touching = 0.0 if self.side in ("at_most", "at_least", "within") else math.ulp(0.0)
        if worse >= touching:
            return HOLDS
        return UNRESOLVED if better >= touching else DIFFERS

    @property
    def distance(self) -> float | None:
        """Distance to the nearest number that would change the verdict; None if there is none."""
        ends = [abs(end) for end in self._inside]
        return min(ends) if math.isfinite(min(ends)) else None

    @property
    def row(self) -> dict[str, Any]:
        name = f"{self.name} {self.about}".replace("_", " ").strip()
        known = self.interval is not None and all(map(math.isfinite, self.interval))
        return asdict(self) | {
            "name": name,
            "interval": self.interval if known else None,
            "verdict": self.verdict,
            "distance": self.distance,
        }


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper, and the verdict of our numbers on it."""

    key: str
    sentence: str
    where: str
    verdict: str
    measured: str
    """Our numbers in words; {name:format} stands for a number of ``values``."""
    values: dict[str, Any] = field(default_factory=dict)
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    """Plain values that the study's own code uses, such as the width of a band."""
    criteria: list[dict[str, Any]] = field(default_factory=list)
    """The criteria that decide the verdict, by the main classifier."""
    panel: list[dict[str, Any]] = field(default_factory=list)
    """Verdict and numbers by every classifier, the main one first; empty where none is needed."""
    consequence: str = ""
    """What the sentence follows from; such a statement is judged but not counted."""


def own_quantity(key: str, label: str, value: float | None, **details: Any) -> dict[str, Any]:
    """A ``Quantity`` that the paper does not give, as a dictionary."""
    return asdict(Quantity(key, label, value, **details))


class Statements:
    """The sentences and numbers of a study's ``statements.toml``, to be judged by our numbers."""

    def __init__(self, folder: Path | str) -> None:
        self._file = Path(folder) / FILE

    @classmethod
    def beside(cls, module_file: str) -> Statements:
        """The statements of the study of a module: ``Statements.beside(__file__)``."""
        return cls(Path(module_file).parent)

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The content of the file; empty if the study has none."""
        return tomllib.loads(self._file.read_text("utf-8")) if self._file.exists() else {}

    def entry(self, key: str) -> dict[str, Any]:
        """The entry of a statement, a prediction or a quantity, in this order of precedence."""
        for kind in ("predictions", "statements", "quantities"):
            if key in self.entries.get(kind, {}):
                entry: dict[str, Any] = self.entries[kind][key]
                return entry
        raise KeyError(f"{self._file}: has no {key}")

    def needs(self, key: str) -> dict[str, int]:
        """Shortest run for which an entry is judged: by its own needs, or by those of the study."""
        needs = self.entry(key).get("needs", self.entries.get("needs", {}))
        return {name: value for name, value in needs.items() if name != "reason"}

    def limit(self, key: str, name: str) -> float:
        """A threshold: the number that separates one verdict on a statement from another."""
        return _limit(self.entry(key)["threshold"][name])[1]

    def check(
        self, key: str, name: str, value: float, interval: Interval | None = None, about: str = ""
    ) -> Criterion:
        """Compare a number with the threshold of this name."""
        entry, limit = self.entry(key)["threshold"][name], self.limit(key, name)
        side = _limit(entry)[0]
        return Criterion(name, value, side, limit, entry["unit"], entry["reason"], interval, about)

    def check_change(
        self, key: str, name: str, change: ResponseChange, about: str = "", unit: float = 1.0
    ) -> Criterion:
        """A change along a response curve, in units of ``unit`` per cent of its reference."""
        low, high = change.percent_interval or (change.percent, change.percent)
        return self.check(key, name, change.percent / unit, (low / unit, high / unit), about)

    def check_mean(self, key: str, name: str, numbers: Values) -> Criterion:
        """The mean of numbers by seed; a single seed has no interval, so it resolves nothing."""
        mean = estimate_mean(numbers)
        return self.check(key, name, mean.mean, mean_interval(mean) or (-math.inf, math.inf))

    def check_pairs(
        self, key: str, name: str, pairs: PairedComparison, about: str = ""
    ) -> Criterion:
        """The mean difference of pairs, in per cent of the reference if that is the unit.

        One pair has no interval, so it cannot resolve anything.
        """
        value, interval = pairs.mean_difference, pairs.interval
        if self.entry(key)["threshold"][name]["unit"].startswith("%"):
            value, interval = pairs.mean_percent_difference or 0.0, pairs.percent_interval
        return self.check(key, name, value, interval or (-math.inf, math.inf), about)

    def check_every_pair(
        self, key: str, pairs: PairedComparison, sign: int, about: str = ""
    ) -> list[Criterion]:
        """The sign of the mean difference, and the share of pairs that have it."""
        share = 100 * sum(d * sign > 0 for d in pairs.differences) / pairs.pairs
        return [
            self.check_pairs(key, "difference", pairs, about),
            self.check(key, "pairs", share, about=about),
        ]

    def thresholds(self, key: str) -> list[dict[str, Any]]:
        """All thresholds of an entry, for the page: name, value, unit and reason."""
        return _thresholds(self.entry(key))

    def quantity(
        self,
        key: str,
        label: str,
        value: float | None,
        compare: Callable[[float | None, float], str] | None = None,
        **details: Any,
    ) -> dict[str, Any]:
        """A ``Quantity`` as a dictionary, with the paper's number beside it.

        ``compare(value, paper_value)``: verdict where intervals and signs do not apply.
        """
        entry = self.entries.get("quantities", {}).get(key)
        if entry is None:
            return own_quantity(key, label, value, **details)
        interval = tuple(entry["interval"]) if "interval" in entry else None
        if compare is not None:
            verdict = compare(value, entry["value"])
        else:
            verdict = compare_with_paper(value, details.get("interval"), entry["value"], interval)
        return own_quantity(
            key,
            label,
            value,
            **details,
            paper_value=float(entry["value"]),
            paper_interval=interval,
            sentence=entry["sentence"],
            verdict=verdict,
            thresholds=_thresholds(entry),
        )

    def statement(
        self, key: str, verdict: str, measured: str = "", /, **values: Any
    ) -> dict[str, Any]:
        """A ``Statement`` as a dictionary, with its sentence; a number that diverged is ∞.

        ``measured``: our numbers in words, as in the file unless given; ``values``: the numbers.
        """
        entry = self.entries["statements"][key]
        measured = measured or entry["measured"]
        numbers = named(values, measured)
        for name, value in numbers.items():
            if isinstance(value, float) and math.isinf(value):
                measured = re.sub(rf"{{{name}(:[^}}]*)?}}", "−∞" if value < 0 else "∞", measured)
        statement = Statement(
            key=key,
            sentence=entry["sentence"],
            where=entry["where"],
            verdict=verdict,
            measured=measured,
            values=numbers,
            thresholds=[t for t in _thresholds(entry) if "value" in t],
            consequence=entry.get("consequence", ""),
        )
        return asdict(statement)

    def judge(
        self, key: str, criteria: Sequence[Criterion], measured: str = "", /, **values: Any
    ) -> dict[str, Any]:
        """A statement by its criteria, all of which must hold."""
        row = self.statement(key, weakest([c.verdict for c in criteria]), measured, **values)
        return row | {"criteria": [criterion.row for criterion in criteria]}

    def judge_panel(
        self,
        key: str,
        criteria: Mapping[str, Sequence[Criterion]],
        measured: str = "",
        /,
        **values: Any,
    ) -> dict[str, Any]:
        """A statement by the criteria of every classifier, the main one ("") first.

        A classifier with no criteria has nothing to judge and is left out.
        """
        judged = {name: weakest([c.verdict for c in each]) for name, each in criteria.items()}
        distinct = {verdict for verdict in judged.values() if verdict != NOT_MEASURED}
        verdict = DEPENDS if len(distinct) > 1 else next(iter(distinct), NOT_MEASURED)
        return self.statement(key, verdict, measured, **values) | {
            "criteria": [criterion.row for criterion in criteria[""]],
            "panel": [
                {"classifier": name, "verdict": judged[name], "values": [c.value for c in each]}
                for name, each in criteria.items()
            ],
        }

    def missing(self, key: str, reason: str) -> dict[str, Any]:
        """A statement that this run did not measure, and why."""
        return self.statement(key, NOT_MEASURED, reason)

    def judgeable(self, row: dict[str, Any], lengths: Mapping[str, int]) -> dict[str, Any]:
        """A statement or quantity; its verdict is withdrawn if the run is too short for it.

        ``lengths``: cycles, samples, seeds and other lengths that entries need, as they were run.
        """
        if row["verdict"] in ("", NOT_MEASURED):  # a longer run would not help
            return row
        short = {k: n for k, n in self.needs(row["key"]).items() if lengths[k] < n}
        if not short:
            return row
        row = row | {"verdict": TOO_SHORT, "thresholds": [], "criteria": []}
        have = {f"has_{key}": lengths[key] for key in short}
        want = {f"needs_{key}": value for key, value in short.items()}
        lacking = ", ".join(
            f"{k.replace('_', ' ')} {{has_{k}}} (needs {{needs_{k}}})" for k in short
        )
        if "measured" in row:
            measured = f"{row['measured']}; {TOO_SHORT}: {lacking}"
            return row | {"measured": measured, "values": row["values"] | have | want}
        lacking = f"{TOO_SHORT}: {lacking}".format(**have, **want)
        return row | {"note": "; ".join(part for part in (row["note"], lacking) if part)}


def _thresholds(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All thresholds of an entry, for the page: name, value, unit and reason."""
    return [{"name": name, **limit} for name, limit in entry.get("threshold", {}).items()]


def _limit(threshold: Mapping[str, Any]) -> tuple[str, float]:
    """Side and number of a threshold; the side of a plain value is ``value``."""
    side = next(side for side in (*SIDES, "value") if side in threshold)
    return side, float(threshold[side])


class Evidence(StudyTables):
    """What a study saved, with the computers and conditions of its tables."""

    @cached_property
    def models(self) -> PairedModels:
        """The computers of a study of pairs."""
        return PairedModels(self.summary["models"])

    @cached_property
    def responses(self) -> Responses:
        """The conditions of a study of screens."""
        return Responses.of_tables(self.table("conditions"), self.table("samples"))

    @property
    def classifiers(self) -> list[str]:
        """The classifiers that judged the samples: the main one ("") and the panel."""
        return ["", *(member["name"] for member in self.summary.get("panel") or [])]

    @property
    def shown_samples(self) -> Table:
        """Samples of the displayed computer of a study of pairs."""
        shown = self.summary["shown"]
        return only(self.table("samples"), rule=shown["rule"], seed=shown["seed"])

    def drops(self, potential: str, ensemble: str) -> list[float]:
        """Mean energy drop of an ensemble in a potential, per seed."""
        drops = only(self.table("cross"), potential=potential, ensemble=ensemble)["drop"]
        return [float(drop) for drop in drops]


def judged(study: Study, run: RunDirectory, summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with quantities, statements and verdicts, from saved tables alone."""
    rows = {"quantities": [], "statements": []} | study.judge(Evidence(run, summary))
    said = Statements(study.folder)
    for part in ("quantities", "statements"):
        rows[part] = [said.judgeable(row, summary["lengths"]) for row in rows[part]]
    complete: dict[str, Any] = jsonable(summary | rows)
    return complete | {"verdicts": verdict_counts(complete["statements"])}


def named(values: Mapping[str, Any], *texts: str) -> dict[str, Any]:
    """Those of the values that are named in a text by {name:format} or {name[key]:format}."""
    names = {
        name.partition("[")[0] for text in texts for _, name, _, _ in FORMAT.parse(text) if name
    }
    return {name: value for name, value in values.items() if name in names}


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
    """Compare p values, which have no sign: whether ours is on the paper's side of a level."""
    if p is None:
        return NOT_MEASURED
    if abs(p - paper_p) <= 1e-9 * paper_p:
        return EQUAL
    return SAME_SIDE if (p < level) == (paper_p < level) else DIFFERS


def compare_size(value: float | None, paper_value: float) -> str:
    """Compare numbers that are always positive: whether ours is higher or lower."""
    if value is None:
        return NOT_MEASURED
    return EQUAL if value == paper_value else HIGHER if value > paper_value else LOWER


def verdict_counts(statements: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number of statements by verdict, and their total; consequences do not count."""
    verdicts = [s["verdict"] for s in statements if not s.get("consequence")]
    order = (HOLDS, DEPENDS, UNRESOLVED, DIFFERS, TOO_SHORT, NOT_MEASURED)
    return {v: verdicts.count(v) for v in order if v in verdicts} | {"all": len(verdicts)}


def weakest(verdicts: Sequence[str]) -> str:
    """The verdict on several criteria that must all hold; without criteria, not measured."""
    ranked = (NOT_MEASURED, DIFFERS, UNRESOLVED, HOLDS)
    return next((verdict for verdict in ranked if verdict in verdicts), NOT_MEASURED)


def holds_if(condition: bool) -> str:
    """A verdict with only two outcomes: holds or differs."""
    return HOLDS if condition else DIFFERS


# --- verdicts as they are shown ---

_COUNTED = {
    HOLDS: ("holds", "hold"),
    DIFFERS: ("differs", "differ"),
    DEPENDS: ("depends on the classifier", "depend on the classifier"),
    UNRESOLVED: ("is not resolved", "are not resolved"),
    TOO_SHORT: ("cannot be judged from so short a run", "cannot be judged from so short a run"),
    NOT_MEASURED: ("was not measured", "were not measured"),
}  # fmt: skip


def counted(verdict: str, count: int) -> str:
    """The words after the number of statements with this verdict: 1 holds, 18 hold."""
    one, many = _COUNTED.get(verdict, (verdict, verdict))
    return one if count == 1 else many


def tally(counts: Mapping[str, int]) -> str:
    """``18 hold, 2 are not resolved, 1 differs``; empty without statements."""
    return ", ".join(f"{n} {counted(verdict, n)}" for verdict, n in counts.items() if n)


def together(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The verdicts of several studies added up, in the order of ``COLOURS``."""
    total: dict[str, int] = {}
    for study_counts in counts:
        for verdict, count in study_counts.items():
            total[verdict] = total.get(verdict, 0) + count
    order = [*COLOURS, *total]
    return dict(sorted(total.items(), key=lambda entry: order.index(entry[0])))


def mark(summary: Mapping[str, Any]) -> str:
    """Mark of a page or figure whose run is too short or incomplete for a verdict."""
    if interim := summary.get("interim"):
        return f"Not final: {interim['seeds']} of {interim['of']} pairs so far"
    if summary["preset"] == "quick":
        return "Quick look: too short for a verdict"
    counted_rows = [row for row in summary["statements"] if not row.get("consequence")]
    short = [row["verdict"] == TOO_SHORT for row in counted_rows]
    some = "" if all(short) else "some of "
    return f"Short run: too short for {some}the statements" if any(short) else ""
