"""Learning rules and residual errors that users define, and momentum.

    u = Σ (r_i x_j′ + r_j x_i′)              over the M steps of a period
    online, batch, delayed   θ ← θ − αu
    linear rule              z ← A z + b αu,   z = (θ, s₁, s₂, …), for every coupling alike
    any other rule           θ, state ← step(θ, state, r, x′)

A linear rule is a small matrix A and a vector b. The residuals are linear in θ, so it is learned
exactly in blocks of steps: the update of step l reaches step k with the causal weight
−(A^(k−l−1) b)₀. All other rules run period by period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.extensions import Extensible

Array = Any
"""An array of the engine's library."""
Numbers = NDArray[np.float64]

RULE = Extensible("learning rule", ("linear|step",), needed_late=True)
"""``linear() → A, b``, with factors on α by block in an attribute ``rates``; or ``init(θ) → state``
(optional) and ``step(θ, state, r, x, learning) → θ, state``."""
ERROR = Extensible("residual error", ("additive|residual",), needed_late=True)
"""``additive(machine, seed, trajectory)``: numbers (K, N) that are added to residuals; or
``residual(r, x, z)``: residuals r (…, M, N) of a period as they are measured, from states x of the
same shape and standard normals z."""


class Learning(NamedTuple):
    """Arguments of a rule besides θ, its state, r and x′."""

    rate: Array
    """α."""
    xp: Any
    """The array library: NumPy, PyTorch or ``jax.numpy``."""
    update: Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]
    """``update(r, x)``: u of every block of θ, summed over the steps of the period."""


@dataclass(frozen=True)
class Momentum:
    """Learning with momentum, the heavy-ball rule: v ← βv + αu, θ ← θ − v.

    u is the plain rule's update of a period, and α the learning rate. Under a constant u the rule
    moves θ by αu/(1 − β) per period, so it may need a smaller α.

        beta    β, fraction of v that remains after a period: at least 0 and less than 1

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> with tl.engine(name="portable"):
    ...     computer = machine.train(tl.digits(0), rule=tl.Momentum(0.5), cycles=4, resize=True)
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise UserError(f"Momentum.beta = {self.beta}: must be in [0, 1)")

    def linear(self) -> Any:
        return [[1, -self.beta], [0, self.beta]], [-1, 1]


@dataclass(frozen=True)
class Linear:
    """z ← A z + b αu."""

    matrix: tuple[tuple[float, ...], ...] = ((1.0,),)
    inputs: tuple[float, ...] = (-1.0,)
    rates: tuple[tuple[str, float], ...] = ()
    """Factors on α by block of θ; 1 for all others."""

    @classmethod
    def of(cls, rule: Any, blocks: list[str]) -> Linear:
        """The linear rule that a user's object defines."""
        rates = dict(getattr(rule, "rates", {}))
        if unknown := rates.keys() - set(blocks):
            raise UserError(
                f"training.rule: has a rate for {min(unknown)}, which is not a block of θ; this "
                f"machine has {', '.join(blocks)}"
            )
        try:
            matrix, inputs = (np.asarray(each, float) for each in rule.linear())
        except (TypeError, ValueError) as error:
            raise UserError(
                f"training.rule: linear() must return A (n, n) and b (n,) of numbers ({error})"
            ) from None
        if inputs.ndim != 1 or not inputs.size or matrix.shape != 2 * inputs.shape:
            raise UserError(
                f"training.rule: linear() returns shapes {matrix.shape} and {inputs.shape}; "
                "expected A (n, n) and b (n,)"
            )
        return cls(tuple(map(tuple, matrix.tolist())), tuple(inputs.tolist()), tuple(rates.items()))

    @property
    def memories(self) -> int:
        """Numbers that the rule stores for each coupling besides θ."""
        return len(self.inputs) - 1

    def rate(self, block: str) -> float:
        return dict(self.rates).get(block, 1.0)

    @property
    def largest_rate(self) -> float:
        return max([1.0, *(abs(rate) for _, rate in self.rates)])


PLAIN = Linear()


class Block(NamedTuple):
    """A linear rule in a block of B steps."""

    response: Numbers
    """(A^n_k)₀: how θ at step k depends on z at the start, (B, numbers in z)."""
    causal: Numbers
    """−(A^(n_k − n_l − 1) b)₀ where update l precedes step k, else 0: (B, B)."""
    effects: Numbers
    """A^(n − n_l − 1) b: the effect of step l on z at the end, (numbers in z, B)."""
    power: Numbers
    """A^n: how z at the end depends on z at the start."""


@cache
def in_block(rule: Linear, steps: int, period: int) -> Block:
    """Matrices that apply the rule to a block of steps; n_k updates precede step k."""
    matrix, inputs = np.array(rule.matrix), np.array(rule.inputs)
    number = np.arange(steps) // period
    powers = [np.eye(len(inputs))]
    for _ in range(number[-1] + 1):
        powers.append(matrix @ powers[-1])
    effects = np.array([power @ inputs for power in powers])
    causal = np.concatenate([[0.0], -effects[:, 0]])[np.maximum(0, number[:, None] - number)]
    response = np.stack([power[0] for power in powers])[number]
    return Block(response, causal, effects[number[-1] - number].T, powers[-1])


def longest_block(rule: Linear, most: int, period: int, feedback: float) -> int:
    """Largest B = ``most``/2ⁿ with B · ``feedback`` · (largest rate and causal weight) ≤ 1, or 1.

    Few lengths differ, so that JAX compiles few kernels.
    """
    steps = most
    while steps > 1:
        causal = in_block(rule, steps, period).causal
        if feedback * rule.largest_rate * steps * max(1.0, np.abs(causal).max()) <= 1:
            break
        steps //= 2
    return steps
