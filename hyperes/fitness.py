"""Candidates to validation accuracy, each computed once and kept with its per-problem scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperes import evaluation
from hyperes.evaluation import Bench, Task
from hyperes.executors import Executor
from hyperes.genome import Candidate
from hyperes.recipe import Recipe
from hyperes.store import Store

VERSION = 1


def bench_slice(bench: Bench) -> dict[str, object]:
    """What of a bench changes a completion of a merged model."""
    return {
        "backbone": bench.backbone.identity,
        "mask": bench.mask,
        "seed": bench.seed,
        "max_new_tokens": bench.max_new_tokens,
        "batch_size": bench.batch_size,
    }


@dataclass(frozen=True)
class Fitness:
    """The fitness f of eq. 24 on one validation set, cached by the candidate's key."""

    store: Store
    executor: Executor
    bench: Bench
    validation: str  # path of the validation problems
    validation_key: str  # their content

    @property
    def context(self) -> str:
        """Identity of everything but the candidate."""
        upstream = {f"direction-{index}": key for index, (key, _) in enumerate(self.bench.directions)}
        upstream["validation"] = self.validation_key
        return Recipe("fitness", VERSION, bench_slice(self.bench), upstream).key

    def __call__(
        self, candidates: Sequence[Candidate], on_done: Callable[[int], None] = lambda done: None
    ) -> list[float]:
        """Validation accuracy of every candidate, in order; ``on_done`` hears how many more are known."""
        context = self.context
        scores = {candidate.key: self.store.recall(context, candidate.key) for candidate in candidates}
        missing = [candidate for candidate in _distinct(candidates) if scores[candidate.key] is None]
        on_done(len(candidates) - len(missing))

        def keep(index: int, correct: list[bool]) -> None:
            key = missing[index].key
            scores[key] = "".join("01"[right] for right in correct)
            self.store.remember(context, key, scores[key])
            on_done(1)

        tasks = [Task(self.bench, candidate, self.validation) for candidate in missing]
        self.executor.map(evaluation.fitness, tasks, keep)
        return [_accuracy(scores[candidate.key]) for candidate in candidates]


def _accuracy(scores: str | None) -> float:
    assert scores is not None
    return scores.count("1") / len(scores)


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list({candidate.key: candidate for candidate in candidates}.values())
