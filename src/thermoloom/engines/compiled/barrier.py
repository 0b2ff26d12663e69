"""A barrier inside kernels: threads that share one computation stay in step."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import Value, jit, llvm_code
from thermoloom.threads import ABORTED, in_threads, thread_count

T = TypeVar("T")


@llvm_code
def _atomic_add(builder: Any, array: Value, index: Value, increment: Value) -> Value:
    """array[index] += increment, atomically; returns the previous entry."""
    return builder.atomic_rmw("add", builder.gep(array, [index]), increment, "seq_cst")


@llvm_code
def _give_way(builder: Any, address: Value) -> None:
    """Yield this core to another thread."""
    routine = ir.FunctionType(ir.IntType(32), [])
    builder.call(builder.inttoptr(address, routine.as_pointer()), [])


def new_barrier() -> NDArray[np.int64]:
    """For ``wait_for_all``: threads waiting, times opened, address of the yield call, aborted."""
    return np.array([0, 0, _giving_way(), 0], np.int64)


@cache
def _giving_way() -> int:
    """Address of the system's yield call, cached because the lookup takes half a millisecond."""
    if sys.platform == "win32":
        routine = ctypes.WinDLL("kernel32").SwitchToThread
    else:
        routine = ctypes.CDLL(None).sched_yield
    return ctypes.cast(routine, ctypes.c_void_p).value or 0


PATIENCE = 2000
"""Polls of the barrier before a thread yields its core: a few microseconds."""


@jit
def wait_for_all(count, barrier):  # type: ignore[no-untyped-def]
    """Inside kernels: wait until ``count`` threads have arrived.

    Waits are short, so threads poll instead of sleeping; after ``PATIENCE`` polls they yield, for
    machines with fewer cores than threads. If a thread fails, ``in_threads`` sets the last entry of
    ``barrier``: all others pass, and their work is discarded.
    """
    if count == 1:
        return
    opened = _atomic_add(barrier, 1, 0)
    if _atomic_add(barrier, 0, 1) == count - 1:
        _atomic_add(barrier, 0, -count)
        _atomic_add(barrier, 1, 1)
        return
    polls = 0
    while _atomic_add(barrier, 1, 0) == opened:
        polls += 1
        if polls > PATIENCE:
            if _atomic_add(barrier, ABORTED, 0):
                return
            _give_way(barrier[2])


def in_step(kernel: Callable[..., T], most: int, *arguments: Any) -> list[T]:
    """``kernel(thread, threads, barrier, *arguments)`` on up to ``most`` threads at once."""
    count, barrier = min(thread_count(), most), new_barrier()
    pieces = [(thread, count, barrier, *arguments) for thread in range(count)]
    return in_threads(kernel, pieces, barrier)
