r"""Competition mathematics: MATH, MATH-500, DeepScaleR, AMC23. An expression answers each."""

from __future__ import annotations

import re

from hyperes.datasets.rows import Entry, Row

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def competition(row: Row) -> Entry:
    r"""A problem with its ``answer``, or with a ``solution`` whose last ``\boxed{…}`` is the answer.

    Of the category, whatever the publisher has: ``type`` (MATH), ``subject`` (MATH-500 on the hub), or the folder in
    ``unique_id`` (MATH-500 as a file); DeepScaleR and AMC23 have none. An answer that is null, empty or not boxed is
    one the publisher does not give: rllm's MATH file has four.
    """
    question = row.text("problem", "question")
    if not {"answer", "solution"} & row.value.keys():
        raise row.error("expected an object with 'answer' or 'solution'")
    answer = row.plain(row.value["answer"]) if row.has("answer") else ""
    if not answer and row.has("solution"):
        answer = last_box(row.text("solution"))
    return Entry(question, answer, "symbolic", category=_category(row))


def last_box(solution: str) -> str:
    r"""What the last ``\boxed{…}`` holds, inner braces and all; ``\boxed 5`` holds 5; empty without a box."""
    boxes = list(_BOX.finditer(solution))
    if not boxes:
        return ""
    start = boxes[-1].end()
    if not solution.startswith("{", start):
        return solution[start : start + 1]
    depth = 0
    for brace in _BRACE.finditer(solution, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return solution[start + 1 : brace.start()].strip()
    return ""


def _category(row: Row) -> str | None:
    for name in ("type", "subject"):
        if row.has(name):
            return row.text(name)
    parts = str(row.value.get("unique_id")).split("/")  # test/counting_and_probability/134.json
    return parts[1].replace("_and_", "_&_").replace("_", " ").title() if len(parts) == 3 else None
