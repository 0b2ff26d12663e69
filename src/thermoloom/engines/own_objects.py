"""Users' own rules and errors, as every engine treats them.

additive errors          known before a path: an array, for any learner
linear rules             causal weights, exact in blocks of steps
other rules and errors   run period by period, which is slower; a warning says so once
"""

from __future__ import annotations

from typing import Any, NamedTuple

from thermoloom.errors import UserError, warn_once
from thermoloom.extensions import is_extension
from thermoloom.machine.parameters import layout
from thermoloom.rules import ERROR, PLAIN, RULE, Linear
from thermoloom.settings import Settings


class OwnObjects(NamedTuple):
    """The user's rule and error, as a learner needs them."""

    linear: Linear = PLAIN
    step: str = ""
    """A rule that is not linear, as text."""
    error: str = ""
    """An error that depends on the residual, as text."""

    @property
    def stepwise(self) -> bool:
        return bool(self.step or self.error)


def own_rule(text: str) -> Any:
    """The rule that a text names."""
    return RULE.object("training.rule", text)


def own_error(text: str) -> Any:
    """The error that a text names."""
    return ERROR.object("imperfections.errors", text)


def require_shape(origin: str, answer: Any, example: Any) -> None:
    """Refuse a result of a user's method that is missing or would be broadcast."""
    shape = getattr(answer, "shape", None)
    if shape != example.shape:
        actual = "nothing" if shape is None else f"shape {tuple(shape)}"
        raise UserError(f"{origin} returns {actual}; expected shape {tuple(example.shape)}")


def own_objects(settings: Settings) -> OwnObjects:
    """The rule and the error of the settings; a warning names those that make learning slow."""
    rule, error, linear = settings.training.rule, settings.imperfections.errors, PLAIN
    if is_extension(rule) and hasattr(own_rule(rule), "linear"):
        linear = Linear.of(
            own_rule(rule), [block.name for block in layout(settings.machine).blocks]
        )
        rule = ""
    step = rule if is_extension(rule) else ""
    error = error if error and hasattr(own_error(error), "residual") else ""
    for key, text in (("training.rule", step), ("imperfections.errors", error)):
        if text:
            warn_once(f"{key} = {text:.80}: not linear, so learning runs step by step, more slowly")
    return OwnObjects(linear, step, error)
