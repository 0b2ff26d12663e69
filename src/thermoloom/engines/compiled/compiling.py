"""Compilation of kernels, and the machine's formulas inside them.

``jit`` compiles once, caches on disk and releases the interpreter lock; arithmetic is strict IEEE.
Kernels that only kernels call are ``inner``, or ``loops`` if they loop over rows of numbers; a
kernel that mainly calls others is a ``frame``. Kernels call ``onsite.gradient(x)``, ``drive(…)``,
``residual(…)`` and others as NumPy code does: the Python functions of ``thermoloom.machine`` are
compiled into them, so every formula is written once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import platformdirs
from numba import config, njit, types
from numba.core import cgutils
from numba.core.event import Event, Listener, register
from numba.extending import intrinsic, overload, overload_method, register_jitable

from thermoloom import machine
from thermoloom.errors import UserError
from thermoloom.machine import action
from thermoloom.threads import COMPILING

if config.DISABLE_JIT:
    raise UserError(
        "NUMBA_DISABLE_JIT = 1: the kernels would take hours in plain Python; unset it, or use "
        "the portable engine"
    )


def _kernels_of_these_sources() -> str:
    """Cache folder of compiled kernels, one for each version of their sources.

    Numba recompiles a cached kernel when its file changes, but not when code in other files does.
    A user's own ``NUMBA_CACHE_DIR`` also has one such folder for each version.
    """
    parent = os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_path("thermoloom")
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(machine.__file__).parent):
        for source in sorted(folder.glob("*.py")):
            digest.update(source.read_bytes())
    return str(Path(parent) / f"kernels-{digest.hexdigest()[:16]}")


config.CACHE_DIR = _kernels_of_these_sources()


def compiler(lightly: bool = False, in_vectors: bool = True, **options: Any) -> Any:
    """A decorator that compiles kernels.

    ``lightly``: with fewer optimizations; ``in_vectors``: with loops in vector registers. Both
    apply to the kernel itself, not inside kernels that call it.
    """
    compiled = njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)

    def decorate(function: Any) -> Any:
        function.lightly, function.in_vectors = lightly, in_vectors
        return _without_foreign_kernels(compiled(function))

    return decorate


def _without_foreign_kernels(kernel: Any) -> Any:
    """The kernel, whose versions for potentials from outside the package are not cached on disk.

    The index on disk names types by their modules: without the user's module it is unreadable.
    """
    cache = kernel._cache
    save = cache.save_overload
    cache.save_overload = lambda sig, data: None if any(map(_is_foreign, sig)) else save(sig, data)
    return kernel


def _is_foreign(kind: Any) -> bool:
    """Whether a type is, or contains, a named tuple of a module outside the package."""
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
# LLVM optimizes a kernel again inside every kernel that calls it, and repeated work on loops that
# are already unrolled and vectorized takes a third of the compilation time. Kernels that call
# others, or are called by them, are therefore optimized lightly. Of these only the ones that loop
# over rows of numbers are vectorized, because their callers would not vectorize them.
frame = compiler(lightly=True, in_vectors=False)
# Kernels that only kernels call have no Python wrapper: for tuples of arrays the wrapper takes
# longer to compile than the kernel.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True}
inner = compiler(lightly=True, in_vectors=False, **_INNER)
loops = compiler(lightly=True, **_INNER)
fast_loops = compiler(lightly=True, **_FAST, **_INNER)


class _Lightly(Listener):  # type: ignore[misc]
    """Sets the optimization level for each kernel, and announces that kernels are compiling."""

    def __init__(self) -> None:
        self._defaults: list[tuple[Any, int]] = []

    def on_start(self, event: Event) -> None:
        COMPILING.set()
        kernel = event.data["dispatcher"].py_func
        self._defaults.append((config.OPT, config.LOOP_VECTORIZE))
        if kernel.__module__.startswith(__package__):
            level, vectors = self._defaults[0]
            config.OPT = min(level, type(level)(1)) if getattr(kernel, "lightly", False) else level
            config.LOOP_VECTORIZE = vectors if getattr(kernel, "in_vectors", True) else 0

    def on_end(self, event: Event) -> None:
        config.OPT, config.LOOP_VECTORIZE = self._defaults.pop()
        if not self._defaults:
            COMPILING.clear()


register("numba:compile", _Lightly())


@inline
def copy(source, out):  # type: ignore[no-untyped-def]
    """out ← source, a row of numbers, in kernels.

    ``out[:] = source`` compiles an error message about unequal shapes, and with it strings, into
    every kernel: a third of the compilation time.
    """
    for i in range(out.size):
        out[i] = source[i]


Value = Any
"""A value in LLVM code."""


def llvm_code(emit: Callable[..., Value]) -> Any:
    """A function for kernels whose LLVM code is written by ``emit(builder, *arguments)``.

    Arrays arrive as pointers to their first number, named tuples as lists; other arguments are
    indices of 64 bits or float32. What ``emit`` returns is an index.
    """

    @wraps(emit)
    def typing(typingctx: Any, *kinds: Any) -> Any:
        expected = [_expected(kind) for kind in kinds]
        result = types.int64 if emit.__annotations__["return"] == "Value" else types.void

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = []
            for kind, argument in zip(signature.args, arguments, strict=True):
                if isinstance(kind, types.Array):
                    values.append(context.make_array(kind)(context, builder, argument).data)
                elif isinstance(kind, types.BaseTuple):
                    values.append(cgutils.unpack_tuple(builder, argument, kind.count))
                else:
                    values.append(argument)
            returned = emit(builder, *values)
            return context.get_dummy_value() if returned is None else returned

        return result(*expected), codegen

    return intrinsic(typing)


def _expected(kind: Any) -> Any:
    """The type to which an argument is converted."""
    if isinstance(kind, types.Integer):
        return types.int64
    return types.float32 if isinstance(kind, types.Float) else kind


drive = register_jitable(action.drive)
residual = register_jitable(action.residual)
displacement = register_jitable(action.displacement)
pair_update = register_jitable(action.pair_update)


def of_unit(constants: Any, i: int) -> Any:
    """Constants of unit i inside kernels, from numbers or, where units differ, arrays (N,)."""


@overload(of_unit, strict=False)
def _of_unit(constants: Any, i: Any) -> Any:
    if isinstance(constants, types.Array):
        return lambda constants, i: constants[i]
    if not _differ(constants):
        return lambda constants, i: constants
    entries = ", ".join(f"of_unit(constants[{n}], i)" for n in range(len(constants)))
    names = {"of_unit": of_unit, "kind": constants.instance_class, "__name__": __name__}
    exec(f"def unit(constants, i): return kind({entries})", names)
    return names["unit"]


def _differ(kind: Any) -> bool:
    """Whether a type is, or contains, an array."""
    inside = kind.types if isinstance(kind, types.BaseTuple) else ()
    return isinstance(kind, types.Array) or any(map(_differ, inside))


@overload_method(types.BaseNamedTuple, "gradient", strict=False)
def _gradient(self: Any, x: Any) -> Any:
    """``onsite.gradient(x)`` inside kernels: the method of the potential's class."""
    return getattr(self.instance_class, "gradient", None)
