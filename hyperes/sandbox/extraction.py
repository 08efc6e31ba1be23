"""The code in a completion. Nothing is executed, and the program's own process decides whether it compiles.

The rule, in this order:

1. **fence** — the last fenced block (``` or ~~~, whatever its language; an unclosed one runs to the end) that defines
   (or, if none does, assigns) one of the names the tests use; else the last that defines any function or class.
2. **body** — where the last fenced block, or the text without a fence, starts indented, it continues the header that
   the program puts before it: its lines up to the first that is not indented.
3. **plain** — text without a fence: from the first line that starts a definition, decorator or import as far as it
   compiles. Prose after the code, or a cut last line, falls away.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Collection
from typing import Literal

Rule = Literal["fence", "body", "plain"]

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[`~]*(?!\w)[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_DEFINED = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_ASSIGNED = re.compile(r"^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_STARTS_CODE = re.compile(
    r"^(?:@\w|(?:async[ \t]+)?(?:def|class)[ \t]+\w|import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b)"
)
PARSED = 20_000  # characters: as long as a text may be to be parsed here; the parser's own stack is not bounded well


def extract_code(completion: str, asked: Collection[str] = ()) -> str | None:
    """The code by the rule above, None where there is none. ``asked`` are the names that the tests use."""
    found = find_code(completion, asked)
    return found[1] if found else None


def find_code(completion: str, asked: Collection[str] = ()) -> tuple[Rule, str] | None:
    """``extract_code`` with the name of the rule that found it."""
    text = completion.replace("\r\n", "\n")
    blocks = [match[2] for match in _FENCE.finditer(text)]
    if not blocks:
        body = _body(text)
        if body:
            return "body", body
        plain = _plain(text)
        return ("plain", plain) if plain else None
    codes = [textwrap.dedent(block) for block in blocks]
    wanted = set(asked)
    ranks = (
        lambda code: wanted & set(_DEFINED.findall(code)),
        lambda code: wanted & set(_ASSIGNED.findall(code)),
        _DEFINED.search,
    )
    for fits in ranks:
        for code in reversed(codes):
            if fits(code):
                return "fence", code
    body = _body(blocks[-1])
    return ("body", body) if body else None


def names_used(tests: str) -> set[str]:
    """The words of a test program that it does not define itself: among them what it asks of the code."""
    return set(re.findall(r"\w+", tests)) - {*_DEFINED.findall(tests), *_ASSIGNED.findall(tests)}


def _body(text: str) -> str | None:
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if not first[:1].isspace():
        return None
    body = []
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        body.append(line)
    header = "def header():"
    whole = _compiling([header, *body])
    return "\n".join(whole[1:]) if len(whole) > 1 else None


def _plain(text: str) -> str | None:
    lines = text.split("\n")
    start = next((number for number, line in enumerate(lines) if _STARTS_CODE.match(line)), None)
    if start is None:
        return None
    code = "\n".join(_compiling(lines[start:]))
    return code if _DEFINED.search(code) else None


def _compiling(lines: list[str]) -> list[str]:
    """The longest head of ``lines`` that the first syntax errors leave; all of them where they are too many."""
    if sum(len(line) + 1 for line in lines) > PARSED:
        return lines
    while lines:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an unknown escape in a string is not ours to mend
                ast.parse("\n".join(lines))
        except SyntaxError as error:
            lines = lines[: min(len(lines), error.lineno or len(lines)) - 1]
        except (ValueError, RecursionError, MemoryError):
            return lines
        else:
            return lines
    return []
