"""Threads: how many a computation may use, and parallel execution of its pieces.

The number of threads of the linear algebra libraries changes the last bits of results, and it is
one number for the whole process. A computation that depends on it is therefore a block:

    in_threads(...), threads(1)             one thread; such blocks run side by side
    linear_algebra(), threads(n)            all threads, or n; such a block runs alone

Blocks of other threads wait for their turn. A block inside another one never waits, and linear
algebra that has one thread keeps it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
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
"""Entry of a barrier (``engines.compiled.barrier``) that is 1 after a failure: all pieces pass."""
COMPILING = threading.Event()
"""Set while an engine compiles kernels, which takes a minute the first time."""
MOST_THREADS = 1024
"""Largest value of ``THERMOLOOM_THREADS``."""
_process_limit: int | None = None
_allowed = 0


class _Here(threading.local):
    """State of the current thread."""

    limit: int | None = None
    """Limit of the enclosing block of ``threads``; None outside."""
    linear_algebra: int | None = None
    """Threads of linear algebra in the enclosing block, 0 for the process's; None outside."""
    alone: bool = False
    """Whether no other thread is in a block."""

    @staticmethod
    def check() -> None:
        """End the piece at this point if its result is no longer needed."""


_here = _Here()


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Threads in use: ``THERMOLOOM_THREADS`` if set, else the cores of this process."""
    limit = _process_limit if _here.limit is None else _here.limit
    if limit is not None:
        return max(limit, _allowed)
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
    """Limit the threads of the package and of the linear algebra libraries within a block."""
    before = _here.limit
    with _linear_algebra_threads(count):
        _here.limit = count
        try:
            yield
        finally:
            _here.limit = before


@contextmanager
def process_threads(count: int) -> Iterator[None]:
    """Limit all threads of this process that are in no block of ``threads``."""
    global _process_limit
    with _linear_algebra_threads(0):
        before, _process_limit = _process_limit, count
        with _control() as libraries:
            limited = libraries.limit(limits=count, user_api="blas")
    try:
        yield
    finally:
        _process_limit = before
        with _linear_algebra_threads(0), _control():
            limited.restore_original_limits()


@contextmanager
def linear_algebra() -> Iterator[None]:
    """A block in which no other thread changes the threads of linear algebra; also a decorator."""
    with _linear_algebra_threads(0):
        yield


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

        outside, here = dict(vars(_here)), vars(_here)
        here.update(caller, check=check)
        try:
            for index in waiting:
                check()
                results[index] = function(*work[index])
        except BaseException as error:
            give_up(error)
        finally:
            here.clear()
            here.update(outside)

    with interrupts_deferred() as honour, _linear_algebra_threads(1, honour):
        caller = dict(vars(_here))
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


def breathe() -> None:
    """End a long piece at this point if another piece has failed or a signal has arrived."""
    _here.check()


def _nothing() -> None:
    pass


@cache
def _pool() -> ThreadPoolExecutor:
    """Pool of waiting threads, because starting a thread can take milliseconds.

    It has no practical limit: a queued piece would keep the others at their barrier.
    """
    return ThreadPoolExecutor(max_workers=1 << 16, thread_name_prefix="thermoloom")


def unit_ranges(units: int, pieces: int) -> list[tuple[int, int]]:
    """``units`` cut into at most ``pieces`` ranges (low, high) of nearly equal size."""
    edges = [units * piece // max(pieces, 1) for piece in range(pieces + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]


# --- turns ----------------------------------------------------------------------------------------


class _Turns:
    """Whose turn it is: any number of blocks share one thread of linear algebra, or one is alone.

    A block that must be alone goes before blocks that share, which could otherwise keep it waiting
    forever.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._sharing, self._alone, self._waiting = 0, False, 0
        self._limits: list[Any] = []  # to be lifted, the last one first

    def begin(self, count: int, honour: Callable[[], None]) -> None:
        """Wait for the turn of a block; meanwhile ``honour()`` may raise an interrupt."""
        _here.alone = alone = count != 1
        with self._changed:
            self._waiting += alone
        try:
            while not self._begins(alone):
                honour()
        finally:
            with self._changed:
                self._waiting -= alone
                self._changed.notify_all()
        if alone and count:
            self.limit(count)

    def _begins(self, alone: bool) -> bool:
        with self._changed:
            if self._alone or (self._sharing if alone else self._waiting):
                self._changed.wait(timeout=0.05)
                return False
            if not alone and not self._sharing:
                self.limit(1)
            self._sharing, self._alone = self._sharing + (not alone), alone
            return True

    def end(self, count: int) -> None:
        """End the turn of the block."""
        with self._changed:
            alone = self._alone
            self._sharing, self._alone = self._sharing - (not alone), False
            if count if alone else not self._sharing:
                self.lift()
            self._changed.notify_all()

    def limit(self, count: int) -> None:
        with _control() as libraries:
            self._limits.append(libraries.limit(limits=count, user_api="blas"))

    def lift(self) -> None:
        with _control():
            self._limits.pop().restore_original_limits()

    def forked(self) -> None:
        """In the child of a fork, which has no other thread than this one."""
        limits, inside = self._limits, _here.linear_algebra is not None
        self.__init__()  # type: ignore[misc]  # the lock may have been held by another thread
        self._limits = limits
        self._alone, self._sharing = inside and _here.alone, int(inside and not _here.alone)
        while limits and not inside:
            self.lift()


_turns = _Turns()


@contextmanager
def _linear_algebra_threads(count: int, honour: Callable[[], None] | None = None) -> Iterator[None]:
    """A block with this number of threads of linear algebra; 0: the limit of the process.

    ``honour``: raises an interrupt, where the caller defers them.
    """
    outside = _here.linear_algebra
    if outside == 1 or (outside is not None and count in (0, outside)):
        yield
        return
    count, begun = count or _process_limit or 0, False
    try:
        with interrupts_deferred() if honour is None else nullcontext(honour) as wanted:
            if outside is None:
                _turns.begin(count, wanted)
            else:
                _turns.limit(count)
            _here.linear_algebra, begun = count, True
        yield
    finally:
        if begun:
            with interrupts_deferred():
                _here.linear_algebra = outside
                if outside is None:
                    _turns.end(count)
                else:
                    _turns.lift()


def _forked() -> None:
    _turns.forked()
    _pool.cache_clear()  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def _control() -> Iterator[ThreadpoolController]:
    """The linear algebra libraries, to set their threads.

    Since version 3.7, threadpoolctl lets only one thread set them and silently ignores all others.
    """
    libraries = _controller()

    def anyone() -> None:
        for library in libraries.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    anyone()
    try:
        yield libraries
    finally:
        anyone()


@cache
def _controller() -> ThreadpoolController:
    """The linear algebra libraries of this process, listed once because it takes a millisecond."""
    import_module("scipy.linalg")  # its BLAS must be loaded before the libraries are listed
    return ThreadpoolController()
