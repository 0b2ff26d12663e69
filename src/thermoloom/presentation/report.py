"""The report: one self-contained HTML page from what experiments saved. It never simulates.

    report DIR   DIR is an experiment (results/comparison) or a results folder with several

Every number on the page is in the summary.json beside it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.presentation.chapters import CHAPTERS
from thermoloom.presentation.saved import SUMMARY, Saved
from thermoloom.presentation.verdicts import together
from thermoloom.runs.files import write_atomically
from thermoloom.runs.manifest import MANIFEST, read_manifest
from thermoloom.runs.store import RunDirectory

REPORT = "report.html"


@dataclass(frozen=True)
class Written:
    """Where the report is, and the seconds that figures and page took."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)


def write_report(path: Path) -> Written:
    """Figures and page of an experiment, or one page for all experiments of a results folder."""
    from thermoloom.presentation.page import build

    path = Path(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; name an experiment or a results folder")
    single = (path / MANIFEST).exists()
    found = [path] if single else [path / name for name in CHAPTERS]
    found = [one for one in found if single or (one / SUMMARY).exists()]
    if single and (kind := read_manifest(path).kind) not in CHAPTERS:
        raise UserError(f"{path}: a run of {kind} has no report; name a results folder")
    if not found:
        raise UserError(
            f"{path}: no experiment with results here; run one with thermoloom run comparison"
        )
    began = time.perf_counter()
    parts = [_drawn(one) for one in found]
    drawn = time.perf_counter()
    verdicts = together(summary["verdicts"] for summary, _ in parts)
    page = build(parts, verdicts).encode()
    if single:
        with RunDirectory.open(path, write=True) as run:
            run.save_bytes(REPORT, page)
    else:
        experiments = {summary["experiment"]: summary for summary, _ in parts}
        text = json.dumps(
            {"verdicts": verdicts, "experiments": experiments}, indent=1, ensure_ascii=False
        )
        write_atomically(path / SUMMARY, text.encode() + b"\n")
        write_atomically(path / REPORT, page)
    seconds = {"figures": drawn - began, "report": time.perf_counter() - drawn}
    return Written(path / REPORT, seconds)


def _drawn(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Summary of an experiment and its figures as PNGs by name, saved beside its tables."""
    from thermoloom.presentation.drawing import render

    pictures = {}
    with RunDirectory.open(path, write=True) as run:
        saved = Saved.open(path)
        for spec in CHAPTERS[run.kind]:
            files = render(spec, saved)
            for name, data in files.items():
                run.save_bytes(name, data)
            pictures[spec.name] = files[f"{spec.name}.png"]
    return saved.summary, pictures
