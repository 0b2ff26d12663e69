"""The comparison's figures of pairs and samples, with fifteen patterns."""

from thermoloom.studies.pair_figures import draw_pairs, draw_samples

__all__ = ["draw_pairs", "draw_samples"]
