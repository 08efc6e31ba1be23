"""Is one method better than another? ``python -m hyperes.compare RUN... [--against RUN...]``

Compares finished runs (folders or result.json files) problem by problem on the suites they share: McNemar's exact test
(sign flips for Mean@k), a paired bootstrap interval, Holm's correction over the suites. Without --against each run is
compared with its own base model. Several runs on a side are one method's seeds: then seeds are resampled as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hyperes.comparison import Comparison, compare, compare_seeds, compare_suites, correct_family
from hyperes.errors import UserError, command
from hyperes.runs import Run, open_run
from hyperes.scores import problem_means
from hyperes.statistics import across_seeds


def means(runs: Sequence[tuple[Run, str | None]], suite: str) -> np.ndarray:
    """(runs, problems) of each problem's share of right samples; a run is given with the model that counts.

    Raises UserError unless all answered the same problems in the same order.
    """
    read = [run.records(suite, model) for run, model in runs]
    asked = [[(row.problem, row.question, row.answer) for row in rows if row.sample == 0] for rows in read]
    for (run, _), problems in zip(runs, asked, strict=True):
        if problems != asked[0]:
            raise UserError(
                f"{run.path}: {suite} has other problems than in {runs[0][0].path}; only equal ones compare"
            )
    return np.array([problem_means(rows) for rows in read])


def compare_runs(ours: Sequence[Run], theirs: Sequence[Run], model: str | None) -> dict[str, Comparison]:
    """{suite: comparison} with Holm-corrected p, and "average" over the suites (one run a side: several seeds lack it).

    ``model`` is whose records of ``theirs`` count (None: the run's own). Raises UserError where no suite is shared.
    """
    suites = [suite for suite in ours[0].suites() if suite in theirs[0].suites(model)]
    if not suites:
        raise UserError(f"{ours[0].path} and {theirs[0].path} have no suite in common")
    sides = [*((run, None) for run in ours), *((run, model) for run in theirs)]
    tables = {suite: means(sides, suite) for suite in suites}
    pairs = {suite: (table[: len(ours)], table[len(ours) :]) for suite, table in tables.items()}
    if max(len(ours), len(theirs)) > 1:
        return {suite: compare_seeds(first, second) for suite, (first, second) in pairs.items()}
    found = correct_family([compare(first[0], second[0]) for first, second in pairs.values()])
    average = compare_suites(*zip(*((first[0], second[0]) for first, second in pairs.values()), strict=True))
    return {**dict(zip(suites, found, strict=True)), "average": average}


def line(suite: str, width: int, comparison: Comparison) -> str:
    """One comparison in words and numbers, in points of accuracy."""
    text = f"{suite:<{width}}  {comparison.n:>5}  {100 * comparison.difference:+6.1f}"
    if comparison.interval is not None:
        low, high = comparison.interval
        text += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    if comparison.p is not None:
        text += f"  p = {comparison.p:.2g}"
    return f"{text}  {comparison.verdict}"


def _title(runs: Sequence[Run], model: str | None) -> str:
    name = runs[0].name if (model or runs[0].model) == "merged" else "base"
    return name + (f" ({len(runs)} seeds)" if len(runs) > 1 else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="a method's run, or its runs with different seeds")
    parser.add_argument("--against", type=Path, nargs="+", help="the other method's runs (default: the base model)")
    parser.add_argument("--store", type=Path, help="the runs' store, where it is not the one their config names")
    arguments = parser.parse_args()

    def work() -> None:
        ours = [open_run(path, arguments.store) for path in arguments.runs]
        theirs = [open_run(path, arguments.store) for path in arguments.against] if arguments.against else ours
        model = None if arguments.against else "base"
        for runs in (ours, theirs):
            if len({run.name for run in runs}) > 1 or len({run.seed for run in runs}) < len(runs):
                raise UserError("the runs of one side must be one method's with different seeds")
        comparisons = compare_runs(ours, theirs, model)
        print(f"{_title(ours, None)} against {_title(theirs, model)}: points of accuracy [95 % interval]")
        width = max(map(len, comparisons))
        for suite, comparison in comparisons.items():
            print(line(suite, width, comparison))
            if len(ours) > 1:
                spread = across_seeds(means([(run, None) for run in ours], suite).mean(axis=1))
                print(f"{'':<{width}}  {100 * spread.mean:.1f} ± {100 * (spread.std or 0):.1f} over seeds")

    return command(work)


if __name__ == "__main__":
    sys.exit(main())
