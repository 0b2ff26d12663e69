"""The experiments, one module each, by name and in the order of the report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from thermoloom.errors import UserError

if TYPE_CHECKING:
    from thermoloom.experiments.plan import Experiment

NAMES = (
    "comparison",
    "prototypes",
    "noise",
    "precision",
    "controls",
    "theory",
    "digits",
    "ledger",
    "frontier",
    "wiring",
    "devices",
)
"""Every experiment: a module of this name here, and one of the same name in ``presentation``."""
TOGETHER = tuple(name for name in NAMES if name not in ("digits", "wiring", "devices"))
"""Experiments of ``run all``: on the paper's machine or one like it. The others have their own."""
MOST_SEEDS = 10_000
"""Most seeds of one experiment; each is a training."""


def experiment(name: str) -> Experiment:
    """The experiment of this name; its module is loaded only now."""
    if name not in NAMES:
        raise UserError(f"{name}: no such experiment; known: {', '.join(NAMES)}")
    found: Experiment = import_module(f"thermoloom.experiments.{name}").EXPERIMENT
    return found
