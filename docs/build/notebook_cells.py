"""Notebooks in Markdown: the ``python`` blocks of a page are cells, executed in one namespace.

A cell shows what it prints, its figures, and the value of its last line, as a notebook does.
A comment ``# quick: VALUE`` after an assignment gives the value that tests assign instead, so that
the page runs in seconds. Readers do not see these comments.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_CELL = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_QUICK = re.compile(r"^(\w+ = )(.*?)  # quick: (.*)$", re.MULTILINE)


@dataclass
class Cell:
    """A piece of text, or of code with its outputs."""

    text: str
    is_code: bool
    printed: str = ""
    pictures: list[bytes] = field(default_factory=list)


def cells_of_page(page: str) -> list[Cell]:
    """Split a page into alternating cells of text and code."""
    return [
        Cell(text, is_code=bool(number % 2))
        for number, text in enumerate(_CELL.split(page))
        if text.strip()
    ]


def executed_cells(page: str, quick: bool = False) -> list[Cell]:
    """The cells of a page with their outputs; files that they write go to a temporary folder."""
    cells = cells_of_page(page)
    names: dict[str, Any] = {"__name__": "__main__"}
    with _temporary_folder():
        for cell in cells:
            if cell.is_code:
                code = _QUICK.sub(r"\1\3" if quick else r"\1\2", cell.text)
                cell.text = _QUICK.sub(r"\1\2", cell.text)
                cell.printed, cell.pictures = _run(code, names)
    return cells


@contextlib.contextmanager
def _temporary_folder() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _run(code: str, names: dict[str, Any]) -> tuple[str, list[bytes]]:
    """Execute one cell; return its printed output and its figures."""
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        shown = None
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        if shown is not None and not isinstance(shown, Figure):
            print(repr(shown))
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    if isinstance(shown, Figure) and shown not in figures:
        figures.append(shown)
    pictures = [_png(figure) for figure in figures]
    pyplot.close("all")
    return printed.getvalue(), pictures


def save_cells(file: Path, cells: list[Cell]) -> None:
    """Write executed cells to a JSON file."""
    pictures = [[base64.b64encode(each).decode() for each in cell.pictures] for cell in cells]
    records = [asdict(cell) | {"pictures": p} for cell, p in zip(cells, pictures, strict=True)]
    file.write_text(json.dumps(records), encoding="utf-8")


def load_cells(file: Path) -> list[Cell]:
    """Read executed cells from a JSON file."""
    records = json.loads(file.read_text(encoding="utf-8"))
    for record in records:
        record["pictures"] = [base64.b64decode(each) for each in record["pictures"]]
    return [Cell(**record) for record in records]


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight", facecolor="white")
    return buffer.getvalue()


def as_notebook(executed: list[Cell]) -> str:
    """Executed cells as the text of an .ipynb file, outputs included."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": [_as_cell(number, cell) for number, cell in enumerate(executed)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1)


def _as_cell(number: int, cell: Cell) -> dict[str, Any]:
    about = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.strip()}
    if not cell.is_code:
        return about | {"cell_type": "markdown"}
    outputs: list[dict[str, Any]] = [
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {"image/png": base64.b64encode(picture).decode()},
        }
        for picture in cell.pictures
    ]
    if cell.printed:
        outputs.insert(0, {"output_type": "stream", "name": "stdout", "text": cell.printed})
    return about | {"cell_type": "code", "execution_count": None, "outputs": outputs}
