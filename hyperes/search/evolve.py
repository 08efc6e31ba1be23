"""The search over z (eq. 23-31): ask and tell, recorded trial by trial, resumed bit for bit.

``search`` is the loop of any algorithm (cma.py, named.py) with its record, ``trials.jsonl``. Nothing is pickled: a
killed search is replayed from the seed and the recorded fitness.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hyperes.errors import UserError
from hyperes.files import canonical_json

RECORDED_DIMENSIONS = 4096  # a longer vector is recorded by its hash alone


class Algorithm(Protocol):
    """What ``search`` drives: it asks vectors together and is told their fitness in the same order."""

    @property
    def mean(self) -> np.ndarray | None:
        """Of its distribution, where it has one, float64 (d,)."""

    @property
    def sigma(self) -> float | None:
        """Its step size, where it has one."""

    def ask(self) -> list[np.ndarray]: ...

    def tell(self, vectors: Sequence[np.ndarray], fitness: Sequence[float]) -> None: ...


@dataclass(frozen=True, eq=False)
class Generation:
    """A generation as told: its fitness, and the distribution after it."""

    number: int  # from 0
    best: float
    mean: float
    std: float  # of the population, not an estimate
    sigma: float | None  # None where the algorithm has none
    mean_vector: np.ndarray | None  # float64 (d,)
    replayed: bool  # read from the record, not evaluated now


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a search found. The paper's answer is ``mean_vector``; ``seen`` are the best distinct vectors asked."""

    mean_vector: np.ndarray | None  # float64 (d,); None of an algorithm without a mean
    sigma: float | None
    generations: list[Generation]
    seen: list[tuple[float, np.ndarray]]  # (fitness, vector), the best first, the earlier of equals first

    @property
    def best_fitness(self) -> float | None:
        return self.seen[0][0] if self.seen else None


def standardise(fitness: Sequence[float], epsilon: float = 1e-8) -> np.ndarray:
    """(f − mean) / (std + ε) within a generation, float64 (G,) (eq. 25; its ε is not published). Keeps the ranking."""
    values = np.asarray(fitness, dtype=np.float64)
    return (values - values.mean()) / (values.std() + epsilon)


