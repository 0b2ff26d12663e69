"""Figures from saved tables alone: every case that a run can leave behind is drawn."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from study_runs import one_pair, two_pairs

from thermoloom.presentation.style import DPI, STYLE, WIDTH, block_name
from thermoloom.runs.formats import only
from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.discovery import study
from thermoloom.studies.drawing import MARK_HEIGHT, render, spread_apart, styled
from thermoloom.studies.pair_figures import draw_pairs, draw_samples, draw_trajectories

COMPARISON = study("comparison")


@pytest.fixture(autouse=True)
def fonts_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "pdf.fonttype", 42)


def rendered(figure: Any, tables: StudyTables) -> dict[str, bytes]:
    """Files of a figure of the comparison."""
    return render(figure.name, COMPARISON.drawings[figure.name], tables)


class Changed(StudyTables):
    """What a run saved, with pictures or samples that are not there."""

    def __init__(self, saved: StudyTables, **metadata: Any) -> None:
        super().__init__(saved.run, copy.deepcopy(saved.summary))
        object.__setattr__(self, "metadata", metadata)

    def arrays(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, about = super().arrays(name)
        changes = dict(self.metadata)  # type: ignore[attr-defined]
        for gone in changes.pop("without", ()):
            del arrays[gone]
        return arrays, about | changes


def texts(figure: Figure) -> str:
    """All that is written in a figure."""
    found = figure.findobj(Text)
    return "\n".join(text.get_text() for text in found)


def drawn(draw: Any, saved: StudyTables) -> Figure:
    with styled():
        figure: Figure = draw(saved)
        figure.savefig(io.BytesIO(), format="png")  # layout errors show only here
    return figure


@pytest.fixture
def classified() -> StudyTables:
    return StudyTables.open(one_pair().path)


@pytest.mark.parametrize("pair", [two_pairs, one_pair])
def test_every_figure_is_there_as_png_and_pdf(pair: Any) -> None:
    path: Path = pair().path
    for spec in COMPARISON.figures:
        with Image.open(path / f"{spec.name}.png") as picture:
            assert picture.width == pytest.approx(WIDTH * DPI, abs=1)
            assert picture.height > picture.width / 5
        for axes in drawn(
            COMPARISON.drawings[spec.name], StudyTables.open(path)
        ).axes:  # none is empty without saying why
            assert axes.has_data() or "".join(text.get_text() for text in axes.texts)
        assert (path / f"{spec.name}.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_has_the_same_bytes_for_the_same_tables(classified: StudyTables) -> None:
    spec = COMPARISON.figures[1]
    files = rendered(spec, classified)
    assert files == rendered(spec, classified)
    assert files[f"{spec.name}.png"] == (classified.run.path / f"{spec.name}.png").read_bytes()


def test_a_short_run_is_marked_on_its_figures(classified: StudyTables) -> None:
    """A line above and another ground; the figure itself is not squeezed."""
    spec = COMPARISON.figures[1]
    whole = StudyTables(classified.run, copy.deepcopy(classified.summary) | {"preset": "paper"})
    for row in whole.summary["statements"]:
        row["verdict"] = "holds"
    quick = StudyTables(classified.run, classified.summary | {"preset": "quick"})
    pictures = [
        Image.open(
            io.BytesIO(render(spec.name, COMPARISON.drawings[spec.name], saved)[f"{spec.name}.png"])
        ).convert("RGB")
        for saved in (whole, quick)
    ]
    assert pictures[1].height - pictures[0].height == pytest.approx(MARK_HEIGHT * DPI, abs=1)
    assert pictures[0].width == pictures[1].width
    assert [picture.getpixel((0, 0)) for picture in pictures] == [(255, 255, 255), (255, 246, 230)]


def test_the_users_own_matplotlib_settings_change_nothing(classified: StudyTables) -> None:
    spec = COMPARISON.figures[1]
    before = rendered(spec, classified)
    with mpl.rc_context({"axes.facecolor": "red", "lines.linewidth": 9.0}):
        assert rendered(spec, classified) == before
        assert mpl.rcParams["axes.facecolor"] == "red"


def test_a_machine_without_cross_energies_says_so(classified: StudyTables) -> None:
    bare = StudyTables(classified.run, classified.summary | {"cross": []})
    assert "not defined" in texts(drawn(COMPARISON.drawings["figure-energies"], bare))


def test_blocks_in_words() -> None:
    assert block_name("visible_hidden") == "visible–hidden couplings"
    assert block_name("hidden_bias") == "hidden biases"


def test_a_target_without_a_sample_is_shown_as_such(classified: StudyTables) -> None:
    _, about = classified.arrays("pictures")
    full = next(target for target, found in about["nearest"].items() if found)
    nobody = {
        target: about["nearest"][full] if target == full else [] for target in ("0", "1", "2")
    }
    changed = Changed(classified, nearest=nobody)
    for draw in (draw_trajectories, draw_samples):
        written = texts(drawn(draw, changed))
        assert written.count("the classifier assigns no sample to it") == 2


def test_no_sample_at_all_and_no_replay_are_drawn_too(classified: StudyTables) -> None:
    nobody = {target: [] for target in ("0", "1", "2")}
    drawn(draw_trajectories, Changed(classified, nearest=nobody))
    figure = drawn(draw_trajectories, Changed(classified, without=("snapshots",)))
    assert "no trajectory was replayed" in texts(figure)


def test_without_classifier_the_panels_say_so() -> None:
    saved = StudyTables.open(two_pairs().path)
    written = texts(drawn(draw_samples, saved))
    assert written.count("no classifier for\nthis visible layer") == 2
    assert written.count("not measured") == 3  # softmax, target fraction, entropy
    assert "2 pairs, 95 % intervals" in written


def test_one_pair_has_no_shading_and_no_interval(classified: StudyTables) -> None:
    figure = drawn(draw_pairs, classified)
    assert not figure.axes[0].collections  # no band of one curve
    assert "one pair: no interval" in texts(drawn(draw_samples, classified))
    two = drawn(draw_pairs, StudyTables.open(two_pairs().path))
    assert len(two.axes[0].collections) == 2


def test_validation_curves_are_the_mean_over_seeds() -> None:
    saved = StudyTables.open(two_pairs().path)
    lines = {line.get_label(): line for line in drawn(draw_pairs, saved).axes[0].lines}
    curves = saved.table("curves")
    for rule in ("batch", "online"):
        loss = only(curves, rule=rule)["loss"].reshape(2, -1)
        assert lines[rule].get_ydata() == pytest.approx(loss.mean(axis=0))


def test_labels_are_spread_apart_and_stay_in_order() -> None:
    axes = Figure().add_subplot()
    axes.set_ylim(0, 1)
    placed = spread_apart(np.array([0.50, 0.51, 0.1]), axes, share=0.1)
    assert placed[1] - placed[0] == pytest.approx(0.1)
    assert placed[2] < placed[0]
