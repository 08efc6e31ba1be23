"""Is one method better than another? Paired tests and intervals on the same problems.

Two scores of the same problems are compared problem by problem: what both solve and what neither solves says nothing
of their difference, and an unpaired test would count it as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from hyperes.statistics import (
    LEVEL,
    RESAMPLES,
    Array,
    Interval,
    bootstrap_interval,
    finite,
    fractions,
    hierarchical_interval,
)

_CHUNK = 1 << 22  # signs drawn at once


@dataclass(frozen=True)
class Comparison:
    """How much more the first method scores than the second (fractions), at the level ``statistics.LEVEL``.

    ``interval`` and ``p`` are None where the data do not tell them.
    """

    difference: float
    interval: Interval | None
    p: float | None
    n: int  # problems

    @property
    def verdict(self) -> str:
        """ "better", "worse" or "not distinguishable": by the test where there is one, else by the interval."""
        if self.p is not None:
            clear = self.p <= 1 - LEVEL
        else:
            clear = self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]
        if not clear or self.difference == 0:
            return "not distinguishable"
        return "better" if self.difference > 0 else "worse"


def compare(first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Two methods on the problems of one suite: right or wrong, or each problem's mean over samples (Mean@k).

    The interval is the paired bootstrap's; p is McNemar's where every score is 0 or 1, else that of sign flips.
    Raises ValueError for different lengths and as ``statistics.fractions`` does.
    """
    return compare_suites([first], [second], resamples=resamples, seed=seed)


def compare_suites(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """``compare`` for the macro average over suites: problems are resampled, and signs flipped, within each suite."""
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} suites: both methods need the same, and at least one")
    pairs = [_paired(a, b) for a, b in zip(first, second, strict=True)]
    differences = [a - b for a, b in pairs]
    if len(pairs) == 1 and all(np.isin(scores, (0, 1)).all() for scores in pairs[0]):
        p = mcnemar(*pairs[0])
    else:
        p = sign_flip_test(differences, resamples=resamples, seed=seed)
    mean = sum(float(d.mean()) for d in differences) / len(differences)
    interval = bootstrap_interval(differences, resamples, seed)
    return Comparison(mean, interval, p, sum(len(d) for d in differences))


def compare_seeds(first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Two methods, each an array (seeds, problems) over the same problems; the numbers of seeds may differ.

    Problems are resampled for both together and seeds for each by itself; there is no exact test of this, so p is
    None and the interval decides. Its limits are those of ``statistics.seeds_and_problems``.
    """
    return compare_seeds_suites([first], [second], resamples=resamples, seed=seed)


def compare_seeds_suites(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """``compare_seeds`` for the macro average over suites; a seed is drawn for all suites together."""
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} suites: both methods need the same, and at least one")
    pairs = []
    for ours, theirs in zip(first, second, strict=True):
        a, b = fractions(ours, dimensions=2), fractions(theirs, dimensions=2)
        if a.shape[1] != b.shape[1]:
            raise ValueError(
                f"{a.shape[1]} and {b.shape[1]} problems: both methods need the same problems in one order"
            )
        pairs.append((a, b))
    if len({(len(a), len(b)) for a, b in pairs}) > 1:
        raise ValueError("a method has other numbers of seeds in different suites")
    difference = sum(float(a.mean()) - float(b.mean()) for a, b in pairs) / len(pairs)
    interval = hierarchical_interval([[a, -b] for a, b in pairs], resamples, seed)
    return Comparison(difference, interval, None, sum(a.shape[1] for a, _ in pairs))


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p of McNemar's exact test (McNemar 1947) for two methods, right (1) or wrong (0) on the same problems.

    Only the problems that one of them alone solves count; without any, p is 1. Raises ValueError for different
    lengths, no problems, and scores other than 0 and 1.
    """
    a, b = _paired(first, second)
    if not (np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all()):
        raise ValueError("McNemar's test takes right (1) or wrong (0); use sign_flip_test for means")
    only_first, only_second = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
    if only_first + only_second == 0:
        return 1.0
    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def sign_flip_test(suites: Sequence[ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Two-sided p that paired differences are symmetric about 0, by flipping their signs (Fisher 1935).

    The statistic is the unweighted mean over suites of their mean difference. All sign patterns are taken where there
    are at most ``resamples``; else that many are drawn, and p = (1 + as extreme) / (1 + drawn). On differences of
    right and wrong in one suite this is McNemar's test. Raises ValueError as ``statistics.finite`` does.
    """
    weighted = [finite(suite) / np.size(suite) / len(suites) for suite in suites]
    values = np.concatenate([suite[suite != 0] for suite in weighted])
    if not len(values):
        return 1.0
    observed = abs(values.sum()) - 1e-12 * np.abs(values).sum()  # sums in another order differ in their last bits
    if len(values) < 60 and 2 ** len(values) <= resamples:
        patterns = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1
        return float((np.abs((2 * patterns - 1) @ values) >= observed).mean())
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(values))
    extreme = 0
    for start in range(0, resamples, rows):
        signs = rng.integers(0, 2, size=(min(rows, resamples - start), len(values)), dtype=np.int8)
        extreme += int((np.abs((2.0 * signs - 1) @ values) >= observed).sum())
    return (1 + extreme) / (1 + resamples)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Step-down adjusted p-values of a family of tests, in their order (Holm 1979). None is no test: it stays None."""
    tested = [(p, index) for index, p in enumerate(p_values) if p is not None]
    if any(not 0 <= p <= 1 for p, _ in tested):
        raise ValueError(f"p-values must lie in [0, 1]: {[p for p, _ in tested]}")
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(sorted(tested)):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[index] = largest
    return adjusted


def correct_family(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one table with their p-values adjusted by ``holm``; verdicts follow, intervals stay."""
    adjusted = holm([comparison.p for comparison in comparisons])
    return [replace(comparison, p=p) for comparison, p in zip(comparisons, adjusted, strict=True)]


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    a, b = fractions(first), fractions(second)
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} problems: a paired comparison needs the same problems in one order")
    return a, b
