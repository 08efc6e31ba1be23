"""Candidates to validation accuracy, each computed once and kept with its per-problem scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperes import evaluation, versions
from hyperes.evaluation import Bench, Evaluation, Task
from hyperes.executors import Executor
from hyperes.genome import Candidate
from hyperes.recipe import Recipe
from hyperes.store import Store


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
    validation_key: str  # content of those that count
    skip: int = 0  # which count: from this one
    limit: int | None = None  # to before this one

    @property
    def context(self) -> str:
        """Identity of everything but the candidate."""
        upstream = {f"direction-{index}": key for index, (key, _) in enumerate(self.bench.directions)}
        upstream["validation"] = self.validation_key
        return Recipe("fitness-context", versions.EVALUATION, bench_slice(self.bench), upstream).key

    def __call__(
        self,
        candidates: Sequence[Candidate],
        on_scored: Callable[[int, float], None] = lambda index, fitness: None,
    ) -> list[float]:
        """Validation accuracy of every candidate, in order.

        ``on_scored(index, fitness)`` is called in the order of the candidates, each as soon as all before it are known.
        """
        context = self.context
        scores: dict[str, str] = {}
        for candidate in _distinct(candidates):
            if (known := self.store.recall(context, candidate.key)) is not None:
                scores[candidate.key] = known["correct"]
        missing = [candidate for candidate in _distinct(candidates) if candidate.key not in scores]
        fitness: list[float] = []

        def report() -> None:
            while len(fitness) < len(candidates) and (known := scores.get(candidates[len(fitness)].key)) is not None:
                fitness.append(known.count("1") / len(known))
                on_scored(len(fitness) - 1, fitness[-1])

        def keep(index: int, made: Evaluation) -> None:
            key = missing[index].key
            scores[key] = "".join("01"[record.correct] for record in made.records)
            self.store.remember(context, key, {"correct": scores[key], "seconds": round(made.seconds, 3)})
            report()

        report()
        tasks = [
            Task(self.bench, candidate, self.validation, limit=self.limit, skip=self.skip) for candidate in missing
        ]
        self.executor.map(evaluation.fitness, tasks, keep)
        return fitness

    def seconds(self, candidates: Sequence[Candidate]) -> float:
        """What evaluating these candidates took, summed over workers, whenever and by whichever run it was done."""
        values = (self.store.recall(self.context, candidate.key) for candidate in _distinct(candidates))
        return sum(value["seconds"] for value in values if value is not None)


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list({candidate.key: candidate for candidate in candidates}.values())
