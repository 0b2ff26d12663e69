"""Machines of 20,000 and 100,000 units: everything works, in memory that is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GIGABYTE = 2**30

WORK = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from plain_rules import learn_stepwise
import thermoloom as tl
from thermoloom import feasibility
from thermoloom.engines import engine
from thermoloom.engines.memory import solver_memory
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import measure
from thermoloom.patterns.drive import Drive
from thermoloom.theory.solver import solve_optimum

def peak():
    # on Linux ru_maxrss begins with the peak of the parent, here that of all tests before
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])


settings, folder = json.loads(sys.argv[1]), sys.argv[2]
feasibility.LONG_PATH = 0  # a path of few steps, in stretches like one of many
machine = tl.Machine(
    hidden=0, wiring=("visible-visible",), biases=("visible",), duration=0.07, **settings
)
assert feasibility.has_long_paths(machine)
patterns = np.random.default_rng(0).normal(size=(2, machine.visible)).astype(np.float32)
computer = machine.train(patterns, cycles=1)
computer.save(f"{folder}/large.safetensors")
again = tl.load(f"{folder}/large.safetensors")
drawn = again.generate(2)
difference = 0.0
if machine.visible < 50_000:
    again.export(f"{folder}/large.csv")
    assert tl.load(f"{folder}/large.csv").parameters.same_as(computer.parameters)
    path = engine().path(machine, computer.patterns.patterns[0], 101, 0)
    start, rate = Parameters.zeros(machine), computer.settings.learning_rate
    stepwise = learn_stepwise(start, np.asarray(path.states), rate).vector
    difference = np.abs(computer.parameters.vector - stepwise).max() / np.abs(stepwise).max()
solution = solve_optimum(machine, Drive(patterns), tolerance=0.1)
print(json.dumps({
    "wires": measure(machine).wires,
    "parameters": int(again.parameters.vector.size),
    "losses": computer.curve["loss"].tolist(),
    "difference": float(difference),
    "finite": bool(np.isfinite(drawn.states).all()),
    "gradient": solution.relative_gradient,
    "gain": solution.initial_loss - solution.expected_loss,
    "estimate": sum(solver_memory(machine).values()),
    "peak": peak(),
}))
"""


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        ({"visible": 20_000, "topology": "random", "degree": 24}, 0.6),
        ({"visible": 100_000, "topology": "grid", "radius": 3}, 1.4),
    ],
    ids=["20,000", "100,000"],
)
def test_a_large_machine_fits(settings: dict[str, Any], bound: float, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, json.dumps(settings), str(tmp_path)]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    units = settings["visible"]
    assert found["wires"] == pytest.approx(12 * units, rel=0.02)
    assert found["parameters"] == found["wires"] + units
    assert np.isfinite(found["losses"]).all()
    assert found["finite"]
    assert found["difference"] < 1e-5  # of the plain rule in float64
    assert found["gradient"] <= 0.1
    assert found["gain"] > 0
    assert found["peak"] < bound * GIGABYTE
    assert found["peak"] < found["estimate"] + 0.5 * GIGABYTE  # interpreter and libraries
