"""Turn the cases that can be computed now into tasks, cut for any number of workers.

Computers that share their noising paths stay in one task while there is work for all workers, and
become separate tasks towards the end, or where there are many workers. With more workers than
trainings, samples are drawn in separate tasks, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings
from thermoloom.studies.case import Case, ended, finished, name_of, trained_path
from thermoloom.studies.gather import has_archive
from thermoloom.studies.sampled_computer import SAMPLE_IN_CYCLES, piece, piece_paths

ON_GRID, NOISY = 5.0, 4.0
"""Cost of a cycle of training on a grid, or with noise on updates, in plain cycles."""

Training = list[Case]
"""Cases of one training: they differ only in their samples."""


def tasks_of(cases: Iterable[Case], folder: Path, workers: int) -> list[Task]:
    """Tasks of all cases whose needs are done; no two tasks write to one run."""
    ready = [case for case in cases if all(finished(folder / need.path) for need in case.needs)]
    measures = {case.path: case for case in ready if not case.samples_computer}
    return [
        *_computer_tasks([case for case in ready if case.samples_computer], folder, workers),
        *(_measure_task(case) for case in measures.values()),
    ]


def _measure_task(case: Case) -> Task:
    cost = None if case.cycles is None else in_products(case.settings.machine, case.cycles)
    return Task(
        name=case.name,
        function="thermoloom.studies.case:carry_out",
        arguments={"case": case.as_json()},
        outputs=case.outputs,
        inputs=case.inputs,
        cost=cost,
    )


def in_products(machine: Machine, cycles: float) -> float:
    """Cost of training cycles in a unit common to all machines: products with couplings."""
    couplings = [block for block in layout(machine).blocks if block.columns in machine.groups]
    forces = sum(block.size * (1 if block.symmetric else 2) for block in couplings)
    return cycles * machine.steps * forces


# --- sampled computers ---


def _computer_tasks(cases: Iterable[Case], folder: Path, workers: int) -> list[Task]:
    """Tasks that train and measure computers, those of one group with the same paths together.

    A computer that appears again, even with other samples, stays with the group that had it first:
    it is trained once. Tasks that draw samples appear once the training is in the folder.
    """
    trainings: dict[Path, Training] = {}
    shared: dict[Hashable, list[Training]] = {}
    for case in cases:
        settings, path = case.settings, trained_path(Path(), case.settings)
        if path not in trainings:
            trainings[path] = []
            paths = (settings.machine, settings.device, settings.patterns, settings.training.seed)
            shared.setdefault((case.group, *paths), []).append(trainings[path])
        if case.path not in [other.path for other in trainings[path]]:
            trainings[path].append(case)
    tasks: list[Task] = []
    in_pieces = workers > len(trainings)
    for part in cut(shared, workers):
        before = _tasks_before_measuring(part, folder) if in_pieces else []
        tasks += before or [_computer_task(part, in_pieces)]
    return tasks


def cost(training: Training, beside: Sequence[Training] = ()) -> float:
    """Approximate cost of training and sampling a computer, in plain training cycles.

    A computer that differs from one of ``beside`` only in the strength of its update noise costs
    no separate training.
    """
    settings = training[0].settings
    errors = settings.imperfections
    samples = SAMPLE_IN_CYCLES * sum(case.settings.generation.samples for case in training)
    shared = any(_trained_as_one(settings, other[0].settings) for other in beside)
    if settings.solved or shared:
        return samples
    cycle = (ON_GRID if errors.bits < UNQUANTIZED else 1) * (NOISY if errors.update_noise else 1)
    return cycle * settings.training.cycles + samples


def _trained_as_one(a: Settings, b: Settings) -> bool:
    """Whether two computers differ, apart from samples, only in the strength of update noise."""
    noisy = a.imperfections.update_noise > 0 and b.imperfections.update_noise > 0
    clean, other = a.without_update_noise, b.without_update_noise
    return noisy and replace(clean, generation=b.generation) == other


def cut(groups: Mapping[Hashable, Sequence[Training]], workers: int) -> Iterator[list[Case]]:
    """Cut groups of trainings that share paths so that all workers have work until the end.

    A task costs no more than a worker's share of the remaining cost: groups at first, single
    trainings at the end, or from the start if there is a worker for each training.
    """
    remaining = sum(
        cost(training, group[:i]) for group in groups.values() for i, training in enumerate(group)
    )
    alone = workers >= sum(len(group) for group in groups.values())
    for group in groups.values():
        together: list[Training] = []
        spent, share = 0.0, remaining / workers
        for training in group:
            added = cost(training, together)
            if together and (alone or spent + added > share * (1 + 1e-9)):
                yield [case for member in together for case in member]
                remaining = max(remaining - spent, cost(training))
                together, spent, share = [], 0.0, remaining / workers
                added = cost(training)
            together = [*together, training]
            spent += added
        if together:
            yield [case for member in together for case in member]
        remaining -= spent


def _computer_task(cases: list[Case], in_pieces: bool) -> Task:
    trainings: dict[Path, Training] = {}
    for case in cases:
        trainings.setdefault(trained_path(Path(), case.settings), []).append(case)
    group = list(trainings.values())
    cycles = sum(cost(training, group[:i]) for i, training in enumerate(group))
    drawn = [path for case in cases if in_pieces for path in piece_paths(Path(), case.settings)]
    inputs = [path for case in cases for path in case.inputs]
    return Task(
        name=name_of(cases),
        function="thermoloom.studies.sampled_computer:sample_computers",
        arguments={"cases": [case.as_json() for case in cases]},
        outputs=tuple(dict.fromkeys(path for case in cases for path in case.outputs)),
        inputs=tuple(dict.fromkeys([*inputs, *map(str, drawn)])),
        cost=in_products(cases[0].settings.machine, cycles),
    )


def _tasks_before_measuring(cases: list[Case], folder: Path) -> list[Task]:
    """What remains to be done for a training before it is measured: training, then sampling."""
    case, settings = cases[0], cases[0].settings
    place = str(trained_path(Path(), settings))
    training = ended(trained_path(folder, settings))
    if training is None:
        return [
            Task(
                name=f"{name_of(cases)}, training",
                function="thermoloom.studies.sampled_computer:train_only",
                arguments={"case": case.as_json()},
                outputs=(place,),
                inputs=case.inputs,
                cost=in_products(settings.machine, settings.training.cycles),
            )
        ]
    if training.state == "diverged":
        return []
    tasks: dict[Path, Task] = {}
    for case in cases:
        settings = case.settings
        if has_archive(training, settings):
            continue
        for number, path in enumerate(piece_paths(Path(), settings)):
            first, samples = piece(settings, number)
            detail = f"samples {first} to {first + samples - 1} of seed {settings.generation_seed}"
            tasks[path] = Task(
                name=f"{name_of(cases)}, {detail}",
                function="thermoloom.studies.sampled_computer:draw_piece",
                arguments={"case": case.as_json(), "number": number},
                outputs=(str(path),),
                inputs=(place,),
                cost=in_products(settings.machine, SAMPLE_IN_CYCLES * samples),
            )
    return [task for path, task in tasks.items() if finished(folder / path) is None]
