"""Tasks here, in local processes and on a real Dask cluster: same bits, and nothing lost."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich.console
from execution_tasks import (
    RUNS,
    break_down,
    count_threads,
    learning,
    linear_algebra_threads,
    look,
    looks,
    name_of,
    paces,
    refuse,
    suicide,
    wait_for_threads,
)
from PIL import Image
from test_studies import TINY, TOY

from thermoloom.errors import UserError
from thermoloom.runs.cluster import _outcome_of, _scratch, check_cluster, pack, remote_task, unpack
from thermoloom.runs.execution import Resources, longest_first, run_tasks
from thermoloom.runs.manifest import package_version
from thermoloom.runs.progress import PlainProgress, Progress, RichProgress, progress_for
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import Outcome, Task, failures
from thermoloom.studies.discovery import study
from thermoloom.studies.run import compute

HERE = Path(__file__).parent
needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs the extra 'cluster'"
)


OWN_IMAGES: dict[str, dict[str, Any]] = {
    "machine": {"visible": 196, "hidden": 24, "duration": 1.0},
    "patterns": {"source": "images", "path": "own-images", "resize": True},
    "training": {"cycles": 100, "validation_every": 20},
    "generation": {"samples": 8},
    "study": {"seeds": [1, 2], "paths_per_pattern": 1},
}

BLIND_TO_IMAGES = """
import sys
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and "own-images" in str(arguments[0]):
        raise FileNotFoundError(2, "not on this machine", arguments[0])
sys.addaudithook(refuse)
"""
"""sitecustomize of workers on another machine: wherever they look, the images are not there."""


def save_images(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(5)
    for name in ("bird", "fish"):
        pixels = rng.integers(0, 256, (14, 14), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")


def computed(log: Path) -> list[tuple[str, int]]:
    """(run, cycle) of every cycle that was computed, repetitions included."""
    if not log.exists():
        return []
    return [(run, int(cycle)) for run, cycle, _ in map(str.split, log.read_text().splitlines())]


def contents(folder: Path) -> dict[str, bytes]:
    """Every array, checkpoint and table of the runs in a folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".safetensors", ".csv")
    }


@pytest.fixture(scope="module")
def reference(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Outcome], dict[str, bytes]]:
    """The four runs by ``--workers 1``: everything else must come to the same bits."""
    folder = tmp_path_factory.mktemp("reference")
    outcomes = run_tasks(learning(folder / "log", *RUNS), folder / "results", Resources(1))
    assert [o.state for o in outcomes.values()] == ["done"] * 4
    return outcomes, contents(folder / "results")


def same(outcomes: dict[str, Outcome], folder: Path, reference: Any) -> None:
    assert outcomes == reference[0]
    assert list(outcomes) == list(RUNS)
    assert contents(folder) == reference[1]


# --- local --------------------------------------------------------------------------------


def test_two_processes_give_the_bits_of_one(tmp_path: Path, reference: Any) -> None:
    log, results, seen = tmp_path / "log", tmp_path / "results", []

    def look() -> None:
        """What can be read between two tasks: runs that are complete."""
        seen.append([finished_results(results / run, "learning", {"run": run, "cycles": 12})
                     for run in RUNS])  # fmt: skip

    outcomes = run_tasks(learning(log, *RUNS), results, Resources(2), after=look)
    same(outcomes, results, reference)
    done = [sum(found is not None for found in look) for look in seen]
    assert len(done) == 4
    assert all(count > number for number, count in enumerate(done))
    pids = {line.split()[2] for line in log.read_text().splitlines()}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    assert len(computed(log)) == 4 * 12


