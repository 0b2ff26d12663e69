"""Tasks are cut by what there is to do, for any number of workers.

Computers that share their noising paths stay in one task while there is other work for all workers,
and are tasks of their own towards the end or where there are many workers. With more workers than
trainings, samples are drawn in tasks of their own, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from thermoloom.experiments.models import SAMPLE_IN_CYCLES, piece, piece_paths
from thermoloom.experiments.results import (
    NO_PATHS,
    Paths,
    ended,
    finished,
    has_archive,
    measures_path,
    patterns_input,
    replay_path,
    trained_path,
)
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings

ON_GRID, NOISY = 5.0, 4.0
"""Cost of a cycle of training on a grid, or with noise on updates, in plain cycles."""

Training = list[Settings]
"""Models of one training: they differ in their samples only."""


def cost(models: Training, beside: Sequence[Training] = ()) -> float:
    """Approximate cost of training and sampling a computer, in plain training cycles.

    Beside another strength of update noise, no training of its own is needed.
    """
    training, errors = models[0].training, models[0].imperfections
    samples = SAMPLE_IN_CYCLES * sum(model.generation.samples for model in models)
    learned = any(_learned_as_one(models[0], other[0]) for other in beside)
    if models[0].solved or learned:
        return samples
    each = (ON_GRID if errors.bits < UNQUANTIZED else 1) * (NOISY if errors.update_noise else 1)
    return each * training.cycles + samples


def _learned_as_one(a: Settings, b: Settings) -> bool:
    """Whether two computers differ, but for their samples, in the strength of noise alone."""
    noisy = a.imperfections.update_noise > 0 and b.imperfections.update_noise > 0
    return noisy and replace(a.silent, generation=b.generation) == b.silent


def in_products(machine: Machine, cycles: float) -> float:
    """So many training cycles of a machine in a unit for all machines: products with couplings."""
    couplings = [block for block in layout(machine).blocks if block.columns in machine.groups]
    forces = sum(block.size * (1 if block.symmetric else 2) for block in couplings)
    return cycles * machine.steps * forces


def cut(
    groups: Mapping[tuple[str, int], Sequence[Training]], workers: int
) -> Iterator[tuple[tuple[str, int], list[Settings]]]:
    """Groups of trainings that share paths, cut so that all workers have work to the end.

    A task is no more than a worker's share of what is left: whole groups at first, single
    trainings at the end, and from the start where there are as many workers as trainings.
    """
    left = sum(
        cost(training, group[:i]) for group in groups.values() for i, training in enumerate(group)
    )
    alone = workers >= sum(len(group) for group in groups.values())
    for key, group in groups.items():
        together: list[Training] = []
        spent, share = 0.0, left / workers
        for training in group:
            more = cost(training, together)
            if together and (alone or spent + more > share * (1 + 1e-9)):
                yield key, [model for one in together for model in one]
                left = max(left - spent, cost(training))
                together, spent, share = [], 0.0, left / workers
                more = cost(training)
            together = [*together, training]
            spent += more
        if together:
            yield key, [model for one in together for model in one]
        left -= spent


def measuring_tasks(
    groups: Iterable[tuple[str, Sequence[Settings]]],
    folder: Path,
    workers: int,
    paths: Paths = NO_PATHS,
    replay: Settings | None = None,
) -> list[Task]:
    """Tasks that train and measure named groups of computers, those of one seed on shared paths.

    A computer that appears again, even with other samples, stays with the group that had it first:
    it is trained once, and no two tasks write to one run. ``replay``: the computer whose archive is
    generated again.

    Tasks that draw samples appear once the training is in the folder.
    """
    trainings: dict[Path, Training] = {}
    shared: dict[tuple[str, int], list[Training]] = {}
    for name, models in groups:
        for model in models:
            path = trained_path(Path(), model)
            if path not in trainings:
                trainings[path] = []
                shared.setdefault((name, model.training.seed), []).append(trainings[path])
            if model not in trainings[path]:
                trainings[path].append(model)
    tasks: list[Task] = []
    in_pieces = workers > len(trainings)
    for (name, _), models in cut(shared, workers):
        before = _before_measuring(name, models, folder) if in_pieces else []
        tasks += before or [_measuring_task(name, models, paths, replay, in_pieces)]
    return tasks


def _measuring_task(
    group: str, models: list[Settings], paths: Paths, replay: Settings | None, in_pieces: bool
) -> Task:
    here, replayed = Path(), replay if replay in models else None
    trainings: dict[Path, Training] = {}
    for model in models:
        trainings.setdefault(trained_path(here, model), []).append(model)
    each = list(trainings.values())
    cycles = sum(cost(training, each[:i]) for i, training in enumerate(each))
    outputs = [trained_path(here, model) for model in models]
    outputs += [measures_path(here, model, paths) for model in models]
    if replayed is not None:
        outputs.append(replay_path(here, replayed, paths))
    drawn = [path for model in models if in_pieces for path in piece_paths(here, model)]
    return Task(
        name=_name(group, models),
        function="thermoloom.experiments.models:train_and_measure",
        arguments={
            "models": [model.as_dict() for model in models],
            "paths": asdict(paths),
            "replay": None if replayed is None else models.index(replayed),
        },
        outputs=tuple(dict.fromkeys(str(path) for path in outputs)),
        inputs=(patterns_input(models[0]), *(str(path) for path in drawn)),
        cost=in_products(models[0].machine, cycles),
    )


def _name(group: str, models: list[Settings], what: str = "") -> str:
    """Where it belongs and what it is about; unique within an experiment."""
    described = ", ".join(dict.fromkeys(describe(model) for model in models))
    seed = f"seed {models[0].training.seed}: "
    return (f"{group}, " if group else "") + seed + described + (f", {what}" if what else "")


def _before_measuring(group: str, models: Training, folder: Path) -> list[Task]:
    """What remains to be done for a training before it is measured: training, then sampling."""
    training = ended(trained_path(folder, models[0]))
    if training is None:
        return [
            Task(
                name=_name(group, models, "training"),
                function="thermoloom.experiments.models:train_only",
                arguments={"model": models[0].as_dict()},
                outputs=(str(trained_path(Path(), models[0])),),
                inputs=(patterns_input(models[0]),),
                cost=in_products(models[0].machine, models[0].training.cycles),
            )
        ]
    if training.state == "diverged":
        return []
    tasks: dict[Path, Task] = {}
    for model in models:
        if has_archive(training, model):
            continue
        for number, path in enumerate(piece_paths(Path(), model)):
            first, samples = piece(model, number)
            what = f"samples {first} to {first + samples - 1} of {model.generation_seed}"
            tasks[path] = Task(
                name=_name(group, models, what),
                function="thermoloom.experiments.models:draw_piece",
                arguments={"model": model.as_dict(), "number": number},
                outputs=(str(path),),
                inputs=(str(trained_path(Path(), model)),),
                cost=in_products(model.machine, SAMPLE_IN_CYCLES * samples),
            )
    return [task for path, task in tasks.items() if finished(folder / path) is None]


def describe(settings: Settings) -> str:
    """A model in a few words: its rule, and what differs from the defaults of training."""
    training, errors = settings.training, settings.imperfections
    rule = "optimum" if settings.solved else training.rule
    words = [rule if training.period is None else f"period {training.period}"]
    if training.learning_rate_scale != 1:
        words.append(f"rate × {training.learning_rate_scale:g}")
    plain = type(errors)()
    changed = {k: v for k, v in asdict(errors).items() if v != getattr(plain, k)}
    words += [f"{key.replace('_', ' ')} {value}" for key, value in changed.items()]
    return " ".join(words)
