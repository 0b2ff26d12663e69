"""p-bits, the Ising limit of double wells, and price lists."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import constants
from study_runs import run

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.wires import wires
from thermoloom.measures.prices import EVENTS, event_counts, price_list, price_lists
from thermoloom.studies.discovery import study
from thermoloom.studies.pbits.images import pbit_counts
from thermoloom.studies.pbits.ising_limit import (
    Spins,
    crossing_steps,
    deviation,
    double_wells,
    drawn_patterns,
    ising_law,
    kramers_steps,
    law_moments,
    measured_crossing_steps,
    sample_moments,
    sign_patterns,
    signs_in_time,
    spins_on_a_sheet,
    variation_distance,
    well_moments,
)
from thermoloom.studies.pbits.pbit_machine import INSTALL, PbitMachine, PbitParameters, has_thrml

needs_thrml = pytest.mark.skipif(not has_thrml(), reason="thrml is not installed")

# --- the Ising law --------------------------------------------------------------------------------


def enumerated(spins: Spins) -> dict[tuple[int, ...], float]:
    """P(s) by a plain loop over all patterns and pairs."""
    n, weights = spins.units, {}
    for signs in product((-1, 1), repeat=n):
        energy = sum(spins.fields[i] * signs[i] for i in range(n))
        for i in range(n):
            for j in range(i):
                energy += spins.couplings[i, j] * signs[i] * signs[j]
        weights[signs] = math.exp(-energy)
    total = sum(weights.values())
    return {signs: weight / total for signs, weight in weights.items()}


def test_the_law_is_that_of_a_plain_enumeration() -> None:
    spins = spins_on_a_sheet(6, 0.7, 0.4, 3)
    law, plain = ising_law(spins), enumerated(spins)
    rows = [tuple(row) for row in sign_patterns(6).tolist()]
    assert len(set(rows)) == 64
    assert np.allclose(law, [plain[row] for row in rows], rtol=1e-12)
    moments = law_moments(law, 6)
    pair = sum(p * s[0] * s[1] for s, p in plain.items())
    assert moments[0] == pytest.approx(sum(p * s[0] for s, p in plain.items()))
    assert moments[6] == pytest.approx(pair)


def test_draws_from_a_law_have_its_moments() -> None:
    spins = spins_on_a_sheet(6, 0.7, 0.4, 3)
    law = ising_law(spins)
    drawn = drawn_patterns(law, 6, 20_000, 1)
    assert deviation(sample_moments(drawn), law_moments(law, 6)) < 0.012
    assert variation_distance(drawn, law) < 0.04


@pytest.mark.parametrize("barrier", [1.0, 3.0])
def test_the_corrected_law_is_near_the_quadrature_of_two_wells(barrier: float) -> None:
    """P(s₁, s₂) of two coupled double wells, integrated on a grid."""
    couplings, fields = np.array([[0, 0.6], [0.6, 0]]), np.array([0.3, -0.2])
    y = np.linspace(-3, 3, 2000)  # even: no point at zero
    weight = np.exp(-barrier * (y**2 - 1) ** 2)
    first, second = weight * np.exp(-fields[0] * y), weight * np.exp(-fields[1] * y)
    density = np.outer(first, second) * np.exp(-0.6 * np.outer(y, y))
    exact = np.array(
        [density[np.sign(y) == s][:, np.sign(y) == t].sum() for s, t in sign_patterns(2).tolist()]
    )
    exact /= exact.sum()
    spins = Spins(couplings, fields)
    bare, corrected = ising_law(spins), ising_law(spins, *well_moments(barrier))
    assert np.abs(corrected - exact).max() < 0.004
    assert np.abs(corrected - exact).max() < 0.2 * np.abs(bare - exact).max()


# --- double wells ---------------------------------------------------------------------------------


def test_wells_have_their_barrier_and_their_place() -> None:
    machine = double_wells(4, 5.0, 100)
    potential = machine.generating_potential(machine.stages)
    energy = potential.energy(np.tile([[0.0], [1.0], [-1.0]], 4))[:, 0]
    assert energy[0] - energy[1] == pytest.approx(5 * machine.kT)
    assert energy[1] == energy[2]
    assert machine.development_steps == (100,)


def test_double_wells_follow_the_corrected_law() -> None:
    spins = spins_on_a_sheet(4, 0.5, 0.3, 1)
    signs = signs_in_time(spins, 1.5, 3000, 300, 7, list(range(1500, 3001, 150)))
    moments = sample_moments(signs.reshape(-1, 4))
    corrected = law_moments(ising_law(spins, *well_moments(1.5)), 4)
    assert deviation(moments, corrected) < 0.05
    assert deviation(moments, corrected) < deviation(moments, law_moments(ising_law(spins), 4))


def test_crossing_times_are_those_of_kramers_for_high_barriers() -> None:
    ratios = [crossing_steps(barrier) / kramers_steps(barrier) for barrier in (4.0, 8.0)]
    assert ratios == pytest.approx([1, 1], abs=0.15)
    measured = measured_crossing_steps(1.5, 3000, 100, 4, 5)
    assert measured == pytest.approx(crossing_steps(1.5), rel=0.2)


# --- p-bits ---------------------------------------------------------------------------------------


def small_pbits() -> tuple[PbitMachine, PbitParameters, Spins]:
    spins = spins_on_a_sheet(6, 0.5, 0.3, 2)
    pairs = np.argwhere(np.triu(spins.couplings))
    machine = PbitMachine(6, pairs, 2, 0.2)
    rng = np.random.default_rng(0)
    theta = PbitParameters(
        -spins.couplings[tuple(pairs.T)].astype(np.float32),
        -spins.fields.astype(np.float32),
        rng.normal(size=(6, 2)).astype(np.float32),
    )
    return machine, theta, spins


def test_no_wire_joins_units_of_one_colour() -> None:
    plan: Any = study("pbits").plan()
    machine = plan.settings.machine

    pairs = wires(machine)
    colours = PbitMachine(machine.units, pairs, 1, 0.0).colours
    assert (colours[pairs[:, 0]] != colours[pairs[:, 1]]).all()
    assert colours.max() == 1
    assert np.bincount(pairs.ravel()).max() == 16


def test_energy_of_pbits_is_that_of_the_law() -> None:
    machine, theta, spins = small_pbits()
    states, label = sign_patterns(6), np.zeros(64, np.intp)
    theta = theta._replace(labels=np.zeros((6, 2), np.float32))
    energy = PbitMachine(6, machine.wires, 2, 0.0).energy(theta, states, states, label)
    assert np.allclose(np.exp(-energy) / np.exp(-energy).sum(), ising_law(spins), rtol=1e-5)


@needs_thrml
def test_pbits_sample_their_energy_and_depend_on_their_seed_alone() -> None:
    machine, theta, _ = small_pbits()
    samples = 2000
    rng = np.random.default_rng(4)
    states = np.where(rng.random((samples, 6)) < 0.5, -1, 1).astype(np.int8)
    noisy = np.tile(np.array([1, -1, 1, 1, -1, 1], np.int8), (samples, 1))
    label = np.ones(samples, np.intp)
    drawn = machine.relaxed(theta, states, noisy, label, 30, 9)
    patterns = sign_patterns(6)
    energy = machine.energy(theta, patterns, noisy[:64], label[:64])
    law = np.exp(-energy) / np.exp(-energy).sum()
    assert deviation(sample_moments(drawn), law_moments(law, 6)) < 0.05
    assert (machine.relaxed(theta, states, noisy, label, 30, 9) == drawn).all()
    assert (machine.relaxed(theta, states, noisy, label, 30, 8) != drawn).any()
    assert (machine.relaxed(theta, states, noisy, label, 30, 9)[:150] == drawn[:150]).all()


@needs_thrml
def test_training_repeats_and_finds_the_moments_of_its_images() -> None:
    machine, _, spins = small_pbits()
    images = drawn_patterns(ising_law(spins), 6, 1000, 1)
    label = np.zeros(1000, np.intp)
    theta = machine.train(images, label, 150, 10, seed=3)
    again = machine.train(images, label, 150, 10, seed=3)
    assert all((a == b).all() for a, b in zip(theta, again, strict=True))
    other = machine.train(images, label, 150, 10, seed=4)
    assert (theta.wires != other.wires).any()
    noisy = machine.noisy(images, np.random.default_rng(5))
    drawn = machine.relaxed(theta, noisy, noisy, label, 30, 1)
    assert deviation(sample_moments(drawn), sample_moments(images)) < 0.06


# --- prices ---------------------------------------------------------------------------------------


def test_the_sums_of_a_price_list_are_those_of_pencil_and_paper() -> None:
    z1 = price_list("z1", "")
    counts = {"read": 784.0, "write": 10.0, "hold": 40.0, "update": 1000.0}
    by_hand = 784 * 1.692e-12 + 10 * 9.035e-12 + 40 * 1.692e-12 + 1000 * 7.09e-15
    assert z1.total(counts) == pytest.approx(by_hand)
    assert z1.costs({"read": 784.0})["read"] == pytest.approx(1.3265e-9, rel=1e-4)
    assert z1.prices["write"].joules == pytest.approx(153.6e-12 / 17, rel=1e-3)
    assert price_list("random-bit", "").costs(counts)["read"] is None  # no price, not charged


def test_every_price_has_its_evidence_and_every_list_its_source() -> None:
    for prices in price_lists().values():
        assert prices.source
        assert set(prices.prices) <= set(EVENTS)
        assert {row["evidence"] for row in prices.rows} <= {"measured", "simulated", "assumed"}
    bit = constants.k * 300 * math.log(2)
    assert price_list("landauer", "").prices["read"].joules == pytest.approx(bit, rel=1e-3)
    with pytest.raises(UserError, match=r"study\.price_list = gold: must be one of z1"):
        price_list("gold", "study.price_list")


def test_events_of_an_image_are_counted() -> None:
    machine = Machine(
        visible=4, hidden=0, labels=3, wiring=("visible-visible", "visible-label"),
        biases=("visible",), J2=1.0, J4=0.0, dt=0.01, duration=2.5,
    )  # fmt: skip
    counts = event_counts(machine, 100)
    written = (6 + 12 + 4) / 100
    assert counts == pytest.approx({"read": 4, "write": written, "hold": 3, "relax": 4 * 2.5 * 2})
    assert pbit_counts(machine, 30, 0.1, 100) == pytest.approx(
        {"read": 4, "write": written, "hold": 3 + 4, "update": 120}
    )
    assert pbit_counts(machine, 30, 0.0, 100)["hold"] == 3


# --- the study ------------------------------------------------------------------------------------

TINY: dict[str, dict[str, Any]] = {
    "machine": {"styles": 1, "dt": 0.05},
    "patterns": {"per_digit": 2},
    "generation": {"samples": 20},
    "study": {
        "durations": [0.5], "sweeps": [2], "updates": 2, "training_sweeps": 1, "barriers": [1.0],
        "units": [4], "ising_samples": 20, "ising_steps": 400,
    },
}  # fmt: skip


def test_the_study_runs_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermoloom.studies.pbits.study.has_thrml", lambda: False)
    performed = run(tmp_path, TINY, "pbits")
    summary = performed.summary
    assert summary["missing"] == [INSTALL]
    (point,) = summary["points"]
    assert point["total_z1"] > 1e6 * point["heat_joules"]
    reading = next(row for row in summary["statements"] if row["key"] == "reading")
    assert reading["verdict"] == "holds"
    page = (performed.path / "report.html").read_text(encoding="utf-8")
    assert INSTALL.replace("'", "&#39;") in page
    assert page.count("<figure") == 3


@needs_thrml
def test_the_study_runs_with_pbits(tmp_path: Path) -> None:
    summary = run(tmp_path, TINY, "pbits").summary
    assert summary["missing"] == []
    assert [point["machine"] for point in summary["points"]] == ["Langevin", "p-bits"]
    assert {row["machine"] for row in summary["account"]} == {"Langevin", "p-bits"}


@pytest.mark.parametrize(
    ("section", "options", "message"),
    [
        ("study", {"sweeps": [3, 1]}, r"study\.sweeps = \[3, 1\]: must be positive and increasing"),
        ("study", {"overlap": 1.0}, r"study\.overlap = 1: must be from 0 to below 1"),
        ("study", {"units": [40]}, r"study\.units = \[40\]: must be from 2 to 20"),
        ("study", {"price_list": "gold"}, r"study\.price_list = gold: must be one of"),
        ("machine", {"stages": 2}, r"machine\.stages = 2: this study takes one denoising step"),
        (
            "machine",
            {"labels": 0, "styles": 1},
            r"machine\.labels = 0: this study requests classes",
        ),
    ],
)
def test_impossible_plans_are_refused(section: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study("pbits").plan("quick", {section: options})
