"""Ten digits on demand: a machine that draws the digit requested, and what makes it work.

By default the machine learns the hundred bundled digits. With ``patterns.source = mnist`` or
``dataset`` it learns all of a labelled data set and is compared with test images. The machine was
chosen from many candidates, by the same classifier and the same kind of images; the curves show
some of them.

    digit_machine       the machine itself; ``inpainting`` and ``classification`` use its computer
    varied_machine      curves: machines with one setting changed
    online_learning     the online rule on its way to the optimum
    peer_model          other models of the same images
    unlabelled_machine  no class is requested
    protocol_model      models under the published protocol, as an option
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.export.physical_units import joules
from thermoloom.inputs import read_file, user_path
from thermoloom.machine.machine import Machine
from thermoloom.machine.presets import ONLINE_AMPLITUDE, ONLINE_RATE, SHARP
from thermoloom.measures.classifier import SIDE
from thermoloom.measures.frechet_protocol import NETWORK_BYTES
from thermoloom.measures.statistics import rate_interval
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import GenerationSettings, PatternSettings, Settings
from thermoloom.studies.case import Case, Measure
from thermoloom.studies.digits.classification import classification
from thermoloom.studies.digits.curves import optimized_windows, varied_machine
from thermoloom.studies.digits.digit_machine import digit_machine
from thermoloom.studies.digits.inpainting import inpainting
from thermoloom.studies.digits.online_learning import online_learning
from thermoloom.studies.digits.peers import DRAW, PEERS, available, peer_model
from thermoloom.studies.digits.protocol import (
    CLAMPED,
    CLASSIFIER,
    DRAWN,
    MARKS,
    protocol_model,
    protocol_reference,
)
from thermoloom.studies.digits.unlabelled import unlabelled_machine
from thermoloom.studies.gather import Gathered, Record, save_rows
from thermoloom.studies.sampled_computer import SAMPLE_IN_CYCLES
from thermoloom.studies.study import SECTION, Figure, Plan, Study

TEN_DIGITS = PatternSettings(digits=tuple(range(10)), per_digit=0)
PAPERS_UNITS = {
    "hidden": 512, "labels": 10, "styles": 1, "wiring": list(Machine().wiring),
    "biases": ["hidden"], "J4": 1.0, "development": [],
}  # fmt: skip
"""Settings that turn any machine into one of the paper's units, with labels."""
UNLABELLED = PAPERS_UNITS | {
    "labels": 0, "biases": ["visible", "hidden"], "code": "clusters", "code_clusters": 1,
    "stages": 8, "windows": [], "duration": 16.0, "dt": 8e-3,
}  # fmt: skip
"""A machine that must choose a class by itself: a word per class, visible biases, and more time.

Couplings cannot tell x from −x. Visible biases store the mean of all images, and with it the
polarity; without them the couplings store it, and most samples are negatives."""
SOLUTION_IN_CYCLES = 500
"""Cost of solving a machine in training cycles, to begin with the longest cases."""


