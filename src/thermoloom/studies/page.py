"""The page of a report: chapters of studies, filled in with the numbers of their summaries."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader
from markupsafe import Markup

from thermoloom.presentation.html import Row, environment
from thermoloom.presentation.style import block_name
from thermoloom.runs.manifest import package_version
from thermoloom.studies.study import Study
from thermoloom.studies.verdicts import COLOURS, DISTANCES, SIDES, SIGNS, counted, mark

CHAPTER = "chapter.html.j2"
TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class Contents:
    """The headings written so far; in a report on one study, its parts are the chapters."""

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
    """The page of one or more studies, from their summaries and pictures."""
    contents = Contents(single=len(parts) == 1)
    templates = _templates([part.study.folder for part in parts])
    frame, chapters, count = templates.get_template("chapter.html.j2"), [], 0
    for number_of_study, part in enumerate(parts):
        pictures = {}
        for figure in part.study.figures:
            count += 1
            png = base64.b64encode(part.images[figure.name]).decode()
            pictures[figure.name] = {"count": count, "title": figure.title, "data": png}
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
        of_paper=any(_is_about_paper(summary) for summary in summaries),
        of_pairs=any("pairs" in summary for summary in summaries),
        contents=contents.entries,
        chapters=[Markup(chapter) for chapter in chapters],  # escaped when rendered
        version=package_version(),
        versions=sorted({summary["versions"]["thermoloom"] for summary in summaries}),
    )  # fmt: skip


def _is_about_paper(summary: Mapping[str, Any]) -> bool:
    """Whether a study of the package judges statements of the paper, and not only our own."""
    sentences = [row["where"] for row in summary["statements"]]
    return not summary["folder"] and any(not where.startswith("our ") for where in sentences)


def _templates(folders: Sequence[Path]) -> Environment:
    """The chapter of the i-th study is ``i/chapter.html.j2``, or a plain one if it has none."""
    plain = FileSystemLoader(TEMPLATES / "plain")
    chapters = {
        str(i): ChoiceLoader([FileSystemLoader(folder), plain]) for i, folder in enumerate(folders)
    }
    return environment(
        FileSystemLoader(TEMPLATES), PrefixLoader(chapters), counted=counted, mark=mark,
        block_name=block_name, KINDS=COLOURS, SIGNS=SIGNS, SIDES=SIDES, DISTANCES=DISTANCES,
    )  # fmt: skip
