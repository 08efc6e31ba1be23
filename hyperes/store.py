"""Finished work, found again by what it was made from.

A stage's work is named by its ``Recipe``. The store builds each recipe once, under a lock, in a work folder that
a killed build resumes in, and publishes it whole::

    ROOT/store.json                       the store's format
    ROOT/STAGE/KEY/recipe.json            a published artifact, beside its files (KEY: the key's first 24 digits);
                                          it records their sizes
    ROOT/STAGE/KEY.work/                  an artifact in the making
    ROOT/STAGE/KEY/workspace.json         a workspace: growing, never published
    ROOT/fitness/CONTEXT/KE/KEY.json      one remembered value
    ROOT/locks/STAGE-KEY.lock             left in place; what counts is the flock on it, which dies with its process
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hyperes.errors import UserError
from hyperes.files import digest, read_json, remove_torn, says_full, sync_directory, sync_folder, write_json
from hyperes.provenance import provenance
from hyperes.recipe import Recipe, plain_json

__all__ = ["Artifact", "Recipe", "Store"]

FORMAT = 1
SHORT = 24  # hex digits of a key in a path; the full key is in the file
RECIPE, WORKSPACE = "recipe.json", "workspace.json"
OnWait = Callable[[str], None]


@dataclass(frozen=True)
class Artifact:
    """Published work: the files under ``path`` are complete and never change."""

    recipe: Recipe
    path: Path

    @property
    def key(self) -> str:
        return self.recipe.key


class Store:
    """A folder of artifacts, workspaces and remembered values, shared by processes, threads and hosts.

    Raises UserError when ``root`` is not a folder that can be written and locked, or is of a newer format.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root).expanduser().absolute()
        with self._full_disk_reported():
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                if not (self.root / "store.json").exists():
                    write_json(self.root / "store.json", {"format": FORMAT})
                _check_format(self.root / "store.json")
                (self.root / "locks").mkdir(exist_ok=True)
                # Lustre mounted without -o flock: filelock would fall back to locks that outlive a killed process
                with (self.root / "locks" / "opening.lock").open("a") as probe:
                    fcntl.flock(probe, fcntl.LOCK_SH)
            except (FileExistsError, NotADirectoryError):
                raise UserError(f"{self.root}: the store must be a folder, but a file is in the way") from None
            except OSError as error:
                if says_full(error):
                    raise
                raise UserError(
                    f"{self.root}: cannot hold a store ({error}); choose a folder that can be written and locked"
                ) from None

    def folder(self, recipe: Recipe) -> Path:
        """Where a recipe's artifact or workspace lies, whether or not it is there."""
        return self.root / recipe.stage / recipe.key[:SHORT]

    def work(self, recipe: Recipe) -> Path:
        """Where a recipe's artifact is made."""
        folder = self.folder(recipe)
        return folder.with_name(f"{folder.name}.work")

    def find(self, recipe: Recipe) -> Artifact | None:
        """The published artifact, or None. Raises UserError when its recipe.json or the size of a file is damaged."""
        folder = self.folder(recipe)
        if not (folder / RECIPE).exists():
            return None
        _verify(folder / RECIPE, recipe)
        return Artifact(recipe, folder)

    def build(self, recipe: Recipe, builder: Callable[[Path], None], on_wait: OnWait | None = None) -> Artifact:
        """The published artifact; if there is none yet, ``builder(work)`` makes it in the folder ``work``.

        ``work`` holds what an earlier, killed or failed build left there: a builder resumes from it. ``recipe.json``
        is the store's own name and no builder's. While another process or thread builds the same recipe, this call
        waits for it, after one ``on_wait(message)``, and returns its artifact.

        What the builder raises passes through and the work folder stays. Raises UserError when the disk is full.
        """
        if artifact := self.find(recipe):
            return artifact
        with self._full_disk_reported(), self._locked(recipe, on_wait):
            if artifact := self.find(recipe):
                return artifact
            folder = self.folder(recipe)
            if folder.exists():
                raise UserError(f"{folder}: no finished artifact, it has no {RECIPE}; delete that folder and try again")
            work = self.work(recipe)
            resumed = work.exists()
            work.mkdir(parents=True, exist_ok=True)
            remove_torn(work)
            if (work / RECIPE).exists():  # killed just before the rename: all is done
                _verify(work / RECIPE, recipe)
            else:
                _build(recipe, builder, work, resumed)
            os.replace(work, folder)
            sync_directory(folder.parent)
            return Artifact(recipe, folder)

    @contextmanager
    def workspace(self, recipe: Recipe, on_wait: OnWait | None = None) -> Iterator[Path]:
        """A folder that grows, held under its lock: for what several recipes share, as a training trajectory.

        It is never published; its ``workspace.json`` says what it belongs to. Waits like ``build``.
        Raises UserError when the disk is full or workspace.json is damaged.
        """
        with self._full_disk_reported(), self._locked(recipe, on_wait):
            folder = self.folder(recipe)
            if (folder / RECIPE).exists():
                raise ValueError(f"{folder}: a published artifact cannot be a workspace too")
            folder.mkdir(parents=True, exist_ok=True)
            remove_torn(folder)
            if (folder / WORKSPACE).exists():
                _verify(folder / WORKSPACE, recipe)
            else:
                write_json(folder / WORKSPACE, {"key": recipe.key, "recipe": recipe.content})
            yield folder

    def remember(self, context: str, key: str, value: Any) -> None:
        """Keep a small JSON value, not None, for ``recall``; writing the same value twice is harmless.

        Raises TypeError or ValueError for a value that is not plain JSON, UserError when the disk is full.
        """
        record = {"context": context, "key": key, "value": plain_json(value, "value")}
        with self._full_disk_reported():
            write_json(self._value_path(context, key), {**record, "sha256": digest(record)})

    def recall(self, context: str, key: str) -> Any | None:
        """The remembered value (tuples come back as lists), or None: a damaged file counts as never written."""
        path = self._value_path(context, key)
        try:
            record = read_json(path)
            sha = record.pop("sha256")
            sound = sha == digest(record) and (record["context"], record["key"]) == (context, key)
        except (UserError, AttributeError, KeyError, TypeError, ValueError):
            return None
        return record["value"] if sound else None

    def _value_path(self, context: str, key: str) -> Path:
        for name in (context, key):
            if not re.fullmatch(r"[0-9A-Za-z_-]+", name):
                raise ValueError(f"{name!r}: want a digest, or a name of letters, digits, '_' and '-'")
        return self.root / "fitness" / context[:SHORT] / key[:2] / f"{key[:SHORT]}.json"

    @contextmanager
    def _locked(self, recipe: Recipe, on_wait: OnWait | None) -> Iterator[None]:
        # a FileLock of its own for every call: two threads then exclude each other as two processes do
        short = recipe.key[:SHORT]
        lock = FileLock(self.root / "locks" / f"{recipe.stage}-{short}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if on_wait is not None:
                on_wait(f"waiting for another process that builds {recipe.stage} {short}...")
            lock.acquire(poll_interval=0.2)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _full_disk_reported(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if not says_full(error) and not self._is_full():
                raise
            raise UserError(
                f"the disk that holds {self.root} is full; "
                "nothing was lost, free some space and run the same command again"
            ) from error

    def _is_full(self) -> bool:
        """Whether a small write fails for want of space: torch.save and numpy do not say why they failed."""
        try:
            with tempfile.TemporaryFile(dir=self.root, buffering=0) as probe:
                probe.write(bytes(1 << 16))
                os.fsync(probe.fileno())
        except OSError as error:
            return says_full(error)
        return False


def _build(recipe: Recipe, builder: Callable[[Path], None], work: Path, resumed: bool) -> None:
    """Run the builder, flush its files to disk, and write recipe.json last."""
    started = time.monotonic()
    builder(work)
    if (work / RECIPE).exists():
        raise ValueError(f"{work / RECIPE}: this name is the store's own; the builder must use another")
    seconds = round(time.monotonic() - started, 3)
    sync_folder(work)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"key": recipe.key, "recipe": recipe.content, "created": created, "host": platform.node()}
    # seconds are the last attempt's; ``resumed`` says whether there were earlier ones
    files = sorted(path for path in work.rglob("*") if path.is_file())
    sizes = {path.relative_to(work).as_posix(): path.stat().st_size for path in files}
    write_json(work / RECIPE, {**record, "seconds": seconds, "resumed": resumed, **provenance(), "files": sizes})
    sync_directory(work)


def _verify(path: Path, recipe: Recipe) -> None:
    """Raise UserError unless the file records this very recipe, and the files beside it have the sizes it tells.

    A file that was cut short may still read well.
    """
    advice = f"delete the folder {path.parent} and run the same command again"
    try:
        record = read_json(path)
        sound = record["key"] == recipe.key == digest(record["recipe"])
        sizes = dict(record.get("files", {}))  # a workspace, and an artifact of an earlier hyperes, tells none
    except UserError as error:
        raise UserError(f"{error}; {advice}") from None
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UserError(f"{path}: damaged, it does not record {recipe.stage} {recipe.key[:SHORT]}; {advice}")
    for file, size in ((path.parent / name, size) for name, size in sizes.items()):
        now = file.stat().st_size if file.is_file() else None
        if now != size:
            state = "missing" if now is None else f"{now} bytes long"
            raise UserError(f"{file}: damaged, it is {state} and was published with {size} bytes; {advice}")


def _check_format(path: Path) -> None:
    try:
        record = read_json(path)
    except UserError:
        record = None
    found = record.get("format") if isinstance(record, dict) else None
    if type(found) is not int or found < 1:
        raise UserError(f'{path}: damaged, it should read {{"format": {FORMAT}}}; mend it or choose another folder')
    if found > FORMAT:
        raise UserError(
            f"{path}: written by a newer hyperes (store format {found}, this one knows {FORMAT}); "
            "upgrade hyperes or choose another folder"
        )