@dataclass(frozen=True)
class DigitsPlan(Plan):
    """Which machines are solved, and how many samples are drawn from each."""

    settings: Settings = field(
        default_factory=lambda: Settings(
            SHARP, TEN_DIGITS, generation=GenerationSettings(samples=2000)
        )
    )
    seeds: tuple[int, ...] = (101,)
    data_samples: int = 2000
    """Images that samples are compared with: test images, where the data set has them."""
    styles: tuple[int, ...] = (1, 10, 30, 100)
    stages: tuple[int, ...] = (1, 2, 4, 8, 16)
    quartic: tuple[float, ...] = (0.0, 0.1, 1.0)
    """J₄."""
    label_amplitude: tuple[float, ...] = (1.0, 30.0)
    per_class: tuple[int, ...] = (1, 10, 100, 1000)
    """Patterns of each class, in addition to all of them."""
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
    """Largest number of patterns for machines with quartic units, whose moments cost more."""
    peers: tuple[str, ...] = PEERS
    noise: float | None = None
    """Variance of the thermal noise that data and peers receive before samples are compared with
    them; if not given, that of the reference potential."""
    protocol: str = ""
    """The published protocol for binarized images (patterns.threshold = 0.1): an ONNX file of the
    FID-Inception network, or ``classifier`` for features of the study's classifier."""
    protocol_samples: int = 512
    """Images of each class under the protocol."""
    gate: tuple[float, ...] = (2.1, 29.8)
    """Distances of test images, and of training images thresholded at 0.5, that the network must
    give before any other distance is reported."""
    inpainting_samples: int = 200
    """Images of which one half is hidden."""
    classified_samples: int = 10000
    without_labels: int = 200
    """Samples of the machine without labels; 0 leaves it out."""
    online_cycles: tuple[int, ...] = (300, 1000, 3000)
    """Noising trajectories after which the online rule is sampled."""
    online_styles: int = 30
    online_amplitude: float = ONLINE_AMPLITUDE
    online_amplitudes: tuple[float, ...] = (1.0, 10.0, 30.0, 100.0)
    """Label amplitudes that are compared after the first number of ``online_cycles``."""
    online_rate: float = ONLINE_RATE
    online_decay: float = 2000.0
    online_samples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [peer for peer in self.peers if peer not in PEERS]
        if unknown:
            raise UserError(f"{SECTION}.peers: {unknown[0]}: must be one of {', '.join(PEERS)}")
        self._check_protocol()
        if tuple(self.online_cycles) != tuple(sorted(set(self.online_cycles))):
            raise UserError(f"{SECTION}.online_cycles: must be increasing")
        for code in self.codes:
            code_settings(code)
        source = self.settings.patterns
        if source.source == "images":
            raise UserError("patterns.source: classes are needed; use bundled, mnist or dataset")
        if source.source == "dataset" and not self.settings.measures.classifier:
            raise UserError(
                "measures.classifier: name the folder of a classifier of this data set; to train "
                f"one: thermoloom classifier train --data {source.path}"
            )
        stages = self.settings.machine.stages
        if self.window_grid < stages:
            raise UserError(
                f"{SECTION}.window_grid = {self.window_grid}: must be at least machine.stages = "
                f"{stages}"
            )

    def _check_protocol(self) -> None:
        if self.noise is not None and self.noise < 0:
            raise UserError(f"{SECTION}.noise = {self.noise}: a variance must not be negative")
        if not self.protocol:
            return
        source = self.settings.patterns
        if source.threshold is None or source.source == "bundled" or source.resize:
            raise UserError(
                f"{SECTION}.protocol: compares black and white images of a data set with its test "
                "images; use patterns.source = 'mnist' or 'dataset', patterns.threshold = 0.1 and "
                "patterns.resize = false"
            )
        if len(self.gate) != 2:
            raise UserError(f"{SECTION}.gate = {list(self.gate)}: expected two distances")

    def check_machine(self) -> None:
        """Refuse a machine that cannot draw the requested digits."""
        machine, patterns = self.settings.machine, self.settings.patterns
        if machine.visible != SIDE * SIDE:
            raise UserError(
                f"machine.visible = {machine.visible}: the classifier needs 28 × 28 pixels, 784; "
                "patterns.resize = true scales other images"
            )
        classes = max(patterns.digits) + 1
        if machine.labels < classes:
            raise UserError(
                f"machine.labels = {machine.labels}: digits needs classes; use at least {classes}"
            )

    def solved(
        self, machine: Mapping[str, Any] | None = None, samples: int | None = None
    ) -> Settings:
        """The machine, or one with some settings changed, solved and sampled."""
        return self.settings.updated(
            {
                "machine": machine or {},
                "training": {"seed": self.seeds[0]},
                "solver": {},
                "generation": {} if samples is None else {"samples": samples},
            }
        )

    # --- cases ---

    def case(
        self,
        labels: Mapping[str, Any],
        measure: Measure,
        machine: Mapping[str, Any] | None = None,
        samples: int | None = None,
        solutions: int = 1,
        **arguments: Any,
    ) -> Case:
        """A measure that solves the machine, or one with some settings changed, and samples it."""
        settings = self.solved(machine, samples)
        cycles = _cost(settings, solutions)
        return Case(labels, settings, measure, arguments | self.noisy(measure), cycles=cycles)

    def noisy(self, measure: Measure) -> dict[str, float]:
        """The noise of data as an argument of a measure that compares samples with data."""
        return {} if self.noise is None or measure is unlabelled_machine else {"noise": self.noise}

    @property
    def machine_case(self) -> Case:
        """The machine; images are completed and classified by the computer that it leaves."""
        case = self.case({}, digit_machine, data_samples=self.data_samples)
        return replace(case, leaves_computer=True)

    def image_cases(self) -> list[Case]:
        """Images that are completed and classified."""
        machine = self.machine_case
        measures = {inpainting: self.inpainting_samples, classification: self.classified_samples}
        return [
            Case({}, machine.settings, measure, {"images": images}, needs=(machine,))
            for measure, images in measures.items()
        ]

    def peer_cases(self) -> list[Case]:
        """Other models of the same images, those that can be computed here."""
        one_stage = PAPERS_UNITS | {"stages": 1}
        machines = {"paper": one_stage | {"labels": 0}, "labelled": one_stage}
        counts = {"data_samples": self.data_samples, "patterns": self.quartic_patterns}
        return [
            self.case({"model": name}, peer_model, machines.get(name), peer=name, **counts)
            for name in available(self.peers)
        ]

    def protocol_cases(self) -> list[Case]:
        """The law of the training images, then the machine and its peers under the protocol."""
        if not self.protocol:
            return []
        machine, network = self.machine_case, {"network": self.protocol, "sha256": ""}
        if self.protocol != CLASSIFIER:
            network = network_of(self.protocol)
        settings = machine.settings
        arguments = network | {"gate": list(self.gate)}
        reference = Case({"protocol": "reference"}, settings, protocol_reference, arguments)
        peers = [peer for peer in available(self.peers) if peer in DRAW]
        shared = network | {"reference": str(reference.path), "per_class": self.protocol_samples}
        models = [
            Case({"protocol": model}, settings, protocol_model, {"model": model, **shared},
                 needs=(reference, machine))
            for model in (CLAMPED, DRAWN, *peers)
        ]  # fmt: skip
        return [reference, *models]

    def curve_cases(self) -> Iterator[Case]:
        """Every machine of the curves, without development, which would hide the differences."""
        few, classes = self.quartic_patterns, self.settings.machine.labels
        curves: dict[str, list[tuple[Any, dict[str, Any], int]]] = {
            "patterns": [(n, {}, n * classes) for n in self.per_class],
            "styles": [(k, {"styles": k}, 0) for k in self.styles],
            "stages": [(T, {"stages": T, "windows": []}, 0) for T in self.stages],
            "duration": [(t, {"duration": t}, 0) for t in self.duration],
            "temperature": [(kT, {"kT": kT}, 0) for kT in self.temperature],
            "label amplitude": [(a, {"label_amplitude": a}, 0) for a in self.label_amplitude],
            "windows": [("equal", {"windows": []}, 0)],
            "quartic": [(J4, {"J4": J4}, few if J4 else 0) for J4 in self.quartic],
            "code": [(code, PAPERS_UNITS | code_settings(code), few) for code in self.codes],
            "hidden": [(n, PAPERS_UNITS | {"code": "clusters", "hidden": n}, few)
                       for n in self.hidden],
        }  # fmt: skip
        for curve, points in curves.items():
            for position, machine, patterns in points:
                single = curve == "patterns" and position == 1
                samples = self.single_samples if single else self.few_samples
                labels = {"curve": curve, "value": str(position)}
                varied = {"development": [], **machine}
                yield self.case(labels, varied_machine, varied, samples, patterns=patterns)
        yield self.case(
            {"curve": "windows", "value": "optimized"},
            optimized_windows,
            {"development": []},
            samples=self.few_samples,
            solutions=self.window_grid,
            pieces=self.window_grid,
        )

    def online_case(self, amplitude: float, cycles: int, predecessor: Case | None = None) -> Case:
        """The online rule after so many trajectories, continued from another case."""
        settings = self.settings.updated(
            {
                "machine": {"styles": self.online_styles, "label_amplitude": amplitude},
                "training": {
                    "rule": "online",
                    "seed": self.seeds[0],
                    "cycles": cycles,
                    "learning_rate": self.online_rate,
                    "learning_rate_decay": self.online_decay,
                },
                "generation": {"samples": self.online_samples},
            }
        )
        return Case(
            {"rule": "online", "cycles": cycles, "amplitude": amplitude},
            settings,
            online_learning,
            {"predecessor": "" if predecessor is None else str(predecessor.path)}
            | self.noisy(online_learning),
            needs=() if predecessor is None else (predecessor,),
            cycles=cycles + _cost(settings),
        )

    def online_cases(self) -> list[Case]:
        """Growing numbers of trajectories, each continued from the one before; other amplitudes
        after the first number; the optimum, which does not depend on the amplitude.
        """
        first = self.online_cycles[0]
        cases = [self.online_case(self.online_amplitude, first)]
        for cycles in self.online_cycles[1:]:
            cases.append(self.online_case(self.online_amplitude, cycles, cases[-1]))
        others = [a for a in self.online_amplitudes if a != self.online_amplitude]
        machine = {"styles": self.online_styles, "label_amplitude": self.online_amplitude}
        optimum = self.case(
            {"rule": "optimum"}, varied_machine, machine, self.online_samples, patterns=0
        )
        return [*cases, *(self.online_case(amplitude, first) for amplitude in others), optimum]

    def unlabelled_cases(self) -> list[Case]:
        """The paper's units with a word for each class, and time to choose one of them."""
        if not self.without_labels:
            return []
        patterns, samples = self.quartic_patterns, self.without_labels
        return [self.case({}, unlabelled_machine, UNLABELLED, samples, patterns=patterns)]


