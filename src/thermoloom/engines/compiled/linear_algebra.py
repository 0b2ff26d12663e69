"""BLAS inside compiled kernels: matrix products into existing memory.

    multiply(blas, α, A, B, β, C)     C ← α A B + β C

Kernels without the interpreter lock call the routines by address. Arrays are float32 views with
contiguous rows or columns; nothing is copied. NumPy's library is preferred, because SciPy's is
slower for flat matrices.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.linalg import cython_blas
from threadpoolctl import threadpool_info

from thermoloom.engines.compiled.compiling import inner


class Blas(NamedTuple):
    """Addresses of the BLAS routines."""

    sgemm: int


@cache
def blas() -> Blas:
    """The routines of NumPy's BLAS library if it exports them, else of SciPy's."""
    paths = [library["filepath"] for library in threadpool_info() if "numpy" in library["filepath"]]
    for path in paths:
        library = ctypes.CDLL(path)
        for form in ("scipy_{}_64_", "scipy_{}_", "{}_64_", "{}_"):
            try:
                routines = [getattr(library, form.format(name)) for name in Blas._fields]
            except AttributeError:
                continue
            return Blas(*(ctypes.cast(routine, ctypes.c_void_p).value or 0 for routine in routines))
    return Blas(*(_capsule_address(cython_blas.__pyx_capi__[name]) for name in Blas._fields))


def _capsule_address(capsule: Any) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return int(address)


@intrinsic
def _call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call a Fortran routine: numbers are passed by reference, addresses directly.

    ``arguments`` is a tuple: int64 numbers, float32 numbers, and addresses as uint64. Routines with
    32-bit integers read the lower half of a 64-bit number.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        kinds = signature.args[1].types
        passed = []
        for kind, value in zip(kinds, cgutils.unpack_tuple(builder, args[1]), strict=True):
            if kind == types.uint64:
                passed.append(value)
            else:
                slot = cgutils.alloca_once(builder, value.type)
                builder.store(value, slot)
                passed.append(builder.ptrtoint(slot, word))
        routine = ir.FunctionType(ir.VoidType(), [word] * len(passed))
        builder.call(builder.inttoptr(args[0], routine.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


_N, _T = ord("N"), ord("T")


@inner
def _layout(a):  # type: ignore[no-untyped-def]
    """Transposition flag of ``a`` for Fortran, which sees rows as columns; leading dimension."""
    if a.strides[1] == 4 and a.strides[0] >= 4 * a.shape[1]:  # false for a transposed column
        return _N, max(a.strides[0] // 4, 1)
    return _T, max(a.strides[1] // 4, 1)


@inner
def multiply(routines, alpha, a, b, beta, c):  # type: ignore[no-untyped-def]
    """C ← α A B + β C, in place; rows of C are contiguous."""
    if c.size == 0 or a.shape[1] == 0:  # BLAS takes no empty matrices
        if beta == 0:
            c[:] = 0
        return
    form_a, ld_a = _layout(a)
    form_b, ld_b = _layout(b)
    arguments = (
        np.int64(form_b),
        np.int64(form_a),
        np.int64(c.shape[1]),
        np.int64(c.shape[0]),
        np.int64(a.shape[1]),
        np.float32(alpha),
        np.uint64(b.ctypes.data),
        np.int64(ld_b),
        np.uint64(a.ctypes.data),
        np.int64(ld_a),
        np.float32(beta),
        np.uint64(c.ctypes.data),
        np.int64(max(c.strides[0] // 4, 1)),
    )
    _call(routines.sgemm, arguments)
