"""Running programs that nobody vouches for, each in a process of its own behind the walls of ``hyperes.jail``.

| wall | other processes | network | files | needs |
|---|---|---|---|---|
| namespaces | out of reach, end with it | none | read-only but for a folder in memory | Linux 5.12, user namespaces |
| landlock | | | writes in its folder, reads of libraries only | Linux 6.2, Landlock switched on |
| calls | no process, thread, signal | no socket | no modes, owners, times | x86-64 or arm64 |

Each is tried once and used where the kernel grants it; what none of them covers is said in one warning. Limits of
time, memory, file size and descriptors hold everywhere, and root's privileges are always dropped.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from hyperes.errors import UserError
from hyperes.jail.launch import FAILED, PASSED, STARTED

WALLS = ("namespaces", "landlock", "calls")
# What is open where none of these walls stands.
OPEN = {
    "the network is not cut off": {"namespaces", "calls"},
    "a program can change any file of this user": {"namespaces", "landlock"},
    "a program can start and signal processes": {"namespaces", "calls"},
}
START_LIMIT = 60.0  # seconds to start a program and to clear up after it, on a cold and busy machine

log = logging.getLogger(__name__)

# This package's folder comes last, and goes once its modules are loaded: the program sees the standard library only.
_BOOT = (
    "import sys; sys.path[0:1] = []; sys.path.append(sys.argv[1]); "
    "from hyperes.jail.launch import main; sys.path.pop(); main()"
)


@dataclass(frozen=True)
class Limits:
    """What one program may use. The limit of CPU time comes first, so that a busy machine changes few verdicts."""

    cpu_seconds: int = 15  # the slowest published solution of MBPP takes 4 to 5
    seconds: float = 60.0  # by the clock
    memory: int = 1 << 30  # bytes of address space
    file: int = 1 << 20  # bytes of one file
    files: int = 1 << 24  # bytes of all files (namespaces only)


LIMITS = Limits()


@dataclass(frozen=True)
class Outcome:
    """Whether a program ran to the end of its tests; if not, why, in one line (partly the program's own words)."""

    passed: bool
    reason: str


def run_program(parts: Sequence[str], limits: Limits = LIMITS, among: Sequence[str] | None = None) -> Outcome:
    """Run source texts one after the other in one module. It passes if the last statement of the last one is reached.

    Parts are compiled each by itself: an open string or an ``if 0:\\`` at the end of one cannot swallow the next.
    ``among`` are the walls to use (default: all there are). Raises RuntimeError if the sandbox itself fails and
    UserError where there is none (systems other than Linux).
    """
    chosen = walls() if among is None else tuple(among)
    with _folder() as folder:
        job = {**asdict(limits), "parts": list(parts), "walls": chosen, "folder": folder, "parent": os.getpid()}
        said, complaint = _launch(job, folder)
    started, _, verdict = said.partition(STARTED)
    if started or not said:
        raise RuntimeError(f"the sandbox did not start: {complaint.strip().splitlines()[-1]}")
    if verdict == PASSED:
        return Outcome(True, "passed")
    reason = verdict.removeprefix(FAILED).decode(errors="replace")
    return Outcome(False, reason or f"the sandbox ended early: {complaint.strip().splitlines()[-1]}")


def run_many(programs: Sequence[Sequence[str]], limits: Limits = LIMITS, workers: int | None = None) -> list[Outcome]:
    """``run_program`` of each, in order, ``workers`` at a time (default: the cores, at most 4); equal ones run once."""
    unique = list(dict.fromkeys(tuple(program) for program in programs))
    if not unique:
        return []
    walls()  # found out, and said, before the threads
    with ThreadPoolExecutor(workers or min(4, len(os.sched_getaffinity(0)))) as threads:
        try:
            outcomes = dict(zip(unique, threads.map(lambda program: run_program(program, limits), unique), strict=True))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return [outcomes[tuple(program)] for program in programs]


@lru_cache
def walls() -> tuple[str, ...]:
    """The walls that this machine grants; says once, as a warning, what they leave open.

    Raises RuntimeError where not even an empty program passes behind them, and UserError on other systems than Linux.
    """
    if sys.platform != "linux":
        raise UserError(
            f"code suites run programs in a sandbox that only Linux has, not {sys.platform}: leave them out"
        )
    faults = {}
    for wall in WALLS:
        try:
            outcome = run_program(["pass"], among=[wall])
        except RuntimeError as error:
            faults[wall] = str(error)
        else:
            if not outcome.passed:
                faults[wall] = outcome.reason
    granted = tuple(wall for wall in WALLS if wall not in faults)
    together = run_program(["pass"], among=granted)
    if not together.passed:
        raise RuntimeError(f"the sandbox does not work behind {granted}: {together.reason}")
    missing = [what for what, covered in OPEN.items() if covered <= set(faults)]
    if missing:
        log.warning("generated programs run without a full sandbox: %s (%s)", ", ".join(missing), faults)
    return granted


def _launch(job: dict[str, object], folder: str) -> tuple[bytes, str]:
    """What the guard wrote, and what there is to say if that is nothing."""
    environment = {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
    environment["PYTHONHASHSEED"] = "0"  # the order of sets, and with it a verdict, is the same each time
    if "LD_LIBRARY_PATH" in os.environ:  # some interpreters do not start without
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    process = subprocess.Popen(
        [sys.executable, "-S", "-s", "-c", _BOOT, str(Path(__file__).resolve().parents[2])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(marshal.dumps(job), timeout=float(str(job["seconds"])) + START_LIMIT)
    except subprocess.TimeoutExpired:
        _kill(process)
        said, complaint = process.communicate()
    except BaseException:
        _kill(process)
        process.communicate()
        raise
    return said, complaint.decode(errors="replace") or f"exit status {process.returncode}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The launcher leads a group; its death ends the guard, and the guard's death all the rest.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="hyperes-")
    try:
        yield folder
    finally:
        os.chmod(folder, 0o700)
        for path, names, _ in os.walk(folder):
            for inner in (os.path.join(path, name) for name in names):
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)  # made without permissions: before it is listed
        shutil.rmtree(folder)
