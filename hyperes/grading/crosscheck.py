"""A second judge for audits: Math-Verify's own reading of a numeric problem, the numeric judge's of a symbolic one."""

from __future__ import annotations

from collections.abc import Sequence

from hyperes.grading import grade_many
from hyperes.grading.numeric import plain_number
from hyperes.grading.pool import default_pool
from hyperes.grading.symbolic import MAX_LENGTH, as_math


def second_opinions(completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]) -> list[bool | None]:
    """Whether the other judge calls each completion right; None where it has nothing to say.

    Math-Verify reads the end of the completion by its own extraction, not by our cascade.
    """
    opinions: list[bool | None] = [None] * len(completions)
    numeric = [row for row, kind in enumerate(kinds) if kind == "numeric"]
    pairs = [(as_math(answers[row]), completions[row][-MAX_LENGTH:]) for row in numeric]
    for row, verdict in zip(numeric, default_pool().verify_many(pairs), strict=True):
        opinions[row] = verdict
    symbolic = [row for row, kind in enumerate(kinds) if kind == "symbolic" and plain_number(answers[row]) is not None]
    verdicts = grade_many([completions[row] for row in symbolic], [answers[row] for row in symbolic],
                          ["numeric"] * len(symbolic))  # fmt: skip
    for row, verdict_ in zip(symbolic, verdicts, strict=True):
        opinions[row] = verdict_.correct
    return opinions
