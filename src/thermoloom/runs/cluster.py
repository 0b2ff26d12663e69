"""Tasks on a Dask cluster: ``dask.distributed`` schedules, we send orders and store replies.

shared disk       workers write under the results folder
no shared disk    run directories travel as {relative path: bytes}, through the scheduler
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import logging
import os
import queue
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.runs.files import LOCK, Lock, leftovers, sha256, write_atomically
from thermoloom.runs.manifest import MANIFEST, package_version
from thermoloom.runs.store import checkpoints
from thermoloom.runs.tasks import Outcome, Report, Sweep, Task, execute, one_line, throttled

CLUSTER_REPORT_INTERVAL = 1.0
"""Seconds between two progress reports of one task: with hundreds of workers the scheduler passes
on all of them."""


class _CancelledError(BaseException):
    """The sweep that a cluster task belongs to is over."""


def run_on_cluster(sweep: Sweep, tasks: Sequence[Task], address: str, shared: bool) -> None:
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


def check_cluster(address: str) -> None:
    """Refuse an address where no scheduler with workers of this version answers."""
    with _connected(address) as client:
        _check_versions(client, address)


def _collect(
    sweep: Sweep,
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
        return Outcome("failed", reason=one_line(str(error)))
    except Exception as error:  # KilledWorker and the like
        return Outcome("failed", reason=one_line(f"cluster: {type(error).__name__}: {error}"))


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
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
            f"--cluster {address}: no address, such as tcp://host:8786 ({error})"
        ) from None
    try:
        # a connection that fails is told in one line, not in the library's log as well
        with _silenced("distributed"), _silenced("tornado"), _silenced("asyncio"):
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
    worker = importlib.import_module("distributed").get_worker()
    try:
        report = _cluster_report(worker, task, order["topic"])
        with _undisturbed(worker):
            outcome = execute(task, workdir, report, order["threads"])
    except _CancelledError:
        return {"outcome": asdict(Outcome("failed", reason="cancelled")), "files": {}}
    files = {} if order["folder"] else pack(workdir, task.outputs)
    if not order["folder"]:
        shutil.rmtree(workdir, ignore_errors=True)
    return {"outcome": asdict(outcome), "files": files}


_SLOWED: dict[Any, tuple[int, float]] = {}
"""Callbacks of Dask that are slowed down: tasks that want it, and their own pace in ms."""
_SLOWING = threading.Lock()


@contextlib.contextmanager
def _undisturbed(worker: Any) -> Iterator[None]:
    """Samples of the stack and ticks of the event loop once a second while a worker works.

    By default Dask takes a hundred and fifty of them a second, for its dashboard: a tenth of the
    speed of a kernel that has the core to itself. Heartbeats and the watch over memory go on as
    they are.
    """
    found = [worker.periodic_callbacks.get(name) for name in ("profile", "tick")]
    callbacks = [callback for callback in found if callback is not None]
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
    """Progress through the scheduler; also where a task notices that its sweep is over."""
    key = worker.get_current_task()

    def send(done: int, total: int, loss: float | None) -> None:
        known = worker.state.tasks.get(key)
        if known is None or known.state != "executing":
            raise _CancelledError
        worker.log_event(topic, {"name": task.name, "advanced": (done, total, loss)})

    send(0, 0, None)
    return throttled(send, CLUSTER_REPORT_INTERVAL)


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
