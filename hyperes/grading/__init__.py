"""The one judge: reward, fitness and test all call this module.

An answer is found by the paper's cascade (``extraction``) and compared either as an exact number (``numeric``) or as
an expression (``symbolic``), by Math-Verify in killable worker processes (``pool``, ``worker``) where need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hyperes.grading.extraction import extract_expression, extract_number
from hyperes.grading.numeric import plain_number, same_number
from hyperes.grading.symbolic import as_math, quick_verdict

__all__ = ["Kind", "Verdict", "grade", "grade_many"]

Kind = Literal["numeric", "symbolic"]


@dataclass(frozen=True)
class Verdict:
    """Whether a completion is right, what was taken for its answer, and the rule of the cascade that found it.

    ``rule`` is "hash", "boxed", "phrase" or "last"; both are None where nothing could be read.
    """

    correct: bool
    extracted: str | None
    rule: str | None


def grade(completion: str, answer: str, kind: Kind) -> Verdict:
    """Judge ``completion`` against the gold ``answer``.

    ``numeric`` (GSM8K, GSM-Hard, SVAMP, MultiArith) ignores units, currency and percent signs: 28% is 28, 2 million
    is 2, as the data sets count. ``symbolic`` (MATH, AMC) compares expressions. May be called from any thread.
    Raises ValueError for an empty answer, a numeric answer that is no number and an unknown kind, and RuntimeError if
    Math-Verify is needed and does not start.
    """
    return grade_many([completion], [answer], [kind])[0]


def grade_many(completions: Sequence[str], answers: Sequence[str], kinds: Sequence[Kind]) -> list[Verdict]:
    """``grade`` for each row, in order; the symbolic cases run in parallel. Raises ValueError if lengths differ."""
    verdicts: list[Verdict] = []
    pending: list[tuple[int, tuple[str, str]]] = []
    for completion, answer, kind in zip(completions, answers, kinds, strict=True):
        if not answer.strip():
            raise ValueError(f"the gold answer {answer!r} is empty")
        if kind == "numeric":
            verdicts.append(_grade_number(completion, answer))
        elif kind == "symbolic":
            found = extract_expression(completion)
            quick = quick_verdict(answer, found[1]) if found else False
            verdicts.append(Verdict(bool(quick), found[1] if found else None, found[0] if found else None))
            if found and quick is None:
                pending.append((len(verdicts) - 1, (as_math(answer), as_math(found[1]))))
        else:
            raise ValueError(f"kind {kind!r} is neither 'numeric' nor 'symbolic'")
    if pending:
        from hyperes.grading.pool import default_pool  # multiprocessing only where a case needs it

        results = default_pool().verify_many([pair for _, pair in pending])
        for (row, _), correct in zip(pending, results, strict=True):
            verdicts[row] = Verdict(correct, verdicts[row].extracted, verdicts[row].rule)
    return verdicts


def _grade_number(completion: str, answer: str) -> Verdict:
    target = plain_number(answer)
    if target is None:
        raise ValueError(f"the gold answer {answer[:80]!r} is not a number")
    found = extract_number(completion)
    if found is None:
        return Verdict(False, None, None)
    rule, reading = found
    return Verdict(reading.value is not None and same_number(reading.value, target), reading.text, rule)
