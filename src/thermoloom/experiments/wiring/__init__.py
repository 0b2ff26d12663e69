"""What a wire buys: quality, heat and asked class against the number and the length of wires.

Two machines, each solved exactly on every wiring, some also trained by the online rule:

    three   the paper's machine and its three digits; no class is requested
    ten     the machine of ``digits``, with one style: harmonic visible units, four stages, a label
            unit for each class, ten images of each

A grid keeps all wires up to a length; a random wiring of as many wires has no regard for length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from thermoloom.errors import UserError
from thermoloom.experiments.digits import HARMONIC, DigitsPlan
from thermoloom.experiments.plan import SECTION, VARIED, Experiment, Plan
from thermoloom.experiments.results import save_rows
from thermoloom.experiments.works import Work
from thermoloom.machine.wires import measure
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import GenerationSettings, PatternSettings, Settings

_HARMONIC = ("hidden", "labels", "stages", "wiring", "biases", "J4", "dt")
MACHINES: dict[str, dict[str, Any]] = {
    "three": {},
    "ten": {key: getattr(HARMONIC, key) for key in _HARMONIC},
}
"""What differs from the machine of the settings."""
ONLINE: dict[str, dict[str, Any]] = {
    "three": {},
    "ten": {
        "machine": {"label_amplitude": DigitsPlan().online_amplitude},
        "training": {"learning_rate": DigitsPlan().online_rate},
    },
}
"""What differs for the online rule: labels must learn faster than couplings. The optimum and its
samples do not depend on the amplitude of labels."""
PATTERNS = {"three": 3, "ten": 0}
"""Patterns that each learns, the first of ten digits taken in turn; 0: all."""
ENOUGH = 0.95
"""Part of what the complete wiring reaches that counts as all of it."""


class Point(NamedTuple):
    """A machine on a wiring, solved or trained."""

    machine: str
    wiring: str
    """complete, no hidden-hidden, grid or random"""
    value: int
    """Radius or degree; 0 where there is none."""
    rule: str
    work: Work

    @property
    def name(self) -> str:
        return f"{self.machine}, {self.wiring} {self.value or ''}".strip() + f", {self.rule}"


@dataclass(frozen=True)
class WiringPlan(Plan):
    """Which wirings are solved, which trained, and how many samples are drawn of each."""

    settings: Settings = field(
        default_factory=lambda: Settings(
            patterns=PatternSettings(digits=tuple(range(10)), per_digit=10),
            generation=GenerationSettings(samples=100),
        )
    )
    seeds: tuple[int, ...] = (101,)
    radii: tuple[int, ...] = (1, 2, 3, 5, 8, 12, 20)
    """Longest wires of the grids, in sites of the sheet."""
    degrees: tuple[int, ...] = (2, 4, 8, 24, 64, 150)
    """Wires of a unit, on average, of the random wirings."""
    online_radii: tuple[int, ...] = (3, 6)
    """Grids that are also trained by the online rule."""
    online_degrees: tuple[int, ...] = (8, 24)
    online_cycles: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("radii", "degrees", "online_radii", "online_degrees"):
            values = getattr(self, key)
            if min(values) < 1 or list(values) != sorted(set(values)):
                raise UserError(f"{SECTION}.{key} = {list(values)}: must be from 1 on, and rise")

    def model(self, machine: str, wires: dict[str, Any], rule: str) -> Settings:
        training = {"rule": rule, "seed": self.seeds[0]}
        if rule == "online":
            training["cycles"] = self.online_cycles
        values = {"machine": MACHINES[machine] | wires, "training": training}
        found = self.settings.updated(values)
        return found.updated(ONLINE[machine]) if rule == "online" else found

    def points(self) -> Iterator[Point]:
        """Everything that is measured, complete wiring first."""
        for machine in MACHINES:
            wirings: list[tuple[str, int, str, dict[str, Any]]] = [
                ("complete", 0, "optimum", {}),
                *(("grid", r, "optimum", _grid(r)) for r in self.radii),
                *(("random", d, "optimum", _random(d)) for d in self.degrees),
            ]
            if machine == "three":
                few = [w for w in self.settings.machine.wiring if w != "hidden-hidden"]
                wirings.append(("no hidden-hidden", 0, "optimum", {"wiring": few}))
            wirings += [
                ("complete", 0, "online", {}),
                *(("grid", r, "online", _grid(r)) for r in self.online_radii),
                *(("random", d, "online", _random(d)) for d in self.online_degrees),
            ]
            for wiring, value, rule, changed in wirings:
                more = {"patterns": PATTERNS[machine], "samples": self.settings.generation.samples}
                work = Work("wiring-point", self.model(machine, changed, rule), more)
                yield Point(machine, wiring, value, rule, work)


def _grid(radius: int) -> dict[str, Any]:
    return {"topology": "grid", "radius": radius}


def _random(degree: int) -> dict[str, Any]:
    return {"topology": "random", "degree": degree}


def models(plan: WiringPlan) -> list[Settings]:
    return [point.work.settings for point in plan.points()]


def tasks(plan: WiringPlan, folder: Path, workers: int) -> list[Task]:
    """A task for each machine on each wiring."""
    return [point.work.task(point.name) for point in plan.points()]


# --- tables and summary ---------------------------------------------------------------------------


def assemble(plan: WiringPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """A row for each machine on each wiring, and how few wires are enough."""
    rows, missing, seconds = [], [], {"solving or training": 0.0, "sampling": 0.0}
    for point in plan.points():
        found = point.work.found(folder)
        if found is None:
            missing.append(f"{point.name}: not measured")
            continue
        rows.append(row(point, found.results))
        seconds["solving or training"] += found.results["learning"]
        seconds["sampling"] += found.results["seconds"] - found.results["learning"]
    if not rows:
        raise UserError(f"{folder}: nothing was measured; run the same command again")
    classified = rows[0]["max_softmax"] is not None
    save_rows(run, "points", rows)
    return {
        "seeds": list(plan.seeds),
        "missing": missing,
        "classified": classified,
        "samples": plan.settings.generation.samples,
        "cycles": plan.online_cycles,
        "enough": ENOUGH,
        "measures": {m: measure_of(m, classified) for m in MACHINES},
        "rows": rows,
        "least": [
            least for w in ("grid", "random")
            if (least := fewest(rows, "three", w, measure_of("three", classified))) is not None
        ],
        "asked": asked_most(rows),
        "timing": seconds,
    }  # fmt: skip


def measure_of(machine: str, classified: bool) -> str:
    """What counts as quality: the asked class where one is asked for, else recognizability."""
    if not classified:
        return "absolute_correlation"
    return "asked" if machine == "ten" else "max_softmax"


QUALITY = ("max_softmax", "target_fraction", "polarity", "absolute_correlation")


def row(point: Point, results: dict[str, Any]) -> dict[str, Any]:
    """One machine on one wiring."""
    heat, work = results["heat"], results["work"]
    return {
        "machine": point.machine,
        "wiring": point.wiring,
        "value": point.value,
        "rule": point.rule,
        **asdict(measure(point.work.settings.machine)),
        "expected_loss": results["expected_loss"],
        "heat": heat["mean"],
        "heat_sem": heat["sem"],
        "work": work["mean"],
        "asked": results["asked"],
        "diversity": results["diversity"],
        **{key: results["quality"][key] for key in QUALITY},
    }


def fewest(
    rows: Sequence[dict[str, Any]], machine: str, wiring: str, measured: str
) -> dict[str, Any] | None:
    """The fewest wires with enough of the quality that the complete wiring reaches."""
    solved = [r for r in rows if r["machine"] == machine and r["rule"] == "optimum"]
    whole = next((r for r in solved if r["wiring"] == "complete"), None)
    if whole is None:
        return None
    good = [r for r in solved if r["wiring"] == wiring
            and r[measured] >= ENOUGH * whole[measured]]  # fmt: skip
    if not good:
        return None
    least = min(good, key=lambda r: int(r["wires"]))
    return {
        "machine": machine,
        "wiring": wiring,
        "value": least["value"],
        "wires": least["wires"],
        "length": least["length"],
        "quality": least[measured],
        "complete": whole[measured],
        "percent_wires": 100 * least["wires"] / whole["wires"],
        "percent_length": 100 * least["length"] / whole["length"],
        "heat": least["heat"],
        "complete_heat": whole["heat"],
    }


def asked_most(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ten digits: the complete wiring, and the grid and the random one recognized most often."""
    ten = [r for r in rows if r["machine"] == "ten" and r["rule"] == "optimum"]
    solved = [r for r in ten if r["asked"] is not None]
    found = [[r for r in solved if r["wiring"] == w] for w in ("complete", "grid", "random")]
    return [max(own, key=lambda r: float(r["asked"])) for own in found if own]


FULL = WiringPlan()
QUICK = WiringPlan(
    settings=FULL.settings.updated({"generation": {"samples": 20}}),
    radii=(2, 6),
    degrees=(8, 64),
    online_radii=(3,),
    online_degrees=(24,),
    online_cycles=30,
)
EXPERIMENT = Experiment(
    name="wiring",
    title="What a wire buys",
    presets={"full": FULL, "paper": FULL, "quick": QUICK},
    models=models,
    tasks=tasks,
    assemble=assemble,
    varied=(
        *VARIED, "patterns.digits", "machine.topology", "machine.radius", "machine.degree",
        "machine.edges",
    ),
)  # fmt: skip
