"""The onsite potential: what a unit feels when it is alone.

    quartic   V(x) = J₂x² + J₄x⁴,   V′ = 2J₂x + 4J₄x³,   V″ = 2J₂ + 12J₄x²

A potential is a named tuple of its coefficients with ``energy``, ``gradient`` and ``curvature``,
written once in plain arithmetic. NumPy evaluates them in the precision of the states, and the
engine compiles the very same lines into its kernels. Another potential is a class here (kernels
on disk know it by this module) and a line in ``ONSITE``; its fields must be the coefficients of the
arithmetic, so that float32 stays float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from thermoloom.machine.machine import Machine


class Onsite(Protocol):
    """What the rest of the program asks of a potential."""

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


def quartic(machine: Machine) -> Quartic:
    """The paper's potential, from ``machine.J2`` and ``machine.J4``."""
    return Quartic(2.0 * machine.J2, 4.0 * machine.J4)


ONSITE = {"quartic": quartic}
"""Every onsite potential by name, as a function of the machine's settings."""