def test_killed_workers_lose_at_most_a_checkpoint_interval(tmp_path: Path, reference: Any) -> None:
    """Two of four tasks kill their process once, two cycles after a checkpoint."""
    log, heard = tmp_path / "log", Recorder()
    tasks = learning(log, "a", "bb", die_at=8) + learning(log, "ccc", "dddd")
    outcomes = run_tasks(tasks, tmp_path / "results", Resources(2), progress=heard)
    same(outcomes, tmp_path / "results", reference)
    assert [n for n in heard.notes if "starting the task again" in n] == heard.notes
    assert len(heard.notes) == 2
    cycles = computed(log)
    assert sorted(set(cycles)) == sorted((run, c) for run in RUNS for c in range(12))
    repeated = len(cycles) - 4 * 12
    assert 0 < repeated <= 2 * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_fails_alone_with_its_reason(tmp_path: Path, workers: int) -> None:
    tasks = [
        Task("refused", name_of(refuse)),
        Task("broken", name_of(break_down), {"divisor": 0}),
        Task("fine", name_of(break_down), {"divisor": 4}),
        Task("unknown", "thermoloom.nowhere:task"),
    ]
    heard = Recorder()
    killer = [Task("killer", name_of(suicide))] * (workers - 1)
    outcomes = run_tasks([*tasks, *killer], tmp_path, Resources(workers), progress=heard)
    assert outcomes["fine"] == Outcome("done", {"result": 0.25})
    if killer:
        assert "died 3 times (last: signal 9)" in outcomes.pop("killer").reason
    assert failures(outcomes) == [
        "refused: machine.kT = -1: must be positive",
        "broken: ZeroDivisionError: division by zero",
        "unknown: ModuleNotFoundError: No module named 'thermoloom.nowhere'",
    ]
    assert "break_down" in outcomes["broken"].traceback
    assert not outcomes["refused"].traceback
    assert heard.ended >= {"refused", "broken", "fine", "unknown"}


def test_one_thread_each_unless_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    before = count_threads(tmp_path, None)["threads"]
    several = [Task(f"{i}", name_of(count_threads)) for i in range(2)]
    for workers in (1, 2):
        outcomes = run_tasks(several, tmp_path, Resources(workers)).values()
        assert all(set(o.result["threads"]) == {1} for o in outcomes)
        assert all((o.result["pid"] == os.getpid()) == (workers == 1) for o in outcomes)
    alone = run_tasks(several[:1], tmp_path, Resources(2))["0"]
    assert alone.result == {"threads": before, "pid": os.getpid()}


def test_what_takes_longest_begins_first_and_equals_keep_their_order() -> None:
    costs = {"a": 1.0, "b": None, "c": 3.0, "d": 1.0, "e": 2.0}
    tasks = [Task(name, "m:f", cost=cost) for name, cost in costs.items()]
    assert [task.name for task in longest_first(tasks)] == ["b", "c", "e", "a", "d"]


def test_the_last_tasks_have_the_cores_of_idle_workers(tmp_path: Path) -> None:
    wanted = {"first": 1, "last": 2}
    tasks = [Task(name, name_of(wait_for_threads), {"wanted": n}) for name, n in wanted.items()]
    outcomes = run_tasks(tasks, tmp_path, Resources(workers=2))
    assert {name: outcome.result["threads"] for name, outcome in outcomes.items()} == wanted


def test_finished_tasks_are_not_done_again(tmp_path: Path, reference: Any) -> None:
    log, heard = tmp_path / "log", Recorder()
    run_tasks(learning(log, *RUNS[:3]), tmp_path / "results", Resources(1))
    log.unlink()
    after: list[int] = []
    outcomes = run_tasks(
        learning(log, *RUNS), tmp_path / "results", Resources(2), heard, lambda: after.append(1)
    )
    same(outcomes, tmp_path / "results", reference)
    assert after == [1]
    assert {run for run, _ in computed(log)} == {"dddd"}
    assert heard.at_once == set(RUNS[:3])


COORDINATOR = """
import sys; from pathlib import Path
from execution_tasks import *
from thermoloom.runs.execution import Resources, run_tasks
from thermoloom.runs.progress import PlainProgress
folder = Path(sys.argv[1])
try:
    run_tasks(learning(folder / "log", *RUNS, pause=0.02), folder / "results",
              Resources(int(sys.argv[2])), progress=PlainProgress())
except KeyboardInterrupt as error:
    print(error); sys.exit(130)
"""


