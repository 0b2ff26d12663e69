"""Run a netlist with ngspice, and compare its samples with those of the engine.

The circuit simulator integrates the Langevin equation independently, so it and the engine check
each other.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.export.netlists import DATA, Netlist, switch_steps, written_steps
from thermoloom.export.physical_units import Realization, reduced
from thermoloom.inputs import read_file
from thermoloom.machine.device import felt
from thermoloom.machine.energy import energy
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows

Float64 = NDArray[np.float64]

MOST_BYTES = 1 << 34
ENGINE_SAMPLES = 4000
"""Samples of the engine in a comparison; ngspice draws fewer."""


@dataclass(frozen=True, eq=False)
class CircuitSamples:
    """Samples that a netlist generated."""

    initial_states: Float64
    """x at the start of generation, (S, N)."""
    final_states: Float64
    """x at the end of generation, (S, N)."""
    heat: Float64
    """Q of every sample, in E₀."""
    work: Float64
    """W of switching stages, in E₀."""


def run_ngspice(netlist: Path, folder: Path) -> Path:
    """Run a netlist in a folder; return the file of voltages that ngspice wrote."""
    program = shutil.which("ngspice")
    if program is None:
        raise UserError(
            "ngspice: is not installed; install it (Debian: apt-get install ngspice), or run the "
            "netlist elsewhere"
        )
    process = subprocess.run(
        [program, "-b", str(netlist.absolute())],
        cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    voltages = folder / DATA
    if process.returncode or not voltages.exists():
        errors = [line for line in process.stderr.splitlines() if "rror" in line]
        reason = errors[0] if errors else process.returncode
        raise UserError(f"{netlist}: ngspice stopped ({reason})")
    return voltages


def read_voltages(
    theta: Parameters,
    file: Path,
    word: Array | None = None,
    realization: Realization | None = None,
) -> CircuitSamples:
    """States from node voltages, x = u/V₀, and their heat Q = Σ_t V_t(start) − V_t(end)."""
    scale, written = realization or reduced(theta.machine), written_steps(theta)
    assert scale.voltage is not None
    rows = np.loadtxt(read_file(file, MOST_BYTES).decode().splitlines(), ndmin=2)
    times = np.array(written) * theta.machine.dt * scale.time
    if len(rows) % len(times) or not np.allclose(rows[:, 0].reshape(-1, len(times)), times, 1e-4):
        raise UserError(f"{file}: its times are not those of this machine's netlist")
    states = rows[:, 1:].reshape(-1, len(times), theta.machine.units) / scale.voltage
    switches = [written.index(step) for step in switch_steps(theta)]
    return _with_heat_and_work(theta, states[:, switches], word)


def _with_heat_and_work(theta: Parameters, states: Float64, word: Array | None) -> CircuitSamples:
    """Heat of each stage and work of each switch, from states (S, T + 1, N) at the switches."""
    order: Sequence[int] = [stage for stage, _, _ in generation_windows(theta.machine)]
    reciprocal = felt(theta).both
    V = [
        [energy(reciprocal, states[:, switch], stage, word) for switch in (position, position + 1)]
        for position, stage in enumerate(order)
    ]
    heat = sum((start - end for start, end in V), start=np.zeros(len(states)))
    work = sum((V[t + 1][0] - V[t][1] for t in range(len(V) - 1)), start=np.zeros(len(states)))
    return CircuitSamples(states[:, 0], states[:, -1], heat, work)


# --- ngspice beside the engine --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NgspiceComparison:
    """Samples of ngspice beside samples of the engine: the same machine, integrated twice."""

    circuit: CircuitSamples
    rows: list[dict[str, Any]]
    """Mean heat (and work, with several stages) of both, with standard errors, in E₀."""
    differences: Float64
    """Differences in the mean and in the variance of each unit, in standard errors, (2, N)."""

    @property
    def count(self) -> int:
        return self.differences.size

    @property
    def largest(self) -> float:
        return float(np.abs(self.differences).max())

    def summary(self) -> dict[str, Any]:
        """The numbers of the comparison."""
        return {"samples": len(self.circuit.heat), "compared": self.rows,
                "largest_difference": self.largest}  # fmt: skip


def compare_with_ngspice(
    netlist: Netlist, engine_samples: int = ENGINE_SAMPLES
) -> NgspiceComparison:
    """Run a netlist with ngspice in a temporary folder, and compare its samples with the engine."""
    theta, word = netlist.parameters, netlist.word
    if netlist.samples < 2:
        raise UserError(f"samples = {netlist.samples}: a comparison needs at least 2")
    if felt(theta).twisted is not None:
        raise UserError(
            "device.non_reciprocity: the heat needs the whole path, and a netlist writes voltages "
            f"at a few times only; run ngspice -b {netlist.path} for its samples"
        )
    with tempfile.TemporaryDirectory() as folder:
        voltages = run_ngspice(netlist.path, Path(folder))
        circuit = read_voltages(theta, voltages, word, netlist.realization)
    words = None if word is None else np.tile(word, (engine_samples, 1))
    ours = engine().generate(theta, engine_samples, seed=1, words=words)
    rows = [_row("heat", circuit.heat, ours.heat)]
    if theta.machine.stages > 1:
        rows.append(_row("work", circuit.work, ours.work))
    both = [states.astype(np.float64) for states in (circuit.final_states, ours.final_states)]
    squares = [(states - states.mean(axis=0)) ** 2 for states in both]
    return NgspiceComparison(circuit, rows, np.stack([_in_errors(*both), _in_errors(*squares)]))


def _row(quantity: str, circuit: NDArray[Any], ours: NDArray[Any]) -> dict[str, Any]:
    (mean, sem), (engine_mean, engine_sem) = _mean_and_error(circuit), _mean_and_error(ours)
    return {"what": quantity, "ngspice": mean, "sem": sem, "engine": engine_mean,
            "engine_sem": engine_sem}  # fmt: skip


def _mean_and_error(samples: NDArray[Any]) -> tuple[float, float]:
    """Mean and its standard error."""
    samples = samples.astype(np.float64)
    return float(samples.mean()), float(samples.std(ddof=1)) / math.sqrt(len(samples))


def _in_errors(few: NDArray[Any], many: NDArray[Any]) -> Float64:
    """Difference of two means over samples, in standard errors.

    The variance is taken from the larger set: in a small one, a mean square that is too small
    would come with an error that is too small.
    """
    variance = many.var(axis=0, ddof=1) * (1 / len(few) + 1 / len(many))
    ratio: Float64 = (few.mean(axis=0) - many.mean(axis=0)) / np.sqrt(variance)
    return ratio
