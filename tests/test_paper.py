"""statements.toml: thresholds have reasons and decide verdicts; short runs are not judged."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct, convert
from study_runs import one_pair, thresholds_of, thresholds_read, two_pairs

from thermoloom.studies import verdicts
from thermoloom.studies.discovery import names, study
from thermoloom.studies.verdicts import Statements

COMPARISON = Statements(study("comparison").folder)
SPEAKING = [name for name in names() if Statements(study(name).folder).entries]
"""Studies with statements."""
KINDS = ("quantities", "statements", "predictions")


# --- the files ---

Reason = Annotated[str, Meta(pattern=r"^(\S+\s+){3,}.*\.$")]
"""A sentence of at least four words."""
Needs = dict[str, Annotated[int, Meta(ge=1)]]


class Strict(Struct, forbid_unknown_fields=True):
    """A table without further keys."""


class Threshold(Strict, kw_only=True):
    below: float | None = None
    above: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    within: Annotated[float, Meta(gt=0)] | None = None
    beyond: Annotated[float, Meta(gt=0)] | None = None
    value: Annotated[float, Meta(gt=0)] | None = None
    """The value of a threshold with which no number is compared."""
    unit: str
    reason: Reason

    def __post_init__(self) -> None:
        assert sum(getattr(self, side) is not None for side in (*verdicts.SIDES, "value")) == 1


class Prediction(Strict):
    where: str
    sentence: str
    threshold: dict[str, Threshold] = {}
    needs: Needs = {}


class Quantity(Prediction, kw_only=True):
    value: float
    interval: tuple[float, float] | None = None


class Statement(Prediction):
    measured: str = ""
    consequence: Reason | None = None


class Row(Strict):
    """Words of a row that sets a measured number beside its prediction."""

    quantity: str
    predicted: str
    measured: str
    title: str = ""
    judged_by: str = ""
    digits: str = ""


class Entries(Strict):
    needs: dict[str, Any] = {}
    rows: dict[str, Row] = {}
    origin: dict[str, str] = {}
    quantities: dict[str, Quantity] = {}
    statements: dict[str, Statement] = {}
    predictions: dict[str, Prediction] = {}


@pytest.mark.parametrize("name", SPEAKING)
def test_every_entry_has_what_it_must_have_and_every_threshold_its_reason(name: str) -> None:
    entries = Statements(study(name).folder).entries
    valid = convert(entries, Entries)
    assert {row.judged_by for row in valid.rows.values()} - {""} <= set(valid.predictions)
    needs = dict(valid.needs)
    if needs:
        convert(needs.pop("reason"), Reason)
        convert(needs, Needs)
    for entry in [entry for kind in KINDS for entry in entries.get(kind, {}).values()]:
        assert len(entry["sentence"].split()) > 3
        assert entry["where"]


# --- thresholds decide ---


def test_every_threshold_is_read_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    read = thresholds_read("comparison", [two_pairs(), one_pair()], monkeypatch)
    assert read == thresholds_of("comparison")


def test_the_level_of_a_p_value_is_the_one_in_its_words() -> None:
    assert verdicts.SAME_SIDE.endswith(f" {COMPARISON.limit('t_test_p', 'level'):g}")


def test_the_page_shows_thresholds_and_reasons_beside_the_verdict() -> None:
    text = (two_pairs().path / "report.html").read_text(encoding="utf-8")
    cell = text[text.index("must therefore be retained") :].partition("</tr>")[0]
    assert 'must be beyond ± <data value="1.0">1</data> % of the heat-like term' in cell
    assert any(distance in cell for distance in verdicts.DISTANCES.values())
    assert "Our choice: a smaller term could be dropped" in cell
    assert "Not counted. Follows from the identity" in cell


# --- too short ---


@pytest.mark.parametrize("name", [name for name in SPEAKING if name != "theory"])
def test_the_papers_lengths_suffice_and_quick_ones_do_not(name: str) -> None:
    """A quick run judges only statements that need no length, so no verdict is due to chance."""
    said = Statements(study(name).folder)
    for preset, plan in study(name).presets.items():
        lengths = plan.lengths() | {"seeds": len(plan.seeds)}
        for kind in ("quantities", "statements"):
            for key in said.entries.get(kind, {}):
                needs = said.needs(key)
                short = [k for k, least in needs.items() if lengths[k] < least]
                assert bool(short) == (preset == "quick" and bool(needs)), (preset, key)


def test_a_short_run_takes_its_verdict_back_and_says_what_is_missing() -> None:
    lengths = {"cycles": 60, "samples": 60, "seeds": 5}
    row = COMPARISON.statement("lower_heat", verdicts.DIFFERS, "lower in {n}", n=0)
    short = COMPARISON.judgeable(row, lengths)
    assert short["verdict"] == verdicts.TOO_SHORT
    said = short["measured"].format(**short["values"])
    assert said == "lower in 0; too short to judge: cycles 60 (needs 120)"
    number = COMPARISON.quantity("heat_reduction", "reduction", -3.0)
    assert number["verdict"] == verdicts.DIFFERS
    short = COMPARISON.judgeable(number, lengths)
    assert (short["verdict"], short["value"]) == (verdicts.TOO_SHORT, -3.0)
    assert short["note"] == "too short to judge: cycles 60 (needs 120)"
    for same in (row, number, COMPARISON.missing("replay", "no replay was made")):
        assert COMPARISON.judgeable(same, lengths | {"cycles": 120}) == same
    absent = COMPARISON.missing("softmax", "there is no classifier")
    assert COMPARISON.judgeable(absent, lengths) == absent
    assert verdicts.verdict_counts([short, absent]) == {
        verdicts.TOO_SHORT: 1,
        verdicts.NOT_MEASURED: 1,
        "all": 2,
    }
