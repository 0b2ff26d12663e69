"""Exports: tables that read back to the bit, netlists that ngspice runs, physical units."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import MACHINES, every_machine, random_parameters
from scipy.constants import Boltzmann
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers.computer import Computer
from thermoloom.errors import UserError
from thermoloom.export.coupling_tables import decode_couplings, encode_couplings
from thermoloom.export.netlists import Expression, netlist_text, save_netlist
from thermoloom.export.ngspice import compare_with_ngspice
from thermoloom.export.physical_units import realize
from thermoloom.machine.device import Device, build, felt
from thermoloom.machine.machine import WIRES, Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.quantization import quantized
from thermoloom.measures.heat_ledger import Ledger
from thermoloom.patterns.patterns import Patterns
from thermoloom.settings import Settings

FEMTO = {"capacitance": 1e-15, "conductance": 1e-6}


UNEVEN = Device(
    spread_J2=0.5, spread_J4=0.5, spread_mobility=0.6, spread_temperature=0.6, gain_error=0.5,
    offset=0.2, dead=0.1, stuck=0.1, stuck_at=0.8, drift=0.2, age=2,
)  # fmt: skip


def kept(theta: Parameters, device: Device = Device()) -> Computer:  # noqa: B008
    none = Patterns(np.empty((0, theta.machine.visible), np.float32), ())
    return Computer(Settings(machine=theta.machine, device=device), theta, none, {})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A computer of labels and stages, small enough for a netlist, in its file."""
    machine = tl.Machine(visible=16, hidden=8, labels=2, stages=2, duration=0.05)
    path = tmp_path_factory.mktemp("export") / "mine.safetensors"
    machine.solve(tl.digits(0, 1), resize=True).save(path)
    return path


