"""Generation: protocol, heat, frozen parameters, common random numbers, replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_computer
from scipy import integrate

import thermoloom.generation
from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.generation import GROUP, generate, replay_differs
from thermoloom.machine.computer import Computer, energy, energy_gradient
from thermoloom.streams import normals
from thermoloom.threads import threads


def plain_generation(machine: Machine, computer: Computer, seed: int, sample: int) -> np.ndarray:
    """States x₀ … x_K of one sample, the paper's protocol written out in float64."""
    wide = computer.astype(np.float64)
    x = np.zeros(machine.units)
    states = []
    for stream, theta in (
        ("generation preparation", Computer.zeros(machine, np.float64)),
        ("generation", wide),
    ):
        kicks = normals(seed, stream, sample, machine.steps, machine.units)
        states = [x]
        for k in range(machine.steps):
            drift = -machine.mobility * machine.dt * energy_gradient(theta, machine, x)
            x = x + drift + machine.noise_amplitude * kicks[k]
            states.append(x)
    return np.array(states)


def test_generation_follows_the_protocol(small: Machine) -> None:
    computer = random_computer(small).astype(np.float32)
    steps = [0, 3, 100, small.steps]
    generated = generate(small, computer, 5, 9, snapshot_steps=steps, snapshot_samples=[4, 1])
    for row, sample in enumerate((4, 1)):
        expected = plain_generation(small, computer, 9, sample)
        np.testing.assert_allclose(generated.snapshots[row], expected[steps], atol=1e-5)
        np.testing.assert_allclose(generated.initial_states[sample], expected[0], atol=1e-5)
        np.testing.assert_allclose(generated.final_states[sample], expected[-1], atol=1e-5)


def test_heat_is_the_drop_in_energy(small: Machine) -> None:
    computer = random_computer(small).astype(np.float32)
    generated = generate(small, computer, 6, 9)
    before = energy(computer, small, generated.initial_states)
    after = energy(computer, small, generated.final_states)
    assert generated.heat.dtype == np.float64
    np.testing.assert_allclose(generated.heat, before - after, rtol=1e-12)


def test_heat_is_the_stratonovich_sum_to_first_order_in_the_step() -> None:
    """Q + Σ ½(∇V_k + ∇V_{k+1})·Δx vanishes with Δt; the order, near 1, is measured."""
    steps = np.array([8e-3, 4e-3, 2e-3])
    errors = []
    for dt in steps:
        machine = Machine(visible=12, hidden=8, duration=0.4, dt=float(dt), J4=2.0)
        computer = random_computer(machine).astype(np.float32)
        chosen = range(200)
        generated = generate(
            machine, computer, 200, 3, range(machine.steps + 1), snapshot_samples=chosen
        )
        x = generated.snapshots.astype(np.float64)
        force = energy_gradient(computer.astype(np.float64), machine, x)
        work = 0.5 * np.sum((force[:, 1:] + force[:, :-1]) * np.diff(x, axis=1), axis=(1, 2))
        errors.append(np.sqrt(np.mean((generated.heat + work) ** 2)))
    order = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert 0.8 < order < 1.3


def test_coupled_units_relax_to_the_boltzmann_density() -> None:
    """One visible and one hidden unit with a coupling and a bias: ⟨x_v x_h⟩ by quadrature."""
    machine = Machine(visible=1, hidden=1, duration=4.0, dt=4e-3, kT=0.3)
    computer = Computer(
        np.array([[0.8]], np.float32), np.zeros((1, 1), np.float32), np.array([0.2], np.float32)
    )
    x = generate(machine, computer, 4000, 1).final_states.astype(float)

    def weight(h: float, v: float) -> float:
        onsite = v**2 + v**4 + h**2 + h**4
        return np.exp(-(onsite + 0.8 * v * h + 0.2 * h) / machine.kT)

    norm = integrate.dblquad(weight, -2.5, 2.5, -2.5, 2.5)[0]
    for f in (lambda v, h: v * h, lambda v, h: h, lambda v, h: v * v):
        exact = integrate.dblquad(lambda h, v, f=f: f(v, h) * weight(h, v), -2.5, 2.5, -2.5, 2.5)
        values = f(x[:, 0], x[:, 1])
        error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - exact[0] / norm) < 4 * error + 0.01 * abs(exact[0] / norm)


def test_samples_do_not_depend_on_threads_or_on_how_many_there_are() -> None:
    machine = Machine(visible=30, hidden=20, duration=0.05)
    computer = random_computer(machine).astype(np.float32)
    count = 2 * GROUP + 7
    results = []
    for number in (1, 3):
        with threads(number):
            results.append(generate(machine, computer, count, 5))
    assert np.array_equal(results[0].final_states, results[1].final_states)
    fewer = generate(machine, computer, GROUP, 5)
    assert np.array_equal(fewer.final_states, results[0].final_states[:GROUP])


def test_computers_share_their_random_numbers(small: Machine) -> None:
    """Same seed, other parameters: the prepared states are the same to the bit."""
    one, other = (random_computer(small, seed=s).astype(np.float32) for s in (0, 1))
    a, b = generate(small, one, 4, 7), generate(small, other, 4, 7)
    assert np.array_equal(a.initial_states, b.initial_states)
    assert not np.array_equal(a.final_states, b.final_states)
    assert not np.array_equal(generate(small, one, 4, 8).initial_states, a.initial_states)


def test_replay_equals_the_archive_and_a_changed_archive_is_noticed(small: Machine) -> None:
    computer = random_computer(small).astype(np.float32)
    archive = generate(small, computer, 4, 7)
    assert replay_differs(small, computer, 7, archive) == ""
    final = archive.final_states.copy()
    final[2, 0] = np.nextafter(final[2, 0], np.float32(9))
    assert "final_states of sample 2" in replay_differs(
        small, computer, 7, replace(archive, final_states=final)
    )


def test_changed_parameters_are_noticed(small: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    computer = random_computer(small).astype(np.float32)
    original = thermoloom.generation._relax

    def meddle(*arguments: object) -> None:
        original(*arguments)  # type: ignore[arg-type]
        computer.hidden_bias[0] += 1

    monkeypatch.setattr(thermoloom.generation, "_relax", meddle)
    with pytest.raises(RuntimeError, match="parameters changed"):
        generate(small, computer, 2, 1)


def test_wrong_requests_are_named(small: Machine) -> None:
    computer = random_computer(small).astype(np.float32)
    with pytest.raises(UserError, match=r"generation\.samples"):
        generate(small, computer, 0, 1)
    with pytest.raises(UserError, match="snapshot steps"):
        generate(small, computer, 1, 1, snapshot_steps=[201], snapshot_samples=[0])
    with pytest.raises(UserError, match="snapshot samples"):
        generate(small, computer, 1, 1, snapshot_steps=[0], snapshot_samples=[1])
    with pytest.raises(UserError, match=r"machine\.visible"):
        generate(replace(small, visible=13), computer, 1, 1)
