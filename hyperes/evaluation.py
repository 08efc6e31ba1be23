"""A candidate on a set of problems: write it into the live model, complete, grade. Fitness and test share this path."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hyperes import counter
from hyperes.backbone import Backbone, load_model, load_tokenizer, render
from hyperes.genome import Candidate
from hyperes.problems import VALIDATION, Problem, read_problems


@dataclass(frozen=True)
class Bench:
    """Where candidates are evaluated: everything a worker process needs to stand up the live model. Picklable."""

    backbone: Backbone
    directions: tuple[tuple[str, str], ...]  # (key, PEFT folder) of every direction, in order
    mask: str  # fixed | resampled
    seed: int
    max_new_tokens: int
    batch_size: int


@dataclass(frozen=True)
class Task:
    """One evaluation: a candidate (None: the base model) on the problems of a file."""

    bench: Bench
    candidate: Candidate | None
    problems: str
    limit: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Record:
    """What happened on one problem."""

    problem: str
    completion: str
    extracted: str | None
    rule: str | None
    correct: bool
    tokens: int
    truncated: bool


@dataclass(frozen=True)
class Evaluation:
    """Records in file order, and the seconds they took (the model's loading included)."""

    records: list[Record]
    seconds: float


def fitness(task: Task) -> list[bool]:
    """Per-problem correctness of a candidate on the validation set, in file order; the fitness f is its mean (eq. 24).

    Raises ValueError for any problem that is not a validation problem: fitness never sees a test problem.
    """
    problems = _problems(task.problems, task.limit)
    strangers = [problem.id for problem in problems if problem.split != VALIDATION]
    if strangers:
        raise ValueError(f"fitness was handed {len(strangers)} problems outside the validation set: {strangers[:3]}")
    return [record.correct for record in evaluate(task).records]


def evaluate(task: Task) -> Evaluation:
    """Complete and grade every problem of the task, in file order."""
    started = time.monotonic()
    from hyperes.engines.hf import Decoding, Request, complete
    from hyperes.grading import grade_many

    live = _live(task.bench)
    problems = _problems(task.problems, task.limit)
    live.set(task.candidate)
    requests = [
        Request(render(live.tokenizer, problem.question), counter.key("sample", task.bench.seed, problem.id, 0))
        for problem in problems
    ]
    decoding = Decoding(task.bench.max_new_tokens, task.bench.batch_size, task.temperature, task.top_p)
    completions = complete(live.model, live.tokenizer, requests, decoding)
    verdicts = grade_many(
        [completion.text for completion in completions],
        [problem.answer for problem in problems],
        [problem.kind for problem in problems],
    )
    records = [
        Record(
            problem.id,
            completion.text,
            verdict.extracted,
            verdict.rule,
            verdict.correct,
            completion.tokens,
            completion.truncated,
        )
        for problem, completion, verdict in zip(problems, completions, verdicts, strict=True)
    ]
    return Evaluation(records, time.monotonic() - started)


class _Live:
    """The model of a bench with its pool; the base alone when there are no directions."""

    def __init__(self, bench: Bench) -> None:
        from hyperes.pool import read_pool
        from hyperes.resident import Resident

        self.tokenizer = load_tokenizer(bench.backbone)
        self.model = load_model(bench.backbone)
        self.resident: Resident | None = None
        if bench.directions:
            pool = read_pool([(key, Path(folder)) for key, folder in bench.directions], self.model.device)
            self.resident = Resident(self.model, pool, bench.seed, bench.mask == "resampled")

    def set(self, candidate: Candidate | None) -> None:
        if candidate is not None:
            assert self.resident is not None
            self.resident.write(candidate)
        elif self.resident is not None:
            self.resident.restore()


@lru_cache(maxsize=1)
def _live(bench: Bench) -> _Live:
    """One live model per process."""
    return _Live(bench)


@lru_cache(maxsize=16)
def _problems(path: str, limit: int | None) -> tuple[Problem, ...]:
    return read_problems(Path(path))[:limit]
