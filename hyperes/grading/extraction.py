r"""Where a completion states its answer: the paper's cascade ``####``, ``\boxed{…}``, "the answer is", last number.

Within a rule the last readable statement wins. Only the last ``TAIL`` characters are searched (6,144 tokens, the
longest budget of the paper, are about 25,000), every pattern runs in linear time and the number of attempts is
bounded, so that no text however hostile takes long. Models also write ``####`` as a Markdown heading ("#### Step 3"):
only a number that follows at once is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hyperes.grading.numeric import MAX_SEGMENT, Reading, number_at_start, running_numbers, undress

TAIL = 32_768
ATTEMPTS = 32  # statements tried per rule, from the last backwards
LAST_LINE = 1_000  # characters of a line, back from its last digit, in which the last number is looked for
MAX_BOX = 2_048  # characters of a box that are kept: more than are ever compared

Candidate = tuple[str, Reading]  # (rule, what it read)

_LEAD_IN = re.compile(
    r"(?:[\s:=≈~*_>\"'“‘(\[{<#]|(?:the|so|final|correct|numerical|answer|is|are|be|approximately|about|around|exactly)\b)*",
    re.IGNORECASE,
)
_LEAD_IN_WORDS = re.compile(r"\**(?:the\s+)?(?:final\s+)?answer\b\**(?:\s+is\b|\s*:)?\**\s*", re.IGNORECASE)
_ENUMERATOR = re.compile(r"\s*\**(?:[1-9]|1[0-2])[.)]\**\s+[A-Za-z*$\\]")
_WORDY = re.compile(r"[A-Za-z]{2}")
_BRACES = re.compile(r"\\boxed\s{0,3}\{|\\.|[{}]", re.DOTALL)
_PHRASE = re.compile(r"\b(?:answer|final result)\b(?:\W{0,3}[:=]|[^.:=\n]{0,80}?\b(?:is|be|equals)\b)", re.IGNORECASE)
_HEADING = re.compile(
    r"(?:step|part|case|explanation|solution|conclusion|verification|check|given|note|method|[0-9]{1,2}[.)]\s+[A-Za-z])"
    r"(?![A-Za-z]{2})|.*:\**\s*$",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_MATH_LIST = re.compile(r"\$(?:[^$\\\n]|\\.){1,400}\$(?:\s?(?:,|,?\s?and|,?\s?or)\s?\$(?:[^$\\\n]|\\.){1,400}\$){0,8}")
_MATH = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.){1,400})\$", re.DOTALL)


def extract_number(completion: str) -> Candidate | None:
    """The number that ``completion`` gives as its answer, and the rule (hash, boxed, phrase, last) that found it."""
    text = completion[-TAIL:]
    for segment in _after_hashes(text):
        reading = _stated_number(segment) if not _ENUMERATOR.match(segment) else None
        if reading:
            return "hash", reading
    if "\\boxed" in text:
        boxes, text = _boxes(text)
        for segment in boxes:
            reading = _boxed_number(segment)
            if reading:
                return "boxed", reading
    for segment in _after_phrases(text):
        reading = _stated_number(segment)
        if reading:
            return "phrase", reading
    for line in _lines_with_digits(text):
        readings = running_numbers(undress(line))
        if readings:
            return "last", readings[-1]
    return None


def extract_expression(completion: str) -> tuple[str, str] | None:
    """The mathematical expression that ``completion`` gives as its answer, as (rule, LaTeX or text)."""
    text = re.sub(r"\\[()\[\]]", "$", completion[-TAIL:]).replace("$$", "$")
    for segment in _after_hashes(text):
        line = _LEAD_IN_WORDS.sub("", segment.strip(), count=1).partition("\n")[0].strip()
        if line and not _HEADING.match(line):
            return "hash", _bare(line)
    if "\\boxed" in text:
        boxes, text = _boxes(text)
        for segment in boxes:
            if segment.strip():
                return "boxed", _bare(segment)
    for segment in _after_phrases(text):
        segment = segment.lstrip(" *:\n")
        math = _MATH_LIST.match(segment)
        sentence = math.group() if math else _SENTENCE_END.split(segment, maxsplit=1)[0]
        if sentence.strip(" *$."):
            return "phrase", _bare(sentence)
    return _last_expression(text)


def _stated_number(segment: str) -> Reading | None:
    """The number right at the start of a statement, or right after the last ``=`` of an equation without words."""
    text = undress(segment)
    text = text[_LEAD_IN.match(text).end() :]  # type: ignore[union-attr]  # the pattern matches the empty string
    line = text.partition("\n")[0]
    left, equals, right = line.rpartition("=")
    if equals and _is_left_side(left):
        return number_at_start(right.strip())
    return number_at_start(text)


def _is_left_side(text: str) -> bool:
    """Whether what stands before ``=`` is computed ("3 + 4", "x", "20% of 90"), not a remark: "18, where x"."""
    reading = number_at_start(text)
    if reading and reading.value is not None:
        return not any(mark in text for mark in ("(", ", ", ";", ". ", ":"))
    return not _WORDY.search(text.replace("\\frac", ""))


def _boxed_number(segment: str) -> Reading | None:
    """The number of a box: stated, or the only one among words; digits that are no single number read as no value."""
    reading = _stated_number(segment)
    if reading or not any("0" <= character <= "9" for character in segment):
        return reading
    text = undress(segment)
    numbers = running_numbers(text)
    alone = len(numbers) == 1 and not any(character in text for character in "\\^_=+*/×")
    return numbers[0] if alone else Reading(segment.strip(), None)


def _after_hashes(text: str) -> Iterator[str]:
    end = len(text)
    for _ in range(ATTEMPTS):
        end = text.rfind("####", 0, end)
        if end < 0:
            return
        yield text[end + 4 : end + 4 + MAX_SEGMENT]


def _after_phrases(text: str) -> Iterator[str]:
    for match in reversed(list(_PHRASE.finditer(text))[-ATTEMPTS:]):
        yield text[match.end() : match.end() + MAX_SEGMENT]


def _boxes(text: str) -> tuple[list[str], str]:
    r"""Contents of the closed ``\boxed{…}``, last first, and the text without a box that the token limit cut off.

    The 12 of a final, unclosed ``\boxed{12`` may have been meant as 120: nobody may read it as the last number.
    """
    opened: list[tuple[bool, int, int]] = []
    closed: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        token = match.group()
        if token == "}":
            if opened:
                boxed, _, start = opened.pop()
                if boxed:
                    closed.append((start, match.start()))
        elif token[-1] == "{" and token != r"\{":
            opened.append((token != "{", match.start(), match.end()))
    contents = [text[start : min(end, start + MAX_BOX)] for start, end in reversed(closed[-ATTEMPTS:])]
    for boxed, start, _ in opened:
        if boxed and "\n" not in text[start:].rstrip():
            return contents, text[:start]
    return contents, text


def _lines_with_digits(text: str) -> Iterator[str]:
    """The lines that hold a digit, last first."""
    end = len(text)
    for _ in range(ATTEMPTS):
        digit = max(text.rfind(character, 0, end) for character in "0123456789")
        if digit < 0:
            return
        start = text.rfind("\n", 0, digit) + 1
        yield text[max(start, digit - LAST_LINE) : digit + MAX_SEGMENT].partition("\n")[0]
        end = start


def _bare(text: str) -> str:
    """``text`` without surrounding Markdown, one pair of dollars, or the full stop of its sentence."""
    text = text.strip().strip("*").strip()
    if text.endswith(".") and not text.endswith("\\."):
        text = text[:-1].strip()
    if text.startswith("$") and text.endswith("$") and text.count("$") == 2:
        text = text[1:-1].strip()
    boxes, _ = _boxes(text) if text.startswith("\\boxed") else ([], text)
    return boxes[0].strip() if boxes else text


def _last_expression(text: str) -> tuple[str, str] | None:
    maths = list(_MATH.finditer(text))
    after = text[maths[-1].end() :] if maths else text
    for line in _lines_with_digits(after):
        readings = running_numbers(undress(line))
        if readings:
            return "last", readings[-1].text
    return ("last", maths[-1].group(1).strip()) if maths else None
