"""Machines that several packages use; the paper's is ``Machine()``."""

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
WELLS = Development(J2=-1.048, J4=0.37, centre=0.91, neighbours=0.105, duration=1.0)
"""Double wells that sharpen black and white images, chosen on training images of MNIST."""
COOLING = Development(J2=89.6, learned=80.0, duration=0.5)
"""The last stage at a lower temperature, for grey images, chosen on images of Fashion-MNIST."""
SHARP = replace(HARMONIC, development=(WELLS,))
"""The harmonic machine, with double wells that sharpen its images."""
ONLINE_AMPLITUDE = 30.0
"""Amplitude of labels for the local rule: labels must learn faster than couplings."""
ONLINE_RATE = 4e-4
"""Learning rate at which the local rule is stable on such a machine."""
