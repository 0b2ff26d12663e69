"""A computer: a machine with parameters, its learned patterns and its validation curve.

computer = machine.train(images)            or machine.solve(images)
drawn    = computer.generate(200)           samples, heat, work, quality
computer.save("my.safetensors")             tl.load("my.safetensors")
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.computers.conditions import under
from thermoloom.computers.drawn import Drawn
from thermoloom.engine_choice import EngineSettings, engine_in_use
from thermoloom.errors import DivergedSamples, UserError
from thermoloom.export.physical_units import Realization, realize_device
from thermoloom.generation import Trajectories, generate, requested_classes, trajectories
from thermoloom.inputs import real_number, seed_number, user_path, whole_number
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.device import Device
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.classifier import classifier_in
from thermoloom.measures.free_energy import FreeEnergy, free_energy
from thermoloom.patterns.clamps import clamp_of
from thermoloom.patterns.drive import drive_of, unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.patterns.sources import Source, numpy_array, patterns_from_source
from thermoloom.presentation.call_progress import call_progress, solver_progress
from thermoloom.runs.files import sha256
from thermoloom.runs.formats import array_sha256, canonical
from thermoloom.sections import html_table
from thermoloom.settings import Settings
from thermoloom.theory.distance import distance_from_optimum
from thermoloom.theory.likelihood import log_likelihoods
from thermoloom.theory.solver import Solution

if TYPE_CHECKING:
    from thermoloom.computers.development_search import Candidate, OnCandidate
    from thermoloom.computers.learning import Code, OnCycle

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """A request for samples: their number, seed, classes and clamp, the device, the conditions."""

    samples: int
    seed: int
    classes: Sequence[int] | int | None = None
    """Requested in turn; None: all classes of the machine, where it has labels."""
    clamp: Clamp | None = None
    device: Device | None = None
    """The device on which θ is written; None: that of the training."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the machine that differ from those of the training (``CONDITIONS``)."""

    @property
    def archive(self) -> str:
        """Name of the archive; different requests have different names."""
        name = f"samples-{self.seed}-{self.samples}"
        special = self._special()
        if engine_in_use() != EngineSettings():
            special["engine"] = engine_in_use().identity
        if special == SampleRequest(self.samples, self.seed)._special():
            return name
        return f"{name}-{sha256(canonical(special).encode())[:8]}"

    def _special(self) -> dict[str, Any]:
        clamp = self.clamp
        held = (
            None
            if clamp is None
            else [array_sha256(clamp.mask), array_sha256(clamp.values), clamp.follow]
        )
        others = {} if self.device is None else {"device": asdict(self.device)}
        others |= {"conditions": dict(self.conditions)} if self.conditions else {}
        return {"classes": self.classes, "clamp": held} | others

    def draw(
        self, theta: Parameters, settings: Settings, on_progress: Callable[[int], None] | None
    ) -> Generated:
        """Generate with the θ of a computer, under the requested conditions."""
        if self.device is not None or self.conditions:
            theta = theta.on(under(settings, self.conditions, self.device).built)
        generated = generate(
            theta, self.samples, self.seed, self.classes, self.clamp, on_progress=on_progress
        )
        lost = int((~np.isfinite(generated.final_states).all(axis=1)).sum())
        if lost:
            raise DivergedSamples(
                f"{lost} of {self.samples} samples diverged: couplings up to "
                f"{np.abs(theta.vector).max():.2g} are too strong for steps of machine.dt = "
                f"{theta.machine.dt:g}; reduce the learning rate or machine.dt"
            )
        return generated

    def classes_of(self, theta: Parameters) -> list[int] | None:
        """The class requested for each sample, where the machine has labels."""
        requested = requested_classes(theta, self.samples, self.classes)
        return None if requested is None else requested.tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Computer:
    """A machine that has learned, from ``Machine.train``, ``Machine.solve`` or ``load``.

    ``computer[block]`` is a block of its parameters θ (couplings and biases), in E₀.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
    >>> computer.patterns.labels, computer.curve["cycle"], computer["visible_hidden"].shape
    (('0', '1'), array([0., 4.]), (1, 49, 8))
    """

    settings: Settings
    """Settings of the training or solution; ``settings.patterns`` identifies the patterns."""
    parameters: Parameters
    """θ of every stage, in E₀."""
    patterns: Patterns
    """The learned patterns (scaled data), with names and classes."""
    curve: dict[str, Array]
    """Validation loss by column: ``cycle``, ``loss`` and ``reduced_loss`` (the loss without its
    squared increments, which do not depend on θ)."""
    solution: Solution | None = None
    """Iterations, accuracy and expected heat of the solution; None if the computer was trained or
    read from a file."""
    planned_cycles: int | None = None
    """Planned cycles of an unfinished training; None if it is finished."""
    memory: dict[str, Array] = field(default_factory=dict)
    """State of the learning rule besides θ, such as momentum."""

    @property
    def machine(self) -> Machine:
        """The ideal machine, without imperfections of a device."""
        return self.settings.machine

    @property
    def exported(self) -> Parameters:
        """θ on the ideal machine; exported couplings do not depend on a device."""
        theta = self.parameters
        return Parameters(self.settings.machine, theta.vector, theta.style_weights)

    def __getitem__(self, block: str) -> Array:
        """A block of θ, such as ``visible_hidden`` or ``hidden_bias``: an array (stages, …) in E₀,
        whose first stage is the one next to the pattern.
        """
        if block not in self.parameters.layout:
            known = ", ".join(self.parameters.arrays)
            raise UserError(f"{block}: no such block of θ; this machine has {known}")
        return self.parameters[block]

    def _repr_html_(self) -> str:
        device = self.settings.device
        how = f"{self._how}{self._far}"
        rows = {"machine": repr(self.machine), "patterns": repr(self.patterns), "θ": how}
        rows |= {} if device.ideal else {"device": repr(device)}
        return html_table(rows, "Computer")

    @property
    def _how(self) -> str:
        training = self.settings.training
        if self.settings.solved:
            return "solved"
        return f"{training.rule}, {self.unfinished or f'{training.cycles} cycles'}"

    @property
    def unfinished(self) -> str:
        """``unfinished: 120 of 300 cycles`` of an interrupted or running training, else empty."""
        if self.planned_cycles is None:
            return ""
        return f"unfinished: {self.settings.training.cycles} of {self.planned_cycles} cycles"

    def __repr__(self) -> str:
        device = self.settings.device
        built = "" if device.ideal else f", on {device!r}"
        how = f"{self._how}{self._far}{built}"
        count = len(self.patterns)
        patterns = "1 pattern" if count == 1 else f"{count} patterns"
        return f"Computer({self.machine!r}, {patterns}, {how})"

    @property
    def _far(self) -> str:
        """The distance from the optimum, once it is known."""
        distance = self.__dict__.get("_distance")
        return "" if distance is None else f", {100 * distance:.2g} % from its optimum"

    @cached_property
    def _distance(self) -> float:
        self.patterns.needed_for("distance_from_optimum")
        drive = drive_of(self.patterns, self.machine)
        with solver_progress() as report:
            return distance_from_optimum(self.parameters, drive, report)

    def distance_from_optimum(self) -> float:
        """How far the expected loss is from its minimum: 0 at the optimum, 1 at θ = 0.

        It is (L − L_min)/(L_0 − L_min), where L_0 is the expected loss at θ = 0. The optimum is
        computed once; ``repr`` then shows the distance.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> abs(machine.solve(tl.digits(0, 1), resize=True).distance_from_optimum()) < 1e-4
        True
        """
        return self._distance

    def train(
        self,
        images: Source | None = None,
        classes: ArrayLike | None = None,
        *,
        cycles: int = 300,
        resize: bool = False,
        code: Code | None = None,
        on_cycle: OnCycle | None = None,
        **settings: Any,
    ) -> Computer:
        """Train another computer for ``cycles`` more cycles (300), starting from this one's θ.

        ``images``: data to learn; by default the learned patterns, with which training continues
        exactly as if it had never stopped (with update noise, up to round-off). ``classes``,
        ``resize``, ``code``: as in ``Machine.train``, for new images. ``on_cycle(cycles, loss)`` is
        called after every cycle with the cycles done and the latest validation loss. Rule, seed
        and all other ``settings`` of training stay the same unless they are passed; a solved
        computer is trained online.

        >>> import thermoloom as tl
        >>> machine, images = tl.Machine(visible=49, hidden=8, duration=0.05), tl.digits(0, 1)
        >>> parts = machine.train(images, cycles=4, resize=True).train(cycles=2)
        >>> whole = machine.train(images, cycles=6, resize=True)
        >>> bool((parts["hidden_bias"] == whole["hidden_bias"]).all())
        True
        """
        from thermoloom.computers.learning import continue_training

        return continue_training(
            self, images, classes, cycles, resize=resize, code=code, on_cycle=on_cycle, **settings
        )

    def _seed(self, seed: int | None) -> int:
        """A seed of generation; by default that of the settings."""
        return self.settings.generation_seed if seed is None else seed_number("seed", seed)

    def on(self, device: Device) -> Computer:
        """A computer with the same θ on a device, on which it generates and continues training.

        ``device``: its imperfections, such as ``tl.Device(gain_error=0.1)``.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> chip = computer.on(tl.Device(gain_error=0.3, dead=0.05))
        >>> recalibrated = chip.train(cycles=4)
        >>> [bool((c.generate(3).heat == computer.generate(3).heat).any()) for c in (chip,
        ...  recalibrated)]
        [False, False]
        """
        return self.at(device=device)

    def at(self, *, device: Device | None = None, **conditions: Any) -> Computer:
        """A computer with the same θ under other conditions.

        ``device``: the device on which it runs. ``conditions``: settings of the machine to change,
        of ``kT``, ``duration``, ``dt``, ``mobility``, ``J2``, ``J4``, ``onsite``, ``generating``,
        ``development``, ``windows`` and ``label_amplitude``, in the units of ``Machine``. All
        others stay as they are.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.at(kT=0.2, duration=0.1, device=tl.Device(bits=4))
        Computer(Machine(visible=49, hidden=8, kT=0.2, duration=0.1), 2 patterns, solved, \
on Device(bits=4))
        """
        settings = under(self.settings, conditions, device)
        theta = self.parameters.on(settings.built)
        return replace(self, settings=settings, parameters=theta, memory={})

    def with_couplings(self, couplings: Mapping[str, ArrayLike]) -> Computer:
        """A computer with some blocks of θ replaced, for example by measured ones.

        ``couplings``: arrays by block name, in E₀, of the same shapes as ``computer[name]``.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> weak = computer.with_couplings({"visible_hidden": 0.5 * computer["visible_hidden"]})
        >>> weak["visible_hidden"].shape
        (1, 49, 8)
        """
        for name in couplings:
            self[name]
        arrays = {name: numpy_array(name, array) for name, array in couplings.items()}
        for name, array in arrays.items():
            if array.dtype.kind not in "iuf":
                raise UserError(f"{name}: has {array.dtype} values; expected real numbers")
            with np.errstate(over="ignore"):
                arrays[name] = array.astype(np.float32)
            if not np.isfinite(arrays[name]).all():
                raise UserError(f"{name}: has values that are not finite float32 numbers")
        theta = Parameters.from_arrays(self.parameters.machine, self.parameters.arrays | arrays)
        theta.check()
        return replace(self, parameters=theta, solution=None, memory={})

    def develop(
        self,
        images: Source,
        classes: ArrayLike | None = None,
        *,
        noise: float | None = None,
        classifier: str = "",
        goals: Mapping[str, float] | None = None,
        samples: int = 1000,
        evaluations: int = 40,
        seed: int | None = None,
        resize: bool = False,
        on_candidate: OnCandidate | None = None,
    ) -> Computer:
        """A computer with the same θ and a window of development that suits these images.

        Development is a stage after the last one, in which the samples become sharper. The search
        compares ``evaluations`` windows (40) and two first guesses, about one every five seconds.
        It minimizes the Fréchet distance of samples from the images in the features of a
        classifier.

        ``images``: held-out images, about as many as ``samples``, used neither for learning nor for
        testing. ``classes``, ``resize``: as in ``Machine.train``. ``noise``: variance of the
        thermal noise that is added to the images (k_BT/V″ of the reference potential); use a small
        one for grey images. ``classifier``: a folder that ``thermoloom classifier train`` wrote;
        the bundled classifier if empty. ``goals``: values that the samples should reach, by name:
        correct (0, the rate of the correct class), precision (0.85), recall (0.6), and, relative to
        the images, diversity (0.95) and novelty (1); 0 leaves a goal out. ``samples``: samples per
        window (1000). ``seed``: 90000 + the training seed by default. ``on_candidate(candidate)``
        is called after every window.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(hidden=0, labels=10, wiring=["visible-visible", "visible-label"],
        ...                      biases=["visible"], J4=0.0, duration=0.1, dt=0.01)
        >>> images = tl.digits()
        >>> sharp = machine.solve(images).develop(images, samples=20, evaluations=1)
        >>> len(sharp.machine.development)
        1
        """
        from thermoloom.computers.development_search import STARTS, Goals, Search

        patterns = patterns_from_source(
            images, classes, self.machine, resize, scale=self.patterns.scale
        )
        judge = classifier_in(classifier)
        seed = self._seed(seed)
        if unknown := [name for name in goals or {} if name not in Goals._fields]:
            known = ", ".join(Goals._fields)
            raise UserError(f"goals: {unknown[0]}: no such goal; known: {known}")
        whole_number("samples", samples, 2)
        whole_number("evaluations", evaluations, 1)
        if noise is not None and real_number("noise", noise) < 0:
            raise UserError(f"noise = {noise}: must not be negative")
        wanted = {name: real_number(f"goals: {name}", goal) for name, goal in (goals or {}).items()}
        aims, learned = Goals(**wanted), self.patterns.patterns
        search = Search.of(self.parameters, patterns, learned, noise, judge, samples, seed, aims)
        total = evaluations + len(STARTS)
        with call_progress("comparing windows", total, "windows") as report:
            numbers = itertools.count(1)

            def after_candidate(candidate: Candidate) -> None:
                report(min(next(numbers), total))
                if on_candidate:
                    on_candidate(candidate)

            window = search.best(evaluations, after_candidate).window
        machine = replace(self.machine, development=(window,))
        settings = replace(self.settings, machine=machine)
        return replace(self, settings=settings, parameters=self.parameters.on(settings.built))

    def generate(
        self,
        samples: int = 200,
        seed: int | None = None,
        *,
        classes: ArrayLike | None = None,
        clamp: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        hold: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> Drawn:
        """Generate samples with the frozen computer and measure their heat and work.

        ``samples``: their number (200). ``seed``: 90000 + the training seed by default.
        ``classes``: the classes, by number or name, that the label units request, in turn; by
        default all classes. ``on_progress(steps)`` is called with the number of steps done since
        its last call, over all samples.

        ``clamp``: an image to complete, (h, w), (h, w, c) or (N_v,), or several that are used in
        turn. ``mask``: true where its pixels are known; by default, where the image is finite.
        Known pixels are in the units of the data; where every image was scaled by itself, they are
        scaled to the learned patterns at the same pixels. Unknown pixels have no influence.
        ``hold``: known pixels stay at rest; by default they follow their reversed noising path, as
        in training.

        >>> import numpy as np, thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
        >>> image = np.eye(7); image[4:] = np.nan
        >>> computer.generate(3, clamp=image).images.shape
        (3, 7, 7)
        """
        machine = self.machine
        if clamp is None and (mask is not None or hold):
            raise UserError("mask, hold: need an image with known pixels; pass clamp too")
        count, known = whole_number("samples", samples, 1), None
        if classes is not None:
            classes = self.patterns.class_numbers(classes)
        if clamp is not None:
            marked = None if mask is None else numpy_array("mask", mask)
            image = numpy_array("clamp", clamp)
            known = clamp_of(machine, self.patterns, image, count, marked, hold)
        seed = self._seed(seed)
        request = SampleRequest(count, seed, classes, known)
        total = count * machine.generation_steps
        with _advancing(f"generating {count:,} samples", total, on_progress) as advance:
            generated = request.draw(self.parameters, self.settings, advance)
        requested = requested_classes(self.parameters, count, classes)
        return Drawn(self, generated, requested, clamped=known is not None)

    def trajectories(
        self,
        samples: int = 5,
        every: int = 50,
        seed: int | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> Trajectories:
        """Trajectories from noise to samples, with heat and work up to each time.

        The result has ``times`` (n,), ``states`` (samples, n, units), and ``heat`` and ``work``
        (samples, n), in E₀. ``samples``: number of trajectories (5). ``every``: steps between two
        times (50); the end is always included. ``seed``, ``classes``: as in ``generate``, so the
        last states are those of its samples.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2)
        >>> way = machine.solve(tl.digits(0, 1), resize=True).trajectories(3, every=10)
        >>> way.times.shape, way.states.shape, way.heat.shape
        ((6,), (3, 6, 57), (3, 6))
        """
        count, stride = whole_number("samples", samples, 1), whole_number("every", every, 1)
        last = self.machine.generation_steps
        seed = self._seed(seed)
        numbers = None if classes is None else self.patterns.class_numbers(classes)
        steps = [*range(0, last, stride), last]
        with _advancing(f"generating {count:,} samples", count * last) as advance:
            return trajectories(self.parameters, count, seed, steps, numbers, advance)

    def log_likelihoods(self, images: Source) -> Array:
        """Expected log-likelihood of data under each class, in nats: an array (n, classes), of one
        column without labels.

        ``images``: data of any source, as in ``Machine.train``.

        The result is a lower bound on the log-density of the states in which the data are prepared:
        the expected log-likelihood of their noising paths, run backwards. It therefore depends
        neither on random numbers nor on other rows. It is computed for the ideal machine, without
        imperfections of a device.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, labels=2)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.log_likelihoods(computer.patterns.patterns).argmax(axis=1)
        array([0, 1])
        """
        machine = self.machine
        if machine.hidden and machine.code in ("given", "clusters"):
            raise UserError(
                f"machine.code = {machine.code!r}: new data has no fields for hidden units; use "
                "projection, copy or signs, or hidden=0"
            )
        scale = self.patterns.scale
        patterns = patterns_from_source(images, None, machine, resize=None, scale=scale)
        with _advancing("likelihoods", len(patterns)) as advance:
            return log_likelihoods(self.exported, unit_fields(patterns, machine), advance)

    def free_energy(
        self,
        stage: int = 0,
        *,
        samples: int = 400,
        switches: int = 20,
        rest: float = 4.0,
        classes: int | str | None = None,
        seed: int | None = None,
    ) -> FreeEnergy:
        """ΔF of switching a stage's couplings on, in k_BT: by Bennett's acceptance ratio, by
        Jarzynski's equality and by Crooks' theorem, each with its standard error.

        Couplings are switched on in ``switches`` jumps (20) with a ``rest`` (4 units of time) after
        each, and off again. Crooks' theorem predicts slope 1; a smaller slope means that the states
        did not reach equilibrium: choose a longer ``rest`` or a higher ``kT``. ``stage``: the index
        of the stage (0, next to the pattern). ``samples``: trajectories in each direction (400).
        ``classes``: the class, by number or name, that the label units request; a machine with
        labels needs one. ``seed``: 90000 + the training seed by default. Needs pymbar
        (``pip install 'thermoloom[free-energy]'``).

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=4, hidden=0, wiring=["visible-visible"], dt=0.01)
        >>> computer = machine.solve([[1.0, 0.5, -1, 0], [-1, 0, 1, 0.5]], scale=None)
        >>> computer.free_energy(samples=2000, switches=8, rest=2.0)  # doctest: +SKIP
        FreeEnergy(Bennett -1.78 ± 0.021, Jarzynski -1.83 ± 0.038, \
Crooks -1.81 ± 0.037 with slope 0.94 ± 0.04 kT)
        """
        whole_number("stage", stage, 0, self.machine.stages - 1)
        number = None if classes is None else self.patterns.class_numbers(classes)[0]
        seed = self._seed(seed)
        with call_progress("switching couplings", 1, "%") as report:
            return free_energy(
                self.parameters,
                stage,
                samples,
                seed,
                switches,
                rest,
                number,
                crooks=True,
                on_progress=report,
            )

    def save(self, path: str | Path) -> None:
        """Save the computer in one file, which ``load`` and the command line open.

        ``path``: the file, which must end in .safetensors; an existing file is replaced.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> machine.train(tl.digits(0, 1), cycles=4, resize=True).save("my.safetensors")
        >>> tl.load("my.safetensors")
        Computer(Machine(visible=49, hidden=8, duration=0.05), 2 patterns, online, 4 cycles)
        """
        from thermoloom.computers.computer_files import save_computer

        save_computer(user_path("path", path), self)

    def export(
        self,
        path: str | Path,
        bits: int = 32,
        *,
        class_number: int | None = None,
        samples: int = 100,
        seed: int = 1,
        **device: float,
    ) -> None:
        """Write the couplings for a device, as a table or as a netlist.

        ``path``: a table (.csv, which ``load`` reads back) or, for at most 32 units, a netlist for
        ngspice (.cir). ``bits``: bits of a coupling, 2 to 24, or 32 (the default) for unquantized
        float32.

        The other arguments are for netlists. ``class_number``: the class to generate, which a
        machine with labels needs. ``samples``: their number (100). ``seed``: of the noise (1).
        ``device``: physical units, as in ``units``; by default those of the machine.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=9, hidden=4, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.export("five.csv", bits=5)
        >>> tl.load("five.csv").generate(3).states.shape
        (3, 13)
        >>> computer.export("small.cir", capacitance=1e-15, conductance=1e-6)
        """
        from thermoloom.computers.computer_files import save_couplings
        from thermoloom.export.netlists import save_netlist

        file = user_path("path", path)
        if file.suffix not in (".csv", ".cir"):
            raise UserError(f"{path}: must end in .csv (a table) or .cir (a netlist)")
        if file.suffix == ".cir":
            theta = self.parameters.on(self.settings.built)
            save_netlist(file, theta, bits, class_number, samples, seed, device)
        elif device or class_number is not None:
            raise UserError(f"{path}: a table takes neither class_number nor units of a device")
        else:
            save_couplings(file, self, bits)

    def units(self, **device: float) -> Realization:
        """The machine in physical units: joules, volts, seconds.

        ``device``: properties of the device. Its energy E₀ follows from one of ``temperature`` (in
        kelvin, 300 by default), ``energy`` (E₀ in joules) and ``voltage`` (in volts, of x = 1). Its
        unit of time follows from ``time_unit`` (in seconds) or ``conductance`` (in siemens).
        ``voltage`` and ``conductance`` also need the ``capacitance`` of a node (in farads).

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=9, hidden=4, duration=0.05)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> device = computer.units(capacitance=1e-15, conductance=1e-6)
        >>> print(f"{1e3 * device.voltage:.2f} mV, {1e9 * device.time:.2f} ns")
        6.44 mV, 1.00 ns
        >>> device.summary(heat=computer.generate(5).heat.mean())["heat_J"] < 1e-17
        True
        """
        return realize_device(self.machine, device)


@contextmanager
def _advancing(
    title: str, total: float, on_progress: Callable[[int], None] | None = None
) -> Iterator[Callable[[Any], None]]:
    """Progress of a call that reports the work done since its last report."""
    done = 0.0
    with call_progress(title, total, "%") as report:

        def advance(new: Any) -> None:
            nonlocal done
            done += new
            report(done)
            if on_progress:
                on_progress(new)

        yield advance
