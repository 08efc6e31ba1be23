"""Which judge a problem goes to: grading for answers, the sandbox for programs."""

from __future__ import annotations

from collections.abc import Sequence

from hyperes.grading import Verdict, grade_many
from hyperes.problems import Problem


def judge(completions: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
    """The verdict on each completion of the problem beside it. Raises ValueError if lengths differ."""
    rows = list(zip(completions, problems, strict=True))
    verdicts: dict[int, Verdict] = {}
    code = [row for row, (_, problem) in enumerate(rows) if problem.kind == "code"]
    if code:
        from hyperes.sandbox import grade_code_many

        programs = grade_code_many([rows[row][0] for row in code], [rows[row][1].answer for row in code])
        verdicts.update(zip(code, programs, strict=True))
    texts, answers, kinds, plain = [], [], [], []
    for row, (completion, problem) in enumerate(rows):
        if problem.kind != "code":
            texts.append(completion)
            answers.append(problem.answer)
            kinds.append(problem.kind)
            plain.append(row)
    verdicts.update(zip(plain, grade_many(texts, answers, kinds), strict=True))
    return [verdicts[row] for row in range(len(rows))]
