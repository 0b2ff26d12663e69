"""Engines: one interface, with random streams, threads and kernels behind it.

    path      a noising path, which never sees θ
    learner   a noising path → θ, by the rule of the settings
    terms     loss and path-action terms of a path
    watch     the loss on one path as a function of θ
    generate  the frozen computer sampled, with its heat and work

No other package knows kernels. Another engine is a module with these functions and a line in
``ENGINES``; ``THERMOLOOM_ENGINE`` names the one to use: ``compiled``, ``portable`` (NumPy),
``portable:torch``, ``portable:jax``, each with a device and a precision behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.action import PathLoss, PathTerms
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.numerics import engine_name
from thermoloom.settings import Settings

Float32 = NDArray[np.float32]

ENGINES = {"compiled": "thermoloom.engines.compiled", "portable": "thermoloom.engines.portable"}
"""Every engine by name: a module with the functions of ``Engine``, or with a function ``select``
from the options behind the name (``portable:torch:cuda``) to an object that has them."""


OnSnapshot = Callable[[int, int, Float32], None]
"""``on_snapshot(step, first, states)``: samples from ``first`` on have reached a snapshot step.
Called in the computing thread, with its memory (n, N): copy states that you need later. An
exception ends the generation."""


class Diverged(Exception):
    """Parameters or residuals are no longer finite; training records this as a result."""


@dataclass(eq=False)
class Path:
    """One noising trajectory."""

    machine: Machine
    states: Float32
    """x(t_0) … x(t_K), (K + 1, N)."""
    number: int
    """Number of the trajectory in its seed; it also numbers the injected errors."""
    word: Float32 | None = None
    """States of the label units, (L,)."""
    prepared: Any = None
    """Data of the engine, for all learners that share the path."""


class Learner(Protocol):
    """The learning rule; it has working memory but no state."""

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        """θ after one noising path; raises ``Diverged`` if it is no longer finite."""


@dataclass(frozen=True)
class NoisyLearner:
    """θ = θ⁰ + σ Δ: update noise of strength σ, by two learners that do not know σ.

    Noise is added to updates, and updates are linear in θ. One learner therefore learns θ⁰ without
    noise, the other learns Δ from noise of strength 1 alone, and both serve every σ.
    """

    clean: Learner
    response: Learner
    amplitude: float

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        nothing = theta.with_vector(np.zeros_like(theta.vector))
        return self.sum(self.clean.learn(theta, path), self.response.learn(nothing, path))

    def sum(self, clean: Parameters, response: Parameters) -> Parameters:
        """θ⁰ + σ Δ."""
        vector = clean.vector + np.float32(self.amplitude) * response.vector
        if not np.isfinite(vector).all():
            raise Diverged("couplings are no longer finite")
        return clean.with_vector(vector)


class Engine(Protocol):
    """Functions of an engine. Results depend on neither threads nor the order of calls."""

    GROUP: int
    """Samples that are computed together. A generation split at multiples of this number gives the
    same bits."""

    def warm_up(
        self,
        models: Iterable[Settings] | None = None,
        learning: bool = True,
        generating: bool = True,
    ) -> None:
        """Compile or load the kernels for computers of these settings, before the computation.

        None: the kernels for any computer. ``learning``, ``generating``: whether to include these.
        """

    def path(
        self,
        machine: Machine,
        field: Float32,
        seed: int,
        number: int,
        word: Float32 | None = None,
        stream: str = "",
        reuse: Path | None = None,
    ) -> Path:
        """Trajectory ``number`` of a seed from this field (N,), from the training streams or from
        ``stream`` = "validation ". ``reuse``: a path whose memory is overwritten.
        """

    def learner(self, settings: Settings) -> Learner:
        """The learner of these settings; with update noise a ``NoisyLearner``."""

    def terms(self, theta: Parameters, path: Path, field: Float32 | None = None) -> PathTerms:
        """Loss and path-action terms of a path, as ``machine.action.path_terms``."""

    def watch(self, path: Path) -> Callable[[Parameters], PathLoss]:
        """The loss on this path as a function of θ, prepared for many calls."""

    def generate(
        self,
        theta: Parameters,
        samples: int,
        seed: int,
        words: Float32 | None = None,
        clamp: Clamp | None = None,
        snapshot_steps: Sequence[int] = (),
        snapshot_samples: Sequence[int] = (),
        on_progress: Callable[[int], None] | None = None,
        first: int = 0,
        on_snapshot: OnSnapshot | None = None,
    ) -> Generated:
        """Sample a frozen computer; θ and the first law are verified at the end.

        ``first``: number of the first sample in the streams of the seed.
        """


def engine() -> Engine:
    """The engine in use."""
    name, *options = engine_name().split(":")
    if name not in ENGINES:
        raise UserError(f"THERMOLOOM_ENGINE = {name}: must be one of {', '.join(ENGINES)}")
    module = import_module(ENGINES[name])
    if hasattr(module, "select") and len(options) <= 3:
        return cast(Engine, module.select(*options))
    if options:
        known = "at most a library, a device and a precision"
        must = known if hasattr(module, "select") else f"{name} has no options"
        raise UserError(f"THERMOLOOM_ENGINE = {':'.join([name, *options])}: {must}")
    return cast(Engine, module)


def learner_of_engine(settings: Settings) -> Learner:
    """The learner of the engine in use, for the rules that every engine has."""
    return engine().learner(settings)
