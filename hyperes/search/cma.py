"""CMA-ES (eq. 23-31): the distribution over the search vector. pycma, driven through nevergrad."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperes.errors import UserError


class Evolution:
    """One CMA-ES run over R^d: sample a generation, rank it, move the distribution.

    ``start`` is the mean m⁽⁰⁾, float64 (d,), d ≥ 2; ``sigma`` the step size σ⁽⁰⁾; C⁽⁰⁾ = I (but for pycma's
    1e-4 of asymmetry); ``population`` is G, of which the better half is recombined with pycma's positive log weights.
    ``diagonal`` keeps C diagonal: memory linear in d, and pycma's own update in place of eq. 31.
    The same arguments and fitness give the same vectors bit for bit, at any number of BLAS threads.

    Raises UserError for a population below 3, a sigma that is not positive, or a start that is not a finite vector.
    """

    def __init__(self, start: np.ndarray, *, sigma: float, population: int, seed: int, diagonal: bool) -> None:
        if start.ndim != 1 or start.size < 2 or not np.isfinite(start).all():
            raise UserError(f"CMA-ES start: need a finite vector of two or more numbers, got shape {start.shape}")
        if population < 3:
            raise UserError(f"population={population}: CMA-ES recombines the better half, give at least 3")
        if not (math.isfinite(sigma) and sigma > 0):
            raise UserError(f"sigma={sigma}: the initial step size must be a finite positive number")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Could not import matplotlib")  # pycma's; we plot nothing with it
            import nevergrad
            from cma.sigma_adaptation import CMAAdaptSigmaCSA
            from nevergrad.optimization.optimizerlib import ParametrizedCMA
            from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

        self.population = population
        self.generation = 0
        self._pending: list[Any] = []
        self._threads = ThreadpoolController()
        self._start = np.array(start, dtype=np.float64)
        # The parametrization is an offset from the start. Centred at the start itself, it would hand pycma points that
        # differ from the sampled ones by rounding; pycma takes those for foreign points and clips the long ones.
        offset = nevergrad.p.Array(init=np.zeros_like(self._start))
        offset.random_state = np.random.RandomState(seed)
        # by its class: "CMA" by name changes variant with the number of workers
        configuration = ParametrizedCMA(
            scale=sigma,
            popsize=population,
            diagonal=diagonal,
            inopts={
                "CMA_active": False,  # eq. 26, 31: no negative weights
                "AdaptSigma": CMAAdaptSigmaCSA,  # eq. 29-30; from d = 300 on, pycma's default is another rule (TPA)
                "CMA_mirrors": 0,  # below G = 6 the default adds mirrored samples
                "conditioncov_alleviate": False,  # would change the coordinates of the mean
            },
        )
        self._optimizer = configuration(offset, budget=None, num_workers=population)
        # The archive serves `recommend`, which we never ask; it keeps hundreds of vectors.
        self._optimizer.pruning = lambda archive: type(archive)()
        self._es = self._optimizer.es
        # nevergrad answers a met stop criterion (flat fitness, stagnation, …) with a silent restart. Two of them have
        # no option to turn them off, and all are tested, in Python loops over d, at every access: take out the test.
        self._es.stop = dict

    @property
    def mean(self) -> np.ndarray:
        """The distribution mean m_z in search coordinates, float64 (d,): the paper's answer."""
        origin = self._optimizer.parametrization
        return self._decode(origin.spawn_child().set_standardized_data(self._es.mean, reference=origin))

    @property
    def sigma(self) -> float:
        """The global step size σ (a diagonal run also learns a scale per coordinate)."""
        return float(self._es.sigma)

    def ask(self) -> list[np.ndarray]:
        """Sample a whole generation, G float64 vectors (d,) in an order ``tell`` relies on.

        Raises RuntimeError when the last generation was not told, or when pycma was restarted behind our back.
        """
        if self._pending:
            raise RuntimeError("ask: the last generation has not been told")
        with self._one_blas_thread():
            self._pending = [self._optimizer.ask() for _ in range(self.population)]
        self._require_same_run()
        return [self._decode(candidate) for candidate in self._pending]

    def tell(self, vectors: Sequence[np.ndarray], fitness: Sequence[float]) -> None:
        """Move the distribution towards the fitter vectors (eq. 26, 28-31); the larger fitness is the better.

        ``vectors`` is what ``ask`` returned, in that order: of tied vectors the earlier ranks higher.
        Raises ValueError for other vectors or a fitness that is not finite, before anything is told; RuntimeError when
        the distribution did not advance (nevergrad swallows pycma's errors) or was restarted.
        """
        if len(vectors) != self.population or len(fitness) != self.population or not self._pending:
            raise ValueError(f"tell takes the {self.population} vectors of the last ask and as many fitness values")
        for index, (candidate, vector, value) in enumerate(zip(self._pending, vectors, fitness, strict=True)):
            if not np.array_equal(self._decode(candidate), vector):
                raise ValueError(f"tell: vector {index} is not the one asked in its place")
            if not math.isfinite(value):
                raise ValueError(f"fitness {value} of vector {index} in generation {self.generation} is not finite")
        # Only the ranking counts, so ranks are told (0 the best: nevergrad minimises). pycma's own sort is not stable:
        # which of two tied vectors it puts first may differ between processors.
        order = np.argsort(-np.asarray(fitness, dtype=np.float64), kind="stable")
        loss = np.argsort(order, kind="stable")
        parents = self._optimizer._parents
        with self._one_blas_thread():
            for candidate, rank in zip(self._pending, loss, strict=True):
                self._optimizer.tell(candidate, float(rank))
        self._pending = []
        self._require_same_run()
        # pycma counts a generation before it updates; nevergrad replaces its parents only after an update that returned
        if self._es.countiter != self.generation + 1 or self._optimizer._parents is parents:
            raise RuntimeError(f"pycma failed in generation {self.generation} and nevergrad swallowed the error")
        self.generation += 1

    def _decode(self, parameter: Any) -> np.ndarray:
        return self._start + parameter.value

    def _one_blas_thread(self) -> Any:
        # the eigendecomposition of C differs in its last bits between thread counts
        return self._threads.limit(limits=1, user_api="blas")

    def _require_same_run(self) -> None:
        if self._optimizer._es is not self._es:  # `.es` itself could start another
            raise RuntimeError(f"nevergrad restarted pycma in generation {self.generation}; its state is lost")
