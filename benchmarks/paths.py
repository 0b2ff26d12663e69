"""Noising paths on one thread: the cost of drawing a normal, taking its step and storing it."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import (
    Contestant,
    Options,
    Result,
    Row,
    clocked,
    default_fields,
    in_turns,
    limited,
)
from thermoloom.engines import engine
from thermoloom.engines.compiled.compiling import jit
from thermoloom.engines.compiled.noising import noising_path
from thermoloom.engines.compiled.streams import philox
from thermoloom.machine.machine import Machine
from thermoloom.settings import Settings

TRIES = 10
"""Tries per round; each takes only some milliseconds."""


@jit
def _words(key, units, blocks, out):  # type: ignore[no-untyped-def]
    """The random words of ``blocks`` · 4 steps alone, folded into ``out`` (units,)."""
    for block in range(blocks):
        for i in range(units):
            a, b, c, d = philox(key, np.uint64(i), np.uint64(block), np.uint64(0), np.uint64(0))
            out[i] ^= (a ^ b) ^ (c ^ d)


def random_words(units: int, steps: int) -> Contestant:
    """Philox4x32-10 without turning its words into normals, timed per word."""
    out = np.zeros(units, np.uint64)
    return clocked(lambda: _words(np.uint64(1), units, steps // 4, out), units * steps, TRIES)


def fused_path(machine: Machine, field: np.ndarray) -> Contestant:
    """Preparation and noising path on one thread, timed per normal."""
    out = np.empty((machine.steps + 1, machine.units), np.float32)
    normals = 2 * machine.steps * machine.units
    return limited(
        1, clocked(lambda: noising_path(machine, field, 101, 0, out=out), normals, TRIES)
    )


def numpy_normals(units: int, steps: int) -> Contestant:
    """NumPy's ziggurat in float32 into allocated memory, timed per normal."""
    rng = np.random.default_rng(101)
    out = np.empty((steps, units), np.float32)
    return clocked(lambda: rng.standard_normal(dtype=np.float32, out=out), out.size, TRIES)


def run(options: Options) -> Result:
    engine().warm_up()
    settings = Settings()
    machine = settings.machine
    options.say("noising paths and normals on one thread, alternating")
    best = in_turns(
        {
            "ours": fused_path(machine, default_fields(settings)[0]),
            "numpy": numpy_normals(machine.units, machine.steps),
            "words": random_words(machine.units, machine.steps),
        },
        options.rounds,
    )
    ours, theirs, words = best["ours"], best["numpy"], best["words"]
    return Result(
        [
            Row(
                "noising path, a normal, fused, 1 thread",
                ours * 1e9,
                "ns",
                limit=words * 1e9,
                bar=1.5,
                note="limit: the random words (Philox4x32-10) alone",
            ),
            Row(
                "  × NumPy standard_normal(float32)",
                theirs / ours,
                "×",
                "more",
                limit=theirs / words,
                bar=3.0,
                note=f"NumPy: {theirs * 1e9:.1f} ns for the normal alone, without a step",
            ),
        ]
    )
