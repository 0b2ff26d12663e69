"""The onsite potential: the energy of a unit without couplings.

    quartic   V(x) = J₂x² + J₄x⁴,   V′ = 2J₂x + 4J₄x³,   V″ = 2J₂ + 12J₄x²

There are two onsite potentials. The reference potential governs preparation and noising and has a
single well: in a double well a noising path would never forget its pattern. The generating
potential enters V_θ; it is the same unless a ``Well`` replaces it in some groups and stages.

A potential is a named tuple of its coefficients with ``energy``, ``gradient`` and ``curvature``,
written once in plain arithmetic. NumPy evaluates them in the precision of the states, and the
engine compiles the same lines into its kernels. To add a potential, write a class here (kernels on
disk refer to it by this module) and a line in ``ONSITE``; its fields must be the coefficients of
the arithmetic, so that float32 stays float32.

A user's potential (``module:Class(…)``) needs ``energy`` and ``gradient``. If its parameters are
numbers, they become the fields of a named tuple with the methods of its class, and kernels compile
it like the others. Any other object is called as it is, but not from kernels.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from thermoloom.errors import UserError
from thermoloom.extensions import Extensible, parameters_of
from thermoloom.sections import Section

if TYPE_CHECKING:
    from thermoloom.machine.machine import Machine


class Onsite(Protocol):
    """Methods that the rest of the program requires of a potential."""

    def energy(self, x: Any) -> Any:
        """V(x)."""

    def gradient(self, x: Any) -> Any:
        """V′(x)."""

    def curvature(self, x: Any) -> Any:
        """V″(x)."""

    def taylor(self, x: Any) -> list[Any]:
        """[V′, V″, V‴/2, V⁗/6] at x. Theory refuses a V′ that is not an odd cubic polynomial."""

    def astype(self, dtype: Any) -> Self:
        """The same potential with coefficients of this type."""


class Quartic(NamedTuple):
    """V(x) = J₂x² + J₄x⁴, by the coefficients 2J₂ and 4J₄ of its gradient."""

    quadratic: Any
    """2J₂"""
    quartic: Any
    """4J₄"""

    def energy(self, x: Any) -> Any:
        """V(x)."""
        square = x * x
        return square * (self.quadratic / 2 + (self.quartic / 4) * square)

    def gradient(self, x: Any) -> Any:
        """V′(x)."""
        return x * (self.quadratic + self.quartic * (x * x))

    def curvature(self, x: Any) -> Any:
        """V″(x)."""
        return self.quadratic + 3 * self.quartic * (x * x)

    def taylor(self, x: Any) -> list[Any]:
        """[V′, V″, V‴/2, V⁗/6] at x."""
        cubic = np.broadcast_to(self.quartic, np.shape(x))
        return [self.gradient(x), self.curvature(x), 3 * self.quartic * x, cubic]

    def astype(self, dtype: Any) -> Quartic:
        return Quartic(dtype(self.quadratic), dtype(self.quartic))


class CentredQuartic(NamedTuple):
    """V(x) = J₂(x − m)² + J₄(x − m)⁴; numbers, or (N,) where units differ."""

    quadratic: Any
    """2J₂"""
    quartic: Any
    """4J₄"""
    centre: Any
    """m"""

    def energy(self, x: Any) -> Any:
        """V(x)."""
        square = (x - self.centre) * (x - self.centre)
        return square * (self.quadratic / 2 + (self.quartic / 4) * square)

    def gradient(self, x: Any) -> Any:
        """V′(x)."""
        y = x - self.centre
        return y * (self.quadratic + self.quartic * (y * y))

    def curvature(self, x: Any) -> Any:
        """V″(x)."""
        y = x - self.centre
        return self.quadratic + 3 * self.quartic * (y * y)

    def taylor(self, x: Any) -> list[Any]:
        """[V′, V″, V‴/2, V⁗/6] at x."""
        return Quartic(self.quadratic, self.quartic).taylor(x - self.centre)

    @property
    def mirrored(self) -> CentredQuartic:
        """V(−x)."""
        return self._replace(centre=-self.centre)

    def astype(self, dtype: Any) -> CentredQuartic:
        return CentredQuartic(*(dtype(coefficient) for coefficient in self))


@dataclass(frozen=True, repr=False)
class Well(Section):
    """The generating potential J₂(x − m)² + J₄(x − m)⁴ of some units; a double well if J₂ < 0.

    >>> import thermoloom as tl
    >>> bistable = tl.Well(J2=-1.0, J4=0.4, centre=0.8, groups=["visible"], stages=[0])
    >>> tl.Machine(stages=4, generating=[bistable]).generating[0].stages
    (0,)
    """

    section: ClassVar[str] = "machine.generating"

    J2: float = 1.0
    """Quadratic coefficient about the centre, in E₀; may be negative where J4 is positive."""
    J4: float = 0.0
    """Quartic coefficient about the centre, in E₀."""
    centre: float = 0.0
    """m, the state at the centre of the potential."""
    groups: tuple[str, ...] = ("visible", "hidden")
    """Groups of units that have this potential."""
    stages: tuple[int, ...] = ()
    """Stages with this potential; stage 0 is nearest to the pattern. All stages if empty."""

    def check(self) -> None:
        self._non_negative("J4")
        must = "a unit is not confined; J2 may be negative or 0 only where J4 is positive"
        self._require("J2, J4", self.J2 > 0 or self.J4 > 0, must)

    def rules(self, group: str, stage: int) -> bool:
        """Whether the units of a group have this potential in a stage."""
        return group in self.groups and (not self.stages or stage in self.stages)


@dataclass(frozen=True, repr=False)
class Development(Section):
    """A window of generation after t_f, in which visible units relax in another potential.

        V(x) = Σ_i J₂(x_i − m)² + J₄(x_i − m)⁴ + κ/2 Σ_neighbours (x_i − x_j)² + λ V_couplings(x)

    i runs over visible units, and each pair of neighbouring pixels counts once; hidden units keep
    the reference potential. Noising has no such window, so learning rule and solver ignore it.

    >>> import thermoloom as tl
    >>> window = tl.Development(J2=-1.0, J4=0.4, centre=0.9, neighbours=0.1, duration=1.0)
    >>> machine = tl.Machine(wiring=["visible-visible"], biases=["visible"], development=[window])
    >>> machine.steps, machine.generation_steps
    (2500, 3500)
    """

    section: ClassVar[str] = "machine.development"

    J2: float = 1.0
    """Quadratic coefficient about the centre, in E₀; may be negative where J4 is positive."""
    J4: float = 0.0
    """Quartic coefficient about the centre, in E₀."""
    centre: float = 0.0
    """m, the state at the centre of the potential."""
    neighbours: float = 0.0
    """κ, stiffness of the springs between neighbouring pixels, in E₀. They need wires between these
    pixels, and biases on visible units."""
    learned: float = 0.0
    """λ, factor by which the learned couplings and biases of stage 0 act in this window."""
    duration: float = 1.0
    """Time for which the units relax, in τ; rounded to whole steps."""

    def check(self) -> None:
        self._non_negative("J4", "neighbours", "learned")
        self._positive("duration")
        must = "a unit is not confined; J2 may be negative or 0 only where J4 is positive"
        self._require("J2, J4", self.J2 > 0 or self.J4 > 0, must)


def quartic(machine: Machine) -> Quartic:
    """The paper's potential, from ``machine.J2`` and ``machine.J4``."""
    return Quartic(2.0 * machine.J2, 4.0 * machine.J4)