def generation_sizes(population: int, generations: int | None, evaluations: int | None, whole: bool) -> list[int]:
    """How many vectors each generation asks, from a budget of generations or else of evaluations.

    An evaluation budget that is no multiple of the population ends in a smaller generation; with ``whole``, which
    CMA-ES needs, that one is left out. Raises UserError when this leaves none.
    """
    if generations is not None:
        return [population] * generations
    assert evaluations is not None
    sizes = [population] * (evaluations // population)
    if not whole and evaluations % population:
        sizes.append(evaluations % population)
    if not sizes:
        raise UserError(f"optimizer.evolution.evaluations={evaluations}: not one generation of {population}; give more")
    return sizes


def search(
    trials: Path,
    algorithm: Algorithm,
    sizes: Sequence[int],
    *,
    evaluate: Callable[[Sequence[np.ndarray]], Sequence[float]],
    on_generation: Callable[[Generation, Sequence[np.ndarray]], None],
    keep: int = 1,
) -> Outcome:
    """Run a fresh ``algorithm`` for the generations of these ``sizes``, going on from what ``trials`` already records.

    ``evaluate`` scores a whole generation at once, in order. ``trials`` gets one JSON line per told trial
    (generation, index, fitness, standardised, vector_sha256, and the vector itself up to d = 4096), appended generation
    by generation; a generation cut short by a kill is taken off the file and evaluated again. Recorded generations are
    not evaluated but told again, and each asked vector is compared with its record. ``on_generation`` hears all of
    them, replayed or new, with their vectors. The outcome names the ``keep`` best vectors seen.

    Raises UserError for a record that is malformed or of another search, ValueError for an ``evaluate`` that returns
    a number that is not finite or too few of them, and what the algorithm raises.
    """
    recorded, size = _recorded(trials, sizes)
    history: list[Generation] = []
    seen: list[tuple[float, np.ndarray]] = []
    for number in range(len(sizes)):
        vectors = algorithm.ask()
        replayed = number < len(recorded)
        if replayed:
            fitness = _matching_fitness(trials, number, sum(sizes[:number]), vectors, recorded[number])
        else:
            fitness = [float(value) for value in evaluate(vectors)]
        algorithm.tell(vectors, fitness)
        if not replayed:
            size = _append(trials, size, _rows(number, vectors, fitness))
        seen = _best([*seen, *zip(fitness, vectors, strict=True)], keep)
        history.append(
            Generation(
                number=number,
                best=max(fitness),
                mean=float(np.mean(fitness)),
                std=float(np.std(fitness)),
                sigma=algorithm.sigma,
                mean_vector=algorithm.mean,
                replayed=replayed,
            )
        )
        on_generation(history[-1], vectors)
    return Outcome(algorithm.mean, algorithm.sigma, history, seen)


def _best(seen: Sequence[tuple[float, np.ndarray]], keep: int) -> list[tuple[float, np.ndarray]]:
    """The ``keep`` distinct vectors of highest fitness; of equals the earlier."""
    best: list[tuple[float, np.ndarray]] = []
    for value, vector in sorted(seen, key=lambda pair: -pair[0]):
        if len(best) < keep and not any(value == known and np.array_equal(vector, other) for known, other in best):
            best.append((value, vector))
    return best


def _rows(number: int, vectors: Sequence[np.ndarray], fitness: Sequence[float]) -> list[dict[str, Any]]:
    rows = []
    for index, (vector, value, relative) in enumerate(zip(vectors, fitness, standardise(fitness), strict=True)):
        row = {"generation": number, "index": index, "fitness": value, "standardised": float(relative)}
        rows.append(row | _identity(vector))
    return rows


def _identity(vector: np.ndarray) -> dict[str, Any]:
    sha = hashlib.sha256(np.ascontiguousarray(vector, dtype="<f8").data).hexdigest()
    return {"vector_sha256": sha} | ({"vector": vector.tolist()} if vector.size <= RECORDED_DIMENSIONS else {})


def _append(trials: Path, size: int, rows: Sequence[dict[str, Any]]) -> int:
    """Append a generation after the first ``size`` bytes, dropping what a kill left behind them; the new size."""
    trials.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(canonical_json(row) + "\n" for row in rows).encode()
    with trials.open("ab") as stream:
        stream.truncate(size)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    return size + len(text)


def _recorded(trials: Path, sizes: Sequence[int]) -> tuple[list[list[Any]], int]:
    """The rows of each complete recorded generation, and the bytes they take; a torn or partial one is left out.

    Generations beyond ``sizes`` are of a longer search with the same beginning and are left in peace, unread.
    """
    if not trials.exists():
        return [], 0
    lines = trials.read_bytes().split(b"\n")[:-1]  # what follows the last newline is empty or torn
    ends = [end for end in accumulate(sizes) if end <= len(lines)]
    lines = lines[: ends[-1] if ends else 0]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{trials}, line {number}: not valid JSON ({error}); {_remedy(trials)}") from None
    generations = [rows[end - size : end] for size, end in zip(sizes, ends, strict=False)]
    return generations, sum(len(line) + 1 for line in lines)


def _matching_fitness(
    trials: Path, number: int, before: int, vectors: Sequence[np.ndarray], rows: Sequence[Any]
) -> list[float]:
    """The recorded fitness of a generation, once every row is that of the vector asked in its place."""
    fitness = []
    for index, (vector, row) in enumerate(zip(vectors, rows, strict=True)):
        place = f"{trials}, line {before + index + 1}"
        expected = {"generation": number, "index": index} | _identity(vector)
        if not isinstance(row, dict) or any(row.get(key) != value for key, value in expected.items()):
            raise UserError(
                f"{place}: recorded vector differs from the one this version asks (another seed, setting, library "
                f"version or processor, or an edited file); {_remedy(trials)}"
            )
        value = row.get("fitness")
        if not isinstance(value, float) or not math.isfinite(value):
            raise UserError(f"{place}: fitness {value!r} is not a finite number; {_remedy(trials)}")
        fitness.append(value)
    return fitness


def _remedy(trials: Path) -> str:
    return f"delete {trials} to search anew"
