"""One unit on its noising path: x' = x + μΔt (a_k s − φ(x)) + √(2μk_BTΔt) ξ, φ = 2J₂x + 4J₄x³.

Units do not interact on a noising path, so everything the expected loss needs is a function
of one unit's field s and of the step k. The density is carried through every step of
preparation and ramp by the exact Euler–Maruyama kernel, as Fourier coefficients
c(κ) = E[exp(−iκx)] on a box: there a field is a phase and the thermal kick a damping,

    c'(κ) = exp(−σ²κ²/2 − iκ μΔt a_k s) · E[exp(−iκ y(x))],      y(x) = x − μΔt φ(x),

and only the last factor, one matrix for all fields and steps, mixes the coefficients. Results
are tabulated at Chebyshev nodes of asinh(s/β), because m(s) has its nearest singularities on
the imaginary axis (the zeros of the partition function) and this map moves them away.

Only the fitted drift D = −Δx + μΔt φ_g(x′) contains the generating force φ_g, which may have a
centre. Then d and q are neither odd nor even in s. A path of −s mirrors one of s, so

    d(−s; φ_g) = −d(s; mirrored φ_g),   q(−s; φ_g) = q(s; mirrored φ_g)

and their odd and even parts follow from the densities of positive fields.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.clamp import resting_states
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import CentredQuartic, Onsite
from thermoloom.machine.protocol import largest_amplitude, preparation, ramp
from thermoloom.threads import linear_algebra, threads

Array64 = NDArray[np.float64]
Complex = NDArray[np.complex128]
Tables = tuple[Array64, Array64, Array64, Array64, Array64, Array64]

# exp(−36) is the last bit of a double: tails below it cannot be represented beside the bulk.
_TAIL = 36.0
_CHUNK = 256
_REFINEMENT = 1.3
_ATTEMPTS = 8
_MOST_MODES = 1024  # 120 for MNIST fields; the cost grows with the cube
_ENERGY = 13
"""Column of the energy among the observables."""
_NAMES = ("mean", "variance", "drift", "square", "start", "energy")
_ODD = ("mean", "drift", "start")
_OF_THETA = ("drift", "square", "energy")
"""Moments that depend on the potential of V_θ."""


@dataclass(frozen=True)
class FieldNodes:
    """s_n = β sinh(τ_n asinh(s_max/β)) with τ_n the positive zeros of a Chebyshev polynomial."""

    largest: float
    """s_max: the table covers −s_max … s_max, by symmetry from its positive half."""
    scale: float
    """β, the field at which a unit's response leaves the linear regime."""
    count: int
    """Number of nodes."""

    @property
    def positions(self) -> Array64:
        """τ_n in (0, 1)."""
        return np.cos(np.pi * (2 * np.arange(self.count) + 1) / (4 * self.count))

    @property
    def fields(self) -> Array64:
        """s_n."""
        stretch = math.asinh(self.largest / self.scale)
        return self.scale * np.sinh(stretch * self.positions)

    def between(self, count: int) -> Array64:
        """s_max and further fields where the interpolation error is largest."""
        extremes = np.linspace(0, self.count - 1, count).round()
        stretch = math.asinh(self.largest / self.scale)
        return self.scale * np.sinh(stretch * np.cos(np.pi * extremes / (2 * self.count)))

    def interpolation(self, fields: Array64, odd: bool) -> Array64:
        """B with f(fields) = B f(s_n) for odd (or even) functions f of the field."""
        position = np.arcsinh(fields / self.scale) / math.asinh(self.largest / self.scale)
        at_nodes = _polynomials(self.positions, self.count, odd)
        matrix: Array64 = _polynomials(position, self.count, odd) @ np.linalg.inv(at_nodes)
        return matrix


