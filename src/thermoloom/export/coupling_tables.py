"""Couplings as a text table that a laboratory's script can read, and back.

    # thermoloom couplings 1, SHA-256 of all lines below: …
    # …                                       TOML: bits, ranges, settings of the machine
    stage,block,i,j,code,value
    1,visible_hidden,0,0,-3,-0.0123

A row is a coupling or a bias; an undirected edge has one row (i > j). i and j count the units of a
group from 0. Stage 1 is the stage next to the pattern. value = code/(2^(bits−1) − 1) · range in E₀,
where each block has a range in each stage. Biases are not quantized and have no code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError, warnings_become
from thermoloom.feasibility import require_memory, size_memory
from thermoloom.inputs import LARGEST, parse_toml, read_file
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Block, Parameters, layout
from thermoloom.machine.quantization import (
    UNQUANTIZED,
    couplings,
    largest_magnitude,
    levels,
    top_level,
)
from thermoloom.runs.files import MOST_BYTES, DamagedFileError, sha256
from thermoloom.runs.formats import from_json
from thermoloom.runs.manifest import package_version
from thermoloom.settings import Settings, toml_of

TITLE = b"# thermoloom couplings 1, SHA-256 of all lines below: "
COLUMNS = "stage,block,i,j,code,value"
SECTIONS = ("machine", "training", "imperfections", "solver")

Shape = tuple[int, ...] | None


def is_table(path: Path) -> bool:
    """Whether a file begins like a table of couplings."""
    try:
        return read_file(path, MOST_BYTES, first=len(TITLE)) == TITLE
    except UserError:
        return False


# --- writing --------------------------------------------------------------------------------------


def encode_couplings(settings: Settings, theta: Parameters, bits: int, shape: Shape) -> bytes:
    """θ in b bits, as ``quantization.quantized`` stores it; 32 bits: float32, without codes."""
    theta.check()
    ranges: dict[str, list[float]] = {}
    rows: list[str] = []
    for stage in range(theta.machine.stages):
        for block in theta.layout.blocks:
            values, span = block.independent(theta.vector[stage]), None
            if bits != UNQUANTIZED and not block.is_bias:
                span = largest_magnitude(values)
                ranges.setdefault(block.name, []).append(span)
            rows += _rows(stage, block, values, bits, span)
    head: dict[str, dict[str, Any]] = {
        "couplings": {
            "thermoloom": package_version(),
            "bits": bits,
            "biases": "float32, without range and code",
            "image": None if shape is None else list(shape),
            "style_weights": None if theta.style_weights is None else theta.style_weights.tolist(),
        },
        "ranges": ranges,
        "patterns": {"content": settings.patterns.content},
        **{name: values for name, values in settings.as_dict().items() if name in SECTIONS},
    }
    comment = [f"# {line}".rstrip() for line in _lists_on_one_line(toml_of(head)).splitlines()]
    body = "\n".join([*comment, COLUMNS, *rows, ""]).encode()
    return TITLE + sha256(body).encode() + b"\n" + body


def _lists_on_one_line(toml: str) -> str:
    """TOML with every list on one line."""
    lists = re.compile(r"(?<== )\[\n.*?\n\]", re.DOTALL)
    return lists.sub(lambda match: re.sub(r"\s*\n\s*", " ", match[0]), toml)


def _rows(
    stage: int, block: Block, values: NDArray[Any], bits: int, span: float | None
) -> Iterator[str]:
    """The rows of a block in one stage; without ``span`` they have no codes."""
    codes = np.full(len(values), "")
    if span is None:
        texts = values.astype(np.float32).astype(str)
    else:
        levelled, place = np.unique(levels(values, bits, span), return_inverse=True)
        texts = couplings(levelled, bits, span).astype(str)[place]
        codes = levelled.astype(str)[place]
    for i, j, code, text in zip(*block.places, codes, texts, strict=True):
        yield f"{stage + 1},{block.name},{i},{j},{code},{text}"


# --- reading --------------------------------------------------------------------------------------


def decode_couplings(data: bytes, where: str) -> tuple[Settings, Parameters, Shape]:
    """Settings, θ and shape of the image that ``encode_couplings`` wrote.

    A changed byte is refused, and so is a table that contradicts itself.
    """
    title, _, body = data.partition(b"\n")
    if title != TITLE + sha256(body).encode():
        raise DamagedFileError(f"{where}: does not match its SHA-256; export it again")
    comment, _, rows = body.partition(f"\n{COLUMNS}\n".encode())
    try:
        head = parse_toml(re.sub("^# ?", "", comment.decode(), flags=re.MULTILINE), where)
        about = from_json(head.pop("couplings", {}), _About)
        ranges = from_json(head.pop("ranges", {}), dict[str, list[NotNegative]])
        settings = Settings.from_dict(head)
        machine = settings.machine
        require_memory(size_memory(machine))
        _check_ranges(machine, about.bits, ranges)
        if about.image is not None and math.prod(about.image) != machine.visible:
            raise ValueError(f"image = {about.image}: the machine has {machine.visible} pixels")
        theta, reader = Parameters.zeros(machine), _RowReader(rows)
        for stage in range(machine.stages):
            for block in layout(machine).blocks:
                span = ranges[block.name][stage] if block.name in ranges else None
                _fill(block, theta.vector[stage], reader.read(stage, block), about.bits, span)
        reader.end()
        weights = None if about.style_weights is None else np.array(about.style_weights, float)
        theta = Parameters(machine, theta.vector, weights)
        theta.check()
    except (ValueError, DeprecationWarning) as error:
        reason = str(error).removeprefix(f"{where}: ")
        raise UserError(f"{where}: not a complete table of couplings ({reason})") from None
    return settings, theta, about.image


NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class _About(msgspec.Struct):
    """Section ``couplings`` of the comment."""

    bits: int
    image: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] | None = None
    style_weights: list[list[float]] | None = None


def _check_ranges(machine: Machine, bits: int, ranges: dict[str, list[float]]) -> None:
    """Refuse a number of bits that no table has, and ranges of other blocks or stages."""
    quantized = layout(machine).couplings if bits != UNQUANTIZED and top_level(bits) else ()
    expected = {block.name: machine.stages for block in quantized}
    if {name: len(spans) for name, spans in ranges.items()} != expected:
        raise ValueError("its ranges are not those of the machine")
    if not all(span <= LARGEST for spans in ranges.values() for span in spans):
        raise ValueError("a range is too large for float32")


class _RowReader:
    """Reads the rows of a table block by block, in the order in which they were written."""

    def __init__(self, rows: bytes) -> None:
        if not rows.endswith(b"\n"):
            raise ValueError("its last line is incomplete")
        self.rows, self.position = b"\n" + rows[:-1], 0

    def read(self, stage: int, block: Block) -> NDArray[np.float64]:
        """i, j, code, value of the block's rows, (4, edges), parsed by NumPy in one call."""
        first = b"\n%d,%s," % (stage + 1, block.name.encode())
        begin, last = self.position, self.rows.rfind(first)
        if last < begin:
            return np.empty((4, 0))
        end = self.rows.find(b"\n", last + 1)
        self.position = len(self.rows) if end < 0 else end
        numbers = self.rows[begin : self.position].replace(first, b",").replace(b",,", b",nan,")
        # older versions of NumPy only warn about text that is not a number, and stop there
        with warnings_become("error", DeprecationWarning):
            return np.fromstring(numbers[1:].decode(), sep=",").reshape(-1, 4).T

    def end(self) -> None:
        """Refuse rows after the last block."""
        if self.position != len(self.rows.rstrip(b"\n")):
            raise ValueError("rows follow the last block")


def _fill(
    block: Block, vector: NDArray[Any], rows: NDArray[np.float64], bits: int, span: float | None
) -> None:
    """Write a block's rows into θ, both entries of an undirected edge."""
    i, j = block.places
    if not (np.array_equal(rows[0], i) and np.array_equal(rows[1], j)):
        raise ValueError(f"rows of {block.name} are not those of the machine")
    with np.errstate(over="ignore"):  # too large for float32: not finite, and refused as such
        values = rows[3].astype(np.float32)
    if span is None and not np.isnan(rows[2]).all():
        raise ValueError(f"{block.name} has codes but no range")
    if span is not None:
        codes = rows[2]
        if not (np.abs(codes) <= top_level(bits)).all() or (codes % 1).any():
            raise ValueError(f"{block.name} has a code that does not fit {bits} bits")
        exact = couplings(codes.astype(np.int32), bits, span)
        if not np.array_equal(exact, values):
            raise ValueError(f"{block.name} has a value that does not match its code")
    block.set_independent(vector, values)
