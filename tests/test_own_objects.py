"""Objects of users in a machine: potentials."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import thermoloom as tl
from thermoloom.engines import engine
from thermoloom.errors import SpeedWarning
from thermoloom.feasibility import largest_stable_step, warn_of_memory
from thermoloom.generation import generate
from thermoloom.machine.device import build
from thermoloom.machine.parameters import Parameters

SMALL: dict[str, Any] = {"visible": 49, "hidden": 8, "duration": 0.05}


class SameQuartic:
    """The built-in potential, with the parameters 2J₂ and 4J₄ of its gradient."""

    def __init__(self, quadratic: float, quartic: float) -> None:
        self.quadratic, self.quartic = quadratic, quartic

    def energy(self, x: Any) -> Any:
        square = x * x
        return square * (self.quadratic / 2 + (self.quartic / 4) * square)

    def gradient(self, x: Any) -> Any:
        return x * (self.quadratic + self.quartic * (x * x))


class Tabulated(SameQuartic):
    """The same, with an attribute that is no parameter, which kernels cannot have."""

    def __init__(self, quadratic: float, quartic: float) -> None:
        super().__init__(quadratic, quartic)
        self.table = np.array([quadratic, quartic])

    def gradient(self, x: Any) -> Any:
        return x * (self.table[0] + self.table[1] * (x * x))


@dataclass
class DoubleWell:
    """V = A (x² − w²)²."""

    depth: float = 1.0
    width: float = 0.5

    def energy(self, x: Any) -> Any:
        return self.depth * (x**2 - self.width**2) ** 2

    def gradient(self, x: Any) -> Any:
        return 4 * self.depth * x * (x**2 - self.width**2)


@dataclass
class Washboard:
    """V = x²/2 + 0.05 cos 6x: no polynomial."""

    ripple: float = 0.05

    def energy(self, x: Any) -> Any:
        return x**2 / 2 + self.ripple * np.cos(6 * x)

    def gradient(self, x: Any) -> Any:
        return x - 6 * self.ripple * np.sin(6 * x)


@pytest.fixture
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable")


@pytest.fixture(autouse=True)
def _no_surprising_warnings() -> Iterator[None]:
    warn_of_memory.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_potential_that_equals_the_built_in_one_gives_the_same_numbers() -> None:
    built_in = tl.Machine(**SMALL)
    expected = built_in.solve(tl.digits(0, 1), resize=True)
    machine = tl.Machine(onsite=Tabulated(2.0, 4.0), **SMALL)
    with pytest.warns(UserWarning, match="Numba cannot compile its gradient") as said:
        trained = machine.train(tl.digits(0, 1), cycles=2, resize=True)
    assert len(said) == 1  # and never again: the next warning would be an error
    heat = trained.generate(3).heat
    reference = built_in.train(tl.digits(0, 1), cycles=2, resize=True)
    np.testing.assert_allclose(
        trained["visible_hidden"], reference["visible_hidden"], rtol=1e-4, atol=1e-7
    )
    np.testing.assert_allclose(heat, reference.generate(3).heat, rtol=1e-5)
    solved = machine.solve(tl.digits(0, 1), resize=True)
    np.testing.assert_allclose(solved["hidden_hidden"], expected["hidden_hidden"], atol=1e-6)
    assert largest_stable_step(machine, 3.0) == pytest.approx(
        largest_stable_step(built_in, 3.0), rel=1e-2
    )


def test_kernels_compile_the_methods_of_a_class_with_number_parameters() -> None:
    field = np.linspace(-1, 1, 57).astype(np.float32)
    machines = (tl.Machine(**SMALL), tl.Machine(onsite=SameQuartic(2.0, 4.0), **SMALL))
    of_built_in, of_class = (engine().path(machine, field, 1, 0).states for machine in machines)
    np.testing.assert_array_equal(of_class, of_built_in)


def test_kernels_compile_the_methods_of_a_class_without_parameters() -> None:
    class Quartic:
        def energy(self, x: Any) -> Any:
            return x * x + x * x * (x * x)

        def gradient(self, x: Any) -> Any:
            return x * (2 + 4 * (x * x))

    field = np.linspace(-1, 1, 57).astype(np.float32)
    machines = (tl.Machine(**SMALL), tl.Machine(onsite=Quartic(), **SMALL))
    of_built_in, of_class = (engine().path(machine, field, 1, 0).states for machine in machines)
    np.testing.assert_allclose(of_class, of_built_in, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_portable")
def test_a_double_well_is_sampled_as_boltzmann_says() -> None:
    potential, kT = DoubleWell(1.0, 0.7), 0.2
    machine = tl.Machine(
        visible=50, hidden=0, wiring=(), onsite=potential, kT=kT, dt=0.02, duration=6
    )
    theta = Parameters.zeros(machine)
    states = generate(theta, 20, 1).final_states.astype(float)

    def moment(power: int) -> float:
        value: float = integrate.quad(
            lambda x: x**power * np.exp(-potential.energy(x) / kT), -3, 3
        )[0]
        return value

    for power in (2, 4):
        spread = (states**power).std() / np.sqrt(states.size)
        assert abs((states**power).mean() - moment(power) / moment(0)) < 4 * spread + 0.01


def test_a_path_that_cannot_forget_is_warned_of() -> None:
    warn_of_memory(tl.Machine(onsite=DoubleWell(1.0, 0.5), duration=5.0))
    with pytest.warns(UserWarning, match="do not forget their pattern"):
        warn_of_memory(tl.Machine(onsite=DoubleWell(8.0, 1.0), duration=5.0))


@pytest.mark.usefixtures("_portable")
def test_theory_refuses_a_force_that_is_no_cubic() -> None:
    machine = tl.Machine(onsite=Washboard(0.02), **SMALL)
    with pytest.raises(tl.UserError, match="theory covers forces"):
        machine.solve(tl.digits(0, 1), resize=True)
    assert len(machine.train(tl.digits(0, 1), cycles=1, resize=True).generate(2)) == 2


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_every_library_takes_a_potential(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy" if library == "numpy" else library)
    monkeypatch.setenv("THERMOLOOM_ENGINE", f"portable:{library}")
    field = np.linspace(-1, 1, 57).astype(np.float32)
    path = engine().path(tl.Machine(onsite=SameQuartic(2.0, 4.0), **SMALL), field, 1, 0)
    expected = engine().path(tl.Machine(**SMALL), field, 1, 0)
    np.testing.assert_allclose(path.states, expected.states, atol=1e-6)


def test_a_device_and_a_netlist_know_an_own_potential() -> None:
    machine = tl.Machine(onsite=SameQuartic(2.0, 4.0), **SMALL)
    chip = build(machine, tl.Device(spread_mobility=0.1))
    assert chip.potential.gradient(np.ones(57)).shape == (57,)
    with pytest.raises(tl.UserError, match="has no J₂ and J₄"):
        build(machine, tl.Device(spread_J2=0.1))


@pytest.mark.parametrize(
    ("potential", "message"),
    [
        ("lambda self, x: x[0]", "gradient must return a finite number for each state"),
        ("lambda self, x: 1 / 0", "gradient fails on an array of states"),
        ("lambda self, x: -x", "gradient is not the derivative of energy"),
    ],
)
def test_a_wrong_potential_is_refused_in_one_line(potential: str, message: str) -> None:
    wrong = type("Wrong", (), {"energy": lambda self, x: x**2, "gradient": eval(potential)})()
    with pytest.raises(tl.UserError, match=message):
        tl.Machine(onsite=wrong)
    with pytest.raises(tl.UserError, match="applies to quartic only"):
        tl.Machine(onsite=DoubleWell(), J2=2.0)


def test_a_potential_that_confines_nothing_is_refused() -> None:
    class Hill:
        def energy(self, x: Any) -> Any:
            return -(x**2)

        def gradient(self, x: Any) -> Any:
            return -2 * x

    with pytest.raises(tl.UserError, match="does not confine its units"):
        tl.Machine(visible=9, hidden=2, duration=0.05, onsite=Hill()).train(
            tl.digits(0), cycles=2, resize=True
        )


def test_what_numba_cannot_compile_is_computed_by_the_portable_engine() -> None:
    class Bare:
        def energy(self, x: Any) -> Any:
            return x**2

        def gradient(self, x: Any) -> Any:
            return np.where(x > 0, 2 * x, 2 * x)  # Numba raises a TypeError of its own

    machine = tl.Machine(visible=9, hidden=2, duration=0.05, onsite=Bare())
    with pytest.warns(SpeedWarning, match="Numba cannot compile its gradient"):
        machine.train(tl.digits(0), cycles=2, resize=True)


def test_derivatives_follow_from_the_gradient() -> None:
    x = np.linspace(-2, 2, 9)
    own = tl.Machine(onsite=DoubleWell(0.7, 1.2)).potential
    np.testing.assert_allclose(own.curvature(x), 4 * 0.7 * (3 * x**2 - 1.2**2), rtol=1e-9)
    expected = [own.gradient(x), own.curvature(x), 12 * 0.7 * x, np.full(9, 4 * 0.7)]
    np.testing.assert_allclose(own.taylor(x), expected, rtol=1e-9, atol=1e-11)
