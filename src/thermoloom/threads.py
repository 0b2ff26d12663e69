"""How many threads a computation may use, and running pieces of it side by side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the libraries are listed)
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
    workers = min(thread_count(), len(work))
    with _linear_algebra_threads(1):
        if workers <= 1:
            return [function(*piece) for piece in work]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda piece: function(*piece), work))


def in_lockstep(pieces: Sequence[Generator[None, None, None]]) -> None:
    """Run generators side by side, each waiting at every ``yield`` for all others.

    They must yield equally often. Threads or turns, the order of what depends on what is the
    same, and so is the result.
    """
    with _linear_algebra_threads(1):
        if thread_count() < len(pieces):
            for _ in zip_longest(*pieces):
                pass
            return
        barrier = threading.Barrier(len(pieces))

        def run(piece: Generator[None, None, None]) -> None:
            try:
                for _ in piece:
                    barrier.wait()
            except BaseException:
                barrier.abort()  # the others would wait for ever
                raise

        with ThreadPoolExecutor(len(pieces) - 1) as pool:
            others = [pool.submit(run, piece) for piece in pieces[1:]]
            run(pieces[0])
            for other in others:
                other.result()


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
