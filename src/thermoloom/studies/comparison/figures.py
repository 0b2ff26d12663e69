"""Figures 1 to 3 of the paper, and where the heat differs."""

from thermoloom.studies.pair_figures import (
    draw_energies,
    draw_pairs,
    draw_samples,
    draw_trajectories,
)

__all__ = ["draw_energies", "draw_pairs", "draw_samples", "draw_trajectories"]
