"""The identity of a stage's work: its recipe, and the key computed from it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyperes.files import digest


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a piece of work is made from, and nothing else: two equal recipes name the same work.

    ``version`` is raised by hand when the stage's meaning changes. ``slice`` is the part of the configuration the
    stage reads, typed by the schema (1 and 1.0 are different values). ``upstream`` maps the name of each input to its
    key. Both are copied, tuples becoming lists; treat them as read-only. Recipes compare by key.

    Raises TypeError or ValueError, naming the place, for anything that is not a plain JSON value.
    """

    stage: str
    version: int
    slice: Mapping[str, Any]
    upstream: Mapping[str, str]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", self.stage) or self.stage in ("fitness", "locks"):
            raise ValueError(f"stage {self.stage!r}: want lower-case letters and digits, not 'fitness' or 'locks'")
        if type(self.version) is not int:
            raise TypeError(f"version: want an int, not {self.version!r}")
        for name in ("slice", "upstream"):
            if type(mapping := getattr(self, name)) is not dict:
                raise TypeError(f"{name}: want a plain dict, not {type(mapping).__name__}")
            object.__setattr__(self, name, plain_json(mapping, name))
        for name, key in self.upstream.items():
            if type(key) is not str:
                raise TypeError(f"upstream.{name}: want a key (str), not {key!r}")

    @property
    def content(self) -> dict[str, Any]:
        """Exactly what the key is computed from."""
        return {"stage": self.stage, "version": self.version, "slice": self.slice, "upstream": self.upstream}

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the canonical JSON of ``content``."""
        return digest(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def plain_json(value: Any, where: str) -> Any:
    """A deep copy of a JSON value; exact types only, for numpy's float64 is a float and a str Enum is a str.

    Tuples become lists. Raises TypeError or ValueError, naming the place from ``where`` on.
    """
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} has no JSON form")
        return value
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where}: {value!r} is not valid Unicode ({error.reason})") from None
        return value
    if type(value) in (list, tuple):
        return [plain_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if type(value) is dict:
        for name in value:
            if type(name) is not str:
                raise TypeError(f"{where}: the key {name!r} is not a str")
        return {plain_json(name, where): plain_json(item, f"{where}.{name}") for name, item in value.items()}
    raise TypeError(f"{where}: {value!r} ({type(value).__name__}) is not a plain JSON value")
