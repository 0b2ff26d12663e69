"""Windows against all others on the grid; heat of a noising path; memory for many patterns."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from machines import some_fields

from thermoloom.engines import engine
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import noising_heat, ramp
from thermoloom.patterns.drive import Drive
from thermoloom.theory.best_windows import best_edges, best_windows, window_losses
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum

HARMONIC = Machine(
    visible=8, hidden=0, labels=2, stages=3, wiring=("visible-visible", "visible-label"),
    biases=("visible",), J4=0.0, dt=0.02, duration=1.2,
)  # fmt: skip


@pytest.mark.parametrize("stages", [1, 2, 4, 6])
def test_edges_are_the_best_of_all(stages: int) -> None:
    losses = np.random.default_rng(stages).random((7, 7))
    losses[np.tril_indices(7)] = np.inf

    def total(ends: tuple[int, ...]) -> float:
        return sum(losses[a, b] for a, b in pairwise((0, *ends)))

    every = [(*inner, 6) for inner in combinations(range(1, 6), stages - 1)]
    assert tuple(best_edges(losses, stages)) == min(every, key=total)


def test_windows_that_are_found_have_the_least_loss_of_all() -> None:
    fields = some_fields(HARMONIC, 9)
    words = label_word(HARMONIC, np.arange(9) % 2)
    losses = window_losses(HARMONIC, Drive(fields, words), pieces=6)

    def solved(windows: tuple[float, ...]) -> float:
        machine = replace(HARMONIC, windows=windows)
        return solve_optimum(machine, Drive(fields, words)).expected_loss

    equal = losses[0, 2] + losses[2, 4] + losses[4, 6]
    assert equal / HARMONIC.steps == pytest.approx(solved((1 / 3, 2 / 3, 1.0)), rel=1e-6)
    best = best_windows(HARMONIC, Drive(fields, words), pieces=6)
    every = [(a / 6, b / 6, 1.0) for a, b in combinations(range(1, 6), 2)]
    all_losses = [solved(windows) for windows in every]
    assert solved(best) == pytest.approx(min(all_losses), rel=1e-9)
    assert max(all_losses) > 1.0001 * min(all_losses)


def test_heat_of_a_noising_path_is_the_stratonovich_sum() -> None:
    """Exactly so for harmonic units: Σ_k (a_k s − V′(x̄_k))·Δx_k with x̄ midway."""
    field = some_fields(HARMONIC, 1)[0]
    x = engine().path(HARMONIC, field, 5, 0, label_word(HARMONIC, 0)).states.astype(np.float64)
    middle, change = (x[1:] + x[:-1]) / 2, np.diff(x, axis=0)
    force = ramp(HARMONIC)[:, None] * field - HARMONIC.potential.gradient(middle)
    assert noising_heat(HARMONIC, field, x) == pytest.approx(float((force * change).sum()))


@pytest.mark.parametrize("J4", [0.0, 1.0])
def test_memory_does_not_grow_with_patterns(J4: float) -> None:
    """Moments are sums over some patterns at a time."""
    machine = replace(HARMONIC, J4=J4)
    marginals = solve_marginals(machine, 4.0)

    def peak(count: int) -> int:
        fields = np.clip(some_fields(machine, count), -4, 4)
        words = label_word(machine, np.arange(count) % 2)
        tracemalloc.start()
        expected_losses(machine, fields, marginals, words)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(20000) < 1.2 * peak(5000)
