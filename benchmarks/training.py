"""Online training, paths included, compared with the sgemm rate and with step-by-step loops."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from benchmarks import peers
from benchmarks.harness import (
    Contestant,
    Options,
    Result,
    Row,
    Seconds,
    Share,
    all_threads,
    clocked,
    default_drive,
    default_fields,
    force_flops,
    in_turns,
    sgemm,
    update_flops,
)
from thermoloom.engines import Path, engine
from thermoloom.engines.compiled.barrier import new_barrier
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import drives_of, noising_path
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.threads import threads
from thermoloom.training.trainer import Trainee, train, validation_path

kernels = import_module("thermoloom.engines.compiled.learner")  # compiled.learner is a function
# inner kernels, compiled once more so that Python can call them
_change_and_feel, _fill, _solve, _start_residuals, _take, _turn_states = (
    njit(getattr(kernels, name).py_func, nogil=True, error_model="numpy")
    for name in (
        "_change_and_feel",
        "_fill",
        "solve",
        "_start_residuals",
        "_take",
        "_turn_states",
    )
)
NEVER = 10**9
CYCLES = 4
"""Cycles per round; the fastest counts."""
STAGED = {"stages": 4, "labels": 10}
"""Settings of a machine that should cost hardly more per step."""
PEER_STEPS = 200
PEER_TRIES = 2
CHECK_STEPS = 50
SAME = 1e-5
"""Largest relative difference of θ between programs that do the same."""


def settings_for(**imperfections: Any) -> Settings:
    """The paper's computer in unlimited online training without validation."""
    training = {"cycles": NEVER, "validation_every": NEVER}
    return Settings().updated({"training": training, "imperfections": imperfections})


def cycles(*trainees: Trainee, count: int = CYCLES) -> Contestant:
    """``count`` cycles on shared paths through the public interface, timed per cycle of all."""
    drive = default_drive(trainees[0].settings)

    def fastest_cycle() -> Seconds:
        moments: list[float] = []  # the first cycle, which draws the validation path, ends at [0]

        def after_cycle(_: list[Trainee]) -> bool:
            moments.append(time.perf_counter())
            return len(moments) > count

        train(trainees, drive, after_cycle)
        if any(trainee.diverged for trainee in trainees):
            raise RuntimeError("a benchmarked training diverged")
        return min(stop - start for start, stop in pairwise(moments))

    return fastest_cycle


@dataclass(frozen=True)
class Opponent:
    """A peer in one form, and the required speedup over it."""

    name: str
    peer: peers.Peer
    package: str
    bar: float | None
    on: Callable[[int], AbstractContextManager[Any]] | None
    """Limits its threads if that is possible."""

    def thread_counts(self) -> list[int]:
        """One and all, of which the faster counts; 0 if the number cannot be set."""
        return sorted({1, all_threads()}) if self.on else [0]


def _torch_threads(count: int) -> AbstractContextManager[Any]:
    import torch

    torch.set_num_threads(count)
    return nullcontext()


OPPONENTS = (
    Opponent("PyTorch loop, in-place addr_", peers.torch_loop, "torch", 7.5, _torch_threads),
    Opponent("JAX lax.scan", peers.jax_scan, "jax", 20, None),
    Opponent("NumPy loop", peers.numpy_loop, "numpy", 40, threads),
    Opponent("NumPy loop, tuned", peers.numpy_tuned, "numpy", None, threads),
)


def run(options: Options) -> Result:
    result = Result()
    engine().warm_up()
    settings, cores = settings_for(), all_threads()
    machine = settings.machine
    taking_part = [opponent for opponent in OPPONENTS if find_spec(opponent.package)]
    for opponent in OPPONENTS:
        if opponent not in taking_part:
            result.notes.append(f"{opponent.name}: skipped, {opponent.package} is not installed")
    options.say("checking that all peers learn the same θ")
    differences = {o.name: _difference(settings, o.peer) for o in taking_part}
    contestants: dict[str, Contestant] = {
        "sgemm": sgemm(cores),
        "ours": cycles(Trainee.new(settings)),
        "staged": cycles(Trainee.new(settings.updated({"machine": STAGED}))),
    }
    for opponent in taking_part:
        for count in opponent.thread_counts():
            contestants[f"{opponent.name}/{count}"] = _steps(settings, opponent, count)
    options.say("online training and its peers, alternating")
    best = in_turns(contestants, options.rounds)

    step = best["ours"] / machine.steps
    flops = force_flops(machine) + update_flops(machine)
    at_best = flops * best["sgemm"]
    rate = 1e-9 / best["sgemm"]
    result.rows = [
        Row(f"NumPy sgemm 1024³, {cores} threads", rate, "GFLOP/s", "more"),
        Row("online training with its paths, a step", step * 1e6, "µs", limit=at_best * 1e6),
        Row(
            f"  its {flops / 1e6:.2f} MFLOP of forces and update",
            at_best / step,
            "of sgemm rate",
            "more",
            limit=1.0,
            bar=0.7,
            note=f"{flops / step * 1e-9:.1f} GFLOP/s, without the FLOP of the sweeps",
        ),
    ]
    more = 100 * (best["staged"] / best["ours"] - 1)
    labels, stages = STAGED["labels"], STAGED["stages"]
    result.rows.append(
        Row(f"  + {stages} stages and {labels} labels", more, "%", bar=10.0, note="step with both")
    )
    for opponent in taking_part:
        times = {n: best[f"{opponent.name}/{n}"] for n in opponent.thread_counts()}
        fastest = min(times.values())
        result.rows.append(
            Row(
                f"  × {opponent.name}",
                fastest / step,
                "×",
                "more",
                limit=fastest / at_best,
                bar=opponent.bar,
                note=f"{_said(times)} per step without its paths; "
                f"θ agrees to {differences[opponent.name]:.0e}",
            )
        )
    result.rows.append(_validation(settings, best["ours"]))
    result.profiles["a step of online training"] = profile(settings)
    return result


