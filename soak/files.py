"""Damaged files: truncated, bits flipped, values edited; then a command that reads them.

A good outcome is a refusal in one line, a report of the damage by ``runs`` or ``runs verify``, or a
result that is byte-identical to that of the undamaged file (recomputed, or harmless damage).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from soak.cases import Ended, Tally, call, describe, verdict_of
from soak.inputs import SMALL

LEARN = ["train", "-c", "small.toml", "--cycles", "4", "--checkpoint-every", "0"]
OWN = ["train", "-c", "small.toml", "--out", "own", "--set", "source=images"]
EXPERIMENT = ["run", "comparison", "--preset", "quick", "-c", "small.toml", "--seeds", "1",
              "--set", "samples=4", "--set", "study.paths_per_pattern=1", "--workers", "1",
              "--out", "results"]  # fmt: skip
COMMANDS: dict[str, list[str]] = {
    "train": [*LEARN, "--out", "done"],
    "continue": [*LEARN, "--out", "begun"],
    "generate": ["generate", "done", "--samples", "3"],
    "show": ["show", "done"],
    "saved": ["generate", "mine.safetensors", "--samples", "3"],
    "runs": ["runs", "--folder", "."],
    "verify": ["runs", "--folder", ".", "verify", "--folder", "."],
    "report": ["report", "results"],
    "run": EXPERIMENT,
    "PNG": [*OWN, "--set", "path=images"],
    "npy": [*OWN, "--set", "path=images.npy"],
    "IDX": ["train", "-c", "small.toml", "--out", "own", "--set", "source=mnist",
            "--set", "path=idx"],
}  # fmt: skip
READERS = ("train", "generate", "show", "runs", "verify")
"""Commands that read the finished run."""
TARGETS: list[tuple[str, str, tuple[str, ...]]] = [
    ("manifest", "done/manifest.json", READERS),
    ("manifest", "done/manifest.json", READERS),
    ("manifest", "begun/manifest.json", ("continue", "runs", "verify")),
    ("manifest", "results/comparison/manifest.json", ("run", "report")),
    ("archive", "done/computer.safetensors", ("train", "generate", "show", "verify")),
    ("archive", "done/samples-90101-3.safetensors", ("generate", "show", "verify")),
    ("archive", "done/patterns.safetensors", ("train", "generate", "show", "verify")),
    ("computer", "mine.safetensors", ("saved",)),
    ("archive", "mine.samples-90101-3.safetensors", ("saved",)),
    ("table", "done/curve.csv", ("train", "show", "verify")),
    ("table", "results/comparison/models.csv", ("run", "report")),
    ("summary", "results/comparison/summary.json", ("run", "report")),
    ("checkpoint", "begun/checkpoint-000002.safetensors", ("continue",)),
    ("checkpoint", "begun/checkpoint-000001.safetensors", ("continue",)),
    ("PNG", "images/bird.png", ("PNG",)),
    ("npy", "images.npy", ("npy",)),
    ("IDX", "idx/train-images-idx3-ubyte.gz", ("IDX",)),
    ("IDX", "idx/train-labels-idx1-ubyte", ("IDX",)),
]
"""(class, file, commands that read it)"""


# --- damage -------------------------------------------------------------------------------------


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))] if data else b""


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 20))):
        changed[rng.randrange(min(len(data), rng.choice((64, len(data)))))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def inserted(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + rng.randbytes(rng.randrange(1, 40)) + data[start:]


def other(data: bytes, rng: random.Random) -> bytes:
    """Entirely different content under this name."""
    array = io.BytesIO()
    np.savez(array, images=np.ones((2, 4, 4)))
    nonsense = (b"", b"[]", b"null", b"{}", b"\x00" * 100, array.getvalue(), b"[" * 100_000,
                b'{"schema": 1}', rng.randbytes(300))  # fmt: skip
    return rng.choice(nonsense)


def edited(data: bytes, rng: random.Random) -> bytes:
    """JSON with one value of another type or size, or with one key fewer or more."""
    return json.dumps(mutated(json.loads(data), rng)[0], indent=2).encode()


def mutated(tree: Any, rng: random.Random) -> tuple[Any, str]:
    """Change, add or delete one value in a tree of plain values; return the tree and the change."""
    nodes: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in list(items):
            nodes.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(tree)
    if not nodes:
        return {"unheard_of": 1}, "more"
    parent, key = rng.choice(nodes)
    before = parent[key]
    how = rng.choice(("swap", "swap", "edit", "edit", "delete", "add"))
    if how == "swap":
        parent[key] = rng.choice((None, True, 7, -1, 0.5, 1e300, "x", "", [], [1], {}, {"a": 1}))
    elif how == "edit" and isinstance(before, (int, float)):
        parent[key] = before * 2 + 1
    elif how == "edit" and isinstance(before, str):
        parent[key] += "0"
    elif how == "add" and isinstance(parent, dict):
        parent["unheard_of"] = 1
    else:
        del parent[key]
        return tree, f"{key} → nothing"
    return tree, f"{key} → {str(parent[key])[:40]}"


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncated": truncated,
    "bits flipped": flipped,
    "bytes inserted": inserted,
    "other content": other,
    "edited": edited,
}


# --- a folder of good files ---------------------------------------------------------------------


@dataclass(frozen=True)
class Good:
    """Undamaged files, and the outcome of every command on them."""

    folder: Path
    outcomes: dict[str, tuple[str, dict[str, bytes]]]


def outcome(name: str, ended: Ended, folder: Path) -> tuple[str, dict[str, bytes]]:
    """Text and files that a command produced, without times and earlier files."""
    made = {
        "train": ("done/computer.safetensors", "done/curve.csv", "done/patterns.safetensors"),
        "continue": ("begun/computer.safetensors", "begun/curve.csv"),
        "generate": ("done/samples-90101-3.safetensors",),
        "show": ("done/loss.png", "done/samples.png"),
        "saved": ("mine.samples-90101-3.safetensors",),
        "run": ("results/comparison/models.csv", "results/comparison/samples.csv"),
        "report": (),
    }.get(name, ())
    read = {file: (folder / file).read_bytes() for file in made if (folder / file).is_file()}
    lines = [line for line in ended.out.splitlines() if not line.startswith(("work ", "elapsed "))]
    return "\n".join(lines), read


class Killed(BaseException):
    """Ends a training as SIGKILL does: nothing more is saved."""


def make(folder: Path) -> Good:
    import thermoloom as tl
    from thermoloom.inputs import read_toml
    from thermoloom.settings import Settings

    (folder / "small.toml").write_text(SMALL)
    (folder / "images").mkdir()
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (2, 4, 4), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    for name, image in zip(("bird", "fish"), images, strict=True):
        Image.fromarray(image).save(folder / "images" / f"{name}.png")
    (folder / "idx").mkdir()
    (folder / "idx" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(800)))
    (folder / "idx" / "train-labels-idx1-ubyte").write_bytes(bytes(9))

    for name in ("train", "generate", "saved", "run"):
        if name == "saved":
            tl.load(folder / "done").save(folder / "mine.safetensors")
        ended = call(COMMANDS[name], folder)
        assert ended.code == 0, ended.err
    values = read_toml(folder / "small.toml")
    values["training"]["cycles"] = 4
    begin_training(folder / "begun", Settings.from_dict(values))
    for _, target, _ in TARGETS:
        if not (folder / target).is_file():
            raise RuntimeError(f"{target} is no longer written; name another file in soak/files.py")
    outcomes = {}
    for name, command in COMMANDS.items():
        with copied(folder) as copy:
            outcomes[name] = outcome(name, call(command, copy), copy)
    return Good(folder, outcomes)


def begin_training(path: Path, settings: Any) -> None:
    """Start a training and kill it in its third cycle."""
    from thermoloom.computers.training_runs import train_runs

    def stop(_: Path, trainee: Any) -> None:
        if trainee.cycle == 3:
            raise Killed

    with contextlib.suppress(Killed):
        train_runs([(path, settings)], stop, None, 0.0)


class copied:
    """A temporary copy of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Path:
        self.temporary = tempfile.TemporaryDirectory(prefix="soak-")
        return shutil.copytree(self.folder, Path(self.temporary.name) / "x", symlinks=True)

    def __exit__(self, *_: object) -> None:
        self.temporary.cleanup()