ONSITE = {"quartic": quartic}
"""Every onsite potential by name, as a function of the machine's settings."""


# --- potentials of users --------------------------------------------------------------------------

EXTENSION = Extensible("onsite potential", ("energy", "gradient"))
_METHODS = ("energy", "gradient", "curvature", "taylor")
_STEP = 1e-3
"""Spacing of the states in a fourth-order finite difference."""
_PROBES = np.linspace(-2.9, 2.9, 24)
"""States at which a potential is tested."""


class _Derived:
    """Methods of a potential that follow from its gradient, unless its class has them."""

    def curvature(self: Any, x: Any) -> Any:
        """V″(x)."""
        return _slope(self.gradient, np.asarray(x, np.float64))

    def taylor(self: Any, x: Any) -> list[Any]:
        """[V′, V″, V‴/2, V⁗/6] of the cubic c₁x + c₃x³ through the forces at 1 and 2.

        Theory compares it with the force and refuses any other force.
        """
        at_1, at_2 = (float(self.gradient(np.float64(state))) for state in (1, 2))
        cubic = (at_2 - 2 * at_1) / 6
        linear, x = at_1 - cubic, np.asarray(x, np.float64)
        force, curvature = x * (linear + cubic * x * x), linear + 3 * cubic * x * x
        return [force, curvature, 3 * cubic * x, np.full_like(x, cubic)]

    def astype(self: Any, dtype: Any) -> Any:
        return self._make(dtype(coefficient) for coefficient in self)