def network_of(file: str) -> dict[str, str]:
    """A user's network by its absolute path and its content, which is part of the identity."""
    path = user_path(f"{SECTION}.protocol", file)
    content = read_file(path, NETWORK_BYTES, "network")
    return {"network": str(path.absolute()), "sha256": hashlib.sha256(content).hexdigest()}


def code_settings(code: str) -> dict[str, Any]:
    """Settings of a code, with the number of clusters and their amplitude where it has them."""
    words = dict(zip(("code", "code_clusters", "code_amplitude"), code.split(), strict=False))
    convert: dict[str, Callable[[str], Any]] = {"code_clusters": int, "code_amplitude": float}
    try:
        return {key: convert.get(key, str)(word) for key, word in words.items()}
    except ValueError:
        raise UserError(
            f"{SECTION}.codes: {code}: expected a code, or clusters with their number and amplitude"
        ) from None


def _cost(settings: Settings, solutions: int = 1) -> float:
    """Approximate cost of solving and sampling, in training cycles."""
    return SOLUTION_IN_CYCLES * solutions + SAMPLE_IN_CYCLES * settings.generation.samples


def cases(plan: DigitsPlan, folder: Path) -> list[Case]:
    """The machine, completed and classified images, peers, the online rule, the curves."""
    plan.check_machine()
    return [
        plan.machine_case,
        *plan.image_cases(),
        *plan.peer_cases(),
        *plan.protocol_cases(),
        *plan.online_cases(),
        *plan.curve_cases(),
        *plan.unlabelled_cases(),
    ]


