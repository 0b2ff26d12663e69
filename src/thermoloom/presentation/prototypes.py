"""Fifteen prototypes in the report: the paired comparison once more, and its samples."""

from __future__ import annotations

from typing import Any

from thermoloom.presentation import page
from thermoloom.presentation.comparison import (
    comparison_caption,
    headline,
    heat_table,
    quality_tables,
    samples_caption,
)
from thermoloom.presentation.figures import FigureSpec
from thermoloom.presentation.pairs import draw_comparison, draw_samples

FIGURES = (
    FigureSpec("pairs", "More prototypes, in pairs", draw_comparison, comparison_caption),
    FigureSpec("samples", "More prototypes: samples", draw_samples, samples_caption),
)


def section(summary: dict[str, Any], figures: dict[str, str]) -> str:
    """The result, the paper's statements, the pictures."""
    name = summary["experiment"]
    intro = page.fill(
        "The same comparison with {count} prototypes, the first images of each class. ",
        {"count": summary["prototype_count"]},
    )
    return "".join(
        [
            page.heading(3, "Result", f"{name}-result"),
            page.paragraph(intro + headline(summary)),
            page.quantity_table(summary["quantities"]),
            page.statement_table(summary["statements"]),
            figures["pairs"],
            heat_table(summary),
            figures["samples"],
            quality_tables(summary),
        ]
    )