def _polynomials(x: Array64, count: int, odd: bool) -> Array64:
    """The first Chebyshev polynomials of one parity, (..., count): T_n+2 = 2 T_2 T_n − T_n−2."""
    twice = 4 * x**2 - 2
    values = np.empty((count, *x.shape))
    values[0] = x if odd else 1
    values[1] = (twice - 1) * x if odd else 0.5 * twice
    for n in range(2, count):
        np.multiply(twice, values[n - 1], out=values[n])
        values[n] -= values[n - 2]
    return np.moveaxis(values, 0, -1)


@dataclass(frozen=True)
class Marginals:
    """Moments of one unit that the expected loss needs, at each step (K rows) and field node."""

    machine: Machine
    nodes: FieldNodes
    mean: Array64
    """m = E[x'], odd in s."""
    variance: Array64
    """v = Var[x'], even in s."""
    drift: Array64
    """d = E[D] with D = −Δx + μΔt φ(x'), odd in s."""
    square: Array64
    """q = E[D²], even in s."""
    start: Array64
    """E[x] before the first step, one row, odd in s."""
    energy: Array64
    """E[V_onsite(x)] before the first and after each step, K + 1 rows, even in s."""
    error: float
    """Estimated error of these tables, each relative to its largest entry."""
    generating: dict[Onsite, GeneratingMarginals] = field(default_factory=dict)
    """The same under every generating potential; empty if only the reference potential is used."""

    def under(self, group: str, stage: int) -> Marginals:
        """The moments of a group's units under their potential in V_θ of a stage."""
        return self.generating.get(self.machine.group_potential(group, stage), self)

    def at(self, name: str, fields: Array64) -> Array64:
        """``mean``, ``variance``, ``drift``, ``square`` … at these fields, shape (K, fields)."""
        table: Array64 = getattr(self, name)
        values: Array64 = table @ self.interpolation(fields, name).T
        return values

    def interpolation(self, fields: Array64, name: str) -> Array64:
        """Interpolation matrix (fields, nodes) with the parity of the named function."""
        if self.generating and name in _OF_THETA:
            raise UserError(
                "machine.generating: this prediction covers one onsite potential; train instead"
            )
        return self.nodes.interpolation(fields, odd=name in _ODD)


class GeneratingMarginals(Marginals):
    """Moments under a generating potential: d, q and E[V] have odd columns, then even ones."""

    @classmethod
    def of(cls, reference: Marginals, tables: Tables, mirrored: Tables) -> GeneratingMarginals:
        """From the tables under a potential and under its mirror image."""
        parts = {}
        for name, values, reflected in zip(_NAMES, tables, mirrored, strict=True):
            if name in _OF_THETA:
                parity = (values + reflected) / 2, (values - reflected) / 2
                parts[name] = np.hstack(parity if name in _ODD else parity[::-1])
        tables_of = {name: getattr(reference, name) for name in _NAMES} | parts
        return cls(reference.machine, reference.nodes, error=reference.error, **tables_of)

    def interpolation(self, fields: Array64, name: str) -> Array64:
        """Odd columns, then even ones, for functions of either parity."""
        if name not in _OF_THETA:
            return super().interpolation(fields, name)
        parities = [self.nodes.interpolation(fields, odd) for odd in (True, False)]
        return np.concatenate(parities, axis=-1)


class HarmonicMarginals(Marginals):
    """Moments of a harmonic unit, V′ = κx, in closed form: m and d are s times their values at
    s = 1, v does not depend on s, and q = q₀ + q₁ s²; so is E[V].
    """

    def interpolation(self, fields: Array64, name: str) -> Array64:
        """Columns s for m and d, columns 1 and s² for v and q."""
        s = np.asarray(fields, np.float64)
        if name in _ODD:
            return s[..., None]
        return np.stack([np.ones_like(s), s * s], axis=-1)


def is_harmonic(machine: Machine) -> bool:
    """Whether V′ is x times a number, so that the moments of a unit have a closed form."""
    if machine.generating:
        return False
    bends = machine.potential.taylor(np.array([0.0, 1.0]))[2:]
    return not any(np.any(term) for term in bends)


