"""Intervals, against textbook values and their own promise."""

from __future__ import annotations

import numpy as np
import pytest

from hyperes.statistics import average_interval, wilson_interval


def test_wilson_interval_is_the_published_one() -> None:
    # Newcombe (1998), table I: 81 of 263 and 0 of 20 without continuity correction.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_average_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    truth, sizes = np.array([0.5, 0.2, 0.8, 0.4]), [300, 400, 500, 600]
    inside = 0
    for _ in range(2000):
        drawn = [rng.binomial(n, p) / n for n, p in zip(sizes, truth, strict=True)]
        low, high = average_interval(drawn, sizes)
        inside += low <= truth.mean() <= high
    assert 0.93 < inside / 2000 < 0.97
