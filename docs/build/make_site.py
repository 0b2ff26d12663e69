"""Build the site: pages → Markdown that any generator understands → HTML → MathML.

    prepare    notebooks are executed, settings.md and commands.md filled from the program
    generate   MkDocs builds the HTML, independently of the other two steps
    equations  LaTeX becomes MathML in the finished pages: no script, no fonts, no network

A notebook is executed again only if its page or the package has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from notebook_cells import Cell, as_notebook, executed_cells, load_cells, save_cells

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CACHE = ROOT / "build" / "notebooks"
_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Build the site.")
    arguments.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    arguments.add_argument("--pages", type=Path, default=ROOT / "build" / "pages")
    arguments.add_argument("--quick", action="store_true", help="run the notebooks at test size")
    options = arguments.parse_args()
    prepare(options.pages, options.quick)
    with announced("generating pages"):
        generate(options.pages, options.out)
    with announced("equations"):
        for page in options.out.rglob("*.html"):
            page.write_text(with_mathml(page.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"open {os.path.relpath(options.out / 'index.html')}")


@contextmanager
def announced(step: str) -> Iterator[None]:
    """Print the name of a step when it begins and its duration when it ends."""
    began = time.perf_counter()
    print(f"{step} ... ", end="", flush=True)
    yield
    print(f"{time.perf_counter() - began:.0f} s", flush=True)


def prepare(pages: Path, quick: bool) -> None:
    """Copy the documentation to ``pages`` and add everything that is computed."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("build"))
    with announced("settings and commands"):
        fill(pages / "settings.md", "<!-- settings -->", settings_listing())
        fill(pages / "commands.md", "<!-- commands -->", commands_listing())
    notebooks = sorted((pages / "notebooks").glob("*.md"))
    with announced(f"notebooks ({len(notebooks)})"), ProcessPoolExecutor(2) as pool:
        texts = [page.read_text(encoding="utf-8") for page in notebooks]
        cells_of_pages = pool.map(cached_cells, texts, [quick] * len(texts))
        for page, cells in zip(notebooks, cells_of_pages, strict=True):
            write_notebook(page, cells)


def cached_cells(text: str, quick: bool) -> list[Cell]:
    """The executed cells of a notebook, from the cache if nothing has changed."""
    key = hashlib.sha256(f"{text}{quick}{package_hash()}".encode()).hexdigest()[:24]
    file = CACHE / f"{key}.json"
    if file.exists():
        return load_cells(file)
    cells = executed_cells(text, quick)
    CACHE.mkdir(parents=True, exist_ok=True)
    save_cells(file, cells)
    return cells


def package_hash() -> str:
    """SHA-256 of the package's source and of the code that executes notebooks."""
    sources = [*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def write_notebook(page: Path, cells: list[Cell]) -> None:
    """Write a page with the outputs of its cells, its figures, and the Jupyter notebook."""
    page.with_suffix(".ipynb").write_text(as_notebook(cells), encoding="utf-8")
    lines, pictures = [], 0
    for cell in cells:
        lines.append(f"```python\n{cell.text}```\n" if cell.is_code else cell.text)
        if cell.printed:
            lines.append(f"```{{.text .output}}\n{cell.printed.rstrip()}\n```\n")
        for picture in cell.pictures:
            pictures += 1
            file = page.with_name(f"{page.stem}-{pictures}.png")
            file.write_bytes(picture)
            lines.append(f"![Output]({file.name}){{.output}}\n")
    lines.append(f"[Download as a Jupyter notebook]({page.stem}.ipynb){{.md-button download}}\n")
    page.write_text("\n".join(lines), encoding="utf-8")


def fill(page: Path, placeholder: str, content: str) -> None:
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(placeholder, content), encoding="utf-8")


def settings_listing() -> str:
    """Every setting with its default and its meaning."""
    from thermoloom.settings import settings_file

    return f"```toml\n{settings_file()}\n```"


def commands_listing() -> str:
    """Every command with its arguments and options; equal tables of options appear once."""
    from typer.main import get_command

    from thermoloom.cli.commands import app

    lines: list[str] = []
    command_with: dict[tuple[str, ...], str] = {}
    for path, about, usage, options in command_sections(get_command(app), "thermoloom"):
        lines += [f"## `{path}`", "", about, "", f"    {path} {usage}", ""]
        if options in command_with:
            lines += [f"Same options as `{command_with[options]}`.", ""]
        elif options:
            command_with[options] = path
            lines += ["| option | meaning |", "|---|---|", *options, ""]
    return "\n".join(lines)


Section = tuple[str, str, str, tuple[str, ...]]


def command_sections(command: Any, path: str) -> Iterator[Section]:
    """Path, description, usage and rows of options of a command, then of its subcommands."""
    import click

    context = click.Context(command, info_name=path)
    subcommands = command.list_commands(context) if hasattr(command, "list_commands") else []
    if not subcommands or command.invoke_without_command:
        records = [parameter.get_help_record(context) for parameter in command.params]
        options = tuple(
            f"| `{names.removesuffix(' <Path>')}` | {' '.join(words.split())} |"
            for names, words in (record for record in records if record)
        )
        usage = " ".join(command.collect_usage_pieces(context)).translate({123: "", 125: ""})
        usage = usage.replace("[[", "[").replace("]]", "]")
        yield path, " ".join((command.help or "").split()), usage, options
    for name in subcommands:
        yield from command_sections(command.get_command(context, name), f"{path} {name}")


def generate(pages: Path, out: Path) -> None:
    """Build HTML from the prepared pages with MkDocs."""
    environment = os.environ | {"THERMOLOOM_PAGES": str(pages), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def with_mathml(page: str) -> str:
    """The page with LaTeX replaced by MathML."""
    return _MATH.sub(_mathml, page)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    return convert(html.unescape(match[2]).strip(), display=display)


if __name__ == "__main__":
    main()
