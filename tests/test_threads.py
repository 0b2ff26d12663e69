"""Threads: all pieces done, in any number of threads, errors passed on, barriers that hold."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import njit
from threadpoolctl import threadpool_info

import thermoloom as tl
from thermoloom.engines.compiled.barrier import new_barrier, wait_for_all
from thermoloom.errors import UserError, warnings_become
from thermoloom.threads import (
    available_cores,
    breathe,
    in_threads,
    linear_algebra,
    process_threads,
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
    monkeypatch.setenv("THERMOLOOM_THREADS", text)
    with pytest.raises(UserError, match="THERMOLOOM_THREADS"):
        thread_count()


def test_a_right_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_THREADS", " 3 ")
    assert thread_count() == 3
    monkeypatch.setenv("THERMOLOOM_THREADS", "")
    assert thread_count() == available_cores()


# --- turns ----------------------------------------------------------------------------------------


def limits() -> tuple[int, list[int]]:
    """Our threads, and those of every linear algebra library."""
    blas = [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]
    return thread_count(), blas


def test_concurrent_calls_give_the_bits_of_calls_in_turn_and_leave_the_process_as_it_was() -> None:
    """At this size, another number of threads in linear algebra gives other bits."""
    images = np.random.default_rng(0).random((6, 10, 10))
    machine = tl.Machine(visible=100, hidden=30, duration=0.02)
    computer = machine.solve(images)
    kinds: tuple[Callable[[int], bytes], ...] = (
        lambda seed: machine.solve(images).parameters.vector.tobytes(),
        lambda seed: computer.generate(12, seed=seed).heat.tobytes(),
        lambda seed: machine.train(images, cycles=1, seed=seed).parameters.vector.tobytes(),
        lambda seed: np.float64(computer.distance_from_optimum()).tobytes(),
        lambda seed: computer.generate(4, seed=seed).states.tobytes(),
    )
    calls = [(kinds[number % 5], number // 5) for number in range(50)]
    before = limits()
    in_turn = [function(seed) for function, seed in calls]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda each: each[0](each[1]), calls))
    assert together == in_turn
    assert limits() == before


def test_overlapping_blocks_leave_the_filters_of_warnings_as_they_were() -> None:
    before, inside, left = list(warnings.filters), threading.Event(), threading.Event()

    def later() -> None:
        with warnings_become("ignore", FutureWarning):
            inside.set()
            left.wait(10)

    with ThreadPoolExecutor(1) as pool:
        with warnings_become("error", FutureWarning):
            other = pool.submit(later)
            inside.wait(0.5)  # in vain, as it waits for this block
        left.set()
        other.result()
    assert warnings.filters == before


def test_a_block_alone_waits_for_those_that_share_and_goes_before_later_ones() -> None:
    order: list[str] = []
    inside, wanted = threading.Event(), threading.Event()

    def share() -> None:
        with threads(1):
            inside.set()
            wanted.wait(10)
            time.sleep(0.2)  # the others wait meanwhile
            order.append("shared")

    def alone() -> None:
        with linear_algebra(), threads(1), linear_algebra():
            order.append("alone")

    def late() -> None:
        with threads(1):
            order.append("late")

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(share)]
        assert inside.wait(10)
        waiting.append(pool.submit(alone))
        time.sleep(0.1)
        waiting.append(pool.submit(late))
        wanted.set()
        for each in waiting:
            each.result(10)
    assert order == ["shared", "alone", "late"]


def test_blocks_with_one_thread_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)
    before = limits()

    def meet(_: int) -> tuple[int, list[int]]:
        with threads(1):
            meeting.wait()
            return limits()

    with ThreadPoolExecutor(2) as pool:
        assert all(count == 1 and set(blas) == {1} for count, blas in pool.map(meet, range(2)))
    assert limits() == before


def test_a_limit_of_the_process_holds_for_all_of_its_threads() -> None:
    before = limits()
    with process_threads(1), ThreadPoolExecutor(1) as pool:
        count, blas = pool.submit(limits).result()
        assert count == 1
        assert set(blas) == {1}
        with threads(2):
            assert limits()[0] == 2
    assert limits() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_need_not_wait_for_threads_that_it_does_not_have() -> None:
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with linear_algebra(), threads(1):
            begun.set()
            over.wait(20)

    before, holder = limits(), threading.Thread(target=hold)
    holder.start()
    begun.wait(10)
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # it would hang
        with linear_algebra():
            os._exit(0 if limits() == before else 1)
    _, status = os.waitpid(pid, 0)
    over.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert limits() == before


def test_an_interrupt_ends_waiting_and_the_next_block_begins() -> None:
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with linear_algebra():
            begun.set()
            over.wait(20)

    before, holder = limits(), threading.Thread(target=hold)
    holder.start()
    begun.wait(10)
    main = threading.main_thread().ident
    assert main is not None
    signalling = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    signalling.start()
    with pytest.raises(KeyboardInterrupt), linear_algebra():
        pytest.fail("did not wait")
    signalling.join()
    over.set()
    holder.join()
    with linear_algebra():
        assert limits() == before
