"""The report: one self-contained HTML page from what experiments saved. It never simulates.

    report DIR   DIR is an experiment (results/comparison) or a results folder with several

Every number on the page is in the summary.json beside it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from importlib import import_module
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.experiments import NAMES
from thermoloom.experiments.paper import verdict_counts
from thermoloom.presentation import page
from thermoloom.presentation.figures import FigureSpec, Saved, render
from thermoloom.runs.files import write_atomically
from thermoloom.runs.manifest import MANIFEST, package_version, read_manifest
from thermoloom.runs.store import RunDirectory

REPORT, SUMMARY = "report.html", "summary.json"
PAPER = (
    "Wang and Deng, <i>Online local learning for generative thermodynamic computing</i>, "
    "arXiv 2609.15439"
)


@dataclass(frozen=True)
class Written:
    """Where the report is, and the seconds that figures and page took."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)


def write_report(path: Path) -> Written:
    """Figures and page of an experiment, or one page for all experiments of a results folder."""
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; name an experiment or a results folder")
    if (path / MANIFEST).exists():
        name = read_manifest(path).kind
        if name not in NAMES:
            raise UserError(f"{path}: a run of {name} has no report; name a results folder")
        return _write_single(path)
    found = [path / name for name in NAMES if (path / name / SUMMARY).exists()]
    if not found:
        raise UserError(
            f"{path}: no experiment with results here; run one with thermoloom run comparison"
        )
    return _write_all(path, found)


def _write_single(path: Path) -> Written:
    with RunDirectory.open(path, write=True) as run:
        began = time.perf_counter()
        saved = Saved.open(path)
        pictures = _draw(run, saved)
        drawn = time.perf_counter()
        text = build([(saved.summary, pictures)], saved.summary["verdicts"])
        run.save_bytes(REPORT, text.encode())
    return _written(path / REPORT, began, drawn)


def _write_all(folder: Path, paths: Sequence[Path]) -> Written:
    began = time.perf_counter()
    parts = []
    for path in paths:
        with RunDirectory.open(path, write=True) as run:
            saved = Saved.open(path)
            parts.append((saved.summary, _draw(run, saved)))
    drawn = time.perf_counter()
    verdicts = verdict_counts([s for summary, _ in parts for s in summary["statements"]])
    experiments = {summary["experiment"]: summary for summary, _ in parts}
    together = {"verdicts": verdicts, "experiments": experiments}
    text = json.dumps(together, indent=1, ensure_ascii=False)
    write_atomically(folder / SUMMARY, text.encode() + b"\n")
    write_atomically(folder / REPORT, build(parts, verdicts).encode())
    return _written(folder / REPORT, began, drawn)


def _written(path: Path, began: float, drawn: float) -> Written:
    return Written(path, {"figures": drawn - began, "report": time.perf_counter() - drawn})


def _draw(run: RunDirectory, saved: Saved) -> dict[str, bytes]:
    """Figures of an experiment, saved beside its tables; returns their PNGs by name."""
    pictures = {}
    for spec in figures_of(run.kind):
        for name, data in render(spec, saved).items():
            run.save_bytes(name, data)
            if name.endswith(".png"):
                pictures[spec.name] = data
    return pictures


def figures_of(name: str) -> tuple[FigureSpec, ...]:
    """The figures of an experiment: ``FIGURES`` of presentation/NAME.py."""
    figures: tuple[FigureSpec, ...] = import_module(f"thermoloom.presentation.{name}").FIGURES
    return figures


def section_of(name: str, summary: dict[str, Any], figures: dict[str, str]) -> str:
    """The text of an experiment: ``section`` of presentation/NAME.py."""
    body: str = import_module(f"thermoloom.presentation.{name}").section(summary, figures)
    return body


# --- the page ---------------------------------------------------------------------------------


