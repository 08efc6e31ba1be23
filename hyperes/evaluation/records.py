"""What happened on every problem of an evaluation, as a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from hyperes.errors import UserError, first_line
from hyperes.files import write_bytes

RECORDS = "records.parquet"  # the file's name in an artifact


@dataclass(frozen=True)
class Record:
    """One completion of one problem, with all that it takes to judge it again."""

    problem: str  # its id
    sample: int  # from 0
    question: str
    answer: str  # the gold answer
    kind: str  # how grading compares
    completion: str
    extracted: str | None  # what was taken for the answer
    rule: str | None  # of the cascade that found it
    correct: bool
    tokens: int
    truncated: bool  # by the token limit
    seed: int | None  # key of the completion's randomness; None where decoding is greedy


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Publish records in their order."""
    import pyarrow
    from pyarrow import parquet

    text, number, flag = pyarrow.string(), pyarrow.int64(), pyarrow.bool_()
    types = {"str": text, "str | None": text, "int": number, "int | None": number, "bool": flag}
    schema = pyarrow.schema([(field.name, types[str(field.type)]) for field in fields(Record)])
    table = pyarrow.Table.from_pylist([asdict(record) for record in records], schema=schema)
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(table, buffer, compression="zstd")
    write_bytes(path, buffer.getvalue().to_pybytes())


def read_records(path: Path) -> list[Record]:
    """Records in their order; raises UserError for a missing or damaged file."""
    import pyarrow
    from pyarrow import parquet

    try:
        return [Record(**row) for row in parquet.read_table(path).to_pylist()]
    except (OSError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a file of evaluation records ({first_line(error)})") from None
