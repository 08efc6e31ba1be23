"""Separable CMA-ES over millions of variables: no covariance but its diagonal, and no population in memory.

Ros and Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity" (PPSN 2008), with the
constants of that paper; eq. 28-30 are as everywhere, of eq. 31 only the diagonal is kept. Libraries hold a generation
of candidates several times over: for 311,296 variables and 41 candidates the ``cmaes`` package took 0.42 GB, pycma 0.82
and nevergrad's pycma 1.6, so for 17.6 million and 54 some 31, 61 and 117. Here a candidate is drawn from a stream of
its own, keyed by (seed, generation, index), and drawn again when its turn comes to move the mean: 0.02 and 1.3 GB.
tests/fixtures/record_separable.py records what ``cmaes`` does; this module does the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from hyperes.errors import UserError
from hyperes.files import publishing

VECTORS = 9  # float64 vectors of the dimension alive at once, at most: four of the state, the rest while telling


class Separable:
    """One run from ``start``, float64 (d,): ``vector`` the candidates of a generation, ``tell`` their fitness.

    ``sigma`` is σ⁽⁰⁾, C⁽⁰⁾ = I, and the better half of ``population`` is recombined. The same arguments and fitness
    give the same vectors bit for bit: nothing here runs on more than one thread.
    """

    def __init__(self, start: np.ndarray, *, sigma: float, population: int, seed: int) -> None:
        self.mean = np.array(start, dtype=np.float64)
        self.sigma = sigma
        self.generation = 0
        self.population = population
        self._seed = seed
        self._variance = np.ones_like(self.mean)  # the diagonal of C
        self._step_path = np.zeros_like(self.mean)  # p_σ
        self._path = np.zeros_like(self.mean)  # p_c
        dimension, parents = self.mean.size, population // 2
        weights = math.log(parents + 1) - np.log(np.arange(1, parents + 1))
        self._weights = weights / weights.sum()
        self._mass = 1 / float(np.square(self._weights).sum())  # μ_eff
        mass = self._mass
        self._step_rate = (mass + 2) / (dimension + mass + 3)  # c_σ
        self._damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (dimension + 1)) - 1) + self._step_rate  # d_σ
        self._path_rate = 4 / (dimension + 4)  # c_c
        self._rank_one = 2 / ((dimension + 1.3) ** 2 + mass)
        full = 2 / mass / (dimension + math.sqrt(2)) ** 2
        full += (1 - 1 / mass) * min(1.0, (2 * mass - 1) / ((dimension + 2) ** 2 + mass))
        self._rank_mu = (dimension + 2) / 3 * full
        # E‖N(0, I)‖
        self._expected = math.sqrt(dimension) * (1 - 1 / (4 * dimension) + 1 / (21 * dimension**2))

    def vector(self, index: int) -> np.ndarray:
        """Candidate ``index`` of this generation, float64 (d,): m + σ·√C·z. Asked twice, it is the same."""
        vector = self._noise(index)
        vector *= np.sqrt(self._variance)
        vector *= self.sigma
        vector += self.mean
        return vector

    def tell(self, fitness: Sequence[float]) -> None:
        """Move the distribution; the larger fitness is the better, and of tied candidates the earlier.

        Raises ValueError for too few values or one that is not finite.
        """
        if len(fitness) != self.population or not np.isfinite(fitness).all():
            raise ValueError(f"need {self.population} finite fitness values, got {fitness}")
        best = np.argsort(-np.asarray(fitness, dtype=np.float64), kind="stable")[: self._weights.size]
        deviation = np.sqrt(self._variance)
        step = np.zeros_like(self.mean)  # Σ wₖ yₖ
        spread = np.zeros_like(self.mean)  # Σ wₖ yₖ²
        for index, weight in zip(best.tolist(), self._weights.tolist(), strict=True):
            direction = self._noise(index)
            direction *= deviation
            step += weight * direction
            np.square(direction, out=direction)
            direction *= weight
            spread += direction
        self.mean += self.sigma * step
        self._adapt(step, spread, deviation)
        self.generation += 1

    def _adapt(self, step: np.ndarray, spread: np.ndarray, deviation: np.ndarray) -> None:
        """Step size (eq. 29-30), then the diagonal of C (eq. 31)."""
        rate = self._step_rate
        self._step_path *= 1 - rate
        self._step_path += math.sqrt(rate * (2 - rate) * self._mass) * (step / deviation)
        # not numpy's norm: BLAS sums in an order that depends on the number of threads
        length = math.sqrt(float(np.square(self._step_path).sum()))
        self.sigma *= math.exp(rate / self._damping * (length / self._expected - 1))
        # p_c pauses while the step size grows fast
        dimension = self.mean.size
        normal = length / math.sqrt(1 - (1 - rate) ** (2 * (self.generation + 2)))
        moves = 1.0 if normal < (1.4 + 2 / (dimension + 1)) * self._expected else 0.0
        rate = self._path_rate
        self._path *= 1 - rate
        self._path += moves * math.sqrt(rate * (2 - rate) * self._mass) * step
        pause = (1 - moves) * rate * (2 - rate)
        self._variance *= 1 + self._rank_one * pause - self._rank_one - self._rank_mu
        self._variance += self._rank_one * np.square(self._path)
        spread *= self._rank_mu
        self._variance += spread

    def _noise(self, index: int) -> np.ndarray:
        """z of a candidate, float64 (d,), standard normal."""
        stream = np.random.SeedSequence([self._seed, self.generation, index])
        return np.random.Generator(np.random.Philox(stream)).standard_normal(self.mean.size)

    def save(self, path: Path) -> None:
        """Publish the distribution as it is between two generations."""
        with publishing(path) as stream:
            np.savez(
                stream,
                mean=self.mean,
                variance=self._variance,
                step_path=self._step_path,
                path=self._path,
                sigma=np.float64(self.sigma),
                generation=np.int64(self.generation),
            )

    def load(self, path: Path) -> None:
        """Go on from what ``save`` wrote for the same arguments; raises UserError for a damaged file."""
        try:
            with np.load(path, allow_pickle=False) as state:
                for name, array in (
                    ("mean", self.mean),
                    ("variance", self._variance),
                    ("step_path", self._step_path),
                    ("path", self._path),
                ):
                    np.copyto(array, state[name])
                self.sigma, self.generation = float(state["sigma"]), int(state["generation"])
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise UserError(
                f"{path}: not the state of this search ({error}); delete it to replay the trials"
            ) from error
