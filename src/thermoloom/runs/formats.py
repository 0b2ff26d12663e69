"""Lossless formats: arrays, tables and plain values as bytes and text, and back.

    arrays   safetensors, with the SHA-256 of every array and of the metadata in the header
    tables   CSV, floats as the shortest text that reads back bit by bit
    values   JSON, non-finite numbers as null

This module does not know run directories.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from thermoloom.runs.files import sha256

AnyArray = NDArray[Any]
Table = dict[str, AnyArray]
T = TypeVar("T")

_HEADER_KEY = "thermoloom"  # one key only: safetensors keeps no order among several


# --- arrays ---------------------------------------------------------------------------------------


def array_sha256(array: AnyArray) -> str:
    """SHA-256 of ``dtype shape`` and of the little-endian bytes in C order."""
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape}".encode())
    digest.update(_plain(array).tobytes())
    return digest.hexdigest()


def _plain(array: AnyArray) -> AnyArray:
    """The array in C order and little endian, because safetensors writes memory unchanged."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def encode_arrays(arrays: Mapping[str, AnyArray], metadata: Mapping[str, Any]) -> bytes:
    """A safetensors file that carries the SHA-256 of every array and of its metadata."""
    plain = {name: _plain(np.asarray(array)) for name, array in arrays.items()}
    header = {
        "metadata": jsonable(metadata),
        "sha256": [[name, array_sha256(array)] for name, array in plain.items()],  # in order
    }
    header["content"] = sha256(canonical(header).encode())
    return safetensors_numpy.save(plain, metadata={_HEADER_KEY: canonical(header)})


def decode_arrays(data: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Arrays and metadata of ``encode_arrays``; ValueError names arrays that do not match."""
    arrays, header = _unpack(data)
    recorded = dict(header.sha256)
    damaged = sorted(wrong_arrays(arrays, recorded))
    if damaged:
        raise ValueError(f"array {', '.join(damaged)} does not match its checksum")
    return {name: arrays[name] for name in recorded}, header.metadata


def array_of(arrays: Mapping[str, AnyArray], name: str, dtype: str, *shape: int | None) -> AnyArray:
    """An array of a file; ValueError unless it has this dtype and shape (None: any length)."""
    if name not in arrays:
        raise ValueError(f"{name} is missing")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype.name != dtype or not fits:
        expected = " × ".join("n" if length is None else str(length) for length in shape)
        raise ValueError(
            f"{name} is {array.dtype} {array.shape}, expected {dtype} ({expected or 'a number'})"
        )
    return array


def wrong_arrays(arrays: Mapping[str, AnyArray], recorded: Mapping[str, str]) -> set[str]:
    """Names that are missing, unexpected or changed."""
    same = {n for n in recorded if n in arrays and array_sha256(arrays[n]) == recorded[n]}
    return (set(arrays) | set(recorded)) - same


def unchecked_arrays(data: bytes) -> dict[str, AnyArray]:
    """Arrays of a file that may be damaged, as far as its header can be read, or ValueError."""
    try:
        return safetensors_numpy.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a complete safetensors file ({error})") from None


class _Header(msgspec.Struct):
    metadata: dict[str, Any]
    sha256: list[tuple[str, str]]
    content: str
    """SHA-256 of the others."""


def _unpack(data: bytes) -> tuple[dict[str, AnyArray], _Header]:
    """Arrays, unchecked, and the header, whose own checksum is checked."""
    arrays = unchecked_arrays(data)
    try:
        length = int.from_bytes(data[:8], "little")
        values = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_HEADER_KEY])
        header = from_json(values, _Header)
        del values["content"]
        intact = header.content == sha256(canonical(values).encode())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a complete thermoloom array file ({error})") from None
    if not intact:
        raise ValueError("header does not match its checksum")
    return arrays, header


# --- tables ---------------------------------------------------------------------------------------


def encode_table(columns: Mapping[str, Sequence[Any] | AnyArray]) -> bytes:
    """CSV with a header; floats as ``repr``: the shortest text that reads back bit by bit."""
    plain = {name: column_of(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in plain.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table columns differ in length: {lengths}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plain)
    writer.writerows(
        [repr(v) if isinstance(v, float) else v for v in row]
        for row in zip(*(values.tolist() for values in plain.values()), strict=True)
    )
    return text.getvalue().encode()


def column_of(name: str, values: Sequence[Any] | AnyArray) -> AnyArray:
    """One-dimensional array of numbers, truth values or texts; None among numbers is NaN."""
    if not isinstance(values, np.ndarray) and any(v is None for v in values):
        values = [math.nan if v is None else v for v in values]
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "biufU":
        raise ValueError(f"table column {name}: {column.dtype} {column.shape} is not a column")
    return column


def decode_table(data: bytes, kinds: Mapping[str, str] | None = None) -> dict[str, AnyArray]:
    """Columns by name, or ValueError; a dtype that is not in ``kinds`` is inferred."""
    try:
        header, *rows = csv.reader(io.StringIO(data.decode(), newline=""))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if len(set(header)) < len(header):
        raise ValueError("two columns have the same name")
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {
        name: _parse(list(texts), (kinds or {}).get(name))
        for name, texts in zip(header, columns, strict=True)
    }


def only(table: Table, **wanted: Any) -> Table:
    """The rows of a table whose columns have these values."""
    keep = np.ones(len(next(iter(table.values()))), bool)
    for name, value in wanted.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


def rows_of(table: Mapping[str, AnyArray]) -> list[dict[str, Any]]:
    """A table row by row, in plain types; None for NaN."""
    columns = [
        [None if value != value else value for value in column.tolist()]
        for column in table.values()
    ]
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def _parse(texts: list[str], kind: str | None) -> AnyArray:
    if kind == "bool" or (kind is None and texts and set(texts) <= {"True", "False"}):
        if not set(texts) <= {"True", "False"}:
            raise ValueError("a truth value is neither True nor False")
        return np.array([text == "True" for text in texts], dtype=bool)
    if kind is not None:
        try:
            return np.array(texts, dtype=np.str_) if kind == "str" else np.array(texts).astype(kind)
        except (TypeError, OverflowError) as error:  # no such dtype
            raise ValueError(str(error)) from None
    for dtype in (np.int64, np.float64):
        try:
            return np.array(texts, dtype=np.str_).astype(dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(texts, dtype=np.str_)


# --- plain values ---------------------------------------------------------------------------------


def jsonable(value: Any) -> Any:
    """``value`` in plain JSON types: NumPy numbers unwrapped, non-finite numbers as null."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_json(values: Any, schema: type[T]) -> T:
    """Plain values as an object of this schema, or ValueError."""
    try:
        return msgspec.convert(values, schema)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no white space, so that equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
