"""Where a source is (on the hub, in a file, or as a file in the user's folder), and what its identity is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperes.bundled import wordproblems
from hyperes.config import DatasetConfig, SourceConfig
from hyperes.errors import UserError
from hyperes.files import file_digest

GENERATED = "generated"  # the one format that is not read but computed


def is_local(path: str) -> bool:
    """Whether a path names a file: it has an ending, starts like a path, or is not OWNER/NAME."""
    return Path(path).suffix != "" or path.startswith((".", "/", "~")) or path.count("/") != 1


def locate(config: DatasetConfig, chosen: Sequence[str] | None) -> DatasetConfig:
    """The data set with every source where it will be read: ``dataset.folder`` applied, files known to be there.

    All suites that can be read are part of a run, chosen for its test or not: their questions are kept out of the
    training data, so that the validation set does not depend on what is tested. Only a file that is missing and whose
    suite is not in ``chosen`` (None: all are) is left out, with a warning. A hub data set is taken to be there.

    Raises UserError for any other missing file.
    """
    folder = config.folder
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise UserError(f"dataset.folder={folder}: no such folder")
    train = placed(config.train, folder)
    _check(train, "dataset.train", folder)
    suites: dict[str, SourceConfig] = {}
    for name, source in config.suites.items():
        found = placed(source, folder)
        if chosen is not None and name not in chosen and not _is_there(found):
            print(f"warning: {found.path}: no such data file; questions of {name} are not kept out of training")
            continue
        _check(found, f"dataset.suites.{name}", folder)
        suites[name] = found
    return replace(config, train=train, suites=suites)


def identity(source: SourceConfig) -> dict[str, Any]:
    """What the problems of a source depend on: a file's content and never its path, a hub data set's name.

    Raises UserError where the file is missing.
    """
    _check(source, "path", None)
    if source.format == GENERATED:
        content = f"wordproblems-{wordproblems.VERSION}/{source.path}"
    elif is_local(source.path):
        content = file_digest(Path(source.path).expanduser())
    else:
        content = f"hub:{source.path}/{source.name or 'default'}@{source.revision or 'main'}"
    return {"format": source.format, "content": content, "split": source.split, "limit": source.limit}


def placed(source: SourceConfig, folder: str | None) -> SourceConfig:
    """A hub source moved to its file in the folder; a file that was named outright stays."""
    if folder is None or source.file is None or source.format == GENERATED or is_local(source.path):
        return source
    return replace(source, path=str(Path(folder).expanduser() / source.file))


def _is_there(source: SourceConfig) -> bool:
    return source.format == GENERATED or not is_local(source.path) or Path(source.path).expanduser().is_file()


def _check(source: SourceConfig, key: str, folder: str | None) -> None:
    """Raises UserError where a file is missing, and where a folder would be taken for the hub data set of its name."""
    if source.format == GENERATED:
        return
    path = Path(source.path).expanduser()
    if not is_local(source.path) and path.exists():
        raise UserError(f"{source.path}: the hub client would read the folder of this name here; run in another folder")
    if not _is_there(source):
        hint = "give a file, or a hub id such as openai/gsm8k"
        if folder is not None:
            hint = f"put it there or name another by {key}.file"
            hint += "; or leave this suite out of test.suites" if "suites" in key else ""
        raise UserError(f"{source.path}: no such data file ({hint})")