def harmonic_marginals(machine: Machine) -> HarmonicMarginals:
    """x' = (1 − κμΔt) x + μΔt a_k s + σξ: means and variances of a linear recursion.

    D = −Δx + κμΔt x' is linear in x and ξ, too: with w = κμΔt,
    D = (2w − w²) x − (1 − w) (μΔt a_k s + σξ).
    """
    stiffness = float(machine.potential.curvature(0.0))
    w = machine.drift * stiffness
    square = machine.noise_amplitude**2
    mean = variance = 0.0
    for a in preparation(machine):
        mean = (1 - w) * mean + machine.drift * float(a)
        variance = (1 - w) ** 2 * variance + square
    steps = machine.steps
    means, drifts = np.empty((steps, 1)), np.empty((steps, 1))
    variances, squares = np.zeros((steps, 2)), np.empty((steps, 2))
    start, energies = np.array([[mean]]), np.empty((steps + 1, 2))
    energies[0] = (0.5 * stiffness * variance, 0.5 * stiffness * mean**2)
    for k, a in enumerate(ramp(machine)):
        force = machine.drift * float(a)
        drift = (2 * w - w * w) * mean - (1 - w) * force
        drifts[k] = drift
        squares[k] = ((2 * w - w * w) ** 2 * variance + (1 - w) ** 2 * square, drift**2)
        mean = (1 - w) * mean + force
        variance = (1 - w) ** 2 * variance + square
        means[k] = mean
        variances[k, 0] = variance
        energies[k + 1] = (0.5 * stiffness * variance, 0.5 * stiffness * mean**2)
    nodes = FieldNodes(1.0, 1.0, 1)
    tables = (means, variances, drifts, squares, start, energies)
    return HarmonicMarginals(machine, nodes, *tables, 0.0)


@linear_algebra()
def solve_marginals(machine: Machine, largest_field: float, tolerance: float = 1e-8) -> Marginals:
    """m, v, d, q for |s| ≤ ``largest_field``, refined until the estimated error is small enough.

    The error is the largest relative difference from a second propagation, in a larger box with
    more modes, of fields between the nodes, where the interpolation is at its worst. Round-off
    of 2K steps leaves about 1e-10. Cost: 2K products of a (nodes × modes) with a
    (modes × modes) matrix, about 20 × 120 for MNIST fields.
    """
    _check_force(machine)
    if is_harmonic(machine):
        return harmonic_marginals(machine)
    largest = max(largest_field, 1e-3)
    refinement, error = 1.0, math.inf
    for _ in range(_ATTEMPTS):
        nodes = _field_nodes(machine, largest, tolerance, refinement)
        checked = nodes.between(5)
        with threads(1):  # these matrices are too small to share
            tables = _tabulate(machine, nodes.fields, largest, refinement)
            exact = _tabulate(machine, checked, largest, refinement * _REFINEMENT)
        marginals = _marginals(machine, nodes, tables)
        reference = replace(marginals, generating={})
        by_potential = {machine.potential: reference, **marginals.generating}
        error = max(
            _largest_difference(moments, checked, exact[potential])
            for potential, moments in by_potential.items()
        )
        if error <= tolerance:
            return replace(marginals, error=error)
        refinement *= _REFINEMENT
    raise UserError(
        f"machine.dt = {machine.dt}: the density of a unit did not converge for fields up to "
        f"{largest:.3g} (error {error:.1e}, required {tolerance:.0e}); use a smaller step"
    )


def _potentials(machine: Machine) -> list[Onsite]:
    """The reference potential, then every other one of V_θ."""
    of_theta = [
        machine.group_potential(group, stage)
        for group in machine.groups
        for stage in range(machine.stages)
        if machine.size_of(group)
    ]
    return [*dict.fromkeys([machine.potential, *of_theta])]


