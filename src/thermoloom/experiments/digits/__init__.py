"""Ten digits on demand: a machine that draws the digit requested, and what makes it work.

Without further settings it learns the hundred bundled digits. With ``prototypes.source = mnist`` it
learns all of MNIST and is compared with test images. The machine was chosen after looking at many,
by the same classifier and the same kind of images; the curves show what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.experiments.digits.peers import MACHINES, PEERS, available
from thermoloom.experiments.plan import SECTION, Experiment, Plan
from thermoloom.experiments.results import save_rows, trained_path
from thermoloom.experiments.works import Work
from thermoloom.export.physical_units import joules
from thermoloom.machine.machine import Machine
from thermoloom.measures.classifier import SIDE
from thermoloom.measures.statistics import rate_interval
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import GenerationSettings, PrototypeSettings, Settings

HARMONIC = Machine(
    hidden=0,
    labels=10,
    styles=100,
    stages=4,
    wiring=("visible-visible", "visible-label"),
    biases=("visible",),
    J4=0.0,
    dt=2.5e-3,
)
"""784 harmonic units, wired completely, and label units for a hundred styles of each class."""
TEN = PrototypeSettings(digits=tuple(range(10)), per_digit=0)
PAPERS_UNITS = {
    "hidden": 512, "labels": 10, "styles": 1, "wiring": list(Machine().wiring),
    "biases": ["hidden"], "J4": 1.0,
}  # fmt: skip
"""What makes a machine of the paper's units of any other, with labels."""
UNLABELLED = PAPERS_UNITS | {
    "labels": 0, "biases": ["visible", "hidden"], "code": "clusters", "code_clusters": 1,
    "stages": 8, "windows": [], "duration": 16.0, "dt": 8e-3,
}  # fmt: skip
"""A machine that must choose a class by itself: a word for each class, visible biases, and time.

Couplings cannot tell x from −x. Visible biases hold the mean of all images, and with it the
polarity; without them couplings hold it, and most samples are negatives."""


