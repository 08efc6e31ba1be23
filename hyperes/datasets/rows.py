"""Files and hub data sets as numbered rows, and what a row says once it is understood."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hyperes.config import SourceConfig
from hyperes.datasets.sources import is_local
from hyperes.errors import UserError, first_line
from hyperes.files import read_json, read_json_lines, read_text
from hyperes.grading import Kind
from hyperes.grading.numeric import plain_number

ProblemKind = Kind | Literal["code"]


@dataclass(frozen=True)
class Entry:
    """What one row of a data set says; see ``problems.Problem`` for the fields."""

    question: str
    answer: str  # empty where the publisher gives none
    kind: ProblemKind
    hops: int | None = None
    category: str | None = None


@dataclass(frozen=True)
class Row:
    """One row as read; ``where`` names its source and its line or row, for messages."""

    value: Any
    where: str
    number: int

    def error(self, message: str) -> UserError:
        return UserError(f"{self.where}: {message}")

    def has(self, name: str) -> bool:
        """Whether the row has the field, and more in it than nothing."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def text(self, *names: str) -> str:
        """The first of these fields that is there, without surrounding space; raises UserError for no or empty text."""
        found = next((self.value[name] for name in names if self.has(name)), None)
        if not isinstance(found, str) or not found.strip():
            wanted = " or ".join(f"'{name}'" for name in names)
            raise self.error(f"expected an object with a text in {wanted}")
        if not _is_unicode(found):
            raise self.error("the text is not valid Unicode (half of a surrogate pair)")
        return found.strip()

    def plain(self, value: Any) -> str:
        """An answer as text: 27.0 and "27.0" are "27"; raises UserError for what is neither number nor text."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = repr(value)
        if not isinstance(value, str):
            raise self.error(f"the answer {value!r} is neither a number nor a text")
        if not _is_unicode(value):
            raise self.error("the answer is not valid Unicode (half of a surrogate pair)")
        return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", value.strip())

    def number_in(self, value: Any) -> str:
        """``plain`` of one number; raises UserError for anything else."""
        text = self.plain(value)
        if plain_number(text) is None:
            raise self.error(f"the answer {text!r} is not a number")
        return text


def rows(source: SourceConfig) -> Iterator[Row]:
    """The rows of a file (by its ending) or of a hub data set, numbered from 1; JSON lines and text by their lines.

    ``.json`` may hold an array or lines; ``.txt`` gives its lines as they are; ``.gz`` is unpacked; any other file is
    read as JSON lines.
    """
    if not is_local(source.path):
        return _numbered(source.path, _hub(source))
    path = Path(source.path).expanduser()
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if ending == ".parquet":
        return _numbered(source.path, _parquet(path))
    if ending == ".txt":
        lines = enumerate(read_text(path).split("\n"), start=1)
        return _lines(source.path, ((number, line) for number, line in lines if line.strip()))
    if ending == ".json" and read_text(path).lstrip().startswith("["):
        return _numbered(source.path, read_json(path))
    return _lines(source.path, read_json_lines(path))


def _numbered(name: str, values: Iterable[Any]) -> Iterator[Row]:
    return (Row(value, f"{name}, row {number}", number) for number, value in enumerate(values, start=1))


def _lines(name: str, numbered: Iterable[tuple[int, Any]]) -> Iterator[Row]:
    return (Row(value, f"{name}, line {number}", number) for number, value in numbered)


def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file ({first_line(error)})") from None


def _hub(source: SourceConfig) -> Iterable[Any]:
    import datasets

    try:
        return datasets.load_dataset(source.path, source.name, split=source.split, revision=source.revision)
    except Exception as error:  # the hub client's errors are many; each means the same to the user
        raise UserError(
            f"{source.path}: cannot be had from the hub ({first_line(error)}); "
            "with files on disk set dataset.folder, and a suite is left out by ~dataset.suites.NAME"
        ) from error


def _is_unicode(text: str) -> bool:
    r"""JSON can spell half of a surrogate pair (\ud800), which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
