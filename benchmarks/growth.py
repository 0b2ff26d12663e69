"""How time and memory grow: 128 to 8,192 units in training, 1 to 10,000 patterns in the solver.

Each measurement has a process of its own. Limits: of time, the FLOP of forces and updates at the
sgemm rate of this run; of memory, θ before and after a path, the path and its drives.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Options, Result, Row, all_threads, force_flops, sgemm, update_flops
from benchmarks.memory import MEGABYTE, SIZES, Spent, growing_machine, inherent_memory, measure

PATTERNS = (1, 10, 100, 1000, 10000)
FIGURE = Path("growth.png")


def run(options: Options) -> Result:
    rate = 1 / sgemm(all_threads())()
    result = Result()
    sizes: list[tuple[int, Spent, float, float]] = []
    for units in SIZES:
        options.say(f"training of {units} units, in a process of its own")
        machine, spent = growing_machine(units), measure(f"units {units}")
        limit = (force_flops(machine) + update_flops(machine)) / rate
        sizes.append((units, spent, limit, inherent_memory(machine)))
        step, memory = spent.seconds / machine.steps, spent.peak - spent.before
        result.rows += [
            Row(f"training step, {units} units", step * 1e6, "µs", limit=limit * 1e6),
            Row("  its memory", memory / MEGABYTE, "MB", limit=sizes[-1][3] / MEGABYTE),
        ]
    solved: list[tuple[int, Spent]] = []
    for count in PATTERNS if options.full else PATTERNS[:-1]:
        options.say(f"the optimum of {count} patterns, in a process of its own")
        solved.append((count, measure(f"solve {count}")))
        spent = solved[-1][1]
        memory = spent.peak - spent.before
        result.rows += [
            Row(f"optimum of {count} patterns", spent.seconds, "s"),
            Row("  its memory", memory / MEGABYTE, "MB"),
        ]
    _draw(sizes, solved)
    result.notes.append(f"drawn in {FIGURE}")
    return result


def _draw(sizes: list[tuple[int, Spent, float, float]], solved: list[tuple[int, Spent]]) -> None:
    """Time and memory over units and over patterns, limits dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    (time_units, time_patterns), (memory_units, memory_patterns) = figure.subplots(2, 2)
    units = [size for size, *_ in sizes]
    steps = [growing_machine(size).steps for size in units]
    used = [(spent.peak - spent.before) / MEGABYTE for _, spent, *_ in sizes]
    each = [1e6 * spent.seconds / k for (_, spent, *_), k in zip(sizes, steps, strict=True)]
    time_units.plot(units, each, "o-", label="measured")
    time_units.plot(units, [1e6 * limit for *_, limit, _ in sizes], "--", label="sgemm rate")
    memory_units.plot(units, used, "o-", label="measured")
    memory_units.plot(units, [m / MEGABYTE for *_, m in sizes], "--", label="θ twice, path, drives")
    counts = [count for count, _ in solved]
    time_patterns.plot(counts, [spent.seconds for _, spent in solved], "o-", label="measured")
    memory_patterns.plot(
        counts, [(s.peak - s.before) / MEGABYTE for _, s in solved], "o-", label="measured"
    )
    for axes, x, y in (
        (time_units, "units", "training step (µs)"),
        (memory_units, "units", "training, memory (MB)"),
        (time_patterns, "patterns", "exact optimum (s)"),
        (memory_patterns, "patterns", "exact optimum, memory (MB)"),
    ):
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.legend(frameon=False)
    figure.savefig(FIGURE, dpi=120)
