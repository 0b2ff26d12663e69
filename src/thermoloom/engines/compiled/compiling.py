"""How kernels are compiled, and how the machine's definitions get into them.

``jit`` compiles once, caches on disk and releases the interpreter lock; arithmetic is strict IEEE.
Kernels that only kernels call are ``inner``, or ``loops`` if they go over rows of numbers; one that
puts others together is a ``frame``.
A kernel calls ``onsite.gradient(x)``, ``drive(…)``, ``residual(…)`` as NumPy code does: the plain
Python functions of ``thermoloom.machine`` are compiled into it, so no formula is written twice.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

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


class _How(NamedTuple):
    """How much a kernel is optimized by itself."""

    lightly: bool = False
    in_vectors: bool = True


_ways: dict[Any, _How] = {}
"""Kernels that are not optimized as usual."""


def compiler(how: _How | None = None, **options: Any) -> Any:
    """A decorator that compiles kernels."""
    compiled = njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)

    def decorate(function: Any) -> Any:
        if how is not None:
            _ways[function] = how
        return _without_foreign_kernels(compiled(function))

    return decorate


def _without_foreign_kernels(kernel: Any) -> Any:
    """The kernel, which does not keep on disk what it is for potentials defined elsewhere.

    An index on disk knows types by their modules: without the user's module nobody could read it.
    """
    cache = kernel._cache
    save = cache.save_overload
    cache.save_overload = lambda sig, data: None if any(map(_is_foreign, sig)) else save(sig, data)
    return kernel


def _is_foreign(kind: Any) -> bool:
    """Whether a type is, or holds, a named tuple of a module outside the package."""
    if isinstance(kind, types.BaseNamedTuple):
        package = machine.__name__.partition(".")[0]
        if kind.instance_class.__module__.partition(".")[0] != package:
            return True
    return isinstance(kind, types.BaseTuple) and any(map(_is_foreign, kind.types))


jit = compiler()
inline = compiler(inline="always")
# Sums may be reordered, so that they run in vector registers; non-finite values still show.
_FAST: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}}
fast_jit = compiler(**_FAST)
# LLVM optimizes a kernel again in every kernel that calls it, at every level, and takes loops that
# are unrolled and in vectors already for many: a third of all time of compilation. So kernels that
# call others, or are called by them, are optimized lightly; and of these only those that go over
# rows of numbers are put into vectors, which their callers would not do any more.
frame = compiler(_How(lightly=True, in_vectors=False))
# Called by other kernels only: without the code by which Python would call them, which takes longer
# to compile than they do where their arguments are tuples of arrays.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True}
inner = compiler(_How(lightly=True, in_vectors=False), **_INNER)
loops = compiler(_How(lightly=True), **_INNER)
fast_loops = compiler(_How(lightly=True), **_FAST, **_INNER)


class _Lightly(Listener):  # type: ignore[misc]
    """Sets the compiler for each kernel."""

    def __init__(self) -> None:
        self._usual: list[tuple[Any, int]] = []

    def on_start(self, event: Event) -> None:
        kernel = event.data["dispatcher"].py_func
        self._usual.append((config.OPT, config.LOOP_VECTORIZE))
        if kernel.__module__.startswith(__package__):
            level, vectors = self._usual[0]
            how = _ways.get(kernel, _How())
            config.OPT = min(level, type(level)(1)) if how.lightly else level
            config.LOOP_VECTORIZE = vectors if how.in_vectors else 0

    def on_end(self, event: Event) -> None:
        config.OPT, config.LOOP_VECTORIZE = self._usual.pop()


register("numba:compile", _Lightly())


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