def _slope(function: Any, x: Any) -> Any:
    """f′(x), exact up to round-off for polynomials of degree four."""
    near, far = (function(x + h) - function(x - h) for h in (_STEP, 2 * _STEP))
    return (8 * near - far) / (12 * _STEP)


@lru_cache(maxsize=64)
def own_potential(text: str) -> Onsite:
    """A user's potential, from the text of its setting; refuses anything else."""
    extension = EXTENSION.object("machine.onsite", text)
    parameters = parameters_of(extension)
    potential: Any = _around(extension)()
    _check_potential(text, potential)
    if parameters is None or not all(type(p) in (int, float) for p in parameters.values()):
        return potential  # type: ignore[no-any-return]
    # Numba cannot pass an empty tuple, so a class without parameters gets a coefficient.
    coefficients = parameters or {"no_coefficient": 0.0}
    try:
        owner: Any = type(extension)
        compilable = _with_coefficients(owner, tuple(coefficients))
        alike: Onsite = compilable(*map(float, coefficients.values()))
        same = all(
            np.array_equal(getattr(alike, name)(_PROBES), getattr(potential, name)(_PROBES))
            for name in _METHODS[:2]
        )
    except Exception:  # it has attributes besides its parameters
        return potential  # type: ignore[no-any-return]
    return alike if same else potential


@lru_cache(maxsize=64)
def _with_coefficients(owner: type, names: tuple[str, ...]) -> Any:
    """A named tuple of these coefficients with the methods of a class."""
    methods = {
        name: value
        for each in reversed(owner.__mro__)
        if each not in (object, tuple)
        for name, value in vars(each).items()
        if not name.startswith("_") and name not in (*names, "astype")
    }
    coefficients = namedtuple(owner.__name__, names)  # type: ignore[misc]
    return type(
        owner.__name__,
        (_Derived, coefficients),
        methods | {"__module__": owner.__module__, "__slots__": ()},
    )


def _around(extension: Any) -> Any:
    """An empty named tuple whose methods call an object, in the precision of the states."""

    def calling(name: str) -> Any:
        def method(_: Any, x: Any) -> Any:
            value = getattr(extension, name)(x)
            return np.asarray(value, x.dtype) if isinstance(x, np.ndarray) else value

        return method

    names = [name for name in _METHODS if hasattr(extension, name)]
    nothing = namedtuple(type(extension).__name__, ())  # type: ignore[misc]
    methods = {name: calling(name) for name in names}
    return type(nothing.__name__, (_Derived, nothing), methods | {"__slots__": ()})


def _check_potential(text: str, potential: Onsite) -> None:
    """Refuse a potential with wrong shapes, complex numbers or a wrong gradient."""
    key = f"machine.onsite = {text:.80}"
    for name in _METHODS[:2]:
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(getattr(potential, name)(_PROBES), np.float64)
        except Exception as error:
            raise UserError(f"{key}: {name} fails on an array of states ({error})") from None
        if values.shape != _PROBES.shape or not np.isfinite(values).all():
            raise UserError(f"{key}: {name} must return a finite number for each state")
    gradient = potential.gradient(_PROBES)
    deviation = np.abs(gradient - _slope(potential.energy, _PROBES))
    if np.median(deviation) > 1e-6 * max(1.0, float(np.abs(gradient).max())):
        raise UserError(f"{key}: gradient is not the derivative of energy")
