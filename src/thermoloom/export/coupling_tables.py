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

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import parse_toml
from thermoloom.machine.parameters import Block, Parameters, layout
from thermoloom.machine.quantization import UNQUANTIZED, couplings, largest_magnitude, levels
from thermoloom.runs.files import DamagedFileError, sha256
from thermoloom.runs.manifest import package_version
from thermoloom.settings import Settings, toml_of

TITLE = b"# thermoloom couplings 1, SHA-256 of all lines below: "
COLUMNS = "stage,block,i,j,code,value"
SECTIONS = ("machine", "training", "imperfections", "solver")

Shape = tuple[int, ...] | None


def is_table(path: Path) -> bool:
    """Whether a file begins like a table of couplings."""
    try:
        with open(path, "rb") as file:
            return file.read(len(TITLE)) == TITLE
    except OSError:
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

    A changed byte is refused.
    """
    title, _, body = data.partition(b"\n")
    if title != TITLE + sha256(body).encode():
        raise DamagedFileError(f"{where}: does not match its SHA-256; export it again")
    comment, _, rows = body.partition(f"\n{COLUMNS}\n".encode())
    head = parse_toml(re.sub("^# ?", "", comment.decode(), flags=re.MULTILINE), where)
    try:
        about, ranges = head.pop("couplings"), head.pop("ranges")
        settings, bits = Settings.from_dict(head), about["bits"]
        theta, reader = Parameters.zeros(settings.machine), _RowReader(rows)
        for stage in range(settings.machine.stages):
            for block in layout(settings.machine).blocks:
                span = ranges[block.name][stage] if block.name in ranges else None
                _fill(block, theta.vector[stage], reader.read(stage, block), bits, span)
    except UserError:
        raise
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{where}: no complete table of couplings ({error})") from None
    weights = about.get("style_weights")
    theta = Parameters(
        settings.machine, theta.vector, None if weights is None else np.array(weights)
    )
    theta.check()
    shape = about.get("image")
    return settings, theta, None if shape is None else tuple(shape)


class _RowReader:
    """Reads the rows of a table block by block, in the order in which they were written."""

    def __init__(self, rows: bytes) -> None:
        self.rows, self.position = b"\n" + rows.rstrip(b"\n"), 0

    def read(self, stage: int, block: Block) -> NDArray[np.float64]:
        """i, j, code, value of the block's rows, (4, edges), parsed by NumPy in one call."""
        first = b"\n%d,%s," % (stage + 1, block.name.encode())
        begin, last = self.position, self.rows.rfind(first)
        if last < 0:
            return np.empty((4, 0))
        end = self.rows.find(b"\n", last + 1)
        self.position = len(self.rows) if end < 0 else end
        numbers = self.rows[begin : self.position].replace(first, b",").replace(b",,", b",nan,")
        return np.fromstring(numbers[1:].decode(), sep=",").reshape(-1, 4).T


def _fill(
    block: Block, vector: NDArray[Any], rows: NDArray[np.float64], bits: int, span: float | None
) -> None:
    """Write a block's rows into θ, both entries of an undirected edge."""
    i, j = block.places
    if not (np.array_equal(rows[0], i) and np.array_equal(rows[1], j)):
        raise ValueError(f"rows of {block.name} are not those of the machine")
    values = rows[3].astype(np.float32)
    if span is not None:
        values = couplings(rows[2].astype(np.int32), bits, span)
    block.set_independent(vector, values)
