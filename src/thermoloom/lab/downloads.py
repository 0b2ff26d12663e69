"""Downloads of the lab: the computer as one file, its run directory, and equivalent Python code.

A damaged machine is saved without its damage; the Python code applies the damage again.
"""

from __future__ import annotations

import base64
import io
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from thermoloom.computers.computer import Computer
from thermoloom.computers.pattern_store import named, save_patterns
from thermoloom.computers.sample_archives import SampleRequest, store_archive
from thermoloom.computers.training_runs import KIND, PATTERNS, training_settings
from thermoloom.lab.damage import Damage
from thermoloom.lab.lessons import SIDE, Lesson, training_of
from thermoloom.lab.scenes import Scene
from thermoloom.runs.store import RunDirectory

FILE = "computer.safetensors"
RUN = "lab-run"


def computer_file(computer: Computer, _: Scene | None = None) -> bytes:
    """The bytes that ``computer.save`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        computer.save(path)
        return path.read_bytes()


def run_directory(computer: Computer, scene: Scene | None) -> bytes:
    """A run directory as a ZIP archive, with the samples of an undamaged scene."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / RUN
        _write_run(path, computer)
        if scene is not None and scene.order.damage == Damage():
            order = scene.order
            classes = tuple(order.classes) or None
            request = SampleRequest(order.samples, order.seed, classes, scene.clamp)
            store_archive(path, request, scene.generated)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path.rglob("*")):
                archive.write(file, file.relative_to(folder))
        return packed.getvalue()


FILES: dict[str, Callable[[Computer, Scene | None], bytes]] = {
    FILE: computer_file,
    f"{RUN}.zip": run_directory,
}
"""Functions that write the downloads, by file name."""


def _write_run(path: Path, computer: Computer) -> None:
    computer.patterns.needed_for("run directory")
    identity = training_settings(named(computer.settings, computer.patterns))
    with RunDirectory.create(path, KIND, identity) as run:
        save_patterns(run, PATTERNS, computer.patterns)
        run.save_arrays("computer", computer.parameters.arrays)
        run.save_table("curve", computer.curve)
        training = computer.settings.training
        cycles = {} if computer.settings.solved else {"cycles": training.cycles}
        last = {key: float(computer.curve[key][-1]) for key in ("loss", "reduced_loss")}
        run.finish(cycles | last)


# --- Python lines ---------------------------------------------------------------------------------


def lines_of(scene: Scene | None, lesson: Lesson | None) -> str:
    """Python code that reproduces the scene to the bit."""
    taught = lesson is not None and (scene is None or scene.order.computer == "taught")
    known = None if scene is None else scene.order.known
    lines = ["import thermoloom as tl"]
    if taught or known is not None:
        lines = ["import base64, zlib", "import numpy as np", *lines]
    broken = scene is not None and scene.order.damage != Damage()
    if broken:
        lines.append("from thermoloom.lab.damage import Damage, damaged")
    if taught or known is not None:
        lines += ["", "def picture(text, *shape):",
                  "    data = zlib.decompress(base64.b64decode(text))",
                  "    return np.frombuffer(data, np.uint8).reshape(shape)"]  # fmt: skip
    if lesson is not None and taught:
        lines += ["", *_lesson_lines(lesson)]
    else:
        lines += ["", f'computer = tl.load("{FILE}")  # downloaded from the lab']
    if scene is not None:
        lines += _scene_lines(scene, broken)
    return "\n".join(lines) + "\n"


def _lesson_lines(lesson: Lesson) -> list[str]:
    first, *others = lesson.taught
    machine = lesson.computer.machine
    lines = ["images = ["]
    lines += [f'    picture("{_packed(data)}", {SIDE}, {SIDE}),' for data in lesson.pixels]
    lines += ["]", f"machine = tl.{machine!r}"]
    classes = f"classes=range({len(lesson.pixels)})"
    if lesson.computer.settings.solved:
        return [*lines, f"computer = machine.solve(images, {classes})"]
    lines.append(f"computer = machine.train(images, {classes}, {_words(training_of(first))})")
    continued = [_words(training_of(order)) for order in others]
    return [*lines, *(f"computer = computer.train({arguments})" for arguments in continued)]


def _scene_lines(scene: Scene, broken: bool) -> list[str]:
    order, lines = scene.order, []
    if broken:
        values, defaults = msgspec.structs.asdict(order.damage), msgspec.structs.asdict(Damage())
        arguments = {key: values[key] for key in values if values[key] != defaults[key]}
        lines.append(f"computer = damaged(computer, Damage({_words(arguments)}))")
    ask = f", classes={order.classes}" if order.classes else ""
    clamp = ""
    if order.known is not None:
        shape = scene.computer.patterns.shape or (scene.computer.machine.visible,)
        size = ", ".join(str(n) for n in shape)
        lines += [f'image = picture("{_packed(order.known.pixels)}", {size})',
                  f'known = picture("{_packed(order.known.mask)}", {size})']  # fmt: skip
        clamp = ", clamp=image, mask=known" + (", hold=True" if order.known.hold else "")
    return [
        *lines,
        f"drawn = computer.generate({order.samples}, seed={order.seed}{ask}{clamp})",
        "print(drawn.heat.mean(), drawn.work.mean())",
        'drawn.show().savefig("drawn.png")',
    ]


def _words(arguments: dict[str, object]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()
