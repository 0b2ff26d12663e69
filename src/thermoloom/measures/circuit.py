"""A netlist run by ngspice, and its node voltages read as samples with their heat.

The circuit is an integrator of its own, so that it and the engine check each other.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import read_file
from thermoloom.machine.device import felt
from thermoloom.machine.energy import energy
from thermoloom.machine.netlist import DATA, switch_steps, written_steps
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.machine.realization import Realization, reduced

Float64 = NDArray[np.float64]

MOST_BYTES = 1 << 34


@dataclass(frozen=True, eq=False)
class Circuit:
    """What a netlist generated."""

    initial_states: Float64
    """x at the start of generation, (S, N)."""
    final_states: Float64
    """x at its end, (S, N)."""
    heat: Float64
    """Q of every sample, in E₀."""
    work: Float64
    """W of switching stages, in E₀."""


def run_circuit(netlist: Path, folder: Path) -> Path:
    """Run a netlist in a folder with ngspice; the file of voltages that it wrote."""
    program = shutil.which("ngspice")
    if program is None:
        raise UserError(
            "ngspice: is not installed (Debian: apt-get install ngspice); or run the netlist "
            "elsewhere"
        )
    done = subprocess.run(
        [program, "-b", str(netlist.absolute())],
        cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = folder / DATA
    if done.returncode or not found.exists():
        lines = [line for line in done.stderr.splitlines() if "rror" in line]
        raise UserError(f"{netlist}: ngspice stopped ({lines[0] if lines else done.returncode})")
    return found


def read_circuit(
    theta: Parameters, data: Path, word: Array | None = None, realization: Realization | None = None
) -> Circuit:
    """Node voltages, divided by V₀, and Q = Σ V_t(start) − V_t(end) over the stages."""
    scale, written = realization or reduced(theta.machine), written_steps(theta)
    assert scale.voltage is not None
    rows = np.loadtxt(read_file(data, MOST_BYTES).decode().splitlines(), ndmin=2)
    times = np.array(written) * theta.machine.dt * scale.time
    if len(rows) % len(times) or not np.allclose(rows[:, 0].reshape(-1, len(times)), times, 1e-4):
        raise UserError(f"{data}: its times are not those of this machine's netlist")
    states = rows[:, 1:].reshape(-1, len(times), theta.machine.units) / scale.voltage
    places = [written.index(step) for step in switch_steps(theta)]
    return _books(theta, states[:, places], word)


def _books(theta: Parameters, states: Float64, word: Array | None) -> Circuit:
    """Heat of each stage and work of each switch, from states (S, T + 1, N) at the switches."""
    order: Sequence[int] = [stage for stage, _, _ in generation_windows(theta.machine)]
    known = felt(theta).both
    V = [
        [energy(known, states[:, place], stage, word) for place in (position, position + 1)]
        for position, stage in enumerate(order)
    ]
    heat = sum((start - end for start, end in V), start=np.zeros(len(states)))
    work = sum((V[t + 1][0] - V[t][1] for t in range(len(V) - 1)), start=np.zeros(len(states)))
    return Circuit(states[:, 0], states[:, -1], heat, work)
