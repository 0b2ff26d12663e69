"""The smallest scenario as fixtures; machines of every wiring are in ``machines``."""

from __future__ import annotations

import numpy as np
import pytest
from machines import MACHINES, some_fields

from thermoloom.machine.definition import Machine


@pytest.fixture
def small() -> Machine:
    """Twelve visible and eight hidden units, two hundred steps."""
    return MACHINES["paper"]


@pytest.fixture
def fields(small: Machine) -> np.ndarray:
    """Fields of three patterns."""
    return some_fields(small)
