"""The Python interface: a machine that has learned images is a computer, which draws images.

    machine  = tl.Machine(hidden=512)           its arguments are the settings of ``[machine]``
    computer = machine.train(images)            or machine.solve(images)
    drawn    = computer.generate(200)           images, heat, work, quality
    computer.save("my.safetensors")             tl.load("my.safetensors")

NumPy arrays in and out. The command line opens what ``save`` wrote, and ``load`` opens its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.computers.computer_files import Kept, open_computer, save_computer, save_couplings
from thermoloom.computers.pattern_store import content_sha256
from thermoloom.computers.training_runs import solve
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.export.physical_units import Realization, realize
from thermoloom.feasibility import check_learning, check_training
from thermoloom.generation import asked_classes, generate
from thermoloom.inputs import user_path, whole
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine import machine as machine_module
from thermoloom.machine.device import Device as Device
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import text_of
from thermoloom.patterns.clamps import clamp_of
from thermoloom.patterns.edge_lists import read_edges
from thermoloom.patterns.fields import label_words, unit_fields
from thermoloom.patterns.images import read_images, read_png
from thermoloom.patterns.mnist import bundled_digits, load_mnist
from thermoloom.patterns.patterns import Patterns, from_images, in_turn
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import SUMMARY, StudyTables
from thermoloom.settings import PrototypeSettings, Settings
from thermoloom.training.trainer import Reached, Trainee, train_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from thermoloom.measures.heat_ledger import Ledger
    from thermoloom.measures.quality import Quality

Array = NDArray[Any]
OnCycle = Callable[[int, float], None]
"""``on_cycle(cycles done, latest validation loss)``"""

_TRAINING = {entry.name for entry in fields(Settings().training)}
_LEARNING = _TRAINING | {entry.name for entry in fields(Settings().imperfections)}


# --- images ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Images:
    """Images to learn, with names and classes.

    >>> import thermoloom as tl
    >>> images = tl.digits(3, 5)
    >>> images.pixels.shape, images.classes, images[0].dtype
    ((2, 28, 28), (3, 5), dtype('uint8'))
    """

    pixels: Array | Sequence[Array]
    """Grey values, (n, h, w), or (n, N_v) where the visible layer is not an image."""
    classes: tuple[int, ...] = ()
    """Class of every image, from 0 on, or empty."""
    names: tuple[str, ...] | None = None
    """One name per image; its number if None."""
    digits: bool = False
    """Whether the classes are those of MNIST, so that the bundled classifier can judge."""

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Array:
        """The grey values of one image."""
        return self.pixels[index]


def digits(*classes: int, per_class: int = 1, mnist: bool | str | Path = False) -> Images:
    """The first MNIST training images of each class, in turn; all ten classes if none is named.

    Ten images per class come with the package. If more are wanted, ``mnist`` is a folder of the
    IDX files, or True to download them once.

    >>> import thermoloom as tl
    >>> tl.digits(0, 1, 2, per_class=2).names
    ('0', '1', '2', '0', '1', '2')
    """
    chosen = PrototypeSettings(
        source="mnist" if mnist else "bundled", digits=classes or tuple(range(10)),
        per_digit=per_class,
    )  # fmt: skip
    found = load_mnist(None if mnist is True else mnist) if mnist else bundled_digits()
    pixels, labels = found
    order = in_turn(labels, chosen.digits, chosen.per_digit)
    own = tuple(int(label) for label in labels[order])
    return Images(pixels[order], own, tuple(str(label) for label in own), digits=True)


def images(path: str | Path) -> Images:
    """A PNG image, a folder of them, a folder of folders (one for each class), or an .npy array.

    >>> import numpy as np, thermoloom as tl
    >>> np.save("stripes.npy", np.tile([0, 255], (3, 4, 2)))
    >>> tl.images("stripes.npy").names
    ('0', '1', '2')
    """
    file = user_path("images", path)
    if file.suffix.lower() == ".png" and file.is_file():
        return Images([read_png(file)], names=(file.stem,))
    pixels, names, classes = read_images(file)
    return Images(pixels, tuple(classes), tuple(names))


def edges(source: str | Path | ArrayLike) -> str:
    """A list of wires for ``Machine(topology="edges", edges=…)``: pairs of units (visible ones
    first, counted from 0), or a file of them (two to a line, or .npy).

    >>> import thermoloom as tl
    >>> wires = tl.edges([(0, 4), (4, 5)])
    >>> machine = tl.Machine(visible=4, hidden=2, topology="edges", edges=wires)
    """
    if isinstance(source, str | Path):
        return read_edges(user_path("edges", source))
    return text_of(np.asarray(source), "edges")


Source = Images | str | Path | ArrayLike


def _patterns(
    source: Source, classes: Sequence[int] | None, machine: machine_module.Machine,
    resize: bool, code: Array | None,
) -> Patterns:  # fmt: skip
    """What is to be learned, fitted to the machine."""
    if isinstance(source, str | Path):
        source = images(source)
    elif not isinstance(source, Images):
        source = Images(_pixels(source))
    own = source.classes if classes is None else _classes(classes)
    return from_images(
        list(source.pixels),
        machine,
        source.names,
        classes=own,
        digits=source.digits and classes is None,
        resize=resize,
        code=None if code is None else np.asarray(code, np.float32),
    )


def _pixels(source: ArrayLike) -> Sequence[Array]:
    try:
        array = np.asanyarray(source)
    except ValueError:
        return list(source)  # type: ignore[arg-type]  # of different sizes: refused, or resized
    if array.ndim not in (2, 3):
        raise UserError(
            f"images: an array of shape {array.shape}; expected (n, h, w) or (n, machine.visible)"
        )
    return list(array)


def _classes(classes: Iterable[int]) -> tuple[int, ...]:
    array = np.asarray(classes)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError("classes: must be whole numbers, one for each image")
    return tuple(int(own) for own in array)


# --- machine --------------------------------------------------------------------------------------


class Machine(machine_module.Machine):
    """A machine that can learn: units, wiring, stages, potential and dynamics.

    Its arguments are the settings of ``[machine]`` (``thermoloom settings`` lists them all); the
    defaults are the paper's: 784 visible and 512 hidden units, one stage, no labels.

    >>> import thermoloom as tl
    >>> tl.Machine(hidden=64, labels=10, stages=4, code="clusters")
    Machine(hidden=64, labels=10, stages=4, code='clusters')
    """

    def __repr__(self) -> str:
        usual = machine_module.Machine()
        special = {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) != getattr(usual, entry.name)
        }
        shown = {key: f"{value!r:.60}" for key, value in special.items()}
        return f"Machine({', '.join(f'{key}={value}' for key, value in shown.items())})"

    def train(
        self,
        images: Source,
        classes: Sequence[int] | None = None,
        *,
        rule: str = "online",
        cycles: int = 300,
        seed: int = 101,
        resize: bool = False,
        code: Array | None = None,
        device: Device | None = None,
        on_cycle: OnCycle | None = None,
        **settings: Any,
    ) -> Computer:
        """Learn from ``cycles`` noising trajectories, images in turn, from θ = 0.

        ``images``: arrays (n, h, w) or (n, N_v), what ``digits`` or ``images`` gives, or a path.
        ``classes``: one number per image; a machine with labels needs them. ``resize``: resize the
        images to the square visible layer. ``code``: fields of the hidden units, (n, N_h), where
        the machine's code is ``given``. ``device``: what the machine is built of, if that is not
        as it should be. ``settings``: any other of ``[training]`` and ``[imperfections]``, such as
        ``learning_rate_scale=0.5`` or ``update_noise=0.1``.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
        >>> computer
        Computer(Machine(visible=49, hidden=8, duration=0.05), 2 patterns, online, 4 cycles)
        """
        chosen = _learning(self, device, rule=rule, cycles=cycles, seed=seed, **settings)
        learned = _patterns(images, classes, self, resize, code)
        return _train(chosen, learned, Reached(Parameters.zeros(chosen.built)), on_cycle)

    def solve(
        self,
        images: Source,
        classes: Sequence[int] | None = None,
        *,
        resize: bool = False,
        code: Array | None = None,
        on_iteration: Callable[[int, float], None] | None = None,
        **settings: Any,
    ) -> Computer:
        """The optimum that training approaches, without any trajectory; arguments as of ``train``.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, labels=2)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.generate(4, classes=[1]).classes
        array([1, 1, 1, 1])
        """
        chosen = _learning(self, None, rule="optimum", **settings)
        learned = _patterns(images, classes, self, resize, code)
        unit, words = unit_fields(learned, self), label_words(learned, self)
        check_learning(chosen, unit)
        optimum, curve = solve(chosen, unit, words, on_iteration)
        return Computer(_about(chosen, learned), optimum.parameters, learned, curve)


def _learning(machine: machine_module.Machine, device: Device | None, **settings: Any) -> Settings:
    """Settings with those of ``[training]`` and ``[imperfections]`` by their names."""
    for key in settings:
        if key not in _LEARNING:
            raise UserError(f"{key}: no such argument; known: {', '.join(sorted(_LEARNING))}")
    training = {key: value for key, value in settings.items() if key in _TRAINING}
    errors = {key: value for key, value in settings.items() if key not in _TRAINING}
    plain = machine_module.Machine(**asdict(machine))  # what is saved and loaded again
    start = Settings(machine=plain, device=Device() if device is None else device)
    return start.updated({"training": training, "imperfections": errors})


def _about(settings: Settings, learned: Patterns) -> Settings:
    """The same, naming the content of the patterns; where they came from is not known."""
    return replace(settings, prototypes=PrototypeSettings(content=content_sha256(learned)))


def _train(
    settings: Settings, learned: Patterns, reached: Reached, on_cycle: OnCycle | None
) -> Computer:
    """Train from what is reached to ``training.cycles``."""
    machine = settings.machine
    unit, words = unit_fields(learned, machine), label_words(learned, machine)
    check_training(settings, unit)
    trainee = Trainee(settings, engine().learner(settings), reached)
    for _ in train_together([trainee], unit, words):
        if on_cycle and trainee.curve:
            with interrupts_deferred():  # whatever it catches, an interrupt is not lost in it
                on_cycle(trainee.cycle, trainee.curve[-1][1])
    if trainee.diverged:
        raise UserError(
            f"training diverged in cycle {trainee.cycle}; try a smaller learning rate "
            "(learning_rate_scale)"
        )
    about = _about(settings, learned)
    return Computer(about, trainee.parameters, learned, trainee.curve_columns())


# --- computer -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Computer(Kept):
    """A machine that has learned: θ (``parameters``), ``patterns``, ``settings``, ``curve``.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
    >>> computer.patterns.labels, computer.curve["cycle"], computer["visible_hidden"].shape
    (('0', '1'), array([0., 4.]), (1, 49, 8))
    """

    @property
    def machine(self) -> Machine:
        """The machine that it is."""
        return Machine(**asdict(self.settings.machine))

    def __getitem__(self, block: str) -> Array:
        """A block of θ, such as ``visible_hidden``, ``hidden_hidden``, ``hidden_bias``: (T, …)."""
        if block not in self.parameters.layout:
            known = ", ".join(self.parameters.arrays)
            raise UserError(f"{block}: no such block of θ; this machine has {known}")
        return self.parameters[block]

    def __repr__(self) -> str:
        training = self.settings.training
        solved = training.rule == "optimum"
        how = "solved" if solved else f"{training.rule}, {training.cycles} cycles"
        return f"Computer({self.machine!r}, {len(self.patterns)} patterns, {how})"

    def train(
        self,
        images: Source | None = None,
        classes: Sequence[int] | None = None,
        *,
        cycles: int = 300,
        resize: bool = False,
        code: Array | None = None,
        on_cycle: OnCycle | None = None,
        **settings: Any,
    ) -> Computer:
        """Another computer, trained for ``cycles`` more from this one's θ.

        Without images it continues with those that it has learned, exactly as if it had never
        stopped (with update noise: to round-off). Rule, seed and everything else stay as they were
        unless given; a computer that was solved is trained online.

        >>> import thermoloom as tl
        >>> machine, images = tl.Machine(visible=49, hidden=8, duration=0.05), tl.digits(0, 1)
        >>> parts = machine.train(images, cycles=4, resize=True).train(cycles=2)
        >>> whole = machine.train(images, cycles=6, resize=True)
        >>> bool((parts["hidden_bias"] == whole["hidden_bias"]).all())
        True
        """
        machine, before = self.machine, self.settings
        points = zip(*self.curve.values(), strict=True)
        reached = Reached(
            self.parameters,
            before.training.cycles,
            tuple((int(cycle), float(x), float(y)) for cycle, x, y in points),
        )
        device = before.device
        if before.training.rule == "optimum":
            before, reached = Settings(machine=machine), Reached(self.parameters)
        own = asdict(before.training) | asdict(before.imperfections) | settings
        if own["rule"] != "delayed" and "period" not in settings:
            own["period"] = None
        own["cycles"] = reached.cycle + whole("cycles", cycles, 1)
        chosen = _learning(machine, device, **own)
        if images is None:
            self.patterns.needed_for("train")
            learned = self.patterns
        else:
            learned = _patterns(images, classes, machine, resize, code)
        return _train(chosen, learned, reached, on_cycle)

    def on(self, device: Device) -> Computer:
        """The same θ, written on a device: it generates there, and ``train`` continues there.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> chip = computer.on(tl.Device(gain_error=0.3, dead=0.05))
        >>> recalibrated = chip.train(cycles=4)
        >>> [bool((c.generate(3).heat == computer.generate(3).heat).any()) for c in (chip,
        ...  recalibrated)]
        [False, False]
        """
        settings = replace(self.settings, device=device)
        theta = self.parameters.on(settings.built)
        return replace(self, settings=settings, parameters=theta)

    def generate(
        self,
        samples: int = 200,
        seed: int | None = None,
        *,
        classes: Sequence[int] | int | None = None,
        clamp: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        hold: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> Drawn:
        """Samples of the frozen computer, and the heat that it gives off.

        ``seed``: 90000 + the training seed by default. ``classes``: what the label units ask
        for, in turn; by default all classes in turn. ``clamp``: an image with some known pixels,
        or several in turn; ``mask`` is true where they are known (without it: where the
        image is finite). Known pixels follow their reversed noising path, as in training, or are
        held at rest (``hold``). Their grey values are scaled to those of the learned patterns at
        these pixels; pixels that are not known have no influence.

        >>> import numpy as np, thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
        >>> image = np.eye(7); image[4:] = np.nan
        >>> computer.generate(3, clamp=image).images.shape
        (3, 7, 7)
        """
        machine = self.machine
        if clamp is None and (mask is not None or hold):
            raise UserError("mask, hold: say which pixels of an image are known; give clamp too")
        count, known = whole("samples", samples, 1), None
        if clamp is not None:
            marked = None if mask is None else np.asarray(mask)
            known = clamp_of(machine, self.patterns, np.asarray(clamp), count, marked, hold)
        chosen = self.settings.generation_seed if seed is None else seed
        made = generate(self.parameters, count, chosen, classes, known, on_progress=on_progress)
        asked = asked_classes(self.parameters, count, classes)
        return Drawn(self, made, asked, clamped=known is not None)

    def save(self, path: str | Path) -> None:
        """Everything in one .safetensors file, which ``load`` and the command line open.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> machine.train(tl.digits(0, 1), cycles=4, resize=True).save("my.safetensors")
        >>> tl.load("my.safetensors")
        Computer(Machine(visible=49, hidden=8, duration=0.05), 2 patterns, online, 4 cycles)
        """
        save_computer(user_path("path", path), self)

    def export(
        self,
        path: str | Path,
        bits: int = 32,
        *,
        chosen: int | None = None,
        samples: int = 100,
        seed: int = 1,
        **device: float,
    ) -> None:
        """Couplings for a device: a table (.csv, which ``load`` reads back) or, of at most 32
        units, a netlist for ngspice (.cir).

        ``bits``: of a coupling, 2 to 24, or 32 for float32 as it is. A netlist generates
        ``samples`` images of the class ``chosen``, in the units of the ``device`` (as of
        ``units``), or in the machine's own.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=9, hidden=4, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.export("five.csv", bits=5)
        >>> tl.load("five.csv").generate(3).states.shape
        (3, 13)
        >>> computer.export("small.cir", capacitance=1e-15, conductance=1e-6)
        """
        from thermoloom.export.netlists import save_netlist

        file = user_path("path", path)
        if file.suffix == ".cir":
            theta = self.parameters.on(self.settings.built)
            save_netlist(file, theta, bits, chosen, samples, seed, device)
        elif device or chosen is not None:
            raise UserError(f"{path}: a table takes neither a class nor a device's units")
        else:
            save_couplings(file, self, bits)

    def units(self, **device: float) -> Realization:
        """The machine on a device: joules, volts, seconds.

        E₀ from one of ``temperature`` (kelvin, 300 by default), ``energy`` (E₀ in joules) and
        ``voltage`` (of x = 1); the unit of time from ``time_unit`` (seconds) or ``conductance``
        (siemens), with the ``capacitance`` of a node (farads).

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=9, hidden=4, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> device = computer.units(capacitance=1e-15, conductance=1e-6)
        >>> print(f"{1e3 * device.voltage:.2f} mV, {1e9 * device.time:.2f} ns")
        6.44 mV, 1.00 ns
        >>> device.summary(heat=computer.generate(5).heat.mean())["heat_J"] < 1e-17
        True
        """
        return realize(self.machine, **device)


def load(path: str | Path) -> Computer:
    """A computer that ``save`` or ``export`` wrote, or that is in a run directory.

    A table of couplings holds neither patterns nor a loss curve.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> machine.solve(tl.digits(4), resize=True).save("four.safetensors")
    >>> len(tl.load("four.safetensors").generate(5))
    5
    """
    kept = open_computer(user_path("path", path))
    return Computer(kept.settings, kept.parameters, kept.patterns, kept.curve)


# --- samples --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Drawn:
    """Samples of a computer, with their heat and work in E₀.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2)
    >>> drawn = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1)
    >>> drawn.images.shape, drawn.heat.shape, drawn.work.shape, drawn.states.shape
    ((5, 7, 7), (5,), (5,), (5, 57))
    """

    computer: Computer
    generated: Generated
    """The complete result: states at start and end, energies by part and stage."""
    classes: NDArray[np.int64] | None
    """The class requested for each sample, where the machine has labels."""
    clamped: bool = False
    """Whether some pixels were given."""

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        work = f", work {self.work.mean():.1f}" if self.computer.machine.stages > 1 else ""
        return f"Drawn({len(self)} samples, heat {self.heat.mean():.1f}{work} E0)"

    @property
    def states(self) -> NDArray[np.float32]:
        """Final states of all units, (samples, N), visible units first."""
        return self.generated.final_states

    @property
    def images(self) -> NDArray[np.float32]:
        """Final states of the visible units, (samples, h, w), or (samples, N_v) if no image."""
        visible = self.states[:, : self.computer.machine.visible]
        return visible.reshape(len(visible), *(self.computer.patterns.shape or (-1,)))

    @property
    def heat(self) -> NDArray[np.float64]:
        """Q of every sample in E₀, positive when given off to the environment."""
        return self.generated.heat

    @property
    def work(self) -> NDArray[np.float64]:
        """W of every sample in E₀, done on the machine by switching stages and moving clamps."""
        return self.generated.work

    def ledger(self) -> Ledger:
        """Heat and work by stage and part, discretization error, bounds on entropy production.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2)
        >>> ledger = machine.solve(tl.digits(0, 1), resize=True).generate(20, seed=1).ledger()
        >>> [row["stage"] for row in ledger.stages], ledger.parts
        ([2, 1], ('onsite', 'visible_hidden', 'hidden_hidden', 'bias'))
        >>> least, most = ledger.dissipation.production
        >>> ledger.first_law_error < 1e-9, least < most
        (True, True)
        """
        from thermoloom.measures.heat_ledger import Ledger

        bounded = self.computer.settings.device.bounded
        return Ledger(self.computer.machine, self.generated, self.clamped or not bounded)

    def quality(self, classifier: str = "") -> Quality:
        """How recognizable and diverse the samples are, and how close to a pattern.

        ``classifier``: a folder of ``thermoloom classifier train``; the bundled one if empty.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> drawn = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1)
        >>> drawn.quality().samples
        5
        """
        from thermoloom.measures.quality import measure_quality

        flat = self.images.reshape(len(self), -1)
        return measure_quality(flat, self.computer.patterns, classifier)

    def show(self, most: int = 60) -> Figure:
        """The first samples on one sheet: a matplotlib figure, which notebooks display.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> drawn = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1)
        >>> drawn.show().savefig("samples.png")
        """
        from thermoloom.presentation.image_sheet import sample_figure

        shape = self.computer.patterns.shape
        if shape is None:
            raise UserError("the visible layer is not an image, so there is nothing to show")
        names = None if self.classes is None else [str(own) for own in self.classes]
        title = f"{len(self)} samples, mean heat {self.heat.mean():.1f} E0"
        return sample_figure(self.images, shape, title, most, names)


# --- results --------------------------------------------------------------------------------------


class Results(Mapping[str, dict[str, Array]]):
    """The results of an experiment: tables by name, each a dict of columns, and a summary.

    Every file is checked against its SHA-256 when it is read.

    >>> import thermoloom as tl
    >>> results = tl.results("results/comparison")
    >>> results["models"]["seed"].dtype, results.summary["experiment"]
    (dtype('int64'), 'comparison')
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def __getitem__(self, table: str) -> dict[str, Array]:
        if table not in self:
            raise KeyError(f"{table}: no such table; there are {', '.join(self)}")
        return self._run.load_table(table)

    def __contains__(self, table: object) -> bool:
        return self._run.has(f"{table}.csv")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(n.removesuffix(".csv") for n in self._run.manifest.files if ".csv" in n))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"Results({self._run.kind}, {self._run.state}: {', '.join(self)})"

    @property
    def summary(self) -> dict[str, Any]:
        """Every number of the page: summary.json, or the results of a run that has none."""
        if not self._run.has(SUMMARY):
            return dict(self._run.results)
        return StudyTables.open(self._run.path).summary

    def frame(self, table: str) -> Any:
        """A table as a pandas DataFrame, where pandas is installed.

        >>> import thermoloom as tl
        >>> results = tl.results("results/comparison")
        >>> heat = results.frame("models").groupby("rule")["heat.mean"].mean()  # doctest: +SKIP
        """
        return _library("pandas", table).DataFrame(self[table])

    def dataset(self, table: str, *dimensions: str) -> Any:
        """A table as an xarray Dataset, where xarray is installed.

        ``dimensions``: columns that name the rows, such as rule and seed; without them there is one
        dimension, ``row``.

        >>> import thermoloom as tl
        >>> results = tl.results("results/comparison")
        >>> models = results.dataset("models", "rule", "seed")  # doctest: +SKIP
        >>> models["heat.mean"].sel(rule="online").mean()  # doctest: +SKIP
        """
        xarray = _library("xarray", table)
        columns = self[table]
        if not dimensions:
            return xarray.Dataset({name: ("row", values) for name, values in columns.items()})
        if unknown := [name for name in dimensions if name not in columns]:
            raise UserError(f"{unknown[0]}: no such column of {table}; it has {', '.join(columns)}")
        frame = self.frame(table).set_index(list(dimensions))
        if not frame.index.is_unique:
            raise UserError(
                f"{', '.join(dimensions)}: several rows of {table} have the same; name more columns"
            )
        return frame.to_xarray()


def _library(name: str, table: str) -> Any:
    """A library of tables that need not be there."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(
            f"{name} is not installed: pip install {name}, or take the columns as NumPy arrays "
            f"with results[{table!r}]"
        ) from None


def results(path: str | Path) -> Results:
    """Tables and summary of an experiment, or of any other run directory.

    >>> import thermoloom as tl
    >>> samples = tl.results("results/comparison")["samples"]
    >>> online = samples["rule"] == "online"
    >>> samples["heat"][online].shape
    (16,)
    """
    return Results(RunDirectory.open(user_path("path", path)))
