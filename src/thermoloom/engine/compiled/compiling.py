"""How kernels are compiled, and how the machine's definitions get into them.

``jit`` compiles once, caches on disk and releases the interpreter lock; arithmetic is strict IEEE.
A kernel calls ``onsite.gradient(x)``, ``drive(…)``, ``residual(…)`` as NumPy code does: the plain
Python functions of ``thermoloom.machine`` are compiled into it, so no formula stands here again.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.extending import overload_method, register_jitable

from thermoloom.machine import action

jit = njit(nogil=True, cache=True, error_model="numpy")
inline = njit(nogil=True, cache=True, error_model="numpy", inline="always")
# Sums may be reordered, so that they run in vector registers; non-finite values still show.
fast_jit = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)

drive = register_jitable(action.drive)
residual = register_jitable(action.residual)
step_terms = register_jitable(action.step_terms)


@overload_method(types.BaseNamedTuple, "gradient", strict=False)
def _gradient(self: Any, x: Any) -> Any:
    """``onsite.gradient(x)`` inside kernels: the method of the potential's own class."""
    return getattr(self.instance_class, "gradient", None)
