"""Which engine computes: the settings ``[engine]``, and the environment variable that carries them.

    name[:library[:device[:precision]]]        portable:torch:cuda:1:float64
    module:object                              your own engine

The choice applies to a process and its workers, not to one computer: a computer that was trained by
one engine can be sampled by another. Engines agree only up to round-off, so a run id contains the
engine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar

from thermoloom.errors import UserError
from thermoloom.extensions import Extensible, is_extension
from thermoloom.inputs import shown
from thermoloom.sections import Section

VARIABLE = "THERMOLOOM_ENGINE"
ENGINES = {"compiled": "thermoloom.engines.compiled", "portable": "thermoloom.engines.portable"}
"""Every engine by name: a module with the functions of ``thermoloom.engines.Engine``, or with a
function ``select(library, device, precision)`` that returns an object with them."""
USUAL = "numpy", "cpu", "float32"
"""Library, device and precision of the portable engine unless others are chosen."""
LIBRARIES = ("numpy", "torch", "jax")
PRECISIONS = ("float32", "float64")
OWN_ENGINE = Extensible("engine", ("path", "learner", "terms", "watch", "generate"), copied=False)


@dataclass(frozen=True)
class EngineSettings(Section):
    """Which engine computes, and how."""

    section: ClassVar[str] = "engine"

    name: Annotated[str, OWN_ENGINE] = "compiled"
    """``compiled`` (Numba), ``portable`` (array code for any library) or module:object."""
    library: str = USUAL[0]
    """Array library of the portable engine: ``numpy``, ``torch`` or ``jax``."""
    device: str = USUAL[1]
    """Device of the library, such as ``cuda`` or ``cuda:1``."""
    precision: str = USUAL[2]
    """``float32`` or ``float64``, for the portable engine."""

    def check(self) -> None:
        exists = self.name in ENGINES or is_extension(self.name)
        self._require("name", exists, f"must be one of {', '.join(ENGINES)}, or module:object")
        fixed = self.name == "portable" or self.options == USUAL
        must = "offers no choice of library, device and precision; use portable"
        self._require("name", fixed, must)
        for key, known in (("library", LIBRARIES), ("precision", PRECISIONS)):
            self._require(key, getattr(self, key) in known, f"must be one of {', '.join(known)}")

    @classmethod
    def from_text(cls, text: str) -> EngineSettings:
        """From ``portable:torch:cuda:1``; a device may contain a colon."""
        name, *options = text.split(":")
        if options and name not in ENGINES:
            return cls(text)
        precision = [options.pop()] if options and options[-1] in PRECISIONS else []
        library, device = (options or [""])[0], ":".join(options[1:])
        if options and not library:
            raise UserError(f"engine {shown(text)}: expected name:library:device:precision")
        chosen = {"library": library, "device": device, "precision": "".join(precision)}
        return cls(name, **{key: value for key, value in chosen.items() if value})

    @property
    def options(self) -> tuple[str, str, str]:
        """Library, device and precision."""
        return self.library, self.device, self.precision

    @property
    def text(self) -> str:
        """The shortest text of this choice."""
        return self._text(self.device)

    @property
    def identity(self) -> str:
        """The text that counts in run ids: with the kind of the device, not its number."""
        return self._text(self.device.partition(":")[0])

    def _text(self, device: str) -> str:
        parts = [self.library, device, self.precision]
        while parts and parts[-1] == USUAL[len(parts) - 1]:
            parts.pop()
        return ":".join([self.name, *parts])


def engine_in_use() -> EngineSettings:
    """The engine that this process uses."""
    return EngineSettings.from_text(os.environ.get(VARIABLE, "").strip() or EngineSettings.name)


def use_engine(choice: EngineSettings) -> None:
    """Make this process and its workers use an engine from now on."""
    os.environ[VARIABLE] = choice.text
