"""Training with errors: the cost of noise, offset, memory and rounding over clean training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks import peers
from benchmarks.generating import SAMPLES, sampling, shortened, trained
from benchmarks.harness import (
    Contestant,
    Options,
    Result,
    Row,
    all_threads,
    clocked,
    in_turns,
    limited,
    memory_copy,
)
from benchmarks.training import PEER_STEPS, PEER_TRIES, cycles, first_steps, settings_for
from thermoloom.engines import engine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import coupling_ranges
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee

BITS = 16
"""Enough to represent updates of every size; the cost does not depend on it."""
ROUNDING = {"nearest": 8.0, "stochastic": 6.0}
AMPLITUDES = tuple(round(0.05 * i, 2) for i in range(9))
"""σ_upd of the update-noise screen."""
SCREEN_CYCLES = 100
CHECK_STEPS = 40
RESIDUAL_ERRORS = {
    "residual noise, σ = 0.2": {"residual_noise": 0.2},
    "offset, μ_bias = 0.01": {"residual_noise": 0.2, "residual_offset": 0.01},
    "AR(1), ρ = 0.9": {"residual_noise": 0.2, "residual_correlation": 0.9},
}


def run(options: Options) -> Result:
    engine().warm_up()
    theta = trained(Settings())
    parts = [
        _residual_errors(options),
        _update_noise(options, theta),
        _rounding(options, theta),
    ]
    return Result([row for rows in parts for row in rows])


def _residual_errors(options: Options) -> list[Row]:
    """Errors that are known before a block: the block learner, including the time to draw them."""
    options.say("training with residual noise, offset and AR(1), alternating with clean training")
    conditions: dict[str, dict[str, float]] = {"clean": {}, **RESIDUAL_ERRORS}
    best = in_turns(
        {name: cycles(Trainee.new(settings_for(**errors))) for name, errors in conditions.items()},
        options.rounds,
    )
    return [
        Row(f"training with {name}", best[name] / best["clean"], "× clean", limit=1.0, bar=1.3)
        for name in RESIDUAL_ERRORS
    ]


def _update_noise(options: Options, theta: Parameters) -> list[Row]:
    """Nine amplitudes with generation, relative to one clean training with generation."""
    options.say(f"update noise, {len(AMPLITUDES)} amplitudes on shared paths and errors")
    noisy = [Trainee.new(settings_for(update_noise=amplitude)) for amplitude in AMPLITUDES]
    machine = Settings().machine
    short = shortened(machine, 0.1)
    best = in_turns(
        {
            "clean": cycles(Trainee.new(settings_for())),
            "screen": cycles(*noisy, count=2),
            "generation": sampling(short, theta),
        },
        max(3, options.rounds // 2),
    )
    if all(t.parameters.same_as(noisy[0].parameters) for t in noisy):
        raise RuntimeError("update noise was not applied")
    generation = best["generation"] * SAMPLES * machine.steps
    one = SCREEN_CYCLES * best["clean"] + generation
    screen = SCREEN_CYCLES * best["screen"] + len(AMPLITUDES) * generation
    least = 2 * SCREEN_CYCLES * best["clean"] + len(AMPLITUDES) * generation
    return [
        Row(
            f"update-noise screen, {len(AMPLITUDES)} amplitudes",
            screen / one,
            "× one clean",
            limit=least / one,
            bar=10.0,
            note=f"{SCREEN_CYCLES} cycles and {SAMPLES} samples each, scaled from a few cycles "
            f"and {short.steps} steps of generation; {screen:.0f} s against {one:.1f} s; "
            f"{best['screen'] / machine.steps * 1e6:.0f} µs per step for all trainings; "
            "limit: two trainings and all generations",
        )
    ]


def _rounding(options: Options, theta: Parameters) -> list[Row]:
    """Rounding after every step, compared with NumPy and with a pass over J in memory."""
    ranges = coupling_ranges(theta)
    cores = all_threads()
    machine = Settings().machine
    edges = machine.visible * machine.hidden + machine.hidden * (machine.hidden - 1) // 2
    contestants: dict[str, Contestant] = {"copy": memory_copy(4 * edges, cores)}
    for rounding in ROUNDING:
        settings = _grid(rounding, ranges)
        _check_rounding(settings)
        contestants[rounding] = cycles(Trainee.new(settings), count=2)
        for count in sorted({1, cores}):
            contestants[f"NumPy {rounding}/{count}"] = _numpy_steps(settings, count)
    options.say(f"training on a grid of {BITS} bits and the same in NumPy, alternating")
    best = in_turns(contestants, max(3, options.rounds // 2))
    rows = []
    for rounding, bar in ROUNDING.items():
        ours = best[rounding] / machine.steps
        theirs = min(best[f"NumPy {rounding}/{count}"] for count in {1, cores})
        pass_over = best["copy"] * 4 * edges
        rows.append(
            Row(
                f"training on a grid, {rounding} rounding",
                theirs / ours,
                "× NumPy",
                "more",
                limit=theirs / pass_over,
                bar=bar,
                note=f"{ours * 1e6:.0f} µs per step with its paths, NumPy {theirs * 1e6:.0f} µs "
                f"without; limit: reading and writing each coupling once, {pass_over * 1e6:.0f} µs",
            )
        )
    return rows


def _grid(rounding: str, ranges: tuple[float, float]) -> Settings:
    visible, hidden = ranges
    return settings_for(
        bits=BITS, rounding=rounding, range_visible_hidden=visible, range_hidden_hidden=hidden
    )


def _numpy_training(settings: Settings, steps: int) -> Callable[[], Parameters]:
    chosen, path = settings.imperfections, first_steps(settings, steps)
    return peers.numpy_quantized(
        path.machine,
        settings.learning_rate,
        path.states,
        chosen.bits,
        (chosen.range_visible_hidden or 0.0, chosen.range_hidden_hidden or 0.0),
        chosen.rounding == "stochastic",
    )


def _numpy_steps(settings: Settings, count: int) -> Contestant:
    """The NumPy loop with this many threads in its linear algebra, timed per step."""
    steps = PEER_STEPS // 2
    return limited(count, clocked(_numpy_training(settings, steps), steps, PEER_TRIES))


def _check_rounding(settings: Settings) -> None:
    """Check that both learn the same: to the level (nearest), or on average (stochastic)."""
    path = first_steps(settings, CHECK_STEPS)
    zero = Parameters.zeros(path.machine)
    rate = {"training": {"learning_rate": settings.learning_rate}}  # a shorter path would change it
    ours, clean = (
        engine()
        .learner(replace(chosen.updated(rate), machine=path.machine))
        .update(zero, {}, path)[0]
        for chosen in (settings, settings_for())
    )
    theirs = _numpy_training(settings, CHECK_STEPS)()
    for name in ("visible_hidden", "hidden_hidden"):
        mine, other, exact = ours[name], theirs[name], clean[name]
        if settings.imperfections.rounding == "nearest":
            wrong = float(np.mean(np.abs(mine - other) > 1e-6 * np.abs(exact).max()))
            agrees = wrong < 1e-3  # moves of half a level may be rounded either way
        else:
            size = float(np.sum(exact * exact))
            slopes = [float(np.sum(a * exact)) / size for a in (mine, other)]
            agrees = all(abs(slope - 1) < 0.02 for slope in slopes)
        if not agrees:
            raise RuntimeError(f"{settings.imperfections.rounding}: NumPy learns a different θ")
