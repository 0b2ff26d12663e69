"""A machine that works well for given data.

Its units are harmonic and wired completely, and its labels select a class and one of its styles: a
mixture of Gaussians whose means are learned exactly and in closed form (``Machine.solve``). Each
style has about six samples, so that styles describe groups and not single samples. A window of
development makes images sharp: double wells where pixels have two levels, cooling where they are
grey.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from thermoloom.computers.development_search import two_levels
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development
from thermoloom.machine.presets import COOLING, HARMONIC, WELLS
from thermoloom.patterns.patterns import numbered_classes
from thermoloom.patterns.scale import normalized
from thermoloom.patterns.sources import Images, Source, as_images

SAMPLES_PER_STYLE = 6
MOST_STYLES = 100
IMAGES = 200
"""Number of images whose pixels are examined."""
TWO_LEVELS = 0.87
"""Pixels have two levels if these explain more than this fraction of their variance: 0.90 in
MNIST, 0.82 in Fashion-MNIST, 0.91 in thresholded Fashion-MNIST."""
MNIST_LEVELS = (1.4, 1.03)
"""Half the distance between the two levels of MNIST's patterns, and their middle."""
TABLE_KT = 0.3
"""k_BT for tables: thermal noise supplies most of the spread within a style there."""


def machine_for(source: Source, classes: ArrayLike | None) -> Machine:
    """The machine of ``Machine.for_data``."""
    data = as_images(source)
    numbers, _ = numbered_classes(data.classes if classes is None else classes)
    if not len(data):
        raise UserError("data: no samples given; at least one is needed")
    if numbers and (len(numbers) != len(data) or min(numbers) < 0):
        raise UserError(
            f"classes: expected a name or a non-negative number for each of {len(data)} samples"
        )
    labels = max(numbers, default=0) + 1
    fewest = int(np.unique(numbers, return_counts=True)[1].min()) if numbers else len(data)
    machine = replace(
        HARMONIC,
        visible=int(np.size(data[0])),
        labels=labels,
        styles=min(MOST_STYLES, max(1, fewest // SAMPLES_PER_STYLE)),
    )
    if np.ndim(data[0]) == 1:
        return replace(machine, scale="feature", kT=TABLE_KT)
    return replace(machine, development=development_for(data))


def development_for(images: Images) -> tuple[Development, ...]:
    """A window for images: wells at the two levels of their pixels, or cooling if they are grey.

    The wells are those for MNIST, stretched to these levels; their bottoms keep their stiffness.
    """
    rows = [np.ravel(image) for image in images.pixels[:IMAGES]]
    with_contrast = [row for row in rows if row.size == rows[0].size and row.max() > row.min()]
    if not with_contrast:
        return ()
    levels = two_levels(normalized(np.stack(with_contrast)))
    if levels.explained < TWO_LEVELS:
        return (COOLING,)
    half_width, middle = MNIST_LEVELS
    stretch = levels.half_width / half_width
    A, w = WELLS.J4 / stretch**2, math.sqrt(-WELLS.J2 / (2 * WELLS.J4)) * stretch
    centre = levels.middle + (WELLS.centre - middle) * stretch
    shape = np.shape(images[0])
    springs = WELLS.neighbours if len(shape) == 2 and shape[0] == shape[1] else 0.0
    return (Development(-2 * A * w * w, A, centre, springs, 0.0, WELLS.duration),)
