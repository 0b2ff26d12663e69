"""A trained θ under other conditions, with other couplings, on a device; own protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.machine.device import felt
from thermoloom.machine.quantization import quantized
from thermoloom.machine.wires import wires

SMALL: dict[str, Any] = {"visible": 49, "hidden": 8, "duration": 0.05}


@pytest.fixture(scope="module")
def computer() -> tl.Computer:
    return tl.Machine(**SMALL, labels=2).solve(tl.digits(0, 1), resize=True)


def test_the_same_theta_runs_at_another_temperature_and_time(computer: tl.Computer) -> None:
    hot = computer.at(kT=0.4, duration=0.1)
    assert hot.machine.steps == 100
    np.testing.assert_array_equal(hot["visible_hidden"], computer["visible_hidden"])
    assert hot.generate(20).states.std() > 1.3 * computer.generate(20).states.std()
    same = computer.at()
    np.testing.assert_array_equal(same.generate(3).heat, computer.generate(3).heat)


def test_conditions_that_training_has_settled_are_refused(computer: tl.Computer) -> None:
    with pytest.raises(tl.UserError, match="hidden: fixed by training; conditions are kT"):
        computer.at(hidden=3)
    with pytest.raises(tl.UserError, match=r"did you mean machine\.kT"):
        computer.at(kTT=3)


def test_couplings_by_name(computer: tl.Computer) -> None:
    off = computer.with_couplings({name: 0 * computer[name] for name in computer.parameters.arrays})
    assert not off.parameters.vector.any()
    only = computer.with_couplings({"hidden_bias": np.ones(8)})
    assert (only["hidden_bias"] == 1).all()
    assert (only["visible_hidden"] == computer["visible_hidden"]).all()
    for wrong, message in (
        ({"nothing": 1}, "no such block"),
        ({"hidden_hidden": np.ones((8, 8))}, "nonzero diagonal"),
        ({"hidden_bias": np.ones(7)}, "has shape"),
        ({"hidden_bias": ["a"] * 8}, "expected real numbers"),
        ({"hidden_bias": np.full(8, np.nan)}, "hidden_bias: has values that are not finite"),
        ({"hidden_bias": np.full(8, 1e300)}, "hidden_bias: has values that are not finite"),
    ):
        with pytest.raises(tl.UserError, match=message):
            computer.with_couplings(wrong)


def test_a_device_writes_couplings_in_few_bits(computer: tl.Computer) -> None:
    chip = computer.at(device=tl.Device(bits=4))
    assert repr(chip).endswith("solved, on Device(bits=4))")
    written = felt(chip.parameters).both
    np.testing.assert_array_equal(written.vector, quantized(computer.parameters, 4).vector)
    assert len(np.unique(written["hidden_hidden"])) <= 15
    with pytest.raises(tl.UserError, match=r"device\.bits = 4"):
        chip.train(cycles=1)


def test_stochastic_rounding_is_right_on_average(computer: tl.Computer) -> None:
    devices = [tl.Device(bits=3, rounding="stochastic", seed=seed) for seed in range(200)]
    written = [felt(computer.at(device=each).parameters).both["visible_hidden"] for each in devices]
    level = np.abs(computer["visible_hidden"]).max() / 3
    error = np.mean(written, axis=0) - computer["visible_hidden"]
    assert np.abs(error).max() < 5 * level / 2 / np.sqrt(200)
    assert np.abs(np.mean(error)) < 0.01 * level
    assert (written[0] != written[1]).any()


def test_the_command_line_knows_conditions(tmp_path: Path, computer: tl.Computer) -> None:
    file = tmp_path / "c.safetensors"
    computer.save(file)

    def generate(*options: str) -> Any:
        done = CliRunner().invoke(app, ["generate", str(file), "--samples=3", "--json", *options])
        return json.loads(done.stdout) if done.exit_code == 0 else done.exception

    hot, plain = generate("--set=machine.kT=0.4", "--set=device.dead=0.1"), generate()
    assert hot["archive"] != plain["archive"]
    expected = computer.at(kT=0.4, device=tl.Device(dead=0.1)).generate(3).heat.mean()
    assert hot["mean_heat"] == pytest.approx(expected)
    assert hot["mean_heat_kT"] == pytest.approx(expected / 0.4)
    assert "fixed by training" in str(generate("--set=machine.hidden=3"))
    assert "fixed by training" in str(generate("--set=training.cycles=3"))


# --- protocols ------------------------------------------------------------------------------------


def linear(time: Any) -> Any:
    return 2 * np.maximum(0.0, 1 - time / 0.75)


class Slow:
    preparation = 1.5

    def amplitude(self, time: Any) -> Any:
        return 1.5 * np.exp(-5 * time)


def test_a_protocol_that_equals_the_ramp_gives_the_same_numbers() -> None:
    built_in, own = tl.Machine(**SMALL), tl.Machine(**SMALL, protocol=linear)
    as_array = tl.Machine(**SMALL, protocol=linear(np.arange(50) / 50))
    assert own == as_array
    assert len(own.protocol) == 50
    trained = [m.train(tl.digits(0, 1), cycles=2, resize=True) for m in (built_in, own)]
    np.testing.assert_array_equal(trained[0]["visible_hidden"], trained[1]["visible_hidden"])
    solved = [m.solve(tl.digits(0, 1), resize=True) for m in (built_in, own)]
    np.testing.assert_allclose(solved[0]["visible_hidden"], solved[1]["visible_hidden"], atol=1e-6)


def test_theory_follows_a_protocol_with_its_preparation() -> None:
    """The solved optimum has the least loss on paths of the same protocol."""
    machine = tl.Machine(visible=9, hidden=0, wiring=["visible-visible"], duration=0.5, dt=0.01,
                         biases=["visible"], protocol=Slow())  # fmt: skip
    assert set(machine.preparation) == {1.5}
    solved = machine.solve(tl.digits(0, 1), resize=True)
    trained = machine.train(tl.digits(0, 1), cycles=400, resize=True, learning_rate_decay=20)
    assert 0 < trained.distance_from_optimum() < 0.1
    assert abs(solved.distance_from_optimum()) < 1e-6
    again = solved.at(duration=1.0)
    assert len(again.machine.protocol) == len(again.machine.preparation) == 100


def test_a_protocol_needs_no_source(tmp_path: Path) -> None:
    machine = tl.Machine(**SMALL, protocol=Slow())
    machine.solve(tl.digits(0, 1), resize=True).save(tmp_path / "c.safetensors")
    assert tl.load(tmp_path / "c.safetensors").machine == machine


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ([1, 2, 3], "3 amplitudes; this machine has 50 steps"),
        ("fast", "a function of t/t_f"),
        (np.ones((2, 2)), "shape"),
        (lambda time: 1 / 0, "fails on an array of times"),
        (lambda time: time * np.nan, "must be finite"),
    ],
)
def test_a_wrong_protocol_is_refused(protocol: Any, message: str) -> None:
    with pytest.raises(tl.UserError, match=message):
        tl.Machine(**SMALL, protocol=protocol)


def test_a_protocol_excludes_a_ramp_and_an_empty_preparation() -> None:
    with pytest.raises(tl.UserError, match="has no effect with"):
        tl.Machine(**SMALL, protocol=linear, ramp_end=0.5)
    with pytest.raises(tl.UserError, match="must not end at 0"):
        tl.Machine(**SMALL, preparation=lambda time: 1 - (time > 0.5))


def test_eight_neighbours() -> None:
    machine = tl.Machine(visible=25, hidden=0, wiring=["visible-visible"], topology="moore",
                         radius=1)  # fmt: skip
    degrees = np.bincount(wires(machine).ravel()).reshape(5, 5)
    assert (degrees[1:-1, 1:-1] == 8).all()
    assert degrees[0, 0] == 3
    computer = machine.solve(tl.digits(0, 1), resize=True)
    assert computer["visible_visible"].shape == (1, len(wires(machine)))
