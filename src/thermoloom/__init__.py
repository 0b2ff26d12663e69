"""thermoloom: simulate, train and measure generative thermodynamic computers."""

from thermoloom.config import Physics, PrototypeSettings, Settings, Training
from thermoloom.errors import UserError
from thermoloom.generation import Generated, generate
from thermoloom.physics.computer import Computer, energy, energy_gradient, energy_parts
from thermoloom.prototypes import Prototypes, from_images, load_prototypes, unit_fields
from thermoloom.training.noising import noising_path
from thermoloom.training.trainer import Trained, train

__all__ = [
    "Computer",
    "Generated",
    "Physics",
    "PrototypeSettings",
    "Prototypes",
    "Settings",
    "Trained",
    "Training",
    "UserError",
    "energy",
    "energy_gradient",
    "energy_parts",
    "from_images",
    "generate",
    "load_prototypes",
    "noising_path",
    "train",
    "unit_fields",
]
