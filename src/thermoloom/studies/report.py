"""Write the report: one self-contained HTML page from saved tables. Nothing is simulated.

    report DIR   DIR is a study (results/comparison) or a results folder with several

Every number on the page is in the summary.json beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from thermoloom.errors import UserError
from thermoloom.runs.files import write_atomically
from thermoloom.runs.manifest import MANIFEST, read_manifest
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import SUMMARY, StudyTables
from thermoloom.studies.discovery import errors_named, names, study
from thermoloom.studies.page import Chapter, build
from thermoloom.studies.study import Study
from thermoloom.studies.verdicts import together

REPORT = "report.html"


@dataclass(frozen=True)
class Written:
    """Where the report is, and the seconds that figures and page took."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)


def write_report(path: Path, drawn: Collection[str] = ()) -> Written:
    """Figures and page of a study, or one page for all studies of a results folder.

    ``drawn``: studies whose figures are up to date.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; name a study or a results folder")
    if (path / MANIFEST).exists():
        if not (path / SUMMARY).exists():
            kind = read_manifest(path).kind
            raise UserError(f"{path}: a run of {kind} has no report; name a results folder")
        with RunDirectory.open(path, write=True) as run:
            return write_page(run)
    folders = _with_results(path)
    if not folders:
        raise UserError(
            f"{path}: no study with results here; run one, such as thermoloom run comparison"
        )
    began, chapters = time.perf_counter(), []
    for folder in folders:
        with RunDirectory.open(folder, write=True) as run:
            chapters.append(_chapter(run, draw=folder.name not in drawn))
    finished_drawing = time.perf_counter()
    verdicts = together(chapter.summary["verdicts"] for chapter in chapters)
    summaries = {chapter.study.name: chapter.summary for chapter in chapters}
    text = json.dumps({"verdicts": verdicts, "studies": summaries}, indent=1, ensure_ascii=False)
    write_atomically(path / SUMMARY, text.encode() + b"\n")
    write_atomically(path / REPORT, build(chapters, verdicts).encode())
    return _written(path, began, finished_drawing)


def _with_results(path: Path) -> list[Path]:
    """Folders of studies, those of the package first, in the order of the report."""
    order = names()
    folders = [summary.parent for summary in path.glob(f"*/{SUMMARY}")]
    return sorted(
        (folder for folder in folders if (folder / MANIFEST).exists()),
        key=lambda folder: (order.index(folder.name) if folder.name in order else len(order),
                            folder.name),
    )  # fmt: skip


def write_page(run: RunDirectory, pdf: bool = True) -> Written:
    """Figures and page of a study whose run is open for writing; PDFs cost half of the time."""
    began = time.perf_counter()
    chapter = _chapter(run, pdf=pdf)
    finished_drawing = time.perf_counter()
    page = build([chapter], together([chapter.summary["verdicts"]]))
    run.save_bytes(REPORT, page.encode())
    return _written(run.path, began, finished_drawing)


def _written(path: Path, began: float, finished_drawing: float) -> Written:
    seconds = {
        "figures": finished_drawing - began,
        "report": time.perf_counter() - finished_drawing,
    }
    return Written(path / REPORT, seconds)


def _chapter(run: RunDirectory, pdf: bool = True, draw: bool = True) -> Chapter:
    """A study with its figures, which are saved beside its tables."""
    tables = StudyTables.open(run.path)
    record = study_of(tables)
    if draw:
        _draw(record, tables, run, pdf)
    images = {
        figure.name: (run.path / f"{figure.name}.png").read_bytes() for figure in record.figures
    }
    return Chapter(record, tables.summary, images)


def _draw(record: Study, tables: StudyTables, run: RunDirectory, pdf: bool) -> None:
    from thermoloom.studies.drawing import render

    for figure in record.figures:
        with errors_named(record):
            files = render(figure.name, record.drawings[figure.name], tables, pdf)
        for name, data in files.items():
            run.save_bytes(name, data)


def study_of(tables: StudyTables) -> Study:
    """The study that left these tables; one outside the package must still be in its folder."""
    return study(tables.summary["folder"] or tables.summary["study"])
