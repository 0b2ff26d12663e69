"""python -m soak [--interrupts 100] [--inputs 1000] [--seed 1] [--only interrupts,files]

Exit code 0 if every trial is refused in one line, succeeds, or is stopped and continued to the same
bytes; otherwise 1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from soak import (
    clamps,
    environment,
    files,
    inputs,
    interrupts,
    signed,
    surroundings,
    threads,
    viewers,
)
from soak.cases import VERDICTS, Tally, prepare

Soak = Callable[[int, int, Tally, Callable[[str], None]], None]

CLASSES: dict[str, tuple[Soak, float]] = {
    "settings": (inputs.soak, 0.3),
    "files": (files.soak, 0.14),
    "signed": (signed.soak, 0.3),
    "clamps": (clamps.soak, 0.16),
    "environment": (environment.soak, 0.04),
    "surroundings": (surroundings.soak, 0.08),
    "threads": (threads.soak, 0.04),
    "viewers": (viewers.soak, 0.02),
}
"""Classes of wrong inputs, and their shares of ``--inputs``."""
GROUPS = (*CLASSES, "interrupts")


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 118, highlight=False)
    progress = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        progress.print(f"… {text}", markup=False, soft_wrap=True)

    # A background job of a shell ignores Ctrl-C, and its children inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tally, began = Tally(say), time.monotonic()
    try:
        perform(arguments, tally, say)
    except KeyboardInterrupt:
        say("interrupted; so far:")
    show(console, tally)
    console.print(f"{time.monotonic() - began:.0f} s, seed {arguments.seed}")
    return 1 if tally.bad else 0


def perform(arguments: argparse.Namespace, tally: Tally, say: Callable[[str], None]) -> None:
    chosen = arguments.only or GROUPS
    if "interrupts" in chosen:  # first: they need all cores, and no kernels loaded in this process
        interrupts.soak(arguments.interrupts, arguments.seed, tally, say)
    wanted = [group for group in CLASSES if group in chosen]
    if not wanted:
        return
    prepare()
    total = sum(CLASSES[group][1] for group in wanted)
    for group in wanted:
        soak, share = CLASSES[group]
        soak(round(arguments.inputs * share / total), arguments.seed, tally, say)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=100, help="signals sent (100)")
    parser.add_argument("--inputs", type=int, default=1000, help="wrong inputs tried (1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the trials (1)")
    parser.add_argument("--only", type=groups, help=f"some of {','.join(GROUPS)}")
    return parser.parse_args()


def groups(text: str) -> list[str]:
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: known groups are {', '.join(GROUPS)}")
    return chosen


def show(console: Console, tally: Tally) -> None:
    table = Table("class", "tried", *VERDICTS, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, counts in sorted(tally.counts.items()):
        table.add_row(kind, str(counts.total()), *(str(counts[v]) for v in VERDICTS))
    every = [str(sum(c[v] for c in tally.counts.values())) for v in VERDICTS]
    table.add_section()
    table.add_row("all", str(sum(c.total() for c in tally.counts.values())), *every)
    for example in tally.examples:
        console.print(example, markup=False, soft_wrap=True)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
