"""The page: self-contained, every number in the summary, and shown by a real browser."""

from __future__ import annotations

import ast
import copy
import html.parser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from study_runs import one_pair, two_pairs

import thermoloom
from thermoloom.errors import UserError
from thermoloom.presentation import html as page
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies import verdicts
from thermoloom.studies.discovery import study
from thermoloom.studies.page import Chapter, build
from thermoloom.studies.report import write_report

SOURCE = Path(thermoloom.__file__).parent


def page_of(*summaries: dict[str, Any]) -> str:
    """The page of studies with these summaries, with empty pictures."""
    record = study("comparison")
    images = {figure.name: b"" for figure in record.figures}
    return build([Chapter(record, summary, images) for summary in summaries], {"all": 0})


class Reader(html.parser.HTMLParser):
    """Elements, attributes, numbers and the text of table cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.identities: list[str] = []
        self.numbers: list[str] = []
        self.cells: list[str] = []
        self._in_cell = self._in_number = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("src", "href") if name in values]
        self.identities += [values["id"] or ""] if "id" in values else []
        if tag == "data":
            self.numbers.append(values["value"] or "")
            self._in_number = True
        if tag == "td":
            self.cells.append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "data":
            self._in_number = False
        if tag == "td":
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell and not self._in_number:
            self.cells[-1] += data


def leaves(value: Any) -> Iterator[Any]:
    """Every number and text of a summary."""
    if isinstance(value, dict):
        for entry in value.values():
            yield from leaves(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from leaves(entry)
    else:
        yield value


@pytest.mark.parametrize("pair", [two_pairs, one_pair])
def test_every_number_on_the_page_is_in_the_summary(pair: Any) -> None:
    path: Path = pair().path
    reader = Reader((path / "report.html").read_text(encoding="utf-8"))
    known = list(leaves(json.loads((path / "summary.json").read_text(encoding="utf-8"))))
    numbers = {repr(value) for value in known if isinstance(value, (int, float))}
    assert len(reader.numbers) > 150
    assert set(reader.numbers) <= numbers
    # digits of a table that are not marked as numbers belong to a text of the summary
    words = " ".join(value for value in known if isinstance(value, str))
    for cell in reader.cells:
        for digits in re.findall(r"[0-9]+", cell):
            assert digits in words, cell


@pytest.mark.parametrize("pair", [two_pairs, one_pair])
def test_the_page_needs_nothing_but_itself(pair: Any) -> None:
    text = (pair().path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert "script" not in reader.tags
    assert "url(" not in text
    assert all(link.startswith(("data:", "#")) for link in reader.links)
    anchors = [link[1:] for link in reader.links if link.startswith("#")]
    assert len(anchors) >= 5
    assert set(anchors) <= set(reader.identities)
    assert len(reader.identities) == len(set(reader.identities))
    assert reader.tags.count("img") == len(study("comparison").figures)


def test_the_page_says_what_could_not_be_measured() -> None:
    text = (two_pairs().path / "report.html").read_text(encoding="utf-8")
    assert "because there is no classifier for these images" in text
    assert "there is no classifier for this visible layer" in text
    single = (one_pair().path / "report.html").read_text(encoding="utf-8")
    assert "One pair is one observation: it has no interval" in single
    assert "nan" not in Reader(text).cells
    for word in ("None", "NaN", "Traceback"):
        assert word not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text + single)


def test_a_report_is_made_from_saved_tables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("a report must not simulate")

    for name in ("generation.generate", "training.trainer.train", "engines.engine"):
        monkeypatch.setattr(f"thermoloom.{name}", forbidden)
    shutil.copytree(one_pair().path, tmp_path / "comparison")  # without the runs behind it
    before = (tmp_path / "comparison" / "report.html").read_bytes()
    (tmp_path / "comparison" / "report.html").unlink()
    written = write_report(tmp_path / "comparison")
    assert written.path.read_bytes() == before
    assert set(written.seconds) == {"figures", "report"}


def test_a_results_folder_gets_one_page_for_all_its_experiments(tmp_path: Path) -> None:
    shutil.copytree(one_pair().path, tmp_path / "comparison")
    (tmp_path / "runs").mkdir()  # not a study
    reader = Reader(write_report(tmp_path).path.read_text(encoding="utf-8"))
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert list(summary["studies"]) == ["comparison"]
    rows = summary["studies"]["comparison"]["statements"]
    assert summary["verdicts"]["all"] == sum(not row["consequence"] for row in rows)
    assert "img" in reader.tags


def test_what_has_no_report_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no study with results"):
        write_report(tmp_path)
    run = next((two_pairs().path.parent / "runs").glob("sampled-computer-*"))
    with pytest.raises(UserError, match="a run of sampled-computer has no report"):
        write_report(run)


@pytest.mark.parametrize(
    ("value", "spec", "shown"),
    [
        (3.3e-5, ".2g", "3.3 × 10<sup>−5</sup>"),
        (-1.25, ".1f", "−1.2"),
        (0.5, "+.1f", "+0.5"),
        (-0.001, "+.2f", "0.00"),
        (0.00018, ".2g", "1.8 × 10<sup>−4</sup>"),
        (7, "d", "7"),
    ],
)
def test_numbers_as_they_are_printed(value: float, spec: str, shown: str) -> None:
    assert page.number(value, spec) == f'<data value="{value!r}">{shown}</data>'
    assert page.number(None) == "–"
    assert page.interval(None) == ""


def test_words_are_escaped_and_numbers_are_not() -> None:
    assert page.fill("a < {x:.1f} & {name}", {"x": 2.0, "name": "<b>"}) == (
        'a &lt; <data value="2.0">2.0</data> &amp; &lt;b&gt;'
    )
    assert page.fill("{bounds:[.1f]}{none:[.1f]}", {"bounds": [1, 2], "none": None}) == (
        page.interval([1, 2], ".1f")
    )


def test_nothing_of_a_summary_is_taken_for_markup() -> None:
    """A file name, a sentence or a setting may hold anything."""
    saved = StudyTables.open(one_pair().path)
    summary = copy.deepcopy(saved.summary)
    summary["title"] = summary["rerun"] = summary["host"]["cpu"] = "<script>x</script>"
    summary["statements"][0]["sentence"] = summary["quality"][0]["label"] = "<script>y</script>"
    summary["settings"]["patterns"]["path"] = "<script>z</script>"
    text = page_of(summary)
    assert "<script>" not in text
    for letter in "xyz":
        assert f"&lt;script&gt;{letter}&lt;/script&gt;" in text


def test_symbols_are_set_as_such() -> None:
    assert page.symbols("‖J_vh‖ & σ_upd") == (
        "‖<i>J</i><sub>vh</sub>‖ &amp; <i>σ</i><sub>upd</sub>"
    )
    assert page.symbols("max_softmax") == "max_softmax"


def test_columns_that_no_row_fills_are_left_out() -> None:
    rows = [{"a": 1.0, "b": None, "c": ""}, {"a": None, "b": None, "c": "x", "d": [1, 2]}]
    columns = [("A", "{a:.1f}"), ("B", "{b:.1f} ± {a_sd:.1f}"), ("C", "{c}"), ("D", "{d[1]:d}")]
    made = page.grid(columns, rows)
    assert made.columns == [("A", True), ("C", False), ("D", True)]
    assert made.rows == [
        ['<data value="1.0">1.0</data>', "", ""],
        ["", "x", '<data value="2">2</data>'],
    ]


def test_verdicts_are_counted_in_english() -> None:
    counts = {"holds": 18, "depends on the classifier": 1, "not resolved": 2, "differs": 1}
    assert verdicts.tally(counts) == (
        "18 hold, 1 depends on the classifier, 2 are not resolved, 1 differs"
    )
    assert verdicts.tally({"holds": 1, "differs": 3, "not measured": 0}) == "1 holds, 3 differ"
    assert verdicts.together([{"differs": 1, "all": 1}, {"holds": 2, "differs": 1, "all": 3}]) == {
        "holds": 2, "differs": 2, "all": 4,
    }  # fmt: skip


def test_a_run_that_is_too_short_is_marked_as_such() -> None:
    """The quick preset is never mistaken for the paper's experiment."""
    summary = copy.deepcopy(StudyTables.open(one_pair().path).summary)
    assert "Short run" in page_of(summary)
    summary["preset"] = "quick"
    assert "Quick look" in page_of(summary)
    whole = copy.deepcopy(summary) | {"preset": "paper"}
    for row in whole["statements"]:
        row["verdict"] = "holds"
    assert 'class="mark"' not in page_of(whole)
    both = page_of(whole, summary)
    assert both.count("Quick look") == 1  # in its chapter, not over all


