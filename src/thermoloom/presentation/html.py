"""Numbers, words and tables as HTML, and the templates that use them.

Every number on a page is a ``<data value="…">`` with its full value.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

DASH = "–"
Row = Mapping[str, Any]
Cell = str | Callable[[Row], Any]
"""Content of a cell: a text to ``fill`` from the row, or a function of the row."""


# --- numbers and words ---


def number(value: Any, spec: str = ".2f") -> Markup:
    """A number with its full value in the markup; a dash for None."""
    if value is None:
        return Markup(DASH)
    if spec.endswith("g") and 0 < abs(value) < 1e-3:  # 0.00018 reads better as 1.8 × 10⁻⁴
        spec = ".1e"
    return Markup('<data value="{}">{}</data>').format(repr(value), _pretty(format(value, spec)))


def _pretty(text: str) -> Markup:
    """Minus signs and powers of ten as they are printed: 3.3e-05 → 3.3 × 10⁻⁵; zero has no sign."""
    mantissa, exponent_mark, exponent = text.partition("e")
    if not mantissa.strip("+-0."):
        mantissa = mantissa.lstrip("+-")
    mantissa = mantissa.replace("-", "−")
    if not exponent_mark:
        return Markup(mantissa)
    power = str(int(exponent)).replace("-", "−")
    return Markup("{} × 10<sup>{}</sup>").format(mantissa, power)


def interval(bounds: Sequence[float] | None, spec: str = ".2f") -> Markup:
    """[low, high], or nothing."""
    if bounds is None:
        return Markup("")
    low, high = (number(bound, spec) for bound in bounds)
    return Markup('<span class="interval">[{}, {}]</span>').format(low, high)


def symbols(text: str) -> Markup:
    """A text with J_vh, σ_upd … set as symbols."""
    return Markup(re.sub(r"(?<!\w)([Jbtθσμρ])_(\w+)", r"<i>\1</i><sub>\2</sub>", str(escape(text))))


def fill(template: str, values: Row) -> Markup:
    """``"lower in {lower} of {pairs}"`` with its numbers formatted and the rest escaped.

    ``{name:[.2f]}`` is an interval, or nothing if there is none.
    """
    parts = []
    for text, name, spec, _ in string.Formatter().parse(template):
        parts.append(symbols(text))
        if name is not None:
            parts.append(_filled(_value(name, values), spec or ""))
    return Markup("").join(parts)


def _value(name: str, values: Row) -> Any:
    """``name`` or ``name[3]`` of a row; None if the row does not have it."""
    try:
        return string.Formatter().get_field(name, (), values)[0]
    except KeyError:
        return None


def _filled(value: Any, spec: str) -> Markup:
    if isinstance(value, str):
        return symbols(value)
    if spec.startswith("["):
        return interval(value, spec.strip("[]"))
    return number(value, spec or _plain(value))


def _plain(value: Any) -> str:
    return "d" if isinstance(value, int) else "g"


def setting(value: Any) -> Markup:
    """A value of the settings, written as in a settings file."""
    if isinstance(value, (bool, str)):
        return escape(str(value).lower() if isinstance(value, bool) else value or '""')
    if isinstance(value, (list, tuple)):
        return Markup(", ").join(setting(entry) for entry in value)
    if isinstance(value, dict):
        entries = (Markup("{} = {}").format(key, setting(entry)) for key, entry in value.items())
        return Markup("{{ {} }}").format(Markup(", ").join(entries))
    return number(value, _plain(value))


def shortest(value: float | None) -> str:
    """Format that shows a number with its shortest digits."""
    return "" if value is None else ".3g" if abs(value) < 1e-3 else "g"


def plural(count: int, noun: str) -> Markup:
    """1 pair, 5 pairs."""
    return Markup("{} {}{}").format(number(count, "d"), noun, "" if count == 1 else "s")


# --- tables ---


@dataclass(frozen=True)
class Grid:
    """A formatted table: (heading, whether the column is numeric), and the cells."""

    columns: list[tuple[str, bool]]
    rows: list[list[Markup]]


def grid(columns: Sequence[tuple[str, Cell]], rows: Sequence[Row]) -> Grid:
    """A table without the columns that are empty in all rows; an empty cell is an empty text."""
    filled = [(title, cell, [_cell(cell, row) for row in rows]) for title, cell in columns]
    filled = [column for column in filled if any(column[2])]
    cells = [[column[i] for _, _, column in filled] for i in range(len(rows))]
    return Grid([(title, _numeric(cell)) for title, cell, _ in filled], cells)


def _cell(cell: Cell, row: Row) -> Markup:
    if callable(cell):
        return Markup(str(cell(row)).strip())
    names = [name for _, name, _, _ in string.Formatter().parse(cell) if name]
    known = any(_value(name, row) not in (None, "") for name in names)
    return fill(cell, row) if known else Markup("")


def _numeric(cell: Cell) -> bool:
    return not callable(cell) and ":" in cell


# --- templates ---


def environment(*loaders: BaseLoader, **functions: Any) -> Environment:
    """Templates that escape their values and refuse unknown names.

    They can include the shared style and call these functions and those of this module.
    """
    shared = FileSystemLoader(Path(__file__).parent / "templates")
    templates = Environment(
        loader=ChoiceLoader([*loaders, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "n": number, "interval": interval, "fill": fill, "symbols": symbols, "plural": plural,
        "setting": setting, "shortest": shortest, "grid": grid, **functions,
    }  # fmt: skip
    return templates