def coordinator(folder: Path, workers: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COORDINATOR, str(folder), str(workers)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def worker_pids(log: Path) -> set[int]:
    return {int(line.split()[2]) for line in log.read_text().splitlines()}


def test_coordinator_killed_with_sigkill_resumes(tmp_path: Path, reference: Any) -> None:
    log, results = tmp_path / "log", tmp_path / "results"
    process = coordinator(tmp_path)
    wait_until(lambda: len(computed(log)) >= 34)  # two done, two under way
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(is_alive, worker_pids(log))), 5)
    before = computed(log)
    done = {run for run in RUNS if (run, 11) in before}
    assert 1 <= len(done) < 4
    outcomes = run_tasks(learning(log, *RUNS, pause=0.02), results, Resources(2))
    same(outcomes, results, reference)
    again = computed(log)[len(before) :]
    assert not {run for run, _ in again} & done, "a finished task was done again"
    assert len(again) + len(before) <= 4 * 12 + 2 * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_within_seconds_and_says_how_to_go_on(tmp_path: Path, workers: int) -> None:
    log = tmp_path / "log"
    process = coordinator(tmp_path, workers)
    wait_until(lambda: len(computed(log)) >= 4)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=10)
    assert time.monotonic() - begun < 4
    assert process.returncode == 130
    assert "run the same command again to continue" in output
    assert "Traceback" not in errors
    assert not any(map(is_alive, worker_pids(log)))


def test_bad_calls(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--workers = 0: must be at least 1"):
        run_tasks([], tmp_path, Resources(0))
    with pytest.raises(UserError, match="--shared-disk: needs a cluster"):
        Resources(shared=True)
    with pytest.raises(UserError, match="--cluster: is empty"):
        Resources(cluster=" ")
    with pytest.raises(ValueError, match="same name"):
        run_tasks([Task("a", "m:f"), Task("a", "m:f")], tmp_path)
    with pytest.raises(ValueError, match="relative"):
        Task("a", "m:f", outputs=("../elsewhere",))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: cannot be created"):
        run_tasks([Task("a", "m:f")], tmp_path / "file")
    assert run_tasks([], tmp_path) == {}


# --- Dask ---------------------------------------------------------------------------------


SELDOM = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "200ms",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "200ms",
}
"""Dask looks at itself every 10 ms: an idle cluster would take much of the time of the tests."""


def start(
    role: str, folder: Path, *options: str, search_path: Path = HERE
) -> subprocess.Popen[bytes]:
    """``dask scheduler`` or ``dask worker``, its scratch files and its log in ``folder``."""
    paths = [str(search_path), str(HERE), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(folder)}
    with open(folder / f"{role}.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", role, *options, "--no-dashboard"],
            env=os.environ | SELDOM | variables,
            cwd=folder,
            stdout=log,
            stderr=log,
        )