# --- what presentation may know -------------------------------------------------------------------


def test_presentation_reads_what_is_saved_and_imports_no_experiment() -> None:
    for file in (SOURCE / "presentation").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                room = name.partition("thermoloom.")[2].partition(".")[0]
                rooms = ("", "errors", "presentation", "runs", "threads")
                assert room in rooms, f"{file.name}: {name}"


def test_jinja_and_matplotlib_are_loaded_only_for_a_page() -> None:
    code = (
        "import sys, thermoloom.studies.run, thermoloom.studies.discovery as d\n"
        "[d.study(name) for name in d.names()]\n"
        "print([m for m in ('jinja2', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- in a real browser ---------------------------------------------------------------------------

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PROBE = """<script>window.addEventListener("load", () => {
  const seen = element => { const box = element.getBoundingClientRect();
    return box.width > 40 && box.height > 10; };
  document.querySelectorAll("details").forEach(element => element.open = true);
  const images = [...document.images], tables = [...document.querySelectorAll("table")];
  document.title = JSON.stringify({
    images: images.length,
    shown: images.filter(i => i.complete && i.naturalWidth > 100 && seen(i)).length,
    tables: tables.length,
    filled: tables.filter(t => t.tBodies[0].rows.length > 0 && seen(t)).length,
    sideways: [...document.querySelectorAll(".scroll")]
      .filter(s => s.scrollWidth > s.clientWidth + 1).length,
    width: document.documentElement.scrollWidth - document.documentElement.clientWidth});
});</script>"""
"""Added to a copy of the page by the test; the title reports what the browser sees."""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("pair", [two_pairs, one_pair])
@pytest.mark.parametrize("width", [1400, 1200, 500])
def test_a_browser_shows_every_figure_and_table_without_complaint(
    pair: Any, width: int, tmp_path: Path
) -> None:
    text = (pair().path / "report.html").read_text(encoding="utf-8")
    copy = tmp_path / "report.html"
    copy.write_text(text.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update"]
    command += ["--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--enable-logging=stderr", f"--window-size={width},900", "--dump-dom"]
    result = subprocess.run(
        [*command, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    title = re.search("<title>(.*?)</title>", result.stdout)
    assert title is not None
    seen = json.loads(title[1].replace("&quot;", '"'))
    reader = Reader(text)
    assert seen["images"] == seen["shown"] == len(study("comparison").figures)
    assert seen["tables"] == seen["filled"] == reader.tags.count("table") >= 8
    assert seen["width"] <= 0  # nothing sticks out sideways, not even on a telephone
    assert seen["sideways"] == 0 or width < 1200  # no table needs scrolling


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_browser_check_can_fail(tmp_path: Path) -> None:
    """The way in which the page is opened detects errors on the console."""
    broken = tmp_path / "broken.html"
    broken.write_text("<script>console.error('ouch')</script>", encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--enable-logging=stderr", "--dump-dom", broken.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert any("CONSOLE" in line and "ouch" in line for line in result.stderr.splitlines())
