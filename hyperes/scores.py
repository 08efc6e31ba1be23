"""From the records of an evaluation to scores with their uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from hyperes.comparison import compare, compare_suites, correct_family
from hyperes.evaluation.records import Record
from hyperes.files import read_json
from hyperes.statistics import macro_mean, mean_at_k, pass_at_k, wilson_interval
from hyperes.store import Artifact


def suite_score(records: Sequence[Record]) -> dict[str, Any]:
    """Accuracy (of k samples: Mean@k, problems being the unit) with its interval, pass@k, and what the judge saw.

    ``rules`` counts the completions by the rule that found their answer; ``strict`` is the accuracy if only an answer
    after ``####`` counted.
    """
    counts = correct_counts(records)
    samples = len(records) // len(counts)
    score: dict[str, Any] = {"n": len(counts), "samples": samples, "correct": int(counts.sum())}
    if samples == 1:
        score["accuracy"] = score["correct"] / score["n"]
        score["interval"] = list(wilson_interval(score["correct"], score["n"]))
    else:
        estimate = mean_at_k(counts / samples)
        score["accuracy"], score["interval"] = estimate.value, list(estimate.interval or ())
        passed = mean_at_k([pass_at_k(samples, int(count), samples) for count in counts])
        score["pass_at_k"], score["pass_at_k_interval"] = (
            passed.value,
            list(passed.interval or ()),
        )
    return {
        **score,
        "strict": sum(record.correct and record.rule == "hash" for record in records) / len(records),
        "rules": dict(sorted(Counter(record.rule for record in records if record.rule).items())),
        "unanswered": sum(record.extracted is None for record in records),
        "truncated": sum(record.truncated for record in records),
        "tokens": sum(record.tokens for record in records) / len(records),
    }


def correct_counts(records: Sequence[Record]) -> np.ndarray:
    """int (problems,): how many samples of each problem are right; every problem has as many samples."""
    groups = [list(group) for _, group in groupby(records, key=lambda record: record.problem)]
    assert len({len(group) for group in groups}) == 1
    return np.array([sum(record.correct for record in group) for group in groups])


def problem_means(records: Sequence[Record]) -> np.ndarray:
    """float64 (problems,): each problem's share of right samples."""
    counts = correct_counts(records)
    return counts / (len(records) // len(counts))


def average(suites: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """Unweighted mean over suites, with an interval from resampling problems within each."""
    estimate = macro_mean([problem_means(records) for records in suites])
    return {
        "accuracy": estimate.value,
        "interval": list(estimate.interval) if estimate.interval else None,
        "n": estimate.n,
    }


def gains(merged: Mapping[str, Sequence[Record]], base: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, Any]]:
    """The merged model against its base on the same problems: each suite (p corrected by Holm) and the average."""
    pairs = [(problem_means(merged[suite]), problem_means(base[suite])) for suite in merged]
    found = dict(zip(merged, correct_family([compare(*pair) for pair in pairs]), strict=True))
    found["average"] = compare_suites([first for first, _ in pairs], [second for _, second in pairs])
    return {suite: {**asdict(comparison), "verdict": comparison.verdict} for suite, comparison in found.items()}


def task_scores(artifact: Artifact) -> dict[str, dict[str, Any]]:
    """{task: {metric: value}} as lm-eval reports them; of a group also its members."""
    made = read_json(artifact.path / "results.json")
    return {**made["results"], **made["groups"]}
