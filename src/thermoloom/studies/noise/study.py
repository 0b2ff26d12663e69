"""Perturbation response: where errors enter the local update, and how they are correlated.

    update noise     u → u + σ_upd ζ       on every formed update       100 cycles, 200 samples
    residual noise   r → r + σ_res ξ       on every node residual        40 cycles,  60 samples
    offset           r → r + 0.2 ξ + μ     the same μ on every node      40 cycles,  60 samples
    AR(1)            ξ_{k+1} = ρ ξ_k + √(1 − ρ²) ε_k,   σ_res = 0.2      40 cycles,  60 samples
    accumulation     u → u + σ_upd ζ, added up over M = 10, 100, 2500   100 cycles,  60 samples

Both amplitudes run from 0 to 0.40 in steps of 0.05. The paper does not give its offsets and
correlations. Offsets begin where their effect is small over 40 cycles (0.001) and end where it has
grown by orders of magnitude. Correlations approach 1: the memory 1/(1 − ρ) of the error grows from
1.4 to 100 steps. Within a screen the thermal seed, the error stream and the generation seed are the
same for all conditions. The paper did not measure quality in the update-noise screen; here all
screens measure it. The paper has no figure of accumulated updates; its text says that errors
also average out there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import Case
from thermoloom.studies.gather import Gathered
from thermoloom.studies.screens import SET, check_grid, condition, responses_of, summarize_screens
from thermoloom.studies.study import Figure, Plan, Study

UPDATE, RESIDUAL, OFFSET, MEMORY = "update noise", "residual noise", "offset", "AR(1)"
SCREENS = (UPDATE, RESIDUAL, OFFSET, MEMORY)
PERIODS = "accumulated update noise"
"""A screen with a curve for each update period, which the paper mentions but does not show."""
BELOW_CROSSOVER = 0.30
"""σ_upd up to which the paper finds heat near its baseline."""
BEYOND_CROSSOVER = 0.35
"""σ_upd at which the paper finds large heat degradation."""
GRID = tuple(round(0.05 * i, 2) for i in range(9))


@dataclass(frozen=True)
class NoisePlan(Plan):
    """Grids, cycles and samples of the four screens."""

    seeds: tuple[int, ...] = (101,)
    update_noise: tuple[float, ...] = GRID
    """σ_upd."""
    update_cycles: int = 100
    update_samples: int = 200
    residual_noise: tuple[float, ...] = GRID
    """σ_res."""
    residual_offset: tuple[float, ...] = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
    """μ_bias, on top of residual noise of ``amplitude``."""
    residual_correlation: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9, 0.95, 0.99)
    """ρ, at residual noise of ``amplitude``."""
    amplitude: float = 0.2
    """σ_res in the screens of offset and correlation."""
    residual_cycles: int = 40
    residual_samples: int = 60
    periods: tuple[int, ...] = (10, 100, 2500)
    """M, steps over which noisy updates are accumulated; those of ``update_noise`` have M = 1."""
    period_noise: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4)
    """σ_upd of accumulated updates; training takes ``update_cycles``."""
    period_samples: int = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("update_noise", self.update_noise, low=0, reference=0)
        check_grid("residual_noise", self.residual_noise, low=0, reference=0)
        check_grid("residual_offset", self.residual_offset, reference=0)
        check_grid("residual_correlation", self.residual_correlation, low=0, reference=0)
        check_grid("periods", self.periods, 2)
        check_grid("period_noise", self.period_noise, low=0, reference=0)

    def computer(self, seed: int, cycles: int, samples: int, **errors: float) -> Settings:
        """Settings of a computer trained online with these errors."""
        return self.settings.updated(
            {
                "training": {"rule": "online", "period": None, "seed": seed, "cycles": cycles},
                "imperfections": errors,
                "generation": {"samples": samples},
            }
        )

    def screen(self, name: str) -> list[Case]:
        """The conditions of one screen, seed by seed."""
        noisy = {"residual_noise": self.amplitude}
        grid, key, errors = {
            UPDATE: (self.update_noise, "update_noise", {}),
            RESIDUAL: (self.residual_noise, "residual_noise", {}),
            OFFSET: (self.residual_offset, "residual_offset", noisy),
            MEMORY: (self.residual_correlation, "residual_correlation", noisy),
        }[name]
        cycles, samples = (
            (self.update_cycles, self.update_samples)
            if name == UPDATE
            else (self.residual_cycles, self.residual_samples)
        )
        return [
            condition(name, value, self.computer(seed, cycles, samples, **errors, **{key: value}))
            for seed in self.seeds
            for value in grid
        ]

    @property
    def accumulated(self) -> list[Case]:
        """Update noise on updates that are accumulated, for periods that the machine allows."""
        steps = self.settings.machine.steps
        return [
            condition(
                PERIODS,
                value,
                self.computer(
                    seed, self.update_cycles, self.period_samples, update_noise=value
                ).updated({"training": {"rule": "delayed", "period": period}}),
                variant(period),
            )
            for period in self.periods
            if period <= steps
            for seed in self.seeds
            for value in self.period_noise
        ]


def variant(period: int) -> str:
    """Name of the curve of an update period."""
    return f"M = {period}"


def cases(plan: NoisePlan, folder: Path) -> list[Case]:
    """The conditions of all screens; update noise, which costs most, first."""
    return [*(case for name in SCREENS for case in plan.screen(name)), *plan.accumulated]


def summarize(plan: NoisePlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of the four screens, and their summary."""
    return summarize_screens(responses_of(gathered), plan, gathered, run) | {
        "cycles": {"update": plan.update_cycles, "residual": plan.residual_cycles},
        "samples": {
            "update": plan.update_samples,
            "residual": plan.residual_samples,
            "period": plan.period_samples,
        },
        "amplitude": plan.amplitude,
        "periods": [m for m in plan.periods if m <= plan.settings.machine.steps],
    }


STUDY = Study(
    name="noise",
    title="Perturbation response: noise, offset, memory",
    question="Figure 4: where can errors enter, and how large can they be?",
    presets={
        "paper": NoisePlan(),
        "quick": NoisePlan(
            update_noise=(0.0, 0.2, 0.4),
            update_cycles=8,
            update_samples=16,
            residual_noise=(0.0, 0.2, 0.4),
            residual_offset=(0.0, 0.01, 0.1),
            residual_correlation=(0.0, 0.6, 0.95, 0.99),
            residual_cycles=10,
            residual_samples=16,
            periods=(2500,),
            period_noise=(0.0, 0.2),
            period_samples=16,
        ),
    },
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("figure-4", "Response to perturbations", "draw_heat"),
        Figure("accumulated", "Noise on accumulated updates", "draw_accumulated"),
    ),
    order=3,
    together=True,
    varied=(*SET, "training.cycles", "generation.samples"),
)
