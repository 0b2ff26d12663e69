"""The machine: its units, their wiring and their dynamics.

    V_θ(x) = Σ_free V_onsite(x_i) + Σ_wired J_ij x_i x_j + Σ_biased b_i x_i
    dx_i   = −μ ∂_iV_θ dt + √(2μk_BT) dW_i                                  for free units

Units come in groups: ``visible`` (the image), ``hidden`` (the code of a pattern) and ``label``
(clamped at the word of a class). A bias is a coupling to one more clamped unit that is always 1.
The paper's machine is the default: visible and hidden units, wired visible–hidden and
hidden–hidden, biases on hidden units, one stage, no labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from thermoloom.errors import UserError
from thermoloom.extensions import is_extension
from thermoloom.inputs import LARGEST, LARGEST_COUNT, SMALLEST
from thermoloom.machine.onsite import (
    EXTENSION,
    ONSITE,
    CentredQuartic,
    Development,
    Onsite,
    Well,
    own_potential,
)
from thermoloom.machine.protocol import RAMPS, Waveform, sampled, windows
from thermoloom.machine.wires import MOST_UNITS, TOPOLOGIES, are_joined, neighbours, wires
from thermoloom.sections import Section, html_table, require

if TYPE_CHECKING:
    from thermoloom.computers.computer import Computer
    from thermoloom.computers.learning import Code, OnCycle, OnIteration, Source
    from thermoloom.machine.device import Device

FREE = ("visible", "hidden")
"""Groups of units that move, in the order that they have in a state."""
WIRES = (
    "visible-hidden",
    "hidden-hidden",
    "visible-visible",
    "visible-label",
    "hidden-label",
)
"""Pairs of groups that can be coupled."""
CODE_NAMES = ["projection", "copy", "signs", "clusters", "given"]
"""Names of the codes of hidden units; ``thermoloom.patterns.codes`` defines each of them."""
SCALES = ("sample", "feature", "fixed", "none")
"""Names of the scales of data; ``thermoloom.patterns.scale`` defines each of them."""
_ROUND_OFF = 1e-6
"""t_f/Δt may differ from a whole number by this fraction of it: 0.3/0.1 is 2.9999999999999996, and
numbers that were float32 once are off by 1e-7."""


@dataclass(frozen=True, repr=False)
class Machine(Section):
    """A machine before it learns: units, wiring, stages and dynamics, without parameters θ.

        dx = −μ ∂V_θ dt + √(2 μ k_BT) dW,     in steps of Δt

    ``train`` and ``solve`` return a computer: the machine with parameters learned from data. The
    arguments are the settings of ``[machine]``. The defaults are the paper's: 784 visible and 512
    hidden units, one stage, no labels. Energies are in E₀ and times in τ; states are dimensionless.

    >>> import thermoloom as tl
    >>> tl.Machine(hidden=64, labels=10, stages=4, code="clusters")
    Machine(hidden=64, labels=10, stages=4, code='clusters')
    """

    section: ClassVar[str] = "machine"

    visible: int = 784
    """N_v, number of visible units (28 × 28 pixels by default)."""
    hidden: int = 512
    """N_h, number of hidden units; 0: a machine of visible units alone."""
    labels: int = 0
    """Number of classes that can be requested, each with its label units; 0: no labels."""
    styles: int = 1
    """Label units per class. With more than one, the patterns of a class are grouped by k-means,
    each group has its own unit, and generation draws a group with its frequency in the data."""
    label_amplitude: float = 1.0
    """Value of the label unit of the requested class; the others are 0."""
    wiring: tuple[str, ...] = ("visible-hidden", "hidden-hidden", "visible-label", "hidden-label")
    """Pairs of groups that are coupled: visible-hidden, hidden-hidden, visible-visible,
    visible-label, hidden-label (the last two only if there are labels)."""
    topology: str = "complete"
    """Which pairs of units in coupled groups are joined by a wire: complete (all pairs), grid
    (pairs within ``radius`` on a square sheet), moore (pairs within ``radius`` rows and columns:
    eight neighbours if it is 1), random (``degree`` wires per unit) or edges (a list)."""
    radius: int = 0
    """Longest wire on the sheet, in sites: a Manhattan distance for grid, the number of rows and of
    columns for moore. Other topologies have no radius: 0."""
    degree: int = 0
    """Mean number of wires per unit in a random topology; 0 for the others."""
    topology_seed: int = 42
    """Seed of a random topology."""
    edges: str = ""
    """Wires of the topology edges. In Python, the result of tl.edges; on the command line, a file
    (text or .npy) with pairs of units, counted from 0, visible ones first. Stored as a list."""
    biases: tuple[str, ...] = ("hidden",)
    """Groups whose units have a bias: visible, hidden."""
    stages: int = 1
    """T, number of windows of the noising path, each with its own parameters."""
    windows: tuple[float, ...] = ()
    """End of each stage as a fraction of t_f, rising to 1; equal windows if empty."""
    ramp: str = "power"
    """How the field of a pattern falls during noising: power, as [1 − t/(e t_f)]ⁿ."""
    ramp_end: float = 0.75
    """e, the fraction of t_f after which the field of a pattern is 0."""
    ramp_power: float = 1.0
    """n, exponent of the ramp: 1 is linear; with a larger n the field falls earlier."""
    protocol: Annotated[Any, Waveform()] = ()
    """Amplitude a of the field of a pattern, which replaces the ramp: a function of t/t_f, or one
    number for each step. An object with amplitude(t/t_f) may also have a preparation."""
    preparation: Annotated[Any, Waveform()] = ()
    """Amplitude of the field while a pattern is imprinted, in the same form; 2 if empty."""
    code: str = "projection"
    """Code of the hidden units for a pattern s: projection (Pᵀs with a random P), copy (of pixels),
    signs (±A by the sign of Pᵀs), clusters (a random word of ±A for each k-means cluster) or given
    (an array or a function that you pass)."""
    code_seed: int = 42
    """Seed of the random projection, or of the random words of a code."""
    code_amplitude: float = 2.0
    """A, size of the words ±A of the codes signs and clusters."""
    code_clusters: int = 10
    """Clusters per class in the code clusters; each has its own word."""
    onsite: Annotated[Any, EXTENSION] = "quartic"
    """Onsite potential: quartic, J₂x² + J₄x⁴; or your own, an object with energy and gradient (on
    the command line module:object)."""
    J2: float = 1.0
    """Quadratic onsite coefficient, in E₀."""
    J4: float = 1.0
    """Quartic onsite coefficient, in E₀."""
    generating: tuple[Well, ...] = ()
    """Onsite potentials of V_θ that differ from the reference potential, which governs preparation
    and noising; each a tl.Well, or a table of J2, J4, centre, groups and stages."""
    development: tuple[Development, ...] = ()
    """Windows appended to generation after t_f; each a tl.Development, or a table of J2, J4,
    centre, neighbours, learned and duration."""
    kT: float = 0.1
    """Thermal energy k_BT, in E₀."""
    mobility: float = 1.0
    """Mobility μ, in 1/(E₀ τ)."""
    dt: float = 1e-3
    """Integration step Δt, in τ."""
    duration: float = 2.5
    """Trajectory time t_f, in τ: a multiple of Δt."""
    scale: str = "sample"
    """How data is scaled to patterns: each sample to zero mean and unit variance (sample, the
    paper's), each column likewise (feature, for tables), by patterns.mean and patterns.deviation
    (fixed), or not at all (none)."""

    def check(self) -> None:
        self._positive("visible", "styles", "stages", "code_clusters", "code_amplitude")
        self._positive("kT", "mobility", "dt", "duration", "label_amplitude")
        self._positive("ramp_end", "ramp_power")
        self._non_negative("hidden", "J4", "labels", "code_seed", "topology_seed")
        must = "must not be negative: in a double well a noising path never forgets its pattern; "
        self._require("J2", self.J2 >= 0, must + "use machine.generating for a double well")
        must = "at least one must be positive, or no unit is confined"
        self._require("J2, J4", self.J2 > 0 or self.J4 > 0, must)
        must = "styles are label units of a class; set machine.labels, or use 1 style"
        self._require("styles", self.styles == 1 or self.labels > 0, must)
        self._require("ramp_end", self.ramp_end <= 1, "must be at most 1")
        _among("wiring", self.wiring, WIRES)
        _among("biases", self.biases, FREE)
        _among("code", (self.code,), CODE_NAMES)
        self._check_onsite()
        _among("ramp", (self.ramp,), tuple(RAMPS))
        _among("scale", (self.scale,), SCALES)
        self._check_time()
        self._sample_protocol()
        self._check_windows()
        self._check_generating()
        self._check_topology()
        self._check_development()

    def _check_onsite(self) -> None:
        if not is_extension(self.onsite):
            must = f"must be one of {', '.join(ONSITE)}, or module:object"
            return self._require("onsite", self.onsite in ONSITE, must)
        must = f"applies to {', '.join(ONSITE)} only, not to your own machine.onsite; leave it out"
        for key in ("J2", "J4"):
            self._require(key, getattr(self, key) == getattr(Machine, key), must)
        own_potential(self.onsite)
        return None

    def _check_time(self) -> None:
        must = f"must be at least one step, machine.dt = {self.dt}"
        self._require("duration", self.duration >= self.dt, must)
        counted = {"machine.visible + hidden": self.units, "machine.duration/dt": self.steps}
        for key, count in counted.items():
            require(count <= LARGEST_COUNT, key, count, f"must be at most {LARGEST_COUNT}")
        ratio = self.duration / self.dt
        if abs(ratio - self.steps) > _ROUND_OFF * self.steps:
            low, high = (count * self.dt for count in (math.floor(ratio), math.ceil(ratio)))
            raise UserError(
                f"machine.duration = {self.duration}: not a multiple of machine.dt = {self.dt}; "
                f"the nearest are {low:.12g} and {high:.12g}"
            )
        for meaning, value in (
            ("μΔt", self.drift),
            ("μΔt/2k_BT", self.residual_scale),
            ("√(2μk_BTΔt)", self.noise_amplitude),
        ):
            must = f"{meaning} = {value:.2g} is outside the range of float32"
            self._require("mobility, dt, kT", SMALLEST <= value <= LARGEST, must)

    def _sample_protocol(self) -> None:
        """Store protocol and preparation as numbers, which need no source code."""
        preparation = self.preparation or getattr(self.protocol, "preparation", ())
        preparation = Waveform().text("machine.preparation", preparation)
        for key, waveform in (("protocol", self.protocol), ("preparation", preparation)):
            object.__setattr__(self, key, sampled(f"machine.{key}", waveform, self.steps))
        must = "must not end at 0, which would imprint no pattern"
        if self.preparation:
            require(self.preparation[-1] != 0, "machine.preparation", 0, must)
        if self.protocol:
            for key in ("ramp", "ramp_end", "ramp_power"):
                must = "has no effect with machine.protocol; set only one of them"
                self._require(key, getattr(self, key) == getattr(Machine, key), must)

    def _check_windows(self) -> None:
        must = f"must not exceed the {self.steps} steps of a trajectory"
        self._require("stages", self.stages <= self.steps, must)
        if self.windows:
            fit = len(self.windows) == self.stages and self.windows[-1] == 1
            require(
                fit,
                "machine.windows",
                list(self.windows),
                f"must be {self.stages} fractions of t_f, one for the end of each stage, the last "
                "equal to 1",
            )
        require(
            all(first < last for first, last in windows(self)),
            "machine.windows",
            list(self.windows),
            "must rise, by at least one step from stage to stage",
        )

    def _check_generating(self) -> None:
        if not self.generating:
            return
        must = "machine.generating replaces the quartic potential only; use onsite = 'quartic'"
        self._require("onsite", self.onsite == "quartic", must)
        for well in self.generating:
            _among("generating.groups", well.groups, FREE)
            must = f"must be stages from 0 to {self.stages - 1}"
            known = all(0 <= stage < self.stages for stage in well.stages)
            require(known, "machine.generating.stages", list(well.stages), must)
        for stage in range(self.stages):
            for group in FREE:
                entries = sum(well.rules(group, stage) for well in self.generating)
                must = f"{entries} potentials for {group} units in stage {stage}; use one"
                require(entries < 2, "machine.generating", entries, must)

    def _check_development(self) -> None:
        if not self.development:
            return
        must = "machine.development replaces the quartic potential only; use onsite = 'quartic'"
        self._require("onsite", self.onsite == "quartic", must)
        for window in self.development:
            must = f"must be at least one step, machine.dt = {self.dt}"
            key = "machine.development.duration"
            require(window.duration >= self.dt, key, window.duration, must)
            if window.neighbours:
                self._check_springs(window)

    @property
    def takes_springs(self) -> bool:
        """Whether all neighbouring pixels have the wires and biases that springs consist of."""
        wired = self.wired("visible-visible") and "visible" in self.biases
        if wired and self.sparse:
            return bool(are_joined(self, neighbours(self.visible)).all())
        return wired

    def _check_springs(self, window: Development) -> None:
        must = "needs wires between neighbouring pixels and visible biases; add visible-visible to "
        must += "machine.wiring and visible to machine.biases, or use 0"
        require(self.takes_springs, "machine.development.neighbours", window.neighbours, must)

    def _check_topology(self) -> None:
        _among("topology", (self.topology,), TOPOLOGIES)
        self._non_negative("radius", "degree")
        uses = {"radius": ("grid", "moore"), "degree": ("random",), "edges": ("edges",)}
        for key, topologies in uses.items():
            is_set, needed = getattr(self, key) not in (0, ""), self.topology in topologies
            self._require("topology", is_set or not needed, f"needs machine.{key}")
            only = " or ".join(map(repr, topologies))
            must = f"applies to machine.topology = {only} only"
            self._require(key, needed or not is_set, must)
        if self.sparse:
            require(
                self.units <= MOST_UNITS,
                "machine.visible + hidden",
                self.units,
                f"must be at most {MOST_UNITS} where machine.topology = {self.topology!r}",
            )
            require(
                len(wires(self)) > 0,
                "machine.topology, machine.wiring",
                (self.topology, list(self.wiring)),
                "no wire joins two units; add pairs of groups to machine.wiring",
            )

    def _repr_html_(self) -> str:
        from thermoloom.machine.parameters import layout

        sizes = {name: self.size_of(name) for name in ("visible", "hidden", "label")}
        units = ", ".join(f"{count:,} {name}" for name, count in sizes.items() if count)
        edges = sum(block.edges for block in layout(self).blocks)
        stages = f" for each of {self.stages} stages" if self.stages > 1 else ""
        shape = {"units": units, "couplings and biases": f"{edges:,}{stages}"}
        changed = self._changed().items()
        others = {key: value for key, value in changed if key not in ("visible", "hidden")}
        return html_table(shape | others, "Machine")

    @property
    def sparse(self) -> bool:
        """Whether some pairs of coupled groups have no wire."""
        return self.topology != "complete"

    @property
    def units(self) -> int:
        """N = N_v + N_h, the free units; visible units come first in every state."""
        return self.visible + self.hidden

    @property
    def groups(self) -> dict[str, slice]:
        """Where each free group lies in a state."""
        return {"visible": slice(0, self.visible), "hidden": slice(self.visible, self.units)}

    def size_of(self, group: str) -> int:
        """Units in a group; ``one`` is the clamped unit behind the biases."""
        sizes = {"visible": self.visible, "hidden": self.hidden, "one": 1}
        return self.labels * self.styles if group == "label" else sizes[group]

    def wired(self, wire: str) -> bool:
        """Whether this pair of groups is coupled."""
        return wire in self.wiring and all(self.size_of(group) for group in wire.split("-"))

    @property
    def steps(self) -> int:
        """K = round(t_f/Δt), counted in integers."""
        return round(self.duration / self.dt)

    @property
    def drift(self) -> float:
        """μΔt: a force f moves a unit by μΔt f in one step."""
        return self.mobility * self.dt

    @property
    def residual_scale(self) -> float:
        """c = μΔt/(2k_BT): a coupling force f changes a residual by c·f."""
        return self.drift / (2 * self.kT)

    @property
    def noise_amplitude(self) -> float:
        """√(2 μ k_BT Δt), the standard deviation of the thermal kick in one step."""
        return math.sqrt(2 * self.drift * self.kT)

    @property
    def step(self) -> tuple[Any, Any]:
        """(μΔt, √(2μk_BTΔt)): how units move; arrays (N,) where they differ (``BuiltMachine``)."""
        return self.drift, self.noise_amplitude

    @cached_property
    def potential(self) -> Onsite:
        """The onsite potential, with float64 coefficients."""
        if is_extension(self.onsite):
            return own_potential(self.onsite)
        return ONSITE[self.onsite](self)

    @cached_property
    def development_steps(self) -> tuple[int, ...]:
        """Steps of each window of development."""
        return tuple(max(1, round(window.duration / self.dt)) for window in self.development)

    @property
    def generation_steps(self) -> int:
        """Steps of generation: K, and those of the windows of development."""
        return self.steps + sum(self.development_steps)

    @property
    def switches(self) -> bool:
        """Whether V_θ is switched during generation."""
        return self.stages > 1 or bool(self.development)

    def group_potential(self, group: str, stage: int) -> Onsite:
        """The onsite potential of a group's units in V_θ of a stage."""
        if not self.generating:
            return self.potential
        wells = (well for well in self.generating if well.rules(group, stage))
        well = next(wells, Well(self.J2, self.J4))
        return CentredQuartic(2.0 * well.J2, 4.0 * well.J4, well.centre)

    def generating_potential(self, stage: int) -> Onsite:
        """The onsite potential in V_θ of a stage: numbers, or (N,) where groups differ.

        Windows of development have the numbers T, T + 1, … after the stages.
        """
        if stage >= self.stages:
            return self._developing_potential(self.development[stage - self.stages])
        if not self.generating:
            return self.potential
        coefficients = np.zeros((3, self.units))
        for group, where in self.groups.items():
            potential: Any = self.group_potential(group, stage)
            coefficients[:, where] = np.array(potential)[:, None]
        if np.all(coefficients == coefficients[:, :1]):
            return CentredQuartic(*coefficients[:, 0].tolist())
        return CentredQuartic(*coefficients)

    def _developing_potential(self, window: Development) -> Onsite:
        """Wells of the visible units, including the springs' part in (x_i − m)²."""
        coefficients = np.array([[2.0 * self.J2], [4.0 * self.J4], [0.0]]) * np.ones(self.units)
        springs = np.bincount(neighbours(self.visible).ravel(), minlength=self.visible)
        well = 2 * window.J2 + window.neighbours * springs, 4 * window.J4, window.centre
        for row, value in zip(coefficients, well, strict=True):
            row[: self.visible] = value
        return CentredQuartic(*coefficients)

    @cached_property
    def stage_windows(self) -> tuple[tuple[int, int], ...]:
        """(first, last) steps of each stage on a noising path."""
        return windows(self)

    @classmethod
    def paper(cls) -> Machine:
        """The paper's machine, which is also ``Machine()``.

        >>> import thermoloom as tl
        >>> tl.Machine.paper() == tl.Machine()
        True
        """
        return cls()

    # These methods make computers. That package builds on this one, so they import it when they
    # are called.

    @classmethod
    def for_data(cls, data: Source, classes: ArrayLike | None = None) -> Machine:
        """A machine whose sizes, labels, styles and scale suit this data.

        Units are harmonic and wired completely, so ``solve`` is exact and quick. Tables are scaled
        by column, images by sample. ``dataclasses.replace`` changes single settings.

        >>> import thermoloom as tl
        >>> tl.Machine.for_data(tl.digits(0, 1, per_class=10)).labels
        2
        """
        from thermoloom.computers.machine_for_data import machine_for

        return machine_for(data, classes)

    def train(
        self,
        images: Source,
        classes: ArrayLike | None = None,
        *,
        rule: Any = "online",
        cycles: int = 300,
        seed: int = 101,
        scale: str | None = "",
        mean: ArrayLike | None = None,
        deviation: ArrayLike | None = None,
        resize: bool = False,
        code: Code | None = None,
        device: Device | None = None,
        on_cycle: OnCycle | None = None,
        **settings: Any,
    ) -> Computer:
        """Train from θ = 0 on noising trajectories, images in turn.

            images      array (n, h, w), (n, h, w, c) or (n, N_v) of NumPy, PyTorch or JAX, a pandas
                        table, the result of tl.digits or tl.images, or a path
            classes     a number or name for each image; a machine with labels needs them
            rule        "online" (an update after every step, the default), "batch" (after every
                        trajectory), "delayed" (every period steps), tl.Momentum(0.9) or your own
                        object
            cycles      number of noising trajectories (default 300)
            seed        seed of the noising paths (default 101)
            scale       "sample" (each sample to zero mean and unit variance, the paper's),
                        "feature" (each column likewise, for tables), "fixed" (by mean and
                        deviation) or None (data as they are); by default the machine's
            mean        with the scale "fixed", data become (data − mean)/deviation
            deviation   see mean
            resize      whether to resize the images to the square visible layer
            code        fields of the hidden units, (n, N_h), or a function that returns them for
                        patterns (n, N_v)
            device      imperfections with which the machine is built; none by default
            on_cycle    called after every cycle with the number of cycles done and the latest
                        validation loss
            settings    any other settings of [training] and [imperfections], such as
                        learning_rate_scale=0.5, or errors=… with your own object; the command
                        thermoloom settings lists all

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> computer = machine.train(tl.digits(0, 1), cycles=4, resize=True)
        >>> computer
        Computer(Machine(visible=49, hidden=8, duration=0.05), 2 patterns, online, 4 cycles)
        """
        from thermoloom.computers.learning import train_machine

        settings |= {"rule": rule, "cycles": cycles, "seed": seed}
        data: dict[str, Any] = {"scale": scale, "mean": mean, "deviation": deviation}
        data |= {"resize": resize, "code": code}
        return train_machine(
            self, images, classes, device=device, on_cycle=on_cycle, data=data, **settings
        )

    def solve(
        self,
        images: Source,
        classes: ArrayLike | None = None,
        *,
        scale: str | None = "",
        mean: ArrayLike | None = None,
        deviation: ArrayLike | None = None,
        resize: bool = False,
        code: Code | None = None,
        on_iteration: OnIteration | None = None,
        **settings: Any,
    ) -> Computer:
        """Solve for the optimum that training approaches, without trajectories.

        The arguments that ``train`` has as well mean the same; the others are

            on_iteration    called after every iteration with the number of iterations done and the
                            relative gradient
            heat_weight     λ, weight of the expected heat (in k_BT), which is added to the loss;
                            default 0
            ridge           ρ of a term ½ρ|θ|², which is added to the loss; default 0
            seed            samples are generated with 90000 + this seed; default 101
            validation_seed seed of the validation path; default 777001

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05, labels=2)
        >>> computer = machine.solve(tl.digits(0, 1), resize=True)
        >>> computer.generate(4, classes=[1]).classes
        array([1, 1, 1, 1])
        """
        from thermoloom.computers.learning import solve_machine

        data: dict[str, Any] = {"scale": scale, "mean": mean, "deviation": deviation}
        data |= {"resize": resize, "code": code}
        return solve_machine(
            self, images, classes, on_iteration=on_iteration, data=data, **settings
        )


def _among(key: str, chosen: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that are unknown or occur twice."""
    for name in chosen:
        must = f"must be one of {', '.join(known)}"
        require(name in known, f"machine.{key}", name, must)
    require(len(set(chosen)) == len(chosen), f"machine.{key}", list(chosen), "repeats a name")
