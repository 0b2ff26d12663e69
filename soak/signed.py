"""Inconsistent files with valid checksums: changed, then signed again.

A computer, its samples, patterns, checkpoints and tables of couplings get arrays and metadata of
another type, size or meaning, or additional text. They are read in this process. A good outcome is
a ``UserError``, or the numbers of the unchanged file.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from soak.cases import Tally
from soak.files import begin_training, mutated

Arrays = dict[str, Any]


# --- changes ------------------------------------------------------------------------------------


def changed_arrays(arrays: Arrays, rng: random.Random) -> str:
    """Change one array in place; return a description of the change."""
    name = rng.choice(list(arrays))
    array = arrays[name]
    changes: dict[str, Callable[[], Any]] = {
        "missing": lambda: None,
        "integers": lambda: array.astype(np.int64),
        "float16": lambda: array.astype(np.float16),
        "float64": lambda: array.astype(np.float64),
        "bytes": lambda: array.astype(np.uint8),
        "one row less": lambda: array[:-1] if array.ndim else array,
        "one axis more": lambda: array[None],
        "flat": lambda: array.ravel(),
        "empty": lambda: array[:0] if array.ndim else array,
        "another name": lambda: array,
        "not a number": lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array,
        "infinite": lambda: np.full_like(array, np.inf) if array.dtype.kind == "f" else array,
        "complex": lambda: array.astype(np.complex64),
    }
    how = rng.choice(list(changes))
    with np.errstate(all="ignore"):
        other = changes[how]()
    del arrays[name]
    if how == "another name":
        arrays[f"{name}_"] = other
    elif other is not None:
        arrays[name] = np.ascontiguousarray(other)
    return f"{name}: {how}"


def resigned_arrays(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """An array file with another array or other metadata, and valid checksums."""
    from thermoloom.runs.formats import decode_arrays, encode_arrays

    arrays, metadata = decode_arrays(data)
    if rng.random() < 0.6:
        how = changed_arrays(arrays, rng)
    else:
        metadata, how = mutated(metadata, rng)
        if not isinstance(metadata, dict):
            metadata = {}
    try:
        return encode_arrays(arrays, metadata), how
    except SafetensorError:  # older versions cannot store complex numbers
        return data, how


def resigned_table(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A table of couplings with a changed line, and a valid SHA-256."""
    from thermoloom.export.coupling_tables import TITLE
    from thermoloom.runs.files import sha256

    body, how = changed_text(data.partition(b"\n")[2], rng)
    return TITLE + sha256(body).encode() + b"\n" + body, how


