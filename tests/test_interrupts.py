"""Interrupts: real signals at critical moments do not change results."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machines
import numpy as np
import pytest
from study_runs import SMALL, two_pairs

from soak.interrupting import contents, finish, interrupt, thermoloom
from thermoloom.computers.sample_archives import SampleRequest, generate_run
from thermoloom.computers.training_runs import train_runs
from thermoloom.engines import engine
from thermoloom.generation import generate
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive
from thermoloom.runs.store import RunDirectory, checkpoints
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee, train


def ctrl_c() -> None:
    """A real signal, whose handler has run when this returns."""
    signal.raise_signal(signal.SIGINT)


# --- deferring ------------------------------------------------------------------------------------


def test_an_interrupt_waits_for_the_end_of_the_block_however_often_it_comes() -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def block() -> None:
        with interrupts_deferred():
            ctrl_c()
            ctrl_c()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts_deferred():
        pass  # nothing is left over from before


def test_the_outermost_block_counts() -> None:
    done = []

    def block() -> None:
        with interrupts_deferred():
            with interrupts_deferred() as honour:
                ctrl_c()
                honour()
            done.append("after the inner one")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done


def test_an_interrupt_can_be_honoured_before_the_end() -> None:
    done = []

    def block() -> None:
        with interrupts_deferred() as honour:
            honour()
            ctrl_c()
            done.append("until here")
            honour()
            done.append("too far")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["until here"]


def test_whoever_handled_a_signal_still_does() -> None:
    """A handler that does not raise, an ignored signal, one that ends the process."""
    heard: list[int] = []
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGTERM, lambda signum, _: heard.append(signum))
        with interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            assert heard == []
        assert heard == [signal.SIGTERM]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with interrupts_deferred():
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            ctrl_c()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def test_other_threads_have_nothing_to_defer() -> None:
    handlers = []

    def look() -> None:
        with interrupts_deferred() as honour:
            honour()
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


# --- a cycle is a transaction ---------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "residual noise": {"residual_noise": 0.1},
    "update noise": {"update_noise": 0.1},
    "grid": {
        "bits": 6,
        "rounding": "stochastic",
        "range_visible_hidden": 0.5,
        "range_hidden_hidden": 0.5,
    },
}


def settings_for(machine: Machine, kind: str, **training: Any) -> Settings:
    values = {"cycles": 6, "validation_every": 1, "seed": 3} | training
    return Settings(machine=machine).updated({"training": values, "imperfections": KINDS[kind]})


def parts(trainee: Trainee) -> tuple[int, dict[str, bytes]]:
    return trainee.cycle, {name: array.tobytes() for name, array in trainee.arrays().items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["learner", "validation"])
def test_a_cycle_that_breaks_off_has_not_happened(
    small: Machine, fields: np.ndarray, kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised: the trainee is as before the cycle, and goes on from there."""
    settings = settings_for(small, kind)
    whole = machines.trained(settings, fields)
    trainee = Trainee.new(settings)
    train([trainee], Drive(fields), lambda _: trainee.cycle == 3)
    before = parts(trainee)

    def after(function: Callable[..., Any]) -> Callable[..., Any]:
        """The work is done, θ changed if it can be; then something goes wrong."""

        def broken(*arguments: Any) -> Any:
            function(*arguments)
            raise MemoryError

        return broken

    with monkeypatch.context() as patch:
        if where == "learner":
            last = getattr(trainee.learner, "response", trainee.learner)  # of a noisy learner
            patch.setattr(last, "update", after(last.update))
        else:
            watch = engine().watch
            patch.setattr(engine(), "watch", lambda path: after(watch(path)))
        with pytest.raises(MemoryError):
            train([trainee], Drive(fields))
    assert parts(trainee) == before
    train([trainee], Drive(fields))
    assert trainee.parameters.same_as(whole.parameters)
    assert np.array_equal(trainee.curve_columns()["loss"], whole.curve_columns()["loss"])