# --- judgement ----------------------------------------------------------------------------------


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        good = make(Path(temporary))
        for number in range(count):
            if number % 50 == 0:
                say(f"damaged files: {number} of {count}")
            kind, target, readers = rng.choice(TARGETS)
            is_json = target.endswith(".json")
            how = rng.choice(
                [d for d in DAMAGES if is_json or d != "edited"] + ["edited"] * is_json
            )
            command = rng.choice(readers)
            data = (good.folder / target).read_bytes()
            damaged = DAMAGES[how](data, rng)
            while damaged == data:
                damaged = DAMAGES[how](data, rng)
            with copied(good.folder) as folder:
                (folder / target).write_bytes(damaged)
                ended = call(COMMANDS[command], folder)
                verdict, why = judge(command, target, ended, folder, good)
            what = difference(data, damaged) if how == "edited" else ""
            example = describe(COMMANDS[command], ended, why) + f"  [{target} {how} {what}]"
            tally.add(f"{kind} {how}", verdict, example)


def judge(command: str, target: str, ended: Ended, folder: Path, good: Good) -> tuple[str, str]:
    verdict = verdict_of(ended)
    if verdict is not None:
        return verdict, ""
    if ended.busy:
        return "silently wrong", "continues to compute"
    name = Path(target).parts[0]
    if command == "runs":  # one bad manifest must not hide the other runs
        listed = all(run in ended.out for run in ("done", "begun", "results") if run != name)
        return ("fine", "") if listed and ended.code == 0 else ("silently wrong", "others hidden")
    if command == "verify":
        noticed = ended.code == 1 and "damaged" in ended.out + ended.err
        same = ended.code == 0 and ended.out == good.outcomes[command][0] + "\n"
        harmless = same and target.endswith("manifest.json")  # it covers the files, not itself
        return (
            ("one line", "")
            if noticed
            else (("fine", "") if harmless else ("silently wrong", "not noticed"))
        )
    if command in ("PNG", "npy", "IDX"):
        return ("fine", "") if readable(folder / target) else ("silently wrong", "was read")
    text, made = good.outcomes[command]
    said, files = outcome(command, ended, folder)
    if ended.code == 0 and said == text and files == made:
        return "fine", ""
    if ended.code != 0:
        return "more lines", ""
    if said != text:
        lines = zip(said.splitlines(), text.splitlines(), strict=False)
        return "silently wrong", "; ".join(f"{a!r}, not {b!r}" for a, b in lines if a != b)[:300]
    other = [file for file in made if files.get(file) != made[file]]
    if other == [target] and "damaged" in call(COMMANDS["verify"], folder).out:
        return "fine", ""  # this command does not read the file, and verify reports it
    return "silently wrong", f"other {', '.join(other)}"


def readable(path: Path) -> bool:
    """Whether the damaged file is still a valid image."""
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            real = isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
            return real and bool(np.isfinite(array).all()) and array.ndim in (2, 3)
        if path.suffix == ".png":
            with Image.open(path, formats=["PNG"]) as image:
                image.load()
            return True
    except Exception:
        return False
    return False


def difference(before: bytes, after: bytes) -> str:
    """The first difference between two JSON files."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), (b"", b""))
    return " → ".join(line.decode(errors="replace").strip()[:80] for line in first)
