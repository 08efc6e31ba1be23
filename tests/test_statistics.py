"""Intervals keep their coverage and agree with independent implementations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hyperes.statistics import (
    across_seeds,
    bootstrap_interval,
    macro_mean,
    mean_at_k,
    pass_at_k,
    seeds_and_problems,
    wilson_interval,
)


def test_wilson_interval_is_the_published_one() -> None:
    # Newcombe (1998), Statistics in Medicine 17:857, table I
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_mean_at_k_is_students_interval_over_problems() -> None:
    samples = np.random.default_rng(1).integers(0, 2, (40, 8))
    estimate = mean_at_k(samples.mean(axis=1))
    expected = stats.ttest_1samp(samples.mean(axis=1), 0).confidence_interval(0.95)
    assert estimate.value == samples.mean()
    assert estimate.interval == pytest.approx((expected.low, expected.high))


def test_more_samples_of_the_same_problems_do_not_make_the_truth_better_known() -> None:
    """Problems differ (Beta(1/2, 1/2)): an interval over all samples would cover far less often than it says."""
    rng = np.random.default_rng(2)
    covered = pooled = 0
    for _ in range(1500):
        means = rng.binomial(32, rng.beta(0.5, 0.5, 60)) / 32
        low, high = mean_at_k(means).interval or (1, 0)
        covered += low <= 0.5 <= high
        low, high = wilson_interval(round(32 * means.sum()), 32 * 60)
        pooled += low <= 0.5 <= high
    assert 0.935 < covered / 1500 < 0.965
    assert pooled / 1500 < 0.6


@pytest.mark.parametrize(("value", "n"), [(1.0, 20), (0.0, 20), (1.0, 1)])
def test_mean_at_k_without_spread_is_wilsons(value: float, n: int) -> None:
    assert mean_at_k([value] * n).interval == pytest.approx(wilson_interval(int(value) * n, n))


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    draws = list(combinations([i < correct for i in range(n)], k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_of_many_samples_stays_a_probability() -> None:
    assert pass_at_k(10_000, 0, 100) == 0
    assert pass_at_k(10_000, 9_950, 100) == 1
    assert pass_at_k(2_000, 3, 1) == pytest.approx(3 / 2_000)


def test_the_bootstrap_is_scipys() -> None:
    rng = np.random.default_rng(3)
    suites = [rng.random(30), rng.integers(0, 2, 50).astype(float)]
    low, high = bootstrap_interval(suites, 20_000, 0) or (0, 0)
    theirs = stats.bootstrap(
        suites,
        lambda a, b, axis: (a.mean(axis) + b.mean(axis)) / 2,
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(4),
    ).confidence_interval
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.003)


def test_macro_mean_weighs_suites_equally_and_covers() -> None:
    assert macro_mean([[1.0, 1, 1, 0], [0.0, 0]]).value == 0.375
    rng = np.random.default_rng(5)
    covered = 0
    for trial in range(400):
        suites = [rng.random(80) < 0.8, rng.random(40) < 0.3]
        low, high = macro_mean(suites, resamples=1000, seed=trial).interval or (1, 0)
        covered += low <= 0.55 <= high
    assert 0.915 < covered / 400 < 0.98


def test_seeds_and_problems_both_vary() -> None:
    """With a seed effect as large as the problems' an interval over problems alone would be far too sure."""
    rng = np.random.default_rng(6)
    covered = problems_only = 0
    for trial in range(300):
        chances = np.clip(0.5 + rng.normal(0, 0.12, (8, 1)) + rng.normal(0, 0.2, 100), 0, 1)
        table = (rng.random(chances.shape) < chances).astype(float)
        low, high = seeds_and_problems(table, resamples=1000, seed=trial).interval or (1, 0)
        covered += low <= 0.5 <= high
        low, high = bootstrap_interval([table.mean(axis=0)], 1000, trial) or (1, 0)
        problems_only += low <= 0.5 <= high
    assert covered / 300 > 0.9
    assert problems_only / 300 < 0.75


def test_the_hierarchical_bootstrap_is_the_plain_double_resampling() -> None:
    table = np.random.default_rng(7).random((4, 25))
    rng = np.random.default_rng(8)
    plain = [table[rng.integers(0, 4, 4)][:, rng.integers(0, 25, 25)].mean() for _ in range(10_000)]
    estimate = seeds_and_problems(table)
    assert estimate.value == pytest.approx(table.mean())
    assert estimate.interval == pytest.approx(tuple(np.quantile(plain, [0.025, 0.975])), abs=0.004)


def test_across_seeds() -> None:
    spread = across_seeds([0.61, 0.62, 0.66])
    assert (spread.mean, spread.std, spread.n) == (pytest.approx(0.63), pytest.approx(0.0264575), 3)
    assert across_seeds([0.61]).std is None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=12), min_size=1, max_size=3), st.integers(0, 5))
def test_macro_interval_is_repeatable_ordered_and_blind_to_the_order_of_problems(
    suites: list[list[float]], seed: int
) -> None:
    estimate = macro_mean(suites, resamples=300, seed=seed)
    assert estimate.interval == macro_mean([suite[::-1] for suite in suites], resamples=300, seed=seed).interval
    if all(len(set(suite)) == 1 for suite in suites):
        assert estimate.interval is None
    else:
        low, high = estimate.interval or (2, 2)
        assert -1e-12 <= low <= high <= 1 + 1e-12


def test_what_cannot_be_computed_is_none() -> None:
    assert macro_mean([[1, 1, 1], [0.5]]).interval is None
    assert seeds_and_problems([[0, 1, 1, 0]]).interval is None
    assert seeds_and_problems([[1], [0]]).interval is None
    assert seeds_and_problems(np.ones((3, 5))).interval is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson_interval(0, 0), "no problems"),
        (lambda: mean_at_k([]), "no values"),
        (lambda: mean_at_k([0.5, float("nan")]), "not a finite number"),
        (lambda: mean_at_k([50.0]), r"must lie in \[0, 1\]"),
        (lambda: mean_at_k([[0.5]]), "1 dimension"),
        (lambda: macro_mean([]), "no suite"),
        (lambda: macro_mean([[0, 1]], resamples=0), "resamples=0"),
        (lambda: across_seeds([]), "no values"),
        (lambda: seeds_and_problems([0.5]), "2 dimension"),
        (lambda: pass_at_k(4, 5, 1), "needs 0 <= correct <= n"),
        (lambda: pass_at_k(4, 1, 5), "1 <= k <= n"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