def test_an_interrupt_within_a_cycle_waits_for_its_end(
    small: Machine, fields: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainee = Trainee.new(settings_for(small, "plain"))
    watch = engine().watch

    def watched(path: Any) -> Any:
        loss = watch(path)

        def interrupted(theta: Any) -> Any:
            if trainee.cycle == 2:
                ctrl_c()
            return loss(theta)

        return interrupted

    monkeypatch.setattr(engine(), "watch", watched)
    with pytest.raises(KeyboardInterrupt):
        train([trainee], Drive(fields))
    assert trainee.cycle == 3
    assert trainee.curve[-1][0] == 3


def test_a_callback_cannot_swallow_an_interrupt(small: Machine, fields: np.ndarray) -> None:
    seen = []

    def careless(present: list[Trainee]) -> None:
        seen.append(present[0].cycle)
        try:
            ctrl_c()
        except BaseException:
            pytest.fail("was interrupted in the middle")

    with pytest.raises(KeyboardInterrupt):
        machines.trained(settings_for(small, "plain"), fields, on_cycle=careless)
    assert seen == [1]


def test_interrupted_in_the_cycle_that_diverges(tmp_path: Path) -> None:
    """Divergence is on record in the cycle where it happened, not found again one later."""
    machine = {"visible": 196, "hidden": 24, "duration": 0.2}
    settings = Settings.from_dict({"machine": machine, "patterns": {"resize": True}})
    settings = settings.updated({"training": {"rule": "batch", "learning_rate": 1e9}})

    def stop(_: Path, trainee: Trainee) -> None:
        if trainee.diverged:
            raise KeyboardInterrupt

    train_runs([(tmp_path / "whole", settings)])
    with pytest.raises(KeyboardInterrupt):
        train_runs([(tmp_path / "stopped", settings)], stop, checkpoint_seconds=0)
    train_runs([(tmp_path / "stopped", settings)])
    whole, stopped = (RunDirectory.open(tmp_path / name) for name in ("whole", "stopped"))
    assert whole.state == stopped.state == "diverged"
    assert whole.results == stopped.results


def test_interrupted_in_generation(
    small: Machine, fields: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a group of samples, and all threads stop."""
    monkeypatch.setenv("THERMOLOOM_THREADS", "2")
    theta = machines.trained(settings_for(small, "plain"), fields).parameters
    told = []

    def on_progress(_: int) -> None:
        told.append(threading.current_thread())
        if len(told) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        generate(theta, 40_000, 1, on_progress=on_progress)
    assert 3 <= len(told) < 14  # of 28


# --- fork -----------------------------------------------------------------------------------------


def test_a_forked_child_trains_and_generates_as_its_parent(
    small: Machine, fields: np.ndarray
) -> None:
    """Threads do not survive a fork: the child must not wait for those of its parent."""
    settings = settings_for(small, "plain")

    def work() -> list[bytes]:
        theta = machines.trained(settings, fields).parameters
        samples = generate(theta, 120, 1).final_states
        return [theta.vector.tobytes(), samples.tobytes()]

    here = work()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(work()))
    child.start()
    try:
        assert receiver.poll(30), "the child hangs"
        assert receiver.recv() == here
    finally:
        child.kill()
        child.join()
    assert work() == here  # and the parent still has its own


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``whole``, a training at full size that nothing interrupted."""
    folder = tmp_path_factory.mktemp("interrupts")
    training = {"rule": "online", "seed": 7, "cycles": 8}
    train_runs([(folder / "whole", Settings.from_dict({"training": training}))])
    return folder


def test_training_at_full_size_interrupted_at_any_moment_ends_the_same(trained: Path) -> None:
    command = thermoloom("train", "--rule", "online", "--seed", "7", "--cycles", "8")
    command += ["--checkpoint-every", "0", "--out", "stopped"]
    chance = random.Random(11)
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGKILL]
    ends = []
    for number, signum in enumerate(signals):
        had = reached(trained / "stopped")

        def has_gone_on(had: int = had) -> bool:
            return reached(trained / "stopped") > had

        moment = 0.15 * chance.random()  # about a cycle
        times = 2 if number == 2 else 1
        ends += interrupt(command, trained, [moment], signum, has_gone_on, times)
        if ends[-1].code == 0:
            break
    assert all(end.good for end in ends), ends
    assert sum(end.verdict == "stopped" for end in ends) >= 2, ends
    assert "run the same command again" in ends[0].stderr
    finish(command, trained)
    names = ("computer.safetensors", "curve.csv")
    assert contents(trained / "stopped", *names) == contents(trained / "whole", *names)


def reached(run: Path) -> int:
    """Cycle of the newest checkpoint."""
    found = checkpoints(run) if run.is_dir() else []
    return found[-1][0] if found else 0


def test_generation_at_full_size_interrupted_leaves_nothing_half_done(trained: Path) -> None:
    shutil.copytree(trained / "whole", trained / "copy")
    generate_run(trained / "whole", SampleRequest(30, 90007))
    name = "samples-90007-30.safetensors"
    whole = contents(trained / "whole", name)
    command = thermoloom("generate", "copy", "--samples", "30")
    for moment, signum in ((0.9, signal.SIGINT), (1.5, signal.SIGINT), (1.8, signal.SIGTERM)):
        end = interrupt(command, trained, [moment], signum)[0]
        assert end.good, end
        # a signal may arrive after the samples are stored, but never leaves a part of them
        stored = trained / "copy" / name
        if stored.exists() or end.verdict == "finished":
            assert contents(trained / "copy", name) == whole
            stored.unlink()
    finish(command, trained)
    assert contents(trained / "copy", name) == whole


def test_an_interrupt_that_a_destructor_swallows_ends_the_command_quietly() -> None:
    script = """
import os, signal
from thermoloom import interrupts
class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
interrupts.interrupts_end_at_once()
interrupts.interrupts_wind_up()
Destroyed()
print("swallowed")
with interrupts.interrupts_deferred():
    pass
print("not reached")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "swallowed\n"
    assert "Exception ignored" not in done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


def test_an_experiment_in_one_process_interrupted_ends_the_same(tmp_path: Path) -> None:
    """``--workers 1``: the tasks run where the signal arrives."""
    lines = []
    for section, entries in SMALL.items():
        lines += [f"[{section}]", *(f"{k} = {str(v).lower()}" for k, v in entries.items())]
    (tmp_path / "small.toml").write_text("\n".join(lines))
    command = thermoloom("run", "comparison", "--preset", "quick", "--workers", "1")
    command += ["--config", "small.toml", "--out", "stopped"]
    folder = tmp_path / "stopped"

    def one_is_trained() -> bool:
        return any(folder.glob("runs/training-*/computer.safetensors"))

    end = interrupt(command, tmp_path, [0.02], signal.SIGINT, one_is_trained)[0]
    assert end.verdict == "stopped", end
    assert "checkpoints are saved: run the same command again" in " ".join(end.stderr.split())
    finish(command, tmp_path)
    whole = two_pairs().path.parent
    names = ("runs/*/computer.safetensors", "runs/*/curve.csv", "runs/*/samples-*.safetensors")
    names += ("comparison/*.csv",)
    assert contents(folder, *names) == contents(whole, *names)


def test_an_interrupt_near_the_start_ends_at_once_and_quietly(tmp_path: Path) -> None:
    """While modules are imported, kernels loaded and threads started."""
    command = thermoloom("train", "--cycles", "40", "--out", "run")
    for number, moment in enumerate((0.0, 0.2, 0.6, 1.0, 1.4)):
        signum = (signal.SIGINT, signal.SIGTERM)[number % 2]
        end = interrupt(command, tmp_path, [moment], signum)[0]
        assert end.verdict == "stopped", end
        assert len(end.stderr.splitlines()) <= 1
