"""Settings: the paper's defaults, strict keys, one-line errors, TOML round trip."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest

from thermoloom.computers.training_runs import training_settings
from thermoloom.engine_choice import EngineSettings
from thermoloom.errors import UserError
from thermoloom.inputs import read_toml
from thermoloom.machine.machine import Machine
from thermoloom.settings import Settings, parse_assignment, settings_file


def test_defaults_are_the_papers() -> None:
    settings = Settings()
    machine = settings.machine
    assert (machine.visible, machine.hidden, machine.steps) == (784, 512, 2500)
    assert (machine.J2, machine.J4, machine.kT, machine.mobility) == (1, 1, 0.1, 1)
    assert math.isclose(settings.learning_rate, 4e-4)
    assert settings.period == 1
    assert settings.generation_seed == 90101


def test_steps_are_counted_in_integers() -> None:
    """A float ``while t < t_f`` takes 2501 steps."""
    assert Machine().steps == 2500
    assert Machine(dt=0.1, duration=0.3).steps == 3


def test_toml_round_trip() -> None:
    settings = Settings().updated(
        {
            "training": {"rule": "delayed", "period": 7, "learning_rate": 0.1},
            "patterns": {"digits": [3, 1]},
            "machine": {"kT": 0.25},
        }
    )
    assert Settings.from_dict(tomllib.loads(settings.to_toml())) == settings


def test_period_of_the_rules() -> None:
    assert Settings().updated({"training": {"rule": "batch"}}).period == 2500
    assert Settings().updated({"training": {"rule": "delayed", "period": 30}}).period == 30


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"machine": {"kT": -1.0}}, "machine.kT"),
        ({"machine": {"kT": float("nan")}}, "machine.kT"),
        ({"machine": {"J2": 0.0, "J4": 0.0}}, "machine.J2"),
        ({"machine": {"duration": 1e-5}}, "machine.duration"),
        ({"machine": {"hidden": 1.5}}, "machine.hidden"),
        ({"machine": {"hiden": 5}}, "machine.hidden"),
        ({"machin": {"kT": 5}}, "machine"),
        ({"training": {"rule": "sometimes"}}, "training.rule"),
        ({"training": {"rule": "delayed"}}, "training.period"),
        ({"training": {"rule": "delayed", "period": 5000}}, "training.period"),
        ({"training": {"period": 3}}, "training.period"),
        ({"training": {"cycles": True}}, "training.cycles"),
        ({"patterns": {"digits": [0, 10]}}, "patterns.digits"),
        ({"patterns": {"digits": [1, 1]}}, "patterns.digits"),
        ({"patterns": {"per_digit": 11}}, "patterns.per_digit"),
        ({"patterns": {"source": "images"}}, "patterns.path"),
        ({"imperfections": {"residual_correlation": 1.0}}, "residual_correlation"),
        ({"imperfections": {"bits": 8}}, "imperfections.bits"),
        ({"machine": 3}, "machine"),
    ],
)
def test_wrong_settings_are_named_in_one_line(values: dict, names: str) -> None:
    with pytest.raises(UserError, match=names.replace(".", r"\.")) as caught:
        Settings.from_dict(values)
    assert "\n" not in str(caught.value)


def test_assignments() -> None:
    assert parse_assignment("kT=0.2") == {"machine": {"kT": 0.2}}
    assert parse_assignment("training.rule=batch") == {"training": {"rule": "batch"}}
    assert parse_assignment("digits=[4, 5]") == {"patterns": {"digits": [4, 5]}}
    for text, names in [("seed=3", "ambiguous"), ("kT", "key=value"), ("kTT=1", "no such")]:
        with pytest.raises(UserError, match=names):
            parse_assignment(text)


def test_the_settings_file_says_everything_and_is_the_defaults(tmp_path: Path) -> None:
    text = settings_file()
    file = tmp_path / "all.toml"
    file.write_text(text)
    tables = read_toml(file)
    assert EngineSettings(**tables.pop("engine")) == EngineSettings()
    assert Settings.from_dict(tables) == Settings()
    for section, entries in Settings().as_dict().items():
        own = text.partition(f"[{section}]")[2].partition("\n[")[0].splitlines()
        for key in entries:
            line = next(i for i, row in enumerate(own) if row.lstrip("# ").startswith(f"{key} ="))
            assert own[line - 1].startswith("# "), f"{section}.{key} has no meaning"


def test_a_solver_is_a_section_that_may_be_absent() -> None:
    plain, solved = Settings(), Settings().updated({"solver": {}})
    assert (plain.solved, solved.solved) == (False, True)
    assert "solver" not in plain.as_dict()
    assert "solver" not in plain.to_toml()
    weighed = solved.updated({"solver": {"heat_weight": 0.2}})
    for settings in (solved, weighed):
        assert Settings.from_dict(tomllib.loads(settings.to_toml())) == settings
    assert weighed.updated({"solver": None}) == plain
    assert parse_assignment("ridge=2.0") == {"solver": {"ridge": 2.0}}


def test_the_rule_optimum_of_before_is_a_solver() -> None:
    old = {"training": {"rule": "optimum", "heat_weight": 0.1, "ridge": 2.0, "seed": 7}}
    new = {"training": {"seed": 7}, "solver": {"heat_weight": 0.1, "ridge": 2.0}}
    assert Settings.from_dict(old) == Settings.from_dict(new)
    trained = {"training": {"rule": "batch", "heat_weight": 0.0, "ridge": 0.0}}
    assert not Settings.from_dict(trained).solved


def test_the_identity_of_a_solved_computer_has_no_training() -> None:
    one = Settings().updated({"solver": {}})
    other = one.updated({"training": {"seed": 5, "cycles": 7, "rule": "batch"}})
    assert training_settings(one) == training_settings(other)
    assert training_settings(one) != training_settings(Settings())


def test_names_of_before_are_understood() -> None:
    """[physics] is [machine] now, with the projection seed; [prototypes] is [patterns]."""
    old = {"physics": {"kT": 0.25}, "prototypes": {"projection_seed": 7, "digits": [4]}}
    new = {"machine": {"kT": 0.25, "code_seed": 7}, "patterns": {"digits": [4]}}
    assert Settings.from_dict(old) == Settings.from_dict(new)
    assert parse_assignment("physics.kT=0.2") == {"machine": {"kT": 0.2}}
    assert parse_assignment("prototypes.resize=true") == {"patterns": {"resize": True}}
    assert parse_assignment("projection_seed=7") == {"machine": {"code_seed": 7}}
