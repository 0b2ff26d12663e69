"""python -m soak [--interrupts 100] [--inputs 1000] [--seed 1] [--only interrupts,files]

Exit code 1 unless everything is refused in one line, done right, or stopped and continued to the
same bytes.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from soak.cases import VERDICTS, Tally, prepare

GROUPS = ("settings", "files", "interrupts")


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 118, highlight=False)
    progress = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        progress.print(f"… {text}", markup=False)

    tally, began = Tally(), time.monotonic()
    chosen = arguments.only or GROUPS
    if "interrupts" in chosen:  # first: they start processes of their own, and the cores are free
        from soak import interrupts

        interrupts.soak(arguments.interrupts, arguments.seed, tally, say)
    if "settings" in chosen or "files" in chosen:
        prepare()
        share = arguments.inputs if len({"settings", "files"} & set(chosen)) == 1 else None
        if "settings" in chosen:
            from soak import inputs

            count = share or round(arguments.inputs * 0.6)
            inputs.soak(count, arguments.seed, tally, say)
        if "files" in chosen:
            from soak import files

            count = share or arguments.inputs - round(arguments.inputs * 0.6)
            files.soak(count, arguments.seed, tally, say)
    show(console, tally)
    console.print(f"{time.monotonic() - began:.0f} s, seed {arguments.seed}")
    return 1 if tally.bad else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=100, help="signals sent (100)")
    parser.add_argument("--inputs", type=int, default=1000, help="wrong inputs tried (1000)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same (1)")
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
