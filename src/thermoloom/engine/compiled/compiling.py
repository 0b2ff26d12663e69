"""How kernels are compiled, and how the machine's definitions get into them.

``jit`` compiles once, caches on disk and releases the interpreter lock; arithmetic is strict IEEE.
What only kernels call (``inner``) is optimized where it is called from, and hardly before, unless
it goes over rows of numbers (``loops``).
A kernel calls ``onsite.gradient(x)``, ``drive(…)``, ``residual(…)`` as NumPy code does: the plain
Python functions of ``thermoloom.machine`` are compiled into it, so no formula is written twice.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import platformdirs
from numba import config, njit, types
from numba.core.event import Event, Listener, register
from numba.extending import overload_method, register_jitable

from thermoloom import machine
from thermoloom.machine import action


def _kernels_of_these_sources() -> str:
    """Where compiled kernels are kept: a folder for each state of the sources they come from.

    Numba compiles a cached kernel anew when its own file changes, but not when one of the files
    that it calls does: it would go on with a formula that is no longer there.
    """
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(machine.__file__).parent):
        for source in sorted(folder.glob("*.py")):
            digest.update(source.read_bytes())
    return str(platformdirs.user_cache_path("thermoloom") / f"kernels-{digest.hexdigest()[:16]}")


if "NUMBA_CACHE_DIR" not in os.environ:
    config.CACHE_DIR = _kernels_of_these_sources()


def compiler(**options: Any) -> Any:
    """A decorator that compiles kernels."""
    return njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)


jit = compiler()
inline = compiler(inline="always")
# Sums may be reordered, so that they run in vector registers; non-finite values still show.
_FAST = {"fastmath": {"reassoc", "contract", "nsz"}}
fast_jit = compiler(**_FAST)
# Called by other kernels only: without the code by which Python would call them, which takes longer
# to compile than they do where their arguments are tuples of arrays.
_INNER = {"no_cpython_wrapper": True}
inner = compiler(**_INNER)
_of_loops: set[Any] = set()


def _loops(**options: Any) -> Any:
    """Inner kernels that go over rows of numbers: optimized by themselves, so in vectors."""
    compiled = compiler(**options, **_INNER)

    def decorate(function: Any) -> Any:
        _of_loops.add(function)
        return compiled(function)

    return decorate


loops = _loops()
fast_loops = _loops(**_FAST)


class _InnerLightly(Listener):  # type: ignore[misc]
    """Other inner kernels with few optimizations.

    LLVM optimizes a kernel again in every kernel that calls it, at every level, and takes loops
    that are unrolled and in vectors already for many: a third of all time of compilation. But what
    was compiled lightly is not put into vectors any more, where it is called from.
    """

    def __init__(self) -> None:
        self._usual: list[tuple[Any, int]] = []

    def on_start(self, event: Event) -> None:
        kernel = event.data["dispatcher"]
        self._usual.append((config.OPT, config.LOOP_VECTORIZE))
        if kernel.py_func.__module__.startswith(__package__):
            level, vectors = self._usual[0]
            inside = "no_cpython_wrapper" in kernel.targetoptions
            inside &= kernel.py_func not in _of_loops
            config.OPT = min(level, type(level)(1)) if inside else level
            config.LOOP_VECTORIZE = 0 if inside else vectors

    def on_end(self, event: Event) -> None:
        config.OPT, config.LOOP_VECTORIZE = self._usual.pop()


register("numba:compile", _InnerLightly())


@inline
def copy(source, out):  # type: ignore[no-untyped-def]
    """out ← source, a row of numbers, in kernels.

    ``out[:] = source`` would bring a message about unequal shapes into every kernel, and with it
    strings: a third of all time of compilation.
    """
    for i in range(out.size):
        out[i] = source[i]


drive = register_jitable(action.drive)
residual = register_jitable(action.residual)
step_terms = register_jitable(action.step_terms)


@overload_method(types.BaseNamedTuple, "gradient", strict=False)
def _gradient(self: Any, x: Any) -> Any:
    """``onsite.gradient(x)`` inside kernels: the method of the potential's own class."""
    return getattr(self.instance_class, "gradient", None)