def start_worker(
    address: str, folder: Path, search_path: Path = HERE, threads: int = 1
) -> subprocess.Popen[bytes]:
    return start("worker", folder, address, "--nthreads", str(threads), search_path=search_path)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_cluster(
    folder: Path, count: int, search_path: Path = HERE, threads: int = 1, protocol: str = "tcp"
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A real scheduler and real worker processes on loopback; its address and process."""
    import distributed

    file = folder / "scheduler.json"
    options = ["--host", f"{protocol}://127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    processes = [start("scheduler", folder, *options)]
    try:
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        processes += [start_worker(address, folder, search_path, threads) for _ in range(count)]
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=30)
        yield address, processes[0]
    finally:
        for process in reversed(processes):
            end(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Two workers; address and the folder for their scratch files."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, 2) as (address, _):
        yield address, folder


@needs_dask
def test_cluster_gives_the_bits_of_one_process_though_a_worker_is_killed(
    tmp_path: Path, cluster: tuple[str, Path], reference: Any
) -> None:
    """No shared disk: run directories come back through the scheduler."""
    log, results, heard = tmp_path / "log", tmp_path / "results", Recorder()
    tasks = learning(log, "a", die_at=8) + learning(log, *RUNS[1:], pause=0.02)
    outcomes = run_tasks(tasks, results, Resources(cluster=cluster[0]), progress=heard)
    same(outcomes, results, reference)
    assert Path(f"{log}.died-a").exists()
    assert 4 * 12 < len(computed(log)) <= 4 * 12 + 3, "at most one checkpoint interval is lost"
    assert heard.ended == set(RUNS)
    assert heard.most_running >= 2  # one more while a killed worker's task has begun elsewhere
    scratch = list(cluster[1].glob("thermoloom-*/*"))
    assert scratch == [], "nothing stays on the workers"
    again = run_tasks(tasks, results, Resources(cluster=cluster[0]))
    assert again == outcomes
    assert len(computed(log)) <= 4 * 12 + 3, "finished tasks are not done again"


@needs_dask
def test_cluster_continues_what_a_laptop_began_and_sends_inputs(
    tmp_path: Path, cluster: tuple[str, Path]
) -> None:
    log, results = tmp_path / "log", tmp_path / "results"
    with RunDirectory.create(results / "a", "learning", {"run": "a", "cycles": 12}) as store:
        store.save_checkpoint(9, {"theta": np.eye(60, dtype=np.float32)})
    outcomes = run_tasks(learning(log, "a"), results, Resources(cluster=cluster[0]))
    assert outcomes["a"].state == "done"
    assert computed(log) == [("a", 9), ("a", 10), ("a", 11)]
    reader = Task("look", name_of(look), {"source": "a"}, inputs=("a",))
    result = run_tasks([reader], results, Resources(cluster=cluster[0]))["look"].result
    assert result["first"] == RunDirectory.open(results / "a").load_arrays("theta")["theta"][0, 0]
    assert not Path(result["workdir"]).is_relative_to(tmp_path)


@needs_dask
def test_dask_looks_at_a_worker_less_often_while_it_works(
    tmp_path: Path, cluster: tuple[str, Path]
) -> None:
    import distributed

    with distributed.Client(cluster[0], set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)  # one that was killed may still be starting
        before = client.run(looks)
        tasks = [Task(str(i), name_of(paces)) for i in range(4)]
        outcomes = run_tasks(tasks, tmp_path, Resources(cluster=cluster[0]))
        assert all(o.result == {"profile": 1000, "tick": 1000} for o in outcomes.values())
        assert all(pace < 1000 for own in before.values() for pace in own.values())
        assert client.run(looks) == before


@needs_dask
def test_cluster_runs_a_study_outside_the_package(
    tmp_path: Path, cluster: tuple[str, Path]
) -> None:
    """Its source travels with the tasks, its results come back."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "study.py").write_text(TOY)
    (folder / "numbers.py").write_text("FACTOR = 3\n")
    record = study(str(folder))
    plan = record.plan("full", TINY)
    done = compute(record, plan, tmp_path / "results", Resources(cluster=cluster[0]))
    assert done.failures == []
    assert done.summary["sum"] == 3 * 2 * (4 + 9)


@needs_dask
def test_cluster_with_a_shared_disk_and_failing_tasks(
    tmp_path: Path, cluster: tuple[str, Path]
) -> None:
    tasks = [
        *learning(tmp_path / "log", "a"),
        Task("refused", name_of(refuse)),
        Task("broken", name_of(break_down), {"divisor": 0}),
        Task("look", name_of(count_threads)),
    ]
    outcomes = run_tasks(tasks, tmp_path / "results", Resources(cluster=cluster[0], shared=True))
    assert failures(outcomes) == [
        "refused: machine.kT = -1: must be positive",
        "broken: ZeroDivisionError: division by zero",
    ]
    assert set(outcomes["look"].result["threads"]) == {1}
    assert RunDirectory.open(tmp_path / "results" / "a").state == "done"
    assert not list((tmp_path / "results").glob(".shared-*"))


@needs_dask
def test_cluster_with_another_version_is_refused(tmp_path: Path, cluster: tuple[str, Path]) -> None:
    import distributed

    other = tmp_path / "other"
    (other / "thermoloom-9.9.9.dist-info").mkdir(parents=True)
    (other / "thermoloom-9.9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: thermoloom\nVersion: 9.9.9\n"
    )
    worker = start_worker(cluster[0], cluster[1], other)
    try:
        with distributed.Client(cluster[0], set_as_default=False) as client:
            client.wait_for_workers(3, timeout=30)
            with pytest.raises(UserError, match=rf"thermoloom 9\.9\.9, .* {package_version()};"):
                run_tasks(learning(tmp_path / "log", "a"), tmp_path, Resources(cluster=cluster[0]))
            end(worker)
            wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2)
    finally:
        end(worker)
    assert computed(tmp_path / "log") == []


@needs_dask
def test_lost_scheduler_is_one_line_and_what_is_done_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, results = tmp_path / "log", tmp_path / "results"
    (tmp_path / "cluster").mkdir()

    class KillsScheduler(Recorder):
        def finished(self, name: str, at_once: bool = False) -> None:
            super().finished(name, at_once)
            scheduler.kill()

    with running_cluster(tmp_path / "cluster", 1) as (address, scheduler):
        tasks = learning(log, "a") + learning(log, "bb", pause=0.1)
        with pytest.raises(UserError, match="scheduler was lost; 1 of 2 tasks are done") as caught:
            run_tasks(tasks, results, Resources(cluster=address), progress=KillsScheduler())
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err
    assert RunDirectory.open(results / "a").state == "done"