def build(
    parts: Sequence[tuple[dict[str, Any], dict[str, bytes]]], verdicts: dict[str, int]
) -> str:
    """The page of one or several experiments, from their summaries and pictures."""
    single = len(parts) == 1
    title = parts[0][0]["title"] if single else "Generative thermodynamic computing, measured"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">What thermoloom measured, beside what {PAPER} reports.</p>',
        page.note(
            "A pair of computers trained on the same noising paths is one observation. Intervals "
            "are 95 % Student-t intervals across pairs; the spread over the trajectories of one "
            "computer describes sampling and is never used as replication."
        ),
        _tally(verdicts),
    ]
    count = 0
    for summary, pictures in parts:
        figures = {}
        for spec in figures_of(summary["experiment"]):
            count += 1
            figures[spec.name] = page.figure(
                f"Figure {count}", spec.title, pictures[spec.name], spec.caption(summary)
            )
        body.append(_experiment(summary, figures, single))
    versions = {summary["versions"]["thermoloom"] for summary, _ in parts}
    body.append(
        f"<footer>Made by thermoloom {escape(package_version())} from tables of "
        f"{escape(', '.join(sorted(versions)))}. Every number on this page is in the "
        f"<code>{SUMMARY}</code> beside it; the paper's numbers and sentences come from "
        "<code>data/paper.toml</code>.</footer>"
    )
    text = "".join(body)
    return page.page(title, page.contents(_headings(text)), text)


def _experiment(summary: dict[str, Any], figures: dict[str, str], single: bool) -> str:
    """One experiment: what it found, then how it was computed."""
    name = summary["experiment"]
    parts = [] if single else [page.heading(2, summary["title"], name)]
    if summary["missing"]:
        parts += [page.note("⚠ " + escape(line)) for line in summary["missing"]]
    text = "".join(parts) + section_of(name, summary, figures)
    text += page.heading(3, "How it was computed", f"{name}-computed") + _computed(summary)
    if single:  # its parts are then the chapters of the page
        text = re.sub(r"(</?h)3\b", r"\g<1>2", text)
    return f"<section>{text}</section>"


def _tally(verdicts: dict[str, int]) -> str:
    """How the paper's statements fared, at a glance; nothing where it makes none."""
    if not verdicts["all"]:
        return ""
    badges = "".join(
        page.badge(verdict, page.number(count, "d"))
        for verdict, count in verdicts.items()
        if verdict != "all"
    )
    count = page.number(verdicts["all"], "d")
    return (
        f"<p>Of the paper's {count} statements that this run can be held against:</p>"
        f'<div class="tally">{badges}</div>'
    )


def _computed(summary: dict[str, Any]) -> str:
    versions, host = summary["versions"], summary["host"]
    software = ", ".join(f"{k} {v}" for k, v in versions.items() if isinstance(v, str))
    libraries = ", ".join(f"{lib['name']} {lib['version']}" for lib in versions["blas"])
    preset = summary["preset"] or "own settings"
    return "".join(
        [
            page.paragraph(
                f"Preset: {escape(preset)}; {escape(summary['date'])}. "
                f"Software: {escape(software)}; linear algebra: {escape(libraries)}. "
                f"Machine: {escape(host['cpu'])}, {page.number(host['cores'], 'd')} "
                f"core(s), {escape(host['platform'])}."
            ),
            page.paragraph(
                "One training cycle is one noising trajectory; prototypes are taken in turn. All "
                "random numbers are counter-based, so the numbers of a seed do not depend on the "
                "processes that computed them; they are not those of the paper's generator."
            ),
            page.paragraph("To run it again:"),
            f"<pre>{escape(summary['rerun'])}</pre>",
            _timing(summary["timing"]),
            page.settings_table(summary["settings"]),
        ]
    )


def _timing(timing: dict[str, float]) -> str:
    rows = [{"stage": stage, "seconds": seconds} for stage, seconds in timing.items()]
    columns = [page.text_column("stage", "stage"), page.value_column("seconds", "seconds", ".1f")]
    return page.table(
        "Seconds of work by stage, summed over all processes (paths: estimated share of training)",
        columns,
        rows,
        folded=True,
    )


def _headings(text: str) -> list[tuple[int, str, str]]:
    found = re.findall(r'<h([23]) id="([^"]+)">(.*?)</h\1>', text)
    return [(int(level), identity, unescape(label)) for level, identity, label in found]
