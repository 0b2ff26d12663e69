"""Samples of a computer, with their heat, work and quality."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError, warn
from thermoloom.inputs import shown, whole_number
from thermoloom.machine.clamp import fields_at_rest
from thermoloom.machine.generated import Generated
from thermoloom.measures.classifier import SIDE, image_features
from thermoloom.measures.fidelity import (
    KernelDistance,
    PrecisionRecall,
    frechet_distance,
    kernel_distance,
    precision_recall,
    with_thermal_noise,
)
from thermoloom.patterns.sources import Source, numpy_array, patterns_from_source
from thermoloom.sections import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from thermoloom.computers.computer import Computer
    from thermoloom.measures.heat_ledger import Ledger
    from thermoloom.measures.quality import Quality

Features = Callable[[NDArray[Any]], Any]
"""A function from samples (n, …) to features (n, d)."""
Measure = Callable[[NDArray[Any], NDArray[Any]], Any] | Any
"""A function of samples and reference, or an object whose method ``measure`` is one."""
_NOISE_SEED = 20261118
"""Seed of the thermal noise that a reference receives."""


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
    """Whether some pixels were clamped."""

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        work = f", work {self.work.mean():.1f}" if self.computer.machine.switches else ""
        return f"Drawn({len(self)} samples, heat {self.heat.mean():.1f}{work} E0)"

    def _repr_html_(self) -> str:
        """The first samples as a picture; a table of moments if they are not images."""
        from thermoloom.presentation.image_sheet import EITHER, png, sample_figure

        shape, samples = self.computer.patterns.shape, self.samples
        if shape is None:
            moments = zip(samples.mean(axis=0), samples.std(axis=0), strict=True)
            names = self.computer.patterns.columns or range(samples.shape[1])
            rows = {str(n): _spread(*pair) for n, pair in zip(names, moments, strict=True)}
            return html_table(rows, f"{self._title}; mean ± standard deviation")
        figure = sample_figure(samples, shape, "", 20, self.class_names, EITHER)
        code = base64.b64encode(png(figure, "none")).decode()
        picture = f'<img alt="samples" width="640" src="data:image/png;base64,{code}">'
        caption = f"<figcaption><b>{self._title}</b></figcaption>"
        return f"<figure style='margin: 0'>{caption}{picture}</figure>"

    @property
    def _title(self) -> str:
        work = f", mean work {self.work.mean():.1f} E0" if self.computer.machine.switches else ""
        return f"{len(self):,} samples, mean heat {self.heat.mean():.1f} E0{work}"

    @property
    def states(self) -> NDArray[np.float32]:
        """Final states of all units, (samples, N), visible units first."""
        return self.generated.final_states

    @property
    def samples(self) -> NDArray[Any]:
        """The samples in the units and the shape of the data: (samples, h, w) or (samples, h, w,
        c) for images, (samples, N_v) otherwise.

        Where every image was scaled by itself (``scale="sample"``), samples have the mean and the
        contrast of a typical image. ``states`` contains the unscaled states of the units.
        """
        machine, patterns = self.computer.machine, self.computer.patterns
        data = patterns.scale.data(machine, self.states[:, : machine.visible])
        return data.reshape(len(data), *(patterns.shape or (-1,)))

    @property
    def images(self) -> NDArray[Any]:
        """``samples`` under another name, for images."""
        return self.samples

    @property
    def class_names(self) -> list[str] | None:
        """Name of the class requested for each sample, where the machine has labels."""
        return None if self.classes is None else self.computer.patterns.names_of(self.classes)

    def to(self, library: str) -> Any:
        """``samples`` as an array of ``"torch"``, ``"jax"`` or ``"numpy"``, or a table of
        ``"pandas"`` with the names of the columns.

        >>> import numpy as np, thermoloom as tl
        >>> rows = np.random.default_rng(0).normal([5, 100], [1, 20], (50, 2))
        >>> drawn = tl.Machine(visible=2, hidden=0, J4=0).solve(rows, scale="feature").generate(9)
        >>> drawn.to("pandas").shape  # and drawn.to("torch") is a tensor
        (9, 2)
        """
        samples = self.samples
        if library == "numpy":
            return samples
        module = {"torch": "torch", "jax": "jax.numpy", "pandas": "pandas"}.get(library)
        if module is None:
            raise UserError(f"to {library!r}: must be numpy, torch, jax or pandas")
        try:
            target = import_module(module)
        except ImportError:
            raise UserError(f"to {library!r}: {library} is not installed") from None
        if library == "pandas":
            columns = self.computer.patterns.columns or None
            return target.DataFrame(samples.reshape(len(samples), -1), columns=columns)
        return target.asarray(samples) if library == "jax" else target.from_dlpack(samples)

    @property
    def heat(self) -> NDArray[np.float64]:
        """Q of every sample in E₀, positive when released to the environment."""
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
        """How recognizable and diverse the samples are, and how close to the nearest pattern.

        ``classifier``: a folder of ``thermoloom classifier train``; the bundled one if empty. A
        panel of other classifiers judges them, too; ``ranges()`` gives the range over all.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> drawn = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1)
        >>> drawn.quality().samples
        5
        """
        from thermoloom.measures.classifier import panel
        from thermoloom.measures.quality import measure_quality

        visible = self.states[:, : self.computer.machine.visible]
        return measure_quality(visible, self.computer.patterns, classifier, panel())

    # --- compared with data -----------------------------------------------------------------------

    def measure(
        self, measure: Measure, reference: Source | None = None, *, noise: bool | None = None
    ) -> Any:
        """Call your own measure: ``measure(samples, reference)``, or its method ``measure``.

        Both are arrays in the units of the data. ``reference``: data of any source, by default the
        learned data. With ``noise``, by default for images only, the reference is the data after
        preparation, with the thermal noise that samples have. In a table, thermal noise is part of
        the learned spread.

        >>> import thermoloom as tl
        >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
        >>> drawn = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1)
        >>> drawn.measure(lambda samples, reference: (len(samples), len(reference)))
        (5, 2)
        """
        function = getattr(measure, "measure", measure)
        if not callable(function):
            raise UserError(f"measure: {shown(measure)} is not a function of samples and reference")
        return function(self.samples, self.reference(reference, noise=noise))

    def frechet(
        self,
        reference: Source | None = None,
        features: Features | None = None,
        *,
        noise: bool | None = None,
    ) -> float:
        """Fréchet distance between samples and reference in a space of features.

        ``features``: a function from samples (n, …) in the units of the data to (n, d). By default
        those of the bundled classifier for digits of 28 × 28 pixels, and the values themselves for
        all other data. ``reference``, ``noise``: as in ``measure``.

        >>> import numpy as np, thermoloom as tl
        >>> rows = np.random.default_rng(0).normal([5, 100], [1, 20], (200, 2))
        >>> drawn = tl.Machine.for_data(rows).solve(rows).generate(500)
        >>> means = lambda samples: samples / rows.std(axis=0)
        >>> drawn.frechet(rows, means) < 0.3
        True
        """
        return frechet_distance(*self._features(reference, features, noise))

    def kid(
        self,
        reference: Source | None = None,
        features: Features | None = None,
        *,
        noise: bool | None = None,
    ) -> KernelDistance:
        """Kernel distance (KID) between samples and reference, with its standard error; arguments
        as in ``frechet``. The error is NaN unless both have at least 1,000.

        >>> import numpy as np, thermoloom as tl
        >>> rows = np.random.default_rng(0).normal(size=(50, 2))
        >>> drawn = tl.Machine.for_data(rows).solve(rows).generate(50)
        >>> drawn.kid(rows).mean < drawn.kid(rows + 3).mean
        True
        """
        return kernel_distance(*self._features(reference, features, noise))

    def precision_recall(
        self,
        reference: Source | None = None,
        features: Features | None = None,
        *,
        neighbours: int = 3,
        noise: bool | None = None,
    ) -> PrecisionRecall:
        """Fraction of the samples that the reference covers, and of the reference that the samples
        cover; arguments as in ``frechet``.

        >>> import numpy as np, thermoloom as tl
        >>> rows = np.random.default_rng(0).normal(size=(50, 2))
        >>> drawn = tl.Machine.for_data(rows).solve(rows).generate(50)
        >>> drawn.precision_recall(rows).recall > 0.5
        True
        """
        rows = self._features(reference, features, noise)
        return precision_recall(*rows, whole_number("neighbours", neighbours, 1))

    def reference(self, source: Source | None = None, *, noise: bool | None = None) -> NDArray[Any]:
        """Data in the shape and units of ``samples``, with or without the thermal noise of the
        machine, by default with it for images.

        Developed samples are sharper than that noise, so it is left out for them, with a warning.

        >>> import numpy as np, thermoloom as tl
        >>> rows = np.random.default_rng(0).normal(size=(50, 2))
        >>> drawn = tl.Machine.for_data(rows).solve(rows).generate(50)
        >>> drawn.reference().shape, drawn.reference(rows[:7], noise=True).shape
        ((50, 2), (7, 2))
        """
        machine, patterns = self.computer.machine, self.computer.patterns
        if source is None:
            patterns.needed_for("reference")
        else:
            scale = patterns.scale
            patterns = patterns_from_source(source, None, machine, resize=None, scale=scale)
        fields = patterns.patterns
        noise = patterns.shape is not None if noise is None else noise
        if noise and machine.development:
            warn(
                "samples were developed, so the size of their thermal noise is not known; the "
                "reference has no noise (noise=False turns this warning off)"
            )
        elif noise:
            fields = fields_at_rest(machine, with_thermal_noise(machine, fields, _NOISE_SEED))
        data = self.computer.patterns.scale.units(fields)
        return data.reshape(len(data), *self.samples.shape[1:])

    def _features(
        self, reference: Source | None, features: Features | None, noise: bool | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Features of samples and reference, (n, d) each."""
        if features is None:
            pixels = self.computer.patterns.digits and self.samples.shape[1:] == (SIDE, SIDE)
            features = _pixel_features if pixels else np.asarray
        rows = []
        for values in (self.samples, self.reference(reference, noise=noise)):
            answer = numpy_array("features", features(values))
            if len(answer.shape) < 1 or len(answer) != len(values):
                raise UserError(
                    f"features: {shown(features)} returns shape {answer.shape} for {len(values)} "
                    "samples; expected one row for each"
                )
            rows.append(answer.reshape(len(values), -1))
        return rows[0], rows[1]

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
        return sample_figure(self.images, shape, self._title, most, self.class_names)


def _spread(mean: float, deviation: float) -> str:
    """``754 ± 310``: rounded to two digits of the deviation, or fewer where it is large."""
    if not 1e-4 < deviation < 1e6:
        return f"{mean:.4g} ± {deviation:.2g}"
    digits = max(0, 1 - math.floor(math.log10(deviation)))
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def _pixel_features(images: NDArray[Any]) -> NDArray[Any]:
    """Features of the bundled classifier."""
    return image_features(images.reshape(len(images), -1))
