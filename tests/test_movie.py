"""The animation: every frame is there, and the heat counted is the heat of the books."""

from __future__ import annotations

import io

import numpy as np
import pytest
from machines import MACHINES, every_machine, random_parameters
from PIL import Image

from thermoloom.generation import generate, trajectories
from thermoloom.machine.machine import Machine
from thermoloom.presentation.movie import animation


@every_machine
def test_heat_on_the_way_ends_at_the_heat_of_the_books(machine: Machine) -> None:
    theta = random_parameters(machine, dtype=np.float32)
    steps = np.linspace(0, machine.generation_steps, 7).round().astype(int).tolist()
    found = trajectories(theta, 4, 2, steps)
    whole = generate(theta, 4, 2)
    assert found.states.shape == (4, 7, machine.units)
    assert np.array_equal(found.states[:, 0], whole.initial_states)
    assert np.array_equal(found.states[:, -1], whole.final_states)
    assert np.all(found.heat[:, 0] == 0)
    np.testing.assert_allclose(found.heat[:, -1], whole.heat, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.work[:, -1], whole.work, rtol=1e-5, atol=1e-5)
    assert found.times[-1] == pytest.approx(machine.duration)


def test_frames_of_the_animation() -> None:
    theta = random_parameters(MACHINES["stages"], dtype=np.float32)
    made = trajectories(theta, 7, 2, range(0, 201, 50))
    data = animation(made.states[..., :12], (3, 4), made.heat.mean(axis=0), kT=0.1)
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == 5
        last = picture.info["duration"]
        picture.seek(4)
        assert picture.info["duration"] > last
