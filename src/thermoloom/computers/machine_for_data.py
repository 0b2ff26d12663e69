"""A machine that works well for given data.

Harmonic units, wired completely, whose labels select a class and one of its styles: a mixture of
Gaussians whose means are learned exactly and in closed form (``Machine.solve``). Each style holds
about six samples, so that styles describe groups and not single samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from thermoloom.machine.machine import Machine
from thermoloom.machine.presets import HARMONIC
from thermoloom.patterns.patterns import numbered_classes
from thermoloom.patterns.sources import Source, as_images

SAMPLES_PER_STYLE = 6
MOST_STYLES = 100
TABLE_KT = 0.3
"""k_BT for tables: thermal noise supplies most of the spread within a style there."""


def machine_for(source: Source, classes: ArrayLike | None) -> Machine:
    """The machine of ``Machine.for_data``."""
    data = as_images(source)
    numbers, _ = numbered_classes(data.classes if classes is None else classes)
    labels = max(numbers, default=0) + 1
    fewest = int(np.unique(numbers, return_counts=True)[1].min()) if numbers else len(data)
    machine = replace(
        HARMONIC,
        visible=int(np.size(data[0])),
        labels=labels,
        styles=min(MOST_STYLES, max(1, fewest // SAMPLES_PER_STYLE)),
    )
    is_table = np.ndim(data[0]) == 1
    return replace(machine, scale="feature", kT=TABLE_KT) if is_table else machine
