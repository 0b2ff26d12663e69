"""The version of the numbers: part of the identity of every run."""

from __future__ import annotations

import os

NUMERICS = 6
"""Raise it by one in every change that alters numbers: a kernel, a random stream, a measure, the
default of a setting (identities leave defaults out). Runs of another number can be looked at, but
are neither continued nor sampled nor taken for results of this version."""


ENGINE, DEFAULT_ENGINE = "THERMOLOOM_ENGINE", "compiled"
"""Environment variable that names the engine, and the engine that is used without it."""


def engine_name() -> str:
    """Engine, library, device and precision in use; engines agree to round-off, not to the bit."""
    return os.environ.get(ENGINE, "").strip() or DEFAULT_ENGINE
