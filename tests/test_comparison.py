"""Paired tests agree with exact enumeration, err as often as they say, and never invent a number."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hyperes.comparison import (
    Comparison,
    compare,
    compare_seeds,
    compare_seeds_suites,
    compare_suites,
    correct_family,
    holm,
    mcnemar,
    sign_flip_test,
)

outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


def columns(pairs: list[tuple[bool, bool]]) -> tuple[list[bool], list[bool]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


@given(outcomes)
def test_mcnemar_is_the_binomial_tail(pairs: list[tuple[bool, bool]]) -> None:
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    n = only_first + only_second
    tail = sum(comb(n, i) for i in range(min(only_first, only_second) + 1)) / 2**n
    first, second = columns(pairs)
    assert mcnemar(first, second) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(second, first) == mcnemar(first, second)


def test_mcnemar_of_a_textbook_table() -> None:
    # Agresti, Categorical Data Analysis, section 10.1: 150 and 86 discordant of 1600, chi-square (86-150)^2/236 = 17.36
    first, second = [1] * 150 + [0] * 86 + [1] * 794 + [0] * 570, [0] * 150 + [1] * 86 + [1] * 794 + [0] * 570
    assert mcnemar(first, second) == pytest.approx(stats.chi2.sf(17.36, 1), rel=0.3)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_sign_flips_of_right_and_wrong_are_mcnemars_test(pairs: list[tuple[bool, bool]]) -> None:
    first, second = columns(pairs)
    differences = np.subtract(first, second, dtype=float)
    assert sign_flip_test([differences]) == pytest.approx(mcnemar(first, second))


def test_sign_flips_by_exact_enumeration_and_by_drawing() -> None:
    rng = np.random.default_rng(0)
    suites = [rng.normal(0.2, 0.5, 5), rng.normal(0.3, 0.5, 6)]
    observed = abs(suites[0].mean() + suites[1].mean())
    extreme = sum(
        abs((suites[0] * signs[:5]).mean() + (suites[1] * signs[5:]).mean()) >= observed - 1e-12
        for signs in map(np.array, product((-1, 1), repeat=11))
    )
    assert sign_flip_test(suites) == pytest.approx(extreme / 2**11)
    assert sign_flip_test(suites, resamples=2000, seed=1) == pytest.approx(extreme / 2**11, abs=0.03)  # drawn


def test_the_paired_interval_is_scipys_bootstrap() -> None:
    rng = np.random.default_rng(1)
    first = rng.binomial(8, 0.6, 70) / 8
    second = np.clip(first + rng.normal(-0.05, 0.2, 70), 0, 1)
    theirs = stats.bootstrap(
        (first, second),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        random_state=np.random.default_rng(2),
    ).confidence_interval
    ours = compare(first, second, resamples=20_000)
    assert ours.difference == pytest.approx(first.mean() - second.mean())
    assert ours.interval == pytest.approx((theirs.low, theirs.high), abs=0.003)


def test_the_paired_interval_covers_and_the_test_errs_as_they_say() -> None:
    """Two methods share hard and easy problems; the second is better by 0.05 on average, or not at all."""
    rng = np.random.default_rng(3)
    covered = false_alarms = 0
    for trial in range(400):
        chance = rng.beta(1, 1, 150) * 0.9
        first, second, equal = (rng.random(150) < chance + gain for gain in (0.05, 0.0, 0.05))
        low, high = compare(first, second, resamples=1000, seed=trial).interval or (1, 0)
        covered += low <= 0.05 <= high
        false_alarms += compare(first, equal, resamples=1, seed=trial).verdict != "not distinguishable"
    assert 0.915 < covered / 400 < 0.98
    assert false_alarms / 400 < 0.07


def test_pairing_sees_what_an_unpaired_test_does_not() -> None:
    second = np.arange(400) % 2 == 0
    first = second.copy()
    first[1:40:2] = True  # twenty problems gained, none lost
    found = compare(first, second)
    assert (found.verdict, compare(second, first).verdict) == ("better", "worse")
    assert found.p == 2 / 2**20
    assert stats.fisher_exact([[220, 180], [200, 200]]).pvalue > 0.1


def test_suites_count_equally() -> None:
    first, second = [[1, 1, 0, 1], [0] * 40], [[0, 0, 0, 1], [0] * 40]
    found = compare_suites(first, second)
    assert found.difference == pytest.approx(0.25)
    assert found.n == 44
    assert found.p == pytest.approx(0.5)  # two discordant problems: two of four sign patterns are as extreme


def test_one_lucky_seed_is_not_a_better_method() -> None:
    rng = np.random.default_rng(4)
    base = (rng.random(300) < 0.5).astype(float)
    # of three seeds one gained a hundred problems
    lucky = np.stack([np.maximum(base, np.arange(300) < 200 * (seed == 0)) for seed in range(3)])
    assert compare(lucky.mean(axis=0), base).verdict == "better"
    found = compare_seeds(lucky, np.stack([base, base]))
    assert found.difference == pytest.approx(lucky.mean() - base.mean())
    assert found.verdict == "not distinguishable"
    every = np.stack([np.maximum(base, (np.arange(300) + seed) % 4 == 0) for seed in range(3)])
    assert compare_seeds(every, np.stack([base, base])).verdict == "better"


def test_seeds_over_several_suites_are_resampled_as_said() -> None:
    """A seed is drawn for all suites together, problems within each suite."""
    rng = np.random.default_rng(5)
    shift = rng.normal(0, 0.15, 4)  # a good seed is good in every suite: drawing them apart would be too narrow
    ours = [np.clip(0.6 + shift[:, None] + rng.normal(0, 0.1, (4, n)), 0, 1) for n in (30, 50)]
    theirs = [np.clip(0.5 + rng.normal(0, 0.1, (3, n)), 0, 1) for n in (30, 50)]
    drawn = []
    for _ in range(4000):
        first, second = rng.integers(0, 4, 4), rng.integers(0, 3, 3)
        gaps = []
        for a, b in zip(ours, theirs, strict=True):
            problems = rng.integers(0, a.shape[1], a.shape[1])
            gaps.append(a[np.ix_(first, problems)].mean() - b[np.ix_(second, problems)].mean())
        drawn.append(np.mean(gaps))
    found = compare_seeds_suites(ours, theirs)
    assert found.difference == pytest.approx(np.mean([a.mean() - b.mean() for a, b in zip(ours, theirs, strict=True)]))
    assert found.interval == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.012)
    assert (found.n, found.p) == (80, None)


def test_holm_is_the_published_procedure() -> None:
    # the example of R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02, None, 0.9]) == [0.04, None, 0.9]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_as_the_step_down_rule(p_values: list[float], alpha: float) -> None:
    rejected = set()
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - rank) > alpha:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p is not None and p <= alpha} == rejected


def test_a_family_can_take_a_verdict_back() -> None:
    alone = Comparison(0.05, (0.01, 0.09), 0.03, 100)
    assert alone.verdict == "better"
    assert [c.verdict for c in correct_family([alone, alone])] == ["not distinguishable"] * 2


def test_what_cannot_be_computed_is_none() -> None:
    same = compare([1, 0, 1], [1, 0, 1])
    assert same == Comparison(0.0, None, 1.0, 3)
    assert same.verdict == "not distinguishable"
    assert compare([1], [0]) == Comparison(1.0, None, 1.0, 1)
    ahead = compare([1] * 12, [0] * 12)
    assert (ahead.interval, ahead.verdict) == (None, "better")
    assert compare_seeds([[1, 0, 1]], [[0, 0, 1]]).interval is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([1, 0], [1]), "2 and 1 problems"),
        (lambda: compare([], []), "no values"),
        (lambda: compare([2, 0], [1, 0]), r"\[0, 1\]"),
        (lambda: compare_suites([[1]], []), "1 and 0 suites"),
        (lambda: compare_suites([], []), "0 and 0 suites"),
        (lambda: compare_seeds([[1, 0]], [[1, 0, 1]]), "2 and 3 problems"),
        (lambda: compare_seeds_suites([[[1, 0]], [[1, 0], [1, 1]]], [[[1, 0]], [[1, 0]]]), "other numbers of seeds"),
        (lambda: mcnemar([0.5], [1]), "right"),
        (lambda: holm([1.5]), "p-values must lie"),
        (lambda: sign_flip_test([[float("inf")]]), "finite"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
