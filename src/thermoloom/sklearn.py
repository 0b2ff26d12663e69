"""A generator for scikit-learn: a machine that is solved for data, sampled and scored.

    generator = ThermodynamicGenerator().fit(X, y)
    generator.sample(100, y="cultivar 2")     in the units of X
    generator.predict(X)                      class of largest path likelihood
    generator.score(X)                        mean log-likelihood, for grid searches

Likelihoods are expectations over noising paths, so they depend on no random number and on no other
row. This module needs scikit-learn 1.6 or later (``thermoloom[peers]``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.computers.computer import Computer
from thermoloom.errors import UserError
from thermoloom.inputs import whole_number
from thermoloom.machine.machine import Machine

try:
    from sklearn.base import BaseEstimator, DensityMixin
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise UserError(
        "thermoloom.sklearn needs scikit-learn 1.6 or later; install it with: pip install "
        "'thermoloom[peers]'"
    ) from None


class ThermodynamicGenerator(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A thermodynamic computer that generates rows like those of a table, by class on request.

    >>> import numpy as np
    >>> from thermoloom.sklearn import ThermodynamicGenerator
    >>> X = np.random.default_rng(0).normal([[5, 100]] * 90 + [[9, 20]] * 90, [1, 9])
    >>> generator = ThermodynamicGenerator().fit(X, ["a"] * 90 + ["b"] * 90)
    >>> generator.predict([[5, 95], [9, 22]])
    array(['a', 'b'], dtype='<U1')
    >>> generator.sample(7, y="b").shape
    (7, 2)
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        kT: float | None = None,
        styles: int | None = None,
        rule: str | None = None,
        cycles: int = 300,
        random_state: int = 101,
    ) -> None:
        """``machine``: by default ``Machine.for_data(X, y)``, with another ``kT`` or number of
        ``styles`` per class if given. ``rule``: a learning rule, such as "online", with which it
        is trained for ``cycles``; by default it is solved. ``random_state``: seed of training and
        samples.
        """
        self.machine = machine
        self.kT = kT
        self.styles = styles
        self.rule = rule
        self.cycles = cycles
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the rows of X, (n, columns), and their classes, if they have any."""
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        labels = np.zeros(len(rows), int) if y is None else column_or_1d(y)
        if len(labels) != len(rows):
            raise UserError(f"y: {len(labels)} classes for {len(rows)} rows; give one for each")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self.class_prior_ = np.bincount(numbers) / len(numbers)
        machine = self.machine or Machine.for_data(rows, numbers)
        changes: dict[str, Any] = {"kT": self.kT, "styles": self.styles}
        machine = replace(machine, **{k: v for k, v in changes.items() if v is not None})
        scale = machine.scale
        if self.rule is None:
            self.computer_ = machine.solve(rows, numbers, scale=scale)
        else:
            self.computer_ = machine.train(
                rows,
                numbers,
                scale=scale,
                rule=self.rule,
                cycles=self.cycles,
                seed=self.random_state,
            )
        return self

    def sample(self, n_samples: int = 1, y: ArrayLike | None = None) -> NDArray[Any]:
        """Rows in the units of X, (n_samples, columns).

        ``y``: one class for all rows, or one for each; by default, classes are drawn with
        their frequencies in the data.
        """
        computer = self._fitted()
        count, seed = whole_number("n_samples", n_samples, 1), self.random_state
        if y is None:
            rng = np.random.default_rng(seed)
            numbers = rng.choice(len(self.classes_), count, p=self.class_prior_)
        else:
            requested = np.broadcast_to(np.asarray(y), count)
            numbers = np.minimum(np.searchsorted(self.classes_, requested), len(self.classes_) - 1)
            if (self.classes_[numbers] != requested).any():
                raise UserError(
                    f"y: must be among the classes {', '.join(map(str, self.classes_))}"
                )
        classes = numbers if computer.machine.labels else None
        return computer.generate(count, seed, classes=classes).samples

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Expected path log-likelihood of each row in nats, ``Computer.log_likelihoods``, averaged
        over classes.
        """
        joint = self._joint(X)
        likelihoods: NDArray[np.float64] = np.logaddexp.reduce(joint, axis=1)
        return likelihoods

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Mean of ``score_samples``; y is not used."""
        return float(self.score_samples(X).mean())

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of largest expected path likelihood for each row."""
        numbers = self._joint(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[numbers]
        return predicted

    def _joint(self, X: ArrayLike) -> NDArray[np.float64]:
        """ln p(path, class), (rows, classes)."""
        computer = self._fitted()
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return computer.log_likelihoods(rows) + np.log(self.class_prior_)

    def _fitted(self) -> Computer:
        check_is_fitted(self)
        computer: Computer = self.computer_
        return computer
