"""Where tasks run: in this process, in local processes, or on a Dask cluster.

A task is the name of a function and JSON arguments. The function is called as

    function(workdir, report, **arguments) -> dict of JSON values

writes its run directories under ``workdir`` and does nothing twice: a run that is done there is
returned at once (``store.finished_results``), a run that was interrupted is continued. So whatever
is killed, the same command again goes on where it was.

    run_tasks ──▶ here                       one task, or one worker
              ├─▶ local processes            tasks in, messages out, as lines of JSON over pipes
              └─▶ Dask ─┬─ shared disk       workers write under the results folder
                        └─ no shared disk    run directories travel as {relative path: bytes}
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import json
import logging
import os
import queue
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import rich.console
import rich.progress

from thermoloom.errors import UserError
from thermoloom.runs.store import (
    LOCK,
    MANIFEST,
    Lock,
    checkpoints,
    jsonable,
    leftovers,
    lost_files,
    package_version,
    read_manifest,
    sha256,
    write_atomically,
)
from thermoloom.threads import available_cores, threads

RETRIES = 2
"""How often a task is tried again after its worker process has died."""
REPORT_INTERVAL = 0.2
"""Seconds between two progress reports of one task."""

Report = Callable[[int, int, "float | None"], None]
"""``report(done, total, loss)``: cycles done of all, and the latest validation loss."""


class SweepInterruptedError(KeyboardInterrupt):
    """Ctrl-C: everything was stopped; the message says what is kept and how to go on."""


class _CancelledError(BaseException):
    """The sweep that a cluster task belongs to is over."""


@dataclass(frozen=True)
class Task:
    """A function by name and JSON arguments: the same thing in any process on any machine."""

    name: str
    """Shown in the progress display; unique within a sweep."""
    function: str
    """``package.module:function``."""
    arguments: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    """Run directories that it writes, relative to the results folder."""
    inputs: tuple[str, ...] = ()
    """Run directories that it reads, relative to the results folder."""

    def __post_init__(self) -> None:
        plain = json.loads(json.dumps(self.arguments, allow_nan=False))
        object.__setattr__(self, "arguments", plain)  # tuples are lists, here as elsewhere
        for path in (*self.outputs, *self.inputs):
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{path}: must be relative to the results folder")


@dataclass(frozen=True)
class Outcome:
    """How a task ended: ``done`` with its result, or ``failed`` for a reason of its own."""

    state: str
    result: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    """Where an unexpected error came from; empty for errors that the user can put right."""


def failures(outcomes: Mapping[str, Outcome]) -> list[str]:
    """``name: reason`` of every task that failed, for the end of a sweep."""
    return [f"{name}: {o.reason}" for name, o in outcomes.items() if o.state == "failed"]


def run_tasks(
    tasks: Sequence[Task],
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
    *,
    folder: Path | str,
    shared: bool = False,
) -> dict[str, Outcome]:
    """Outcomes by task name, in the order of ``tasks``, wherever they ran.

    ``workers``: local processes (default: the cores); with one, or one task, all is done in this
    process. ``cluster``: address of a Dask scheduler instead. ``folder``: results folder, the
    ``workdir`` of every task; ``shared``: the cluster's workers see it too. With more
    than one task each has one thread of its own, so the bits do not depend on where it ran.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers = {workers}: must be at least 1")
    if len({task.name for task in tasks}) < len(tasks):
        raise ValueError("two tasks have the same name")
    folder = Path(folder).absolute()
    _make_folder(folder)
    sweep = _Sweep(tasks, folder, progress or Progress(), 1 if len(tasks) > 1 else None)
    with sweep.progress.shown(len(tasks)):
        try:
            _run_here(sweep, [task for task in tasks if _is_done(folder, task)], at_once=True)
            left = [task for task in tasks if task.name not in sweep.outcomes]
            if left and cluster is not None:
                _run_on_cluster(sweep, left, cluster, shared)
            elif min(workers or available_cores(), len(tasks)) > 1:
                _run_in_processes(sweep, left, min(workers or available_cores(), len(left)))
            else:
                _run_here(sweep, left)
        except KeyboardInterrupt:
            raise SweepInterruptedError(
                f"interrupted; {sweep.progress.done_count} of {len(tasks)} tasks are done and all "
                "checkpoints kept: run the same command again to go on"
            ) from None
    return {task.name: sweep.outcomes[task.name] for task in tasks}


