"""The demo: its books are those of the generation, and its page is self-contained and alive."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import webbrowser
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import thermoloom

from thermoloom.cli import demonstration
from thermoloom.demo import demo_page, demo_samples
from thermoloom.generation import generate
from thermoloom.machine.parameters import Parameters
from thermoloom.theory.solver import Solution

SAMPLES = 20


@cache
def solved() -> Solution:
    return demo_samples.solve_demo()


@cache
def drawn() -> dict[str, Any]:
    return demo_samples.draw_demo(solved().parameters, SAMPLES)


@cache
def page() -> str:
    return demo_page.build_demo(drawn(), {"seconds": 1.5, "iterations": 54})


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_machine_draws_the_requested_digits() -> None:
    found = drawn()
    assert solved().relative_gradient <= demo_samples.TOLERANCE
    assert found["requested"].tolist() == [*range(10)] * 2
    assert (found["requested"] == found["seen"]).mean() >= 0.85


def test_the_course_of_energy_heat_and_work_is_that_of_the_generation() -> None:
    found, theta = drawn(), solved().parameters
    made = generate(theta, SAMPLES, demo_samples.SEED, list(range(10)))
    course, machine = found["course"], theta.machine
    assert found["steps"][0] == 0
    assert found["steps"][-1] == machine.generation_steps
    np.testing.assert_array_equal(found["images"][:, -1], made.final_states)
    np.testing.assert_allclose(course["heat"][:, -1], made.heat, rtol=1e-9)
    np.testing.assert_allclose(course["work"][:, -1], made.work, rtol=1e-9)
    assert len(course["frame"]) == len(found["steps"]) + machine.stages
    total = sum(course["parts"].values())
    # first law at every point of the way, not at its end alone
    np.testing.assert_allclose(
        total - total[:, :1], course["work"] - course["heat"], rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(total[:, 0], made.initial_energy.total, rtol=1e-9)
    assert np.all(np.diff(course["stage"]) >= 0)


def test_times_that_miss_the_switches_are_shown_with_them() -> None:
    theta = Parameters.zeros(replace(demo_samples.MACHINE, development=()))
    found = demo_samples.draw_demo(theta, samples=2, frames=3)
    assert found["steps"] == [0, 250, 333, 500, 667, 750, 1000]
    assert found["course"]["stage"] == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]


def test_the_animation_decodes_to_the_generated_images() -> None:
    data, images = data_of(page()), drawn()["images"]
    frames, pixels = len(data["time"]), data["side"] ** 2
    raw = np.frombuffer(base64.b64decode(data["images"]), np.uint8)
    grey = raw.reshape(frames, SAMPLES, pixels).swapaxes(0, 1)
    low, high = np.percentile(images[:, -1], (demo_page.DARKEST, demo_page.BRIGHTEST))
    back = low + grey / 255.0 * (high - low)
    inside = (images > low) & (images < high)
    assert inside.mean() > 0.9
    assert np.abs(back - images)[inside].max() <= 0.51 * (high - low) / 255
    assert data["requested"] == drawn()["requested"].tolist()
    assert data["seen"] == drawn()["seen"].tolist()
    assert np.array(data["heat"])[:, -1] == pytest.approx(drawn()["stage_heat"].sum(1), abs=0.006)


def test_the_page_needs_nothing_but_itself() -> None:
    text = re.sub(r'"images":"[^"]*"', "", page())
    assert "http" not in text
    assert "url(" not in text
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == {"data:,"}
    assert not re.search(r"\bimport\s*\(|fetch\(|XMLHttp", text)
    for word in ("None", "nan", "Traceback", "Undefined"):
        assert not re.search(rf"\b{word}\b", text)
    assert len(page()) < 2_500_000


def test_what_to_try_next_can_be_tried(tmp_path: Path) -> None:
    for command, _ in demo_page.COMMANDS:
        words = command.split()
        options = [word for word in words if word.startswith("--")]
        name = words[1:3] if words[1] == "run" else words[1:2]
        done = thermoloom(*name, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert all(option in done.stdout for option in options)
    assert len(demo_page.PYTHON.splitlines()) == 3
    smaller = demo_page.PYTHON.replace("stages=4", "stages=1, dt=0.01")
    subprocess.run([sys.executable, "-c", smaller], cwd=tmp_path, check=True)
    assert (tmp_path / "drawn.png").stat().st_size > 10_000


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--out", "demo.pdf"], "ends in .html"),
        (["--out", "taken/demo.html"], "taken/demo.html"),
        (["--out", ""], "--out: is empty"),
        (["--opne"], "--opne"),
        (["extra"], "extra"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(
    arguments: list[str], names: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    done = thermoloom("demo", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert names in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("open_page", [False, True])
def test_the_command_says_where_the_page_is_and_opens_it_only_if_asked(
    open_page: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    solution, samples = solved(), drawn()  # before the functions that they call are replaced
    monkeypatch.setattr(demo_samples, "solve_demo", lambda **_: solution)
    monkeypatch.setattr(demo_samples, "draw_demo", lambda _: samples)
    out = tmp_path / "new" / "demo.html"
    demonstration.demo(out, open_page)
    assert str(out) in capsys.readouterr().out
    assert data_of(out.read_text(encoding="utf-8")) == data_of(page())
    assert opened == ([out.as_uri()] if open_page else [])


# --- in a real browser ----------------------------------------------------------------------------

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PROBE = """<script>window.addEventListener("load", () => {
  const press = key => document.body.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  const red = s => {
    const copy = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    copy.drawImage(tiles[s].button.querySelector("canvas"), 0, 0);
    return [...copy.getImageData(0, 0, 28, 28).data].filter((_, i) => i % 4 == 0);
  };
  const text = id => document.getElementById(id).textContent;
  const seen = {atFirst: [playing, time], first: red(7), light: LIGHT.map(([r]) => Math.round(r))};
  press(" ");
  seen.playing = playing;
  press(" ");
  seen.paused = !playing;
  slider.value = 1; slider.dispatchEvent(new Event("input"));
  seen.end = red(7);
  seen.heat = text("heat"); seen.heatkT = text("heatkT"); seen.work = text("work");
  tiles[3].button.click();
  seen.own = text("heat"); seen.pressed = tiles[3].button.getAttribute("aria-pressed");
  tiles[3].button.click();
  for (let i = 0; i < 60; i++) press("ArrowLeft");
  seen.start = red(7); seen.noHeat = text("heat");
  seen.tiles = tiles.filter(t => t.button.getBoundingClientRect().width > 20).length;
  seen.lines = document.querySelectorAll("#plot polyline").length;
  const root = document.documentElement;
  seen.sideways = root.scrollWidth - root.clientWidth;
  document.title = JSON.stringify(seen);
});</script>"""
"""Added to a copy of the page by the test; the title reports what the browser sees."""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_plays_the_page_without_complaint(width: int, tmp_path: Path) -> None:
    copy = tmp_path / "demo.html"
    copy.write_text(page().replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-quic"]
    command += ["--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--enable-logging=stderr", f"--window-size={width},900", "--dump-dom"]
    result = subprocess.run(
        [*command, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert [line for line in result.stderr.splitlines() if "CONSOLE" in line] == []
    title = re.search("<title>(.*?)</title>", result.stdout)
    assert title is not None
    seen = json.loads(title[1].replace("&quot;", '"'))
    grey, heat = demo_page.grey(drawn()["images"]), drawn()["stage_heat"].sum(axis=1)
    assert seen["atFirst"] == [False, 1], "it opens on its last frame"
    assert seen["playing"]
    assert seen["paused"]
    light = np.array(seen["light"])
    assert np.abs(np.array(seen["first"]) - light[grey[7, -1].ravel()]).max() <= 1
    assert seen["end"] == seen["first"]
    assert np.abs(np.array(seen["start"]) - light[grey[7, 0].ravel()]).max() <= 1
    number = {key: float(seen[key].replace(",", "").replace("−", "-"))
              for key in ("heat", "heatkT", "work", "own", "noHeat")}  # fmt: skip
    assert number["heat"] == pytest.approx(heat.mean(), abs=0.6)
    assert number["heatkT"] == pytest.approx(10 * heat.mean(), abs=0.6)
    assert number["own"] == pytest.approx(heat[3], abs=0.6)
    assert number["work"] == pytest.approx(drawn()["switching_work"].sum(1).mean(), abs=0.6)
    assert number["noHeat"] == 0
    assert seen["pressed"] == "true"
    assert seen["tiles"] == SAMPLES
    assert seen["lines"] == len(drawn()["course"]["parts"]) + 1
    assert seen["sideways"] <= 0