@needs_dask
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:9", "no Dask scheduler answers there"),
        ("tls://127.0.0.1:9", "no Dask scheduler answers there"),
        ("nonsense", "not an address such as tcp://host:8786"),
        ("nonsense://x", "not an address such as tcp://host:8786"),
        ("tcp://[::1", "not an address such as tcp://host:8786"),
    ],
)
def test_unknown_cluster_is_one_line_within_seconds(address: str, why: str) -> None:
    """And nothing after it, when Dask's own objects are deleted at the end."""
    program = """
import sys
from thermoloom.errors import UserError
from thermoloom.runs.cluster import check_cluster
try:
    check_cluster(sys.argv[1])
except UserError as error:
    print(error, file=sys.stderr)
"""
    call = [sys.executable, "-c", program, address]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.startswith(f"--cluster {address}: {why} (")
    assert len(ended.stderr.splitlines()) == 1


def test_cluster_without_dask_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"pip install thermoloom\[cluster\]"):
        run_tasks(learning(tmp_path / "log", "a"), tmp_path, Resources(cluster="tcp://127.0.0.1:9"))


@pytest.fixture
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One worker process with two threads; its address."""
    with running_cluster(tmp_path_factory.mktemp("threaded"), 1, threads=2) as (address, _):
        yield address


@needs_dask
def test_two_tasks_at_once_in_one_worker_process_do_not_disturb_each_other(
    tmp_path: Path, threaded: str, reference: Any
) -> None:
    """One ends while the other works: the other keeps its one thread, and every bit."""
    log = tmp_path / "log"
    tasks = [
        Task("short", name_of(linear_algebra_threads), {"seconds": 0.4}),
        Task("long", name_of(linear_algebra_threads), {"seconds": 1.2}),
    ]
    outcomes = run_tasks(tasks, tmp_path / "results", Resources(cluster=threaded))
    short, long = (outcomes[name].result for name in ("short", "long"))
    assert short["pid"] == long["pid"]
    assert long["begun"] < short["ended"] < long["ended"], "they ran at the same time"
    assert short["seen"] == long["seen"] == [1]
    learned = run_tasks(
        learning(log, *RUNS, pause=0.02), tmp_path / "results", Resources(cluster=threaded)
    )
    same(learned, tmp_path / "results", reference)


@needs_dask
def test_training_on_own_images_with_killed_workers_and_two_threads_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that only this machine has; a worker killed in the middle; the bits of a local run."""
    monkeypatch.chdir(tmp_path)
    save_images(tmp_path / "own-images")
    (tmp_path / "blind").mkdir()
    (tmp_path / "blind" / "sitecustomize.py").write_text(BLIND_TO_IMAGES)
    (tmp_path / "cluster").mkdir()
    chosen = study("comparison")
    plan = chosen.plan("quick", OWN_IMAGES)
    compute(chosen, plan, tmp_path / "here", Resources(2))
    with running_cluster(tmp_path / "cluster", 2, tmp_path / "blind", threads=2) as (address, _):
        killer = KillsWorker(address=address)
        there = compute(
            chosen, plan, tmp_path / "there", Resources(cluster=address), progress=killer
        )
    assert there.failures == []
    assert killer.killed, "no worker was killed: the test is too short"
    here, elsewhere = (  # checkpoints come by the clock
        {k: v for k, v in contents(tmp_path / place).items() if "checkpoint-" not in k}
        for place in ("here", "there")
    )
    assert elsewhere == here
    assert {Path(name).name for name in here} >= {"computer.safetensors", "curve.csv", "models.csv"}