def _marginals(machine: Machine, nodes: FieldNodes, tables: dict[Onsite, Tables]) -> Marginals:
    reference, *others = _potentials(machine)
    marginals = Marginals(machine, nodes, *tables[reference], math.inf)
    for potential in others:
        assert isinstance(potential, CentredQuartic)
        mirrored = tables[potential.mirrored]
        marginals.generating[potential] = GeneratingMarginals.of(
            marginals, tables[potential], mirrored
        )
    return marginals


def _check_force(machine: Machine) -> None:
    """Refuse a potential whose force is not an odd cubic: this module is exact for those only."""
    x = np.linspace(-3, 3, 25)
    force = machine.potential.gradient(x)
    terms = machine.potential.taylor(np.zeros_like(x))
    cubic = sum(term * x**order for order, term in enumerate(terms))
    allowed = 1e-12 * np.abs(force).max()
    if np.abs(force - cubic).max() > allowed or np.abs(force + force[::-1]).max() > allowed:
        raise UserError(
            f"machine.onsite = {machine.onsite!r}: theory covers forces c₁x + c₃x³ only; "
            "train instead"
        )


def _largest_difference(marginals: Marginals, fields: Array64, exact: Tables) -> float:
    """Largest error of the interpolated functions, relative to each one's largest value."""
    worst = 0.0
    for name, expected in zip(_NAMES, exact, strict=True):
        error = np.abs(marginals.at(name, fields) - expected).max() / np.abs(expected).max()
        worst = max(worst, float(error)) if math.isfinite(error) else math.inf
    return worst


# ---------------------------------------------------------------------------------------------
# Scales of the problem: how wide the box, how many modes, how many nodes.


def _boltzmann_edges(machine: Machine, field: float) -> tuple[float, float]:
    """Where U(x) − U_min = 36 k_BT for U = V_onsite − a s x, so p_eq < 3e-16 of its maximum."""
    depth = _TAIL * machine.kT
    reach = 1.0
    while True:
        x = np.linspace(-reach, reach, 4001)
        potential = machine.potential.energy(x) - largest_amplitude(machine) * field * x
        inside = x[potential - potential.min() < depth]
        if len(inside) < 5:
            raise UserError(
                f"machine.kT = {machine.kT:g}: too cold to be solved for fields up to "
                f"{abs(field):.3g}; raise it, or train instead"
            )
        if inside[0] > x[0] and inside[-1] < x[-1]:
            return float(inside[0]), float(inside[-1])
        reach *= 2


def _field_scale(machine: Machine) -> float:
    """β = 1.1 k_BT/x_rms: where the partition function has its first zero, up to a factor near 1.

    For any single-well density the characteristic function E[exp(2isx/k_BT)] first vanishes
    near 2 s x_rms/k_BT ≈ 2.6; only the speed of convergence depends on the choice.
    """
    low, high = _boltzmann_edges(machine, 0.0)
    x = np.linspace(low, high, 2001)
    weight = np.exp(-machine.potential.energy(x) / machine.kT)
    return 1.1 * machine.kT / math.sqrt(float((x**2 * weight).sum() / weight.sum()))


def _box(machine: Machine, largest: float, refinement: float) -> tuple[float, float, int]:
    """Edges of the box and number of Fourier modes that resolve the narrowest density in it."""
    low = _boltzmann_edges(machine, 0.0)[0]
    high = _boltzmann_edges(machine, largest)[1]
    centre, half = (low + high) / 2, (high - low) / 2 * (0.9 + 0.1 * refinement)
    stiffness = machine.potential.curvature(resting_states(machine, largest))
    before_relaxation = 1 / (2 * machine.mobility * machine.kT * machine.duration)
    narrowest = 1 / math.sqrt(float(stiffness) / machine.kT + before_relaxation)
    modes = math.ceil(refinement * math.sqrt(2 * _TAIL) / narrowest * half / np.pi)
    if modes > _MOST_MODES:
        raise UserError(
            f"machine.kT = {machine.kT:g}, machine.duration = {machine.duration:g}: the density of "
            f"a unit is too narrow to be solved ({modes} modes); raise them, or train instead"
        )
    return centre - half, centre + half, modes


