"""Extensions: objects of users in settings, each written as one line of text.

    module:object                                    what a user writes
    module:Class(depth=1.0, center=0.5)@9f3c2a41b0d5 what settings, files and run ids contain

The text has the parameter values and the SHA-256 of the module's source: everything that determines
the numbers. Settings therefore stay texts: comparable, hashable, saved as they are, and
any process that can import the module makes the same object from it.

Two kinds of objects belong to the process that made them: those that a notebook or a script defines
(``__main__``), and those that their text cannot restore, such as a lambda (``module:object#2@…``).

A text never calls a function, and it makes an object only of a class that has the methods which
the setting needs. So a file from somebody else cannot run ``os:system('…')``.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import multiprocessing
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from thermoloom.errors import MissingExtensionError, UserError
from thermoloom.inputs import shown

MAIN = "__main__"
_TEXT = re.compile(
    r"(?P<module>[\w.]+):(?P<name>[\w.<>]+)(?P<arguments>\(.*\))?"
    r"(?:#(?P<number>\d+))?(?:@(?P<source>[0-9a-f]{12}))?",
    re.DOTALL,
)
_LOCAL = "exists only in the process that made it"
_objects: dict[str, tuple[Any, int]] = {}
"""Objects by their texts, with the process that made them."""
_sources: dict[int, tuple[Any, str]] = {}
"""SHA-256 of the source of each module as it was loaded; a reloaded module has another spec."""


def is_extension(text: str) -> bool:
    """Whether a setting names an extension; built-in names have no colon."""
    return ":" in text


@dataclass(frozen=True)
class Extensible:
    """Annotation of a setting that takes a built-in name or an extension with these methods."""

    noun: str
    """What the setting is, such as "onsite potential"."""
    methods: tuple[str, ...]
    """Methods that it needs; ``a|b``: one of the two."""
    copied: bool = True
    """Whether the engine uses a copy, so that later changes of the object have no effect."""
    needed_late: bool = False
    """Whether a complete text is accepted where its module is missing, until the object is used."""

    def text(self, key: str, value: object) -> str:
        """The text of a built-in name, of an extension's name, or of an object."""
        if not isinstance(value, str):
            _require_methods(key, value, self)
            return _text_of(key, value, self.copied)
        if not is_extension(value) or (self.needed_late and _parts(key, value)["source"]):
            return value
        return self._canonical(key, value)

    def object(self, key: str, text: str) -> Any:
        """The object that a text names."""
        stored, process = _objects.get(text, (None, 0))
        if process == os.getpid():
            return stored
        return _restored(key, text, self)

    def _canonical(self, key: str, text: str) -> str:
        """The complete text, once its source is known to be the same."""
        restored = self.object(key, text)
        parts = _parts(key, text)
        if parts["number"]:
            return text
        complete = _text_of(key, restored, self.copied)
        if "#" in complete:  # an object of a module that has a name there, such as wells:deep
            complete = f"{parts['module']}:{parts['name']}@{_source_of(restored)}"
        _objects[complete] = restored, os.getpid()
        return complete


def _restored(key: str, text: str, kind: Extensible) -> Any:
    parts = _parts(key, text)
    name = f"{parts['module']}:{parts['name']}"
    in_main = parts["module"] == MAIN
    if parts["number"] or (in_main and multiprocessing.parent_process() is not None):
        raise MissingExtensionError(f"{key} = {shown(text)}: {_LOCAL}; {_WAY_OUT}")
    target = _attribute(_module(key, parts["module"], kind), parts["name"])
    if target is None and in_main:
        raise MissingExtensionError(f"{key} = {shown(text)}: {_LOCAL}; {_WAY_OUT}")
    if target is None:
        raise MissingExtensionError(
            f"{key}: needs the {kind.noun} {name}, which does not exist here; restore its name, or "
            "pass the object"
        )
    _require_methods(key, target, kind)
    if parts["source"] and (source := _source_of(target)) != parts["source"]:
        raise MissingExtensionError(
            f"{key}: needs {name} with source @{parts['source']}, but its source has changed to "
            f"@{source}; restore the file, or pass the object itself to accept the change"
        )
    if not isinstance(target, type):
        if parts["arguments"]:
            raise UserError(f"{key} = {shown(text)}: only classes take arguments")
        return target
    return _call(key, target, *_arguments(key, text, parts["arguments"] or "()"))


_WAY_OUT = "define it in a module, such as my_module.py, and import it from there"


def _parts(key: str, text: str) -> dict[str, Any]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UserError(f"{key} = {shown(text)}: expected module:object or module:Class(1.0, b=2)")
    return match.groupdict()


