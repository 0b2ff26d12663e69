"""Numbers of the paper's computer that must not drift: heats, losses and norms, once written down.

Made by ``python tests/test_golden.py`` in a version that is trusted. Six cycles and eight samples
are short, but everything that makes the headline number is in them: patterns, projection,
noising paths and their ramp, both rules, random streams, generation and heat.

Sums inside matrix products are taken in another order by other processors and BLAS libraries, so
parameters agree to some 1e-6 and no better. Such noise on θ moves these mean heats by 1e-8, kT
larger by 0.1 % moves them by 5e-4 and 2e-3, a ramp longer by 1 % by 4e-3 and 5e-3.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import trained

from thermoloom.generation import generate
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs.manifest import package_version
from thermoloom.settings import Settings

FILE = Path(__file__).with_name("golden.json")
RULES = ("batch", "online")
TOLERANCE = {"heat": 1e-4, "loss": 1e-5, "norm": 1e-5}
"""Relative, by the first word of a number's name."""


def measured(rule: str) -> dict[str, float]:
    """Six cycles of seed 101 in the paper's settings, eight samples."""
    training = {"rule": rule, "seed": 101, "cycles": 6, "validation_every": 3}
    settings = Settings().updated({"training": training})
    assert settings.generation_seed == 90101
    machine = settings.machine
    fields = unit_fields(load_patterns(settings.patterns, machine), machine)
    done = trained(settings, fields)
    heats = generate(done.parameters, 8, settings.generation_seed).heat
    losses = dict(zip((0, 3, 6), done.curve_columns()["reduced_loss"].tolist(), strict=True))
    return {
        "heat mean": float(heats.mean()),
        "heat standard deviation": float(heats.std(ddof=1)),
        **{f"loss at cycle {cycle}": loss for cycle, loss in losses.items()},
        **{
            f"norm of {name}": float(np.linalg.norm(array.astype(np.float64)))
            for name, array in done.parameters.arrays.items()
        },
    }


@pytest.mark.parametrize("rule", RULES)
def test_the_headline_number_has_not_drifted(rule: str) -> None:
    golden: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    found = measured(rule)
    assert found.keys() == golden[rule].keys()
    for name, value in golden[rule].items():
        tolerance = TOLERANCE[name.partition(" ")[0]]
        assert found[name] == pytest.approx(value, rel=tolerance, abs=0), name


if __name__ == "__main__":
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    made = {"version": package_version(), "commit": commit}
    table = made | {rule: measured(rule) for rule in RULES}
    FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
