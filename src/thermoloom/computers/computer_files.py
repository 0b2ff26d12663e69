"""Computers on disk: in one file, or in a run directory.

    MINE.safetensors                       θ, patterns, validation curve, settings
    MINE.csv                               a table of its couplings, without patterns and curve
    MINE.samples-SEED-N.safetensors        its samples, beside it

Every .safetensors file contains the SHA-256 of its arrays and of its metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.computer import Computer
from thermoloom.computers.pattern_store import pattern_names, patterns_from, stored_arrays
from thermoloom.computers.sample_archives import (
    SampleRequest,
    SamplesMetadata,
    archived_classes,
    archives,
    arrays_of,
    generate_run,
    generated_of,
    read_archive,
)
from thermoloom.computers.training_runs import (
    MEMORY,
    TRAINING_SECTIONS,
    curve_of,
    learned_patterns,
    parameters_of,
    settings_of,
    stored_curve,
    stored_parameters,
    unfinished,
    why_not_done,
)
from thermoloom.errors import UserError
from thermoloom.export.coupling_tables import decode_couplings, encode_couplings, is_table
from thermoloom.inputs import is_folder, read_file, user_path
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.numerics import NUMERICS
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.files import (
    MOST_BYTES,
    DamagedFileError,
    reading,
    sha256,
    write_atomically,
)
from thermoloom.runs.formats import decode_arrays, encode_arrays, from_json
from thermoloom.runs.manifest import package_version, refuse_file_of_run
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.training.trainer import CURVE

SUFFIX = ".safetensors"

Arrays = dict[str, NDArray[Any]]


# --- the computer ---------------------------------------------------------------------------------


def save_computer(path: Path, computer: Computer) -> None:
    """Save the computer in one file; if that fails, the previous file stays unchanged."""
    if path.suffix != SUFFIX:
        raise UserError(f"{path}: must end in {SUFFIX}")
    refuse_file_of_run(path)
    arrays = {f"theta.{name}": array for name, array in computer.parameters.arrays.items()}
    arrays |= {f"curve.{name}": column for name, column in computer.curve.items()}
    arrays |= {f"learned.{name}": array for name, array in stored_arrays(computer.patterns).items()}
    arrays |= {f"memory.{name}": array for name, array in computer.memory.items()}
    settings = {k: v for k, v in computer.settings.as_dict().items() if k in TRAINING_SECTIONS}
    metadata = {
        "kind": "computer",
        "thermoloom": package_version(),
        "settings": settings,
        "learned": pattern_names(computer.patterns),
    }
    write_atomically(path, encode_arrays(arrays, metadata))


def save_couplings(path: Path, computer: Computer, bits: int) -> None:
    """Save θ in b bits as a table for a device."""
    if path.suffix != ".csv":
        raise UserError(f"{path}: must end in .csv")
    refuse_file_of_run(path)
    data = encode_couplings(computer.settings, computer.exported, bits, computer.patterns.shape)
    write_atomically(path, data)


def _from_table(path: Path) -> Computer:
    """A computer from a table of couplings, without patterns and curve."""
    settings, theta, shape = decode_couplings(read_file(path, MOST_BYTES), str(path))
    no_patterns = Patterns(np.empty((0, settings.machine.visible), np.float32), (), shape)
    return Computer(settings, theta, no_patterns, {name: np.empty(0) for name in CURVE})


def open_computer(path: Path) -> Computer:
    """A computer from its file, its run directory or a table of its couplings."""
    if is_folder("RUN", path):
        run = RunDirectory.open(path)
        trainee, settings, patterns = unfinished(run), settings_of(run), learned_patterns(run)
        if trainee is None:
            memory = run.load_arrays(MEMORY) if run.has(f"{MEMORY}{SUFFIX}") else {}
            theta, curve = parameters_of(run), curve_of(run)
            return Computer(settings, theta, patterns, curve, memory=memory)
        planned = settings.training.cycles
        settings = settings.updated({"training": {"cycles": trainee.cycle}})
        curve, memory = trainee.curve_columns(), dict(trainee.reached.state or {})
        return Computer(
            settings, trainee.parameters, patterns, curve, planned_cycles=planned, memory=memory
        )
    if is_table(path):
        return _from_table(path)
    arrays, metadata = _read(path, "computer")
    with reading(path, "; save it again"):
        about = from_json(metadata, _ComputerMetadata)
        settings = Settings.from_dict(about.settings)
        theta = stored_parameters(settings, _under("theta", arrays))
        patterns = patterns_from(_under("learned", arrays), about.learned)
        if len(patterns) and patterns.patterns.shape[1] != settings.machine.visible:
            raise ValueError(f"its patterns do not fit {settings.machine.visible} visible units")
        curve, memory = stored_curve(_under("curve", arrays)), _under("memory", arrays)
        return Computer(settings, theta, patterns, curve, memory=memory)


class _ComputerMetadata(msgspec.Struct):
    settings: dict[str, Any]
    learned: dict[str, Any]


def load(path: str | Path) -> Computer:
    """Load a computer from a file or a run directory.

    ``path``: a .safetensors file that ``Computer.save`` wrote, a .csv table that
    ``Computer.export`` wrote (without patterns and loss curve), or the run directory of
    ``thermoloom train`` or ``thermoloom solve``, also of an interrupted training.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> machine.solve(tl.digits(4), resize=True).save("four.safetensors")
    >>> len(tl.load("four.safetensors").generate(5))
    5
    """
    return open_computer(user_path("path", path))


def learning_at(path: Path) -> tuple[Settings, Patterns, dict[str, NDArray[Any]]]:
    """Settings, patterns and curve of a training, even if it diverged or was interrupted."""
    if not is_folder("RUN", path) or unfinished(RunDirectory.open(path)) is not None:
        computer = open_computer(path)
        return computer.settings, computer.patterns, computer.curve
    run = RunDirectory.open(path)
    settings = settings_of(run)
    if not run.has("curve.csv"):
        raise UserError(f"{path}: {why_not_done(run)}")
    return settings, learned_patterns(run), curve_of(run)


def _read(path: Path, kind: str) -> tuple[Arrays, dict[str, Any]]:
    data = read_file(path, MOST_BYTES, f"{kind} file or run directory")
    try:
        arrays, metadata = decode_arrays(data)
    except ValueError as error:
        raise DamagedFileError(f"{path}: not a {kind} file, or a damaged one ({error})") from None
    if metadata.get("kind") != kind:
        advice = "; name a file that computer.save wrote" if kind == "computer" else ""
        raise UserError(f"{path}: contains no {kind}{advice}")
    return arrays, metadata


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {
        name.removeprefix(f"{prefix}."): array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}.")
    }


# --- its samples ----------------------------------------------------------------------------------


def samples_of(
    path: Path, order: SampleRequest, on_progress: Callable[[int], None] | None = None
) -> Generated:
    """Samples of a computer, from their archive if it exists, else generated and stored.

    The archive is in the run directory, or beside the file. If the file now contains another
    computer, the samples are generated again.
    """
    if _is_finished_run(path):
        return generate_run(path, order, on_progress)
    computer, file, identity = open_computer(path), archive_path(path, order), _identity(path)
    if file.exists():
        stored = _archive(file, identity, computer.machine)
        if stored is not None:
            return stored[0]
    generated = order.draw(computer.parameters, computer.settings, on_progress)
    classes = order.classes_of(computer.parameters)
    about = {"kind": "samples", "computer": identity, "seed": order.seed, "classes": classes}
    write_atomically(file, encode_arrays(arrays_of(generated), about))
    return generated


def archive_path(path: Path, order: SampleRequest) -> Path:
    """Path of the archive of a request."""
    return beside(path, f"{order.archive}{SUFFIX}")


def beside(path: Path, name: str) -> Path:
    """Path of a file that belongs to a computer: in its run directory, or beside its file.

    Files of an unfinished run are also beside it, because its next cycles change the samples.
    """
    return path / name if _is_finished_run(path) else path.with_name(f"{_stem(path)}.{name}")


def unfinished_note(path: Path) -> str:
    """``Computer.unfinished`` of an unfinished run directory, else empty."""
    return (
        ""
        if not is_folder("RUN", path) or _is_finished_run(path)
        else open_computer(path).unfinished
    )


def _is_finished_run(path: Path) -> bool:
    return is_folder("RUN", path) and unfinished(RunDirectory.open(path)) is None


def _stem(path: Path) -> str:
    """Name of the files beside a computer."""
    if not is_folder("RUN", path):
        return path.stem
    return f"{path.name}-cycle-{open_computer(path).settings.training.cycles}"


def latest_samples(path: Path) -> tuple[str, Generated, list[int] | None] | None:
    """The latest archive: its name, the samples, and the requested classes."""
    if _is_finished_run(path):
        run = RunDirectory.open(path)
        names = archives(run)
        if not names:
            return None
        requested = archived_classes(run, names[-1])
        return names[-1], read_archive(run, names[-1]), requested
    identity, machine = _identity(path), learning_at(path)[0].machine
    candidates = path.parent.glob(f"{escape(_stem(path))}.samples-*{SUFFIX}")
    for file in sorted(candidates, key=lambda each: each.stat().st_mtime_ns, reverse=True):
        stored = _archive(file, identity, machine)
        if stored is not None:
            return file.name.removeprefix(f"{_stem(path)}.").removesuffix(SUFFIX), *stored
    return None


def _archive(
    file: Path, identity: list[Any], machine: Machine
) -> tuple[Generated, list[int] | None] | None:
    """Samples in an archive beside a file, and their classes; None if of another computer."""
    arrays, metadata = _read(file, "samples")
    with reading(file, "; remove it"):
        about = from_json(metadata, SamplesMetadata)
        if about.computer != identity:
            return None
        return generated_of(machine, arrays), about.classes


def _identity(path: Path) -> list[Any]:
    """Identity of a computer's samples: the content of its file and the numerics."""
    if is_folder("RUN", path):
        cycle = open_computer(path).settings.training.cycles
        return [RunDirectory.open(path).manifest.id, cycle, NUMERICS]
    return [sha256(read_file(path, MOST_BYTES)), NUMERICS]
