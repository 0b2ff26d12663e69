"""The rooms of the package: which may import which, and that each name is in one of them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import thermoloom

ROOT = Path(thermoloom.__file__).parent
ORDER = (
    ("errors",),
    ("inputs", "interrupts", "numerics"),
    ("extensions",),
    ("rules", "sections", "streams", "threads"),
    ("machine", "engine_choice"),
    ("settings",),
    ("feasibility",),
    ("patterns", "engines", "runs"),
    ("theory", "training", "generation", "export"),
    ("measures", "presentation"),
    ("computers",),
    ("demo", "sklearn"),
    ("studies", "lab"),
    ("cli", "__init__"),
    ("__main__",),
)
"""The direction of data: a room imports from rooms further up, never from its own line or below.

The command line is on top of all.
"""
DOORS = {("thermoloom.machine.machine", "computers")}
"""The one exception: ``Machine.train`` and ``Machine.solve`` make computers of machines, so they
import the room ``computers`` when they are called (and its types, for the type checker alone)."""
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
MODULES = sorted(ROOT.rglob("*.py"))


def room_of(module: str) -> str:
    """``thermoloom.machine.energy`` → ``machine``."""
    return [*module.split("."), "__init__"][1]


def imports(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thermoloom"):
            if node.module == "thermoloom":
                yield from (f"thermoloom.{name.name}" for name in node.names)
            else:
                yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("thermoloom"))


def test_data_flows_one_way() -> None:
    against = []
    for path in MODULES:
        name = ".".join(["thermoloom", *path.relative_to(ROOT).with_suffix("").parts])
        own = room_of(name)
        others = {room_of(module) for module in imports(path)} - {own}
        against += [
            f"{name} → {room}"
            for room in others
            if RANK[room] >= RANK[own] and (name, room) not in DOORS
        ]
    assert sorted(against) == []


def test_a_name_is_found_in_one_room() -> None:
    """Commands bear the names of their objects; studies have the same files, engines the same
    parts.
    """
    names = Counter(
        path.stem
        for path in MODULES
        if path.stem != "__init__"
        and path.relative_to(ROOT).parts[0] not in ("cli", "engines")
        and study_of(path) is None
    )
    assert [name for name, count in names.items() if count > 1] == []


def study_of(path: Path) -> str | None:
    """The study that a file belongs to, if it does."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "studies" and len(parts) == 3 else None


def test_no_study_knows_another() -> None:
    """Code that two studies need belongs to the frame."""
    against = [
        f"{study_of(path)} → {module}"
        for path in MODULES
        for module in imports(path)
        if study_of(path) is not None
        and module.startswith("thermoloom.studies.")
        and (ROOT / "studies" / module.split(".")[2]).is_dir()
        and module.split(".")[2] != study_of(path)
    ]
    assert against == []


def test_the_frame_knows_no_study() -> None:
    """Studies are found by their folders; no list of them is kept anywhere."""
    folders = {p.name for p in (ROOT / "studies").iterdir() if (p / "study.py").exists()}
    against = [
        f"{path.relative_to(ROOT)} → {module}"
        for path in MODULES
        for module in imports(path)
        if study_of(path) is None
        and module.startswith("thermoloom.studies.")
        and module.split(".")[2] in folders
    ]
    assert against == []


def test_kernels_stay_behind_the_engine() -> None:
    """Nothing outside ``engines/compiled`` imports Numba or the compiled engine's modules."""
    outside = [path for path in MODULES if "compiled" not in path.parts]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in outside}
    knowing = [
        name for name, text in texts.items() if "import numba" in text or "from numba" in text
    ]
    assert knowing == []
    assert not [
        name
        for name, text in texts.items()
        if "from thermoloom.engines.compiled" in text
        or "import thermoloom.engines.compiled" in text
    ]
