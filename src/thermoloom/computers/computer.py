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
from thermoloom.export.physical_units import Realization, realize
from thermoloom.generation import Trajectories, generate, requested_classes, trajectories
from thermoloom.inputs import user_path, whole_number
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
        """Name of the archive, different for different requests."""
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
                f"{theta.machine.dt:g}; train at a smaller learning rate, or with smaller steps"
            )
        return generated

    def classes_of(self, theta: Parameters) -> list[int] | None:
        """The class requested for each sample, where the machine has labels."""
        requested = requested_classes(theta, self.samples, self.classes)
        return None if requested is None else requested.tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Computer:
    """A machine that has learned: θ (``parameters``), ``patterns``, ``settings``, ``curve``.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
    >>> computer.patterns.labels, computer.curve["cycle"], computer["visible_hidden"].shape
    (('0', '1'), array([0., 4.]), (1, 49, 8))
    """

    settings: Settings
    """Settings of the training or solution; ``settings.patterns`` identifies the patterns."""
    parameters: Parameters
    """θ of every stage."""
    patterns: Patterns
    """The learned patterns, of zero mean and unit variance, with names and classes."""
    curve: dict[str, Array]
    """Validation loss: ``cycle``, ``loss`` and ``reduced_loss`` (without squared increments)."""
    solution: Solution | None = None
    """How it was solved; None if it was trained, or read from a file."""
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
        """θ on the ideal machine, because exported couplings do not depend on a device."""
        theta = self.parameters
        return Parameters(self.settings.machine, theta.vector, theta.style_weights)

    def __getitem__(self, block: str) -> Array:
        """A block of θ, such as ``visible_hidden``, ``hidden_hidden``, ``hidden_bias``: (T, …)."""
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
        return f"Computer({self.machine!r}, {len(self.patterns)} patterns, {how})"

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
        """Excess of the expected loss over the optimum's, relative to that at θ = 0: 0 at the
        optimum, 1 if nothing was learned. The optimum is computed once; ``repr`` then shows the
        distance.

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
        """Train another computer for ``cycles`` more cycles, starting from this one's θ.

        Without images, training continues with the learned patterns exactly as if it had never
        stopped (with update noise, up to round-off). Rule, seed and all other settings stay the
        same unless they are passed; a solved computer is trained online.

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

    def on(self, device: Device) -> Computer:
        """A computer with the same θ on a device, where it generates and continues training.

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
        """A computer with the same θ under other conditions: ``kT``, ``duration``, ``dt``,
        ``mobility``, ``J2``, ``J4``, ``onsite``, ``generating``, ``development``, ``windows`` and
        ``label_amplitude`` of the machine, and a ``device``.

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

        ``couplings``: arrays by block name, of the same shapes as ``computer[name]``.

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
        """A computer with the same θ and a window of development, chosen for these images.

        ``images``: held-out images, about as many as ``samples``, used neither for learning nor for
        testing. The search minimizes the distance of samples to them in the features of a
        ``classifier`` (a folder; the bundled one if empty) and penalizes missed ``goals``: correct
        (0), precision (0.85), recall (0.6), and, relative to the images, diversity (0.95) and
        novelty (1); 0 leaves a goal out. ``noise``: variance of the thermal noise that is added to
        the images, by default that of the reference potential; use a small one for grey images.
        ``on_candidate`` is called with each of the ``evaluations`` windows that are compared, about
        every five seconds.

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
        seed = self.settings.generation_seed if seed is None else seed
        if unknown := [name for name in goals or {} if name not in Goals._fields]:
            known = ", ".join(Goals._fields)
            raise UserError(f"goals: {unknown[0]}: no such goal; known: {known}")
        aims, learned = Goals(**(goals or {})), self.patterns.patterns
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

        ``seed``: 90000 + the training seed by default. ``classes``: the classes, by number or name,
        that the label units request, in turn; by default all classes. ``clamp``: an image with some
        known pixels, or several in turn; ``mask`` is true where pixels are known (by default, where
        the image is finite). Known pixels follow their reversed noising path, as in training, or
        are held at rest (``hold``). They are in the units of the data; where every image was scaled
        by itself, they are scaled to the learned patterns at the same pixels. Unknown pixels have
        no influence.

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
        seed = self.settings.generation_seed if seed is None else seed
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
        """Trajectories from noise to samples: ``times`` (n,), ``states`` (samples, n, units), and
        ``heat`` and ``work`` up to each time, (samples, n), in E₀.

        ``every``: steps between two times; the end is always included. ``seed`` and ``classes``:
        as in ``generate``, so the last states are those of its samples.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, stages=2)
        >>> way = machine.solve(tl.digits(0, 1), resize=True).trajectories(3, every=10)
        >>> way.times.shape, way.states.shape, way.heat.shape
        ((6,), (3, 6, 57), (3, 6))
        """
        count, stride = whole_number("samples", samples, 1), whole_number("every", every, 1)
        last = self.machine.generation_steps
        seed = self.settings.generation_seed if seed is None else seed
        numbers = None if classes is None else self.patterns.class_numbers(classes)
        steps = [*range(0, last, stride), last]
        with _advancing(f"generating {count:,} samples", count * last) as advance:
            return trajectories(self.parameters, count, seed, steps, numbers, advance)

    def log_likelihoods(self, images: Source) -> Array:
        """Expected log-likelihood of data under each class, in nats, (n, classes); one column
        without labels.

        It is a lower bound on the log-density of the states in which data is prepared: the expected
        log-likelihood of their noising paths, run backwards. It therefore depends neither on random
        numbers nor on other rows. It is computed for the ideal machine, without imperfections of a
        device.

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

        Couplings are switched on in ``switches`` jumps with a ``rest`` after each, and off again.
        Crooks' theorem predicts slope 1. A smaller slope shows that the states did not reach
        equilibrium at full strength, as in deep wells: choose a longer ``rest`` or a higher ``kT``.
        A machine with labels needs a class. Needs pymbar (``thermoloom[free-energy]``).

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=4, hidden=0, wiring=["visible-visible"], dt=0.01)
        >>> computer = machine.solve([[1.0, 0.5, -1, 0], [-1, 0, 1, 0.5]], scale=None)
        >>> computer.free_energy(samples=2000, switches=8, rest=2.0)  # doctest: +SKIP
        FreeEnergy(Bennett -1.78 ± 0.021, Jarzynski -1.83 ± 0.038, \
Crooks -1.81 ± 0.037 with slope 0.94 ± 0.04 kT)
        """
        whole_number("stage", stage, 0, self.machine.stages - 1)
        number = None if classes is None else self.patterns.class_numbers(classes)[0]
        seed = self.settings.generation_seed if seed is None else seed
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
        """Save the computer in one .safetensors file, which ``load`` and the command line open.

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
        """Write the couplings for a device: a table (.csv, which ``load`` reads back) or, for at
        most 32 units, a netlist for ngspice (.cir).

        ``bits``: bits of a coupling, 2 to 24, or 32 for unquantized float32. A netlist generates
        ``samples`` samples of the class ``class_number``, in the physical units of the ``device``
        (see ``units``), or in those of the machine.

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
        if file.suffix == ".cir":
            theta = self.parameters.on(self.settings.built)
            save_netlist(file, theta, bits, class_number, samples, seed, device)
        elif device or class_number is not None:
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
