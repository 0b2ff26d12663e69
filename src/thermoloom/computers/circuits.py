"""A computer as a netlist in a file, and the samples of ngspice beside those of the engine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.computer import Computer
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.machine.device import felt
from thermoloom.machine.energy import label_word
from thermoloom.machine.netlist import netlist
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.quantization import quantized
from thermoloom.machine.realization import Realization, realize
from thermoloom.measures.circuit import Circuit, read_circuit, run_circuit
from thermoloom.measures.statistics import spread
from thermoloom.runs.files import write_atomically

ENGINE_SAMPLES = 4000
"""Samples of the engine beside those of ngspice, which are fewer."""


@dataclass(frozen=True, eq=False)
class Netlist:
    """A netlist, and what it is of."""

    path: Path
    parameters: Parameters
    chosen: int | None
    word: Array | None
    realization: Realization | None


def save_netlist(
    path: Path,
    computer: Computer,
    bits: int,
    chosen: int | None = None,
    samples: int = 100,
    seed: int = 1,
    device: Mapping[str, float] | None = None,
) -> Netlist:
    """θ in b bits as a circuit in units of a device, or in the machine's own.

    What was trained on a device is a circuit with its imperfections. Of a class with several
    styles, the most frequent one is generated.
    """
    if path.suffix != ".cir":
        raise UserError(f"{path}: must end in .cir")
    theta = quantized(computer.exported, bits).on(computer.settings.built)
    word, weights = label_word(theta.machine, chosen), theta.style_weights
    if weights is not None and chosen is not None:
        word = label_word(theta.machine, chosen, int(np.argmax(weights[chosen])))
    realization = realize(theta.machine, **device) if device else None
    text = netlist(theta, word, samples, seed, realization)
    write_atomically(path, text.encode())
    return Netlist(path, theta, chosen, word, realization)


@dataclass(frozen=True, eq=False)
class Compared:
    """Samples of ngspice beside samples of the engine: the same machine, integrated twice."""

    circuit: Circuit
    rows: list[dict[str, Any]]
    """Mean heat (and work, with several stages) of both, with standard errors, in E₀."""
    differences: NDArray[np.float64]
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


def simulated(made: Netlist, engine_samples: int = ENGINE_SAMPLES) -> Compared:
    """Run a netlist with ngspice in a folder of its own, and compare."""
    theta, word = made.parameters, made.word
    if felt(theta).twisted is not None:
        raise UserError(
            "device.non_reciprocity: heat is by the path here, and a netlist writes voltages at a "
            f"few times only; run ngspice -b {made.path} for its samples"
        )
    with tempfile.TemporaryDirectory() as folder:
        data = run_circuit(made.path, Path(folder))
        circuit = read_circuit(theta, data, word, made.realization)
    words = None if word is None else np.tile(word, (engine_samples, 1))
    ours = engine().generate(theta, engine_samples, seed=1, words=words)
    rows = [_row("heat", circuit.heat, ours.heat)]
    if theta.machine.stages > 1:
        rows.append(_row("work", circuit.work, ours.work))
    both = [states.astype(np.float64) for states in (circuit.final_states, ours.final_states)]
    squares = [(states - states.mean(axis=0)) ** 2 for states in both]
    return Compared(circuit, rows, np.stack([_in_errors(*both), _in_errors(*squares)]))


def _row(what: str, circuit: NDArray[Any], ours: NDArray[Any]) -> dict[str, Any]:
    found, reference = spread(circuit), spread(ours)
    return {"what": what, "ngspice": found.mean, "sem": found.sem, "engine": reference.mean,
            "engine_sem": reference.sem}  # fmt: skip


def _in_errors(few: NDArray[Any], many: NDArray[Any]) -> NDArray[np.float64]:
    """Difference of two means over samples, in standard errors if both have one law.

    The spread is that of the many: with few samples a small square comes with a small error.
    """
    variance = many.var(axis=0, ddof=1) * (1 / len(few) + 1 / len(many))
    found: NDArray[np.float64] = (few.mean(axis=0) - many.mean(axis=0)) / np.sqrt(variance)
    return found
