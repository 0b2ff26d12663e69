"""How kernels are compiled, and how the machine's definitions get into them.

``jit`` compiles once, caches on disk and releases the interpreter lock; arithmetic is strict IEEE.
A kernel calls ``onsite.gradient(x)``, ``drive(…)``, ``residual(…)`` as NumPy code does: the plain
Python functions of ``thermoloom.machine`` are compiled into it, so no formula stands here again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.extending import overload_method, register_jitable

from thermoloom.machine import action, onsite


def _definitions() -> str:
    """Digest of the files whose functions are compiled into the kernels of other files.

    The cache on disk looks at a kernel's own file only: without this a changed potential would
    go on being the old one.
    """
    here = Path(__file__).parent
    shared = [here / f"{name}.py" for name in ("streams", "linear_algebra", "barrier")]
    files = [*(Path(str(module.__file__)) for module in (action, onsite)), *shared]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


DEFINITIONS = _definitions()


def compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles kernels, cached under a name that tells of their definitions."""
    decorate = njit(nogil=True, cache=True, error_model="numpy", **options)

    def compiled(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f".{DEFINITIONS}"
        return decorate(function)

    return compiled


jit = compiler()
inline = compiler(inline="always")
# Sums may be reordered, so that they run in vector registers; non-finite values still show.
fast_jit = compiler(fastmath={"reassoc", "contract", "nsz"})

drive = register_jitable(action.drive)
residual = register_jitable(action.residual)
step_terms = register_jitable(action.step_terms)


@overload_method(types.BaseNamedTuple, "gradient", strict=False)
def _gradient(self: Any, x: Any) -> Any:
    """``onsite.gradient(x)`` inside kernels: the method of the potential's own class."""
    return getattr(self.instance_class, "gradient", None)
