"""The exact optimum, solved without a trajectory, compared with training that approaches it."""

from __future__ import annotations

from benchmarks.harness import Options, Result, Row, clocked, default_fields, in_turns
from benchmarks.memory import MEGABYTE, measure
from benchmarks.training import cycles, settings_for
from thermoloom.engines import engine
from thermoloom.patterns.drive import Drive
from thermoloom.theory.solver import solve_optimum
from thermoloom.training.trainer import Trainee

TRAINING_CYCLES = 300
MANY = (10, 100, 1000)


def run(options: Options) -> Result:
    engine().warm_up()
    settings = settings_for()
    fields = default_fields(settings)
    options.say("the optimum of three patterns, alternating with training")
    best = in_turns(
        {
            "training": cycles(Trainee.new(settings)),
            "solve": clocked(lambda: solve_optimum(settings.machine, Drive(fields))),
        },
        max(3, options.rounds // 2),
    )
    training = TRAINING_CYCLES * best["training"]
    options.say("its memory, in its own process")
    rows = [
        Row(
            "optimum of 3 patterns",
            100 * best["solve"] / training,
            "% of training",
            bar=5.0,
            note=f"{best['solve']:.2f} s against {training:.1f} s of {TRAINING_CYCLES} online "
            "cycles with paths, scaled from a few",
        ),
        Row(
            "  its peak memory, libraries included",
            measure("solve 3").peak / MEGABYTE,
            "MB",
            bar=1000.0,
        ),
    ]
    if options.full:
        rows += [row for count in MANY for row in _many(options, count)]
    return Result(rows)


def _many(options: Options, count: int) -> list[Row]:
    options.say(f"the optimum of {count} patterns")
    spent = measure(f"solve {count}")
    return [
        Row(f"optimum of {count} patterns", spent.seconds, "s"),
        Row("  its peak memory, libraries included", spent.peak / MEGABYTE, "MB"),
    ]
