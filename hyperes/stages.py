"""The stages of a run. Each is a recipe and a builder; what it needs it is handed, what it makes is in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hyperes import evaluation, fitness, problems, versions
from hyperes.backbone import Backbone
from hyperes.config import AdapterDirections, Config, GrpoDirections
from hyperes.directions import adapters, grpo
from hyperes.errors import UserError
from hyperes.evaluation import Bench, Task
from hyperes.executors import Executor
from hyperes.files import read_json, read_json_lines, write_json, write_json_lines
from hyperes.fitness import Fitness
from hyperes.genome import Candidate, Genome
from hyperes.partition import partition
from hyperes.pool import layer_groups, read_adapter
from hyperes.problems import Problem, Problems, content_key
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.search import grid
from hyperes.search.evolve import Generation, evolve
from hyperes.store import Artifact, Store
from hyperes.tracking import Tracker


@dataclass(frozen=True)
class Session:
    """What every stage works with, none of which may change a result."""

    store: Store
    executor: Executor
    tracker: Tracker


@dataclass(frozen=True)
class Direction:
    """One direction of the pool: its identity, its PEFT folder, its training history."""

    key: str
    folder: Path
    steps: list[dict[str, Any]]
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The candidate that a search settled on."""

    candidate: Candidate
    drop_rate: float  # the shared one it started from
    scale: float
    fitness: float | None  # validation accuracy; None where nothing was searched
    evaluations: int  # candidates evaluated to get here
    seconds: dict[str, float]  # by stage
    artifact: str | None
    z: list[float] | None = None


def on_wait(message: str) -> None:
    print(message, flush=True)


def prepare_problems(session: Session, config: Config) -> tuple[Problems, Path]:
    """Problems of all sources, validation drawn apart; returns them and their folder."""
    with stage("problems", 1) as bar:
        recipe = Recipe("problems", versions.PROBLEMS, problems.recipe_slice(config.dataset, config.seed), {})
        folder = session.store.build(
            recipe, lambda out: problems.prepare(config.dataset, config.seed, out), on_wait
        ).path
        ready = problems.read(folder)
        removed = len(read_json(folder / "report.json")["removed_from_train"])
        suites = ", ".join(f"{name} {len(suite)}" for name, suite in ready.suites.items())
        dropped = f", {removed} repeated or test questions removed" if removed else ""
        bar.summary = f"{len(ready.train)} train, {len(ready.validation)} validation{dropped}; tests: {suites}"
    return ready, folder


def make_directions(session: Session, config: Config, backbone: Backbone, train: Sequence[Problem]) -> list[Direction]:
    """The N descent directions, trained in child processes where the store does not have them."""
    settings = config.directions
    if settings.source == "none":
        return []
    if isinstance(settings, AdapterDirections):
        return [Direction(adapters.key(Path(path)), Path(path), [], 0.0) for path in settings.paths]
    assert isinstance(settings, GrpoDirections)
    subsets = partition(train, settings.partition, settings.count, config.seed)
    tasks = []
    for subset in subsets:
        recipe, trajectory = grpo.recipes(settings, subset, backbone, config.seed)
        tasks.append(
            grpo.GrpoTask(str(session.store.root), recipe, trajectory, backbone, settings, tuple(subset), config.seed)
        )
    missing = [task for task in tasks if session.store.find(task.recipe) is None]
    directions: list[Direction] = []
    with stage("directions", len(tasks) * settings.steps) as bar:
        reused = (len(tasks) - len(missing)) * settings.steps

        def poll() -> None:
            steps = (grpo.steps_so_far(session.store, task.trajectory) for task in missing)
            bar.set(reused + sum(min(done, settings.steps) for done in steps))
            # In the order of the pool, so that every restart writes the same history.
            while len(directions) < len(tasks) and (artifact := session.store.find(tasks[len(directions)].recipe)):
                directions.append(_direction(artifact))
                for row in directions[-1].steps:
                    session.tracker.log(f"directions/{len(directions) - 1:02d}", row)

        poll()
        session.executor.map(grpo.train, missing, on_poll=poll, in_child=True)
        poll()
        first = float(np.mean([direction.steps[0]["reward"] for direction in directions]))
        last = float(np.mean([direction.steps[-1]["reward"] for direction in directions]))
        flat = [float(np.mean([row["zero_variance"] for row in direction.steps])) for direction in directions]
        bar.summary = (
            f"{len(missing)} trained, {len(tasks) - len(missing)} reused, {settings.steps} steps each; mean reward "
            f"{first:.3f} -> {last:.3f}; groups without signal {100 * min(flat):.0f}-{100 * max(flat):.0f} %"
        )
    for index, share in enumerate(flat):
        if share > grpo.FLAT_WARNING:
            print(f"warning: direction {index}: {100 * share:.0f} % of its groups had equal rewards, so it is "
                  "mostly noise at full size; its subset is too hard or too easy for this backbone")  # fmt: skip
    return directions


