"""The smallest scenario as fixtures; machines of every wiring are in ``machines``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from machines import MACHINES, some_fields

from thermoloom.machine.machine import Machine
from thermoloom.presentation.style import STYLE

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
"""Compiling takes JAX longer than computing does at the size of tests."""

STYLE["pdf.fonttype"] = 3
"""Most of the time of a PDF goes into its fonts; ``test_figures`` draws with those of users."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wheel", action="store_true", help="also build and install the wheel")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Signals are handled as in a fresh process in the foreground.

    A command that ends ignores them from then on, and so do a shell's jobs in the background; what
    tests start would inherit that.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for signum, handler in usual.items():
        signal.signal(signum, handler)
    yield
    for signum, handler in usual.items():
        signal.signal(signum, handler)


@pytest.fixture
def small() -> Machine:
    """Twelve visible and eight hidden units, two hundred steps."""
    return MACHINES["paper"]


@pytest.fixture
def fields(small: Machine) -> np.ndarray:
    """Fields of three patterns."""
    return some_fields(small)
