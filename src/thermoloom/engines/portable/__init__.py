"""The portable engine: the method in plain array code, in NumPy, PyTorch or JAX.

Read the modules in this order: ``engines.library`` (operations that array libraries spell
differently), ``noising``, ``couplings`` (forces and updates of θ), ``blocks``, ``learner`` and
``generation``; at the end ``update_noise``, which few trainings need. Random streams are those of
the compiled engine (``thermoloom.streams``), so results agree with it to round-off; update noise
agrees in distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thermoloom.engines import Engine, Lesson, OnSnapshot, Path, State, frozen, learn_in_groups
from thermoloom.engines import Learner as AnyLearner
from thermoloom.engines.library import NumPy, library
from thermoloom.engines.noisy_learner import NoisyLearner
from thermoloom.engines.own_objects import own_objects
from thermoloom.engines.portable.blocks import Rule
from thermoloom.engines.portable.generation import Sampler
from thermoloom.engines.portable.learner import Learner, learn_together
from thermoloom.engines.portable.noising import noising_paths
from thermoloom.engines.portable.update_noise import NoiseResponse
from thermoloom.feasibility import path_memory, paths_together, size_memory
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.generated import Generated, Snapshots, joined
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Layout, Parameters
from thermoloom.machine.quantization import Grid
from thermoloom.settings import Settings
from thermoloom.streams import Purpose
from thermoloom.threads import in_threads, linear_algebra, thread_count, unit_ranges


@dataclass(frozen=True)
class PortableEngine(Engine):
    """The functions of ``engines.Engine`` in one array library."""

    library: NumPy
    GROUP: int = 50
    PATHS = 16

    def training_memory(self, machine: Machine) -> dict[str, int]:
        """Bytes of θ with eight dense arrays the size of a stage, and of the paths that are
        simulated together, twice, with ten more arrays the size of a path.
        """
        dense, size = Layout(machine, complete=True).size, self.library.numpy(self.library.zero)
        paths = 2 * min(self.PATHS, paths_together(machine)) + 10
        pairs = size_memory(machine, (8 + machine.stages) * size.itemsize * dense)
        return pairs | path_memory(machine, paths, size.itemsize)

    @linear_algebra()
    def paths(
        self, machine: Machine, fields: Any, seed: int, numbers: Sequence[int], words: Any = None,
        purpose: Purpose = "training",
    ) -> list[Path]:  # fmt: skip
        """Trajectories ``numbers`` of a seed, simulated together; fields (S, N), words (S, L)."""

        def simulate(low: int, high: int) -> list[Any]:
            drive = np.stack(fields[low:high]), seed, numbers[low:high], purpose
            states = self.library.numpy(noising_paths(self.library, machine, *drive))
            return [np.ascontiguousarray(path) for path in np.swapaxes(states, 0, 1)]

        pieces = unit_ranges(len(numbers), thread_count() if self.library.on_cpu else 1)
        states = [path for piece in in_threads(simulate, pieces) for path in piece]
        words = [None] * len(numbers) if words is None else words
        return [Path(machine, *each) for each in zip(states, numbers, words, strict=True)]

    def learner(self, settings: Settings) -> AnyLearner:
        """The learner of these settings."""
        amplitude = settings.imperfections.update_noise
        grid = Grid.of(settings.machine, settings.imperfections)
        rule = Rule(settings.built, settings.period, grid, own_objects(settings))
        noiseless = self.library, settings.without_update_noise, rule
        clean = Learner(*noiseless)
        return NoisyLearner(clean, NoiseResponse(*noiseless), amplitude) if amplitude else clean

    @linear_algebra()
    def learn_together(
        self, learners: Sequence[Any], thetas: Sequence[Parameters], states: Sequence[State],
        path: Path,
    ) -> list[Lesson | None]:  # fmt: skip
        """Lessons of trainings on one path, side by side where rules are equal: 1.6 times as fast
        for 57 units on a CPU, 1.1 times for 656. A large machine fills the CPU by itself.
        """
        large = self.library.on_cpu and path.machine.units > 1000
        single = [large or type(each) is not Learner or each.rule.grid for each in learners]
        rules = [None if s else each.rule for s, each in zip(single, learners, strict=True)]
        return learn_in_groups(learn_together, rules, learners, thetas, states, path)

    @frozen
    @linear_algebra()
    def generate(
        self, theta: Parameters, samples: int, seed: int, words: Any = None,
        clamp: Clamp | None = None, snapshot_steps: Sequence[int] = (),
        snapshot_samples: Sequence[int] = (), on_progress: Callable[[int], None] | None = None,
        first: int = 0, on_snapshot: OnSnapshot | None = None,
    ) -> Generated:  # fmt: skip
        """Sample a frozen computer; θ and the first law are verified at the end."""
        accounts, follow = [], clamp is not None and clamp.follow
        units, dtype = theta.machine.units, self.library.numpy(self.library.array(0)).dtype
        snapshots = Snapshots(units, snapshot_steps, snapshot_samples, on_snapshot, dtype)
        report = on_progress or (lambda steps: None)
        sampler = Sampler(self.library, theta, seed, clamp, snapshots, report)
        for begin in range(0, samples, size := 10 if follow else self.GROUP):
            end = min(begin + size, samples)
            group_words = None if words is None else words[begin:end]
            accounts.append(sampler.group(begin, range(first + begin, first + end), group_words))
        return joined(accounts, snapshots, clamp)


def select(name: str = "numpy", device: str = "cpu", precision: str = "float32") -> PortableEngine:
    """The engine in the library of this name, on a device and in a precision."""
    return PortableEngine(library(name, device, precision), 50 if device == "cpu" else 1000)
