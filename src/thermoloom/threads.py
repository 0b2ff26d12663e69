"""How many threads a computation may use, and running pieces of it side by side."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the libraries are listed)
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_limit: int | None = None


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Threads in use: ``THERMOLOOM_THREADS`` if set, else the cores of this process."""
    if _limit is not None:
        return _limit
    wanted = os.environ.get("THERMOLOOM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else available_cores()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit our threads and those of the linear algebra libraries within a block."""
    global _limit
    before, _limit = _limit, count
    try:
        with _linear_algebra_threads(count):
            yield
    finally:
        _limit = before


def in_threads(function: Callable[..., T], pieces: Iterable[tuple[Any, ...]]) -> list[T]:
    """``[function(*piece) for piece in pieces]``, side by side where threads are to be had.

    ``function`` must spend its time without the interpreter lock (compiled kernels, BLAS). Each
    piece has single-threaded linear algebra, whatever the threads, so that its result is the same.
    """
    work = list(pieces)
    results: list[Any] = [None] * len(work)
    waiting = iter(range(len(work)))

    def take_turns() -> None:
        for index in waiting:
            results[index] = function(*work[index])

    with _linear_algebra_threads(1):
        others = min(thread_count(), len(work)) - 1
        helpers = [_pool().submit(take_turns) for _ in range(others)]
        try:
            take_turns()  # the caller is one of the threads
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
    return results


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that wait for work: starting one anew can take milliseconds."""
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="thermoloom")


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


def yield_address() -> int:
    """Address of the function by which a waiting thread gives up its core for a while."""
    routine = ctypes.CDLL(None).sched_yield
    return ctypes.cast(routine, ctypes.c_void_p).value or 0


PATIENCE = 2000
"""Looks at the barrier before a thread gives way: a few microseconds."""


@njit(nogil=True, cache=True)
def wait_for_all(count, barrier):  # type: ignore[no-untyped-def]
    """Inside kernels: wait until ``count`` threads are here.

    ``barrier`` (int64) holds the number of those waiting, how often it opened, and
    ``yield_address()``. It is short waiting that this is for, so it does not sleep; but where cores
    are fewer than threads that want them, it gives way.
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
            _give_way(barrier[2])


def unit_ranges(units: int, pieces: int) -> list[tuple[int, int]]:
    """``units`` cut into at most ``pieces`` ranges (low, high) of nearly equal size."""
    edges = [units * piece // pieces for piece in range(pieces + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]


def _linear_algebra_threads(count: int) -> Any:
    return _controller().limit(limits=count, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    """The linear algebra libraries of this process; listing them takes a millisecond, so once."""
    return ThreadpoolController()