def refused(*arguments: object) -> str:
    """What a command says that is refused: one line."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(done.exception, UserError), done.exception
    assert "\n" not in str(done.exception)
    return str(done.exception)


# --- tables ---------------------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("bits", [2, 5, 32])
def test_a_table_reads_back_to_the_quantized_parameters(machine: Machine, bits: int) -> None:
    theta = random_parameters(machine, dtype=np.float32)
    data = encode_couplings(Settings(machine=machine), theta, bits, (3, 4))
    settings, decoded, shape = decode_couplings(data, "it")
    assert settings.machine == machine
    assert shape == (3, 4)
    assert decoded.vector.dtype == np.float32
    assert decoded.same_as(quantized(theta, bits))


def test_few_wires_are_few_rows_and_few_transconductors() -> None:
    machine = Machine(visible=12, hidden=8, duration=0.2, stages=2, topology="random", degree=4)
    theta = random_parameters(machine)
    theta = theta.astype(np.float32)
    data = encode_couplings(Settings(machine=machine), theta, 24, None)
    assert decode_couplings(data, "it")[1].same_as(quantized(theta, 24))
    wires = 20 * 4 // 2
    rows = [line for line in data.decode().splitlines() if line[:2] in ("1,", "2,")]
    assert len(rows) == 2 * (wires + 8)
    transconductors = [line for line in netlist_text(theta).splitlines() if line[0] == "G"]
    assert len(transconductors) == 2 * (2 * wires + 8)


def test_a_table_is_for_any_device_and_a_netlist_for_this_one(saved: Path) -> None:
    computer, table = tl.load(saved), saved.with_name("device.csv")
    chip = computer.on(tl.Device(spread_J2=0.2, gain_error=0.3))
    chip.export(table, bits=5)
    chip.export(table.with_suffix(".cir"), bits=5, class_number=0)
    assert tl.load(table).parameters.same_as(quantized(computer.parameters, 5))
    computer.export(netlist := table.with_name("plain.cir"), bits=5, class_number=0)
    assert table.with_suffix(".cir").read_bytes() != netlist.read_bytes()


def test_a_script_of_ten_lines_reads_a_table(tmp_path: Path) -> None:
    theta = random_parameters(MACHINES["all stages"], dtype=np.float32)
    file = tmp_path / "couplings.csv"
    file.write_bytes(encode_couplings(Settings(machine=theta.machine), theta, 4, None))

    title, body = file.read_bytes().split(b"\n", 1)
    assert title.decode().split()[-1] == hashlib.sha256(body).hexdigest()
    rows = csv.DictReader(line for line in body.decode().splitlines() if line[0] != "#")
    J = np.zeros((2, 8, 8), np.float32)
    for row in rows:
        if row["block"] == "hidden_hidden":
            assert abs(int(row["code"])) <= 7
            place = int(row["stage"]) - 1, int(row["i"]), int(row["j"])
            J[place] = float(row["value"])
    assert np.array_equal(J + np.swapaxes(J, 1, 2), quantized(theta, 4)["hidden_hidden"])


def test_styles_keep_their_weights_in_a_table() -> None:
    machine = Machine(visible=4, hidden=2, labels=2, styles=3, duration=0.01)
    plain = random_parameters(machine, dtype=np.float32)
    theta = Parameters(machine, plain.vector, np.array([[0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]]))
    data = encode_couplings(Settings(machine=machine), theta, 5, None)
    _, decoded, _ = decode_couplings(data, "it")
    assert np.array_equal(decoded.style_weights, theta.style_weights)


def test_a_loaded_table_generates_and_refuses_what_needs_patterns(saved: Path) -> None:
    computer, table = tl.load(saved), saved.with_name("five.csv")
    computer.export(table, bits=5)
    found = tl.load(table)
    drawn = found.generate(6, classes=1)
    assert drawn.images.shape == (6, 4, 4)
    rounded = quantized(computer.parameters, 5)
    assert found.parameters.same_as(rounded)
    assert not found.parameters.same_as(computer.parameters)
    for impossible in (drawn.quality, found.train, lambda: found.generate(2, clamp=np.eye(4))):
        with pytest.raises(UserError, match="a table of couplings, which has no patterns"):
            impossible()


def test_every_changed_byte_is_refused(saved: Path) -> None:
    table = saved.with_name("changed.csv")
    tl.load(saved).export(table, bits=3)
    data = table.read_bytes()
    for place in (70, 200, len(data) // 2, len(data) - 2):
        table.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(UserError, match=r"changed\.csv") as error:
            tl.load(table)
        assert "\n" not in str(error.value)
    table.write_bytes(data[:-20])
    with pytest.raises(UserError, match="SHA-256"):
        tl.load(table)


def test_a_table_with_rows_of_another_machine_is_refused() -> None:
    theta = random_parameters(MACHINES["paper"], dtype=np.float32)
    data = encode_couplings(Settings(machine=theta.machine), theta, 5, None)
    title, body = data.split(b"\n", 1)
    body = body.replace(b"1,visible_hidden,3,4,", b"1,visible_hidden,3,5,")
    forged = title[:-64] + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    with pytest.raises(UserError, match="rows of visible_hidden"):
        decode_couplings(forged, "it")


# --- netlists -------------------------------------------------------------------------------------


def test_a_potential_written_once_becomes_the_same_formula_in_spice() -> None:
    potential = Machine(J2=0.7, J4=1.3).potential
    formula = potential.gradient(Expression("x")).text
    for x in (-1.1, 0.0, 0.4):
        assert eval(formula, {"x": x}) == pytest.approx(potential.gradient(x), rel=1e-14)


def test_a_netlist_has_an_element_for_every_coupling() -> None:
    machine = MACHINES["all stages"]
    theta = random_parameters(machine, dtype=np.float32)
    text = netlist_text(theta, np.array([0.0, 1.7, 0.0], np.float32), 3)
    lines = text.splitlines()
    n, units = machine.units, machine.size_of("label")
    transconductors = [line for line in lines if line.startswith("G")]
    assert len(transconductors) == machine.stages * (n * (n - 1) + n * units + n)
    assert sum("trnoise" in line for line in lines) == n
    assert "Vlabel1 label1 0 {V0*(1.7000000476837158)}" in lines


@pytest.mark.skipif(shutil.which("ngspice") is None, reason="no ngspice on this machine")
@pytest.mark.parametrize(
    ("units", "device"),
    [({}, Device()), (FEMTO, Device()), (FEMTO, UNEVEN)],
    ids=["own units", "femtofarads", "uneven device"],
)
def test_ngspice_finds_the_means_variances_heat_and_work_of_the_engine(
    units: dict[str, float], device: Device, tmp_path: Path
) -> None:
    machine = Machine(
        visible=5, hidden=3, labels=2, wiring=WIRES, biases=("visible", "hidden"),
        stages=2, windows=(0.4, 1.0), duration=0.2, dt=4e-3, mobility=1.5,
    )  # fmt: skip
    theta = random_parameters(machine, 0.8, dtype=np.float32)
    made = save_netlist(
        tmp_path / "m.cir", theta.on(build(theta.machine, device)), 32, 1, 150, 5, units
    )
    compared = compare_with_ngspice(made)
    assert len(compared.circuit.heat) == 150
    assert compared.differences.shape == (2, 8)
    assert compared.largest < 4
    for row in compared.rows:
        error = np.hypot(row["sem"], row["engine_sem"])
        assert abs(row["ngspice"] - row["engine"]) < 4 * error
        assert error < 0.12 * abs(row["engine"])  # so that a wrong sign would be seen


def test_couplings_felt_one_way_are_in_a_netlist_but_their_heat_is_not(tmp_path: Path) -> None:
    theta = random_parameters(Machine(visible=3, hidden=2, duration=0.01), dtype=np.float32)
    device = Device(non_reciprocity=0.5, dead=0.2, spread_mobility=0.4, seed=3)
    made = save_netlist(tmp_path / "m.cir", theta.on(build(theta.machine, device)), 32)
    found = np.zeros((5, 5))
    for line in made.path.read_text().splitlines():
        if line[:2] == "Gu" and "_one_" not in line:
            _, to, _, source, _, gain = line.split()
            found[int(to[1:]), int(source[1:-2])] = eval(gain.strip("{}"), {"G": 1.0})
    mobility = made.parameters.machine.step[0] / theta.machine.drift
    zero = felt(made.parameters).gradient(np.zeros(5))
    expected = np.stack([felt(made.parameters).gradient(x) - zero for x in np.eye(5)], axis=1)
    np.testing.assert_allclose(found, mobility[:, None] * expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(UserError, match="whole path"):
        compare_with_ngspice(made)


# --- units ----------------------------------------------------------------------------------------


def test_a_capacitor_at_room_temperature() -> None:
    machine = Machine(mobility=2.0)
    device = realize(machine, **FEMTO)
    kT = Boltzmann * 300
    assert device.energy == pytest.approx(10 * kT)
    assert device.voltage == pytest.approx(np.sqrt(10 * kT / 1e-15))
    assert device.conductance == pytest.approx(1e-6)
    assert device.time == pytest.approx(2e-9)  # μ C/G
    assert device.duration == pytest.approx(5e-9)
    assert device.noise_current == pytest.approx(np.sqrt(4 * kT * 1e-6))
    assert device.summary(heat=3.0)["heat_W"] == pytest.approx(30 * kT / 10e-9)


def test_the_same_device_described_in_other_words() -> None:
    machine = Machine()
    device = realize(machine, **FEMTO, temperature=77.0)
    for others in (
        {"energy": device.energy, "time_unit": device.time, "capacitance": 1e-15},
        {"voltage": device.voltage, "capacitance": 1e-15, "conductance": 1e-6},
    ):
        assert realize(machine, **others).summary() == pytest.approx(device.summary())


def test_joules_of_an_image_are_those_of_the_ledger(saved: Path) -> None:
    computer = tl.load(saved)
    ledger = computer.generate(10).ledger()
    assert isinstance(ledger, Ledger)
    device = computer.units(time_unit=1e-6, temperature=4.2)
    assert device.summary(heat=ledger.heat.mean)["heat_J"] == pytest.approx(ledger.joules(4.2))
    assert device.capacitance is None
    assert "voltage_unit_V" not in device.summary()


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ({}, "give one of them"),
        ({"conductance": 1e-6}, "give its capacitance"),
        ({"voltage": 0.1, "time_unit": 1.0}, "give its capacitance"),
        ({"temperature": 3.0, "energy": 1.0, "time_unit": 1.0}, "fixes E0"),
        ({"capacitance": 1e-15, "conductance": 1e-6, "time_unit": 1.0}, "give one of them"),
        ({"time_unit": -1.0}, "positive"),
        ({"time_unit": float("nan")}, "positive"),
    ],
)
def test_a_device_that_is_not_described_is_refused(device: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        realize(Machine(), **device)


# --- commands -------------------------------------------------------------------------------------


def test_errors_in_a_device_name_options(saved: Path) -> None:
    wrong = (
        (["units"], "--time-unit, --conductance: give one of them"),
        (["units", "--time-unit", "-1"], "--time-unit = -1.0: must be positive"),
        (["units", "--voltage", "1"], "--voltage, --conductance: belong"),
        (["units", "--energy", "1", "--temperature", "2"], "--temperature, --energy: each of them"),
    )
    for (command, *options), message in wrong:
        refused = CliRunner().invoke(app, [command, str(saved), *options])
        assert str(refused.exception).startswith(message)


def test_export_and_units_on_the_command_line(saved: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(saved), "--bits", "5", "--json"])
    assert done.exit_code == 0, done.exception
    table = json.loads(done.stdout)["file"]
    assert tl.load(table).parameters.same_as(quantized(tl.load(saved).parameters, 5))
    assert CliRunner().invoke(app, ["generate", table, "--samples", "5"]).exit_code == 0
    assert CliRunner().invoke(app, ["show", table]).exit_code == 0
    units = ["units", table, "--capacitance", "1e-15", "--conductance", "1e-6"]
    found = json.loads(CliRunner().invoke(app, [*units, "--json"]).stdout)
    assert found["images_per_s"] == pytest.approx(1e10)
    assert found["heat_J"] > 0
    lines = CliRunner().invoke(app, units).stdout
    assert "6.44 mV" in lines
    assert found["samples"] in lines


def test_wrong_exports_are_refused_in_one_line(saved: Path, tmp_path: Path) -> None:
    assert "table or spice" in refused("export", saved, "--format", "gds")
    assert "2 to 24" in refused("export", saved, "--bits", 1)
    assert "2 to 24" in refused("export", saved, "--bits", 25, "--format", "spice", "--class", 0)
    assert "must end in .csv" in refused("export", saved, "--out", tmp_path / "x.cir")
    assert "class" in refused("export", saved, "--format", "spice")
    assert "class" in refused("export", saved, "--format", "spice", "--class", 2)
    assert "use --format spice" in refused("export", saved, "--capacitance", "1e-15")
    assert not list(tmp_path.iterdir())
    large = tmp_path / "large.safetensors"
    tl.Machine(visible=25, hidden=8, duration=0.01).solve(tl.digits(0), resize=True).save(large)
    assert "at most 32 units" in refused("export", large, "--format", "spice")
    assert [file.name for file in tmp_path.iterdir()] == [large.name]