def certificates(folder: Path) -> dict[str, str]:
    """A CA of our own, one certificate for all three roles, and Dask's variables that name them."""
    folder.mkdir()

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "1",
            "-subj", "/CN=thermoloom test CA")  # fmt: skip
    openssl("req", *key, "-keyout", "our.key", "-out", "our.csr", "-subj", "/CN=thermoloom")
    openssl("x509", "-req", "-in", "our.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "our.pem", "-days", "1")  # fmt: skip
    prefix = "DASK_DISTRIBUTED__COMM__"
    variables = {f"{prefix}REQUIRE_ENCRYPTION": "True", f"{prefix}TLS__CA_FILE": "ca.pem"}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        variables |= {
            f"{prefix}TLS__{role}__CERT": "our.pem",
            f"{prefix}TLS__{role}__KEY": "our.key",
        }
    paths = {name: str(folder / v) for name, v in variables.items() if v != "True"}
    return variables | paths


@needs_dask
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_cluster_with_tls_by_dasks_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--cluster tls://…`` works with the variables of docs/cluster.md, and not without."""
    import dask

    (tmp_path / "cluster").mkdir()
    variables = certificates(tmp_path / "certificates")
    page = (HERE.parent / "docs" / "cluster.md").read_text()
    exports = page[page.index("    export DASK") : page.index("    dask scheduler --host tls")]
    environment = subprocess.check_output(["sh", "-c", f"{exports}\nenv"], text=True)
    assert all(f"\n{name}=" in environment for name in variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    as_a_new_process = dask.config.merge(dask.config.config, dask.config.collect_env())
    with (
        dask.config.set(as_a_new_process),
        running_cluster(tmp_path / "cluster", 1, protocol="tls") as (address, _),
    ):
        assert address.startswith("tls://")
        tasks = [Task("four", name_of(break_down), {"divisor": 4})]
        outcomes = run_tasks(tasks, tmp_path / "results", Resources(cluster=address))
        assert outcomes["four"] == Outcome("done", {"result": 0.25})
        with (
            dask.config.set({"distributed.comm.tls.ca-file": None}),
            pytest.raises(UserError, match=r"certificates of its CA") as caught,
        ):
            check_cluster(address)
        assert "\n" not in str(caught.value)


# --- what travels -------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../outside",
        "runs/a/../b/manifest.json",
        "runs/a/../../x",
        "runs/a/..",
        "runs/a/",
        "runs/a//x",
        "./runs/a/x",
        "runs/b/manifest.json",
        "runs/a/deeper/x",
        "runs/a/.lock",
        "runs/a/.x.0123abcd.tmp",
        "runs/a/x\0y",
        "runs/a/x\n",
        "manifest.json",
        "",
        7,
    ],
)
def test_archives_write_only_their_tasks_outputs(tmp_path: Path, name: Any) -> None:
    """Nothing at all is written from an archive with one wrong name in it."""
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "outside").write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(UserError, match=r"received archive contains .* refused") as caught:
        unpack(results, {"runs/a/good.csv": b"1", name: b"2"}, ("runs/a",))
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("data", ["text", None, 7, {"link": "/etc/passwd"}, Path("/etc/passwd")])
def test_archives_hold_bytes_and_nothing_else(tmp_path: Path, data: Any) -> None:
    with pytest.raises(UserError, match="contains runs/a/x, which is not plain bytes; refused"):
        unpack(tmp_path, {"runs/a/x": data}, ("runs/a",))
    with pytest.raises(UserError, match="is a list, not an archive"):
        unpack(tmp_path, [("runs/a/x", b"")], ("runs/a",))  # type: ignore[arg-type]
    assert everything(tmp_path) == {}


def test_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermoloom.runs.cluster.LARGEST_ARCHIVE", 10)
    unpack(tmp_path, {"a/x": b"12345", "a/y": b"12345"}, ("a",))
    with pytest.raises(UserError, match="--shared-disk for runs of this size"):
        unpack(tmp_path, {"a/x": b"123456", "a/y": b"12345"}, ("a",))
    assert (tmp_path / "a" / "x").read_bytes() == b"12345"


