"""The HTML page: templates filled in by Jinja2 with the numbers of the summaries.

A number on the page is ``<data value="…">`` with the full value that summary.json holds.
"""

from __future__ import annotations

import base64
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup, escape

from thermoloom.presentation.style import block_name
from thermoloom.runs.manifest import package_version
from thermoloom.studies.study import Study
from thermoloom.studies.verdicts import COLOURS, SIGNS, counted, mark

DASH = "–"
CHAPTER = "chapter.html.j2"
Row = Mapping[str, Any]
Cell = str | Callable[[Row], Any]
"""What stands in a cell: a text to ``fill`` from the row, or a macro of the row."""


# --- numbers and words ---


def number(value: Any, spec: str = ".2f") -> Markup:
    """A number with its full value in the markup; a dash where there is none."""
    if value is None:
        return Markup(DASH)
    if spec.endswith("g") and 0 < abs(value) < 1e-3:  # 0.00018 is better read as 1.8 × 10⁻⁴
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
    """``"lower in {lower} of {pairs}"`` with its numbers put in as numbers, the rest escaped.

    ``{name:[.2f]}`` is an interval, and nothing where there is none.
    """
    parts = []
    for text, name, spec, _ in string.Formatter().parse(template):
        parts.append(symbols(text))
        if name is not None:
            parts.append(_filled(_value(name, values), spec or ""))
    return Markup("").join(parts)


def _value(name: str, values: Row) -> Any:
    """``name`` or ``name[3]`` of a row; None where it is not there."""
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
    """A value of the settings, as a file has it."""
    if isinstance(value, (bool, str)):
        return escape(str(value).lower() if isinstance(value, bool) else value or '""')
    if isinstance(value, (list, tuple)):
        return Markup(", ").join(setting(entry) for entry in value)
    return number(value, _plain(value))


def shortest(value: float | None) -> str:
    """Format of a number that is shown with the digits it was given with."""
    return "" if value is None else ".3g" if abs(value) < 1e-3 else "g"


def plural(count: int, noun: str) -> Markup:
    """1 pair, 5 pairs."""
    return Markup("{} {}{}").format(number(count, "d"), noun, "" if count == 1 else "s")


# --- tables ---


@dataclass(frozen=True)
class Grid:
    """A table ready to be written: (heading, whether numbers stand under it), and the cells."""

    columns: list[tuple[str, bool]]
    rows: list[list[Markup]]


def grid(columns: Sequence[tuple[str, Cell]], rows: Sequence[Row]) -> Grid:
    """The columns in which any row has something to show; an empty cell is an empty text."""
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


# --- the page ---


@dataclass
class Contents:
    """Headings as they are written; in a report on one study, its parts are the chapters."""

    single: bool
    entries: list[tuple[int, str, str]] = field(default_factory=list)

    def chapter(self, summary: Row) -> Markup:
        return Markup("") if self.single else self._add(2, summary["title"], summary["study"])

    def part(self, summary: Row) -> Callable[[str, str], Markup]:
        level, prefix = (2 if self.single else 3), summary["study"]
        return lambda text, name: self._add(level, text, f"{prefix}-{name}")

    def _add(self, level: int, text: str, anchor: str) -> Markup:
        self.entries.append((level, text, anchor))
        return Markup('<h{0} id="{2}">{1}</h{0}>').format(level, text, anchor)


@dataclass(frozen=True)
class Chapter:
    """A study in a report: its record, its summary, and its figures as PNGs by name."""

    study: Study
    summary: dict[str, Any]
    images: Mapping[str, bytes]


def build(parts: Sequence[Chapter], verdicts: Mapping[str, int]) -> str:
    """The page of one study or of a few, from their summaries and pictures."""
    contents = Contents(single=len(parts) == 1)
    templates = environment([part.study.folder for part in parts])
    frame, chapters, count = templates.get_template("chapter.html.j2"), [], 0
    for number_of_study, part in enumerate(parts):
        pictures = {}
        for figure in part.study.figures:
            count += 1
            data = base64.b64encode(part.images[figure.name]).decode()
            pictures[figure.name] = {"count": count, "title": figure.title, "data": data}
        variables = {
            "s": part.summary,
            "pictures": pictures,
            "part": contents.part(part.summary),
            "chapter": f"{number_of_study}/{CHAPTER}",
        }
        chapters.append(frame.render(variables, contents=contents))
    summaries = [part.summary for part in parts]
    marks = {mark(summary) for summary in summaries}
    return templates.get_template("report.html.j2").render(
        title=summaries[0]["title"] if contents.single else "Generative thermodynamic computing",
        mark_of_all=marks.pop() if len(marks) == 1 else "",
        growing=contents.single and bool(summaries[0].get("interim")),
        verdicts=verdicts,
        contents=contents.entries,
        chapters=[Markup(chapter) for chapter in chapters],  # escaped when rendered
        version=package_version(),
        versions=sorted({summary["versions"]["thermoloom"] for summary in summaries}),
    )  # fmt: skip


def environment(folders: Sequence[Path]) -> Environment:
    """Templates that escape their values and refuse names that are not there.

    The chapter of the i-th study is ``i/chapter.html.j2``; all may use the shared templates.
    """
    shared = Path(__file__).parent / "templates"
    chapters = {
        str(i): ChoiceLoader([FileSystemLoader(folder), FileSystemLoader(shared / "plain")])
        for i, folder in enumerate(folders)
    }
    templates = Environment(
        loader=ChoiceLoader([FileSystemLoader(shared), PrefixLoader(chapters)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "n": number, "interval": interval, "fill": fill, "symbols": symbols, "plural": plural,
        "setting": setting, "shortest": shortest, "grid": grid, "counted": counted,
        "block_name": block_name, "mark": mark, "KINDS": COLOURS, "SIGNS": SIGNS,
    }  # fmt: skip
    return templates
