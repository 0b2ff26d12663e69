"""The ledger: every entry against the states themselves, and its table."""

from __future__ import annotations

import numpy as np
import pytest
from machines import MACHINES, random_parameters
from scipy import constants

import thermoloom as tl
from thermoloom.generation import generate
from thermoloom.machine.energy import energy_parts, label_word
from thermoloom.machine.protocol import generation_windows
from thermoloom.measures.heat_ledger import Ledger, joules


@pytest.mark.parametrize("name", ["paper", "stages", "all stages"])
def test_heat_and_work_by_stage_and_part_are_those_of_the_states(name: str) -> None:
    machine = MACHINES[name]
    theta = random_parameters(machine, dtype=np.float32)
    word = label_word(machine, np.full(30, 1)) if machine.labels else None
    requested = 1 if machine.labels else None
    steps = [0, *(end for _, _, end in generation_windows(machine))]
    drawn = generate(theta, 30, 5, requested, snapshot_steps=steps, snapshot_samples=range(30))
    ledger = Ledger(machine, drawn)
    x = drawn.snapshots
    before = None
    for position, (stage, _, _) in enumerate(generation_windows(machine)):
        row = ledger.stages[position]
        assert row["stage"] == stage + 1
        start, end = (energy_parts(theta, x[:, position + k], stage, word) for k in (0, 1))
        for part in ledger.parts:
            fell = float((start[part] - end[part]).mean())
            assert row["heat_parts"][part] == pytest.approx(fell, abs=1e-9)
            jump = 0.0 if before is None else float((start[part] - before[part]).mean())
            assert row["work_parts"][part] == pytest.approx(jump, abs=1e-9)
        assert row["heat"].mean == pytest.approx(sum(row["heat_parts"].values()), abs=1e-9)
        before = end
    assert sum(row["heat"].mean for row in ledger.stages) == pytest.approx(ledger.heat.mean)
    assert sum(row["work"] for row in ledger.stages) == pytest.approx(ledger.work.mean, abs=1e-9)
    assert ledger.first_law_error < 1e-9


def test_ledger_prints_as_a_table() -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2)
    drawn = machine.solve(tl.digits(0, 1), resize=True).generate(20, seed=1)
    lines = repr(drawn.ledger()).splitlines()
    assert lines[0] == "Ledger of 20 samples: mean energies in E0, kT = 0.1 E0"
    assert lines[1].split()[:4] == ["stage", "heat", "by", "steps"]
    assert [line.split()[0] for line in lines[2:5]] == ["2", "1", "all"]
    assert f"{drawn.heat.mean():.2f}" in lines[4]
    assert "speed limit" in lines[-1]
    few = machine.solve(tl.digits(0, 1), resize=True).generate(3, seed=1).ledger()
    assert few.dissipation is None
    assert "speed limit" not in repr(few)


def test_clamped_units_have_no_part_in_entropy() -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    image = np.eye(7)
    image[4:] = np.nan
    drawn = machine.train(tl.digits(0, 1), cycles=4, resize=True).generate(12, clamp=image)
    ledger = drawn.ledger()
    assert ledger.dissipation is None
    assert ledger.stages[0]["clamp_work"] != 0
    assert ledger.stages[0]["work"] == pytest.approx(drawn.work.mean())


def test_joules_are_those_of_a_temperature() -> None:
    machine = tl.Machine(kT=0.2)
    expected = 5.0 / 0.2 * constants.k * 77.0
    assert joules(machine, 5.0, 77.0) == pytest.approx(expected, rel=1e-12)
