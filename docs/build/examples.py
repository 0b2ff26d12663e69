"""Show docstrings as Markdown: an example that begins with ``>>>`` becomes a code block."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Turn the doctests of every docstring into fenced code blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            fenced = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
            obj.docstring.value = fenced
