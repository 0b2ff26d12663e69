"""thermoloom: simulate, train and measure generative thermodynamic computers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thermoloom.api import Computer as Computer
    from thermoloom.api import Device as Device
    from thermoloom.api import Drawn as Drawn
    from thermoloom.api import Images as Images
    from thermoloom.api import Machine as Machine
    from thermoloom.api import Results as Results
    from thermoloom.api import digits as digits
    from thermoloom.api import edges as edges
    from thermoloom.api import images as images
    from thermoloom.api import load as load
    from thermoloom.api import results as results
    from thermoloom.errors import UserError as UserError

# Where each public name lives. Imported when first used: a worker process, or `thermoloom --help`,
# should not wait for what it does not need.
_HOME = dict.fromkeys(
    (
        "Computer", "Device", "Drawn", "Images", "Machine", "Results", "digits", "edges", "images",
        "load",
        "results",
    ),
    "api",
) | {"UserError": "errors"}  # fmt: skip
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thermoloom' has no attribute {name!r}")
    return getattr(import_module(f"thermoloom.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
