"""Symbolic answers: what can be judged at sight, and how the rest is put to Math-Verify."""

from __future__ import annotations

import re

from hyperes.grading.numeric import plain_number, same_number

MAX_LENGTH = 2_000  # characters of an expression handed to Math-Verify, whose patterns are not linear

_TEXT_UNIT = re.compile(r"(?<=[0-9}])[\s~]*\\(?:text|mbox|mathrm|textrm)\s?\{[^{}]*\}(?:\^\s?\{?[0-9]\}?)?")
_BASE = re.compile(r"[0-9A-Z]_\{?([0-9]{1,2})\}?\s*$")


def quick_verdict(answer: str, candidate: str) -> bool | None:
    r"""The verdict where Math-Verify is not needed, else None.

    Equal texts are equal. Two plain numbers (``10,\!080``, ``\$18.90``, ``28\%``, ``90^\circ``, ``15\mbox{ cm}^2``)
    compare as numbers. Two numerals of different stated bases differ (Math-Verify drops the base). Overlong candidates
    are wrong.
    """
    if len(candidate) > MAX_LENGTH:
        return False
    if "".join(candidate.split()) == "".join(answer.split()):
        return True
    gold_base, candidate_base = _BASE.search(answer), _BASE.search(candidate)
    if gold_base and candidate_base and gold_base[1] != candidate_base[1]:
        return False
    target, value = plain_number(_TEXT_UNIT.sub("", answer)), plain_number(_TEXT_UNIT.sub("", candidate))
    if target is None or value is None:
        return None
    return same_number(value, target)


def as_math(text: str) -> str:
    r"""``text`` as Math-Verify should read it: as it stands if it has its own dollars, else inside ``\boxed{}``."""
    return text if re.search(r"(?<!\\)\$", text) else rf"\boxed{{{text}}}"