@dataclass
class _Sweep:
    tasks: Sequence[Task]
    folder: Path
    progress: Progress
    threads: int | None
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def end(self, task: Task, outcome: Outcome, at_once: bool = False) -> None:
        self.outcomes[task.name] = outcome
        if outcome.state == "done":
            self.progress.finished(task.name, at_once)
        else:
            self.progress.failed(task.name, outcome.reason)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another") from None
    if not os.access(
        folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        raise UserError(f"{folder}: no permission to write there; choose another results folder")


def _is_done(folder: Path, task: Task) -> bool:
    """Whether all run directories of a task are complete: then it only looks up its result."""
    paths = [folder / output for output in task.outputs]
    return bool(paths) and all((p / MANIFEST).exists() and _run_is_over(p) for p in paths)


def _run_is_over(path: Path) -> bool:
    try:
        manifest = read_manifest(path)
    except UserError:
        return False  # the task itself will say what is wrong
    return manifest.state in ("done", "diverged") and not lost_files(path, manifest)


# --- one task -----------------------------------------------------------------------------


def execute(task: Task, workdir: Path, report: Report, thread_count: int | None) -> Outcome:
    """Call the task's function; its errors are its outcome and nobody else's."""
    try:
        function = resolve(task.function)  # first, so that the libraries it loads are limited too
        with threads(thread_count) if thread_count else contextlib.nullcontext():
            result = function(workdir, report, **task.arguments)
        return Outcome("done", json.loads(json.dumps(jsonable(result))))
    except UserError as error:
        return Outcome("failed", reason=_one_line(str(error)))
    except Exception as error:
        reason = _one_line(f"{type(error).__name__}: {error}")
        return Outcome("failed", reason=reason, traceback=traceback.format_exc())


def resolve(function: str) -> Callable[..., Mapping[str, Any]]:
    """The function behind ``package.module:function``."""
    module, _, name = function.partition(":")
    found: Callable[..., Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _throttled(send: Report) -> Report:
    """The same report, at most every ``REPORT_INTERVAL`` and always the last one."""
    last = float("-inf")

    def report(done: int, total: int, loss: float | None = None) -> None:
        nonlocal last
        if time.monotonic() - last >= REPORT_INTERVAL or done >= total:
            last = time.monotonic()
            send(done, total, None if loss is None else float(loss))

    return report


# --- this process -------------------------------------------------------------------------


def _run_here(sweep: _Sweep, tasks: Iterable[Task], at_once: bool = False) -> None:
    for task in tasks:
        sweep.progress.started(task.name)
        report = _throttled(functools.partial(sweep.progress.advanced, task.name))
        sweep.end(task, execute(task, sweep.folder, report, sweep.threads), at_once)


# --- local processes ----------------------------------------------------------------------


class _LocalWorker:
    """A child process that takes one task at a time: JSON lines in on stdin, out on a pipe.

    Not a multiprocessing pool: there a killed worker breaks the pool or, killed while it holds the
    queue's lock, everything. Here it closes its own pipe, and that is all.
    """

    def __init__(self, workdir: Path, thread_count: int) -> None:
        reader, writer = os.pipe()
        serve = f"from thermoloom.runs.execution import serve; serve({writer}, {thread_count})"
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
        assert self.process.stdin is not None
        self.task = task
        line = json.dumps({"task": asdict(task), "workdir": str(self.workdir)}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # it has died: its own pipe will tell
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()

    def messages(self) -> list[dict[str, Any]] | None:
        """What it said since the last time; None once it is dead and all was heard."""
        data = os.read(self.reader, 1 << 20)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """End now, whatever it does: every file is written atomically, so nothing breaks."""
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
    """Set before the child imports anything: libraries read it when they are loaded."""
    libraries = ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMBA")
    limits = {f"{library}_NUM_THREADS": str(thread_count) for library in libraries}
    limits["VECLIB_MAXIMUM_THREADS"] = limits.pop("VECLIB_MAXIMUM_NUM_THREADS")
    limits["THERMOLOOM_THREADS"] = str(thread_count)
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return os.environ | limits | {"PYTHONPATH": search_path}


def serve(writer: int, thread_count: int) -> None:
    """Life of a local worker: read a task, do it, say how it went; die with the coordinator."""
    os.set_inheritable(writer, False)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            tasks.put(line)
        os._exit(0)  # the coordinator is gone, however it went

    threading.Thread(target=listen, daemon=True).start()

    def say(**message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

    while True:
        order = json.loads(tasks.get())
        report = _throttled(lambda *values: say(advanced=values))
        outcome = execute(Task(**order["task"]), Path(order["workdir"]), report, thread_count)
        say(outcome=asdict(outcome))


def _run_in_processes(sweep: _Sweep, tasks: Sequence[Task], workers: int) -> None:
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
    sweep: _Sweep,
    waiting: deque[Task],
    alive: dict[int, _LocalWorker],
    selector: selectors.BaseSelector,
) -> None:
    if waiting:
        worker = _LocalWorker(sweep.folder, sweep.threads or 1)
        alive[worker.reader] = worker
        selector.register(worker.reader, selectors.EVENT_READ)
        _give(sweep, worker, waiting)


def _give(sweep: _Sweep, worker: _LocalWorker, waiting: deque[Task]) -> None:
    worker.task = None
    if waiting:
        task = waiting.popleft()
        sweep.progress.started(task.name)
        worker.begin(task)


def _hear(
    sweep: _Sweep, worker: _LocalWorker, message: dict[str, Any], waiting: deque[Task]
) -> None:
    assert worker.task is not None
    if "advanced" in message:
        sweep.progress.advanced(worker.task.name, *message["advanced"])
    else:
        sweep.end(worker.task, Outcome(**message["outcome"]))
        _give(sweep, worker, waiting)


def _bury(
    sweep: _Sweep, worker: _LocalWorker, waiting: deque[Task], deaths: dict[str, int]
) -> None:
    """A worker died: its task goes to another one, a limited number of times."""
    worker.stop()
    task, code = worker.task, worker.process.returncode
    if task is None:
        return
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    deaths[task.name] += 1
    if deaths[task.name] <= RETRIES:
        sweep.progress.note(f"{task.name}: its worker process died ({how}); tried again")
        waiting.appendleft(task)
    else:
        reason = f"its worker process died {deaths[task.name]} times (last: {how}); out of memory?"
        sweep.end(task, Outcome("failed", reason=reason))


# --- a Dask cluster -----------------------------------------------------------------------


def _run_on_cluster(sweep: _Sweep, tasks: Sequence[Task], address: str, shared: bool) -> None:
    """Submit all tasks to the scheduler and store what comes back, as it comes.

    A worker's death is Dask's business: the scheduler gives its task to another one, as often as
    ``distributed.scheduler.allowed-failures`` says.
    """
    with _connected(address) as client, _shared_mark(sweep.folder, shared) as mark:
        _check_versions(client, address)
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        topic = f"thermoloom-{secrets.token_hex(8)}"
        client.subscribe_topic(topic, lambda event: events.put(event[1]))
        futures: dict[str, tuple[Task, Any]] = {}
        for task in tasks:
            sent = {} if shared else pack(sweep.folder, (*task.inputs, *task.outputs))
            order = {
                "task": asdict(task),
                "version": package_version(),
                "folder": str(sweep.folder) if shared else "",
                "mark": mark,
                "topic": topic,
                "threads": sweep.threads or 1,
            }
            key = f"{topic}-{len(futures)}"
            future = client.submit(remote_task, order, sent, key=key, pure=False)
            future.add_done_callback(events.put)
            futures[future.key] = (task, future)
        try:
            _collect(sweep, futures, events, address)
        finally:
            with contextlib.suppress(Exception):  # a lost scheduler has nothing to cancel
                client.cancel([future for _, future in futures.values()])


def _collect(
    sweep: _Sweep,
    futures: dict[str, tuple[Task, Any]],
    events: queue.SimpleQueue[Any],
    address: str,
) -> None:
    names = {task.name for task, _ in futures.values()}
    while futures:
        try:
            event = events.get(timeout=0.5)  # wakes up for Ctrl-C
        except queue.Empty:
            continue
        if isinstance(event, dict):
            if event["name"] in names and event["name"] not in sweep.outcomes:
                sweep.progress.started(event["name"])
                sweep.progress.advanced(event["name"], *event["advanced"])
            continue
        if event.cancelled():
            raise UserError(
                f"--cluster {address}: the connection to the scheduler is lost; "
                f"{sweep.progress.done_count} of {len(sweep.tasks)} tasks are done and kept: start "
                "the cluster again and run the same command again to go on"
            )
        task, future = futures.pop(event.key)
        sweep.end(task, _outcome_of(future, sweep.folder))


def _outcome_of(future: Any, folder: Path) -> Outcome:
    try:
        reply = future.result(timeout=60)
        unpack(folder, reply["files"])
        return Outcome(**reply["outcome"])
    except UserError as error:
        return Outcome("failed", reason=_one_line(str(error)))
    except Exception as error:  # KilledWorker and the like
        return Outcome("failed", reason=_one_line(f"cluster: {type(error).__name__}: {error}"))


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UserError(
            f"--cluster {address}: needs dask.distributed; pip install thermoloom[cluster]"
        ) from None
    try:
        client = distributed.Client(address, timeout=3, set_as_default=False)
    except Exception as error:
        raise UserError(
            f"--cluster {address}: no Dask scheduler answers there ({type(error).__name__}); "
            "start one with `dask scheduler`, which prints its address"
        ) from None
    with client, _silenced("distributed.client"):
        yield client


@contextlib.contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Dask prints tracebacks for what we say in one line."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_versions(client: Any, address: str) -> None:
    """Refuse a cluster that runs another version of the package."""
    try:
        client.wait_for_workers(1, timeout=30)
    except Exception:
        raise UserError(
            f"--cluster {address}: no worker has joined in 30 s; start some with "
            f"`dask worker {address}`"
        ) from None
    # A function of the standard library: asking must not need the package over there.
    answers = client.run(importlib.metadata.version, "thermoloom", on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            raise UserError(f"--cluster {address}: thermoloom is not installed on worker {worker}")
        _refuse_other_version(f"--cluster {address}: worker {worker}", package_version(), answer)


def _refuse_other_version(where: str, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise UserError(
            f"{where} has thermoloom {theirs}, this machine {ours}; install the same version"
        )


def remote_task(order: dict[str, Any], sent: dict[str, bytes]) -> dict[str, Any]:
    """On a cluster worker: do the task under the shared folder, or in scratch and send it back."""
    task = Task(**order["task"])
    try:
        _refuse_other_version("the worker", order["version"], package_version())
        workdir = Path(order["folder"]) if order["folder"] else _scratch(task)
        if order["folder"]:
            _check_shared(workdir, order["mark"])
        else:
            _prepare_scratch(workdir, task, sent)
    except UserError as error:
        return {"outcome": asdict(Outcome("failed", reason=str(error))), "files": {}}
    try:
        outcome = execute(task, workdir, _cluster_report(task, order["topic"]), order["threads"])
    except _CancelledError:
        return {"outcome": asdict(Outcome("failed", reason="cancelled")), "files": {}}
    files = {} if order["folder"] else pack(workdir, task.outputs)
    if not order["folder"]:
        shutil.rmtree(workdir, ignore_errors=True)
    return {"outcome": asdict(outcome), "files": files}


def _cluster_report(task: Task, topic: str) -> Report:
    """Progress through the scheduler; also where a task notices that its sweep is over."""
    worker = importlib.import_module("distributed").get_worker()
    key = worker.get_current_task()

    def send(done: int, total: int, loss: float | None) -> None:
        known = worker.state.tasks.get(key)
        if known is None or known.state != "executing":
            raise _CancelledError
        worker.log_event(topic, {"name": task.name, "advanced": (done, total, loss)})

    send(0, 0, None)
    return _throttled(send)


def _scratch(task: Task) -> Path:
    """The same place for the same task, so that a retry on this machine continues."""
    identity = sha256(json.dumps([asdict(task), package_version()]).encode())[:16]
    return Path(tempfile.gettempdir()) / f"thermoloom-{os.getuid()}" / identity


def _prepare_scratch(workdir: Path, task: Task, sent: Mapping[str, bytes]) -> None:
    workdir.parent.mkdir(mode=0o700, exist_ok=True)
    if workdir.parent.stat().st_uid != os.getuid():
        raise UserError(f"{workdir.parent}: belongs to another user; set TMPDIR on the workers")
    workdir.mkdir(exist_ok=True)
    begun = {output for output in task.outputs if (workdir / output / MANIFEST).exists()}
    unpack(workdir, {p: data for p, data in sent.items() if str(Path(p).parent) not in begun})


@contextlib.contextmanager
def _shared_mark(folder: Path, shared: bool) -> Iterator[str]:
    """A file by which workers recognize the shared folder; without sharing, nothing."""
    if not shared:
        yield ""
        return
    mark = folder / f".shared-{secrets.token_hex(8)}"
    write_atomically(mark, b"")
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def _check_shared(folder: Path, mark: str) -> None:
    if not (folder / mark).exists():
        raise UserError(
            f"{folder}: is not the same folder on the worker; leave the shared option out, and "
            "results come back through the scheduler"
        )


def pack(folder: Path, runs: Iterable[str]) -> dict[str, bytes]:
    """Run directories, as far as they exist, as {relative path: bytes}."""
    return {
        f"{run}/{file.name}": file.read_bytes() for run in runs for file in _files(folder / run)
    }


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    skipped = {path / LOCK, *leftovers(path)}
    return sorted(file for file in path.iterdir() if file.is_file() and file not in skipped)


def unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write what ``pack`` made; the manifest last, so that a run is done only when complete."""
    for run in dict.fromkeys(str(Path(path).parent) for path in files):
        target = folder / run
        target.mkdir(parents=True, exist_ok=True)
        mine = {Path(p).name: data for p, data in files.items() if str(Path(p).parent) == run}
        lock = Lock(target, wait=10)
        try:
            for name in sorted(mine, key=lambda name: name == MANIFEST):
                write_atomically(target / name, mine[name])
            for _, file in checkpoints(target):
                if file.name not in mine:
                    file.unlink(missing_ok=True)
        finally:
            lock.release()


# --- progress -----------------------------------------------------------------------------


class Progress:
    """What a sweep tells while it runs: silent by itself, shown by its subclasses."""

    total = 0
    done_count = 0
    failed_count = 0
    running: dict[str, tuple[int, int, float | None]]
    """Cycles done, all cycles, latest loss of the tasks that run now."""

    @contextlib.contextmanager
    def shown(self, total: int) -> Iterator[None]:
        """From the first task to the last."""
        self.total, self.done_count, self.failed_count = total, 0, 0
        self.running = {}
        self._at_once = 0
        self._began = time.monotonic()
        yield

    def started(self, name: str) -> None:
        self.running.setdefault(name, (0, 0, None))

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        self.running[name] = (done, total, loss)

    def finished(self, name: str, at_once: bool = False) -> None:
        """``at_once``: its result was there already, so it says nothing about the rate."""
        self.running.pop(name, None)
        self.done_count += 1
        self._at_once += at_once

    def failed(self, name: str, reason: str) -> None:
        self.running.pop(name, None)
        self.failed_count += 1

    def note(self, text: str) -> None:
        """Something worth a line, such as a worker that died."""

    @property
    def work_done(self) -> float:
        """Tasks done, those running by their fraction."""
        fractions = (done / total for done, total, _ in self.running.values() if total)
        return self.done_count + self.failed_count + sum(fractions)

    @property
    def tasks_per_second(self) -> float:
        elapsed = time.monotonic() - self._began
        return (self.work_done - self._at_once) / elapsed if elapsed > 0 else 0.0

    @property
    def summary(self) -> str:
        """``3 of 10 done, 2 running, 1 failed, 1.2 a minute, 4:30 left``."""
        over = self.done_count + self.failed_count == self.total
        rate = self.tasks_per_second
        parts = [f"{self.done_count} of {self.total} done"]
        if not over:
            parts.append(f"{len(self.running)} running")
        if self.failed_count:
            parts.append(f"{self.failed_count} failed")
        if over:
            parts.append(f"in {_clock(time.monotonic() - self._began)}")
        elif rate > 0:
            parts.append(f"{60 * rate:.3g} a minute")
            parts.append(f"{_clock((self.total - self.work_done) / rate)} left")
        return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _state(done: int, total: int, loss: float | None) -> str:
    return f"{done} of {total}" + ("" if loss is None else f", loss {loss:.6g}")


class PlainProgress(Progress):
    """Lines for a log: every start and end, and the whole at an interval."""

    def __init__(self, stream: TextIO | None = None, interval: float = 10.0) -> None:
        self._stream = stream or sys.stderr
        self._interval = interval
        self._last = float("-inf")

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=self._stream, flush=True)

    def started(self, name: str) -> None:
        if name not in self.running:
            self._say(f"{name}: started")
        super().started(name)

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        if time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            for task, state in self.running.items():
                if state[1]:
                    self._say(f"{task}: {_state(*state)}")
            self._say(self.summary)

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        self._say(f"{name}: {'done before' if at_once else 'done'} ({self.summary})")

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self._say(f"{name}: failed: {reason}")

    def note(self, text: str) -> None:
        self._say(text)


class RichProgress(Progress):
    """One display for the whole sweep: a bar for all tasks and one for each that runs."""

    def __init__(self, console: rich.console.Console | None = None) -> None:
        self._display = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[detail]}"),
            console=console or rich.console.Console(stderr=True),
        )
        self._rows: dict[str, rich.progress.TaskID] = {}

    @contextlib.contextmanager
    def shown(self, total: int) -> Iterator[None]:
        with super().shown(total), self._display:
            self._whole = self._display.add_task("tasks", total=total, detail="")
            self._refresh()
            yield

    def _refresh(self) -> None:
        self._display.update(self._whole, completed=self.work_done, detail=self.summary)

    def started(self, name: str) -> None:
        super().started(name)
        if name not in self._rows:
            self._rows[name] = self._display.add_task(name, total=None, detail="")
        self._refresh()

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        row = self._rows[name]
        self._display.update(
            row, completed=done, total=total or None, detail=_state(done, total, loss)
        )
        self._refresh()

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        self._remove(name)

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self._remove(name)
        self.note(f"{name}: failed: {reason}")

    def _remove(self, name: str) -> None:
        if name in self._rows:
            self._display.remove_task(self._rows.pop(name))
        self._refresh()

    def note(self, text: str) -> None:
        self._display.console.print(text, markup=False, highlight=False)


def progress_for(stream: TextIO | None = None) -> Progress:
    """A display on a terminal, lines anywhere else."""
    stream = stream or sys.stderr
    if stream.isatty():
        return RichProgress(rich.console.Console(file=stream))
    return PlainProgress(stream)
