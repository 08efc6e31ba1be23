"""Any algorithm of nevergrad's registry by its name, as long as it repeats itself under the same seed."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hyperes.errors import UserError, first_line


@dataclass(frozen=True)
class Search:
    """What fixes the vectors that an algorithm asks, given what it is told."""

    algorithm: str
    arguments: Mapping[str, Any]
    sigma: float  # standard deviation of the algorithm's unit about the start
    population: int  # candidates asked together
    evaluations: int  # in all: some algorithms choose their ways by it
    seed: int


class Named:
    """An algorithm of nevergrad: asks ``population`` vectors together, the last time what is left of the budget.

    ``start`` is the origin, float64 (d,). Nevergrad's random state is the search's alone. Raises UserError for an
    algorithm that nevergrad does not have or cannot build for these settings.
    """

    def __init__(self, start: np.ndarray, search: Search) -> None:
        import nevergrad
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

        self._threads = ThreadpoolController()
        self._start = np.array(start, dtype=np.float64)
        self._search = search
        self._told = 0
        self._pending: list[Any] = []
        offset = nevergrad.p.Array(init=np.zeros_like(self._start)).set_mutation(sigma=search.sigma)
        offset.random_state = np.random.RandomState(search.seed)
        build = configure(search.algorithm, search.arguments)
        workers = min(search.population, search.evaluations)
        if build.no_parallelization and workers > 1:
            raise UserError(
                f"optimizer.evolution.population={workers}: {search.algorithm} asks one candidate at a time; give 1"
            )
        with self._guarded():
            self._optimizer = build(offset, budget=search.evaluations, num_workers=workers)

    mean = None  # none of them names a distribution whose mean would be the answer
    sigma = None

    def ask(self) -> list[np.ndarray]:
        """The next vectors, float64 (d,); raises UserError where the algorithm fails."""
        if self._pending:
            raise RuntimeError("ask: the last vectors have not been told")
        count = min(self._search.population, self._search.evaluations - self._told)
        with self._guarded():
            self._pending = [self._optimizer.ask() for _ in range(count)]
        vectors = [self._start + candidate.value for candidate in self._pending]
        if not np.isfinite(vectors).all():
            raise UserError(f"optimizer.evolution.algorithm={self._search.algorithm}: asks a vector that is not finite")
        return vectors

    def tell(self, vectors: Sequence[np.ndarray], fitness: Sequence[float]) -> None:
        """The fitness of what was asked, in that order, the larger the better; raises ValueError for anything else."""
        if not self._pending or len(vectors) != len(self._pending) or len(fitness) != len(self._pending):
            raise ValueError(f"tell takes the {len(self._pending)} vectors of the last ask and as many fitness values")
        for index, value in enumerate(fitness):
            if not math.isfinite(value):
                raise ValueError(f"fitness {value} of vector {index} is not finite")
        with self._guarded():
            for candidate, value in zip(self._pending, fitness, strict=True):
                self._optimizer.tell(candidate, -value)
        self._told += len(self._pending)
        self._pending = []

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An algorithm's own failure (a missing package, a budget it cannot use) as one clear line, its advice on
        efficiency unsaid, and one BLAS thread, for the last bits of matrix products."""
        with self._threads.limit(limits=1, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except Exception as error:
                raise UserError(
                    f"optimizer.evolution.algorithm={self._search.algorithm}: fails in this search "
                    f"({first_line(error)}); choose another algorithm, population or budget"
                ) from error


def configure(algorithm: str, arguments: Mapping[str, Any]) -> Any:
    """Nevergrad's algorithm of that name, with ``arguments`` in place of its own.

    Returns what builds an optimizer from (parametrization, budget, num_workers). Raises UserError for a name that is
    not in the registry and for arguments that the algorithm does not take.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nevergrad.optimization.base import ConfiguredOptimizer
        from nevergrad.optimization.optimizerlib import registry

        known = sorted(registry)
        if algorithm not in known:
            close = difflib.get_close_matches(algorithm, known, n=3) or ["OnePlusOne", "RandomSearch", "NGOpt"]
            raise UserError(
                f"optimizer.evolution.algorithm={algorithm}: neither cma nor one of the {len(known)} names in "
                f"nevergrad's registry; did you mean {', '.join(close)}?"
            )
        entry = registry[algorithm]
        if not arguments:
            return entry
        takes = list(inspect.signature(type(entry)).parameters) if isinstance(entry, ConfiguredOptimizer) else []
        if unknown := [name for name in arguments if name not in takes]:
            raise UserError(
                f"optimizer.evolution.arguments.{unknown[0]}: {algorithm} takes {', '.join(takes) or 'no arguments'}"
            )
        try:
            return type(entry)(**{**entry.config(), **arguments})
        except Exception as error:  # whatever its own checks raise (AssertionError, ValueError, …)
            raise UserError(f"optimizer.evolution.arguments: {algorithm} refuses them ({first_line(error)})") from error


def require_repeatable(search: Search, dimension: int) -> None:
    """Refuse an algorithm that does not ask the same vectors twice: a killed search could not be replayed.

    The whole search runs on a made-up fitness here and in a fresh interpreter, whose hashes and global generators
    differ. Raises UserError when the two ask other vectors.
    """
    if not _repeats(json.dumps({**asdict(search), "dimension": dimension})):
        raise UserError(
            f"optimizer.evolution.algorithm={search.algorithm}: does not repeat itself under the same seed, so a "
            "killed search could not go on; choose another algorithm"
        )


@lru_cache
def _repeats(request: str) -> bool:
    ours = rehearse(request)
    hashes = {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    theirs = subprocess.run(
        [sys.executable, "-m", "hyperes.search.named"],
        input=request,
        env={**os.environ, **hashes},
        capture_output=True,
        text=True,
        check=False,
    )
    if theirs.returncode:
        raise RuntimeError(f"the rehearsal of a search in a fresh interpreter failed:\n{theirs.stderr}")
    return theirs.stdout.strip() == ours


def rehearse(request: str) -> str:
    """SHA-256 (hex) of all vectors that a search asks on a made-up fitness with many ties, as accuracies have."""
    settings = json.loads(request)
    dimension = settings.pop("dimension")
    search = Search(**settings)
    named = Named(np.zeros(dimension), search)
    sha = hashlib.sha256()
    for _ in range(-(-search.evaluations // search.population)):
        vectors = named.ask()
        for vector in vectors:
            sha.update(np.ascontiguousarray(vector, dtype="<f8").data)
        distances = [float(np.sqrt(np.mean((vector / search.sigma - 1) ** 2))) for vector in vectors]
        named.tell(vectors, [round(100 / (1 + distance)) / 100 for distance in distances])
    return sha.hexdigest()


if __name__ == "__main__":
    print(rehearse(sys.stdin.read()))