def genome_of(directions: Sequence[Direction]) -> Genome:
    """The search space over the pool: its layer groups in order, times N directions."""
    searched, unsearched = layer_groups(name for direction in directions for name in read_adapter(direction.folder))
    if not searched:
        raise UserError(
            "the directions touch no attention (q, k, v, o) or MLP (gate, up, down) projection of a decoder layer, so "
            "there is nothing to search; Hyper-ES needs a Llama- or Qwen-style model"
        )
    return Genome(searched, len(directions), unsearched)


def make_bench(config: Config, backbone: Backbone, directions: Sequence[Direction]) -> Bench:
    pairs = tuple((direction.key, str(direction.folder)) for direction in directions)
    return Bench(
        backbone, pairs, config.merger.mask, config.seed, config.engine.max_new_tokens, config.engine.batch_size
    )


def make_fitness(session: Session, bench: Bench, folder: Path, validation: Sequence[Problem]) -> Fitness:
    return Fitness(session.store, session.executor, bench, str(folder / "validation.jsonl"), content_key(validation))


def gamma(config: Config, scale: float) -> float:
    """The global magnitude of the merged update (eq. 21)."""
    return scale * config.directions.count if config.merger.magnitude == "scale_times_count" else 1.0


def fixed_choice(config: Config, genome: Genome) -> Choice:
    """No search: the merger's own scale and drop rate for every group."""
    merger = config.merger
    rate = merger.drop_rate if merger.dare else 0.0
    candidate = genome.shared(rate, gamma=gamma(config, merger.scale), dare=merger.dare, ties=merger.ties)
    return Choice(candidate, rate, merger.scale, None, 0, {}, None)


def search_grid(session: Session, config: Config, genome: Genome, score: Fitness) -> Choice:
    """Warm start (eq. 22): the best shared scale and drop rate with the merger's own flags."""
    settings, merger = config.optimizer.grid, config.merger
    assert settings is not None
    points = grid.points(settings.scales, settings.drop_rates, settings.dare, settings.ties)

    def candidate(point: grid.GridPoint) -> Candidate:
        return genome.shared(point.drop_rate, gamma=gamma(config, point.scale), dare=point.dare, ties=point.ties)

    logged: list[int] = []

    def log(index: int, accuracy: float) -> None:
        session.tracker.log("grid", {"point": index, **asdict(points[index]), "fitness": accuracy})
        logged.append(index)
        bar.advance()

    def build(out: Path) -> None:
        scores = score([candidate(point) for point in points], log)
        rows = [{**asdict(point), "fitness": accuracy} for point, accuracy in zip(points, scores, strict=True)]
        write_json_lines(out / "grid.jsonl", rows)

    slice_ = {"points": [asdict(point) for point in points], "magnitude": merger.magnitude}
    with stage("grid", len(points)) as bar:
        artifact = session.store.build(
            Recipe("grid", versions.SEARCH, slice_, {"fitness": score.context}), build, on_wait
        )
        rows = [row for _, row in read_json_lines(artifact.path / "grid.jsonl")]
        scores = [row["fitness"] for row in rows]
        for index in range(len(logged), len(points)):
            log(index, scores[index])
        best, start = grid.choose(points, scores), grid.choose_start(points, scores, merger.dare, merger.ties)
        chosen = points[start]
        bar.summary = (
            f"{len(points)} points; start scale {chosen.scale:g}, drop rate {chosen.drop_rate:g}: validation "
            f"{100 * scores[start]:.1f} % (best of all flags {100 * scores[best]:.1f} %)"
        )
    for warning in grid.edge_warnings(points, start):
        print(f"warning: {warning}")
    return Choice(
        candidate(chosen),
        chosen.drop_rate,
        chosen.scale,
        scores[start],
        len(points),
        {"grid": _seconds(artifact)},
        artifact.key,
    )


