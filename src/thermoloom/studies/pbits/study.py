"""p-bits: a discrete peer on the same wires, the Ising limit of double wells, and total energy.

    images       a Langevin machine and p-bits of equal units, wires and labels: quality of
                 black-and-white images against heat, and against all that a price list charges
    Ising limit  double wells of growing barriers against exact enumeration, and the time this takes
    p-bits       the same spins sampled with thrml

p-bits need thrml (the extra ``pbits``); without it the other parts run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.export.physical_units import ROOM_TEMPERATURE, joules
from thermoloom.machine.machine import Machine
from thermoloom.machine.presets import HARMONIC
from thermoloom.machine.wires import lengths, measure, text_of, wires
from thermoloom.measures.prices import EVENTS, event_counts, price_list, price_lists
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import GenerationSettings, PatternSettings, Settings
from thermoloom.studies.case import Case, finished
from thermoloom.studies.gather import Gathered, save_rows
from thermoloom.studies.pbits.images import langevin_images, pbit_counts, pbit_images
from thermoloom.studies.pbits.ising_limit import ising_limit, pbit_chain
from thermoloom.studies.pbits.pbit_machine import INSTALL, has_thrml
from thermoloom.studies.study import SECTION, VARIED, Figure, Plan, Study

LANGEVIN, PBITS = "Langevin", "p-bits"
MEASURES = (
    "correct_class", "frechet", "kid", "precision", "recall", "diversity", "nearest_correlation",
    "heat", "heat_sem",
)  # fmt: skip
MOST_UNITS = 20
"""Largest number of units whose sign patterns are enumerated."""


def sheet_wires(visible: int, longest: int) -> str:
    """Wires of odd lengths up to ``longest`` on the sheet: two colours are enough for p-bits."""
    machine = Machine(
        visible=visible, hidden=0, wiring=("visible-visible",), topology="grid", radius=longest
    )
    pairs = wires(machine)
    return text_of(pairs[lengths(machine, pairs) % 2 == 1])


MACHINE = replace(
    HARMONIC,
    styles=4,
    stages=1,
    topology="edges",
    edges=sheet_wires(HARMONIC.visible, 3),
    dt=0.01,
    scale="fixed",
)
"""784 harmonic units with at most 16 wires each, one set of couplings, and label units."""


@dataclass(frozen=True)
class PbitPlan(Plan):
    """Images of both machines, prices, and double wells of growing barriers."""

    settings: Settings = field(
        default_factory=lambda: Settings(
            machine=MACHINE,
            patterns=PatternSettings(
                digits=tuple(range(10)), per_digit=10, threshold=0.5, mean=127.5, deviation=127.5
            ),
            generation=GenerationSettings(samples=500),
        )
    )
    seeds: tuple[int, ...] = (101,)
    durations: tuple[float, ...] = (0.3, 0.6, 1.25, 2.5, 5.0)
    """t_f of the Langevin machines."""
    sweeps: tuple[int, ...] = (1, 3, 10, 30, 100)
    """Sweeps of the p-bits, from noise to image."""
    updates: int = 200
    """Updates in training the p-bits."""
    training_sweeps: int = 30
    """Sweeps from the noisy image to a sample in training."""
    overlap: float = 0.1
    """Correlation of a noisy pixel with its image in training; 0: no link to the noisy image."""
    data_samples: int = 2000
    """Largest number of images that samples are compared with."""
    price_list: str = "z1"
    """Price list of the detailed account: z1, dtca, random-bit or landauer."""
    images_per_writing: int = 1000
    """Images that are drawn each time the couplings are written."""
    temperature: float = ROOM_TEMPERATURE
    """Temperature in kelvin at which k_BT is converted to joules."""
    barriers: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)
    """Heights of the double wells, in k_BT."""
    few_barriers: tuple[float, ...] = (1.5, 3.0)
    """Heights for all networks but the first, in k_BT."""
    units: tuple[int, ...] = (12, 20)
    """Units of the networks of double wells, at most 20."""
    coupling: float = 0.5
    """|K| between neighbours, in k_BT."""
    bias: float = 0.3
    """|h| of every unit, in k_BT."""
    ising_samples: int = 600
    """Trajectories of the double wells."""
    ising_steps: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        price_list(self.price_list, f"{SECTION}.price_list")
        for key in ("durations", "sweeps", "barriers", "few_barriers"):
            values = getattr(self, key)
            if min(values) <= 0 or list(values) != sorted(set(values)):
                raise UserError(
                    f"{SECTION}.{key} = {list(values)}: must be positive and increasing"
                )
        if not 0 <= self.overlap < 1:
            raise UserError(f"{SECTION}.overlap = {self.overlap:g}: must be from 0 to below 1")
        for key in ("temperature", "images_per_writing", "training_sweeps", "ising_steps"):
            if not getattr(self, key) > 0:
                raise UserError(f"{SECTION}.{key} = {getattr(self, key)}: must be positive")
        if not all(2 <= n <= MOST_UNITS for n in self.units):
            must = f"must be from 2 to {MOST_UNITS}, for enumeration"
            raise UserError(f"{SECTION}.units = {list(self.units)}: {must}")
        self._check_machine()

    def _check_machine(self) -> None:
        machine = self.settings.machine
        for key, right, must in (
            ("hidden", machine.hidden == 0, "p-bits have no hidden units here; use 0"),
            ("labels", machine.labels > 0, "this study requests classes; use label units"),
            ("stages", machine.stages == 1, "this study takes one denoising step; use 1"),
        ):
            if not right:
                raise UserError(f"machine.{key} = {getattr(machine, key)}: {must}")

    def langevin_cases(self) -> list[Case]:
        """Langevin machines of several durations."""
        return [
            Case(
                {"machine": LANGEVIN, "duration": duration},
                self._settings().updated({"machine": {"duration": duration}, "solver": {}}),
                langevin_images,
                {"data_samples": self.data_samples},
            )
            for duration in self.durations
        ]

    def pbit_case(self) -> Case:
        """p-bits, trained once and sampled by several numbers of sweeps."""
        arguments = {
            key: getattr(self, key)
            for key in ("data_samples", "overlap", "updates", "training_sweeps", "sweeps")
        }
        return Case({"machine": PBITS}, self._settings(), pbit_images, arguments)

    def ising_cases(self) -> list[Case]:
        """Double wells: all barriers of the first network, a few of the others."""
        return [
            Case({"units": n, "barrier": barrier}, self._settings(), ising_limit,
                 self._spins(n) | {"barrier": barrier, "steps": self.ising_steps})
            for n in self.units
            for barrier in (self.barriers if n == self.units[0] else self.few_barriers)
        ]  # fmt: skip

    def chain_case(self) -> Case:
        """The spins of the first network as p-bits."""
        n = self.units[0]
        return Case({"units": n, "machine": PBITS}, self._settings(), pbit_chain, self._spins(n))

    def _spins(self, units: int) -> dict[str, Any]:
        return {"units": units, "coupling": self.coupling, "bias": self.bias,
                "samples": self.ising_samples}  # fmt: skip

    def _settings(self) -> Settings:
        return self.settings.updated({"training": {"seed": self.seeds[0]}})


def cases(plan: PbitPlan, folder: Path) -> list[Case]:
    """All cases; p-bits only if thrml is installed or their cases are done."""
    discrete = [plan.pbit_case(), plan.chain_case()]
    available = [c for c in discrete if has_thrml() or finished(folder / c.path) is not None]
    return [*plan.langevin_cases(), *plan.ising_cases(), *available]


# --- tables and summary ---------------------------------------------------------------------------


def summarize(plan: PbitPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Points of quality and energy, the account of one image, and the Ising limit."""
    langevin, discrete = gathered.of(langevin_images), gathered.of(pbit_images).one()
    writing = plan.images_per_writing
    points = [
        _point(plan, LANGEVIN, r.labels["duration"], r.results,
               event_counts(r.settings.machine, writing))
        for r in langevin
    ]  # fmt: skip
    sheets = {LANGEVIN: langevin.records[-1].run.load_arrays("sheet")["images"]}
    if discrete is not None:
        points += [
            _point(plan, PBITS, row["sweeps"], row,
                   pbit_counts(plan.settings.machine, row["sweeps"], plan.overlap, writing))
            for row in discrete.results["rows"]
        ]  # fmt: skip
        last = discrete.results["rows"][-1]["sweeps"]
        sheets[PBITS] = discrete.run.load_arrays(f"sheet-{last}")["images"]
    save_rows(run, "points", points)
    shape = list(langevin.records[-1].run.load_metadata("sheet")["shape"])
    run.save_arrays("sheets", sheets, {"shape": shape})
    wells = gathered.of(ising_limit)
    limit = [{**r.labels, **r.results} for r in wells]
    save_rows(run, "ising", limit)
    courses = [
        {**r.labels, "step": s, "crossings": c, "deviation": d}
        for r in wells
        for s, c, d in zip(*(r.table("course")[k] for k in ("step", "crossings", "deviation")),
                           strict=True)
    ]  # fmt: skip
    save_rows(run, "courses", courses)
    chains = [
        {"units": r.labels["units"], "sweeps": s, "deviation": d}
        for r in gathered.of(pbit_chain)
        for s, d in zip(r.table("course")["sweeps"], r.table("course")["deviation"], strict=True)
    ]
    if chains:
        save_rows(run, "chains", chains)
    machine = plan.settings.machine
    return {
        "missing": [*gathered.missing, *([] if discrete is not None else [INSTALL])],
        "held_out": langevin.records[-1].results["held_out"],
        "data": langevin.records[-1].results["data"],
        "samples": plan.settings.generation.samples,
        "points": points,
        "wiring": vars(measure(machine)) | {"units": machine.units},
        "account": _account(plan, points),
        "prices": [row for each in price_lists().values() for row in each.rows],
        "lists": {name: each.title for name, each in price_lists().items()},
        "ising": limit,
        "best": min(limit[: len(plan.barriers)], key=lambda row: float(row["deviation"])),
    }


