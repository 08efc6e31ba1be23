"""Files are published whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hyperes.errors import UserError, first_line

_TEMPORARY = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{16}\.tmp")


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, NaN and infinity refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        sha = hashlib.sha256()
        while block := stream.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Publish ``text`` as UTF-8 (see ``publishing``)."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Publish ``content`` (see ``publishing``)."""
    with publishing(path) as stream:
        stream.write(content)


@contextmanager
def publishing(path: Path) -> Iterator[BinaryIO]:
    """Write to a temporary neighbour, which at the end is flushed to disk and renamed onto ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # the token keeps apart two threads of one process, and two hosts whose process ids agree
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_torn(folder: Path) -> None:
    """Remove what ``publishing`` left under ``folder`` when it was killed; nobody may be writing there."""
    for path in folder.rglob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush every file and directory under ``folder`` to disk, so that a power cut after a rename loses nothing."""
    for parent, _, names in os.walk(folder, topdown=False):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and not path.is_symlink():
                _sync(path)
        sync_directory(Path(parent))


def sync_directory(folder: Path) -> None:
    """Flush a directory's own entries; a file system that cannot do so is passed over."""
    with suppress(OSError):
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Publish ``value`` as indented JSON (see ``write_text``)."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Publish one canonical JSON object per line (see ``write_text``)."""
    write_text(path, "".join(canonical_json(row) + "\n" for row in rows))


def append_json_line(path: Path, row: Any) -> None:
    """Append one line and flush it to disk: a killed writer leaves at most one torn last line."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(canonical_json(row) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def line_count(path: Path) -> int:
    """Whole lines of a file that may still be growing; 0 where there is none."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


_FULL = (errno.ENOSPC, errno.EDQUOT)


def says_full(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that the disk or the quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(f"(os error {number})" in str(error) for number in _FULL):  # safetensors and tokenizers: Rust's wording
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def read_text(path: Path) -> str:
    """The text of a file, unpacked if its name ends in ``.gz``; raises UserError where it is missing or not UTF-8."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                return stream.read()
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error})") from None


def _read_torn(path: Path) -> str:
    """The text of a file whose end may be cut off inside a character; raises as ``read_text``."""
    try:
        return read_text(path)
    except UserError:
        content = path.read_bytes()
        whole, newline, _ = content.rpartition(b"\n")
        try:
            return (whole + newline).decode()
        except UnicodeDecodeError:
            pass
        raise


def read_json(path: Path) -> Any:
    """Parse a JSON file; a missing or malformed one raises UserError naming file and line."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a whole number of thousands of digits
        raise UserError(f"{path}: not JSON that can be read ({first_line(error)})") from None


def read_json_lines(path: Path, *, torn_tail: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) of a JSON-lines file; blank lines are passed over.

    ``torn_tail=True`` forgives a last line without its newline that does not parse: the writer was
    killed inside it, perhaps inside a character. Any other malformed line raises UserError naming file and line.
    """
    lines = (_read_torn(path) if torn_tail else read_text(path)).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if torn_tail and number == len(lines):
                return
            raise UserError(f"{path}, line {number}: not valid JSON ({error.msg})") from None
        except (RecursionError, ValueError) as error:
            raise UserError(f"{path}, line {number}: not JSON that can be read ({first_line(error)})") from None
        yield number, value
