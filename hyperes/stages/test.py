"""The chosen model, and the base beside it, on the test suites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hyperes import evaluation, fitness, versions
from hyperes.backbone import Backbone
from hyperes.config import Config
from hyperes.evaluation import RECORDS, Bench, Task
from hyperes.files import line_count, write_json
from hyperes.problems import Problem, content_key
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.stages.session import Choice, Direction, Session, models, published
from hyperes.store import Artifact, Store

PROGRESS = "progress.jsonl"


@dataclass(frozen=True)
class SuiteTask:
    """One model on one suite, picklable; the evaluation is published in the store."""

    store: str
    recipe: Recipe
    task: Task


def make_bench(config: Config, backbone: Backbone, directions: Sequence[Direction]) -> Bench:
    pairs = tuple((direction.key, str(direction.folder)) for direction in directions)
    return Bench(
        backbone, pairs, config.merger.mask, config.seed, config.engine.max_new_tokens, config.engine.batch_size
    )


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
    jobs = {}
    for model, candidate in models(choice).items():
        for name, suite in suites.items():
            path = str(folder / "suites" / f"{name}.jsonl")
            task = Task(bench, candidate, path, settings.limit, settings.temperature, settings.top_p, settings.samples)
            jobs[model, name] = SuiteTask(str(session.store.root), _evaluation_recipe(task, suite), task)
    sizes = {key: len(suites[key[1]]) * settings.samples for key in jobs}
    missing = [key for key, job in jobs.items() if session.store.find(job.recipe) is None]
    with stage("test", sum(sizes.values())) as bar:

        def poll() -> None:
            bar.set(sum(sizes[key] if key not in missing else _completed(session.store, jobs[key], sizes[key])
                        for key in jobs))  # fmt: skip

        poll()
        session.executor.map(evaluate_suite, [jobs[key] for key in missing], lambda *_: poll(), poll)
        bar.summary = f"{len(missing)} evaluations made, {len(jobs) - len(missing)} reused"
    return published(session.store, {key: job.recipe for key, job in jobs.items()})


def evaluate_suite(job: SuiteTask) -> None:
    """Make and publish the records of one model on one suite, or find them; a killed evaluation goes on."""

    def build(out: Path) -> None:
        if not (out / RECORDS).exists():
            made = evaluation.evaluate(job.task, out / PROGRESS)
            write_json(out / "seconds.json", round(made.seconds, 3))
            evaluation.write_records(out / RECORDS, made.records)
        (out / PROGRESS).unlink(missing_ok=True)

    Store(Path(job.store)).build(job.recipe, build)


def _completed(store: Store, job: SuiteTask, size: int) -> int:
    """How many of an evaluation's completions are there, for progress bars."""
    if store.folder(job.recipe).exists():
        return size
    return min(size, line_count(store.work(job.recipe) / PROGRESS) * job.task.bench.batch_size)


def _evaluation_recipe(task: Task, suite: Sequence[Problem]) -> Recipe:
    bench, candidate = task.bench, task.candidate
    slice_ = {**fitness.bench_slice(bench), "temperature": task.temperature, "top_p": task.top_p}
    slice_ |= {"samples": task.samples, "candidate": candidate.key if candidate else "base"}
    upstream = {f"direction-{index}": key for index, (key, _) in enumerate(bench.directions)}
    if candidate is None:  # the base is the same model whatever is merged into it at other times
        upstream = {}
        slice_.pop("mask")
        if task.temperature == 0:
            slice_.pop("seed")
    return Recipe("evaluation", versions.EVALUATION, slice_, {**upstream, "problems": content_key(suite)})
