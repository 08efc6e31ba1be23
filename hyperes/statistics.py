"""Uncertainty of accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.stats import binomtest, norm


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """95 % Wilson score interval of an accuracy, as fractions (Wilson 1927)."""
    interval = binomtest(correct, n).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def average_interval(accuracies: Sequence[float], sizes: Sequence[int]) -> tuple[float, float]:
    """95 % interval of the unweighted mean of independent suites' accuracies (normal approximation), as fractions."""
    count = len(accuracies)
    mean = sum(accuracies) / count
    variance = sum(a * (1 - a) / n for a, n in zip(accuracies, sizes, strict=True)) / count**2
    half = float(norm.ppf(0.975)) * math.sqrt(variance)
    return max(0.0, mean - half), min(1.0, mean + half)
