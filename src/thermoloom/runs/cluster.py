"""Tasks on a Dask cluster: ``dask.distributed`` schedules them; this module moves files.

shared disk       workers write under the results folder
no shared disk    run directories travel as {relative path: bytes}, through the scheduler

Anyone who can reach a Dask scheduler can run code (docs/cluster.md). The checks here limit mistakes
and leftovers: an archive may contain only files of its task's run directories, and scratch
directories belong to the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import logging
import os
import queue
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thermoloom.engine_choice import EngineSettings, engine_in_use, use_engine
from thermoloom.errors import UserError
from thermoloom.runs.files import LOCK, Lock, leftovers, sha256, write_atomically
from thermoloom.runs.manifest import MANIFEST, package_version
from thermoloom.runs.store import checkpoints
from thermoloom.runs.tasks import (
    Outcome,
    Report,
    Sweep,
    Task,
    execute,
    one_line,
    throttled,
)

CLUSTER_REPORT_INTERVAL = 1.0
"""Seconds between two progress reports of one task; the scheduler forwards the reports of all."""
LARGEST_ARCHIVE = 4 << 30
"""Maximum bytes that a task may send or receive; a pair of the paper's comparison has 20 MB."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _CancelledError(BaseException):
    """The sweep that a cluster task belongs to is over."""


