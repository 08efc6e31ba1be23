"""Uncertainty of accuracies: of one suite, of several, and across seeds.

The unit is the problem: k samples of one problem are one observation, their mean. Where problems are resampled
(Efron 1979), a resample is drawn as multinomial counts of the distinct values, which is the same distribution as
drawing problems with replacement and does not depend on their order. Comparisons of two methods: ``comparison``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, norm, t

LEVEL = 0.95  # confidence of every interval and, as 1 - LEVEL, significance of every test
RESAMPLES = 10_000
_CHUNK = 1 << 20  # entries of resampled counts held at once

Interval = tuple[float, float]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval (both as fractions; None where the data do not tell) and how many units it rests on."""

    value: float
    interval: Interval | None
    n: int


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (ddof=1; None of one seed) of a score over seeds."""

    mean: float
    std: float | None
    n: int


def wilson_interval(correct: int, n: int) -> Interval:
    """95 % Wilson score interval of an accuracy, as fractions (Wilson 1927). Raises ValueError for n = 0."""
    if n < 1:
        raise ValueError("no problems: an accuracy of none has no interval")
    interval = binomtest(correct, n).proportion_ci(confidence_level=LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def mean_at_k(means: ArrayLike) -> Estimate:
    """Mean@k from each problem's mean over its k samples (or its pass@k), with Student's interval over problems.

    Where the means have no spread (one problem, or all equal), Student's interval does not exist and Wilson's for as
    many problems stands in: no variable in [0, 1] with this mean varies more. Raises ValueError as ``fractions`` does.
    """
    values = fractions(means)
    n, mean = len(values), _clip(float(values.mean()))
    deviation = float(values.std(ddof=1)) if n > 1 and np.ptp(values) > 0 else 0.0
    if deviation == 0:
        z = float(norm.ppf(0.5 + LEVEL / 2))
        centre = (mean + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
    else:
        centre, half = mean, float(t.ppf(0.5 + LEVEL / 2, n - 1)) * deviation / math.sqrt(n)
    return Estimate(mean, (_clip(centre - half), _clip(centre + half)), n)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased chance that at least one of k samples of a problem is right, from n samples (Chen et al. 2021, eq. 1).

    Raises ValueError unless 0 <= correct <= n and 1 <= k <= n.
    """
    if not (0 <= correct <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {correct} right among {n}: needs 0 <= correct <= n and 1 <= k <= n")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def macro_mean(suites: Sequence[ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Unweighted mean over suites of their mean over problems; problems are resampled within each suite.

    ``n`` is the number of problems. The interval is None where no suite has any spread. Raises ValueError for no suite
    and as ``fractions`` does.
    """
    if not len(suites):
        raise ValueError("no suite to average")
    values = [fractions(suite) for suite in suites]
    mean = sum(float(suite.mean()) for suite in values) / len(values)
    return Estimate(mean, bootstrap_interval(values, resamples, seed), sum(len(suite) for suite in values))


def across_seeds(scores: ArrayLike) -> Spread:
    """Mean and standard deviation of one score per seed. Raises ValueError as ``finite`` does."""
    values = finite(scores)
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None, len(values))


def seeds_and_problems(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Mean of an array (seeds, problems) of scores in [0, 1]; seeds and, independently, problems are resampled.

    ``n`` is the number of seeds. The interval is None of one seed, one problem or equal values. With few seeds it is
    too narrow: resampling S seeds sees (S-1)/S of their variance. Raises ValueError as ``fractions`` does.
    """
    table = fractions(values, dimensions=2)
    return Estimate(float(table.mean()), hierarchical_interval([[table]], resamples, seed), len(table))


def bootstrap_interval(strata: Sequence[Array], resamples: int, seed: int) -> Interval | None:
    """Percentile interval of the unweighted mean of the strata's means, each resampled within itself.

    Strata of one value or equal values are constant; None where all are, for nothing can then be learnt of the spread.
    """
    if all(np.ptp(stratum) == 0 for stratum in strata):
        return None
    rng = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for stratum in strata:
        values, counts = np.unique(stratum, return_counts=True)
        for rows in _chunks(resamples, len(values)):
            drawn = rng.multinomial(len(stratum), counts / len(stratum), size=rows.stop - rows.start)
            means[rows] += drawn @ values / len(stratum)
    return _percentiles(means / len(strata))


def hierarchical_interval(suites: Sequence[Sequence[Array]], resamples: int, seed: int) -> Interval | None:
    """Percentile interval of the sum of tables' means, each the unweighted mean over suites.

    ``suites[s][t]`` is table t, (seeds, problems), in suite s; the tables of a suite are over the same problems, and a
    table has the same seeds in every suite. Problems are resampled within each suite, once for all its tables; seeds in
    each table by themselves, once for all suites. None where a table has one seed only, where a suite has one problem,
    and where no table has any spread.
    """
    tables = [table for suite in suites for table in suite]
    if any(len(table) < 2 or table.shape[1] < 2 for table in tables):
        return None
    if all(np.ptp(table) == 0 for table in tables):
        return None
    rng = np.random.default_rng(seed)
    # Problems with the same scores under every seed are one category: few columns where scores are right or wrong.
    categories = [np.unique(np.concatenate(list(suite)), axis=1, return_counts=True) for suite in suites]
    starts = np.cumsum([0, *(len(table) for table in suites[0])])
    means = np.zeros(resamples)
    for rows in _chunks(resamples, max(len(counts) for _, counts in categories)):
        size = rows.stop - rows.start
        shares = [
            rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=size) / seeds for seeds in np.diff(starts).tolist()
        ]
        for columns, counts in categories:
            problems = int(counts.sum())
            drawn = rng.multinomial(problems, counts / problems, size=size)
            scores = np.zeros((size, len(counts)))
            for (first, last), share in zip(pairwise(starts), shares, strict=True):
                scores += share @ columns[first:last]
            means[rows] += (drawn * scores).sum(axis=1) / problems
    return _percentiles(means / len(suites))


def finite(values: ArrayLike, dimensions: int = 1) -> Array:
    """``values`` as float64. Raises ValueError if they are empty, not finite or have another number of dimensions."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"expected an array of {dimensions} dimension(s), not of shape {array.shape}")
    if not array.size:
        raise ValueError("no values: an empty array has no mean")
    if not np.isfinite(array).all():
        raise ValueError("a value is not a finite number")
    return array


def fractions(values: ArrayLike, dimensions: int = 1) -> Array:
    """``finite``, and ValueError for anything outside [0, 1]."""
    array = finite(values, dimensions)
    if array.min() < 0 or array.max() > 1:
        raise ValueError(f"scores must lie in [0, 1], not from {array.min()} to {array.max()}")
    return array


def _chunks(resamples: int, width: int) -> list[slice]:
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: must be at least 1")
    rows = max(1, _CHUNK // width)
    return [slice(start, min(start + rows, resamples)) for start in range(0, resamples, rows)]


def _percentiles(means: Array) -> Interval:
    low, high = np.quantile(means, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return float(low), float(high)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
