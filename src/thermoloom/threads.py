"""Threads: how many a computation may use, and parallel execution of its pieces."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from thermoloom.errors import UserError
from thermoloom.inputs import shown
from thermoloom.interrupts import interrupts_deferred

T = TypeVar("T")
ABORTED = 3
"""Entry of a barrier (``engines.compiled.barrier``) that lets all pieces pass after a failure."""
MOST_THREADS = 1024
"""Largest value of ``THERMOLOOM_THREADS``."""
_limit: int | None = None
_allowed = 0


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Threads in use: ``THERMOLOOM_THREADS`` if set, else the cores of this process."""
    if _limit is not None:
        return max(_limit, _allowed)
    wanted = os.environ.get("THERMOLOOM_THREADS", "").strip()
    if not wanted:
        return available_cores()
    if not (wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:6]) <= MOST_THREADS):
        raise UserError(
            f"THERMOLOOM_THREADS = {shown(wanted)}: must be a number from 1 to {MOST_THREADS}"
        )
    return int(wanted)


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


def allow(count: int) -> None:
    """Raise the limit of all blocks of ``threads`` to at least ``count``: cores have become free.

    The next computation uses the new limit; the linear algebra libraries keep theirs.
    """
    global _allowed
    _allowed = count


class _GivenUp(BaseException):
    """Another piece has failed, so this one stops."""


def in_threads(
    function: Callable[..., T],
    pieces: Iterable[tuple[Any, ...]],
    barrier: NDArray[np.int64] | None = None,
) -> list[T]:
    """``[function(*piece) for piece in pieces]``, in parallel where there are threads.

    ``function`` must release the interpreter lock (compiled kernels, BLAS). Linear algebra within a
    piece is always single-threaded, so that its result does not depend on the number of threads.
    Pieces that meet at a ``barrier`` always have a thread each.

    After an exception no further piece begins; the exception is raised once the running pieces have
    ended. Interrupts take effect between pieces, and in long pieces wherever they ``breathe``.
    """
    work = list(pieces)
    results: list[Any] = [None] * len(work)
    waiting = iter(range(len(work)))
    errors: list[BaseException] = []

    def give_up(error: BaseException) -> None:
        errors.append(error)
        if barrier is not None:
            barrier[ABORTED] = 1

    def take_turns(honour: Callable[[], None]) -> None:
        def check() -> None:
            honour()
            if errors:
                raise _GivenUp

        outside, _here.check = getattr(_here, "check", _nothing), check
        try:
            for index in waiting:
                check()
                results[index] = function(*work[index])
        except BaseException as error:
            give_up(error)
        finally:
            _here.check = outside

    with interrupts_deferred() as honour, _linear_algebra_threads(1):
        count = min(thread_count(), len(work)) if barrier is None else len(work)
        helpers: list[Future[None]] = []
        try:
            helpers += (_pool().submit(take_turns, _nothing) for _ in range(count - 1))
            take_turns(honour)  # the caller is one of the threads
            while not errors and wait(helpers, timeout=0.05).not_done:
                honour()
        except BaseException as error:
            give_up(error)
        wait(helpers)
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # a traceback holds this frame, and with it all arrays
    return results


_here = threading.local()


def breathe() -> None:
    """End a long piece at this point if another piece has failed or a signal has arrived."""
    getattr(_here, "check", _nothing)()


def _nothing() -> None:
    pass


@cache
def _pool() -> ThreadPoolExecutor:
    """Pool of waiting threads, because starting a thread can take milliseconds.

    It has no practical limit: a queued piece would keep the others at their barrier.
    """
    return ThreadPoolExecutor(max_workers=1 << 16, thread_name_prefix="thermoloom")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def unit_ranges(units: int, pieces: int) -> list[tuple[int, int]]:
    """``units`` cut into at most ``pieces`` ranges (low, high) of nearly equal size."""
    edges = [units * piece // max(pieces, 1) for piece in range(pieces + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]


def _linear_algebra_threads(count: int) -> Any:
    return _controller().limit(limits=count, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    """The linear algebra libraries of this process, listed once because it takes a millisecond."""
    import_module("scipy.linalg")  # its BLAS must be loaded before the libraries are listed
    return ThreadpoolController()