def _said(times: dict[int, Seconds]) -> str:
    """“340 µs (1 thread), 290 µs (2 threads)”; the ratio is to the fastest."""
    if len(times) == 1 or 0 in times:
        return f"{min(times.values()) * 1e6:.0f} µs"
    each = [f"{t * 1e6:.0f} µs ({n} thread{'s' * (n > 1)})" for n, t in times.items()]
    return ", ".join(each)


def _difference(settings: Settings, peer: peers.Peer) -> float:
    """Relative difference of θ between a peer and ours after the same short path."""
    path, rate = first_steps(settings, CHECK_STEPS), settings.learning_rate
    ours = Learner(path.machine, rate).learn(Parameters.zeros(path.machine), path)
    theirs = peer(path.machine, rate, path.states)()
    pairs = [(theirs[name], ours[name]) for name in ours.arrays]
    worst = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    if not worst < SAME:
        raise RuntimeError(f"{peer} learns a different θ: relative difference {worst:.1e}")
    return worst


def _steps(settings: Settings, opponent: Opponent, count: int) -> Contestant:
    """A peer on this many threads, timed per step."""
    path = first_steps(settings, PEER_STEPS)
    train = opponent.peer(path.machine, settings.learning_rate, path.states)
    timed = clocked(train, PEER_STEPS, PEER_TRIES)

    def run() -> Seconds:
        with opponent.on(count) if opponent.on else nullcontext():
            return timed()

    return run


def first_steps(settings: Settings, steps: int) -> Path:
    """The first steps of a noising path of the first pattern, as a path of a shorter machine."""
    whole = noising_path(settings.machine, default_fields(settings)[0], 101, 0)
    states = np.ascontiguousarray(whole[: steps + 1])
    short = replace(settings.machine, duration=steps * settings.machine.dt)
    return Path(short, states, 0, None, drives_of(short, states))


def _validation(settings: Settings, cycle: Seconds) -> Row:
    """The cost of validation every ten cycles, relative to a training of a hundred cycles."""
    drive = default_drive(settings)
    path = validation_path(settings, drive)
    loss = engine().watch(path)
    theta = Parameters.zeros(settings.machine)
    training = engine().path(path.machine, drive.fields[0], 1, 0)
    theta, _ = engine().learner(settings).update(theta, {}, training)
    best = in_turns(
        {"once": clocked(lambda: engine().watch(path)), "each": clocked(lambda: loss(theta))}, 5
    )
    return Row(
        "  + validation loss every 10 cycles",
        100 * (best["once"] + 10 * best["each"]) / (100 * cycle),
        "%",
        bar=2.0,
        note=f"in 100 cycles: {best['once'] * 1e3:.0f} ms once, {best['each'] * 1e3:.1f} ms each; "
        "not part of the above",
    )


def profile(settings: Settings) -> list[Share]:
    """Where the time of a step goes, on one thread: the learner's compiled parts, one by one."""
    machine = settings.machine
    with threads(1):
        learner, theta = Learner(machine, settings.learning_rate), Parameters.zeros(machine)
        field = default_fields(settings)[0]
        for cycle in range(3):  # fewer sweeps are needed once something is learned
            theta = learner.learn(theta, engine().path(machine, field, 1, cycle))
        turns = [_parts_of_a_cycle(learner, theta, field, cycle) for cycle in range(3, 9)]
    fastest = min(turns, key=lambda parts: sum(parts.values()))
    whole = sum(fastest.values())
    return [Share(n, t / machine.steps * 1e6, "µs", t / whole) for n, t in fastest.items()]


def _parts_of_a_cycle(
    learner: Learner, theta: Parameters, field: peers.Float32, cycle: int
) -> dict[str, Seconds]:
    """One trajectory as ``learner._learn`` does it, timed part by part."""
    parts: dict[str, Seconds] = {}

    def timed(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        answer = function(*arguments)
        parts[name] = parts.get(name, 0.0) + time.perf_counter() - began
        return answer

    machine = theta.machine
    path = timed("noising path", noising_path, machine, field, 1, cycle)
    rule = learner._rule._replace(one_h=np.float32(1))
    scratch, work = learner._scratch, learner._memory
    initial, learned = (
        learner._blocks(v) for v in (theta.vector[0], np.empty_like(theta.vector[0]))
    )
    scratch.bias[:] = effective_bias(theta)
    nothing, barrier, solved = np.empty((0, machine.units), np.float32), new_barrier(), 0
    block, everything = rule.strip * rule.strips, kernels.share_of(0, 1, rule.pieces)
    groups = (work.visible, work.hidden)
    timed("copying θ", _fill, everything, initial, scratch)
    for first in range(0, machine.steps, block):
        states = path[first : first + block + 1]
        x = states[1:]
        for group in groups:
            timed("states, turned", _turn_states, everything, x, group)
        whole = (everything, solved, True, x, rule, work, scratch)
        timed("update and forces", _change_and_feel, *whole)
        for group in groups:
            alone = (everything, states, nothing, True)
            timed("residuals", _start_residuals, *alone, scratch.bias, rule.constants, group)
        timed("strips", _solve, 0, 1, barrier, len(x), rule, work)
        solved = len(x)
    end = (everything, solved, True, x[:0], rule, work, scratch)
    timed("update and forces", _change_and_feel, *end)
    timed("copying θ", _take, everything, scratch, learned)
    return parts
