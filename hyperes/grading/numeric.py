"""Reading and comparing numbers as models and data sets write them, exactly and in linear time.

The paper (appendix B, reward function) strips commas and casts whole floats to integers before comparing. Here every
number becomes an exact ``int`` or ``Fraction``, for which 18 and 18.0 are the same value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

RELATIVE_TOLERANCE = Fraction(1, 10**6)
EXACT_BELOW = 2**53  # whole targets beyond this may already be rounded: data sets carry them as doubles
MAX_DIGITS = 350  # a double has at most 309 digits before the point; Python itself refuses 4,300
MAX_EXPONENT = 400
MAX_SEGMENT = 400  # characters of an answer that are ever read as a number

Value = int | Fraction

_GROUP = "\u2009"  # every thin or unbreakable space, and LaTeX's \, : a thousands separator when inside digits
_CHARACTERS = str.maketrans(
    {"−": "-", "－": "-", "\u00a0": _GROUP, "\u202f": _GROUP, "，": ",", "`": " ", "∗": "*", "·": "×", "⋅": "×"}
)
_COMMANDS = {
    r"\times": "×", r"\cdot": "×", r"\div": "÷", r"\approx": "≈", r"\sim": "~", r"\dfrac": r"\frac",
    r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\frac": r"\frac", r"\left": "", r"\right": "", r"\quad": " ",
    r"\qquad": " ", r"\displaystyle": "", r"\pounds": "£", r"\euro": "€", r"\degree": "°", r"\percent": "%",
    r"\$": "$", r"\%": "%", r"\,": _GROUP, r"\;": " ", r"\:": " ", r"\ ": " ", r"\(": " ", r"\)": " ", r"\[": " ",
    r"\]": " ", r"\\": " ",
}  # fmt: skip
_COMMAND = re.compile(r"\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))|\\!\s*|\\[A-Za-z]+|\\.", re.DOTALL)
_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|boxed|fbox|boldsymbol|operatorname)\s?\{([^{}]*)\}"
)
_POWER_STARS = re.compile(r"(?<=[0-9])\s?\*\*\s?(?=[0-9])")

# "$118 000", "118 000": plain spaces separate thousands after a currency sign, or where a group is 000.
_SPACED_THOUSANDS = re.compile(
    r"(?<=[$€£])[0-9]{1,3}(?: [0-9]{3})+(?![0-9])|(?<![0-9A-Za-z.,])[1-9][0-9]{0,2}(?: 000)+(?![0-9])"
)

_INTEGER = rf"[0-9]+(?:[,{_GROUP}][0-9]+)*"
_NUMBER_BODY = rf"""
    (?:
        (?:(?P<whole>[0-9]+)\s*)?\\frac\s?(?:\{{\s?(?P<top_sign>-?)(?P<top>[0-9]+)\s?\}}|(?P<top1>[0-9]))\s?
            (?:\{{\s?(?P<bottom>[0-9]+)\s?\}}|(?P<bottom1>[0-9]))
      | (?P<mixed>[0-9]+)[ ]+(?P<over>[0-9]+)[ ]?/[ ]?(?P<under>[0-9]+)
      | 10\s?\^\s?(?:\{{\s?(?P<power>-?[0-9]+)\s?\}}|(?P<power1>-?[0-9]+))
      | (?P<decimal>{_INTEGER}(?:\.[0-9]+)?|\.[0-9]+)
        (?: [eE](?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])
          | [ ]?[×*x][ ]?10[ ]?\^[ ]?(?:\{{\s?(?P<ten>-?[0-9]+)\s?\}}|(?P<ten1>-?[0-9]+))
          | [ ]?/[ ]?(?P<denominator>{_INTEGER})
        )?
    )"""
_CURRENCY = r"[$€£¥₹]"
# At the start of an answer a sign may stand apart ("- 18"); in running text that is a list bullet or a subtraction.
_LEADING = re.compile(rf"(?P<sign>[-+]?)\s?{_CURRENCY}{{0,3}}\s?(?P<sign2>[-+]?){_NUMBER_BODY}", re.VERBOSE)
_RUNNING = re.compile(
    rf"(?:(?<![0-9A-Za-z)}}.,°%])(?P<sign>[-+]))?{_CURRENCY}?(?:(?<![0-9A-Za-z)}}.,°%])(?P<sign2>[-+]))?"
    rf"(?<![0-9A-Za-z_.,]){_NUMBER_BODY}",
    re.VERBOSE,
)
_WESTERN = re.compile(rf"[0-9]{{1,3}}(?:[,{_GROUP}][0-9]{{3}})+")
_INDIAN = re.compile(r"[0-9]{1,2}(?:,[0-9]{2})*,[0-9]{3}")
_SPACED = re.compile(r"(?P<sign>[-+]?)[$€£¥₹]?(?P<digits>[0-9]{1,3}(?: [0-9]{3})+)[\s.$]*")
_PLAIN_END = re.compile(rf"[\s.$°%{_GROUP}]*")
# What may not follow a number that claims to be the answer: more arithmetic, a list, a range, a ratio, a clock time,
# a variable or an unknown LaTeX command. Guessing the first of several numbers would reward hedging.
_CONTINUES = re.compile(
    r"\s*[$}\])]*\s*(?:"
    r"(?:[-+*×÷^/=:,;&±–]|x(?=\s?[0-9])|(?:or|and|to)(?![A-Za-z]))\s*[$€£¥₹({[]*\s?[-+]?[$]?(?:[0-9.]*[0-9]|\\[A-Za-z])"
    r"|\\[A-Za-z{]|\^|_)|\s+[-+]?[0-9]|[xyznk](?![A-Za-z])|\([0-9]|[.,][0-9]"
)
_HEDGES = re.compile(r"(?<![A-Za-z])or\s+[$€£¥₹]?[-+]?[0-9]")


@dataclass(frozen=True)
class Reading:
    """A number found in a text: ``text`` as it stood; ``value`` None when it is no single well-formed number."""

    text: str
    value: Value | None


def undress(text: str) -> str:
    r"""``text`` without its dressing: ``\text{…}``, ``\,``, ``\$``, ``{,}``, ``**…**``, the Unicode minus."""
    text = text.translate(_CHARACTERS)
    if "\\" in text:
        text = _COMMAND.sub(_replace_command, text)
        for _ in range(4):  # \boxed{\textbf{\text{18}}}: one level a pass, deeper nests stay dressed
            text, count = _WRAPPED.subn(r" \1 ", text)
            if not count:
                break
    if "{,}" in text:
        text = text.replace("{,}", ",")
    if "**" in text:
        text = _POWER_STARS.sub("^", text).replace("**", " ")
    return _SPACED_THOUSANDS.sub(lambda match: match.group().replace(" ", ","), text)


def _replace_command(match: re.Match[str]) -> str:
    command = match.group()
    if command[0] == "^":
        return "°"
    if command.startswith(r"\!"):
        return ""
    return _COMMANDS.get(command, command)


def number_at_start(text: str) -> Reading | None:
    """The number that an undressed ``text`` starts with; None without one, ``value`` None when it goes on as more."""
    spaced = _SPACED.fullmatch(text)
    if spaced:  # "1 234" with plain spaces is one number only where nothing else stands beside it
        return _bounded(spaced["sign"] + spaced["digits"], int(spaced["digits"].replace(" ", "")[:MAX_DIGITS]))
    match = _LEADING.match(text)
    if match is None:
        return None
    line = text[match.end() :].partition("\n")[0]
    if _CONTINUES.match(text, match.end()) or _HEDGES.search(line):
        return Reading(text.strip(), None)
    return Reading(match.group().strip(), _value(match))


def _bounded(text: str, magnitude: int) -> Reading:
    return Reading(text, -magnitude if text.startswith("-") else magnitude)


def running_numbers(text: str) -> list[Reading]:
    """Every number in an undressed running text, in order."""
    return [Reading(match.group().strip(), _value(match)) for match in _RUNNING.finditer(text)]


@lru_cache(maxsize=1 << 16)
def plain_number(text: str) -> Value | None:
    """The value of a text that is one number and nothing more (currency, percent and degree signs aside), or None."""
    if len(text) > MAX_SEGMENT:
        return None
    text = undress(text).strip()
    spaced = _SPACED.fullmatch(text)
    if spaced:
        return _bounded(spaced["sign"], int(spaced["digits"].replace(" ", ""))).value
    match = _LEADING.match(text.lstrip("$ "))
    if match is None or not _PLAIN_END.fullmatch(match.string, match.end()):
        return None
    return _value(match)


def same_number(value: Value, target: Value) -> bool:
    """Whether ``value`` answers ``target``.

    Whole targets below 2⁵³ must be met exactly. Others (GSM-Hard's 388147.4117647059) reach us as rounded decimals or
    doubles, so that |value - target| ≤ 10⁻⁶·|target| counts as equal.
    """
    if value == target:
        return True
    goal = Fraction(target)
    if goal.denominator == 1 and abs(goal) < EXACT_BELOW:
        return False
    return abs(value - goal) <= RELATIVE_TOLERANCE * abs(goal)


def _value(match: re.Match[str]) -> Value | None:
    """The exact value of a number match; None if malformed (``12,34``), over the caps, or divided by zero."""
    if match.end() - match.start() > MAX_DIGITS:
        return None
    part = match.groupdict()
    if part["decimal"]:
        magnitude = _decimal(part["decimal"])
        exponent = part["exponent"] or part["ten"] or part["ten1"]
        if magnitude is not None and exponent:
            magnitude = _scaled(magnitude, exponent)
        if magnitude is not None and part["denominator"]:
            magnitude = _ratio(magnitude, _decimal(part["denominator"]))
    elif part["power"] or part["power1"]:
        magnitude = _scaled(1, part["power"] or part["power1"])
    elif part["mixed"]:
        magnitude = _ratio(int(part["over"]), int(part["under"]), int(part["mixed"]))
    else:
        top = int(part["top"] or part["top1"])
        if part["top_sign"]:
            if part["whole"]:
                return None
            top = -top
        magnitude = _ratio(top, int(part["bottom"] or part["bottom1"]), int(part["whole"] or 0))
    if magnitude is None:
        return None
    return -magnitude if (part["sign"] == "-") != (part["sign2"] == "-") else magnitude


def _decimal(text: str) -> Value | None:
    if text.isdigit():
        return int(text)
    whole, _, digits = text.partition(".")
    if not whole.isdigit() and whole:
        if not (_WESTERN.fullmatch(whole) or _INDIAN.fullmatch(whole)):
            return None  # "3,5": a list or a decimal comma, never 35 or 5
        whole = whole.replace(",", "").replace(_GROUP, "")
    if not digits.strip("0"):
        return int(whole or 0)
    return Fraction(int(whole + digits), 10 ** len(digits))


def _scaled(magnitude: Value, exponent: str) -> Value | None:
    if len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    power = int(exponent)
    return magnitude * 10**power if power >= 0 else Fraction(magnitude, 10**-power)


def _ratio(top: Value, bottom: Value | None, whole: int = 0) -> Value | None:
    return whole + Fraction(top) / bottom if bottom else None
