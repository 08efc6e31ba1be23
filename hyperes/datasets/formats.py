"""Which reader understands which format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hyperes.bundled import wordproblems
from hyperes.config import SourceConfig
from hyperes.datasets import code, competition, gsm
from hyperes.datasets.rows import Entry, Row, rows
from hyperes.datasets.sources import GENERATED
from hyperes.errors import UserError

READERS: dict[str, Callable[[Row], Entry]] = {
    "gsm8k": gsm.gsm8k,
    "gsm8k_aug": gsm.gsm8k_aug,
    "svamp": gsm.svamp,
    "multiarith": gsm.multiarith,
    "gsm_hard": gsm.gsm_hard,
    "math": competition.competition,
    "deepscaler": competition.competition,
    "amc23": competition.competition,
    "humaneval": code.humaneval,
    "mbpp": code.mbpp,
}


def entries(source: SourceConfig, split: str) -> Iterator[tuple[str, Entry]]:
    """(id, entry) of every row, lazily; ids name format, split and row and so do not depend on the path.

    Raises UserError naming the source and the line or row at fault.
    """
    if source.format == GENERATED:
        yield from _generated(source)
        return
    for row in rows(source):
        yield f"{source.format}/{split}/{row.number}", READERS[source.format](row)


def check(source: SourceConfig) -> None:
    """Raises UserError for a format that no reader understands, and for a limit below 1."""
    if source.format != GENERATED and source.format not in READERS:
        known = ", ".join([GENERATED, *READERS])
        raise UserError(f"format={source.format} of {source.path}: no such format; choose from {known}")
    if source.limit is not None and source.limit < 1:
        raise UserError(f"limit={source.limit} of {source.path}: must be above 0")


def _generated(source: SourceConfig) -> Iterator[tuple[str, Entry]]:
    style = wordproblems.SUITES.get(source.path)
    if style is None:
        raise UserError(f"generated path={source.path}: choose from {', '.join(wordproblems.SUITES)}")
    if source.limit is None:
        raise UserError(f"generated path={source.path}: the generator never ends; set limit")
    stream = wordproblems.problems(source.split, source.path, style, wordproblems.EQUAL_HOPS)
    for number, problem in enumerate(stream):
        entry = Entry(problem.question, str(problem.answer), "numeric", problem.hops)
        yield f"{source.path}/{source.split}/{number}", entry
