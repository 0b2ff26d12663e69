"""Another onsite potential is a class and a line in ``ONSITE``: nothing else need know of it.

Kernels are compiled anew for the potential of this file, which takes its time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from machines import path_of, random_parameters, relative_difference, some_fields
from numba.core import caching
from plain_rules import learn_stepwise
from scipy import integrate

import thermoloom
from thermoloom.engines import engine
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import start_of
from thermoloom.engines.compiled.quantized_learner import QuantizedLearner
from thermoloom.engines.compiled.streams import normals
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.action import drive, path_terms, step_constants
from thermoloom.machine.clamp import resting_states
from thermoloom.machine.energy import energy
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import ONSITE
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import ramp
from thermoloom.machine.quantization import Grid
from thermoloom.patterns.drive import Drive
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum


class Sextic(NamedTuple):
    """V(x) = J₂x² + J₄x⁶."""

    quadratic: Any
    sextic: Any

    def energy(self, x: Any) -> Any:
        square = x * x
        return square * (self.quadratic + self.sextic * square * square)

    def gradient(self, x: Any) -> Any:
        square = x * x
        return x * (2 * self.quadratic + 6 * self.sextic * square * square)

    def curvature(self, x: Any) -> Any:
        square = x * x
        return 2 * self.quadratic + 30 * self.sextic * square * square

    def taylor(self, x: Any) -> list[Any]:
        return [
            self.gradient(x),
            self.curvature(x),
            60 * self.sextic * x**3,
            60 * self.sextic * x**2,
        ]

    def astype(self, dtype: Any) -> Sextic:
        return Sextic(dtype(self.quadratic), dtype(self.sextic))


class DoubleWell(NamedTuple):
    """V(x) = −J₂x² + J₄x⁴: wells at ±√(J₂/2J₄)."""

    quadratic: Any
    quartic: Any

    def energy(self, x: Any) -> Any:
        square = x * x
        return square * (self.quartic * square - self.quadratic)

    def gradient(self, x: Any) -> Any:
        return x * (4 * self.quartic * (x * x) - 2 * self.quadratic)

    def curvature(self, x: Any) -> Any:
        return 12 * self.quartic * (x * x) - 2 * self.quadratic

    def taylor(self, x: Any) -> list[Any]:
        return [
            self.gradient(x),
            self.curvature(x),
            12 * self.quartic * x,
            np.broadcast_to(4 * self.quartic, np.shape(x)),
        ]

    def astype(self, dtype: Any) -> DoubleWell:
        return DoubleWell(dtype(self.quadratic), dtype(self.quartic))


class Tilted(DoubleWell):
    """The same on a slope: a cubic force that is not odd."""

    def gradient(self, x: Any) -> Any:
        return DoubleWell.gradient(self, x) + 0.1


OTHERS = {
    "sextic": lambda machine: Sextic(machine.J2, machine.J4),
    "double well": lambda machine: DoubleWell(machine.J2, machine.J4),
}


@pytest.fixture(autouse=True, scope="module")
def _kernels_are_not_kept() -> Iterator[None]:
    """On disk they would be known by the name of this module, which others do not have."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(caching.Cache, "save_overload", lambda *_: None)
        yield


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, potential in OTHERS.items():
        monkeypatch.setitem(ONSITE, name, potential)
    monkeypatch.setitem(ONSITE, "tilted", lambda machine: Tilted(machine.J2, machine.J4))


def machine_with(onsite: str, **settings: Any) -> Machine:
    values = {"visible": 12, "hidden": 8, "duration": 0.2, "J2": 0.7, "J4": 0.4} | settings
    return Machine(onsite=onsite, **values)


every_other = pytest.mark.parametrize("onsite", OTHERS)


def test_an_unknown_potential_is_refused_by_name() -> None:
    must = r"machine\.onsite = 'cubic': must be one of quartic.*, or module:object"
    with pytest.raises(UserError, match=must):
        machine_with("cubic")


@every_other
def test_energy_force_and_curvature_belong_together(onsite: str) -> None:
    potential = machine_with(onsite).potential
    for x in (-1.3, 0.2, 2.0):
        assert integrate.quad(potential.gradient, 0, x)[0] == pytest.approx(potential.energy(x))
        slope = (potential.gradient(x + 1e-6) - potential.gradient(x - 1e-6)) / 2e-6
        assert potential.curvature(x) == pytest.approx(slope, rel=1e-6)


def test_noising_paths_follow_the_force() -> None:
    machine = machine_with("sextic")
    field = some_fields(machine)[0]
    path = engine().path(machine, field, 11, 3)
    x, drift = np.zeros(machine.units), machine.mobility * machine.dt
    held = np.full(machine.steps, 2.0)
    for name, amplitude in (("preparation", held), ("noising", ramp(machine))):
        kicks = normals(11, name, 3, machine.steps, machine.units)
        for a, z in zip(amplitude, kicks, strict=True):
            slope = machine.potential.gradient(x)
            x = x + drift * (a * field - slope) + machine.noise_amplitude * z
    np.testing.assert_allclose(path.states[-1], x, atol=1e-5)
    wide = path.states.astype(np.float64)
    expected = drive(step_constants(machine, np.float64), wide[:-1], wide[1:])
    np.testing.assert_allclose(start_of(path), expected, atol=3e-6)


