"""Clamps and masks: the same image in another form is the same clamp, and a wrong one is refused.

In every trial a small computer completes an image: grey, coloured, or a row of a table. An image in
another form (scaled, masked, a list, float16) must give exactly the result of the plain one.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from soak.cases import Tally

SAMPLES = 2
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A computer, an image that it completes, the known pixels, and the result."""

    computer: Any
    image: Any
    known: Any
    expected: Any

    def result(self, arguments: Arguments) -> Any:
        return self.computer.generate(SAMPLES, **arguments).states

    @property
    def scales_itself(self) -> bool:
        """Whether an image with a different contrast is the same image."""
        return bool(self.computer.patterns.scale.kind == "sample")


def make() -> dict[str, Subject]:
    import thermoloom as tl

    rng = np.random.default_rng(3)
    subjects = {}
    for name, shape, scale in (
        ("grey", (4, 6), "sample"),
        ("colour", (2, 4, 3), "sample"),
        ("table", (24,), "feature"),
    ):
        machine = tl.Machine(visible=24, hidden=2, duration=0.01, scale=scale)
        computer = machine.solve(rng.random((3, *shape)))
        image = np.round(rng.random(shape) * 64)  # float16 can represent these numbers
        known = rng.random(shape) < 0.6
        expected = computer.generate(SAMPLES, clamp=image, mask=known).states
        subjects[name] = Subject(computer, image, known, expected)
    return subjects


# --- the same clamp ----------------------------------------------------------------------------


def same(subject: Subject, rng: random.Random) -> dict[str, Arguments]:
    """Other forms of the same clamp."""
    image, known = subject.image, subject.known
    unknown = np.where(known, image, rng.choice((np.nan, np.inf, -np.inf)))
    power = 2.0 ** rng.choice((-1030, -660, -100, -3, 5, 100, 660, 1000))
    number, kind = rng.choice((1, 2, 255, -1)), rng.choice(("f2", "f4", ">f8", "i8", "u1", "g"))
    forms: dict[str, Arguments] = {
        "masked array": {"clamp": np.ma.array(image, mask=~known)},
        "list of masked arrays": {"clamp": [np.ma.array(image, mask=~known)]},
        "masked array of bytes": {"clamp": np.ma.array(image.astype(np.uint8), mask=~known)},
        "not finite where unknown": {"clamp": unknown},
        "other values where unknown": {"clamp": np.where(known, image, 1e9), "mask": known},
        "flat": {"clamp": image.ravel(), "mask": known.ravel()},
        "nested lists": {"clamp": image.tolist(), "mask": known.tolist()},
        "as often as samples": {"clamp": np.stack([image] * SAMPLES), "mask": known},
        "columns first": {"clamp": np.asfortranarray(image), "mask": np.asfortranarray(known)},
        "other strides": {"clamp": np.repeat(image, 2, axis=-1)[..., ::2], "mask": known},
        "another type": {"clamp": image.astype(kind), "mask": known},
        "numbers in the mask": {"clamp": image, "mask": known * number},
        "another contrast": {"clamp": image * power, "mask": known},
    }
    if not subject.scales_itself:
        del forms["another contrast"]
    return forms


# --- wrong ones ---------------------------------------------------------------------------------


def wrong(subject: Subject, rng: random.Random) -> dict[str, Arguments]:
    """Clamps and masks that are meaningless or contradictory."""
    image, known = subject.image, subject.known
    bad = rng.choice((np.nan, np.inf, -np.inf))
    place = rng.choice(np.argwhere(known).tolist())
    spoiled, doubtful = image.copy(), known.astype(float)
    spoiled[tuple(place)], doubtful[tuple(place)] = bad, rng.choice((np.nan, np.inf, 0.5, -2.0))
    partly = np.stack([np.where(known, image, np.nan), spoiled])
    partly[1][tuple(place)] = np.nan
    other = rng.choice(
        [shape for shape in ((24,), (3, 8), (8, 3), (2, 12), (12, 2), (6, 4), (3, 4, 2), (24, 1))
         if shape not in (image.shape, (24,), image.shape[:2])]
    )  # fmt: skip
    nonsense = rng.choice(("x", b"x", None, 1.0, {}, [], [[]], [[1], [1, 2]], image + 1j, [None],
                           image.astype(object), image.astype(str), np.zeros((0, 24))))  # fmt: skip
    return {
        "another shape": {"clamp": image.reshape(other)},
        "several of another shape": {"clamp": np.stack([image] * 2).reshape(2, *other)},
        "mask of another shape": {"clamp": image, "mask": known.reshape(other)},
        "too small": {"clamp": image.ravel()[:-1]},
        "more images than samples": {"clamp": np.stack([image] * (SAMPLES + 1)), "mask": known},
        "known but not finite": {"clamp": spoiled, "mask": known},
        "mask that is not 0 or 1": {"clamp": image, "mask": doubtful},
        "masked mask": {"clamp": image, "mask": np.ma.array(known, mask=~known)},
        "known and masked": {"clamp": np.ma.array(image, mask=known), "mask": known},
        "different unknown pixels": {"clamp": partly},
        "nothing known": {"clamp": image, "mask": np.zeros_like(known)},
        "nothing finite": {"clamp": np.full_like(image, bad)},
        "mask alone": {"mask": known},
        "no clamp": {"clamp": nonsense, "mask": known},
        "no mask": {"clamp": image, "mask": nonsense if nonsense is not None else "x"},
        "too large": {"clamp": image.astype(np.longdouble) * np.longdouble(10) ** 4000},
    } | ({} if subject.scales_itself else {"beyond float32": {"clamp": image * 1e200}})


def soak(count: int, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
    rng, subjects = random.Random(seed), make()
    for number in range(count):
        if number % 200 == 0:
            say(f"clamps and masks: {number} of {count}")
        name = rng.choice(list(subjects))
        is_same = rng.random() < 0.3
        forms = (same if is_same else wrong)(subjects[name], rng)
        form = rng.choice(list(forms))
        verdict, why = judge(subjects[name], forms[form], is_same)
        kind = "clamp in another form" if is_same else "wrong clamp or mask"
        tally.add(kind, verdict, f"{name}, {form}: {why}")


def judge(subject: Subject, arguments: Arguments, is_same: bool) -> tuple[str, str]:
    from thermoloom.errors import UserError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            states = subject.result(arguments)
    except UserError as error:
        refusal = "one line" if "\n" not in str(error) else "more lines"
        return ("silently wrong" if is_same else refusal), str(error)
    except Exception as error:
        return "traceback", repr(error)
    if not is_same:
        return "silently wrong", "was accepted"
    return ("fine" if np.array_equal(states, subject.expected) else "silently wrong"), "other bits"