def run_on_cluster(sweep: Sweep, tasks: Sequence[Task], address: str, shared: bool) -> None:
    """Submit all tasks to the scheduler and store their results as they arrive.

    If a worker dies, the scheduler gives its task to another one, up to
    ``distributed.scheduler.allowed-failures`` times.
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
                "engine": engine_in_use().text,
                "folder": str(sweep.folder) if shared else "",
                "mark": mark,
                "topic": topic,
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
    sweep: Sweep, futures: dict[str, tuple[Task, Any]], events: queue.SimpleQueue[Any], address: str
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
                f"--cluster {address}: the connection to the scheduler was lost; "
                f"{sweep.progress.done_count} of {len(sweep.tasks)} tasks are done and saved; "
                "start the cluster again and run the same command to continue"
            )
        task, future = futures.pop(event.key)
        sweep.end(task, _outcome_of(task, future, sweep.folder))
        sweep.after()


def _outcome_of(task: Task, future: Any, folder: Path) -> Outcome:
    try:
        reply = future.result(timeout=60)
        unpack(folder, reply["files"], task.outputs)
        return Outcome(**reply["outcome"])
    except UserError as error:
        return Outcome("failed", reason=one_line(str(error)))
    except Exception as error:  # KilledWorker and the like
        return Outcome("failed", reason=one_line(f"cluster: {type(error).__name__}: {error}"))


def check_cluster(address: str) -> int:
    """Number of workers of the cluster at an address.

    An address without a scheduler, or with workers of another version, is refused.
    """
    with _connected(address) as client:
        return _check_versions(client, address)


def _check_scheduler(address: str) -> None:
    """Refuse an address where no Dask scheduler answers.

    A ``Client`` that cannot connect would print tracebacks when it is deleted, so this uses a bare
    connection; it uses a separate thread, because a notebook already has an event loop.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UserError(
            f"--cluster {address}: needs dask.distributed; pip install thermoloom[cluster]"
        ) from None

    full = address if "://" in address else f"tcp://{address}"
    try:
        distributed.comm.get_address_host_port(full, strict=True)
    except ValueError as error:
        raise UserError(
            f"--cluster {address}: not an address such as tcp://host:8786 ({error})"
        ) from None

    async def connect() -> None:
        arguments = distributed.Security().get_connection_args("client")
        comm = await distributed.core.connect(address, timeout=3, **arguments)
        await comm.close()

    try:
        with _silenced(), ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(connect())).result()
    except Exception as error:
        if address.startswith("tls:"):
            advice = "Dask's configuration must name certificates of its CA (docs/cluster.md)"
        else:
            advice = "start one with `dask scheduler`, which prints its address"
        raise UserError(
            f"--cluster {address}: no Dask scheduler answers there ({type(error).__name__}); "
            f"{advice}"
        ) from None


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    _check_scheduler(address)
    with _silenced():  # also while it closes, when it reports a lost scheduler
        client = importlib.import_module("distributed").Client(
            address, timeout=10, set_as_default=False
        )
        with client:
            yield client


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Silence the loggers of Dask, which print tracebacks where one line is enough."""
    packages = ("distributed", "tornado", "asyncio")
    names = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] in packages]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _check_versions(client: Any, address: str) -> int:
    """Number of workers of a cluster; a worker with another version of the package is refused."""
    try:
        client.wait_for_workers(1, timeout=30)
    except Exception:
        raise UserError(
            f"--cluster {address}: no worker has joined in 30 s; start some with "
            f"`dask worker {address}`"
        ) from None
    # A function of the standard library: the worker may not have the package.
    answers = client.run(importlib.metadata.version, "thermoloom", on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            raise UserError(f"--cluster {address}: thermoloom is not installed on worker {worker}")
        _refuse_other_version(f"--cluster {address}: worker {worker}", package_version(), answer)
    return len(answers)


def _refuse_other_version(where: str, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise UserError(
            f"{where} has thermoloom {theirs}, this machine {ours}; install the same version"
        )


def remote_task(order: dict[str, Any], sent: dict[str, bytes]) -> dict[str, Any]:
    """On a cluster worker: run the task in the shared folder, or in scratch and send its files."""
    task = Task(**order["task"])
    try:
        _refuse_other_version("the worker", order["version"], package_version())
        use_engine(EngineSettings.from_text(order["engine"]))
        workdir = Path(order["folder"]) if order["folder"] else _scratch(task)
        if order["folder"]:
            _check_shared(workdir, order["mark"])
        else:
            _prepare_scratch(workdir, task, sent)
    except UserError as error:
        return {"outcome": asdict(Outcome("failed", reason=str(error))), "files": {}}
    worker = importlib.import_module("distributed").get_worker()
    try:
        report = _cluster_report(worker, task, order["topic"])
        with _undisturbed(worker):
            outcome = execute(task, workdir, report, 1)
    except _CancelledError:
        return {"outcome": asdict(Outcome("failed", reason="cancelled")), "files": {}}
    files = {} if order["folder"] else pack(workdir, task.outputs)
    if not order["folder"]:
        shutil.rmtree(workdir, ignore_errors=True)
    return {"outcome": asdict(outcome), "files": files}


_SLOWED: dict[Any, tuple[int, float]] = {}
"""Slowed callbacks of Dask: the number of tasks that slow them, and their usual pace in ms."""
_SLOWING = threading.Lock()


@contextlib.contextmanager
def _undisturbed(worker: Any) -> Iterator[None]:
    """Slow down Dask's stack samples and event-loop ticks to one per second during a task.

    By default Dask takes 150 of them per second for its dashboard, which costs a kernel a tenth of
    its speed. Heartbeats and the memory monitor are unchanged.
    """
    candidates = [worker.periodic_callbacks.get(name) for name in ("profile", "tick")]
    callbacks = [callback for callback in candidates if callback is not None]
    with _SLOWING:
        for callback in callbacks:
            tasks, pace = _SLOWED.get(callback, (0, callback.callback_time))
            _SLOWED[callback] = (tasks + 1, pace)
            callback.callback_time = max(1000.0, pace)
    try:
        yield
    finally:
        with _SLOWING:
            for callback in callbacks:
                tasks, pace = _SLOWED.pop(callback)
                if tasks > 1:
                    _SLOWED[callback] = (tasks - 1, pace)
                else:
                    callback.callback_time = pace


def _cluster_report(worker: Any, task: Task, topic: str) -> Report:
    """Report progress through the scheduler; raises an exception once the sweep is over."""
    key = worker.get_current_task()

    def send(done: int, total: int, loss: float | None) -> None:
        known = worker.state.tasks.get(key)
        if known is None or known.state != "executing":
            raise _CancelledError
        worker.log_event(topic, {"name": task.name, "advanced": (done, total, loss)})

    send(0, 0, None)
    return throttled(send, CLUSTER_REPORT_INTERVAL)


def _scratch(task: Task) -> Path:
    """Scratch folder of a task; the same on every call, so that a retry continues."""
    identity = sha256(json.dumps([asdict(task), package_version()]).encode())[:16]
    return Path(tempfile.gettempdir()) / f"thermoloom-{_owner()}" / identity


def _owner() -> int | None:
    """The user's number; None on Windows, where every user has a private temporary folder."""
    return os.getuid() if hasattr(os, "getuid") else None


