"""What became of a sweep's job: status.json in the job's folder, written by the job itself.

queued -> running -> finished or failed; a job that is stopped to be started again is queued. A file of our own, because
launchers do not tell: a failed job can be COMPLETED in SLURM, and one that was killed leaves no result at all.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hyperes.errors import UserError, first_line
from hyperes.files import read_json, write_json

STATUS = "status.json"
LOG = "hyperes.log"
QUEUED, RUNNING, FINISHED, FAILED = "queued", "running", "finished", "failed"


@dataclass(frozen=True)
class Status:
    """One job of a sweep."""

    state: str
    sweep: str | None  # the choice of the group `sweep`; None of a multirun from the command line
    number: int
    overrides: list[str]
    command: str  # makes this run alone
    name: str
    backbone: str
    dataset: str
    seed: int
    since: str = ""  # of the state, UTC
    where: str | None = None  # host and process, or SLURM's job
    error: str | None = None  # one line
    log: str | None = None

    @property
    def reason(self) -> str:
        """Why it failed, and where more stands."""
        return f"{self.error}; log: {self.log}" if self.log else str(self.error)


def read(folder: Path) -> Status:
    """The status of the job in ``folder``. Raises UserError where there is none or it is damaged."""
    path = folder / STATUS
    try:
        return Status(**read_json(path))
    except TypeError as error:
        raise UserError(f"{path}: not the status of a job ({first_line(error)})") from None


def write(folder: Path, status: Status, state: str, **changes: Any) -> None:
    """Publish the status with a new state and, perhaps, other changes."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_json(folder / STATUS, asdict(replace(status, state=state, since=now, **changes)))


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Record what becomes of the job in ``folder``; what it raises passes through. A run that is no sweep's: nothing.

    A job that is interrupted, or stopped by SLURM to be started again, is queued.
    """
    if not (folder / STATUS).exists():
        yield
        return
    status = read(folder)
    try:
        write(folder, status, RUNNING, where=_where(), error=None, log=None)
        yield
    except Exception as error:
        logging.getLogger("hyperes").exception("job failed")
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"
        with suppress(OSError):  # the disk may be full: then that is the error to tell
            write(folder, status, FAILED, where=_where(), error=message, log=str(folder / LOG))
        raise
    except BaseException:
        with suppress(OSError):
            write(folder, status, QUEUED, error=None, log=None)
        raise
    write(folder, status, FINISHED, where=_where(), error=None, log=None)


def _where() -> str:
    array, task, job = (os.environ.get(f"SLURM_{name}") for name in ("ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_ID"))
    slurm = f"{array}_{task}" if array else job
    return f"{platform.node()}, SLURM job {slurm}" if slurm else f"{platform.node()}, process {os.getpid()}"