def changed_text(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Text with one changed line."""
    lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    line = lines[number]
    words = line.split(b",") if b"," in line else line.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(
        [
            b"99",
            b"-1",
            b"x",
            b"",
            b"nan",
            b"1e99",
            b"[",
            b"[" * 2000,
            b"\xff",
            b"100000",
            b'"x"',
            b"0.5",
        ]
    )
    choices = {
        "word": (b"," if b"," in line else b" ").join(words),
        "twice": line + b"\n" + line,
        "gone": None,
        "junk": line + b" junk",
        "not UTF-8": line + b"\xff\xfe",
        "blank": line + b"\n",
    }
    how = rng.choice(list(choices))
    other = choices[how]
    lines[number : number + 1] = [] if other is None else [other]
    removed = how == "gone" and (
        line[:1] in (b"", b"#") or len(lines) < 10
    )  # a default, or a point
    return b"\n".join(lines), f"line {number}: {how}" + (" → nothing" if removed else "")


def resigned_manifest(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A manifest with another value, and a valid seal."""
    from thermoloom.runs.manifest import _seal

    values = json.loads(data)
    values, how = mutated(values, rng)
    if isinstance(values, dict):
        values["seal"] = _seal(values)
    return json.dumps(values, indent=2).encode(), how


# --- readers ------------------------------------------------------------------------------------


def computer_numbers(path: Path) -> list[Any]:
    """All numbers of a computer in a file."""
    import thermoloom as tl

    computer = tl.load(path)
    curve = [computer.curve[name] for name in sorted(computer.curve)]
    learned, scale = computer.patterns, computer.patterns.scale
    moments = [np.asarray(scale.mean), np.asarray(scale.deviation)]
    words = [learned.labels, learned.classes, learned.shape, scale.kind]
    theta = computer.parameters.vector
    return [theta, theta.dtype, learned.patterns, computer.machine, *curve, *moments, *words]


def samples_numbers(path: Path) -> list[Any]:
    """All numbers of archived samples."""
    from thermoloom.computers.computer_files import latest_samples

    latest = latest_samples(path)
    if latest is None:
        return []
    _, generated, classes = latest
    return [generated.final_states, generated.heat, generated.work, classes]


def checkpoint_numbers(path: Path) -> list[Any]:
    """The state from which an interrupted training continues."""
    from thermoloom.computers.training_runs import _begin, learned_patterns, settings_of
    from thermoloom.runs.store import RunDirectory

    run = RunDirectory.open(path)
    trainee = _begin(run, settings_of(run), learned_patterns(run))
    return [trainee.cycle, *trainee.arrays().values()]


TARGETS: list[tuple[str, str, str, Callable[[Path], list[Any]]]] = [
    ("computer", "mine.safetensors", "mine.safetensors", computer_numbers),
    ("computer", "mine.safetensors", "mine.safetensors", computer_numbers),
    ("samples", "mine.samples-90101-3.safetensors", "mine.safetensors", samples_numbers),
    ("computer of a run", "done/computer.safetensors", "done", computer_numbers),
    ("patterns of a run", "done/patterns.safetensors", "done", computer_numbers),
    ("samples of a run", "done/samples-90101-3.safetensors", "done", samples_numbers),
    ("curve of a run", "done/curve.csv", "done", computer_numbers),
    ("checkpoint", "begun/checkpoint-000002.safetensors", "begun", checkpoint_numbers),
    ("checkpoint", "begun/checkpoint-000002.safetensors", "begun", computer_numbers),
    ("table", "five.csv", "five.csv", computer_numbers),
    ("table", "five.csv", "five.csv", computer_numbers),
    ("table", "plain.csv", "plain.csv", computer_numbers),
    ("manifest", "done/manifest.json", "done", computer_numbers),
]
"""(class, changed file, what is opened, its numbers)"""


def make(folder: Path) -> None:
    """A computer in a file, in a run and in two tables, with samples; a training under way."""
    import thermoloom as tl
    from thermoloom.computers.computer_files import samples_of
    from thermoloom.computers.sample_archives import SampleRequest
    from thermoloom.computers.training_runs import train_runs
    from thermoloom.settings import Settings

    settings = Settings.from_dict({
        "machine": {"visible": 16, "hidden": 4, "duration": 0.01, "labels": 2},
        "patterns": {"resize": True, "digits": [0, 1]},
        "training": {"cycles": 4, "validation_every": 1},
    })  # fmt: skip
    train_runs([(folder / "done", settings)])
    begin_training(folder / "begun", settings)
    (folder / "begun/checkpoint-000001.safetensors").unlink()  # leave nothing to fall back on
    computer = tl.load(folder / "done")
    computer.save(folder / "mine.safetensors")
    for path in (folder / "done", folder / "mine.safetensors"):
        samples_of(path, SampleRequest(3, 90101))
    computer.export(folder / "five.csv", bits=5)
    computer.export(folder / "plain.csv")


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = Path(temporary)
        make(folder)
        expected = {(opened, read): read(folder / opened) for _, _, opened, read in TARGETS}
        for number in range(count):
            if number % 500 == 0:
                say(f"signed again: {number} of {count}")
            kind, target, opened, read = rng.choice(TARGETS)
            original = (folder / target).read_bytes()
            manifest = folder / Path(target).parts[0] / "manifest.json"
            record = manifest.read_bytes() if manifest.exists() else b""
            changed, how = signed(folder / target, original, rng)
            verdict, why = judge(folder / opened, read, expected[opened, read], harmless(kind, how))
            (folder / target).write_bytes(original)
            if record:
                manifest.write_bytes(record)
            assert changed or verdict == "fine", (target, how, why)
            tally.add(f"signed {kind}", verdict, f"{target}: {how} → {why}")
        shutil.rmtree(folder / "begun")


def signed(file: Path, data: bytes, rng: random.Random) -> tuple[bool, str]:
    """Change a file, sign it again, and let the manifest of its run record it."""
    if file.name == "manifest.json":
        changed, how = resigned_manifest(data, rng)
    elif file.name == "curve.csv":
        changed, how = changed_text(data, rng)
    elif file.suffix == ".csv":
        changed, how = resigned_table(data, rng)
    else:
        changed, how = resigned_arrays(data, rng)
    file.write_bytes(changed)
    if file.parent.name == "done" and file.name != "manifest.json":
        record_again(file, changed)
    return changed != data, how


def judge(
    path: Path, read: Callable[[Path], list[Any]], expected: list[Any], harmless: bool
) -> tuple[str, str]:
    """Verdict on reading the file."""
    from thermoloom.errors import UserError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            numbers = read(path)
    except UserError as error:
        return ("one line" if "\n" not in str(error) else "more lines"), str(error)
    except Exception as error:
        return "traceback", repr(error)
    same = len(numbers) == len(expected) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(numbers, expected, strict=True)
    )
    return ("fine" if same or harmless else "silently wrong"), "accepted"


def harmless(kind: str, how: str) -> bool:
    """Whether other numbers are legitimate: another setting, coupling or name is valid."""
    another_loss = "loss: " in how and how.endswith(("not a number", "infinite"))
    return "→" in how or how.endswith(": word") or another_loss


def record_again(file: Path, data: bytes) -> None:
    """Let the manifest of a run record the changed file."""
    from thermoloom.runs.files import sha256
    from thermoloom.runs.manifest import MANIFEST, encode_manifest, read_manifest

    manifest = read_manifest(file.parent)
    manifest.files[file.name] |= {"sha256": sha256(data), "bytes": len(data)}
    (file.parent / MANIFEST).write_bytes(encode_manifest(manifest))
