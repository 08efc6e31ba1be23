"""The N descent directions of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyperes.backbone import Backbone
from hyperes.config import AdapterDirections, CmaDirections, Config, GrpoDirections, RandomDirections
from hyperes.directions import STEPS_FILE, adapters, cma, grpo, random
from hyperes.files import read_json_lines
from hyperes.partition import partition
from hyperes.problems import Problem
from hyperes.progress import stage
from hyperes.stages.session import Direction, Session
from hyperes.store import Artifact


def make_directions(session: Session, config: Config, backbone: Backbone, train: Sequence[Problem]) -> list[Direction]:
    """The N descent directions, made in child processes where the store does not have them."""
    settings = config.directions
    if isinstance(settings, AdapterDirections):
        return [Direction(adapters.key(Path(path)), Path(path), [], 0.0) for path in settings.paths]
    if isinstance(settings, GrpoDirections):
        return _grpo(session, config, settings, backbone, train)
    if isinstance(settings, CmaDirections):
        return _cma(session, config, settings, backbone, train)
    if isinstance(settings, RandomDirections):
        return _random(session, config, settings, backbone, train)
    return []


def _grpo(
    session: Session,
    config: Config,
    settings: GrpoDirections,
    backbone: Backbone,
    train: Sequence[Problem],
    name: str = "directions",
) -> list[Direction]:
    subsets = partition(train, settings.partition, settings.count, config.seed, config.dataset.train.path)
    tasks = []
    for subset in subsets:
        recipe, trajectory = grpo.recipes(settings, subset, backbone, config.seed)
        tasks.append(
            grpo.GrpoTask(str(session.store.root), recipe, trajectory, backbone, settings, tuple(subset), config.seed)
        )

    def summary(made: Sequence[Direction]) -> str:
        flat = [100 * share for share in _flat_shares(made)]
        return f"{settings.steps} steps each; {_rewards(made)}; groups without signal {min(flat):.0f}-{max(flat):.0f} %"

    directions = _make(
        session,
        name,
        tasks,
        grpo.train,
        settings.steps,
        lambda task: grpo.steps_so_far(session.store, task.trajectory),
        summary,
    )
    for index, share in enumerate(_flat_shares(directions)):
        if share > grpo.FLAT_WARNING:
            print(f"warning: direction {index}: {100 * share:.0f} % of its groups had equal rewards, so it is "
                  "mostly noise at full size; its subset is too hard or too easy for this backbone")  # fmt: skip
    return directions


def _cma(
    session: Session, config: Config, settings: CmaDirections, backbone: Backbone, train: Sequence[Problem]
) -> list[Direction]:
    from hyperes import lora

    subsets = partition(train, settings.partition, settings.count, config.seed, config.dataset.train.path)
    dimension = lora.layout(backbone, settings.lora).dimension
    tasks = cma.tasks(session.store, settings, dimension, backbone, subsets, config.seed)
    missing = sum(session.store.find(task.recipe) is None for task in tasks)
    cma.check_memory(dimension, min(missing, config.executor.workers))

    def summary(made: Sequence[Direction]) -> str:
        return (
            f"{settings.generations} generations x {tasks[0].population} over {dimension:,} variables each; "
            f"{_rewards(made)}"
        )

    return _make(
        session,
        "directions",
        tasks,
        cma.search,
        tasks[0].trials,
        lambda task: cma.trials_so_far(session.store, task.recipe),
        summary,
    )


def _random(
    session: Session, config: Config, settings: RandomDirections, backbone: Backbone, train: Sequence[Problem]
) -> list[Direction]:
    matched: list[Direction] = []
    if settings.grpo is not None:
        matched = _grpo(session, config, settings.grpo, backbone, train, "matched")
    pairs = [(direction.key, direction.folder) for direction in matched]
    tasks = random.tasks(session.store, settings, backbone, pairs, config.seed)

    def summary(made: Sequence[Direction]) -> str:
        return f"Gaussian, norm {made[0].steps[-1]['norm']:.4g} each"

    return _make(session, "directions", tasks, random.make, 1, lambda task: 0, summary)


def _make(
    session: Session,
    name: str,
    tasks: Sequence[Any],
    work: Callable[[Any], Path],
    units: int,
    done: Callable[[Any], int],
    summary: Callable[[Sequence[Direction]], str],
) -> list[Direction]:
    """Make what is missing in child processes, showing progress; the directions in order.

    A task has its direction's ``recipe`` and ``work(task)`` publishes it, in ``units`` steps, ``done(task)`` of them
    made so far. ``name`` is what the terminal and W&B call the pool.
    """
    missing = [task for task in tasks if session.store.find(task.recipe) is None]
    directions: list[Direction] = []
    with stage(name, len(tasks) * units) as bar:

        def poll() -> None:
            made = (units if session.store.find(task.recipe) else min(done(task), units) for task in missing)
            bar.set((len(tasks) - len(missing)) * units + sum(made))
            # In the order of the pool, so that every restart writes the same history.
            while len(directions) < len(tasks) and (artifact := session.store.find(tasks[len(directions)].recipe)):
                directions.append(_direction(artifact))
                for row in directions[-1].steps:
                    session.tracker.log(f"{name}/{len(directions) - 1:02d}", row)

        poll()
        session.executor.map(work, missing, on_poll=poll, in_child=True)
        poll()
        bar.summary = f"{len(missing)} made, {len(tasks) - len(missing)} reused; {summary(directions)}"
    return directions


def _rewards(made: Sequence[Direction]) -> str:
    first, last = (float(np.mean([direction.steps[at]["reward"] for direction in made])) for at in (0, -1))
    return f"mean reward {first:.3f} -> {last:.3f}"


def _flat_shares(made: Sequence[Direction]) -> list[float]:
    """Per direction the mean share of groups whose rewards were all equal."""
    return [float(np.mean([row["zero_variance"] for row in direction.steps])) for direction in made]


def _direction(artifact: Artifact) -> Direction:
    steps = [row for _, row in read_json_lines(artifact.path / STEPS_FILE)]
    return Direction(artifact.key, artifact.path / "adapter", steps, sum(row["seconds"] for row in steps))
