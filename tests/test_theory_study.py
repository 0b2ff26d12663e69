"""The theory study on a computer of a few units, each number against another way to it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import trained
from study_runs import read_table
from test_report import Reader, leaves

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.action import path_terms, residuals
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import mirrored
from thermoloom.measures.diagnostics import additional_path
from thermoloom.measures.paired import RULES
from thermoloom.patterns.drive import Drive, unit_fields
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs.execution import Resources
from thermoloom.runs.formats import only
from thermoloom.settings import Settings
from thermoloom.studies import verdicts
from thermoloom.studies.discovery import study
from thermoloom.studies.gather import Gathered, gather
from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.report import write_report
from thermoloom.studies.run import Performed, compute
from thermoloom.studies.theory.heat_account import heat_account, heat_curves
from thermoloom.studies.theory.mixtures import PARTS, Split, mixtures, norm_rows
from thermoloom.studies.theory.plan import TheoryPlan
from thermoloom.studies.theory.statements import conclusion, is_unstable, last_below
from thermoloom.studies.theory.tables import growth_of
from thermoloom.studies.theory.training_predictions import training_limits
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.predictions import mean_parameters, mean_rule


def fields_of(settings: Settings) -> np.ndarray:
    return unit_fields(load_patterns(settings.patterns, settings.machine), settings.machine)


TINY: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 10, "duration": 0.2},
    "patterns": {"resize": True},
    "training": {"cycles": 9, "validation_every": 3},
    "generation": {"samples": 6},
    "study": {
        "seeds": [1, 2, 3],
        "paths_per_pattern": 1,
        "batch_scan": [0.8, 1.3],
        "offset_cycles": 6,
        "bits": [8, 14],
        "heat_samples": 6,
        "line_points": 3,
        "line_pairs": 1,
        "noise_sizes": [1.0],
    },
}
_FOLDER = tempfile.TemporaryDirectory(prefix="thermoloom-tests-")  # removed when tests end


def plan() -> TheoryPlan:
    wanted = study("theory").plan("quick", TINY)
    assert isinstance(wanted, TheoryPlan)
    return wanted


@cache
def performed() -> Performed:
    done = compute(study("theory"), plan(), Path(_FOLDER.name), Resources(1))
    write_report(done.path)
    return done


@cache
def gathered() -> Gathered:
    folder = performed().path.parent
    return gather(study("theory").cases(plan(), folder), folder)


@pytest.fixture
def done() -> Performed:
    return performed()


def rows(summary: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    return next(entry["rows"] for entry in summary["topics"] if entry["topic"] == topic)


# --- the whole way ---


def test_nothing_fails_and_every_prediction_has_its_row(done: Performed) -> None:
    assert done.failures == []
    assert done.summary["missing"] == []
    assert all(entry["rows"] for entry in done.summary["topics"])
    reasons = [r for e in done.summary["topics"] for r in e["rows"] if r["predicted"] == "–"]
    assert reasons == []
    assert done.summary["statements"] == []  # the paper makes none
    judged = [r["verdict"] for topic in done.summary["topics"] for r in topic["rows"]]
    judged = [verdict for verdict in judged if verdict != verdicts.NOT_MEASURED]
    first = done.summary["quantities"][0]
    assert first["value"] == judged.count(verdicts.HOLDS) > len(judged) / 2
    assert first["label"] == f"predictions that hold, of {len(judged)} compared with measurements"


def test_every_number_on_the_page_is_in_the_summary(done: Performed) -> None:
    text = (done.path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    known = list(leaves(json.loads((done.path / "summary.json").read_text(encoding="utf-8"))))
    numbers = {repr(value) for value in known if isinstance(value, (int, float))}
    assert len(reader.numbers) > 100
    assert set(reader.numbers) <= numbers
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not any(word in plain for word in ("None", "NaN", "Traceback", ">nan<"))
    assert reader.tags.count("img") == 3


def test_a_second_run_does_nothing_again_and_missing_heats_are_named(
    done: Performed, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(done.path.parent, folder)
    manifests = {p: p.read_bytes() for p in folder.glob("runs/*/manifest.json")}
    again = compute(study("theory"), plan(), folder, Resources(1))
    assert {p: p.read_bytes() for p in folder.glob("runs/*/manifest.json")} == manifests
    assert again.summary | {"rerun": ""} == done.summary | {"rerun": ""}
    path = folder / next(r.case.path for r in gathered() if r.labels.get("pair") == 2)
    shutil.rmtree(path)
    path.write_text("in the way")
    broken = compute(study("theory"), plan(), folder, Resources(1))
    assert len(broken.failures) == 1
    assert broken.summary["origin"] is None
    assert "the origin of the heat is left out" in broken.summary["missing"][0]


def test_one_seed_has_no_noise_and_is_refused() -> None:
    with pytest.raises(UserError, match="at least two"):
        study("theory").plan("quick", {"study": {"seeds": [1]}})


# --- the optimum ---


def test_losses_and_heat_of_the_optimum_are_those_of_its_checkpoint(done: Performed) -> None:
    wanted, optima = plan(), gathered().where(rule=OPTIMUM)
    theta = optima[0].parameters
    machine, fields = wanted.settings.machine, fields_of(wanted.settings)
    table = read_table(done.path / "paths.csv")
    losses = table["loss"][table["rule"] == "optimum"]
    expected = [
        path_terms(
            theta, additional_path(machine, Drive(fields), i, wanted.path_seed)[1].states
        ).loss
        for i in range(3)
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert (table["loss"][table["rule"] != "optimum"].reshape(6, 3) > losses).all()
    for seed, record in zip(wanted.seeds, optima, strict=True):
        heat = generate(theta, 6, 90000 + seed).heat
        assert record.results["heat"]["mean"] == pytest.approx(heat.mean(), rel=1e-9)
    origin = read_table(done.path / "origin.csv")
    alone = (origin["centre"] == "optimum") & (origin["noise"] == "none")
    assert origin["heat"][alone][2] == pytest.approx(heat.mean(), rel=1e-6)


# --- probes ---


def test_the_offset_probe_is_the_difference_of_two_trainings(done: Performed) -> None:
    wanted = plan()
    settings = wanted.computer("online", 1).updated({"training": {"cycles": 6}})
    biased = settings.updated({"imperfections": {"residual_offset": wanted.offset}})
    fields = fields_of(wanted.settings)
    pair = [trained(s, fields).parameters["hidden_bias"] for s in (settings, biased)]
    table = read_table(done.path / "offset.csv")
    last = table["measured"][(table["rule"] == "online") & (table["cycle"] == 6)]
    assert last == pytest.approx([float((pair[1] - pair[0]).astype(np.float64).mean())], rel=1e-6)
    # biases alone would move by −α μ_bias a step
    first = -settings.learning_rate * wanted.offset * 6 * settings.machine.steps
    assert 0.5 * first > last[0] > first


def test_updates_that_survive_are_those_above_half_a_level(done: Performed) -> None:
    wanted = plan()
    machine, fields = wanted.settings.machine, fields_of(wanted.settings)
    limits = gathered().of(training_limits).records[0]
    rate, largest = wanted.base.learning_rate, limits.results["ranges"][0]
    n, surviving = machine.visible, []
    for cycle in range(wanted.grid_cycles):
        path = engine().path(machine, fields[cycle % 3], 1, cycle).states
        r = residuals(Parameters.zeros(machine), path)
        for k in ((np.arange(12) + 0.5) * machine.steps / 12).astype(int):
            x = path[k + 1]
            update = rate * (np.outer(r[k, :n], x[n:]) + np.outer(x[:n], r[k, n:]))
            surviving.append((np.abs(update) > largest / (2**13 - 1) / 2).mean())
    table = read_table(done.path / "bits.csv")
    assert table["measured"][table["bits"] == 14] == pytest.approx([np.mean(surviving)], abs=1e-3)
    assert table["measured"][table["bits"] == 8] == 0


def test_growth_is_the_root_of_that_of_the_loss() -> None:
    def unstable(excess: Any, diverged: bool = False) -> tuple[bool, float | None]:
        ratio, growth = growth_of(excess, diverged)
        return is_unstable({"ratio": ratio}), growth

    grows, growth = unstable(3.0 * 1.44 ** np.arange(15))
    assert grows
    assert growth == pytest.approx(1.2, rel=1e-6)
    assert unstable(2.0 + 0.1 * np.cos(np.arange(15)))[0] is False
    assert unstable(-np.ones(15)) == (False, None)
    assert unstable(np.array([1.0, np.inf, np.nan])) == (True, None)
    assert unstable(np.ones(4), True) == (True, None)
    assert last_below(np.array([4, 8, 12]), np.array([0.0, 0.001, 0.5]), 0.01) == 8
    assert last_below(np.array([4, 8]), np.array([0.5, 0.6]), 0.01) is None


# --- where the heat comes from ---

LAYOUT = layout(Machine(visible=30, hidden=20))


def random_split(seeds: int, noise: float, shift: float) -> Split:
    rng = np.random.default_rng(0)

    def vector(scale: float) -> Any:
        values = scale * rng.standard_normal(LAYOUT.size)
        hh = LAYOUT["hidden_hidden"].of(values)
        hh[...] = mirrored(hh)
        return values

    optimum = vector(1.0)
    trained = {}
    for rule in RULES:
        mean = optimum + vector(shift)
        trained[rule] = np.array([mean + vector(noise) for _ in range(seeds)])
    return Split(LAYOUT, optimum, trained)


def test_the_split_recovers_the_noise_and_a_mean_shift_below_it() -> None:
    split = random_split(seeds=4, noise=0.5, shift=0.1)
    couplings = split.trained["batch"][:, : 30 * 20]
    assert split.noise["batch"]["visible_hidden"] == pytest.approx(
        couplings.var(axis=0, ddof=1).mean()
    )
    assert split.size == pytest.approx(0.5, rel=0.1)
    norms = {(r["rule"], r["block"]): r for r in norm_rows(split)}
    for rule in RULES:
        entry = norms[rule, "visible_hidden"]
        # the mean of four seeds alone is 0.27 away: the noise left in it has been taken off
        assert entry["mean_rms"] == pytest.approx(0.1, abs=0.06)
        assert entry["noise"] == pytest.approx(0.5 * 600**0.5, rel=0.1)


def test_mixtures_contain_the_trained_computers_and_lines_run_between_them() -> None:
    split = random_split(seeds=3, noise=0.3, shift=0.2)
    every = [m for p in PARTS for m in mixtures(split, p, 1, seed=7, points=3, sizes=[2.0])]
    mixed = {(c.centre, c.noise): c.theta for c in every if c.part == "mixed"}
    assert len(mixed) == 12
    for rule in RULES:
        np.testing.assert_allclose(mixed[rule, rule], split.trained[rule][1], atol=1e-12)
    np.testing.assert_array_equal(mixed["optimum", "none"], split.optimum)
    lines = {(c.centre, c.noise): c.theta for c in every if c.part == "line"}
    middle = (split.trained["batch"][1] + split.trained["online"][1]) / 2
    np.testing.assert_allclose(lines["batch", "online"], middle)
    added = next(c.theta for c in every if c.part == "size") - split.optimum
    vh, hh = (LAYOUT[name].of(added) for name in ("visible_hidden", "hidden_hidden"))
    assert vh.std() == pytest.approx(2 * split.size, rel=0.1)
    np.testing.assert_array_equal(hh, hh.T)
    assert not np.diagonal(hh).any()


def heats(noise: dict[str, float], mean: dict[str, float], seeds: int = 5) -> dict[str, Any]:
    """Heats that are exactly 100 + mean of the centre + variance of all noise in it."""
    table: dict[str, list[Any]] = {key: [] for key in ("seed", "part", "centre", "noise", "heat")}
    for seed in range(seeds):
        for centre, shift in {"optimum": 0.0, **mean}.items():
            for name, variance in {"none": 0.0, **noise, "isotropic": 1.0}.items():
                remaining = noise.get(centre, 0.0) / seeds
                heat = 100 + shift + remaining + variance * (1 - 1 / seeds) + 0.3 * seed
                entry = (seed, "mixed", centre, name, heat)
                for key, value in zip(table, entry, strict=True):
                    table[key].append(value)
    return {key: np.array(column) for key, column in table.items()}


def test_the_account_tells_noise_from_mean_exactly_where_heat_is_linear_in_variance() -> None:
    account = heat_account(
        heats(noise={"batch": 9.0, "online": 4.0}, mean={"batch": 3.0, "online": 1.0})
    )
    expected = {"difference": 7.0, "from_noise": 5.0, "from_mean": 2.0, "around_optimum": 5.0}
    for key, value in expected.items():
        assert account[key]["mean"] == pytest.approx(value)
    assert account["noise"]["batch"]["mean"] == pytest.approx(9)
    assert account["noise_around_optimum"]["online"]["mean"] == pytest.approx(4)
    assert account["mean_shift"]["batch"]["mean"] == pytest.approx(3)
    assert account["isotropic"]["mean"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("noise", "mean", "words"),
    [
        ((9.0, 2.0), (1.0, 1.0), "the hypothesis holds: "),
        ((9.0, 5.0), (5.0, 1.0), "holds in part"),
        ((4.0, 4.0), (5.0, 1.0), "fails: .* positions of the rules' means do"),
    ],
)
def test_the_conclusion_follows_the_numbers(noise: Any, mean: Any, words: str) -> None:
    noises, means = (dict(zip(RULES, pair, strict=True)) for pair in (noise, mean))
    drawn = conclusion(heat_account(heats(noises, means)))
    text = drawn["text"].format(**drawn["values"])
    assert re.search(words, text)
    share = (noise[0] - noise[1]) / (noise[0] - noise[1] + mean[0] - mean[1])
    assert f"{100 * share:.0f} %" in text


def test_an_unresolved_difference_has_no_origin() -> None:
    table = heats({"batch": 1.0, "online": 1.0}, {"batch": 0.1, "online": 0.0})
    corner = (table["centre"] == "batch") & (table["noise"] == "batch")
    table["heat"][corner] += np.array([5.0, -5.0, 4.0, -4.0, 0.0])
    assert "not resolved" in conclusion(heat_account(table))["text"]


def test_the_measured_account_is_that_of_its_table(done: Performed) -> None:
    table = read_table(done.path / "origin.csv")
    account = done.summary["origin"]["accounts"]
    by_rule = {}
    for rule in RULES:
        drawn = [
            generate(record.parameters, 6, 90000 + seed)
            for seed in plan().seeds
            for record in gathered().where(rule=rule, seed=seed)
        ]
        by_rule[rule] = np.mean([samples.heat.mean() for samples in drawn])
        assert account[rule]["mean"] == pytest.approx(by_rule[rule], rel=1e-5)
    difference = by_rule["batch"] - by_rule["online"]
    assert account["difference"]["mean"] == pytest.approx(difference, abs=1e-4)
    parts = account["from_noise"]["mean"] + account["from_mean"]["mean"]
    assert parts == pytest.approx(account["difference"]["mean"], abs=1e-9)
    assert set(table["part"]) == {"mixed", "size", "line"}


def test_curves_of_heat_contain_their_ends(done: Performed) -> None:
    table = read_table(done.path / "origin.csv")
    line = [row for row in heat_curves(table) if row["curve"] == "batch → online"]
    assert [row["value"] for row in line] == [0.0, 0.5, 1.0]
    first = only(table, part="mixed", seed=1)
    ends = [only(first, centre=rule, noise=rule)["heat"].item() for rule in RULES]
    assert [line[0]["heat"], line[-1]["heat"]] == ends


def test_heat_of_the_predicted_means_is_that_of_the_recursion(done: Performed) -> None:
    wanted = plan()
    machine, fields = wanted.settings.machine, fields_of(wanted.settings)
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    heat = {}
    for rule in RULES:
        settings = wanted.computer(rule, 1)
        mean = mean_rule(machine, fields, marginals, settings.learning_rate, settings.period)
        *_, (cycle, theta) = mean_parameters(mean, 9)
        assert cycle == 9
        flat = layout(machine).symmetrized(theta[None]).astype(np.float32)
        mean_theta = Parameters(machine, flat)
        heats_of = [generate(mean_theta, 6, 90000 + seed).heat.mean() for seed in (1, 2, 3)]
        heat[rule] = np.mean(heats_of)
    difference = done.summary["origin"]["accounts"]["predicted_mean"]["mean"]
    assert difference == pytest.approx(heat["batch"] - heat["online"], abs=1e-4)


def test_verdicts_are_the_words_of_the_report(done: Performed) -> None:
    judged = {r["verdict"] for e in done.summary["topics"] for r in e["rows"]}
    assert judged <= {verdicts.HOLDS, verdicts.DIFFERS, verdicts.NOT_MEASURED}
    assert all(r["verdict"] == verdicts.HOLDS for r in rows(done.summary, "The optimum"))