def _field_nodes(
    machine: Machine, largest: float, tolerance: float, refinement: float
) -> FieldNodes:
    """As many nodes as the distance of the nearest singularity requires.

    Chebyshev errors fall as ρ^(−2·nodes), with ρ the sum of half-axes of the ellipse that
    touches it; a third more covers the prefactor.
    """
    scale = _field_scale(machine)
    distance = np.pi / 2 / math.asinh(largest / scale)
    ellipse = distance + math.hypot(distance, 1)
    count = max(6.0, -1.35 * math.log(tolerance) / (2 * math.log(ellipse)))
    return FieldNodes(largest, scale, math.ceil(refinement * count))


# ---------------------------------------------------------------------------------------------
# The propagation.


def _tabulate(
    machine: Machine, fields: Array64, largest: float, refinement: float
) -> dict[Onsite, Tables]:
    """m, v, d, q of each step for these fields, each (K, fields); then E[x₀] and E[V_onsite].

    For the reference potential, and for each generating potential and its mirror image.
    """
    low, high, modes = _box(machine, largest, refinement)
    grid = low + (high - low) * np.arange(4 * modes) / (4 * modes)
    spacing = (high - low) / len(grid)
    wave = (2 * np.pi / (high - low)) * np.arange(modes + 1, dtype=np.float64)
    density = _density_from_coefficients(wave, grid)
    relaxed = grid - machine.drift * machine.potential.gradient(grid)
    transition = density @ (_interleaved(np.exp(-1j * np.outer(relaxed, wave))) * spacing)
    potentials = _potentials(machine)
    potentials += [p.mirrored for p in potentials if isinstance(p, CentredQuartic)]
    every = [density @ (_observables(machine, p, grid) * spacing) for p in potentials]
    observables = np.hstack(every)
    damping = np.exp(-((machine.noise_amplitude * wave) ** 2) / 2).astype(complex)
    kick = np.outer(fields, wave).astype(complex) * (-1j * machine.drift)

    state = _prepared(machine, transition, damping, kick)
    values = np.empty((machine.steps + 1, len(fields), observables.shape[1]))
    values[0] = state @ observables
    history: list[Array64] = []
    for k, phase in enumerate(_phases(ramp(machine), damping, kick), start=1):
        state = _step(state, transition, phase)
        history.append(state)
        if len(history) == _CHUNK or k == machine.steps:
            values[k - len(history) + 1 : k + 1] = np.stack(history) @ observables
            history.clear()
    external, first, tables = np.outer(ramp(machine), fields), 0, {}
    for potential, columns in zip(potentials, every, strict=True):
        expectations = values[:, :, first : first + columns.shape[1]]
        moments = _assemble(machine, external, expectations)
        tables[potential] = *moments, expectations[:1, :, 0], expectations[:, :, _ENERGY]
        first += columns.shape[1]
    return tables


def _prepared(machine: Machine, transition: Array64, damping: Complex, kick: Complex) -> Array64:
    """The state after the K steps of preparation from x = 0.

    The delta at zero is cut off at the last mode by exp(−κ⁸), which leaves its first seven
    moments at zero and has no ringing tails; the remaining error decays during preparation.
    """
    fraction = np.arange(kick.shape[-1]) / (kick.shape[-1] - 1)
    delta = np.exp(-_TAIL * fraction**8).astype(complex)
    state = np.tile(_interleaved(delta), (len(kick), 1))
    for phase in _phases(preparation(machine), damping, kick):
        state = _step(state, transition, phase)
    return state


def _phases(amplitude: Array64, damping: Complex, kick: Complex) -> Iterator[Complex]:
    """exp(−σ²κ²/2 − iκ μΔt a_k s) for the amplitude of each step.

    Each phase is the previous one times exp(kick · Δa), a constant where a falls evenly.
    """
    phase, latest, factor = damping * np.exp(amplitude[0] * kick), 0.0, np.ones_like(kick)
    for a, change in zip(amplitude, np.diff(amplitude, append=0.0), strict=True):
        yield phase if a != 0 else damping
        if abs(change - latest) > 1e-12:
            latest, factor = change, np.exp(change * kick)
        phase = phase * factor


