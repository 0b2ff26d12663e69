"""python -m benchmarks [--only training,paths] [--full] [--out bench.json] [--against CHECKOUT]"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import against
from benchmarks.harness import Options, Result, Row, Share, all_threads
from thermoloom.runs.manifest import host, package_version, software_versions

GROUPS = (
    "starting", "training", "portable", "paths", "generating", "sparse", "memory", "screens",
    "theory", "sweeps", "growth",
)  # fmt: skip
LONG = ("sweeps", "growth")
"""Run only with --only or --full."""


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 118)
    progress = Console(stderr=True, highlight=False)
    began = time.perf_counter()
    results: dict[str, Result] = {}
    quick = [group for group in GROUPS if group not in LONG]
    chosen = arguments.only or (GROUPS if arguments.full else quick)
    if arguments.against:
        other = arguments.against.resolve()
        say = partial(progress.print, "…")
        rows = against.compare(other, chosen, arguments.rounds, arguments.full, say)
        console.print(against.table(rows, figures))
        compared = {"against": str(other), "host": host(), "rows": [asdict(row) for row in rows]}
        arguments.out.write_text(json.dumps(compared, indent=1) + "\n")
        return 0
    for group in chosen:
        options = Options(full=arguments.full, say=lambda text: progress.print(f"… {text}"))
        results[group] = import_module(f"benchmarks.{group}").run(options)
    seconds = time.perf_counter() - began
    show(console, results)
    console.print(f"{seconds:.0f} s, {all_threads()} threads, {host()['cpu']}", highlight=False)
    arguments.out.write_text(json.dumps(record(results, seconds), indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        type=groups,
        help=f"some of {','.join(GROUPS)} (default: all but {','.join(LONG)}; with --full, all)",
    )
    parser.add_argument("--full", action="store_true", help="full lengths instead of scaled ones")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="alternate with another checkout and print the ratios of the medians",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds with --against (3)")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="output file")
    return parser.parse_args()


def groups(text: str) -> list[str]:
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: known groups are {', '.join(GROUPS)}")
    return chosen


def record(results: dict[str, Result], seconds: float) -> dict[str, Any]:
    """Return the content of bench.json."""
    rows = [{"group": g} | row.as_dict() for g, result in results.items() for row in result.rows]
    profiles = {
        whole: [asdict(share) for share in parts]
        for result in results.values()
        for whole, parts in result.profiles.items()
    }
    return {
        "rows": rows,
        "where_the_time_goes": profiles,
        "notes": [note for result in results.values() for note in result.notes],
        "seconds": seconds,
        "threads": all_threads(),
        "host": host(),
        "versions": software_versions() | {p: package_version(p) for p in ("torch", "jax")},
    }


def show(console: Console, results: dict[str, Result]) -> None:
    table = Table(title="thermoloom benchmark", show_edge=False, pad_edge=False)
    for heading in ("what", "value", "unit", "limit", "of limit", "bar", "met"):
        right = heading not in ("what", "unit", "met")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for result in results.values():
        for row in result.rows:
            table.add_row(*cells(row))
        table.add_section()
    console.print(table)
    for result in results.values():
        for row in result.rows:
            if row.note:
                console.print(f"{row.name.strip()}: {row.note}", style="dim", highlight=False)
        for note in result.notes:
            console.print(note, style="yellow", highlight=False)
    for result in results.values():
        for whole, parts in result.profiles.items():
            console.print()
            console.print(where(whole, parts))


def cells(row: Row) -> list[str]:
    sense = "≤" if row.better == "less" else "≥"
    met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
    return [
        row.name.replace("[", "\\["),
        figures(row.value),
        row.unit,
        "" if row.limit is None else figures(row.limit),
        "" if row.fraction is None else f"{row.fraction:.0%}",
        "" if row.bar is None else f"{sense} {figures(row.bar)}",
        met,
    ]


def where(whole: str, parts: list[Share]) -> Table:
    table = Table(title=f"where the time of {whole} goes", show_edge=False, pad_edge=False)
    table.add_column("part")
    table.add_column(parts[0].unit, justify="right")
    table.add_column("share", justify="right")
    for share in parts:
        table.add_row(share.part, figures(share.value), f"{share.fraction:.0%}")
    return table


def figures(value: float) -> str:
    """Format with three significant figures; large numbers without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
