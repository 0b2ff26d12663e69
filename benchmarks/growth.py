"""Growth of time and memory: 128 to 8,192 units in training, 1 to 10,000 patterns in the solver.

Each measurement has its own process. The limit of time is the FLOP count at the sgemm rate of this
run; the limit of memory is the least that the task needs (``benchmarks.memory``).
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Options, Result, Row, all_threads, sgemm
from benchmarks.memory import MEGABYTE, SIZES, Spent, growing_machine, measure

PATTERNS = (1, 10, 100, 1000, 10000)
FIGURE = Path(__file__).parents[1] / "docs/images/growth.svg"


def run(options: Options) -> Result:
    rate = 1 / sgemm(all_threads())()
    trained, solved = {}, {}
    for units in SIZES:
        options.say(f"training of {units} units, in its own process")
        trained[units] = measure(f"units {units}")
    for count in PATTERNS if options.full else PATTERNS[:-1]:
        options.say(f"the optimum of {count} patterns, in its own process")
        solved[count] = measure(f"solve {count}")
    rows = []
    for units, spent in trained.items():
        per_step = 1e6 / growing_machine(units).steps
        rows += _rows(f"training step, {units} units", spent, "µs", per_step, rate)
    for count, spent in solved.items():
        rows += _rows(f"optimum of {count} patterns", spent, "s", 1.0, rate)
    options.say("the optimum of 64 × 64 images, in its own process")
    images = measure("solve images")
    rows += [
        Row("optimum of 64 × 64 images", images.seconds, "s", bar=60.0,
            note="4,096 units, all pairs wired, four stages, 1,000 patterns"),
        Row("  its memory", _used(images), "MB"),
    ]  # fmt: skip
    _draw(trained, solved, rate)
    return Result(rows, notes=[f"figure written to {FIGURE}"])


def _rows(name: str, spent: Spent, unit: str, scale: float, rate: float) -> list[Row]:
    return [
        Row(name, scale * spent.seconds, unit, limit=scale * spent.flops / rate),
        Row("  its memory", _used(spent), "MB", limit=spent.inherent / MEGABYTE),
    ]


def _used(spent: Spent) -> float:
    return (spent.peak - spent.before) / MEGABYTE


def _draw(trained: dict[int, Spent], solved: dict[int, Spent], rate: float) -> None:
    """Plot time and memory against units and patterns, with dashed limits."""
    import matplotlib
    from matplotlib.figure import Figure

    from thermoloom.presentation.style import FAINT, ORANGE, STYLE, WIDTH

    step = {units: 1e6 / growing_machine(units).steps for units in trained}
    with matplotlib.rc_context(STYLE | {"svg.fonttype": "none", "svg.hashsalt": "growth"}):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        panels = figure.subplots(2, 2, sharex="col")
        for column, (spent_by_size, scales, sizes, unit, title) in enumerate(
            (
                (trained, step, "units", "µs per step", "Training, with its path"),
                (solved, dict.fromkeys(solved, 1.0), "patterns", "s", "Exact optimum, 1,296 units"),
            )
        ):
            x = list(spent_by_size)
            time_axes, memory_axes = panels[0, column], panels[1, column]
            seconds = [scales[n] * spent.seconds for n, spent in spent_by_size.items()]
            limits = [scales[n] * spent.flops / rate for n, spent in spent_by_size.items()]
            measured = {"marker": "o", "color": ORANGE, "label": "measured"}
            limit = {"linestyle": "--", "color": FAINT, "label": "limit"}
            time_axes.plot(x, seconds, **measured)
            time_axes.plot(x, limits, **limit)
            memory_axes.plot(x, [_used(spent) for spent in spent_by_size.values()], **measured)
            memory_axes.plot(x, [s.inherent / MEGABYTE for s in spent_by_size.values()], **limit)
            time_axes.set(xscale="log", yscale="log", title=title, ylabel=unit)
            memory_axes.set(yscale="log", ylabel="MB", xlabel=sizes)
            memory_axes.set_xticks(x, [f"{n:,}" for n in x])
            memory_axes.minorticks_off()
            time_axes.legend()
        figure.savefig(FIGURE, metadata={"Date": None})
