"""thermoloom: simulate, train and measure generative thermodynamic computers.

    machine  = tl.Machine(hidden=512)           its arguments are the settings of ``[machine]``
    computer = machine.train(images)            or machine.solve(images)
    drawn    = computer.generate(200)           samples, heat, work, quality
    computer.save("my.safetensors")             tl.load("my.safetensors")

Inputs and outputs are NumPy arrays. The command line opens files written by ``save``, and
``load`` opens runs of the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thermoloom.computers.computer import Computer as Computer
    from thermoloom.computers.computer_files import load as load
    from thermoloom.computers.drawn import Drawn as Drawn
    from thermoloom.engines.choice import engine as engine
    from thermoloom.errors import DataWarning as DataWarning
    from thermoloom.errors import UserError as UserError
    from thermoloom.machine.device import Device as Device
    from thermoloom.machine.machine import Machine as Machine
    from thermoloom.machine.onsite import Development as Development
    from thermoloom.machine.onsite import Well as Well
    from thermoloom.patterns import densities as densities
    from thermoloom.patterns.sources import Images as Images
    from thermoloom.patterns.sources import digits as digits
    from thermoloom.patterns.sources import edges as edges
    from thermoloom.patterns.sources import images as images
    from thermoloom.presentation.call_progress import progress as progress
    from thermoloom.rules import Momentum as Momentum
    from thermoloom.runs.results import Results as Results
    from thermoloom.runs.results import results as results

# The module of each public name. It is imported when the name is first used: a worker process, or
# `thermoloom --help`, should not wait for modules that it does not need.
_HOME = {
    "Computer": "computers.computer",
    "DataWarning": "errors",
    "Development": "machine.onsite",
    "Device": "machine.device",
    "Drawn": "computers.drawn",
    "Images": "patterns.sources",
    "Machine": "machine.machine",
    "Momentum": "rules",
    "Results": "runs.results",
    "UserError": "errors",
    "Well": "machine.onsite",
    "densities": "patterns",
    "digits": "patterns.sources",
    "edges": "patterns.sources",
    "engine": "engines.choice",
    "images": "patterns.sources",
    "load": "computers.computer_files",
    "progress": "presentation.call_progress",
    "results": "runs.results",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thermoloom' has no attribute {name!r}")
    if name == "densities":  # a module
        return import_module("thermoloom.patterns.densities")
    public = getattr(import_module(f"thermoloom.{_HOME[name]}"), name)
    if _HOME[name].startswith("machine."):
        import_module("thermoloom.sections").explain(public)
    elif name in ("Computer", "Drawn", "Images"):
        import_module("thermoloom.sections").explain(public, "Attributes")
    return public


def __dir__() -> list[str]:
    return __all__
