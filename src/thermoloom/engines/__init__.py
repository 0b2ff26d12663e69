"""Engines: one interface, with random streams, threads and kernels behind it.

    path      a noising path, independent of θ
    learner   θ, a state and a noising path → θ and the state, by the rule of the settings
    terms     loss and path-action terms of a path
    watch     the loss on one path as a function of θ
    generate  samples of the frozen computer, with heat and work

No other package depends on kernels. Any object with these functions is an engine;
``thermoloom.engine_choice`` determines which one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine_choice import ENGINES, OWN_ENGINE, engine_in_use
from thermoloom.feasibility import path_memory, size_memory
from thermoloom.machine.action import PathLoss, PathTerms, path_terms
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.streams import Purpose

Float32 = NDArray[np.float32]

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
    states: Any
    """x(t_0) … x(t_K), (K + 1, N): an array or, where that would be too large, an object that
    simulates a range of steps when it is read."""
    number: int
    """Number of the trajectory within its seed; it also selects the injected errors."""
    word: Float32 | None = None
    """States of the label units, (L,)."""
    prepared: Any = None
    """Data of the engine, for all learners that share the path."""
    _lessons: list[tuple[Learner, Parameters, State, Lesson]] = field(default_factory=list)

    def learned(self, learner: Learner, theta: Parameters, state: State) -> Lesson:
        """θ and state after this path; equal learners at equal θ and state compute them once."""
        for other, start, start_state, lesson in self._lessons:
            same = other == learner and (start is theta or start.same_as(theta))
            if same and _same_state(start_state, state):
                return lesson
        lesson = learner.update(theta, state, self)
        self._lessons.append((learner, theta, state, lesson))
        return lesson


State = dict[str, NDArray[Any]]
"""What a learner remembers from path to path besides θ: arrays by name. Checkpoints store them."""
Lesson = tuple[Parameters, State]
"""θ and state after a path."""


def _same_state(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


class Learner(Protocol):
    """The learning rule. It may use working memory, but only θ and its state affect later paths."""

    def init(self, theta: Parameters) -> State:
        """The state before the first path, at this θ; empty for most rules."""
        return {}

    def update(self, theta: Parameters, state: State, path: Path) -> Lesson:
        """θ and state after one noising path, as new arrays; raises ``Diverged`` if θ is no longer
        finite.
        """


def usual_terms(theta: Parameters, path: Path, field: Float32 | None = None) -> PathTerms:
    """Loss and path-action terms of a path, by their definition."""
    return path_terms(theta.on(path.machine), path.states, field, path.word)


def learn_in_turn(
    learners: Sequence[Learner],
    thetas: Sequence[Parameters],
    states: Sequence[State],
    path: Path,
) -> list[Lesson | None]:
    """Lessons of trainings that share a path, computed in turn; None where θ has diverged."""
    lessons: list[Lesson | None] = []
    for learner, theta, state in zip(learners, thetas, states, strict=True):
        try:
            lessons.append(path.learned(learner, theta, state))
        except Diverged:
            lessons.append(None)
    return lessons


def learn_in_groups(
    learn: Callable[..., list[Lesson | None]],
    keys: Sequence[Any],
    learners: Sequence[Learner],
    thetas: Sequence[Parameters],
    states: Sequence[State],
    path: Path,
) -> list[Lesson | None]:
    """Lessons as from ``learn_in_turn``; learners with equal keys learn together, by ``learn``.

    ``learn(learners, thetas, states, path)`` returns their lessons. A learner whose key is None or
    unique learns by itself.
    """
    groups: dict[Any, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(("alone", number) if key is None else key, []).append(number)
    lessons: dict[int, Lesson | None] = {}
    for group in groups.values():
        some = [learners[n] for n in group], [thetas[n] for n in group], [states[n] for n in group]
        function = learn if len(group) > 1 else learn_in_turn
        lessons.update(zip(group, function(*some, path), strict=True))
    return [lessons[number] for number in range(len(keys))]


def usual_training_memory(machine: Machine) -> dict[str, int]:
    """Bytes of θ and of the path-sized arrays of any engine: training and validation path, their
    residuals and sums of them.
    """
    return size_memory(machine) | path_memory(machine, 8)


class Engine(Protocol):
    """Functions of an engine. Results depend on neither threads nor the order of calls."""

    GROUP: int = 50
    """Samples that are computed together. A generation split at multiples of this number is
    bit-identical."""
    PATHS: int = 1
    """Noising paths that a training simulates together."""

    def warm_up(
        self,
        models: Iterable[Settings] | None = None,
        learning: bool = True,
        generating: bool = True,
    ) -> None:
        """Compile or load the kernels for computers of these settings, before the computation.

        None: the kernels for the default computer. ``learning``, ``generating``: whether to include
        the kernels of learning and of generation.
        """
        return

    def training_memory(self, machine: Machine) -> dict[str, int]:
        """Bytes that one training needs at a time, by the settings that determine them.

        A generation is assumed to need no more, apart from its samples.
        """
        return usual_training_memory(machine)

    def path(
        self,
        machine: Machine,
        field: Float32,
        seed: int,
        number: int,
        word: Float32 | None = None,
        purpose: Purpose = "training",
        reuse: Path | None = None,
    ) -> Path:
        """Trajectory ``number`` of a seed from this field (N,), from the streams of a purpose.

        ``reuse``: a path whose memory is overwritten.
        """
        return self.paths(machine, [field], seed, [number], [word], purpose)[0]

    def paths(
        self,
        machine: Machine,
        fields: Sequence[Float32],
        seed: int,
        numbers: Sequence[int],
        words: Sequence[Float32 | None] | None = None,
        purpose: Purpose = "training",
    ) -> list[Path]:
        """Trajectories ``numbers`` of a seed, simulated together; needed where ``PATHS`` > 1."""
        raise NotImplementedError

    def learner(self, settings: Settings) -> Learner:
        """The learner of these settings."""

    def learn_together(
        self,
        learners: Sequence[Learner],
        thetas: Sequence[Parameters],
        states: Sequence[State],
        path: Path,
    ) -> list[Lesson | None]:
        """Lessons of trainings that share a path; None where θ is no longer finite.

        For engines that are faster side by side. Results may differ by round-off from those of each
        training alone.
        """
        return learn_in_turn(learners, thetas, states, path)

    def terms(self, theta: Parameters, path: Path, field: Float32 | None = None) -> PathTerms:
        """Loss and path-action terms of a path, in float64; on a device, of θ as units feel it."""
        return usual_terms(theta, path, field)

    def watch(self, path: Path) -> Callable[[Parameters], PathLoss]:
        """The loss on this path as a function of θ, prepared for many calls."""
        return lambda theta: PathLoss(*self.terms(theta, path)[:2])

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


def frozen(generate: Callable[..., Generated]) -> Callable[..., Generated]:
    """Verify after sampling that no bit of θ has changed."""

    @wraps(generate)
    def verified(*arguments: Any, **options: Any) -> Generated:
        theta = next(each for each in arguments if isinstance(each, Parameters))
        before = theta.copy()
        generated = generate(*arguments, **options)
        if not theta.same_as(before):
            raise RuntimeError("parameters changed during generation")
        return generated

    return verified


def engine() -> Engine:
    """The engine in use."""
    choice = engine_in_use()
    if choice.name not in ENGINES:
        return cast(Engine, OWN_ENGINE.object("engine.name", choice.name))
    module = import_module(ENGINES[choice.name])
    return cast(Engine, module.select(*choice.options) if hasattr(module, "select") else module)
