"""Refuse phrases that our readers stumble over, in pages, help texts, messages and docstrings.

    python docs/build/check_prose.py

codespell finds misspelled words; this list holds phrases of more than one word.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PHRASES = {
    r"as asked\b": "correct class",
    r"\bthat which\b": "a noun for the thing",
    r"\bas many at least\b": "at least as many",
    r"\bwhat is (?:reached|made|learned) is\b": "a noun for the thing",
    r"\bothers of the same law\b": "the same distribution",
    r"\bsomething you can correct\b": "invalid input",
    r"\bis told\b": "say who is informed, and how",
}
"""Phrase (a regular expression) → advice on what to write instead."""


def prose_files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [*pages, *(ROOT / "src").rglob("*.py")]


def main() -> int:
    failures = 0
    for file in prose_files():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for phrase, instead in PHRASES.items():
                if match := re.search(phrase, line, re.IGNORECASE):
                    print(f"{file.relative_to(ROOT)}:{number}: {match[0]!r}; instead: {instead}")
                    failures += 1
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
