"""What a page may ask for: JSON messages, checked against these types and their bounds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from thermoloom.errors import UserError
from thermoloom.lab.damage import Damage

MOST_SAMPLES = 24
MOST_PIXELS = 1 << 14
MOST_PATTERNS = 8
MESSAGE_BYTES = 1 << 18
"""Longer messages end the connection."""

Picture = Annotated[bytes, Meta(max_length=MOST_PIXELS)]
"""One byte for each pixel, in base64."""
Seed = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Whole numbers that JavaScript holds."""
Which = Literal["given", "taught"]
"""The computer that the lab was opened with, or the one that this viewer has taught."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do"):
    """``number`` comes back with every answer."""

    number: Seed


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pixels that are given, and where."""

    pixels: Picture
    mask: Picture
    hold: bool = False


class Generate(Message, frozen=True, tag="generate"):
    """Samples of classes in turn, perhaps of a damaged machine, perhaps with known pixels."""

    computer: Which = "given"
    classes: Annotated[list[int], Meta(max_length=MOST_SAMPLES)] = []
    """All in turn if empty."""
    samples: Annotated[int, Meta(ge=1, le=MOST_SAMPLES)] = 10
    seed: Seed = 1
    known: Known | None = None
    damage: Damage = Damage()


class Teach(Message, frozen=True, tag="teach"):
    """Patterns to learn, each a class of its own, by the small machine."""

    patterns: Annotated[list[Picture], Meta(min_length=1, max_length=MOST_PATTERNS)]
    hidden: Annotated[int, Meta(ge=0, le=64)] = 24
    rule: Literal["online", "batch", "delayed", "optimum"] = "online"
    period: Annotated[int, Meta(ge=1, le=500)] = 50
    rate: Annotated[float, Meta(gt=0, le=100)] = 4.0
    cycles: Annotated[int, Meta(ge=1, le=1000)] = 60
    more: bool = False
    """Go on with what was learned before, instead of beginning at θ = 0."""


class Inspect(Message, frozen=True, tag="inspect"):
    """A unit of what was generated last, at one of its frames, and perhaps a partner."""

    sample: Annotated[int, Meta(ge=0)]
    frame: Annotated[int, Meta(ge=0)]
    unit: Annotated[int, Meta(ge=0)]
    partner: Annotated[int, Meta(ge=0)] | None = None


class Stop(Message, frozen=True, tag="stop"):
    """End the work under way."""


Request = Generate | Teach | Inspect | Stop
_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


def read(content: str | bytes) -> Request:
    """A message, or a ``UserError`` that says what is wrong with it."""
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UserError(f"message: {error}") from None


def number_of(content: str | bytes) -> int | None:
    """The number of a message that could not be read otherwise."""
    try:
        return msgspec.json.decode(content, type=_Numbered).number
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


class _Numbered(msgspec.Struct):
    number: Seed | None = None
