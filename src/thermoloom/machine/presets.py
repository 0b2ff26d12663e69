"""Machines that more than one room uses; the paper's is ``Machine()``."""

from __future__ import annotations

from dataclasses import replace

from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development

HARMONIC = Machine(
    hidden=0,
    labels=10,
    styles=100,
    stages=4,
    wiring=("visible-visible", "visible-label"),
    biases=("visible",),
    J4=0.0,
    dt=2.5e-3,
)
"""784 harmonic units, wired completely, and label units for a hundred styles of each class."""
SHARP = replace(
    HARMONIC,
    development=(Development(J2=-1.33, J4=0.26, centre=1.0, neighbours=0.2, duration=0.93),),
)
"""The same, and double wells that sharpen its images, chosen on training images of MNIST."""
ONLINE_AMPLITUDE = 30.0
"""Amplitude of labels for the local rule: labels must learn faster than couplings."""
ONLINE_RATE = 4e-4
"""Learning rate at which the local rule is stable on such a machine."""
