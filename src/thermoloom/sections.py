"""Tables of settings: every value is read strictly as its type, then the table is checked."""

from __future__ import annotations

import ast
import inspect
import reprlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from html import escape
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from thermoloom.errors import UserError
from thermoloom.extensions import Extensible
from thermoloom.inputs import LARGEST_COUNT, LARGEST_SEED, real_number, shown, whole_number

_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxother = 60, 200


@cache
def _type_hints(section: type) -> dict[str, Any]:
    """Evaluated once for each class: it takes longer than reading all of its values."""
    return get_type_hints(section, include_extras=True)


def require(condition: bool, key: str, value: object, must: str) -> None:
    if not condition:
        raise UserError(f"{key} = {shown(value)}: {must}")


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Message for an unknown name, with the nearest known one or the command that lists all."""
    complete = {key: key for key in known}
    if "." not in name:  # --set kT=0.2 stands for machine.kT
        complete |= {key.rpartition(".")[2]: key for key in complete}
    near = get_close_matches(name[:100], list(complete), n=1, cutoff=0.5)
    hint = f"did you mean {complete[near[0]]}?" if near else "`thermoloom settings` lists all"
    return f"{shown(name)[1:-1]}: no such {kind}; {hint}"


def html_table(rows: Mapping[str, Any], title: str = "") -> str:
    """Rows of a table that notebooks display, in the colours of their theme."""
    left = 'style="text-align: left"'  # notebooks would align to the right
    caption = f"<caption {left}><b>{escape(title)}</b></caption>" if title else ""
    cells = "".join(
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{caption}{cells}</table>"


def meanings(section: type) -> dict[str, str]:
    """The text below each setting of a section, from its source: Python drops it at run time."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(section))).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        setting.target.id: text.value.value
        for setting, text in pairwise(definition.body)
        if isinstance(setting, ast.AnnAssign)
        and isinstance(setting.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def explain(section: type) -> None:
    """Add all settings with their defaults and meanings to the text that ``help`` shows."""
    text = section.__doc__ or ""
    if "Parameters:" in text:
        return
    lines = [
        f"    {entry.name} = {_SHORT.repr(entry.default)}\n        "
        + " ".join(meanings(section).get(entry.name, "").replace("``", "").split())
        for entry in fields(section)
    ]
    section.__doc__ = "\n".join([textwrap.dedent(text).rstrip(), "", "    Parameters:", *lines])


class Section:
    """A table of settings: every value is read strictly as its type, then the table is checked.

    Python and TOML therefore follow the same rules, and NumPy numbers become plain ones.
    """

    section: ClassVar[str] = ""

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuse an unknown setting before the dataclass raises its own error."""
        known = [entry.name for entry in fields(cls)]  # type: ignore[arg-type]
        for key in settings:
            if key not in known:
                named = [f"{cls.section}.{name}" for name in known]
                raise UserError(unknown("setting", f"{cls.section}.{key}", named))
        return super().__new__(cls)

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value}" for name, value in self._changed().items())
        return f"{type(self).__name__}({changed})"

    def _changed(self) -> dict[str, str]:
        """The settings that differ from their defaults, shortened."""
        entries = fields(self)  # type: ignore[arg-type]
        values = {entry.name: (getattr(self, entry.name), entry.default) for entry in entries}
        return {k: _SHORT.repr(v) for k, (v, default) in values.items() if v != default}

    def _repr_html_(self) -> str:
        rows = self._changed() or {"all settings": "default"}
        return html_table(rows, type(self).__name__)

    def __post_init__(self) -> None:
        hints = _type_hints(type(self))  # type: ignore[arg-type]
        for entry in fields(self):  # type: ignore[arg-type]
            key = f"{self.section}.{entry.name}"
            value = fitted(key, hints[entry.name], getattr(self, entry.name))
            object.__setattr__(self, entry.name, value)
        self.check()

    def check(self) -> None:
        """Refuse values that do not fit together."""

    def _require(self, keys: str, condition: bool, must: str) -> None:
        """Refuse the values of these settings, such as ``"J2, J4"``, if the condition is false."""
        names = keys.split(", ")
        values = tuple(getattr(self, name) for name in names)
        named = ", ".join(f"{self.section}.{name}" for name in names)
        require(condition, named, values if len(values) > 1 else values[0], must)

    def _positive(self, *keys: str) -> None:
        for key in keys:
            value = getattr(self, key)
            self._require(key, value is None or value > 0, "must be positive")

    def _non_negative(self, *keys: str) -> None:
        for key in keys:
            value = getattr(self, key)
            self._require(key, value is None or value >= 0, "must not be negative")


_LISTS = {
    int: "whole numbers, such as [1, 2]",
    float: "numbers, such as [0.1, 0.2]",
    str: 'strings, such as ["a", "b"]',
}
_OTHERS = {bool: "true or false", str: "text"}


def fitted(key: str, hint: Any, value: Any) -> Any:
    """``value`` as the type of the setting ``key``, or an error that names both."""
    if get_origin(hint) is Annotated:
        extensible: Extensible | Any = hint.__metadata__[0]
        return extensible.text(key, value)
    if type(None) in get_args(hint):
        return None if value is None else fitted(key, get_args(hint)[0], value)
    if get_args(hint):  # tuple[int, ...]
        kind = get_args(hint)[0]
        if not isinstance(value, (list, tuple)):
            raise UserError(
                f"{key} = {shown(value)}: expected a list of {_LISTS.get(kind, 'tables')}"
            )
        return tuple(fitted(key, kind, entry) for entry in value)
    if hint is float:
        return real_number(key, value)
    if hint is int:
        # the sections check signs; seeds have 63 bits, all other numbers 31
        highest = LARGEST_SEED if key.rpartition(".")[2].rstrip("s").endswith("seed") else None
        return whole_number(key, value, None, highest or LARGEST_COUNT)
    if issubclass(hint, Section):
        if isinstance(value, Mapping):
            return hint(**value)
        if not isinstance(value, hint):
            raise UserError(f"{key}: expected tables of {', '.join(f.name for f in fields(hint))}")
        return value
    if type(value) is not hint:
        raise UserError(f"{key} = {shown(value)}: expected {_OTHERS[hint]}")
    return value
