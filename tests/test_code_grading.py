"""Code is found where models put it, and the published solutions of both suites pass where another's do not."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import DATA, ROOT

from hyperes.errors import UserError
from hyperes.sandbox import PLACEHOLDER, extract_code, grade_code, grade_code_many, require_permission
from hyperes.sandbox.extraction import PARSED, find_code

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

ADD = "def add(a, b):\n    return a + b\n"
PROGRAM = f"import math\n\n{PLACEHOLDER}\n\nassert add(2, 3) == 5\nassert add(-1, 1) == 0\n"
HEADER = 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Sum of xs."""\n'
CONTINUED = f"{HEADER}{PLACEHOLDER}\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3\n\ncheck(total)\n"


def data_file(name: str) -> Path:
    if not (DATA / name).is_file():
        pytest.skip(f"no {name} in {DATA}: set HYPERES_DATA")
    return DATA / name


def humaneval() -> list[tuple[str, str]]:
    """(canonical solution, test program) of every problem."""
    with gzip.open(data_file("humaneval/HumanEval.jsonl.gz"), "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [
        (row["canonical_solution"], f"{row['prompt']}{PLACEHOLDER}\n{row['test']}\ncheck({row['entry_point']})\n")
        for row in rows
    ]


def mbpp() -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in data_file("mbpp/test.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        (f"```python\n{row['code']}\n```", "\n".join([PLACEHOLDER, row["test_setup_code"], *row["test_list"], ""]))
        for row in rows
    ]


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("suite", "size", "shared"), [(humaneval, 164, 0), (mbpp, 500, 0)])
def test_canonical_solutions_pass_and_their_neighbours_fail(
    suite: Callable[[], list[tuple[str, str]]], size: int, shared: int
) -> None:
    completions, programs = map(list, zip(*suite(), strict=True))
    assert len(programs) == size
    assert [i for i, verdict in enumerate(grade_code_many(completions, programs)) if not verdict.correct] == []
    neighbours = completions[1:] + completions[:1]
    verdicts = grade_code_many(neighbours, programs)
    assert sum(verdict.correct for verdict in verdicts) == shared


@pytest.mark.parametrize(
    ("completion", "rule", "code"),
    [
        (f"Here it is:\n```python\n{ADD}```\nIt adds.", "fence", ADD),
        (f"```\n{ADD}```", "fence", ADD),
        (f"~~~py\n{ADD}~~~", "fence", ADD),
        (f"```python\n{ADD}", "fence", ADD),  # cut before its end
        (f"```python\r\n{ADD}```".replace("\n", "\r\n"), "fence", ADD),
        (f"1. Define it:\n   ```python\n   {ADD.replace('    ', '       ')}   ```\n", "fence", ADD),
        (f"Draft:\n```python\ndef add(a, b): pass\n```\nBetter:\n```python\n{ADD}```\n", "fence", ADD),
        (f"```python\n{ADD}```\nExample:\n```python\nprint(add(1, 2))\n```\nOutput:\n```\n3\n```", "fence", ADD),
        (f"```python\n{ADD}```\nTests:\n```python\ndef test_it():\n    assert add(1, 2) == 3\n```", "fence", ADD),
        ("```python\nadd = lambda a, b: a + b\n```", "fence", "add = lambda a, b: a + b\n"),
        (f"```python\n{ADD}```\n```python\nx = add(1, 2)\n```", "fence", ADD),
        ("```python\n    return a + b\n```", "body", "    return a + b\n"),
        (ADD, "plain", ADD),
        (f"import math\n{ADD}", "plain", f"import math\n{ADD}"),
        (f"Sure, from what you say:\n\n{ADD}\nThis function adds its arguments.", "plain", f"{ADD}"),
        (f"{ADD}\ndef half(x):\n    return x /", "plain", ADD),  # cut in a line
        ("    return a + b\n\nprint(add(1, 2))\n", "body", "    return a + b\n"),
        ("    c = a + b\n    return c\n\nThis adds", "body", "    c = a + b\n    return c\n"),
        ("    total = 0\n    for x in (a, b\n", "body", "    total = 0"),
    ],
)
def test_code_is_found_where_models_put_it(completion: str, rule: str, code: str) -> None:
    found = find_code(completion, {"add"})
    assert found is not None
    assert found[0] == rule
    assert found[1].rstrip("\n") == code.rstrip("\n")


