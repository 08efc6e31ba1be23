"""The evolution as a stage: what its answer is, what it counts, and that a kill changes neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import composed

from hyperes import candidates
from hyperes.config import Config, ExecutorConfig
from hyperes.errors import UserError
from hyperes.evaluation import Bench
from hyperes.executors import Executor
from hyperes.export import _candidate
from hyperes.files import read_json
from hyperes.fitness import Fitness
from hyperes.genome import Candidate, Genome
from hyperes.pool import genome_of
from hyperes.problems import Problem
from hyperes.result import _choice_row
from hyperes.stages import Choice, Session, evolve_coefficients, fixed_choice, make_fitness
from hyperes.store import Store
from hyperes.tracking import Tracker

GENOME = Genome(("layers.0.attention", "layers.0.mlp"), 2)
SMALL = ("directions.count=2", "tracking.mode=disabled", "optimizer.grid=null")
CMA = ("optimizer=cma", "optimizer.evolution.population=6", "optimizer.evolution.generations=3")
RANDOM = (
    "optimizer=random",
    "optimizer.evolution.population=5",
    "optimizer.evolution.generations=null",
    "optimizer.evolution.evaluations=13",
)
ONE = ("optimizer=one_plus_one", "optimizer.evolution.evaluations=11")
SEPARABLE = (
    "optimizer=separable_cma",
    "optimizer.evolution.population=null",
    "optimizer.evolution.generations=null",
    "optimizer.evolution.evaluations=25",
)


class Killed(Exception):
    pass


@dataclass(frozen=True)
class Landscape(Fitness):
    """A fitness in closed form: everything about a search is real but the language model."""

    target: float = 0.2
    kill_after: list[int] | None = None

    def __call__(
        self,
        candidates: Sequence[Candidate],
        on_scored: Callable[[int, float], None] = lambda index, fitness: None,
    ) -> list[float]:
        if self.kill_after is not None:
            self.kill_after[0] -= len(candidates)
            if self.kill_after[0] < 0:
                raise Killed
        scores = []
        for index, candidate in enumerate(candidates):
            distance = float(np.mean((candidate.drop_rate - self.target) ** 2 + (candidate.weight - 0.7) ** 2))
            scores.append(round(40 * max(0.0, 1 - distance)) / 40)
            on_scored(index, scores[-1])
        return scores

    def seconds(self, candidates: Sequence[Candidate]) -> float:
        return float(len(candidates))


@pytest.fixture
def bench(backbone: Any) -> Bench:
    return Bench(backbone, (("a", "/nowhere"), ("b", "/nowhere")), "fixed", 0, 8, 8)


def evolve(
    folder: Path, bench: Bench, *overrides: str, target: float = 0.2, kill_after: int | None = None, **start: Any
) -> tuple[Choice, dict[str, Any]]:
    config: Config = composed(*SMALL, *overrides)
    budget = None if kill_after is None else [kill_after]
    with Executor(ExecutorConfig("inline")) as executor, Tracker(config, "0" * 64, {}) as tracker:
        session = Session(Store(folder), executor, tracker)
        score = Landscape(session.store, executor, bench, "", "search", target=target, kill_after=budget)
        held_out = None
        if config.optimizer.evolution and config.optimizer.evolution.answer == "best_revalidated":
            held_out = Landscape(session.store, executor, bench, "", "held out", target=0.8)
        choice = evolve_coefficients(
            session, config, GENOME, score, held_out, replace(fixed_choice(config, GENOME), **start)
        )
        recorded = read_json(next((folder / "evolve").glob("*/evolution.json")))
    return choice, recorded


@pytest.mark.parametrize("search", [CMA, SEPARABLE, RANDOM, ONE], ids=lambda search: search[0])
def test_a_kill_anywhere_changes_nothing(tmp_path: Path, bench: Bench, search: tuple[str, ...]) -> None:
    whole, recorded = evolve(tmp_path / "whole", bench, *search)
    for number, kill in enumerate((0, 1, 7, whole.evaluations - 1)):
        folder = tmp_path / str(number)
        with pytest.raises(Killed):
            evolve(folder, bench, *search, kill_after=kill)
        again, record = evolve(folder, bench, *search)
        assert record == recorded
        assert (again.candidate.key, again.fitness, again.evaluations, again.z, again.seconds) == (
            whole.candidate.key,
            whole.fitness,
            whole.evaluations,
            whole.z,
            whole.seconds,
        )


def test_the_mean_is_the_papers_answer(tmp_path: Path, bench: Bench) -> None:
    choice, recorded = evolve(tmp_path, bench, *CMA)
    assert recorded["start"] is not None
    assert choice.evaluations == 1 + 3 * 6 + 1  # the start, which no grid had evaluated; the generations; the mean
    trials = (next((tmp_path / "evolve").glob("*")) / "trials.jsonl").read_text().splitlines()
    assert len(trials) == 3 * 6
    assert not any(str(choice.z) in line for line in trials)
    with_grid, _ = evolve(tmp_path, bench, *CMA, fitness=0.5, evaluations=4)
    assert with_grid.evaluations == 4 + 3 * 6 + 1


def test_best_is_the_best_seen_and_the_start_is_seen_first(tmp_path: Path, bench: Bench) -> None:
    choice, recorded = evolve(tmp_path / "far", bench, *RANDOM)
    assert choice.fitness == recorded["best_seen"] > recorded["start"]
    assert choice.candidate.key == candidates.decoded(composed().merger, GENOME, np.array(choice.z), 1.0, 0.5).key
    assert choice.evaluations == 1 + 13
    # a landscape whose summit is the start: nothing that the search sees is better
    summit, recorded = evolve(tmp_path / "near", bench, *RANDOM, "optimizer.evolution.sigma=0.001", target=0.5)
    assert recorded["best_seen"] == recorded["start"] == summit.fitness
    assert summit.z is None
    assert summit.candidate.key == fixed_choice(composed(*SMALL, *RANDOM), GENOME).candidate.key


def test_revalidation_chooses_among_the_best_by_problems_the_search_did_not_see(tmp_path: Path, bench: Bench) -> None:
    """The held-out landscape has its summit elsewhere."""
    few = "optimizer.evolution.revalidation.candidates=4"
    choice, recorded = evolve(tmp_path, bench, *RANDOM, "optimizer.evolution.answer=best_revalidated", few)
    finalists = recorded["finalists"]
    assert [row["fitness"] for row in finalists] == sorted((row["fitness"] for row in finalists), reverse=True)
    assert finalists[0]["fitness"] == recorded["best_seen"]
    assert len(finalists) == 4
    assert choice.held_out == max(row["held_out"] for row in finalists) > finalists[0]["held_out"]
    assert choice.fitness is not None
    assert choice.fitness < recorded["best_seen"]
    assert choice.evaluations == 1 + 13 + 4


@pytest.mark.parametrize(
    "overrides",
    [
        ("merger=cabs", "optimizer=grid"),
        ("merger=ties_trimmed", "optimizer=cma"),
        ("optimizer=cma", "optimizer.space=global"),
    ],
)
def test_a_results_candidate_is_found_again_for_export(
    make_adapter: Callable[[int], Path], overrides: tuple[str, ...]
) -> None:
    config = composed("directions.count=2", *overrides)
    folders = [make_adapter(1), make_adapter(2)]
    choice = replace(fixed_choice(config, genome_of(folders)), scale=1.5)
    if config.optimizer.evolution:
        genome = genome_of(folders, config.optimizer.space)
        z = np.random.default_rng(0).normal(size=genome.dimension)
        chosen = candidates.decoded(config.merger, genome, z, choice.scale, choice.drop_rate)
        choice = replace(choice, candidate=chosen, z=z.tolist())
    else:
        chosen = candidates.shared(config.merger, genome_of(folders), 1.5, 0.0, False, False)
        choice = replace(choice, candidate=chosen)
    row = json.loads(json.dumps(_choice_row(choice)))
    found = _candidate(config, row, folders)
    assert found is not None
    assert found.key == choice.candidate.key


def problem(number: int) -> Problem:
    return Problem(str(number), f"{number}?", "1", "numeric", "validation")


def test_the_search_and_its_revalidation_share_no_problem(tmp_path: Path, bench: Bench) -> None:
    validation = [problem(number) for number in range(10)]
    with Executor(ExecutorConfig("inline")) as executor:
        config = composed(*SMALL, *RANDOM, "optimizer.evolution.answer=best_revalidated")
        session = Session(Store(tmp_path), executor, Tracker(config, "0" * 64, {}))
        score, held_out = make_fitness(session, config, bench, tmp_path, validation)
        assert held_out is not None
        assert (score.skip, score.limit, held_out.skip, held_out.limit) == (0, 8, 8, 10)
        assert score.context != held_out.context
        whole, none = make_fitness(session, composed(*SMALL, *RANDOM), bench, tmp_path, validation)
        assert none is None
        assert (whole.skip, whole.limit) == (0, 10)
        with pytest.raises(UserError, match=r"share=0\.25: leaves 1 of 1 validation problems"):
            make_fitness(session, config, bench, tmp_path, validation[:1])


@pytest.mark.parametrize(
    ("merger", "gamma", "weight"),
    [
        ("dare_ties", 1.5 * 2, 1.0),
        ("dare", 1.5 * 2, 1.0),
        ("ties", 1.5 * 2, 1.0),
        ("ties_trimmed", 1.5 * 2, 1.0),
        ("average", 1.0, 1.0),
        ("wudi", 1.0, 1.0),
        ("cabs", 1.0, 1.5),
        ("task_arithmetic", 1.5, 1.0),
    ],
)
def test_magnitudes(merger: str, gamma: float, weight: float) -> None:
    config = composed(*SMALL, f"merger={merger}", "merger.scale=1.5", "optimizer=none")
    chosen = fixed_choice(config, GENOME).candidate
    assert chosen.gamma == gamma
    assert (chosen.weight == weight).all()
