"""The live model of a worker process: loaded once, set to one candidate after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hyperes.backbone import Backbone, load_model, load_tokenizer
from hyperes.genome import Candidate


@dataclass(frozen=True)
class Bench:
    """Where candidates are evaluated: everything a worker process needs to stand up the live model. Picklable."""

    backbone: Backbone
    directions: tuple[tuple[str, str], ...]  # (key, PEFT folder) of every direction, in order
    mask: str  # fixed | resampled
    seed: int
    max_new_tokens: int
    batch_size: int


class Live:
    """The model of a bench with its pool; the base alone when there are no directions."""

    def __init__(self, bench: Bench) -> None:
        from hyperes.pool import read_pool
        from hyperes.resident import Resident

        self.tokenizer = load_tokenizer(bench.backbone)
        self.model = load_model(bench.backbone)
        self._resident: Resident | None = None
        if bench.directions:
            pool = read_pool([(key, Path(folder)) for key, folder in bench.directions], self.model.device)
            self._resident = Resident(self.model, pool, bench.seed, bench.mask == "resampled")

    def set(self, candidate: Candidate | None) -> None:
        """Write a candidate into the weights; None is the base."""
        if candidate is not None:
            assert self._resident is not None
            self._resident.write(candidate)
        elif self._resident is not None:
            self._resident.restore()


@lru_cache(maxsize=1)
def live(bench: Bench) -> Live:
    """One live model per process."""
    return Live(bench)