def foreseen(plan: DigitsPlan) -> list[Settings]:
    """The machine, and as many samples of it as all curves draw; those samples are not saved."""
    samples = plan.few_samples * sum(1 for _ in plan.curve_cases())
    return [plan.solved(), plan.solved(samples=samples).updated({"generation": {"seed": 1}})]


# --- tables and summary ---

POINT = ("images", "correct_class", "diversity", "data_diversity", "negatives", "patterns", "loss")
PEER = ("images", "data", "correct_class", "diversity", "negatives", "frechet", "kid", "kid_error",
        "precision", "recall", "nearest_correlation", "patterns")  # fmt: skip
ONLINE = ("cycles", "amplitude", "rate", "edge", "scatter_edge", "diverged", "images",
          "correct_class", "diversity", "negatives", "frechet")  # fmt: skip
"""Columns of the tables."""


def summarize(plan: DigitsPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of every part that was measured, and their summary."""
    part_of = {record.case.measure: record for record in gathered}
    machine, optimum = part_of.get(digit_machine), gathered.one(rule="optimum")
    if machine is None:
        raise UserError(
            f"{gathered.folder}: the digit machine was not measured; run the study again"
        )
    parts = {
        "inpainting": part_of.get(inpainting),
        "classification": part_of.get(classification),
        "unlabelled": part_of.get(unlabelled_machine),
        "online_optimum": optimum,
    }
    results = {name: record and record.results for name, record in parts.items()}
    for name, record in {"images": machine, **parts}.items():
        if record is not None and record.run.has("images.safetensors"):
            arrays, metadata = record.run.load_arrays("images"), record.run.load_metadata("images")
            run.save_arrays(name, arrays, metadata)
    first = plan.online_cycles[0]
    tables = {
        "points": [_point_row(record) for record in gathered if "curve" in record.labels],
        "peers": _peer_rows(machine, gathered),
        "online": _online_rows(gathered.where(rule="online", amplitude=plan.online_amplitude)),
        "amplitudes": _online_rows(
            record
            for amplitude in plan.online_amplitudes
            for record in gathered.where(amplitude=amplitude, cycles=first)
        ),
        "protocol": _protocol_rows(gathered),
    }
    saved_alone = {
        "confusion": _confusion_rows(machine),
        "inpainting": (results["inpainting"] or {}).get("rows"),
        "classes": (results["classification"] or {}).get("rows"),
    }
    for name, rows in {**tables, **saved_alone}.items():
        if rows:
            save_rows(run, name, rows)
    uncomputable = [peer for peer in plan.peers if peer not in available(plan.peers)]
    needing = [
        f"{peer} is left out: it needs scikit-learn (the extra peers)" for peer in uncomputable
    ]
    energies = {name: machine.results[name] for name in ("heat", "work")}
    return {
        "missing": [*gathered.missing, *needing],
        "machine": machine.results,
        "marks": [mark._asdict() for mark in MARKS] if plan.protocol else [],
        "heat_rows": [energy_row(*energy, plan.settings.machine) for energy in energies.items()],
        **tables,
        **results,
    }


def energy_row(name: str, energy: Mapping[str, float], machine: Machine) -> dict[str, Any]:
    """Heat or work of an image in E₀, in k_BT, and in joules where k_BT is that of 300 K."""
    mean = energy["mean"]
    in_other_units = {"kT": mean / machine.kT, "joules": joules(machine, mean)}
    return {"energy": name, "mean": mean, "sem": energy["sem"], **in_other_units}


def _confusion_rows(machine: Record) -> list[dict[str, int]]:
    """Samples by requested and by recognized class."""
    return [
        {"requested": requested} | {f"as_{seen}": count for seen, count in enumerate(counts)}
        for requested, counts in enumerate(machine.results["confusion"])
    ]


def _point_row(record: Record) -> dict[str, Any]:
    results = record.results
    return (
        {**record.labels, "diverged": results["diverged"]}
        | _columns(results, POINT)
        | _rate_bounds(results)
        | {key: results[key]["mean"] if key in results else None for key in ("heat", "work")}
    )


def _peer_rows(machine: Record, gathered: Gathered) -> list[dict[str, Any]]:
    patterns = {"patterns": machine.results["patterns"]}
    measured, beside = machine.results["measured"] | patterns, machine.results["beside"]
    return [
        {"model": "this machine"} | _columns(measured, PEER),
        *({"model": name} | _columns(row | patterns, PEER) for name, row in beside.items()),
        *(
            {"model": record.labels["model"]} | _columns(record.results, PEER)
            for record in gathered
            if "model" in record.labels
        ),
    ]


def _protocol_rows(gathered: Gathered) -> list[dict[str, Any]]:
    """Distances under the published protocol: known ones, then those of models."""
    records = [record for record in gathered if "protocol" in record.labels]
    rows = [row for record in records for row in record.results.get("rows", [record.results])]
    return [
        _columns(row, ("model", "images", "frechet"))
        | {name: row[name]["mean"] if name in row else None for name in ("heat", "work")}
        for row in rows
    ]


def _online_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [_columns(record.results, ONLINE) | _rate_bounds(record.results) for record in records]


def _columns(results: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The results of these names; None for a missing one, as where samples diverged."""
    return {name: results.get(name) for name in names}


def _rate_bounds(results: Mapping[str, Any]) -> dict[str, float | None]:
    """The 95 % interval of the rate of the correct class."""
    if results.get("correct_class") is None:
        return {"correct_class_low": None, "correct_class_high": None}
    images = results["images"]
    low, high = rate_interval(round(results["correct_class"] * images), images)
    return {"correct_class_low": low, "correct_class_high": high}


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
STUDY = Study(
    name="digits",
    title="Ten digits on demand",
    question="Beyond the paper: can a machine draw all ten digits on demand?",
    presets={"full": FULL, "paper": FULL, "quick": QUICK},
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("sheet", "Ten digits on demand", "draw_sheet"),
        Figure("denoising", "From noise to all ten digits", "draw_denoising"),
        Figure("confusion", "Requested, recognized, completed", "draw_confusion"),
        Figure("curves", "What makes it work", "draw_curves"),
        Figure("curve-energies", "Heat and work of the same machines", "draw_curve_energies"),
        Figure("online", "The local rule", "draw_online"),
        Figure("unlabelled", "Without labels", "draw_unlabelled"),
    ),
    foreseen=foreseen,
    order=7,
)
