"""What MkDocs does not do by itself, as its hooks.

equations    LaTeX becomes MathML when the site is built: no script, no fonts, no network
notebooks    pages in notebooks/ are executed, and offered as .ipynb with their outputs
settings.md  and commands.md are filled from the program itself
links        beyond the folder of the documentation go to files that are not on the site
"""

from __future__ import annotations

import html
import os
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from cells import as_notebook, execute

QUICK = os.environ.get("THERMOLOOM_DOCS") == "quick"
"""Whether notebooks are executed at the size of tests."""

_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    name = page.file.src_uri
    if name.startswith("notebooks/"):
        return _executed(markdown, name, config, files)
    if name == "settings.md":
        from thermoloom.settings import settings_file

        return markdown.replace("<!-- settings -->", f"```toml\n{settings_file()}\n```")
    if name == "commands.md":
        return markdown.replace("<!-- commands -->", _commands())
    return markdown


def on_page_content(html_text: str, **_: Any) -> str:
    return _MATH.sub(_as_mathml, html_text)


def _as_mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]).strip(), display=display)


def _executed(markdown: str, name: str, config: Any, files: Files) -> str:
    """A notebook with its outputs, and a link to the file for Jupyter."""
    stem = name.removesuffix(".md")
    found = execute(markdown, QUICK)
    files.append(File.generated(config, f"{stem}.ipynb", content=as_notebook(found)))
    lines, pictures = [], 0
    for cell in found:
        lines.append(f"```python\n{cell.text}```\n" if cell.is_code else cell.text)
        if cell.printed:
            lines.append(f"```{{.text .output}}\n{cell.printed.rstrip()}\n```\n")
        for picture in cell.pictures:
            pictures += 1
            file = f"{stem}-{pictures}.png"
            files.append(File.generated(config, file, content=picture))
            lines.append(f"![Output]({Path(file).name}){{.output}}\n")
    title, _, rest = "\n".join(lines).partition("\n")
    link = f"[Download as a Jupyter notebook]({Path(stem).name}.ipynb){{.md-button download}}"
    return f"{title}\n{rest}\n\n{link}\n"


def _commands() -> str:
    """Every command with its arguments and options, from the program itself."""
    import click
    from typer.main import get_command

    from thermoloom.cli.commands import app

    def walk(command: Any, path: str) -> list[str]:
        below = getattr(command, "commands", {})
        lines = [line for name, own in below.items() for line in walk(own, f"{path} {name}")]
        if below and not command.invoke_without_command:
            return lines
        context = click.Context(command, info_name=path)
        entries = [entry.get_help_record(context) for entry in command.params]
        rows = [
            f"| `{names.removesuffix(' <Path>')}` | {' '.join(words.split())} |"
            for names, words in (entry for entry in entries if entry)
        ]
        usage = " ".join(command.collect_usage_pieces(context)).translate({123: "", 125: ""})
        usage = usage.replace("[[", "[").replace("]]", "]")
        about = " ".join((command.help or "").split())
        table = ["| option | meaning |", "|---|---|", *rows] if rows else []
        return [f"## `{path}`", "", about, "", f"    {path} {usage}", "", *table, "", *lines]

    return "\n".join(walk(get_command(app), "thermoloom"))
