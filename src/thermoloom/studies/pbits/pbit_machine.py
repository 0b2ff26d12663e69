"""A machine of p-bits, sampled and trained with thrml: one denoising step from noise to an image.

    P(s | n, c) ∝ exp(Σ_wired w_ij s_i s_j + Σ_i (b_i + L_ic + γ n_i) s_i)

s are the pixels, c is the label unit that is on, and n is the noisy image that the step starts
from: a pixel whose sign was flipped with probability (1 − tanh γ)/2. A sweep updates every p-bit
once, colour by colour. Training follows the gradient of the log-likelihood,

    ∂/∂w_ij = ⟨s_i s_j⟩ of images − ⟨s_i s_j⟩ of samples,

with samples that are drawn as in generation, by sweeps that start from the noisy image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Spins = NDArray[np.int8]

INSTALL = "p-bits need thrml: pip install 'thermoloom[pbits]'"
CHAINS = 100
"""Samples that are drawn together; every call has this number, so that XLA compiles once."""
RATE, FIRST_DECAY, SECOND_DECAY = 0.02, 0.9, 0.99
"""Adam: first learning rate, which falls to 0, and decay of the running moments."""


def has_thrml() -> bool:
    """Whether the extra ``pbits`` is installed."""
    return find_spec("thrml") is not None


class PbitParameters(NamedTuple):
    """Couplings of wires (E,), biases (N,) and couplings of label units (N, L), in k_BT."""

    wires: Float32
    biases: Float32
    labels: Float32


@dataclass(frozen=True, eq=False)
class PbitMachine:
    """p-bits on a list of wires, coupled to label units and to a noisy image."""

    units: int
    wires: NDArray[np.int64]
    """(E, 2), each pair once."""
    labels: int
    overlap: float
    """tanh γ, the correlation of a noisy pixel with its image."""

    @cached_property
    def colours(self) -> NDArray[np.int64]:
        """A colour for every unit, so that no wire joins two units of one colour."""
        joined: list[list[int]] = [[] for _ in range(self.units)]
        for i, j in self.wires.tolist():
            joined[i].append(j)
            joined[j].append(i)
        colours = np.full(self.units, -1)
        for unit, others in enumerate(joined):
            taken = set(colours[others].tolist())
            colours[unit] = next(colour for colour in range(self.units) if colour not in taken)
        return colours

    def zeros(self) -> PbitParameters:
        """Parameters of a machine that has learned nothing."""
        shapes = (len(self.wires),), (self.units,), (self.units, self.labels)
        return PbitParameters(*(np.zeros(shape, np.float32) for shape in shapes))

    def energy(
        self, theta: PbitParameters, spins: Spins, noisy: Spins, label: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Energy of every state (S, N), in k_BT."""
        i, j = self.wires.T
        s = spins.astype(np.float64)
        field = theta.biases + theta.labels[:, label].T + math.atanh(self.overlap) * noisy
        energy: NDArray[np.float64] = -(s[:, i] * s[:, j]) @ theta.wires - (s * field).sum(axis=1)
        return energy

    @cached_property
    def _program(self) -> Callable[..., Any]:
        """``sweeps(θ, key, states, noisy, label, count)`` of one chain batch, compiled by XLA."""
        import jax
        import jax.numpy as jnp
        from thrml import Block, BlockGibbsSpec, CategoricalNode, SpinNode, sample_blocks
        from thrml.factor import FactorSamplingProgram
        from thrml.models import DiscreteEBMFactor, SpinEBMFactor, SpinGibbsConditional

        pixels = [SpinNode() for _ in range(self.units)]
        copies = [SpinNode() for _ in range(self.units)]
        word = CategoricalNode()
        groups = [np.flatnonzero(self.colours == c) for c in range(self.colours.max() + 1)]
        order = np.argsort(np.concatenate(groups))
        ends = [Block([pixels[i] for i in side]) for side in self.wires.T.tolist()]
        blocks = [Block([pixels[i] for i in group]) for group in groups]
        types = {
            SpinNode: jax.ShapeDtypeStruct((), jnp.bool_),
            CategoricalNode: jax.ShapeDtypeStruct((), jnp.uint32),
        }
        spec = BlockGibbsSpec(blocks, [Block(copies), Block([word])], types)
        samplers = [SpinGibbsConditional() for _ in groups]
        link = jnp.full(self.units, math.atanh(self.overlap), jnp.float32)

        def chain(program: Any, key: Any, state: Any, noisy: Any, label: Any, count: Any) -> Any:
            def sweep(number: Any, states: Any) -> Any:
                step = jax.random.fold_in(key, number)
                clamped = [noisy, label[None]]
                return sample_blocks(step, states, clamped, program, [None] * len(groups))[0]

            states = jax.lax.fori_loop(0, count, sweep, [state[group] for group in groups])
            return jnp.concatenate(states)[order]

        @jax.jit
        def sweeps(
            theta: PbitParameters, key: Any, states: Any, noisy: Any, labels: Any, count: Any
        ) -> Any:
            factors = [
                SpinEBMFactor([Block(pixels)], theta.biases),
                SpinEBMFactor(ends, theta.wires),
                DiscreteEBMFactor([Block(pixels)], [Block([word] * self.units)], theta.labels),
                SpinEBMFactor([Block(pixels), Block(copies)], link),
            ]
            program = FactorSamplingProgram(spec, samplers, factors, [])
            keys = jax.random.split(key, len(labels))
            return jax.vmap(lambda k, s, n, c: chain(program, k, s, n, c, count))(
                keys, states, noisy, labels
            )

        compiled: Callable[..., Any] = sweeps
        return compiled

    def relaxed(
        self,
        theta: PbitParameters,
        states: Spins,
        noisy: Spins,
        label: NDArray[Any],
        sweeps: int,
        seed: int,
    ) -> Spins:
        """States (S, N) after ``sweeps`` sweeps, computed in batches of ``CHAINS`` samples."""
        import jax

        batches = []
        for first in range(0, len(states), CHAINS):
            rows = np.resize(np.arange(first, min(first + CHAINS, len(states))), CHAINS)
            key = jax.random.fold_in(jax.random.key(seed), first)
            up = self._program(
                theta,
                key,
                states[rows] > 0,
                noisy[rows] > 0,
                label[rows].astype(np.uint32),
                sweeps,
            )
            batches.append(2 * np.asarray(up, np.int8) - 1)
        relaxed: Spins = np.concatenate(batches)[: len(states)]
        return relaxed

    def train(
        self,
        images: Spins,
        label: NDArray[Any],
        updates: int,
        sweeps: int,
        seed: int,
        on_update: Callable[[int], None] = lambda _: None,
    ) -> PbitParameters:
        """Follow the gradient of the log-likelihood, with images in random order."""
        rng = np.random.default_rng([seed, 1])
        theta = self.without_wires(images, label)
        first, second = self.zeros(), self.zeros()
        for update in range(updates):
            rows = rng.integers(0, len(images), CHAINS)
            noisy = self.noisy(images[rows], rng)
            drawn = self.relaxed(
                theta, noisy, noisy, label[rows], sweeps, int(rng.integers(1 << 31))
            )
            slope = self._slope(images[rows], drawn, label[rows])
            rate = RATE * (1 - update / updates)
            for parameter, g, m, v in zip(theta, slope, first, second, strict=True):
                m += (1 - FIRST_DECAY) * (g - m)
                v += (1 - SECOND_DECAY) * (g * g - v)
                size = np.sqrt(v / (1 - SECOND_DECAY ** (update + 1))) + 1e-3
                parameter += rate * m / (1 - FIRST_DECAY ** (update + 1)) / size
            on_update(update + 1)
        return theta

    def without_wires(self, images: Spins, label: NDArray[Any]) -> PbitParameters:
        """Parameters without couplings between pixels, from the mean image of each label.

        Training starts from them.
        """
        biases = np.arctanh(images.mean(axis=0).clip(-0.98, 0.98))
        words = np.eye(self.labels)[label]
        mean = (images.T @ words) / (words.sum(axis=0) + 2)  # as if two grey images were added
        labels = np.arctanh(mean.clip(-0.98, 0.98)) - biases[:, None]
        return self.zeros()._replace(
            biases=biases.astype(np.float32), labels=labels.astype(np.float32)
        )

    def noisy(self, images: Spins, rng: np.random.Generator) -> Spins:
        """Images with pixels flipped with probability (1 − overlap)/2."""
        flips = rng.random(images.shape) < (1 - self.overlap) / 2
        noisy: Spins = np.where(flips, -images, images).astype(np.int8)
        return noisy

    def _slope(self, images: Spins, drawn: Spins, label: NDArray[Any]) -> PbitParameters:
        """Moments of images minus moments of samples."""
        i, j = self.wires.T
        pairs = (images[:, i] * images[:, j] - drawn[:, i] * drawn[:, j]).mean(axis=0)
        difference = (images - drawn).astype(np.float32)
        words = np.eye(self.labels, dtype=np.float32)[label]
        return PbitParameters(
            pairs.astype(np.float32), difference.mean(axis=0), difference.T @ words / len(images)
        )
