"""Threads: all pieces done, in any number of threads, errors passed on, barriers that hold."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import njit

from thermoloom.threads import (
    in_threads,
    new_barrier,
    thread_count,
    threads,
    unit_ranges,
    wait_for_all,
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


@pytest.mark.parametrize(("units", "pieces"), [(10, 3), (2, 5), (1, 1), (1296, 2)])
def test_ranges_cover_everything_once(units: int, pieces: int) -> None:
    covered = [i for low, high in unit_ranges(units, pieces) for i in range(low, high)]
    assert covered == list(range(units))