@dataclass(frozen=True)
class DigitsPlan(Plan):
    """Which machines are solved, and how many samples are drawn of each."""

    settings: Settings = field(
        default_factory=lambda: Settings(HARMONIC, TEN, generation=GenerationSettings(samples=2000))
    )
    seeds: tuple[int, ...] = (101,)
    data_samples: int = 2000
    """Images that samples are compared with: test images, where MNIST is available."""
    styles: tuple[int, ...] = (1, 10, 30, 100)
    stages: tuple[int, ...] = (1, 2, 4, 8, 16)
    quartic: tuple[float, ...] = (0.0, 0.1, 1.0)
    """J₄."""
    label_amplitude: tuple[float, ...] = (1.0, 30.0)
    per_class: tuple[int, ...] = (1, 10, 100, 1000)
    """Patterns of each class, beside all of them."""
    single_samples: int = 1000
    """Samples of the machine that has learned one pattern of each class."""
    duration: tuple[float, ...] = (1.25, 2.5, 5.0, 8.0)
    """t_f."""
    temperature: tuple[float, ...] = (0.03, 0.1, 0.3)
    """k_BT."""
    codes: tuple[str, ...] = (
        "projection", "copy", "signs", "clusters 1 2", "clusters 10 1", "clusters 10 2",
        "clusters 30 2",
    )  # fmt: skip
    """Codes of hidden units, for the paper's units with labels; clusters: how many of each class,
    and the amplitude of their words."""
    hidden: tuple[int, ...] = (128, 512, 2048)
    """Hidden units, with ten clusters of each class."""
    window_grid: int = 8
    """Equal pieces of the noising path of which optimized windows are made."""
    few_samples: int = 200
    """Samples of each machine of the curves."""
    quartic_patterns: int = 2000
    """Patterns that machines with quartic units learn at most: their moments cost more."""
    peers: tuple[str, ...] = PEERS
    inpainting_samples: int = 200
    """Images of which a half is hidden."""
    classified_samples: int = 10000
    without_labels: int = 200
    """Samples of the machine without labels; 0 leaves it out."""
    online_cycles: tuple[int, ...] = (300, 1000, 3000)
    """Noising trajectories after which the local rule is sampled."""
    online_styles: int = 30
    online_amplitude: float = 30.0
    """Label amplitude for the local rule: labels must learn faster than couplings."""
    online_amplitudes: tuple[float, ...] = (1.0, 10.0, 30.0, 100.0)
    """Label amplitudes that are compared after the first of these numbers of trajectories."""
    online_rate: float = 4e-4
    online_decay: float = 2000.0
    online_samples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [peer for peer in self.peers if peer not in PEERS]
        if unknown:
            raise UserError(f"{SECTION}.peers: {unknown[0]}: must be among {', '.join(PEERS)}")
        if self.settings.prototypes.source == "images":
            raise UserError("prototypes.source: digits come from MNIST; use bundled or mnist")
        if tuple(self.online_cycles) != tuple(sorted(set(self.online_cycles))):
            raise UserError(f"{SECTION}.online_cycles: must rise")
        stages = self.settings.machine.stages
        if self.window_grid < stages:
            raise UserError(
                f"{SECTION}.window_grid = {self.window_grid}: must be at least machine.stages = "
                f"{stages}"
            )
        for code in self.codes:
            coded(code)

    def model(self, machine: dict[str, Any] | None = None, **training: Any) -> Settings:
        """The optimum of the machine, or of one that differs."""
        values = {"rule": "optimum", "seed": self.seeds[0]} | training
        return self.settings.updated({"machine": machine or {}, "training": values})

    # the parts, each a run of its own

    @property
    def machine(self) -> Work:
        settings = self.model()
        samples = settings.generation.samples
        more = {"data_samples": self.data_samples, "samples": samples}
        return Work("digits-machine", settings, more)

    @property
    def inpainting(self) -> Work:
        return Work("digits-inpainting", self.model(), {"images": self.inpainting_samples})

    @property
    def classes(self) -> Work:
        return Work("digits-classes", self.model(), {"images": self.classified_samples})

    def peer(self, name: str) -> Work:
        changed: dict[str, Any] = {}
        if name in MACHINES:
            changed = PAPERS_UNITS | {"stages": 1, "labels": 10 * (name == "labelled")}
        more = {
            "peer": name,
            "samples": self.settings.generation.samples,
            "data_samples": self.data_samples,
            "patterns": self.quartic_patterns,
        }
        return Work("digits-peer", self.model(changed), more)

    @property
    def single(self) -> Work:
        """One pattern of each class."""
        more = {"patterns": self.settings.machine.labels, "samples": self.single_samples}
        return Work("digits-point", self.model(), more)

    @property
    def unlabelled(self) -> Work:
        """The paper's units with a word for each class, and time to choose one of them."""
        more = {"patterns": self.quartic_patterns, "samples": self.without_labels}
        return Work("digits-unlabelled", self.model(UNLABELLED), more)

    def points(self) -> Iterator[tuple[str, Any, Work]]:
        """(curve, value, work) of every machine of the curves."""
        machine = self.settings.machine
        few = self.quartic_patterns
        curves: dict[str, list[tuple[Any, dict[str, Any], int]]] = {
            "patterns": [(n, {}, n * machine.labels) for n in self.per_class],
            "styles": [(k, {"styles": k}, 0) for k in self.styles],
            "stages": [(T, {"stages": T, "windows": []}, 0) for T in self.stages],
            "duration": [(t, {"duration": t}, 0) for t in self.duration],
            "temperature": [(kT, {"kT": kT}, 0) for kT in self.temperature],
            "label amplitude": [(a, {"label_amplitude": a}, 0) for a in self.label_amplitude],
            "windows": [("equal", {"windows": []}, 0)],
            "quartic": [(j, {"J4": j}, 0 if j == 0 else few) for j in self.quartic],
            "code": [(c, PAPERS_UNITS | coded(c), few) for c in self.codes],
            "hidden": [(h, PAPERS_UNITS | {"code": "clusters", "hidden": h}, few)
                       for h in self.hidden],
        }  # fmt: skip
        for curve, values in curves.items():
            for value, changed, patterns in values:
                more = {"patterns": patterns, "samples": self.few_samples}
                work = Work("digits-point", self.model(changed), more)
                one = curve == "patterns" and value == 1
                yield curve, value, self.single if one else work
        more = {"pieces": self.window_grid, "samples": self.few_samples}
        yield "windows", "optimized", Work("digits-windows", self.model(), more)

    @property
    def online_optimum(self) -> Work:
        """Where the local rule ends, whatever the label amplitude."""
        changed = {"styles": self.online_styles, "label_amplitude": self.online_amplitude}
        more = {"patterns": 0, "samples": self.online_samples}
        return Work("digits-point", self.model(changed), more)

    def learning(self, amplitude: float, cycles: int, before: Work | None = None) -> Work:
        """The local rule after so many trajectories, on from where ``before`` ended."""
        settings = self.model(
            {"styles": self.online_styles, "label_amplitude": amplitude}, rule="online",
            cycles=cycles, learning_rate=self.online_rate, learning_rate_decay=self.online_decay,
        )  # fmt: skip
        past = None if before is None else dict(before.more)
        more = {"cycles": cycles, "samples": self.online_samples, "before": past}
        return Work("digits-online", settings, more)

    def online(self) -> list[Work]:
        """The local rule after growing numbers of trajectories, each on from the one before."""
        found: list[Work] = []
        for cycles in self.online_cycles:
            before = found[-1] if found else None
            found.append(self.learning(self.online_amplitude, cycles, before))
        return found

    def amplitudes(self) -> list[Work]:
        """The local rule with several label amplitudes."""
        first = self.online_cycles[:1]
        return [self.learning(a, cycles) for cycles in first for a in self.online_amplitudes]