def _step(state: Array64, transition: Array64, phase: Complex) -> Array64:
    moved = state @ transition
    moved.view(np.complex128)[...] *= phase
    return moved


def _interleaved(values: Complex) -> Array64:
    """Complex array as the real array Re, Im, Re, Im, … along its last axis."""
    return np.ascontiguousarray(values).view(np.float64)


def _density_from_coefficients(wave: Array64, grid: Array64) -> Array64:
    """Matrix from (Re c, Im c) to p(x) = (1/L) [c₀ + 2 Re Σ_κ c(κ) exp(iκx)] on the grid."""
    length = len(grid) * (grid[1] - grid[0])
    weight = np.where(wave == 0, 1.0, 2.0) / length
    matrix = np.empty((2 * len(wave), len(grid)))
    angle = np.outer(wave, grid)
    matrix[0::2] = weight[:, None] * np.cos(angle)
    matrix[1::2] = -weight[:, None] * np.sin(angle)
    return matrix


def _observables(machine: Machine, generating: Onsite, x: Array64) -> Array64:
    """Columns x, x², φ, φ², φ_g', then φ̃⁽ⁿ⁾(y)/n! and φ φ̃⁽ⁿ⁾(y)/n! for n = 0 … 3, then V_g, and
    φ_g, φ_g² where they are not φ, φ².

    φ̃(y) = E_ξ[φ_g(y + σξ)] = φ_g(y) + σ² φ_g''(y)/2 is exact for a cubic force.
    """
    force, stiffness = machine.potential.gradient(x), generating.curvature(x)
    terms = generating.taylor(x - machine.drift * force)
    square = machine.noise_amplitude**2
    smoothed = [terms[0] + square * terms[2], terms[1] + 3 * square * terms[3], *terms[2:]]
    columns = [x, x**2, force, force**2, stiffness]
    weighted = [force * value for value in smoothed]
    columns += [*smoothed, *weighted, generating.energy(x)]
    if generating is not machine.potential:
        columns += [generating.gradient(x), generating.gradient(x) ** 2]
    return np.stack(columns, axis=1)


def _assemble(
    machine: Machine, external: Array64, values: Array64
) -> tuple[Array64, Array64, Array64, Array64]:
    """m, v, d, q from expectations before (x) and after (x') each step.

    With δ = μΔt a s and g = δ − μΔt φ(x), so that Δx = g + σξ:

        d = −δ + μΔt (E[φ(x)] + E[φ_g(x')])
        q = σ² + E[g²] + (μΔt)² E[φ_g(x')²] − 2μΔt (E[g φ_g(x')] + σ² E[φ_g'(x')])

    where E[g φ_g(x')] = E[g φ̃(y + δ)] is expanded in δ, exactly, and the last term is Stein's
    lemma for E[σξ φ_g(x')].
    """
    rate = machine.drift
    variance = machine.noise_amplitude**2
    before, after = np.moveaxis(values[:-1], -1, 0), np.moveaxis(values[1:], -1, 0)
    delta = rate * external
    move_square = delta**2 - 2 * delta * rate * before[2] + rate**2 * before[3]
    smoothed, weighted = before[5:9], before[9:13]
    force, force_square = after[_ENERGY + 1 :] if len(after) > _ENERGY + 1 else after[2:4]
    powers = [delta**n for n in range(4)]
    move_force = sum(
        p * (delta * s - rate * w) for p, s, w in zip(powers, smoothed, weighted, strict=True)
    )
    mean = after[0].copy()
    square = variance + move_square + rate**2 * force_square
    square -= 2 * rate * (move_force + variance * after[4])
    return mean, after[1] - mean**2, rate * (before[2] + force) - delta, square
