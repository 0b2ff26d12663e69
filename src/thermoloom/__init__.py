"""thermoloom: simulate, train and measure generative thermodynamic computers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thermoloom.config import Machine as Machine
    from thermoloom.config import PrototypeSettings as PrototypeSettings
    from thermoloom.config import Settings as Settings
    from thermoloom.config import Training as Training
    from thermoloom.errors import UserError as UserError
    from thermoloom.generation import Generated as Generated
    from thermoloom.generation import generate as generate
    from thermoloom.machine.computer import Computer as Computer
    from thermoloom.machine.computer import energy as energy
    from thermoloom.machine.computer import energy_gradient as energy_gradient
    from thermoloom.machine.computer import energy_parts as energy_parts
    from thermoloom.prototypes import Prototypes as Prototypes
    from thermoloom.prototypes import from_images as from_images
    from thermoloom.prototypes import load_prototypes as load_prototypes
    from thermoloom.prototypes import unit_fields as unit_fields
    from thermoloom.training.noising import noising_path as noising_path
    from thermoloom.training.trainer import Trained as Trained
    from thermoloom.training.trainer import train as train

# Where each public name lives. Imported when first used: a worker process, or `thermoloom --help`,
# should not wait for what it does not need.
_ROOMS = {
    "config": ("Machine", "PrototypeSettings", "Settings", "Training"),
    "errors": ("UserError",),
    "generation": ("Generated", "generate"),
    "machine.computer": ("Computer", "energy", "energy_gradient", "energy_parts"),
    "prototypes": ("Prototypes", "from_images", "load_prototypes", "unit_fields"),
    "training.noising": ("noising_path",),
    "training.trainer": ("Trained", "train"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thermoloom' has no attribute {name!r}")
    return getattr(import_module(f"thermoloom.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