def coded(code: str) -> dict[str, Any]:
    """Settings of a code, with how many clusters and the amplitude where they are given."""
    values = dict(zip(("code", "code_clusters", "code_amplitude"), code.split(), strict=False))
    convert: dict[str, Callable[[str], Any]] = {"code_clusters": int, "code_amplitude": float}
    try:
        return {key: convert.get(key, str)(value) for key, value in values.items()}
    except ValueError:
        raise UserError(
            f"{SECTION}.codes: {code}: expected a code, or clusters with their number and amplitude"
        ) from None


# --- tasks ----------------------------------------------------------------------------------------


def tasks(plan: DigitsPlan, folder: Path, workers: int) -> list[Task]:
    """The machine and what asks it, peers, the local rule, the curves."""
    found = [plan.machine.task("the machine")]
    if plan.machine.found(folder):
        inputs = [trained_path(Path(), plan.model())]
        found.append(plan.inpainting.task("inpainting", inputs))
        found.append(plan.classes.task("classification", inputs))
    found += [plan.peer(name).task(f"peer: {name}") for name in available(plan.peers)]
    before: Work | None = None
    for work in plan.online():
        if before is None or before.found(folder):
            inputs = [] if before is None else [before.path]
            found.append(work.task(f"online, {work.more['cycles']} trajectories", inputs))
        before = work
    named = {work.path: (f"{curve} {value}", work) for curve, value, work in plan.points()}
    best = plan.online_optimum
    named.setdefault(best.path, ("optimum of the online machine", best))
    for work in plan.amplitudes():
        name = f"online, labels at {work.settings.machine.label_amplitude:g}"
        named.setdefault(work.path, (name, work))
    named.pop(plan.online()[0].path, None)
    found += [work.task(name) for name, work in named.values()]
    if plan.without_labels:
        found.append(plan.unlabelled.task("without labels"))
    return found