@pytest.mark.parametrize(
    "completion", ["", "The answer is 5.", "```\n5\n```", "    ", "def", "import it yourself", "`add`"]
)
def test_no_code_is_none(completion: str) -> None:
    assert extract_code(completion, {"add"}) is None


def test_a_helper_is_not_taken_for_the_answer() -> None:
    text = f"```python\n{ADD}```\nand a class to try it:\n```python\nclass Tester:\n    pass\n```"
    assert extract_code(text, {"add"}) == ADD
    assert extract_code(text) == "class Tester:\n    pass\n"


LONG = PARSED - 100


@pytest.mark.parametrize(
    "monster",
    ["-" * LONG, "1+" * (LONG // 2), "a[" * (LONG // 2), "f(" * (LONG // 2), "\0", "\\" * 99],
    ids=["unary", "binary", "index", "call", "null", "backslash"],
)
def test_what_breaks_a_parser_breaks_nothing_here(monster: str) -> None:
    for text in (ADD + f"x = {monster}1\n", f"    return {monster}1\n", monster):
        subprocess.run(
            [sys.executable, "-c", f"from hyperes.sandbox import extract_code; extract_code({text!r})"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )


@linux
def test_grading_says_what_was_taken_and_whether_it_is_right() -> None:
    fenced = f"```python\n{ADD}```"
    wrong = fenced.replace("+", "-")
    assert [(v.correct, v.rule) for v in grade_code_many([fenced, wrong, "no idea", ADD, wrong], [PROGRAM] * 5)] == [
        (True, "fence"),
        (False, "fence"),
        (False, None),
        (True, "plain"),
        (False, "fence"),
    ]
    assert grade_code(fenced, PROGRAM).extracted == ADD
    body = grade_code("    return sum(xs)\n\n\nprint(total([1]))", CONTINUED)
    assert (body.correct, body.rule) == (True, "body")
    assert grade_code("```python\ndef total(xs):\n    return sum(xs)\n```", CONTINUED).correct
    assert not grade_code("    pass", CONTINUED).correct


@linux
def test_hostile_completions_are_wrong() -> None:
    hostile = [
        "```python\nimport os\ndef add(a, b): os._exit(0)\n```",
        "```python\ndef add(a, b): raise SystemExit(0)\n```",
        "```python\ndef add(a, b): return 0\nexit(0)\n```",
        "```python\ndef add(a, b): return 0\nx = '''\n```",
        "```python\ndef add(a, b): return 0\nif 0:\\\n```",
        "```python\nimport os\ndef add(a, b):\n    while True: os.fork()\n```",
    ]
    assert not any(verdict.correct for verdict in grade_code_many(hostile, [PROGRAM] * len(hostile)))


@pytest.mark.parametrize(
    "program", ["assert add(1, 1) == 2\n", f"{PLACEHOLDER}\n{PLACEHOLDER}\n", f"x = 1  {PLACEHOLDER}\n"]
)
def test_a_program_without_its_one_place_for_the_code_is_refused(program: str) -> None:
    with pytest.raises(ValueError, match="exactly one line '# <completion>'"):
        grade_code(ADD, program)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        grade_code_many([ADD], [])


def test_running_generated_code_must_be_allowed() -> None:
    require_permission(False, [])
    require_permission(True, ["mbpp"])
    with pytest.raises(
        UserError, match=r"allow_code_execution=false: humaneval, mbpp run .* set test\.allow_code"
    ) as caught:
        require_permission(False, ["mbpp", "humaneval"])
    assert "\n" not in str(caught.value)