def _module(key: str, name: str, kind: Extensible) -> ModuleType:
    """The module; commands find modules in the current folder too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return sys.modules.get(name) or import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtensionError(
            f"{key}: needs the {kind.noun} of the module {name}, but there is no module "
            f"{error.name}; put its folder on PYTHONPATH, or pass the object"
        ) from None
    except Exception as error:
        raise MissingExtensionError(
            f"{key}: the module {name} cannot be imported ({error})"
        ) from None


def _require_methods(key: str, candidate: object, kind: Extensible) -> None:
    missing = [
        names
        for names in kind.methods
        if not any(callable(getattr(candidate, name, None)) for name in names.split("|"))
    ]
    if missing:
        needed, absent = (
            joint.join(names).replace("|", " or ")
            for joint, names in ((" and ", kind.methods), (" and no ", missing))
        )
        article = "an" if kind.noun[0] in "aeiou" else "a"
        raise UserError(
            f"{key} = {shown(candidate)}: not {article} {kind.noun}; it needs {needed}, but has no "
            f"{absent}"
        )


# --- object → text --------------------------------------------------------------------------------


def _text_of(key: str, extension: object, copied: bool) -> str:
    """The complete text of an object, which then stands for it in this process."""
    if isinstance(extension, type):
        extension = _call(key, extension, [], {})
    for text, (known, process) in _objects.items():
        if known is extension and "#" in text and process == os.getpid():
            return text
    is_named = hasattr(extension, "__qualname__")  # a function
    owner: Any = extension if is_named else type(extension)
    name, source = f"{owner.__module__}:{owner.__qualname__}", f"@{_source_of(extension)}"
    if name.startswith("thermoloom."):  # the version of the package's own numbers is NUMERICS
        source = ""
    arguments = "" if is_named else _written(extension)
    importable = _attribute(sys.modules.get(owner.__module__), owner.__qualname__) is owner
    if importable and arguments is not None:
        text = f"{name}{arguments}{source}"
        same = is_named or not copied
        restored = extension if same else _call(key, owner, *_arguments(key, text, arguments))
        if same or _state(restored) == _state(extension):
            _objects[text] = restored, os.getpid()
            return text
    text = f"{name}#{len(_objects)}{source}"
    _objects[text] = extension, os.getpid()
    return text


def _attribute(module: ModuleType | None, name: str) -> Any:
    """The object of a dotted name in a module, or None."""
    target: Any = module
    for attribute in name.split("."):
        target = getattr(target, attribute, None)
    return target


def _written(extension: Any) -> str | None:
    """``(depth=1.0, center=0.5)``, or None if a parameter is neither number, text nor array."""
    parameters = parameters_of(extension)
    if parameters is None:
        return None
    texts = {name: _literal_text(value) for name, value in parameters.items()}
    if None in texts.values():
        return None
    return f"({', '.join(f'{name}={text}' for name, text in texts.items())})"


def parameters_of(extension: Any) -> dict[str, Any] | None:
    """Values of an object's parameters: attributes named like the arguments of its class.

    None where an argument has no such attribute.
    """
    if hasattr(extension, "_asdict"):
        return dict(extension._asdict())
    try:
        arguments = inspect.signature(type(extension)).parameters.values()
    except ValueError:  # a class written in C
        return None
    if dataclasses.is_dataclass(extension):
        names = [entry.name for entry in dataclasses.fields(extension) if entry.init]
    else:
        names = [argument.name for argument in arguments]
    if any(a.kind in (a.VAR_POSITIONAL, a.VAR_KEYWORD, a.POSITIONAL_ONLY) for a in arguments):
        return None
    if not all(hasattr(extension, name) for name in names):
        return None
    return {name: getattr(extension, name) for name in names}


def _literal_text(value: Any) -> str | None:
    """Python's notation of a number, a text, an array or lists of them; else None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return f"array({value.tolist()!r})" if value.dtype.kind in "biuf" else None
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return text if same else None


def _state(extension: Any) -> dict[str, Any]:
    """All attributes of an object, in a form that can be compared."""
    attributes = parameters_of(extension) if hasattr(extension, "_asdict") else {}
    attributes = attributes or getattr(extension, "__dict__", {})
    return {name: _literal_text(value) or type(value) for name, value in attributes.items()}


def _source_of(extension: Any) -> str:
    """First digits of the SHA-256 of the module's source; in a notebook, of the object's."""
    owner = extension if hasattr(extension, "__qualname__") else type(extension)
    module = sys.modules.get(owner.__module__)
    spec = getattr(module, "__spec__", None)
    if spec is not None and id(spec) in _sources:
        return _sources[id(spec)][1]
    try:
        source = inspect.getsource(owner if spec is None or module is None else module)
    except (OSError, TypeError):  # typed at a prompt: what Python has compiled
        source = repr(sorted(_compiled(owner)))
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    if spec is not None:
        _sources[id(spec)] = spec, digest
    return digest


def _compiled(owner: Any) -> list[tuple[str, bytes, str]]:
    functions = [owner, *vars(owner).values()] if isinstance(owner, type) else [owner]
    codes = [f.__code__ for f in functions if hasattr(f, "__code__")]
    constants = [[c for c in code.co_consts if not hasattr(c, "co_code")] for code in codes]
    return [
        (code.co_name, code.co_code, repr((code.co_names, numbers)))
        for code, numbers in zip(codes, constants, strict=True)
    ]


# --- text → object --------------------------------------------------------------------------------


def _arguments(key: str, text: str, arguments: str) -> tuple[list[Any], dict[str, Any]]:
    """Literals of ``(1.0, b='x', c=array([1, 2]))``; nothing is executed."""
    try:
        call = ast.parse(f"f{arguments}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        by_name = {each.arg or "": _literal(each.value) for each in call.keywords}
        return [_literal(each) for each in call.args], by_name
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UserError(
            f"{key} = {shown(text)}: arguments must be numbers, strings or lists of them"
        ) from None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "array":
        return np.array(ast.literal_eval(node.args[0]))
    return ast.literal_eval(node)


def _call(key: str, owner: type, positional: list[Any], by_name: Mapping[str, Any]) -> Any:
    try:
        return owner(*positional, **by_name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{key}: {owner.__name__} refuses its arguments ({error})") from None
