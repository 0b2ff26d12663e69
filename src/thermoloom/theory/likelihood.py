"""Classification by path likelihood: the label that makes the noising path of an image most likely.

A clamped label adds a constant to the residuals of its stage, r_i → r_i + c a J_il, so the loss of
a path under label l differs from that without labels by

    ΔL_l = (k_BT/μΔt) Σ_t [2 c a J_l·R_t + K_t c² a² |J_l|²],      R_t = Σ_k r_k in window t

and all labels of an image follow from one path, or from its expectation, which is a linear
function of the means of its units. A class is as likely as its styles together:
ln p(class) = ln Σ_styles w exp(−ΔL).

The loss of a path bounds the likelihood of the state x₀ that a pattern is prepared in. Generation
starts in the equilibrium of the N units alone and runs the path backwards in K Gaussian steps, so

    ln p(x₀) ≥ −E[V_onsite(x_K)]/k_BT − N ln Z + KN/2 − E[L]

With w = μΔt, mean m and variance v of a unit, D = −Δx + w V′_onsite(x′), d = E[D], q = E[D²] and
the mean force h = Jm + b

    E[L] = Σ_k [q + 2w d·h + w² (|h|² + Σ_ij J_ij² v_j)] / 4wk_BT
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import trapezoid
from scipy.special import logsumexp

from thermoloom.engines import Path
from thermoloom.errors import UserError
from thermoloom.machine.action import drive, loss_scale, residual, step_constants
from thermoloom.machine.energy import coupling_gradient
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.theory.expected_loss import Fields, TimeModes
from thermoloom.theory.marginals import Array64, Marginals, solve_marginals
from thermoloom.threads import linear_algebra

_IMAGES_AT_ONCE = 500
OnProgress = Callable[[float], object]
"""``on_progress(rows)`` receives the number of rows that are newly done."""
_FARTHEST = 40.0
"""Reach of the integral Z, in units of √(k_BT/E₀)."""


def _quiet(rows: float) -> None:
    """Discard the report."""


@linear_algebra()
def expected_residuals(theta: Parameters, fields: Fields, marginals: Marginals) -> Array64:
    """E[R_t] of noising paths from these fields without labels, (P, T, N)."""
    machine = theta.machine
    silent = np.zeros(machine.size_of("label"), np.float64)
    constants = step_constants(machine, np.float64)
    wide = theta.astype(np.float64)
    sums = np.empty((len(fields), machine.stages, machine.units))
    for first in range(0, len(fields), _IMAGES_AT_ONCE):
        batch = np.asarray(fields[first : first + _IMAGES_AT_ONCE], np.float64)
        odd = marginals.interpolation(batch, "mean")
        for stage, (start, stop) in enumerate(machine.stage_windows):
            steps = stop - start
            mean = odd @ marginals.mean[start:stop].mean(axis=0)
            alone = np.empty_like(mean)
            for group, where in machine.groups.items():
                under = marginals.under(group, stage)
                drift = under.drift[start:stop].mean(axis=0)
                alone[:, where] = under.interpolation(batch[:, where], "drift") @ drift
            alone *= constants.inverse_2kT
            coupling = coupling_gradient(wide, mean, stage, silent)
            sums[first : first + len(batch), stage] = steps * residual(constants, alone, coupling)
    return sums


@linear_algebra()
def path_residuals(theta: Parameters, path: Path) -> Array64:
    """R_t of one noising path without labels, (T, N)."""
    machine = theta.machine
    x = np.asarray(path.states, np.float64)
    silent = np.zeros(machine.size_of("label"))
    wide = theta.astype(np.float64)
    sums = np.empty((machine.stages, machine.units))
    for stage, (start, stop) in enumerate(machine.stage_windows):
        before, after = x[start:stop], x[start + 1 : stop + 1]
        constants = step_constants(machine, np.float64, stage)
        coupling = coupling_gradient(wide, after, stage, silent)
        sums[stage] = residual(constants, drive(constants, before, after), coupling).sum(axis=0)
    return sums


@linear_algebra()
def pattern_losses(
    theta: Parameters, fields: Fields, marginals: Marginals, on_progress: OnProgress = _quiet
) -> Array64:
    """E[L] of the noising path of each pattern without labels, (P,)."""
    machine, losses = theta.machine, np.zeros(len(fields))
    w = machine.drift
    for stage, window in enumerate(machine.stage_windows):
        modes = TimeModes(marginals, *window)
        J = theta.coupling_matrix(stage)
        bias, J = J[:, -1], J[:, : machine.units]
        felt_variance = np.square(J).sum(axis=0)
        for first in range(0, len(fields), _IMAGES_AT_ONCE):
            some = slice(first, first + _IMAGES_AT_ONCE)
            path = modes.paths(fields[some])
            force = J @ path.mean + bias[:, None] * path.one
            work = (2 * path.drift * force + w * force**2).sum(axis=(1, 2))
            losses[some] += path.square + w * (work + w * (path.variance @ felt_variance))
            on_progress(len(work) / machine.stages)
    return losses / (4 * w * machine.kT)


def start_log_likelihoods(machine: Machine, fields: Fields, marginals: Marginals) -> Array64:
    """−E[V_onsite(x_K)]/k_BT − N ln Z of each pattern, (P,): E[ln p] of starting at x_K."""
    states = np.linspace(-_FARTHEST, _FARTHEST, 4001) * np.sqrt(machine.kT)
    weights = np.exp(-machine.potential.energy(states) / machine.kT)
    partition = float(trapezoid(weights, states))
    even = marginals.interpolation(np.asarray(fields, np.float64), "variance")
    energy: Array64 = (even @ marginals.energy[-1]).sum(axis=1)
    starts: Array64 = -energy / machine.kT - machine.units * np.log(partition)
    return starts


def log_likelihoods(theta: Parameters, fields: Fields, on_progress: OnProgress = _quiet) -> Array64:
    """Lower bounds of E[ln p(x₀ | class)], in nats, (P, classes); one column without labels. Each
    row depends on its fields alone.
    """
    machine = theta.machine
    likelihoods = np.empty((len(fields), max(1, machine.labels)))
    # tables reach to a power of two beyond the largest field, whatever the other rows have
    reach = np.ceil(np.log2(np.maximum(np.abs(fields).max(axis=1), 1.0)))
    for exponent in np.unique(reach):
        rows = reach == exponent
        marginals = solve_marginals(machine, float(2.0**exponent))
        losses = pattern_losses(theta, fields[rows], marginals, on_progress)
        bound = machine.steps * machine.units / 2 - losses
        bound += start_log_likelihoods(machine, fields[rows], marginals)
        likelihoods[rows] = bound[:, None]
        if machine.labels:
            sums = expected_residuals(theta, fields[rows], marginals)
            likelihoods[rows] += class_log_likelihoods(theta, sums)
    return likelihoods


@linear_algebra()
def label_losses(theta: Parameters, sums: Array64) -> Array64:
    """ΔL of every label unit, (P, L), from the sums of residuals (P, T, N)."""
    machine = theta.machine
    if machine.labels == 0:
        raise UserError("machine.labels = 0: a machine without labels cannot classify")
    change = np.zeros((len(sums), machine.size_of("label")))
    strength = machine.residual_scale * machine.label_amplitude
    for stage, (start, stop) in enumerate(machine.stage_windows):
        J = theta.coupling_matrix(stage)[:, theta.layout.positions["label"]]
        change += 2 * strength * (sums[:, stage] @ J)
        change += (stop - start) * strength**2 * np.square(J).sum(axis=0)
    return loss_scale(machine) * change


def class_log_likelihoods(theta: Parameters, sums: Array64) -> Array64:
    """ln p(path | class) up to a constant, (P, classes)."""
    machine = theta.machine
    losses = label_losses(theta, sums).reshape(len(sums), machine.labels, machine.styles)
    even = np.full((machine.labels, machine.styles), 1 / machine.styles)
    weights = even if theta.style_weights is None else theta.style_weights
    likelihoods: Array64 = logsumexp(-losses, b=weights, axis=2)
    return likelihoods
