"""The site: built strictly, its notebooks executed, every link resolved, opened in a browser."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from PIL import Image

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(path.stem for path in (ROOT / "docs" / "notebooks").glob("*.md"))


class _Page(HTMLParser):
    """Where a page links to, what it loads, and the places in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places.add(found.get("id", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe") and "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with its notebooks at the size of tests."""
    for needed in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    pages = tmp_path_factory.mktemp("pages")
    script = str(ROOT / "docs" / "build" / "make_site.py")
    done = subprocess.run(
        [sys.executable, script, "--quick", "--out", str(folder), "--pages", str(pages)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_leads_somewhere_and_nothing_is_fetched(site: Path) -> None:
    pages = {file: _Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > 20
    for file, page in pages.items():
        for address in (*page.links, *page.loaded):
            target, place = urldefrag(address)
            if target.startswith(("https:", "mailto:")):
                assert address in page.links, f"{file.name} loads {address}"
                assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(/\S*)?|mailto:\S+@\S+", target)
                continue
            found = (file.parent / unquote(target)).resolve() if target else file
            assert found.is_file(), f"{file.name}: {address}"
            if found in pages:
                assert place in pages[found].places, f"{file.name}: {address}"


def test_equations_are_mathml(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        for equation in re.findall(r"<math.*?</math>", text, flags=re.DOTALL):
            assert "\\" not in equation, f"{file.name}: a command is not known in {equation}"
        assert 'class="arithmatex' not in text, file
        assert not re.search(
            r"\\\(|\\\[|\$\$", re.sub(r"<(pre|code|script).*?</\1>", "", text, flags=re.S)
        ), file
    physics = (site / "physics.html").read_text(encoding="utf-8")
    assert physics.count('display="block"') > 5
    assert "<merror" not in physics


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_executed(site: Path, name: str) -> None:
    page = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    assert "# quick" not in page
    assert "question for you" in page
    notebook = json.loads((site / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    outputs = [entry for cell in notebook["cells"] for entry in cell.get("outputs", [])]
    assert sum("data" in entry for entry in outputs) >= 2, "pictures"
    assert any("text" in entry for entry in outputs), "numbers"


def test_every_public_name_and_setting_is_on_the_site(site: Path) -> None:
    import thermoloom
    from thermoloom.settings import Settings

    reference = (site / "api.html").read_text(encoding="utf-8")
    for name in thermoloom.__all__:
        assert f'.{name}"' in reference, name
    settings = (site / "settings.html").read_text(encoding="utf-8")
    for section in Settings().as_dict().values():
        for key in section:
            assert key in settings, key
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for command in ("demo", "run comparison", "runs verify", "classifier train"):
        assert f"thermoloom {command}" in commands


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """The program that draws the pictures."""
    spec = importlib.util.spec_from_file_location(
        "make_pictures", ROOT / "docs" / "build" / "make_pictures.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_command_draws_every_picture(pictures: ModuleType) -> None:
    elsewhere = {"growth.svg", "way-of-data.svg"}
    drawn = {file for file, _ in pictures.PICTURES.values()} | elsewhere
    assert {file.name for file in pictures.IMAGES.iterdir()} == drawn
    assert all(name in pictures.__doc__ for name in drawn)


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: the lab is not opened in a browser")
def test_the_picture_of_the_lab_is_the_lab_of_this_version(pictures: ModuleType) -> None:
    drawn, saved = (
        np.asarray(Image.open(source).convert("L"), float)
        for source in (io.BytesIO(pictures.lab(None)), pictures.IMAGES / "lab.png")
    )
    assert drawn.shape == saved.shape
    # fonts and the seconds of the computation differ, the picture does not
    assert np.corrcoef(drawn.ravel(), saved.ravel())[0, 1] > 0.8


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: the site is not opened in a browser")
def test_search_works_without_a_server(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        page = browser.open(f"{site.as_uri()}/index.html?q=entropy")
        found = "document.querySelector('.md-search-result__meta').textContent"
        page.until(f"/\\d+ matching documents/.test({found})")
        assert not page.complaints


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: the site is not opened in a browser")
def test_pages_fit_screen_and_phone_without_a_word_in_the_console(
    site: Path, tmp_path: Path
) -> None:
    files = [file for file in site.rglob("*.html") if file.name != "404.html"]
    with Browser(tmp_path) as browser:
        for file in files:
            page = browser.open(file.as_uri())
            for width in (1280, 390):
                page.look(width, 900)
                content = page.run("document.documentElement.scrollWidth")
                assert content <= width, f"{file.name} scrolls sideways at {width}: {content}"
            assert not page.complaints, f"{file.name}: {page.complaints}"
            page.close()