def test_learners_and_losses_follow_the_reference() -> None:
    machine = machine_with("sextic")
    field = some_fields(machine)[0]
    start = random_parameters(machine, 0.1, dtype=np.float32)
    path = engine().path(machine, field, 1, 0)
    learned = Learner(machine, 0.02).learn(start, path)
    reference = learn_stepwise(start, path.states, 0.02)
    assert relative_difference(learned, reference) < 5e-6
    on_grid = QuantizedLearner(machine, 0.02, Grid(24, (2.0, 2.0), False)).learn(start, path)
    assert relative_difference(on_grid, reference) < 2e-5
    found, plain = engine().terms(start, path, field), path_terms(start, path.states, field)
    np.testing.assert_allclose(found, plain, rtol=2e-5)
    assert plain.identity_error < 1e-12
    # and it is this potential that they follow
    quartic = machine_with("quartic")
    other = Learner(quartic, 0.02).learn(start, path_of(quartic, path.states))
    assert relative_difference(other, reference) > 1e-3


def test_one_unit_relaxes_to_its_boltzmann_density() -> None:
    """A visible unit with a bias, and a hidden one that it is not wired to."""
    free = {"wiring": (), "biases": ("visible",), "kT": 0.3, "dt": 4e-3, "duration": 6.0}
    machine = machine_with("sextic", visible=1, hidden=1, **free)
    theta = Parameters.from_arrays(machine, {"visible_bias": np.array([0.15], np.float32)})
    x = generate(theta, 5000, 1).final_states.astype(float)
    for unit, bias in ((0, 0.15), (1, 0.0)):

        def weight(y: float, bias: float = bias) -> float:
            return float(np.exp(-(machine.potential.energy(y) + bias * y) / machine.kT))

        norm = integrate.quad(weight, -4, 4)[0]
        for power in (1, 2, 4):
            exact = integrate.quad(lambda y, p=power: y**p * weight(y), -4, 4)[0] / norm
            values = x[:, unit] ** power
            error = values.std() / np.sqrt(len(values))
            assert abs(values.mean() - exact) < 4 * error + 0.01 * abs(exact)


def test_books_of_heat_use_it() -> None:
    machine = machine_with("sextic")
    theta = random_parameters(machine, dtype=np.float32)
    found = generate(theta, 3, 1)
    before, after = (energy(theta, x) for x in (found.initial_states, found.final_states))
    np.testing.assert_allclose(found.heat, before - after, rtol=1e-12)
    onsite_only = machine.potential.energy(found.final_states.astype(float)).sum(axis=1)
    np.testing.assert_allclose(found.final_energy["onsite"], onsite_only, rtol=1e-12)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_a_kernel_on_disk_does_not_outlive_a_formula_that_it_calls(
    variable: str, tmp_path: Path
) -> None:
    """Numba looks at a kernel's own file only; here the potential changes, in another file."""
    package = tmp_path / "thermoloom"
    shutil.copytree(
        Path(thermoloom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    lines = (
        "import numpy as np; from thermoloom.machine.machine import Machine\n"
        "from thermoloom.engines.compiled.noising import drives_of\n"
        "path = np.ones((3, 4), np.float32)\n"
        "print(drives_of(Machine(visible=2, hidden=2, duration=0.002), path)[0, 0])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    places = {"PYTHONPATH": str(tmp_path), variable: str(tmp_path / "cache")}

    def residual_at_one() -> float:
        done = subprocess.run(
            [sys.executable, "-c", lines],
            env=environment | places, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(done.stdout)

    first = residual_at_one()
    onsite = package / "machine" / "onsite.py"
    formula = "return x * (self.quadratic + self.quartic * (x * x))"
    assert formula in onsite.read_text()
    onsite.write_text(onsite.read_text().replace(formula, f"{formula} + x"))
    assert residual_at_one() == pytest.approx(first + 1e-3 / (2 * 0.1), rel=1e-5)


@every_other
def test_resting_states_balance_the_field(onsite: str) -> None:
    fields = np.array([-4.0, -0.8, -0.05, 0.01, 0.3, 3.0])
    potential = machine_with(onsite).potential
    rest = resting_states(machine_with(onsite), fields)
    np.testing.assert_allclose(potential.gradient(rest), 2 * fields, atol=1e-9)
    assert np.all(rest * fields > 0)
    assert np.all(potential.curvature(rest) > 0)


@pytest.mark.parametrize("onsite", ["sextic", "tilted"])
def test_theory_refuses_a_force_that_is_not_an_odd_cubic(onsite: str) -> None:
    machine = machine_with(onsite)
    for solve in (
        lambda: solve_marginals(machine, 1.0),
        lambda: solve_optimum(machine, Drive(some_fields(machine))),
    ):
        with pytest.raises(UserError, match=r"machine\.onsite = .*train instead") as error:
            solve()
        assert "\n" not in str(error.value)


def test_theory_solves_a_double_well() -> None:
    """Its force is an odd cubic: means of a unit against simulated paths."""
    machine = machine_with("double well", visible=4, hidden=1, dt=0.01, duration=0.5, kT=0.2)
    field = np.array([-1.1, 0.0, 0.2, 0.7, 2.0], np.float32)
    marginals = solve_marginals(machine, 2.0)
    paths = np.array([engine().path(machine, field, 5, n).states[1:] for n in range(4000)])
    error = paths.std(axis=0) / np.sqrt(len(paths))
    away = (paths.mean(axis=0) - marginals.at("mean", field.astype(float))) / error
    assert np.abs(away).max() < 5
    assert np.sqrt((away**2).mean()) < 1.5
