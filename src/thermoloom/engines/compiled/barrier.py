"""A barrier inside kernels: threads that work on pieces of one computation keep in step."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import jit
from thermoloom.threads import ABORTED


@intrinsic
def _atomic_add(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] += value, seen by all threads; returns the value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), codegen


@intrinsic
def _give_way(typingctx: Any, address: Any) -> Any:
    """Let another thread have this core."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        routine = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(args[0], routine.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def new_barrier() -> NDArray[np.int64]:
    """For ``wait_for_all``: number waiting, times opened, how to give way, whether aborted."""
    return np.array([0, 0, _giving_way(), 0], np.int64)


@cache
def _giving_way() -> int:
    """Where the system's routine is; looking for it takes half a millisecond, so once."""
    if sys.platform == "win32":
        routine = ctypes.WinDLL("kernel32").SwitchToThread
    else:
        routine = ctypes.CDLL(None).sched_yield
    return ctypes.cast(routine, ctypes.c_void_p).value or 0


PATIENCE = 2000
"""Looks at the barrier before a thread gives way: a few microseconds."""


@jit
def wait_for_all(count, barrier):  # type: ignore[no-untyped-def]
    """Inside kernels: wait until ``count`` threads are here.

    It is short waiting that this is for, so it does not sleep; but where cores are fewer than
    threads that want them, it gives way. Nobody waits for one who will not come: if a piece has
    failed, ``in_threads`` sets the last entry of ``barrier``, all pass, and the work is discarded.
    """
    if count == 1:
        return
    opened = _atomic_add(barrier, 1, 0)
    if _atomic_add(barrier, 0, 1) == count - 1:
        _atomic_add(barrier, 0, -count)
        _atomic_add(barrier, 1, 1)
        return
    looks = 0
    while _atomic_add(barrier, 1, 0) == opened:
        looks += 1
        if looks > PATIENCE:
            if _atomic_add(barrier, ABORTED, 0):
                return
            _give_way(barrier[2])
