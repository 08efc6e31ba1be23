"""The judge of code suites (HumanEval, MBPP): the code of a completion is put into a test program and run, walled in.

Model-written Python is hostile until shown otherwise. ``run`` lists the walls; ``jail.launch`` says how a pass is
proven and what that proof is worth: harm is prevented by the kernel, but tests in the program's own process can be
fooled by code that sets out to fool them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hyperes.errors import UserError
from hyperes.grading import Verdict
from hyperes.sandbox.extraction import extract_code, find_code, names_used
from hyperes.sandbox.run import LIMITS, Limits, Outcome, run_many, run_program

__all__ = [
    "PLACEHOLDER",
    "Limits",
    "Outcome",
    "extract_code",
    "grade_code",
    "grade_code_many",
    "require_permission",
    "run_many",
    "run_program",
]

PLACEHOLDER = "# <completion>"  # the line of a test program where the code goes


def grade_code(completion: str, program: str, limits: Limits = LIMITS) -> Verdict:
    """Put the completion's code in place of the program's line PLACEHOLDER and run it; right if every test passes.

    What stands before that line (imports, a function's header) belongs to the code; what follows are the tests.
    ``extracted`` is the code and ``rule`` that of ``extraction``. Raises ValueError unless the program has exactly one
    such line, and otherwise as ``run_program`` does.
    """
    return grade_code_many([completion], [program], limits)[0]


def grade_code_many(
    completions: Sequence[str], programs: Sequence[str], limits: Limits = LIMITS, workers: int | None = None
) -> list[Verdict]:
    """``grade_code`` for each row, in order, a few at a time. Raises ValueError if lengths differ."""
    found = []
    jobs = []
    for completion, program in zip(completions, programs, strict=True):
        before, tests = _split(program)
        code = find_code(completion, names_used(tests))
        found.append(code)
        if code:
            jobs.append((before + code[1] + "\n", tests))
    outcomes = iter(run_many(jobs, limits, workers))
    return [Verdict(next(outcomes).passed, code[1], code[0]) if code else Verdict(False, None, None) for code in found]


def require_permission(allowed: bool, suites: Collection[str]) -> None:
    """Refuse suites that run generated code unless ``test.allow_code_execution`` allows it; raises UserError."""
    if suites and not allowed:
        raise UserError(
            f"test.allow_code_execution=false: {', '.join(sorted(suites))} run Python that the model wrote; set "
            "test.allow_code_execution=true if this machine may do that (in a sandbox, which can have holes), "
            "or leave them out of test.suites"
        )


def _split(program: str) -> tuple[str, str]:
    lines = program.split("\n")
    places = [number for number, line in enumerate(lines) if line.rstrip() == PLACEHOLDER]
    if len(places) != 1:
        raise ValueError(f"a test program needs exactly one line {PLACEHOLDER!r}, not {len(places)}: {program[:80]!r}")
    before = "".join(line + "\n" for line in lines[: places[0]])
    return before, "\n".join(lines[places[0] + 1 :])
