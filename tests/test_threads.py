"""Threads: all pieces done, in any number of threads, errors passed on, barriers that hold."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numba import njit

from thermoloom.engines.compiled.barrier import new_barrier, wait_for_all
from thermoloom.errors import UserError
from thermoloom.threads import (
    available_cores,
    breathe,
    in_threads,
    thread_count,
    threads,
    unit_ranges,
)


@njit(nogil=True)
def take_steps(thread, count, barrier, steps, seen):  # type: ignore[no-untyped-def]
    """In each step: write, wait, read what the others wrote, wait."""
    for step in range(1, steps + 1):
        seen[thread] = step
        wait_for_all(count, barrier)
        for other in range(count):
            if seen[other] != step:
                return step
        wait_for_all(count, barrier)
    return 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_thread_passes_a_barrier_alone(count: int) -> None:
    """More threads than cores too: those that wait give way."""
    barrier = new_barrier()
    seen = np.zeros(count, np.int64)
    with threads(count):
        wrong = in_threads(take_steps, [(t, count, barrier, 2000, seen) for t in range(count)])
    assert wrong == [0] * count


@pytest.mark.parametrize("count", [1, 2, 7])
def test_every_piece_is_done_once_and_in_place(count: int) -> None:
    with threads(count):
        assert in_threads(lambda a, b: a * b, [(i, 10) for i in range(50)]) == [
            10 * i for i in range(50)
        ]


def test_as_many_threads_as_asked_for() -> None:
    meeting = threading.Barrier(3, timeout=10)
    with threads(3):
        assert thread_count() == 3
        in_threads(lambda _: meeting.wait(), [(i,) for i in range(3)])


def test_an_error_in_a_piece_reaches_the_caller() -> None:
    def fail(i: int) -> None:
        if i == 3:
            raise ValueError("piece three")

    for count in (1, 2):
        with threads(count), pytest.raises(ValueError, match="piece three"):
            in_threads(fail, [(i,) for i in range(5)])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_after_an_error_no_further_piece_begins(count: int) -> None:
    """And it is raised only when the pieces that ran have ended."""
    begun, ended = [], []
    together = threading.Barrier(count, timeout=10)
    failed = threading.Event()

    def piece(i: int) -> None:
        begun.append(i)
        if i < count:
            together.wait()  # the first ones all run when one of them fails
        if i == 0:
            failed.set()
            raise ValueError("piece zero")
        failed.wait(10)
        time.sleep(0.1)
        ended.append(i)

    with threads(count), pytest.raises(ValueError, match="piece zero"):
        in_threads(piece, [(i,) for i in range(50)])
    assert sorted(begun) == list(range(count))
    assert sorted(ended) == list(range(1, count))


def test_a_long_piece_ends_where_it_breathes_after_another_has_failed() -> None:
    running = threading.Event()

    def piece(i: int) -> None:
        if i == 0:
            running.wait(10)
            raise ValueError("piece zero")
        running.set()
        for _ in range(1000):
            breathe()
            time.sleep(0.01)
        pytest.fail("went on to its end")

    with threads(2), pytest.raises(ValueError, match="piece zero"):
        in_threads(piece, [(0,), (1,)])


def test_nobody_waits_at_a_barrier_for_a_piece_that_failed() -> None:
    """One thread is in the kernel; the other fails before it gets there."""
    barrier, seen = new_barrier(), np.zeros(2, np.int64)
    take_steps(0, 1, new_barrier(), 1, seen)  # compiled

    def share(thread: int) -> None:
        if thread == 1:
            while barrier[0] == 0:  # the other waits already
                time.sleep(0.01)
            raise MemoryError
        take_steps(thread, 2, barrier, 10, seen)

    with threads(2), pytest.raises(MemoryError):
        in_threads(share, [(0,), (1,)], barrier)


def test_pieces_that_meet_at_a_barrier_have_a_thread_each() -> None:
    """Even if the threads were limited after the work was cut into pieces."""
    barrier, seen = new_barrier(), np.zeros(3, np.int64)
    with threads(1):
        shares = [(t, 3, barrier, 100, seen) for t in range(3)]
        assert in_threads(take_steps, shares, barrier) == [0, 0, 0]


@pytest.mark.parametrize(("units", "pieces"), [(10, 3), (2, 5), (1, 1), (1296, 2)])
def test_ranges_cover_everything_once(units: int, pieces: int) -> None:
    covered = [i for low, high in unit_ranges(units, pieces) for i in range(low, high)]
    assert covered == list(range(units))


@pytest.mark.parametrize("text", ["²", "99999999999", "eight", "0", "-1", "1.5", "1 2"])
def test_a_wrong_number_of_threads_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermoloom.threads._limit", None)  # whatever ran before in this process
    monkeypatch.setenv("THERMOLOOM_THREADS", text)
    with pytest.raises(UserError, match="THERMOLOOM_THREADS"):
        thread_count()


def test_a_right_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermoloom.threads._limit", None)
    monkeypatch.setenv("THERMOLOOM_THREADS", " 3 ")
    assert thread_count() == 3
    monkeypatch.setenv("THERMOLOOM_THREADS", "")
    assert thread_count() == available_cores()
