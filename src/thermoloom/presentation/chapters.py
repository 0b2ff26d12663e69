"""The chapters of a report: for each experiment its figures, and a template of the same name.

Another experiment is a line here, ``templates/NAME.html.j2``, and functions that draw its figures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # loads matplotlib
    from thermoloom.presentation.drawing import Draw


class FigureSpec(NamedTuple):
    """A figure of an experiment; its caption is in the template."""

    name: str
    """File name without its ending."""
    title: str
    place: str
    """``module:function`` that draws it, loaded only when it is drawn."""

    @property
    def draw(self) -> Draw:
        module, _, function = self.place.partition(":")
        found: Draw = getattr(import_module(f"thermoloom.presentation.{module}"), function)
        return found


CHAPTERS = {
    "comparison": (
        FigureSpec("figure-1", "From noise to digits", "pair_figures:draw_trajectories"),
        FigureSpec("figure-2", "Online and batch training in pairs", "pair_figures:draw_pairs"),
        FigureSpec("figure-3", "Samples and their quality", "pair_figures:draw_samples"),
        FigureSpec("figure-energies", "Where the heat differs", "pair_figures:draw_energies"),
    ),
    "prototypes": (
        FigureSpec("pairs", "More prototypes, in pairs", "pair_figures:draw_pairs"),
        FigureSpec("samples", "More prototypes: samples", "pair_figures:draw_samples"),
    ),
    "noise": (FigureSpec("figure-4", "Response to perturbations", "noise_figures:draw_heat"),),
    "precision": (
        FigureSpec("figure-5", "Response to precision", "precision_figures:draw_heat"),
        FigureSpec("figure-precision", "Quality and couplings by precision",
                   "precision_figures:draw_quality"),
    ),
    "controls": (
        FigureSpec("figure-6", "Learning rate and update period", "control_figures:draw_heat"),
    ),
    "theory": (
        FigureSpec("training", "Training, predicted and measured", "theory_figures:draw_training"),
        FigureSpec("limits", "Limits, predicted and measured", "theory_figures:draw_limits"),
        FigureSpec("origin", "Where the heat comes from", "theory_figures:draw_origin"),
    ),
    "digits": (
        FigureSpec("sheet", "Ten digits on demand", "digit_figures:draw_sheet"),
        FigureSpec("denoising", "From noise to all ten digits", "digit_figures:draw_denoising"),
        FigureSpec("confusion", "Asked, recognized, completed", "digit_figures:draw_confusion"),
        FigureSpec("curves", "What makes it work", "digit_figures:draw_curves"),
        FigureSpec("curve-energies", "What it costs", "digit_figures:draw_curve_energies"),
        FigureSpec("unlabelled", "Without labels", "digit_figures:draw_unlabelled"),
    ),
    "ledger": (
        FigureSpec("ledger", "What the heat is spent on", "heat_figures:draw_ledger"),
    ),
    "frontier": (
        FigureSpec("frontier", "The least heat at every loss", "heat_figures:draw_frontier"),
        FigureSpec("variants", "Other durations, temperatures and stages",
                   "heat_figures:draw_variants"),
        FigureSpec("schedules", "Schedules of least heat", "heat_figures:draw_schedules"),
    ),
    "devices": (
        FigureSpec("devices", "Devices, written and recalibrated", "device_figures:draw_devices"),
        FigureSpec("device-samples", "Samples before and after", "device_figures:draw_samples"),
    ),
    "wiring": (FigureSpec("wiring", "What a wire buys", "wiring_figures:draw_wiring"),),
}  # fmt: skip
"""In the order of a report on all of them."""
