"""User potentials that Numba cannot compile: the portable engine computes with them.

Kernels call ``onsite.gradient(x)`` for a number x. A gradient that is more than arithmetic, NumPy
functions and coefficients runs in NumPy instead, which is slower; a warning says so once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import numba
from numba import njit, types

from thermoloom.engines.own_objects import own_objects
from thermoloom.engines.portable import select
from thermoloom.errors import SpeedWarning, warn, warn_once
from thermoloom.extensions import is_extension
from thermoloom.machine.action import step_constants
from thermoloom.machine.machine import Machine
from thermoloom.rules import PLAIN
from thermoloom.settings import Settings


def portable_if_foreign(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an engine's function leave machines with such a potential to the portable engine."""

    @wraps(function)
    def choose(subject: Any, *arguments: Any, **options: Any) -> Any:
        machine = subject if isinstance(subject, Machine) else subject.machine
        if isinstance(subject, Settings) and _own_learning(subject):
            return select().learner(subject)
        if is_extension(machine.onsite) and not _compiles(machine.onsite):
            return getattr(select(), function.__name__)(subject, *arguments, **options)
        return function(subject, *arguments, **options)

    return choose


def _own_learning(settings: Settings) -> bool:
    """Whether training uses a user's rule, or an error that depends on the residual."""
    own, rule = own_objects(settings), settings.training.rule
    if own.linear != PLAIN:
        warn_once(f"training.rule = {rule:.80}: the portable engine trains with it, more slowly")
    return is_extension(rule) or own.stepwise


@lru_cache(maxsize=64)
def _compiles(onsite: str) -> bool:
    """Whether Numba compiles the gradient; if not, a warning says so."""
    potential = step_constants(Machine(onsite=onsite)).onsite

    @njit
    def gradient(potential, x):  # type: ignore[no-untyped-def]
        return potential.gradient(x)

    try:
        signature = numba.typeof(potential), types.float32
        gradient.compile(signature)
        if isinstance(gradient.overloads[signature].signature.return_type, types.Float):
            return True
    except Exception:  # Numba raises nearly any exception if it cannot compile
        pass
    warn(
        f"machine.onsite = {onsite:.80}: Numba cannot compile its gradient, so the portable "
        "engine computes, more slowly; plain arithmetic and number parameters avoid this",
        SpeedWarning,
    )
    return False
