"""Problems: what a run trains, validates and tests on, each drawn apart from the others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hyperes.config import DatasetConfig, SourceConfig
from hyperes.datasets import formats, sources
from hyperes.datasets.rows import ProblemKind
from hyperes.duplicates import Known, Match, tokens
from hyperes.errors import UserError
from hyperes.files import digest, read_json_lines, write_json, write_json_lines

TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Problem:
    """One question with its answer.

    ``hops`` counts reasoning steps and ``category`` names the subject, where the data set tells them; ``split`` is what
    the problem may be used for. The answer of a code problem is a Python program that tests the completion: the single
    line ``sandbox.PLACEHOLDER`` stands where the completion's code goes.
    """

    id: str
    question: str
    answer: str
    kind: ProblemKind  # how grading compares
    split: str  # train | validation | test
    hops: int | None = None
    category: str | None = None


@dataclass(frozen=True)
class Problems:
    """Everything a run reads: the training pool, the validation set, the test suites by name."""

    train: tuple[Problem, ...]
    validation: tuple[Problem, ...]
    suites: dict[str, tuple[Problem, ...]]


def recipe_slice(config: DatasetConfig, seed: int) -> dict[str, Any]:
    """What the prepared problems depend on: sources by content (never by path), sizes and the seed."""
    for source in (config.train, *config.suites.values()):
        formats.check(source)
    return {
        "train": sources.identity(config.train),
        "suites": {name: sources.identity(source) for name, source in config.suites.items()},
        "validation_size": config.validation_size,
        "seed": seed,
    }


def prepare(config: DatasetConfig, seed: int, out: Path) -> None:
    """Load all sources, keep test questions out of training data, draw the validation set; write JSON lines.

    Training problems are ordered by a hash of (seed, id), so that a larger pool keeps the order of a smaller one.
    Removed are repetitions within the training data, near-duplicates (see ``duplicates``) of a test question, and near-
    duplicates of a validation question, which would let fitness reward what a direction has memorised. Near-duplicates
    among the training problems themselves stay: they are what an augmented data set is made of. report.json names
    every pair, and the training problems whose publisher gives no answer, which are left out too.
    """
    suites = {name: load(source, TEST) for name, source in config.suites.items()}
    tested = Known((name, problem.id, problem.question) for name, suite in suites.items() for problem in suite)
    asked: dict[str, str] = {}
    pool, removed, unanswered = [], [], []
    for problem in load(config.train, TRAIN):
        if problem.kind == "code":
            raise UserError(f"{config.train.path}: a code suite cannot be trained on; rewards are for answers only")
        text = " ".join(tokens(problem.question))
        if not problem.answer:
            unanswered.append(problem.id)
        elif text in asked:
            removed.append(_removal(problem, Match(TRAIN, asked[text], 1.0)))
        elif match := tested.find(problem.question):
            removed.append(_removal(problem, match))
        else:
            asked[text] = problem.id
            pool.append(problem)
    pool = shuffled(pool, seed, "pool")
    if len(pool) <= config.validation_size:
        raise UserError(
            f"dataset.validation_size={config.validation_size}: only {len(pool)} training problems are left "
            f"in {config.train.path}; lower it"
        )
    validation, rest = pool[: config.validation_size], pool[config.validation_size :]
    validated = Known((VALIDATION, problem.id, problem.question) for problem in validation)
    train = []
    for problem in rest:
        if match := validated.find(problem.question):
            removed.append(_removal(problem, match))
        else:
            train.append(problem)
    write_json_lines(out / "train.jsonl", [asdict(problem) for problem in train])
    write_json_lines(out / "validation.jsonl", [{**asdict(problem), "split": VALIDATION} for problem in validation])
    for name, suite in suites.items():
        write_json_lines(out / "suites" / f"{name}.jsonl", [asdict(problem) for problem in suite])
    report = {
        "train": len(train),
        "validation": len(validation),
        "suites": {name: len(suite) for name, suite in suites.items()},
        "hops": _histogram(problem.hops for problem in train),
        "categories": _histogram(problem.category for problem in train),
        "removed_from_train": removed,
        "without_answer": unanswered,
    }
    write_json(out / "report.json", report)


def read(folder: Path) -> Problems:
    """The problems that ``prepare`` wrote."""
    return Problems(
        train=read_problems(folder / "train.jsonl"),
        validation=read_problems(folder / "validation.jsonl"),
        suites={path.stem: read_problems(path) for path in sorted((folder / "suites").glob("*.jsonl"))},
    )


def read_problems(path: Path) -> tuple[Problem, ...]:
    return tuple(Problem(**row) for _, row in read_json_lines(path))


def content_key(problems: Sequence[Problem]) -> str:
    """SHA-256 of problems in their order: the identity of a subset or a suite."""
    return digest([asdict(problem) for problem in problems])


def shuffled(problems: Sequence[Problem], seed: int, purpose: str) -> list[Problem]:
    """The problems ordered by SHA-256 of (seed, purpose, id)."""
    return sorted(problems, key=lambda p: hashlib.sha256(f"{seed}/{purpose}/{p.id}".encode()).digest())


def load(source: SourceConfig, split: str) -> list[Problem]:
    """All problems of a source, in its order; raises UserError naming the file and line at fault.

    A training problem may come without an answer, a test problem may not.
    """
    formats.check(source)
    problems = [
        Problem(name, entry.question, entry.answer, entry.kind, split, entry.hops, entry.category)
        for name, entry in islice(formats.entries(source, split), source.limit)
    ]
    if not problems:
        raise UserError(f"{source.path}: holds no problems")
    if split == TEST and (unanswered := [problem.id for problem in problems if not problem.answer]):
        raise UserError(f"{source.path}: no answer to {', '.join(unanswered[:3])}; a test needs all of them")
    return problems


def _removal(problem: Problem, match: Match) -> dict[str, Any]:
    return {"id": problem.id, "in": match.place, "like": match.id, "similarity": round(match.similarity, 3)}


def _histogram(values: Iterable[Any]) -> dict[str, int]:
    counts = Counter(value for value in values if value is not None)
    return {str(value): counts[value] for value in sorted(counts)}
