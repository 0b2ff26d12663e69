"""Compile every kernel once, on a computer of four units, so that the wait is seen as such."""

from __future__ import annotations

import numpy as np

from thermoloom.config import Settings
from thermoloom.machine.definition import Machine
from thermoloom.machine.parameters import Parameters


def warm_up(learning: bool = True, sparse: bool = False) -> None:
    """Run the whole way at the smallest size; takes seconds the first time, then milliseconds.

    Without ``learning`` only what generates is compiled, which is a fraction of all. ``sparse``:
    what machines with few wires need, too.
    """
    from thermoloom.engine import compiled

    machine = Machine(visible=2, hidden=2, duration=0.01)
    compiled.generate(Parameters.zeros(machine), samples=1, seed=0)
    if sparse:
        few = Machine(visible=10, hidden=10, duration=0.01, topology="random", degree=1)
        theta = Parameters.zeros(few)
        compiled.generate(theta, samples=1, seed=0)
        if learning:
            path = compiled.path(few, np.zeros(20, np.float32), 0, 0)
            compiled.learner(Settings(machine=few)).learn(theta, path)
    if not learning:
        return
    settings = Settings(machine=machine).updated({"training": {"cycles": 1}})
    path = compiled.path(machine, np.zeros(4, np.float32), 0, 0)
    grid = {"bits": 8, "range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    for imperfections in ({"residual_noise": 0.1}, {"update_noise": 0.1}, grid):
        learner = compiled.learner(settings.updated({"imperfections": imperfections}))
        theta = learner.learn(Parameters.zeros(machine), path)
    compiled.watch(path)(theta)
