"""The report: one self-contained HTML page from what experiments saved. It never simulates.

    report DIR   DIR is an experiment (results/comparison) or a results folder with several

Every number on the page is in the summary.json beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.presentation.chapters import CHAPTERS
from thermoloom.presentation.verdicts import together
from thermoloom.runs.files import write_atomically
from thermoloom.runs.manifest import MANIFEST, read_manifest
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import SUMMARY, StudyTables

REPORT = "report.html"


@dataclass(frozen=True)
class Written:
    """Where the report is, and the seconds that figures and page took."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)


def write_report(path: Path, kept: Collection[str] = ()) -> Written:
    """Figures and page of an experiment, or one page for all experiments of a results folder.

    ``kept``: experiments whose figures are as their tables are, so that they need no drawing.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; name an experiment or a results folder")
    if (path / MANIFEST).exists():
        if (kind := read_manifest(path).kind) not in CHAPTERS:
            raise UserError(f"{path}: a run of {kind} has no report; name a results folder")
        with RunDirectory.open(path, write=True) as run:
            return write_page(run)
    found = [path / name for name in CHAPTERS if (path / name / SUMMARY).exists()]
    if not found:
        raise UserError(
            f"{path}: no experiment with results here; run one with thermoloom run comparison"
        )
    began, parts = time.perf_counter(), []
    for one in found:
        with RunDirectory.open(one, write=True) as run:
            parts.append(_kept(run) if one.name in kept else _drawn(run))
    drawn = time.perf_counter()
    verdicts, page = _page(parts)
    experiments = {summary["experiment"]: summary for summary, _ in parts}
    text = json.dumps(
        {"verdicts": verdicts, "experiments": experiments}, indent=1, ensure_ascii=False
    )
    write_atomically(path / SUMMARY, text.encode() + b"\n")
    write_atomically(path / REPORT, page)
    return _written(path, began, drawn)


def write_page(run: RunDirectory, pdf: bool = True) -> Written:
    """Figures and page of an experiment whose run is open for writing; PDFs cost half of it."""
    began = time.perf_counter()
    part = _drawn(run, pdf)
    drawn = time.perf_counter()
    run.save_bytes(REPORT, _page([part])[1])
    return _written(run.path, began, drawn)


def _written(path: Path, began: float, drawn: float) -> Written:
    seconds = {"figures": drawn - began, "report": time.perf_counter() - drawn}
    return Written(path / REPORT, seconds)


Part = tuple[dict[str, Any], dict[str, bytes]]
"""Summary of an experiment, and its figures as PNGs by name."""


def _page(parts: Sequence[Part]) -> tuple[dict[str, int], bytes]:
    """The verdicts of all experiments together, and the page."""
    from thermoloom.presentation.page import build

    verdicts = together(summary["verdicts"] for summary, _ in parts)
    return verdicts, build(parts, verdicts).encode()


def _kept(run: RunDirectory) -> Part:
    """An experiment with its figures as they are."""
    specs = CHAPTERS[run.kind]
    pictures = {spec.name: (run.path / f"{spec.name}.png").read_bytes() for spec in specs}
    return StudyTables.open(run.path).summary, pictures


def _drawn(run: RunDirectory, pdf: bool = True) -> Part:
    """An experiment with its figures, which are saved beside its tables."""
    from thermoloom.presentation.drawing import render

    saved, pictures = StudyTables.open(run.path), {}
    for spec in CHAPTERS[run.kind]:
        files = render(spec, saved, pdf)
        for name, data in files.items():
            run.save_bytes(name, data)
        pictures[spec.name] = files[f"{spec.name}.png"]
    return saved.summary, pictures
