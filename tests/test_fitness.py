"""Fitness: only validation problems, each candidate once, scores in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperes import evaluation
from hyperes.bundled import wordproblems
from hyperes.config import ExecutorConfig
from hyperes.evaluation import Bench, Task
from hyperes.executors import Executor
from hyperes.files import write_json_lines
from hyperes.fitness import Fitness
from hyperes.genome import Genome
from hyperes.problems import Problem, content_key
from hyperes.store import Store

GROUPS = tuple(f"layers.{layer}.{part}" for layer in range(4) for part in ("attention", "mlp"))


@pytest.fixture
def bench(backbone: Any, make_adapter: Callable[[int], Path]) -> Bench:
    pairs = tuple((str(seed), str(make_adapter(seed))) for seed in (1, 2))
    return Bench(backbone, pairs, mask="fixed", seed=0, max_new_tokens=32, batch_size=16)


@pytest.fixture
def validation(tmp_path: Path) -> list[Problem]:
    stream = wordproblems.problems("train", "fitness", wordproblems.Style(), (1.0, 1.0))
    problems = [
        Problem(str(n), p.question, str(p.answer), "numeric", "validation", p.hops)
        for n, p in enumerate(islice(stream, 12))
    ]
    write_json_lines(tmp_path / "validation.jsonl", [asdict(problem) for problem in problems])
    return problems


def test_fitness_never_sees_a_test_problem(tmp_path: Path, bench: Bench, validation: list[Problem]) -> None:
    mixed = [*validation, replace(validation[0], id="leak", split="test")]
    write_json_lines(tmp_path / "mixed.jsonl", [asdict(problem) for problem in mixed])
    candidate = Genome(GROUPS, 2).shared(0.5, gamma=1.0, dare=True, ties=True)
    with pytest.raises(ValueError, match=r"1 problems outside the validation set: \['leak'\]"):
        evaluation.fitness(Task(bench, candidate, str(tmp_path / "mixed.jsonl")))


def test_each_candidate_is_evaluated_once_and_reported_in_order(
    tmp_path: Path, bench: Bench, validation: list[Problem]
) -> None:
    genome = Genome(GROUPS, 2)
    weak, strong = (genome.shared(0.5, gamma=gamma, dare=True, ties=True) for gamma in (0.0, 500.0))
    heard: list[tuple[int, float]] = []
    with Executor(ExecutorConfig("inline", workers=1, threads=1)) as executor:
        fitness = Fitness(
            Store(tmp_path / "store"), executor, bench, str(tmp_path / "validation.jsonl"), content_key(validation)
        )
        first = fitness([weak, strong, weak], lambda index, value: heard.append((index, value)))
    assert heard == list(enumerate(first))
    assert first[0] == first[2]
    assert first[1] == 0.0  # random deltas five hundred times over leave no language model
    files = list((tmp_path / "store" / "fitness").rglob("*.json"))
    assert len(files) == 2
    assert sorted(len(json.loads(path.read_text())["value"]["correct"]) for path in files) == [12, 12]

    class Idle(Executor):
        def map(self, *_: Any, **__: Any) -> list[Any]:
            assert not _[1], "nothing may be evaluated again"
            return []

    again = Fitness(
        Store(tmp_path / "store"), Idle(ExecutorConfig()), bench, fitness.validation, fitness.validation_key
    )
    assert again([strong, weak]) == [first[1], first[0]]
    assert again.seconds([strong, weak, weak]) == fitness.seconds([weak]) + fitness.seconds([strong]) > 0
    other = Fitness(
        Store(tmp_path / "store"), Idle(ExecutorConfig()), replace(bench, seed=1), "", fitness.validation_key
    )
    assert other.context != fitness.context


def test_scores_of_gamma_zero_are_the_bases(tmp_path: Path, bench: Bench, validation: list[Problem]) -> None:
    path = str(tmp_path / "validation.jsonl")
    genome = Genome(GROUPS, 2)
    nothing = genome.decode(np.zeros(genome.dimension), gamma=0.0, dare=True, ties=True, shared_drop_rate=0.5)
    base = evaluation.evaluate(Task(bench, None, path)).records
    assert evaluation.evaluate(Task(bench, nothing, path)).records == base
    assert len(base) == len(validation)
