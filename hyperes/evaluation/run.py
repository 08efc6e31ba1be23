"""One evaluation: a candidate on the problems of a file, in batches that a kill does not undo."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperes import counter
from hyperes.backbone import render
from hyperes.evaluation.judge import judge
from hyperes.evaluation.live import Bench, live
from hyperes.evaluation.records import Record
from hyperes.files import append_json_line, read_json_lines, write_json_lines
from hyperes.genome import Candidate
from hyperes.problems import VALIDATION, Problem, read_problems

if TYPE_CHECKING:
    from hyperes.engines.hf import Completion, Request


@dataclass(frozen=True)
class Task:
    """One evaluation: a candidate (None: the base model) on the problems of a file. Picklable."""

    bench: Bench
    candidate: Candidate | None
    problems: str
    limit: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    samples: int = 1  # completions per problem
    skip: int = 0  # leave out the first so many problems; ``limit`` counts from the first of the file


@dataclass(frozen=True)
class Evaluation:
    """Records in file order, the samples of a problem together, and the seconds they took (model loading included)."""

    records: list[Record]
    seconds: float


def fitness(task: Task) -> Evaluation:
    """A candidate on the validation set; the fitness f is the share of correct records (eq. 24).

    Raises ValueError for any problem that is not a validation problem: fitness never sees a test problem.
    """
    problems = _problems(task.problems, task.skip, task.limit)
    strangers = [problem.id for problem in problems if problem.split != VALIDATION]
    if strangers:
        raise ValueError(f"fitness was handed {len(strangers)} problems outside the validation set: {strangers[:3]}")
    return evaluate(task)


def evaluate(task: Task, progress: Path | None = None) -> Evaluation:
    """Complete and grade every problem of the task.

    ``progress`` is a JSON-lines file of finished batches: those it holds already are not completed again. Batches are
    cut the same way every time, so a continued evaluation has the numbers of an uninterrupted one.
    """
    from hyperes.engines.hf import Decoding, Request

    started = time.monotonic()
    model = live(task.bench)
    model.set(task.candidate)
    problems = _problems(task.problems, task.skip, task.limit)
    rows = [(problem, sample) for problem in problems for sample in range(task.samples)]
    requests = [
        Request(render(model.tokenizer, problem.question), counter.key("sample", task.bench.seed, problem.id, sample))
        for problem, sample in rows
    ]
    decoding = Decoding(task.bench.max_new_tokens, task.bench.batch_size, task.temperature, task.top_p)
    completions, earlier = _complete(model, requests, decoding, progress)
    verdicts = judge([completion.text for completion in completions], [problem for problem, _ in rows])
    records = [
        Record(
            problem.id,
            sample,
            problem.question,
            problem.answer,
            problem.kind,
            completion.text,
            verdict.extracted,
            verdict.rule,
            verdict.correct,
            completion.tokens,
            completion.truncated,
            request.key if task.temperature > 0 else None,
        )
        for (problem, sample), request, completion, verdict in zip(rows, requests, completions, verdicts, strict=True)
    ]
    return Evaluation(records, earlier + time.monotonic() - started)


def _complete(
    model: Any, requests: Sequence[Request], decoding: Any, progress: Path | None
) -> tuple[list[Completion], float]:
    """Completions in the order of the requests, and the seconds that batches found in ``progress`` had taken."""
    from hyperes.engines.hf import Completion, complete_batches

    done: dict[int, Completion] = {}
    seconds = 0.0
    if progress is not None and progress.exists():
        kept = []
        for _, row in read_json_lines(progress, torn_tail=True):
            kept.append(row)
            seconds += row["seconds"]
            done.update((index, Completion(*answer)) for index, *answer in row["completions"])
        write_json_lines(progress, kept)  # without the line that a kill tore
    before = time.monotonic()
    for indices, answers in complete_batches(model.model, model.tokenizer, requests, decoding, done.keys()):
        done.update(zip(indices, answers, strict=True))
        if progress is not None:
            now = time.monotonic()
            completions = [(i, a.text, a.tokens, a.truncated) for i, a in zip(indices, answers, strict=True)]
            append_json_line(progress, {"seconds": round(now - before, 3), "completions": completions})
            before = now
    return [done[index] for index in range(len(requests))], seconds


@lru_cache(maxsize=16)
def _problems(path: str, skip: int, limit: int | None) -> tuple[Problem, ...]:
    return read_problems(Path(path))[skip:limit]
