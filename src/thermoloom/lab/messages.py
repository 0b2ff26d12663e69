"""Requests of a page: JSON messages, checked against these types and their bounds."""

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
"""Whole numbers that JavaScript can represent."""
Which = Literal["given", "taught"]
"""The computer that the lab was opened with, or the one taught by this viewer."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do"):
    """A request; every answer repeats its ``number``."""

    number: Seed


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Known pixels of an image, and their mask."""

    pixels: Picture
    mask: Picture
    hold: bool = False


class Generate(Message, frozen=True, tag="generate"):
    """Generate samples of classes in turn, optionally with damage or known pixels."""

    computer: Which = "given"
    classes: Annotated[list[int], Meta(max_length=MOST_SAMPLES)] = []
    """All classes in turn if empty."""
    samples: Annotated[int, Meta(ge=1, le=MOST_SAMPLES)] = 10
    seed: Seed = 1
    known: Known | None = None
    damage: Damage = Damage()


class Teach(Message, frozen=True, tag="teach"):
    """Teach patterns to the small machine, each as a class of its own."""

    patterns: Annotated[list[Picture], Meta(min_length=1, max_length=MOST_PATTERNS)]
    hidden: Annotated[int, Meta(ge=0, le=64)] = 24
    rule: Literal["online", "batch", "delayed", "optimum"] = "online"
    period: Annotated[int, Meta(ge=1, le=500)] = 50
    rate: Annotated[float, Meta(gt=0, le=100)] = 4.0
    cycles: Annotated[int, Meta(ge=1, le=1000)] = 60
    more: bool = False
    """Continue the previous lesson instead of starting at θ = 0."""


class Inspect(Message, frozen=True, tag="inspect"):
    """Inspect a unit of the latest scene in one frame, optionally with a partner."""

    sample: Annotated[int, Meta(ge=0)]
    frame: Annotated[int, Meta(ge=0)]
    unit: Annotated[int, Meta(ge=0)]
    partner: Annotated[int, Meta(ge=0)] | None = None


class Stop(Message, frozen=True, tag="stop"):
    """End the current task."""


Request = Generate | Teach | Inspect | Stop
_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


def read(content: str | bytes) -> Request:
    """Decode a message; raises ``UserError`` for an invalid one."""
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UserError(f"message: {error}") from None


def number_of(content: str | bytes) -> int | None:
    """The number of an invalid message, if it can be read."""
    try:
        return msgspec.json.decode(content, type=_Numbered).number
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


class _Numbered(msgspec.Struct):
    number: Seed | None = None