def _prepare_scratch(workdir: Path, task: Task, sent: Mapping[str, bytes]) -> None:
    runs = (*task.inputs, *task.outputs)
    parents = {parent for run in runs for parent in (Path(run), *Path(run).parents)}
    for path in (workdir.parent, *(workdir / parent for parent in sorted(parents))):
        _own_directory(path)
    begun = {output for output in task.outputs if (workdir / output / MANIFEST).exists()}
    new = {path: data for path, data in sent.items() if path.rpartition("/")[0] not in begun}
    unpack(workdir, new, runs)


def _own_directory(path: Path) -> None:
    """Ensure that ``path`` is a directory, not a link, that only this user can write to."""
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.lstat()
    except OSError as error:
        raise UserError(f"{path}: cannot be created on the worker ({error.strerror})") from None
    ours = _owner() is None or (
        status.st_uid == _owner() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    if not stat.S_ISDIR(status.st_mode) or not ours:
        raise UserError(
            f"{path}: is a link, or others may write there; remove it or set TMPDIR on the workers"
        )


@contextlib.contextmanager
def _shared_mark(folder: Path, shared: bool) -> Iterator[str]:
    """Name of a file by which workers recognize the shared folder; "" without sharing."""
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
            f"{folder}: is not the same folder on the worker; leave out --shared-disk, so that "
            "results return through the scheduler"
        )


def pack(folder: Path, runs: Iterable[str]) -> dict[str, bytes]:
    """The run directories that exist, as {relative path: bytes}."""
    return {
        f"{run}/{file.name}": file.read_bytes() for run in runs for file in _files(folder / run)
    }


def _files(path: Path) -> list[Path]:
    """Regular files of a run directory, without links."""
    if not path.is_dir():
        return []
    skipped = {path / LOCK, *leftovers(path)}
    regular = (file for file in path.iterdir() if stat.S_ISREG(file.lstat().st_mode))
    return sorted(file for file in regular if file not in skipped)


def unpack(folder: Path, files: Mapping[str, bytes], runs: Collection[str]) -> None:
    """Write the files that ``pack`` read from ``runs``; other files are refused beforehand.

    The manifest is written last, so that a run is done only when it is complete.
    """
    for run, contents in _checked(files, runs).items():
        target = folder / run
        target.mkdir(parents=True, exist_ok=True)
        lock = Lock(target, wait=10)
        try:
            for name in sorted(contents, key=lambda name: name == MANIFEST):
                write_atomically(target / name, contents[name])
            for _, file in checkpoints(target):
                if file.name not in contents:
                    file.unlink(missing_ok=True)
        finally:
            lock.release()


def _checked(files: Mapping[Any, bytes], runs: Collection[str]) -> dict[str, dict[str, bytes]]:
    """``{run: {file name: bytes}}``; refused unless all are plain files of ``runs``."""
    if not isinstance(files, Mapping):
        raise UserError(f"a received archive is a {type(files).__name__}, not an archive; refused")
    by_run: dict[str, dict[str, bytes]] = {}
    total = 0
    for path, data in files.items():
        run, _, name = path.rpartition("/") if isinstance(path, str) else ("", "", "")
        if run not in runs or not _FILE_NAME.fullmatch(name):
            raise UserError(
                f"a received archive contains {str(path)[:200]!r}, which is not a file of its "
                "task's runs; refused"
            )
        if not isinstance(data, bytes):
            raise UserError(
                f"a received archive contains {path}, which is not plain bytes; refused"
            )
        total += len(data)
        by_run.setdefault(run, {})[name] = data
    if total > LARGEST_ARCHIVE:
        raise UserError(
            f"a received archive contains {total / 1e9:.1f} GB, more than the "
            f"{LARGEST_ARCHIVE / 1e9:.1f} GB of a task; use --shared-disk for runs of this size"
        )
    return by_run
