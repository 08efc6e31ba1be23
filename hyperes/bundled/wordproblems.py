"""Generator of multi-step word problems with a known number of reasoning hops (1-8).

A problem is a short story about how many things somebody has; every sentence after the first is
one hop (one arithmetic operation). Pretraining text, GRPO prompts and test suites are disjoint *by
construction*: the SHA-256 of the question's text says which split it may be used in.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

VERSION = 2  # of the problems it draws: raise it with any change of them
MAX_HOPS = 8
LARGEST = 99  # of all running totals
EQUAL_HOPS = (1.0,) * MAX_HOPS
# Share of all questions (in percent of the hash range) that each split owns.
SPLITS = {"pretrain": range(50), "train": range(50, 80), "test": range(80, 100)}

NAMES = "Anna Ben Carla David Emma Felix Grace Henry Iris Jack Kate Leo Maria Noah Olga Paul".split()  # noqa: SIM905
THINGS = "apples books coins cards eggs marbles pencils shells stamps stickers toys nuts".split()  # noqa: SIM905

OPENINGS = (
    "{name} has {n} {things}.",
    "{name} starts with {n} {things}.",
    "There are {n} {things} in the box of {name}.",
)
CLOSINGS = (
    "How many {things} does {name} have now?",
    "How many {things} are left with {name}?",
    "What is the number of {things} that {name} has?",
)
HOPS = {
    "+": (
        "{name} buys {n} more {things}.",
        "{other} gives {name} {n} {things}.",
        "{name} finds {n} {things}.",
        "Then {name} gets {n} more.",
    ),
    "-": (
        "{name} sells {n} {things}.",
        "{name} gives {other} {n} {things}.",
        "{name} loses {n} {things}.",
        "Then {name} uses {n} of them.",
    ),
    "*": ("Now {name} has {n} times as many {things}.", "{name} makes it {n} times as many."),
}
# Sentences that pretraining and GRPO never show: the same verbs in other constructions.
UNSEEN_HOPS = {
    "+": (
        "Now {n} more {things} are what {name} buys.",
        "{name} then finds and gets {n} {things} more.",
        "Then {name} has {n} more {things}.",
    ),
    "-": (
        "Now {n} {things} are what {name} sells.",
        "{name} then loses and gives {other} {n} {things}.",
        "Of the {things} {name} uses {n}.",
    ),
    "*": ("{n} times as many {things} are what {name} has now.", "Then {name} gets {n} times as many."),
}
DISTRACTORS = (
    "{other} has {n} {others}.",
    "{other} buys {n} {others}.",
    "There are {n} {others} in the box of {other}.",
)


@dataclass(frozen=True)
class WordProblem:
    """A question, its answer and the operations that lead to it."""

    question: str
    start: int
    operations: tuple[tuple[str, int], ...]  # (operator, operand) per hop

    @property
    def hops(self) -> int:
        return len(self.operations)

    @property
    def values(self) -> list[int]:
        """The running total: the start, then the value after each hop."""
        totals = [self.start]
        for operator, operand in self.operations:
            totals.append(_apply(totals[-1], operator, operand))
        return totals

    @property
    def answer(self) -> int:
        return self.values[-1]

    def solution(self, direct: bool = False) -> str:
        """The answer as text: one equation per hop, then ``#### answer``; ``direct`` leaves the equations out."""
        values = self.values
        lines = [
            f"{before} {operator} {operand} = {after}"
            for before, (operator, operand), after in zip(values, self.operations, values[1:], strict=False)
        ]
        return "\n".join([*([] if direct else lines), f"#### {self.answer}"])


@dataclass(frozen=True)
class Style:
    """What a suite varies: size of numbers, wording, distracting sentences."""

    operands: tuple[int, int] = (1, 9)  # smallest and largest number added or taken away
    unseen_hops: int = 0  # sentences in a construction that was never trained on
    distractors: int = 0  # sentences about somebody else's things


SUITES = {
    "in_domain": Style(),
    "larger_numbers": Style(operands=(7, 12)),
    "unseen_wording": Style(unseen_hops=1),
    "distractors": Style(distractors=1),
}


def split_of(question: str) -> str:
    """The one split that may use this question."""
    bucket = int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") % 100
    return next(name for name, owned in SPLITS.items() if bucket in owned)


def problems(split: str, seed: str, style: Style, hop_shares: tuple[float, ...]) -> Iterator[WordProblem]:
    """An endless stream of distinct problems of one split; the same arguments give the same stream.

    ``hop_shares[h-1]`` is the relative frequency of problems with h hops.
    """
    rng = random.Random(f"{split}/{seed}")
    seen: set[str] = set()
    while True:
        hops = rng.choices(range(1, len(hop_shares) + 1), weights=hop_shares)[0]
        problem = _draw(rng, hops, style)
        if problem.question not in seen and split_of(problem.question) == split:
            seen.add(problem.question)
            yield problem


def sums(rng: random.Random, hops: int, largest_operand: int) -> WordProblem:
    """A problem without its story: a start and ``hops`` operations."""
    start = rng.randint(LARGEST // 10, LARGEST * 9 // 10)
    return WordProblem("", start, _chain(rng, start, hops, (1, largest_operand)))


def _apply(value: int, operator: str, operand: int) -> int:
    return {"+": value + operand, "-": value - operand, "*": value * operand}[operator]


def _draw(rng: random.Random, hops: int, style: Style) -> WordProblem:
    name, other = rng.sample(NAMES, 2)
    things, others = rng.sample(THINGS, 2)
    words = {"name": name, "other": other, "things": things, "others": others}

    start = rng.randint(LARGEST // 5, LARGEST * 4 // 5)
    operations = _chain(rng, start, hops, style.operands)
    sentences = [rng.choice(OPENINGS).format(n=start, **words)]
    unseen = rng.sample(range(hops), min(hops, style.unseen_hops))
    for hop, (operator, operand) in enumerate(operations):
        wording = UNSEEN_HOPS if hop in unseen else HOPS
        sentences.append(rng.choice(wording[operator]).format(n=operand, **words))
    for _ in range(style.distractors):
        place = rng.randint(1, len(sentences))
        sentences.insert(place, rng.choice(DISTRACTORS).format(n=rng.randint(2, LARGEST), **words))
    sentences.append(rng.choice(CLOSINGS).format(**words))
    return WordProblem(" ".join(sentences), start, operations)


def _chain(rng: random.Random, start: int, hops: int, operands: tuple[int, int]) -> tuple[tuple[str, int], ...]:
    """``hops`` operations, one after another, from a start."""
    value, operations = start, []
    for _ in range(hops):
        operations.append(_operation(rng, value, operands))
        value = _apply(value, *operations[-1])
    return tuple(operations)


def _operation(rng: random.Random, value: int, operands: tuple[int, int]) -> tuple[str, int]:
    """An operation that keeps the running total in [1, LARGEST]; products are rarer than sums."""
    low, high = operands
    choices = []
    if value + low <= LARGEST:
        choices += ["+"] * 3
    if value - low >= 1:
        choices += ["-"] * 3
    if value * 2 <= LARGEST:
        choices.append("*")
    operator = rng.choice(choices)
    if operator == "+":
        return operator, rng.randint(low, min(LARGEST - value, high))
    if operator == "-":
        return operator, rng.randint(low, min(value - 1, high))
    return operator, rng.randint(2, min(LARGEST // value, 3))
