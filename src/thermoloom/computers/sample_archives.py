"""Archives of samples in the run directory of their computer.

RUN/samples-SEED-N.safetensors            an archive of generated samples
RUN/samples-SEED-N-HASH.safetensors       one with requested classes, a clamp or other conditions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.computer import SampleRequest as SampleRequest
from thermoloom.computers.training_runs import parameters_of, settings_of
from thermoloom.machine.energy import EnergyParts
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.runs.files import reading
from thermoloom.runs.formats import array_of, from_json
from thermoloom.runs.store import RunDirectory, refuse_other_numerics


def generate_run(
    path: Path, order: SampleRequest, on_progress: Callable[[int], None] | None = None
) -> Generated:
    """Samples of a trained run, from their archive if it exists, else generated and stored."""
    reader = RunDirectory.open(path)
    file = f"{order.archive}.safetensors"
    if reader.has(file) and not reader.is_lost(file):
        return read_archive(reader, order.archive)
    refuse_other_numerics(reader)
    generated = order.draw(parameters_of(reader), settings_of(reader), on_progress)
    store_archive(path, order, generated)
    return generated


def store_archive(path: Path, order: SampleRequest, generated: Generated) -> None:
    """Store the samples of a request in the run of their computer."""
    with RunDirectory.open(path, write=True) as run:
        classes = order.classes_of(parameters_of(run))
        about = {"seed": order.seed, "samples": order.samples, "classes": classes}
        run.save_arrays(order.archive, arrays_of(generated), about)


def arrays_of(generated: Generated) -> dict[str, NDArray[Any]]:
    """Arrays of an archive: states and energies by name."""
    arrays: dict[str, NDArray[Any]] = {
        "initial_states": generated.initial_states,
        "final_states": generated.final_states,
        "heat": generated.heat,
        "clamp_work": generated.clamp_work,
        "path_heat": generated.path_heat,
    }
    if isinstance(generated.active_work, np.ndarray):
        arrays["active_work"] = generated.active_work
    for moment, energy in (("start", generated.starts), ("end", generated.ends)):
        arrays |= {f"{moment}_{part}": values for part, values in energy.parts.items()}
    return arrays


def read_archive(run: RunDirectory, name: str) -> Generated:
    """Read stored samples and check them against their SHA-256."""
    with reading(run.path / f"{name}.safetensors"):
        return generated_of(settings_of(run).machine, run.load_arrays(name))


def generated_of(machine: Machine, arrays: Mapping[str, NDArray[Any]]) -> Generated:
    """Samples from the arrays of an archive, the inverse of ``arrays_of``, or ValueError."""
    states = array_of(arrays, "final_states", "float32", None, machine.units)
    windows = machine.stages + len(machine.development)

    def by_window(name: str) -> NDArray[Any]:
        return _finite(name, array_of(arrays, name, "float64", len(states), windows))

    starts, ends = (
        EnergyParts({part: by_window(f"{moment}_{part}") for part in layout(machine).parts})
        for moment in ("start", "end")
    )
    no_snapshots = np.empty((0, 0, states.shape[1]), np.float32)
    work = by_window("clamp_work")
    without_path_heat = "path_heat" not in arrays  # as in the first archives
    return Generated(
        _finite("initial_states", array_of(arrays, "initial_states", "float32", *states.shape)),
        _finite("final_states", states),
        starts,
        ends,
        work,
        np.full_like(work, np.nan) if without_path_heat else by_window("path_heat"),
        no_snapshots,
        active_work=by_window("active_work") if "active_work" in arrays else 0.0,
    )


def _finite(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")
    return array


class SamplesMetadata(msgspec.Struct):
    """Metadata of an archive of samples."""

    seed: int
    classes: list[int] | None = None
    """The class requested for each sample, where there were labels."""
    computer: list[Any] = msgspec.field(default_factory=list)
    """Identity of the computer, in an archive beside its file; else empty."""


def archived_classes(run: RunDirectory, name: str) -> list[int] | None:
    """The class requested for each sample of an archive, where there were labels."""
    with reading(run.path / f"{name}.safetensors"):
        return from_json(run.load_metadata(name), SamplesMetadata).classes


def archives(run: RunDirectory) -> list[str]:
    """Names of the sample archives of a run, oldest first."""
    names = [name.removesuffix(".safetensors") for name in run.manifest.files]
    return [name for name in names if name.startswith("samples-")]
