"""Machines with few wires: training and sampling, relative to dense machines and memory bandwidth.

A stepwise rule has to read and write every coupling at every step, and to read which two units it
joins. The time to copy these bytes is the limit of any such kernel; ours keeps a block of steps in
the cache, and so may be faster.
"""

from __future__ import annotations

from benchmarks.generating import sampling, shortened, trained
from benchmarks.harness import (
    Contestant,
    Options,
    Result,
    Row,
    all_threads,
    clocked,
    default_fields,
    in_turns,
    memory_copy,
)
from benchmarks.memory import LARGE, LARGE_WIRINGS, MEGABYTE
from benchmarks.memory import measure as spent_on
from benchmarks.training import cycles, settings_for
from thermoloom.engines import engine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import measure
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee

WIRINGS = {
    "random, degree 24": {"topology": "random", "degree": 24},
    "grid, radius 5": {"topology": "grid", "radius": 5},
}
"""With the paper's 784 + 512 units; the grid has about as many wires per unit."""
COPIED = 1 << 28
"""Bytes copied to measure the memory bandwidth: far more than caches hold."""


def on_wires(wiring: dict[str, object]) -> Settings:
    return settings_for().updated({"machine": wiring})


def learning(settings: Settings) -> Contestant:
    """Learning from a given path, timed per step."""
    machine, theta = settings.machine, Parameters.zeros(settings.machine)
    path = engine().path(machine, default_fields(settings)[0], 101, 0)
    learner = engine().learner(settings)
    return clocked(lambda: learner.update(theta, {}, path), machine.steps, tries=4)


def step_bytes(settings: Settings) -> int:
    """Bytes of one step of a stepwise rule: J read and written, two ends of 4 bytes, x and r."""
    return 16 * measure(settings.machine).wires + 2 * 4 * settings.machine.units


def run(options: Options) -> Result:
    result, cores = Result(), all_threads()
    engine().warm_up()
    chosen = {name: on_wires(wiring) for name, wiring in WIRINGS.items()}
    dense = settings_for()
    contestants = {"copy": memory_copy(COPIED, cores, 2), "dense": cycles(Trainee.new(dense))}
    for name, settings in chosen.items():
        contestants[name] = cycles(Trainee.new(settings))
        contestants[f"{name}/learner"] = learning(settings)
    options.say("training on few wires, alternating with dense training")
    best = in_turns(contestants, options.rounds)
    rate = 2 / best["copy"]  # a copied byte is read and written
    steps = dense.machine.steps
    result.rows = [
        Row(f"memory, {cores} threads", rate * 1e-9, "GB/s", "more", note="read and written"),
        Row("dense online training, a step", best["dense"] / steps * 1e6, "µs"),
    ]
    for name, settings in chosen.items():
        size, needed = measure(settings.machine), step_bytes(settings)
        learned = best[f"{name}/learner"]
        result.rows += [
            Row(f"{name}: a step with its paths", best[name] / steps * 1e6, "µs",
                note=f"{size.wires:,} wires, {size.degree:.1f} per unit"),
            Row("  × dense", best["dense"] / best[name], "×", "more", bar=5.0),
            Row("  the learner alone", learned * 1e6, "µs", limit=needed / rate * 1e6),
            Row(f"  its {needed / 1e3:.0f} kB a step", needed / learned / rate, "of memory rate",
                "more", limit=1.0, bar=0.3,
                note="couplings read and written, their ends read, x and r, once per step; a "
                "block of steps stays in the cache, so it may exceed 1"),
        ]  # fmt: skip
    result.rows += _sampling(options)
    result.rows += _large(options)
    return result


def _large(options: Options) -> list[Row]:
    """100,000 units with 24 wires each, in separate processes."""
    rows = []
    for wiring in LARGE_WIRINGS:
        options.say(f"{LARGE:,} units, {wiring}")
        trained, used = spent_on(f"wires {wiring}"), spent_on(f"large {wiring}")
        rows += [
            Row(f"{LARGE:,} units, {wiring}: a wire and step", 1e9 * trained.seconds, "ns",
                bar=2.0, note="training with its paths"),
            Row("  a cycle, ten samples and the optimum of ten patterns", used.seconds, "s"),
            Row("  their memory", used.peak / MEGABYTE, "MB", bar=2000.0, note="with libraries"),
        ]  # fmt: skip
    return rows


def _sampling(options: Options) -> list[Row]:
    """200 samples of a machine with few wires, compared with the dense machine."""
    few, dense = on_wires(WIRINGS["random, degree 24"]), Settings()
    contestants = {
        name: sampling(shortened(settings.machine), trained(settings))
        for name, settings in {"few": few, "dense": dense}.items()
    }
    options.say("sampling on few wires")
    best = in_turns(contestants, 2)
    ratio = best["dense"] / best["few"]
    step = Row("sampling on few wires, a sample and step", best["few"] * 1e6, "µs")
    return [step, Row("  × dense", ratio, "×", "more", note="with preparation, normals, heats")]