def _point(
    plan: PbitPlan, machine: str, value: float, row: Mapping[str, Any], counts: Mapping[str, float]
) -> dict[str, Any]:
    """Quality and joules of an image; ``value``: duration or sweeps."""
    heat = joules(plan.settings.machine, row["heat"] * plan.settings.machine.kT, plan.temperature)
    totals = {
        f"total_{name}": heat + prices.total(counts) for name, prices in price_lists().items()
    }
    return {
        "machine": machine,
        "value": value,
        **{key: row[key] for key in MEASURES},
        "heat_joules": heat,
        **totals,
        **{f"count_{event}": counts.get(event, 0.0) for event in EVENTS},
    }


def best_point(points: Iterable[Mapping[str, Any]], machine: str) -> Mapping[str, Any] | None:
    """The point of a machine that is nearest to data."""
    candidates = [point for point in points if point["machine"] == machine]
    return min(candidates, key=lambda point: float(point["frechet"])) if candidates else None


def _account(plan: PbitPlan, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cost of an image at the best point of each machine, event by event, by the plan's prices."""
    prices = price_list(plan.price_list, SECTION)
    rows = []
    for machine in (LANGEVIN, PBITS):
        point = best_point(points, machine)
        if point is None:
            continue
        counts = {event: point[f"count_{event}"] for event in EVENTS if point[f"count_{event}"]}
        costs = prices.costs(counts)
        entries = [("heat", None, None, "simulated here", point["heat_joules"])] + [
            (EVENTS[event], count, price.joules if price else None,
             price.evidence if price else "no price", costs[event])
            for event, count in counts.items()
            for price in [prices.prices.get(event)]
        ]  # fmt: skip
        rows += [
            {"machine": machine, "event": event, "count": count, "price": price,
             "evidence": evidence, "joules": cost,
             "in_heats": None if cost is None else cost / point["heat_joules"]}
            for event, count, price, evidence, cost in entries
        ]  # fmt: skip
    return rows


FULL = PbitPlan()
QUICK = PbitPlan(
    settings=FULL.settings.updated({"generation": {"samples": 60}}),
    durations=(0.6, 2.5),
    sweeps=(1, 10, 30),
    updates=60,
    training_sweeps=8,
    barriers=(1.0, 2.0, 4.0),
    units=(12,),
    ising_samples=100,
    ising_steps=2000,
)
STUDY = Study(
    name="pbits",
    title="p-bits, the Ising limit, and total energy",
    question="Beyond the paper: how does a Langevin machine compare with p-bits, in total energy?",
    presets={"full": FULL, "quick": QUICK},
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("energy", "Quality against energy", "draw_energy"),
        Figure("samples", "Images of both machines", "draw_samples"),
        Figure("ising", "The Ising limit of double wells", "draw_ising"),
    ),
    varied=(*VARIED, "machine.duration"),
    order=12,
)