def test_packing_leaves_links_and_devices_behind(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not for others")
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (run / "x").write_bytes(b"1")
    (run / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(run / "pipe")
    assert pack(tmp_path, ("runs/a",)) == {"runs/a/x": b"1"}


def test_a_refused_reply_is_a_failed_task_and_no_more(tmp_path: Path) -> None:
    class Reply:
        def result(self, timeout: float) -> dict[str, Any]:
            return {"outcome": {"state": "done"}, "files": {"../x": b""}}

    outcome = _outcome_of(Task("a", "m:f", outputs=("a",)), Reply(), tmp_path)
    assert outcome.state == "failed"
    assert outcome.reason.endswith("refused")
    assert everything(tmp_path) == {}


@pytest.mark.parametrize("place", ["base", "task", "parent", "run"])
def test_scratch_directories_do_not_follow_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A link where the scratch directory belongs: nothing is written or deleted behind it."""
    target = tmp_path / "precious"
    target.mkdir()
    (target / "letter").write_text("kept")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = Task("a", name_of(break_down), {"divisor": 1}, outputs=("runs/a",))
    scratch = _scratch(task)
    link = {
        "base": scratch.parent,
        "task": scratch,
        "parent": scratch / "runs",
        "run": scratch / "runs" / "a",
    }[place]
    for parent in reversed(link.parents):
        parent.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(target)
    order = {
        "task": asdict(task),
        "version": package_version(),
        "folder": "",
        "mark": "",
        "engine": "compiled",
    }
    reply = remote_task(order, {"runs/a/x": b"1"})
    assert "is a link, or others may write there" in reply["outcome"]["reason"]
    assert everything(target) == {"letter": b"kept"}
    assert link.is_symlink()


def test_scratch_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = Task("a", name_of(break_down), {"divisor": 1})
    base = _scratch(task).parent
    base.mkdir()
    base.chmod(0o777)
    order = {
        "task": asdict(task),
        "version": package_version(),
        "folder": "",
        "mark": "",
        "engine": "compiled",
    }
    assert "others may write there" in remote_task(order, {})["outcome"]["reason"]
    assert everything(base) == {}


def test_worker_refuses_a_late_version_and_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    task = {"name": "a", "function": name_of(refuse)}
    order = {"task": task, "version": "9.9.9", "folder": str(tmp_path), "mark": ".shared-x",
             "engine": "compiled"}  # fmt: skip
    reply = remote_task(order, {})
    assert f"has thermoloom {package_version()}, this machine 9.9.9" in reply["outcome"]["reason"]
    reply = remote_task(order | {"version": package_version()}, {})
    assert "is not the same folder on the worker" in reply["outcome"]["reason"]


# --- progress -----------------------------------------------------------------------------


@dataclass
class Recorder(Progress):
    """Remembers what it was told."""

    notes: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    at_once: set[str] = field(default_factory=set)
    most_running: int = 0

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        self.most_running = max(self.most_running, len(self.running))

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        self.ended.add(name)
        if at_once:
            self.at_once.add(name)

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self.ended.add(name)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class KillsWorker(Recorder):
    """SIGKILL to one worker of a cluster when training is well under way."""

    address: str = ""
    killed: bool = False

    def advanced(self, name: str, done: int, total: int, loss: float | None) -> None:
        super().advanced(name, done, total, loss)
        if not self.killed and 0 < done < total:
            import distributed

            with distributed.Client(self.address, set_as_default=False) as client:
                pids = client.run(os.getpid)
            os.kill(sorted(pids.values())[0], signal.SIGKILL)
            self.killed = True


def drive(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ten tasks, one done before, after 100 s one done, one failed and two half done."""
    now = 1000.0
    monkeypatch.setattr("thermoloom.runs.progress.time.monotonic", lambda: now)
    with progress.shown(10):
        progress.started("old")
        progress.finished("old", at_once=True)
        for name in ("one", "two", "three", "four"):
            progress.started(name)
        now += 100
        progress.finished("one")
        progress.failed("two", "machine.kT = -1: must be positive")
        progress.advanced("three", 150, 300, 0.25)
        progress.advanced("four", 150, 300, None)
        return progress.summary


def test_time_left_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tasks' worth of work in 100 s; six are left: 200 s."""
    expected = "2 of 10 tasks done, 2 running, 1 failed, about 3:20 left"
    assert drive(Progress(), monkeypatch) == expected


def test_nothing_is_said_of_the_time_left_too_early() -> None:
    progress = Progress()
    with progress.shown(7):
        progress.started("one")
        progress.advanced("one", 1, 960, 652.89)
        assert progress.summary == "0 of 7 tasks done, 1 running"
        progress.advanced("one", 500, 960, 400.0)
        assert "left" in progress.summary


def test_plain_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    progress = progress_for(log)
    assert isinstance(progress, PlainProgress)
    drive(progress, monkeypatch)
    lines = [line[9:] for line in log.getvalue().splitlines()]
    assert "old: already done (1 of 10 tasks done, 0 running)" in lines
    assert "two: failed: machine.kT = -1: must be positive" in lines
    assert "three: 150 of 300, loss 0.25" in lines


def test_display_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=120)
    summary = drive(RichProgress(console), monkeypatch)
    shown = screen.getvalue()
    assert "two: failed: machine.kT = -1: must be positive" in shown
    assert summary in shown
    assert "150 of 300, loss 0.25" in shown
