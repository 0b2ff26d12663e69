"""Lists of wires from files: pairs of units, one to a line, or an .npy array (E, 2)."""

from __future__ import annotations

from pathlib import Path

from thermoloom.errors import UserError
from thermoloom.inputs import read_text
from thermoloom.machine.wires import text_of
from thermoloom.patterns.images import read_npy

MOST_BYTES = 1 << 30


def read_edges(path: Path) -> str:
    """Read a list of wires from a file, in the form of ``machine.edges``.

    Each line has two whole numbers, separated by blanks, a tab or a comma; a # starts a comment.
    """
    if path.suffix == ".npy":
        return text_of(read_npy(path), str(path))
    pairs = []
    text = read_text(path, MOST_BYTES, "list of wires")
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != 2 or not all(w.isascii() and w.isdigit() and len(w) < 10 for w in words):
            raise UserError(f"{path}, line {number}: expected two units, such as 3, 17")
        pairs.append((int(words[0]), int(words[1])))
    if not pairs:
        raise UserError(f"{path}: has no wires; give one pair of units on each line")
    return text_of(pairs, str(path))
