"""What computes: one interface, behind which an engine lives with its streams, threads and kernels.

    path      a noising path, which never sees θ
    learner   a noising path → θ, by the rule of the settings
    terms     loss and path-action terms of a path
    watch     the loss on one path as a function of θ
    generate  the frozen computer sampled, with its heat and work

Nothing outside knows of kernels. Another engine is a module with these functions and a line in
``ENGINES``; ``THERMOLOOM_ENGINE`` names the one to use.
"""

from __future__ import annotations

import os
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
from thermoloom.settings import Settings

Float32 = NDArray[np.float32]

ENGINES = {"compiled": "thermoloom.engines.compiled"}
"""Every engine by name: a module with the functions of ``Engine``."""


OnSnapshot = Callable[[int, int, Float32], None]
"""``on_snapshot(step, first, states)``: samples from ``first`` on have reached a step of which
snapshots are kept. Called in the thread that computes, with its memory (n, N): copy what you keep.
An exception ends the generation."""


class Diverged(Exception):
    """Parameters or residuals are no longer finite. A result, not a crash."""


@dataclass(eq=False)
class Path:
    """One noising trajectory."""

    machine: Machine
    states: Float32
    """x(t_0) … x(t_K), (K + 1, N)."""
    number: int
    """Which trajectory of its seed; injected errors are counted by it."""
    word: Float32 | None = None
    """States of the label units, (L,)."""
    prepared: Any = None
    """What an engine keeps with a path for all learners that share it."""


class Learner(Protocol):
    """The rule that changes θ; it has no state but memory to work in."""

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        """θ after one noising path; raises ``Diverged`` where it is no longer finite."""


@dataclass(frozen=True)
class NoisyLearner:
    """θ = θ⁰ + σ Δ: update noise of strength σ, by two learners that do not know σ.

    Noise is added to updates, and updates are linear in θ. So θ⁰ is learned as without noise and Δ
    as if there were nothing but noise of strength 1, and both serve every σ.
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
    """What an engine can do. Results depend on neither threads nor the order of calls."""

    GROUP: int
    """Samples that are computed together: pieces of a generation that begin at its multiples are
    those of the whole, to the bit."""

    def warm_up(
        self,
        models: Iterable[Settings] | None = None,
        learning: bool = True,
        generating: bool = True,
    ) -> None:
        """Compile or load what computers of these settings need, so that the wait is seen as such.

        None: what any computer needs. Without ``learning`` or ``generating``: only the rest.
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
        """Trajectory ``number`` of a seed from this field (N,), of the training streams or of
        ``stream`` = "validation "; into the memory of ``reuse`` where one is given.
        """

    def learner(self, settings: Settings) -> Learner:
        """The learner of these settings; with update noise a ``NoisyLearner``."""

    def terms(self, theta: Parameters, path: Path, field: Float32 | None = None) -> PathTerms:
        """Loss and path-action terms of a path, as ``machine.action.path_terms``."""

    def watch(self, path: Path) -> Callable[[Parameters], PathLoss]:
        """The loss on this path as a function of θ, for many of them."""

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
    name = os.environ.get("THERMOLOOM_ENGINE", "compiled")
    if name not in ENGINES:
        raise UserError(f"THERMOLOOM_ENGINE = {name}: must be one of {', '.join(ENGINES)}")
    return cast(Engine, import_module(ENGINES[name]))


def learner_of_engine(settings: Settings) -> Learner:
    """The learner of the engine in use, for the rules that every engine has."""
    return engine().learner(settings)
