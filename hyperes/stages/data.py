"""The problems of a run: training pool, validation, test suites."""

from __future__ import annotations

from pathlib import Path

from hyperes import problems, versions
from hyperes.config import Config
from hyperes.files import read_json
from hyperes.problems import Problem, Problems
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.sandbox import require_permission
from hyperes.stages.session import Session, on_wait


def prepare_problems(session: Session, config: Config) -> tuple[Problems, Path]:
    """Problems of all sources, validation drawn apart; returns them and their folder."""
    with stage("problems", 1) as bar:
        recipe = Recipe("problems", versions.PROBLEMS, problems.recipe_slice(config.dataset, config.seed), {})
        folder = session.store.build(
            recipe, lambda out: problems.prepare(config.dataset, config.seed, out), on_wait
        ).path
        ready = problems.read(folder)
        report = read_json(folder / "report.json")
        removed, unanswered = len(report["removed_from_train"]), len(report["without_answer"])
        suites = ", ".join(f"{name} {len(suite)}" for name, suite in ready.suites.items())
        dropped = f", {removed} repeated or near-duplicates of another split removed" if removed else ""
        dropped += f", {unanswered} without an answer" if unanswered else ""
        bar.summary = f"{len(ready.train)} train, {len(ready.validation)} validation{dropped}; tests: {suites}"
    return ready, folder


def chosen_suites(config: Config, ready: Problems) -> dict[str, tuple[Problem, ...]]:
    """The test suites of this run, each cut to the asked size. Raises UserError for code suites without permission."""
    suites = {name: ready.suites[name][: config.test.limit] for name in config.test.suites or config.dataset.suites}
    code = [name for name, suite in suites.items() if any(problem.kind == "code" for problem in suite)]
    require_permission(config.test.allow_code_execution, code)
    return suites
