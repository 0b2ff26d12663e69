"""Find studies by their folders: those of the package by name, others by path.

    studies/NAME/study.py              ``STUDY``, the record
    studies/NAME/figures.py            functions that draw its figures
    studies/NAME/statements.toml       sentences that its numbers can confirm or contradict
    studies/NAME/statements.py         ``judge``, the headline numbers and the verdicts
    studies/NAME/chapter.html.j2       its chapter of the report

A folder outside the package is loaded from its source, under a name made of the hash of its files.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from thermoloom.errors import UserError
from thermoloom.inputs import shown

if TYPE_CHECKING:
    from thermoloom.studies.study import Study

HOME = Path(__file__).parent
RECORD = "study.py"
SKELETON = HOME / "skeleton"


class Heading(NamedTuple):
    """The fields of a study that the command line needs before it loads the study."""

    name: str
    question: str
    order: int
    together: bool


@cache
def headings() -> tuple[Heading, ...]:
    """The studies of the package, in the order of the report."""
    paths = [path for path in HOME.glob(f"*/{RECORD}") if path.parent != SKELETON]
    return tuple(sorted(map(_heading, paths), key=lambda heading: heading.order))


def _heading(path: Path) -> Heading:
    """The heading of a study, read from its source: ``--help`` should not load NumPy."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Study"
        ):
            constants: dict[str | None, Any] = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            order, together = constants.get("order", 1000), constants.get("together", False)
            return Heading(constants["name"], constants["question"], order, together)
    raise ValueError(f"{path}: has no Study(...)")


def names(together: bool = False) -> list[str]:
    """Names of the studies of the package; ``together``: only those of ``run all``."""
    return [heading.name for heading in headings() if heading.together or not together]


def study(name: str) -> Study:
    """The study with this name, or the study in the folder at this path."""
    if name in names():
        record: Study = import_module(f"thermoloom.studies.{name}.study").STUDY
        return replace(record, folder=HOME / name)
    if is_folder(name):
        return _outside(Path(name))
    near = get_close_matches(name[:100], names(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names())}"
    raise UserError(f"{shown(name)[1:-1]}: no such study, and no folder with a {RECORD}; {hint}")


def is_folder(name: str) -> bool:
    """Whether this names a folder with a study."""
    return os.path.isfile(Path(name) / RECORD)  # False for impossible paths, too


def _outside(folder: Path) -> Study:
    from thermoloom.studies.case import Source
    from thermoloom.studies.study import Study

    source = Source.read(folder.resolve())
    with errors_of(folder):
        module = source.module("study")
    record = getattr(module, "STUDY", None)
    if not isinstance(record, Study):
        raise UserError(f"{folder / RECORD}: must define STUDY = Study(...)")
    if record.name in names():
        raise UserError(f"{folder / RECORD}: the name {record.name!r} is taken; choose another")
    return replace(record, folder=folder.resolve(), source=source)


@contextmanager
def errors_of(folder: Path) -> Iterator[None]:
    """Turn errors in the files of an outside study into one line with file and line number."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        name, line = RECORD, ""
        if isinstance(error, SyntaxError):
            name, line = Path(error.filename or RECORD).name, f"line {error.lineno}: "
        trace = error.__traceback__
        while trace is not None:
            file = Path(trace.tb_frame.f_code.co_filename)
            if file.parent == folder.resolve():
                name, line = file.name, f"line {trace.tb_lineno}: "
            trace = trace.tb_next
        raise UserError(f"{folder / name}: {line}{type(error).__name__}: {error}") from error


def errors_named(record: Study) -> AbstractContextManager[None]:
    """``errors_of`` for a study outside the package; errors in the package keep a traceback."""
    return nullcontext() if record.source is None else errors_of(record.folder)


def load_module(record: Study, name: str) -> ModuleType:
    """A module of a study's folder."""
    if record.source is not None:
        return record.source.module(name)
    return import_module(f"thermoloom.studies.{record.name}.{name}")


def write_skeleton(folder: Path) -> None:
    """Write a study to start from, which runs unchanged and is named after its folder."""
    if folder.exists():
        raise UserError(f"--new {folder}: exists already; choose another name")
    if not folder.name.isidentifier():
        raise UserError(f"--new {folder}: must be a Python name, such as my_study")
    if folder.name in names():
        raise UserError(f"--new {folder}: a built-in study has this name; choose another")
    try:
        shutil.copytree(SKELETON, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path in folder.iterdir():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("skeleton", folder.name), "utf-8")
    except OSError as error:
        raise UserError(f"--new {folder}: cannot be written ({error.strerror or error})") from None
