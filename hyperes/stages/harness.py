"""lm-eval tasks beside the suites, on the base and on the chosen model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hyperes import fitness, versions
from hyperes.config import Config
from hyperes.evaluation import Bench
from hyperes.files import write_json, write_json_lines
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.stages.session import Choice, Session, models, published
from hyperes.store import Artifact, Store


@dataclass(frozen=True)
class HarnessJob:
    """One model on one lm-eval task, picklable; the results are published in the store."""

    store: str
    recipe: Recipe
    task: Any  # a HarnessTask; lm_eval is imported only where it is asked for


def check_tasks(config: Config) -> None:
    """Raises UserError for an lm-eval task that cannot be run: now, not after the search."""
    if config.test.tasks:
        from hyperes.evaluation import harness

        harness.check_tasks(config.test.tasks, config.test.lm_eval, config.test.allow_code_execution)


def test_tasks(session: Session, config: Config, bench: Bench, choice: Choice | None) -> dict[str, dict[str, Artifact]]:
    """Results of ``test.tasks``: {model: {task: artifact}}."""
    if not config.test.tasks:
        return {}
    from hyperes.evaluation.harness import HarnessTask

    jobs = {}
    for model, candidate in models(choice).items():
        for name in config.test.tasks:
            task = HarnessTask(bench, candidate, name, config.test.lm_eval, config.test.allow_code_execution)
            jobs[model, name] = HarnessJob(str(session.store.root), _recipe(task), task)
    missing = [job for job in jobs.values() if session.store.find(job.recipe) is None]
    with stage("lm-eval", len(jobs)) as bar:
        bar.advance(len(jobs) - len(missing))
        session.executor.map(evaluate_task, missing, lambda *_: bar.advance())
        bar.summary = f"{len(missing)} evaluations made, {len(jobs) - len(missing)} reused"
    return published(session.store, {key: job.recipe for key, job in jobs.items()})


def evaluate_task(job: HarnessJob) -> None:
    """Make and publish the results of one lm-eval task, or find them."""
    from hyperes.evaluation.harness import run_task

    def build(out: Path) -> None:
        made = run_task(job.task)
        for name, samples in made.pop("samples").items():
            write_json_lines(out / "samples" / f"{name}.jsonl", samples)
        write_json(out / "results.json", made)

    Store(Path(job.store)).build(job.recipe, build)


def _recipe(task: Any) -> Recipe:
    bench = fitness.bench_slice(task.bench)
    del bench["max_new_tokens"]  # lm-eval says it, task by task
    if task.candidate is None:
        del bench["mask"]
    slice_ = {
        **bench,
        "task": task.name,
        "settings": asdict(task.settings),
        "lm_eval": version("lm_eval"),  # the tasks themselves are part of that package
        "candidate": task.candidate.key if task.candidate else "base",
    }
    upstream = {f"direction-{index}": key for index, (key, _) in enumerate(task.bench.directions)}
    return Recipe("lm-eval", versions.EVALUATION, slice_, upstream if task.candidate else {})
