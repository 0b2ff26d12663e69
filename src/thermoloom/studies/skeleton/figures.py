"""Figures read saved tables and never simulate, so they can be drawn again at any time."""

from __future__ import annotations

from matplotlib.figure import Figure

from thermoloom.runs.study_tables import StudyTables
from thermoloom.studies.drawing import finish, in_a_row


def draw_heats(tables: StudyTables) -> Figure:
    """Mean heat and contrast of every computer against its temperature."""
    figure, (heat, contrast) = in_a_row((1, 1), 2.4)
    rows = tables.table("heats")
    heat.plot(rows["temperature"], rows["heat"], "o")
    contrast.plot(rows["temperature"], rows["contrast"], "s")
    finish(heat, "a", xlabel="$k_BT$ ($E_0$)", ylabel="mean heat ($E_0$)")
    finish(contrast, "b", xlabel="$k_BT$ ($E_0$)", ylabel="contrast of a sample")
    return figure