def evolve_coefficients(session: Session, config: Config, genome: Genome, score: Fitness, start: Choice) -> Choice:
    """CMA-ES over every group's coefficients (eq. 23-31); the answer is the final distribution mean."""
    settings, merger = config.optimizer.evolution, config.merger
    assert settings is not None
    population = settings.population or genome.population
    z0 = genome.start(start.drop_rate)

    def decode(z: np.ndarray) -> Candidate:
        return genome.decode(
            z, gamma=start.candidate.gamma, dare=merger.dare, ties=merger.ties, shared_drop_rate=start.drop_rate
        )

    def build(out: Path) -> None:
        def on_generation(generation: Generation) -> None:
            if generation.replayed:
                bar.advance(population)
            session.tracker.log("evolve", _generation_row(generation))
            logged.append(generation.number)
            bar.note(f"best {generation.best:.3f} mean {generation.mean:.3f} sigma {generation.sigma:.3f}")

        outcome = evolve(
            out / "trials.jsonl",
            z0,
            sigma=settings.sigma,
            population=population,
            generations=settings.generations,
            seed=config.seed,
            diagonal=settings.diagonal,
            evaluate=lambda vectors: score([decode(z) for z in vectors], lambda index, fitness: bar.advance()),
            on_generation=on_generation,
        )
        history = [_generation_row(generation) for generation in outcome.generations]
        answer = {
            "z": outcome.mean_vector.tolist(),
            "fitness": score([decode(outcome.mean_vector)])[0],
            "best_seen": outcome.best_fitness,
            "generations": history,
        }
        write_json(out / "evolution.json", answer)

    slice_ = {
        **asdict(settings),
        "population": population,
        "start": z0.tolist(),
        "gamma": start.candidate.gamma,
        "shared_drop_rate": start.drop_rate,
        "dare": merger.dare,
        "ties": merger.ties,
    }
    logged: list[int] = []
    with stage("evolve", population * settings.generations) as bar:
        artifact = session.store.build(
            Recipe("evolve", versions.SEARCH, slice_, {"fitness": score.context}), build, on_wait
        )
        answer = read_json(artifact.path / "evolution.json")
        bar.summary = (
            f"{settings.generations} generations x {population} over {genome.dimension} variables: validation of the "
            f"final mean {100 * answer['fitness']:.1f} % (best candidate seen {100 * answer['best_seen']:.1f} %)"
        )
    for row in [] if logged else answer["generations"]:
        session.tracker.log("evolve", row)
    return Choice(
        decode(np.array(answer["z"])),
        start.drop_rate,
        start.scale,
        answer["fitness"],
        start.evaluations + population * settings.generations + 1,
        {**start.seconds, "evolve": _seconds(artifact)},
        artifact.key,
        answer["z"],
    )


def chosen_suites(config: Config, ready: Problems) -> dict[str, tuple[Problem, ...]]:
    """The test suites of this run, each cut to the asked size."""
    return {name: ready.suites[name][: config.test.limit] for name in config.test.suites or config.dataset.suites}


def test(
    session: Session,
    config: Config,
    bench: Bench,
    folder: Path,
    suites: dict[str, tuple[Problem, ...]],
    choice: Choice | None,
) -> dict[str, dict[str, Artifact]]:
    """Records of the base and, where there is one, the chosen candidate on every suite: {model: {suite: artifact}}."""
    settings = config.test
    models: dict[str, Candidate | None] = {"base": None}
    if choice is not None:
        models["merged"] = choice.candidate
    jobs = []
    for model, candidate in models.items():
        for name, suite in suites.items():
            recipe = _evaluation_recipe(bench, candidate, settings.temperature, settings.top_p, suite)
            path = str(folder / "suites" / f"{name}.jsonl")
            task = Task(bench, candidate, path, settings.limit, settings.temperature, settings.top_p)
            jobs.append((model, name, recipe, task))
    with stage("test", len(jobs)) as bar:
        missing = [(recipe, task) for _, _, recipe, task in jobs if session.store.find(recipe) is None]
        bar.advance(len(jobs) - len(missing))

        def keep(index: int, made: evaluation.Evaluation) -> None:
            def build(out: Path) -> None:
                write_json_lines(out / "records.jsonl", [asdict(record) for record in made.records])
                write_json(out / "seconds.json", made.seconds)

            session.store.build(missing[index][0], build, on_wait)
            bar.advance()

        session.executor.map(evaluation.evaluate, [task for _, task in missing], keep)
        bar.summary = f"{len(missing)} evaluations made, {len(jobs) - len(missing)} reused"
    made: dict[str, dict[str, Artifact]] = {model: {} for model in models}
    for model, name, recipe, _ in jobs:
        artifact = session.store.find(recipe)
        assert artifact is not None
        made[model][name] = artifact
    return made


def _evaluation_recipe(
    bench: Bench, candidate: Candidate | None, temperature: float, top_p: float, suite: Sequence[Problem]
) -> Recipe:
    slice_ = {**fitness.bench_slice(bench), "temperature": temperature, "top_p": top_p}
    slice_["candidate"] = candidate.key if candidate else "base"
    upstream = {f"direction-{index}": key for index, (key, _) in enumerate(bench.directions)}
    if candidate is None:  # the base is the same model whatever is merged into it at other times
        upstream = {}
        slice_.pop("mask")
        if temperature == 0:
            slice_.pop("seed")
    return Recipe("evaluation", versions.EVALUATION, slice_, {**upstream, "problems": content_key(suite)})


def _direction(artifact: Artifact) -> Direction:
    steps = [row for _, row in read_json_lines(artifact.path / grpo.STEPS_FILE)]
    return Direction(artifact.key, artifact.path / "adapter", steps, sum(row["seconds"] for row in steps))


def _seconds(artifact: Artifact) -> float:
    return float(read_json(artifact.path / "recipe.json")["seconds"])


def _generation_row(generation: Generation) -> dict[str, Any]:
    names = ("best", "mean", "std", "sigma")
    return {"generation": generation.number, **{name: getattr(generation, name) for name in names}}
