"""Programming: HumanEval and MBPP. The answer is a program; a completion is right if the program runs to its end.

In the program the single line ``PLACEHOLDER`` stands where the completion's code goes.
"""

from __future__ import annotations

from hyperes.datasets.rows import Entry, Row
from hyperes.sandbox import PLACEHOLDER


def humaneval(row: Row) -> Entry:
    """openai/human-eval: the header with its docstring is asked; ``check`` is the publisher's test.

    The whole prompt stands above the completion: its imports and helpers are needed by the tests, a completion that
    is only the body continues it, and one that is the whole function defines it anew.
    """
    prompt = row.text("prompt")
    name = row.text("entry_point")
    question = f"Complete this Python function.\n\n{prompt}"
    return Entry(question, _program(f"{prompt}\n", PLACEHOLDER, row.text("test"), f"check({name})"), "code")


def mbpp(row: Row) -> Entry:
    """google-research's MBPP with its authors' own prompt, without examples.

    ``test_setup_code`` stands after the completion: it may use the classes that the completion defines (task 367).
    """
    tests = row.value.get("test_list") if isinstance(row.value, dict) else None
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        raise row.error("expected an object with a list of texts in 'test_list'")
    setup = row.text("test_setup_code") if row.value.get("test_setup_code") else ""
    asserts = "\n".join(tests)
    question = (
        f"You are an expert Python programmer, and here is your task: {row.text('text')} "
        f"Your code should pass these tests:\n\n{asserts}"
    )
    return Entry(question, _program(PLACEHOLDER, setup, asserts), "code")


def _program(*parts: str) -> str:
    """The parts below each other, with Unix line ends."""
    return "\n".join(part for part in parts if part).replace("\r\n", "\n") + "\n"