def models(plan: DigitsPlan) -> list[Settings]:
    """The machine, and as many samples of it as all others draw; none of them is kept."""
    machine, classes = plan.settings.machine, max(plan.settings.prototypes.digits) + 1
    if machine.visible != SIDE * SIDE:
        raise UserError(f"machine.visible = {machine.visible}: digits needs 28 × 28 pixels, 784")
    if machine.labels < classes:
        raise UserError(
            f"machine.labels = {machine.labels}: digits needs classes; use at least {classes}"
        )
    others = plan.few_samples * sum(1 for _ in plan.points())
    return [plan.model(), plan.model().updated({"generation": {"samples": others, "seed": 1}})]


# --- tables and summary ---------------------------------------------------------------------------


def assemble(plan: DigitsPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of every finished part, and their summary."""
    main = plan.machine.found(folder)
    if main is None:
        raise UserError(f"{folder}: the machine was not measured; run the same command again")
    missing = [f"{peer}: needs scikit-learn (the extra peers)" for peer in plan.peers
               if peer not in available(plan.peers)]  # fmt: skip
    arrays, about = main.load_arrays("images"), main.load_metadata("images")
    run.save_arrays("images", arrays, {k: about[k] for k in ("steps", "last", "shape")})
    run.save_table("confusion", main.load_table("confusion"))
    points = _points(plan, folder, missing)
    if points:
        save_rows(run, "points", points)
    peers = _peers(plan, folder, main, missing)
    save_rows(run, "peers", peers)
    online, amplitudes = (
        _online(works, folder, missing) for works in (plan.online(), plan.amplitudes())
    )
    for name, rows in (("online", online), ("amplitudes", amplitudes)):
        if rows:
            save_rows(run, name, rows)
    alone = plan.unlabelled.found(folder)
    if alone is None and plan.without_labels:
        missing.append("without labels: not measured")
    if alone is not None:
        about = alone.load_metadata("images")
        run.save_arrays("unlabelled", alone.load_arrays("images"), {"shape": about["shape"]})
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, work in (("inpainting", plan.inpainting), ("classes", plan.classes)):
        found = work.found(folder)
        parts[name] = []
        if found is None:
            missing.append(f"{name}: not measured")
            continue
        table = found.load_table(name)
        run.save_table(name, table)
        parts[name] = [
            {key: column[i].item() for key, column in table.items()}
            for i in range(len(next(iter(table.values()))))
        ]
        if found.has("images.safetensors"):
            about = found.load_metadata("images")
            run.save_arrays(name, found.load_arrays("images"), {"shape": about["shape"]})
    results, machine = main.results, plan.settings.machine
    best, classified = plan.online_optimum.found(folder), plan.classes.found(folder)
    return {
        "missing": missing,
        "seeds": list(plan.seeds),
        "machine": results,
        "heat_rows": [energy_row(name, results[name], machine) for name in ("heat", "work")],
        "points": points,
        "peers": peers,
        "online": online,
        "amplitudes": amplitudes,
        "online_optimum": None if best is None else best.results,
        "unlabelled": None if alone is None else alone.results,
        "classified": None if classified is None else classified.results,
        **parts,
        "timing": _timing(plan, folder),
    }


def energy_row(name: str, of: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Heat or work of an image in E₀, in k_BT, and in joules where k_BT is that of 300 K."""
    mean, sem = of["mean"], of["sem"]
    energy = {"kT": mean / machine.kT, "joules": joules(machine, mean)}
    return {"what": name, "mean": mean, "sem": sem, **energy}


POINT = ("images", "asked", "diversity", "data_diversity", "negatives", "patterns", "loss")
PEER = ("images", "data", "asked", "diversity", "negatives", "frechet", "kid", "kid_error",
        "precision", "recall", "nearest_correlation", "patterns")  # fmt: skip


def _points(plan: DigitsPlan, folder: Path, missing: list[str]) -> list[dict[str, Any]]:
    rows = []
    for curve, value, work in plan.points():
        found = work.found(folder)
        if found is None:
            missing.append(f"{curve} {value}: not measured")
            continue
        own = found.results
        rows.append(
            {"curve": curve, "value": str(value), "diverged": own["diverged"]}
            | {key: own.get(key) for key in POINT}
            | _interval(own)
            | {key: own[key]["mean"] if key in own else None for key in ("heat", "work")}
        )
    return rows


def _peers(
    plan: DigitsPlan, folder: Path, main: RunDirectory, missing: list[str]
) -> list[dict[str, Any]]:
    own = main.results["measured"] | {"patterns": main.results["patterns"]}
    rows = [{"model": "this machine"} | {key: own.get(key) for key in PEER}]
    for peer in available(plan.peers):
        found = plan.peer(peer).found(folder)
        if found is None:
            missing.append(f"{peer}: not measured")
        else:
            rows.append({"model": peer} | {key: found.results.get(key) for key in PEER})
    return rows


ONLINE = ("cycles", "amplitude", "rate", "edge", "scatter_edge", "diverged", "images", "asked",
          "diversity", "negatives")  # fmt: skip


def _online(works: list[Work], folder: Path, missing: list[str]) -> list[dict[str, Any]]:
    rows = []
    for work in works:
        found = work.found(folder)
        if found is None:
            amplitude = work.settings.machine.label_amplitude
            what = f"online, labels at {amplitude:g}, {work.more['cycles']} trajectories"
            missing.append(f"{what}: not measured")
        else:
            rows.append({key: found.results.get(key) for key in ONLINE} | _interval(found.results))
    return rows


def _interval(own: Mapping[str, Any]) -> dict[str, float | None]:
    """Where the rate of the asked class lies with 95 % confidence."""
    if own.get("asked") is None:
        return {"asked_low": None, "asked_high": None}
    low, high = rate_interval(round(own["asked"] * own["images"]), own["images"])
    return {"asked_low": low, "asked_high": high}


def _timing(plan: DigitsPlan, folder: Path) -> dict[str, float]:
    works = {
        "machine": [plan.machine],
        "curves": [work for _, _, work in plan.points()],
        "peers": [plan.peer(name) for name in plan.peers],
        "online": list({work.path: work for work in (*plan.online(), *plan.amplitudes())}.values()),
        "without labels": [plan.unlabelled],
        "inpainting": [plan.inpainting],
        "classification": [plan.classes],
    }
    found = {name: [work.found(folder) for work in own] for name, own in works.items()}
    return {
        name: sum(run.results["seconds"] for run in runs if run is not None)
        for name, runs in found.items()
    }


FULL = DigitsPlan()
QUICK = DigitsPlan(
    settings=FULL.settings.updated({"machine": {"styles": 10}, "generation": {"samples": 100}}),
    data_samples=100,
    styles=(1, 10),
    stages=(1, 4),
    quartic=(0.0, 1.0),
    label_amplitude=(1.0, 30.0),
    per_class=(1, 10),
    duration=(1.25, 2.5),
    temperature=(0.1, 0.3),
    single_samples=100,
    codes=("projection", "clusters 10 2"),
    hidden=(128, 512),
    window_grid=4,
    few_samples=40,
    quartic_patterns=10,
    inpainting_samples=40,
    classified_samples=100,
    without_labels=0,
    online_cycles=(100, 400),
    online_styles=10,
    online_amplitudes=(1.0, 30.0),
    online_samples=100,
)
EXPERIMENT = Experiment(
    name="digits",
    title="Ten digits on demand",
    presets={"full": FULL, "paper": FULL, "quick": QUICK},
    models=models,
    tasks=tasks,
    assemble=assemble,
)
