"""Machines that more than one room uses; the paper's is ``Machine()``."""

from __future__ import annotations

from thermoloom.machine.machine import Machine

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
ONLINE_AMPLITUDE = 30.0
"""Amplitude of labels for the local rule: labels must learn faster than couplings."""
ONLINE_RATE = 4e-4
"""Learning rate at which the local rule is stable on such a machine."""
