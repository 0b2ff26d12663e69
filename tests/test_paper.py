"""paper.toml: every verdict has its thresholds and their reasons, and short runs are not judged."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import pytest
from experiment_runs import CLASSIFIED, SMALL, one_pair, two_pairs
from msgspec import Meta, Struct, convert
from test_screens import NAMES as SCREENS
from test_screens import done, made_up, plan_of

from thermoloom.experiments import NAMES, experiment
from thermoloom.reproduction import noise_verdicts as noise
from thermoloom.reproduction import paper, reproduce
from thermoloom.runs.execution import Resources

COMPARISON = paper.Said("comparison")


def entries() -> list[tuple[str, str, str]]:
    return [
        (name, kind, key)
        for name, own in paper.paper().items()
        for kind in paper.KINDS
        for key in own.get(kind, {})
    ]


# --- the file -------------------------------------------------------------------------------------


def broken(*path: str, value: Any = None) -> dict[str, Any]:
    """paper.toml with one entry replaced, or deleted."""
    table = copy.deepcopy(paper.paper())
    place: Any = table
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return table


Reason = Annotated[str, Meta(pattern=r"^(\S+\s+){3,}.*\.$")]
"""A sentence of at least four words."""
Needs = dict[str, Annotated[int, Meta(ge=1)]]


class Strict(Struct, forbid_unknown_fields=True):
    """A table without further keys."""


class Threshold(Strict):
    value: Annotated[float, Meta(gt=0)]
    unit: str
    reason: Reason


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


class Entries(Strict):
    needs: dict[str, Any] = {}
    quantities: dict[str, Quantity] = {}
    statements: dict[str, Statement] = {}
    predictions: dict[str, Prediction] = {}


def test_every_entry_has_what_it_must_have_and_every_threshold_its_reason() -> None:
    found = convert(paper.paper(), dict[str, Entries])
    for own in found.values():
        needs = dict(own.needs)
        if needs:
            convert(needs.pop("reason"), Reason)
            convert(needs, Needs)


@pytest.mark.parametrize("experiment", paper.paper())
def test_every_entry_of_the_paper_has_its_sentence(experiment: str) -> None:
    for name, kind, key in entries():
        if name == experiment:
            entry = paper.paper()[name][kind][key]
            assert len(entry["sentence"].split()) > 3
            assert entry["where"]


# --- thresholds are what decides ------------------------------------------------------------------


def test_every_threshold_is_read_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """All experiments summed up once more, with a note of each threshold they ask for."""
    asked: set[tuple[str, str, str]] = set()
    real = paper.entry_of

    class Noted(dict[str, Any]):
        def __init__(self, place: tuple[str, str], entry: dict[str, Any]) -> None:
            super().__init__(entry)
            self.place = place

        def __getitem__(self, name: str) -> Any:
            asked.add((*self.place, name))
            return super().__getitem__(name)

    def entry_of(name: str, key: str) -> dict[str, Any]:
        entry = real(name, key)
        return entry | {"threshold": Noted((name, key), entry.get("threshold", {}))}

    performed = [
        (two_pairs(), experiment("comparison").plan("quick", SMALL)),
        (one_pair(), experiment("comparison").plan("quick", CLASSIFIED)),
        *((done(name), plan_of(name)) for name in SCREENS),
    ]
    monkeypatch.setattr(paper, "entry_of", entry_of)
    for found, plan in performed:
        reproduce(experiment(found.path.name), plan, found.path.parent, Resources(1))
    known = {
        (name, key, threshold)
        for name, kind, key in entries()
        for threshold in paper.paper()[name][kind][key].get("threshold", {})
        if name != "theory"
    }
    assert asked == known


@pytest.mark.parametrize(
    ("key", "name", "value", "verdict"),
    [
        ("near_baseline", "near", 0.03, paper.DIFFERS),
        ("crossover", "near", 0.03, paper.DIFFERS),
        ("low_noise", "modest", 0.01, paper.DIFFERS),
        ("low_noise", "share", 0.9, paper.UNRESOLVED),
    ],
)
def test_a_verdict_follows_its_threshold(
    monkeypatch: pytest.MonkeyPatch, key: str, name: str, value: float, verdict: str
) -> None:
    checks = {
        "near_baseline": noise.near_baseline,
        "crossover": noise.crossing_over,
        "low_noise": noise.low_noise,
    }
    curve = made_up({0.0: 100, 0.1: 97, 0.15: 98, 0.3: 104, 0.35: 120})
    assert checks[key](curve)["verdict"] == paper.HOLDS
    table = broken("noise", "statements", key, "threshold", name, "value", value=value)
    monkeypatch.setattr(paper, "paper", lambda: table)
    assert checks[key](curve)["verdict"] == verdict


def test_the_level_of_a_p_value_is_the_one_in_its_words() -> None:
    for key in ("t_test_p", "sign_test_p"):
        assert paper.SAME_SIDE.endswith(f" {COMPARISON.limit(key, 'level'):g}")


def test_the_page_shows_thresholds_and_reasons_beside_the_verdict() -> None:
    text = (two_pairs().path / "report.html").read_text(encoding="utf-8")
    cell = text[text.index("must therefore be retained") :].partition("</tr>")[0]
    assert '<data value="0.01">0.01</data> of the heat-like term' in cell
    assert "Our choice of what could be dropped" in cell


# --- too short ------------------------------------------------------------------------------------


SPOKEN_OF = [name for name in NAMES if name in paper.paper() and name != "theory"]
"""Experiments of the paper's own; of the others it says nothing."""


@pytest.mark.parametrize("name", SPOKEN_OF)
def test_the_papers_lengths_suffice_and_quick_ones_do_not(name: str) -> None:
    """What a quick run may judge needs no length at all, or there would be chance verdicts."""
    for preset, plan in experiment(name).presets.items():
        lengths = plan.lengths() | {"seeds": len(plan.seeds)}
        for kind in ("quantities", "statements"):
            for key in paper.paper()[name].get(kind, {}):
                needs = paper.needs(name, key)
                short = [k for k, least in needs.items() if lengths[k] < least]
                assert bool(short) == (preset == "quick" and bool(needs)), (preset, key)


def test_a_short_run_takes_its_verdict_back_and_says_what_is_missing() -> None:
    lengths = {"cycles": 60, "samples": 60, "seeds": 5}
    row = COMPARISON.statement("lower_heat", paper.DIFFERS, "lower in {n}", n=0)
    (short,) = paper.judged("comparison", [row], lengths)
    assert short["verdict"] == paper.TOO_SHORT
    said = short["measured"].format(**short["values"])
    assert said == "lower in 0; too short to judge: cycles 60 (needs 120)"
    number = COMPARISON.quantity("heat_reduction", "reduction", -3.0)
    assert number["verdict"] == paper.DIFFERS
    (short,) = paper.judged("comparison", [number], lengths)
    assert (short["verdict"], short["value"]) == (paper.TOO_SHORT, -3.0)
    assert short["note"] == "too short to judge: cycles 60 (needs 120)"
    for same in (row, number, COMPARISON.missing("replay", "no replay was made")):
        assert paper.judged("comparison", [same], lengths | {"cycles": 120}) == [same]
    absent = COMPARISON.missing("softmax", "there is no classifier")
    assert paper.judged("comparison", [absent], lengths) == [absent]
    assert paper.verdict_counts([short, absent]) == {
        paper.TOO_SHORT: 1,
        paper.NOT_MEASURED: 1,
        "all": 2,
    }
