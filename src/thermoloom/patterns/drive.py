"""The drive of patterns on a machine: fields of free units, words of label units.

visible units   field s
hidden units    field code(s), by ``machine.code``
label units     word of the class and style

Training and theory depend on patterns only through their drive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.patterns.codes import CODES, within_classes
from thermoloom.patterns.patterns import Patterns

Float32 = NDArray[np.float32]


class Drive(NamedTuple):
    """The fields and words by which patterns act on a machine."""

    fields: Float32
    """(patterns, units), at amplitude one, visible units first."""
    words: Float32 | None = None
    """States of the label units, (patterns, label units); None without labels."""

    def word(self, pattern: int) -> Float32 | None:
        """States of the label units for one pattern."""
        return None if self.words is None else self.words[pattern]


def drive_of(patterns: Patterns, machine: Machine) -> Drive:
    """The drive of these patterns; refuses patterns that do not fit the machine."""
    fields = unit_fields(patterns, machine)
    check_labels(patterns, machine)
    if machine.labels == 0:
        return Drive(fields)
    classes = np.array(patterns.classes)
    return Drive(fields, label_word(machine, classes, styles_of(patterns, machine)))


def unit_fields(patterns: Patterns, machine: Machine) -> Float32:
    """[s | code of s], (P, N): fields of amplitude one, visible units first."""
    visible = patterns.patterns
    if visible.shape[1] != machine.visible:
        raise UserError(
            f"machine.visible = {machine.visible}: the patterns have {visible.shape[1]} values"
        )
    if machine.hidden == 0:
        return visible
    hidden = patterns.code if machine.code == "given" else None
    if hidden is None:
        hidden = CODES[machine.code](machine, visible, patterns.classes)
    if hidden.shape != (len(visible), machine.hidden) or not np.isfinite(hidden).all():
        raise UserError(
            f"machine.code = {machine.code!r}: fields of shape {hidden.shape}, expected finite "
            f"numbers of shape {(len(visible), machine.hidden)}"
        )
    return np.concatenate([visible, hidden], axis=1, dtype=np.float32)


def check_labels(patterns: Patterns, machine: Machine) -> None:
    """Refuse patterns whose classes the machine's label units cannot request."""
    if machine.labels == 0:
        return
    if not patterns.classes:
        raise UserError(
            f"machine.labels = {machine.labels}: the patterns have no classes; put images into one "
            "folder per class, pass classes, or set machine.labels = 0"
        )
    if max(patterns.classes) >= machine.labels:
        raise UserError(
            f"machine.labels = {machine.labels}: the patterns have classes up to "
            f"{max(patterns.classes)}; use machine.labels = {max(patterns.classes) + 1}"
        )


def styles_of(patterns: Patterns, machine: Machine) -> NDArray[np.intp]:
    """The style, 0 … k − 1, of every pattern within its class."""
    if machine.styles == 1:
        return np.zeros(len(patterns), np.intp)
    return within_classes(machine, patterns.patterns, patterns.classes, machine.styles)
