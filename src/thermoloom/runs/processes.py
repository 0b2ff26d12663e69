"""Tasks in local processes: tasks in, messages out, as lines of JSON over pipes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from thermoloom.runs.tasks import Outcome, Sweep, Task, execute, throttled
from thermoloom.threads import allow

RETRIES = 2
"""How often a task is tried again after its worker process has died."""


class _LocalWorker:
    """A child process that takes one task at a time: JSON lines in on stdin, out on a pipe.

    It is not a multiprocessing pool: a killed worker breaks the pool, or blocks the program if it
    holds the lock of the queue. Here a killed worker only closes its pipe.
    """

    def __init__(self, workdir: Path, thread_count: int) -> None:
        reader, writer = os.pipe()
        serve = f"from thermoloom.runs.processes import serve; serve({writer}, {thread_count})"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", serve],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            pass_fds=(writer,),
            env=_single_thread_environment(thread_count),
            process_group=0,  # a terminal's Ctrl-C goes to the coordinator, which then ends us
        )
        os.close(writer)
        self.reader = reader
        self.workdir = workdir
        self.task: Task | None = None
        self._buffer = b""

    def begin(self, task: Task) -> None:
        self.task = task
        self._say(task=asdict(task), workdir=str(self.workdir))

    def allow(self, thread_count: int) -> None:
        """Allow more threads for the current task; they never change its bits."""
        self._say(allow=thread_count)

    def _say(self, **order: Any) -> None:
        assert self.process.stdin is not None
        line = json.dumps(order) + "\n"
        with contextlib.suppress(BrokenPipeError):  # if it has died, its pipe will show it
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()

    def messages(self) -> list[dict[str, Any]] | None:
        """Messages since the last call; None once the worker is dead and all are read."""
        data = os.read(self.reader, 1 << 20)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """End the worker at once; files are written atomically, so none is damaged."""
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        os.close(self.reader)


def _has_descriptor(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False  # replaced by a notebook or a test


def _single_thread_environment(thread_count: int) -> dict[str, str]:
    """Environment of a worker; libraries read these limits when they are loaded."""
    libraries = ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMBA")
    limits = {f"{library}_NUM_THREADS": str(thread_count) for library in libraries}
    limits["VECLIB_MAXIMUM_THREADS"] = limits.pop("VECLIB_MAXIMUM_NUM_THREADS")
    limits["THERMOLOOM_THREADS"] = str(thread_count)
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return os.environ | limits | {"PYTHONPATH": search_path}


def serve(writer: int, thread_count: int) -> None:
    """Main loop of a local worker: read a task, run it, report it; end with the coordinator."""
    os.set_inheritable(writer, False)
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            order = json.loads(line)
            if "allow" in order:
                allow(order["allow"])
            else:
                tasks.put(order)
        os._exit(0)  # the coordinator has ended, for whatever reason

    threading.Thread(target=listen, daemon=True).start()

    def say(**message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

    while True:
        order = tasks.get()
        report = throttled(lambda *values: say(advanced=values))
        outcome = execute(Task(**order["task"]), Path(order["workdir"]), report, thread_count)
        say(outcome=asdict(outcome))


def run_in_processes(sweep: Sweep, tasks: Sequence[Task], workers: int) -> None:
    """Give tasks to workers as they become free, and replace workers that die."""
    waiting = deque(tasks)
    deaths = dict.fromkeys((task.name for task in tasks), 0)
    alive: dict[int, _LocalWorker] = {}
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(workers):
                _start_worker(sweep, waiting, alive, selector)
            while len(sweep.outcomes) < len(sweep.tasks):
                for key, _ in selector.select():
                    worker = alive[key.fd]
                    messages = worker.messages()
                    for message in messages or []:
                        _hear(sweep, worker, message, waiting)
                        if "outcome" in message and not waiting:
                            busy = [worker for worker in alive.values() if worker.task]
                            _share_cores(busy, workers * (sweep.threads or 1))
                    if messages is None:
                        selector.unregister(key.fd)
                        del alive[key.fd]
                        _bury(sweep, worker, waiting, deaths)
                        _start_worker(sweep, waiting, alive, selector)
        finally:
            for worker in alive.values():
                worker.process.terminate()  # all at once, then wait for each
            for worker in alive.values():
                worker.stop()


def _start_worker(
    sweep: Sweep,
    waiting: deque[Task],
    alive: dict[int, _LocalWorker],
    selector: selectors.BaseSelector,
) -> None:
    if waiting:
        worker = _LocalWorker(sweep.folder, sweep.threads or 1)
        alive[worker.reader] = worker
        selector.register(worker.reader, selectors.EVENT_READ)
        _give(sweep, worker, waiting)


def _share_cores(busy: Sequence[_LocalWorker], cores: int) -> None:
    """Share all cores among the busy workers once no task waits."""
    for worker in busy:
        worker.allow(cores // len(busy))


def _give(sweep: Sweep, worker: _LocalWorker, waiting: deque[Task]) -> None:
    worker.task = None
    if waiting:
        task = waiting.popleft()
        sweep.progress.started(task.name)
        worker.begin(task)


def _hear(
    sweep: Sweep, worker: _LocalWorker, message: dict[str, Any], waiting: deque[Task]
) -> None:
    assert worker.task is not None
    if "advanced" in message:
        sweep.progress.advanced(worker.task.name, *message["advanced"])
    else:
        sweep.end(worker.task, Outcome(**message["outcome"]))
        _give(sweep, worker, waiting)
        sweep.after()


def _bury(sweep: Sweep, worker: _LocalWorker, waiting: deque[Task], deaths: dict[str, int]) -> None:
    """Give the task of a dead worker to another one, a limited number of times."""
    worker.stop()
    task, code = worker.task, worker.process.returncode
    if task is None:
        return
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    deaths[task.name] += 1
    if deaths[task.name] <= RETRIES:
        sweep.progress.note(
            f"{task.name}: its worker process died ({how}); starting the task again"
        )
        waiting.appendleft(task)
    else:
        reason = f"its worker process died {deaths[task.name]} times (last: {how}); out of memory?"
        sweep.end(task, Outcome("failed", reason=reason))
