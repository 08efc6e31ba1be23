"""Cutting the training pool into N subsets, one per direction."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hyperes.errors import UserError
from hyperes.problems import Problem, shuffled


def partition(
    pool: Sequence[Problem], rule: str, count: int, seed: int, source: str = "this data set"
) -> list[list[Problem]]:
    """N disjoint subsets, each in an order that depends on the seed alone.

    rule    ``hops``: by number of reasoning hops, see ``hop_buckets``; ``category``: by subject, see
            ``category_buckets``; ``random``: at random, sizes differing by at most one; ``all``: one subset of
            everything.
    source  where the pool was read from, for messages

    Raises UserError where the pool cannot give ``count`` subsets.
    """
    if count > len(pool):
        raise UserError(f"directions.count={count}: the training pool has only {len(pool)} problems")
    if rule == "all":
        return [shuffled(pool, seed, "all")]
    if rule == "random":
        order = shuffled(pool, seed, "random")
        return [order[index::count] for index in range(count)]
    told = {
        "hops": all(problem.hops is not None for problem in pool),
        "category": all(problem.category is not None for problem in pool),
    }
    if not told[rule]:
        missing = sum(getattr(problem, rule) is None for problem in pool)
        others = " or ".join([name for name in told if told[name]] + ["random"])
        remedy = "give a file whose rows have a text 'type' or 'subject' (dataset.train.path=FILE), or "
        raise UserError(
            f"directions.partition={rule}: {source} tells no {rule} for {missing} of {len(pool)} problems; "
            f"{remedy if rule == 'category' else ''}use directions.partition={others}"
        )
    return hop_buckets(pool, count, seed) if rule == "hops" else category_buckets(pool, count, seed)


def hop_buckets(pool: Sequence[Problem], count: int, seed: int) -> list[list[Problem]]:
    """Subsets by difficulty, for hop counts however uneven (the paper does not state its rule).

    Start with one bucket per hop count, in order. While there are more than ``count``, merge the two neighbours
    that are smallest together (the first such pair); while there are fewer, split the largest bucket (the first
    such) into random halves. With ``count`` equal to the number of hop counts every bucket is one hop count.
    """
    levels: dict[int, list[Problem]] = defaultdict(list)
    for problem in pool:
        assert problem.hops is not None
        levels[problem.hops].append(problem)
    buckets = [levels[hops] for hops in sorted(levels)]
    while len(buckets) > count:
        sizes = [len(left) + len(right) for left, right in pairwise(buckets)]
        at = sizes.index(min(sizes))
        buckets[at : at + 2] = [buckets[at] + buckets[at + 1]]
    return _finished(buckets, count, seed)


def category_buckets(pool: Sequence[Problem], count: int, seed: int) -> list[list[Problem]]:
    """Subsets by subject, for any number of categories (the paper does not state its rule).

    Start with one bucket per category, by name. While there are more than ``count``, merge the two smallest (of equals
    the first by name) in the place of the first of them; while there are fewer, split the largest (the first such) into
    random halves. With ``count`` equal to the number of categories every bucket is one category.
    """
    subjects: dict[str, list[Problem]] = defaultdict(list)
    for problem in pool:
        assert problem.category is not None
        subjects[problem.category].append(problem)
    buckets = [subjects[name] for name in sorted(subjects)]
    while len(buckets) > count:
        first, second = sorted(sorted(range(len(buckets)), key=lambda index: len(buckets[index]))[:2])
        buckets[first] = buckets[first] + buckets.pop(second)
    return _finished(buckets, count, seed)


def _finished(buckets: list[list[Problem]], count: int, seed: int) -> list[list[Problem]]:
    """``count`` buckets: while there are fewer, the largest (the first such) becomes random halves; each shuffled."""
    while len(buckets) < count:
        at = max(range(len(buckets)), key=lambda index: len(buckets[index]))
        order = shuffled(buckets[at], seed, "halves")
        buckets[at : at + 1] = [order[0::2], order[1::2]]
    return [shuffled(bucket, seed, "bucket") for bucket in buckets]


def prompts(subset: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """The first ``count`` prompts of endless passes over the subset; later passes are shuffled anew.

    A longer list starts with the shorter one: the step-4 state of a run does not depend on where the run ends.
    """
    order = list(subset)
    chosen: list[Problem] = []
    for epoch in range(-(-count // len(order))):
        chosen += order
        order = random.Random(f"{seed}/{epoch}").sample(order, len(order))
    return chosen[:count]
