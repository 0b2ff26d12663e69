"""``portable.update_noise`` in NumPy, with compiled normals and the compiled learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from thermoloom.engines import Path
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.streams import flat_normals
from thermoloom.engines.library import NumPy
from thermoloom.engines.portable import update_noise
from thermoloom.engines.portable.blocks import Rule
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.streams import draw_normals
from thermoloom.threads import in_threads


class _CompiledNormals(NumPy):
    """NumPy, with normals from the compiled streams."""

    def run(self, kernel: Callable[..., Any], static: Any, *arrays: Any) -> Any:
        if kernel is not draw_normals:
            return super().run(kernel, static, *arrays)
        (low, high), (trajectory,), block = arrays[0][0], arrays[1], arrays[2]
        return flat_normals(np.uint64(int(low) | int(high) << 32), trajectory, block, *static)


class NoiseResponse:
    """Δ′ = learn(Δ, path): the response of θ to unit noise on updates."""

    def __init__(self, settings: Settings) -> None:
        rule = Rule(settings.built, settings.period, None)
        self.noise = update_noise.NoiseResponse(_CompiledNormals("cpu", "float32"), settings, rule)
        self._learner = Learner(settings.machine, 0.0, settings.period)

    def learn(self, response: Parameters, path: Path, rate: float) -> Parameters:
        """Δ after one noising path, at α = ``rate``; its number selects the trajectory of noise."""
        # in threads, so that linear algebra is single-threaded and bits do not depend on threads
        ((along, change),) = in_threads(self.noise.lesson, [(path,)])
        noise = replace(path, prepared=along.astype(np.float32))
        return self._learner.learn(response, noise, change=change.astype(np.float32), rate=rate)
