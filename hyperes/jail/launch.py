"""One program, behind the walls: outside -> launcher -> guard -> program.

The launcher enters the namespaces. The guard is their first process: it watches the clock, judges how the program ended
and, by ending, takes everything with it that the program may have started. Only the program itself gives up what the
other two need, and only it runs foreign code.

A pass is proven by a token. The guard makes it after the program's process was split off, so no memory, source,
argument or variable there holds it, and sends it through a pipe that is read once the last line of the tests has run.
A program that ends earlier, in whatever way, cannot know it. One that is written against this very file can: it may
look for the pipe among its descriptors, as it may hand the tests objects that equal everything.
"""

from __future__ import annotations

import marshal
import os
import resource
import select
import sys
from itertools import pairwise

from hyperes.jail import calls, landlock, namespaces, system

TYPE_CHECKING = False  # as typing's; typing, signal and pathlib would double the time that a program takes to start
if TYPE_CHECKING:
    from typing import Any, NoReturn

KILL = 9
TOKEN = 16  # bytes
REASON = 300  # bytes kept of a program's error
STARTED, PASSED, FAILED = b"started\n", b"passed\n", b"failed\n"


def main() -> None:
    """Read a job (marshal) from stdin; write STARTED, then PASSED or FAILED and the reason, to stdout.

    The job: ``parts`` (source texts, run in order in one module), ``walls`` (names), ``folder`` (empty), ``parent``
    (process id), and the limits ``seconds``, ``cpu_seconds``, ``memory``, ``file``, ``files`` (bytes but for times).
    """
    job = marshal.loads(sys.stdin.buffer.read())
    _end_with(job["parent"])
    nothing = os.open("/dev/null", os.O_RDWR)
    if "namespaces" in job["walls"]:
        namespaces.enter(job["folder"], job["files"])
    launcher = os.getpid()
    guard = os.fork()
    if guard == 0:
        # A first process of namespaces sees no parent (0); its death is told to it all the same.
        _end_with(0 if "namespaces" in job["walls"] else launcher)
        _guard(job, nothing)
    os.waitpid(guard, 0)


def _guard(job: dict[str, Any], nothing: int) -> NoReturn:
    system.prctl(system.CHILD_SUBREAPER, 1)
    system.prctl(system.DUMPABLE, 0)  # the program may not look into this process, though it has the same user
    question, ask = os.pipe()
    answer, reply = os.pipe()
    ready, confined = os.pipe()
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _end_with(guard)
            _confine(job, nothing, {question, reply, confined})
        except BaseException as error:
            os.write(confined, f"{error}"[:REASON].encode())
            os._exit(1)
        os.close(confined)
        _run(job["parts"], question, reply)
    os.close(reply)
    os.close(confined)  # but not the question: a program that has failed already would break the pipe to it
    token = os.urandom(TOKEN)
    os.write(ask, token)
    os.close(ask)
    fault = os.read(ready, REASON)  # ends once the program is behind its walls
    if fault:
        sys.exit(fault.decode(errors="replace"))
    os.write(1, STARTED)
    heard, _, _ = select.select([answer], [], [], job["seconds"])
    said = os.read(answer, REASON) if heard else None  # empty: its process has ended, or let go of the pipe
    os.kill(pid, KILL)
    _, status = os.waitpid(pid, 0)
    if "namespaces" not in job["walls"]:  # there, all of them end with this process
        _end_all()
    os.write(1, PASSED if said == token else FAILED + _reason(said, status, job))
    os._exit(0)


def _confine(job: dict[str, Any], nothing: int, kept: set[int]) -> None:
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for below, above in pairwise(sorted({2, *kept, 1024})):
        os.closerange(below + 1, above)
    os.chdir(job["folder"])
    limits = {
        resource.RLIMIT_AS: (job["memory"],) * 2,
        resource.RLIMIT_CPU: (job["cpu_seconds"], job["cpu_seconds"] + 1),
        resource.RLIMIT_FSIZE: (job["file"],) * 2,
        resource.RLIMIT_NOFILE: (64, 64),
        resource.RLIMIT_CORE: (0, 0),
    }
    if "namespaces" in job["walls"]:  # elsewhere the user's other processes count too
        limits[resource.RLIMIT_NPROC] = (16, 16)
    for which, (soft, hard) in limits.items():
        ceiling = resource.getrlimit(which)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))
    system.drop_capabilities()
    system.prctl(system.NO_NEW_PRIVILEGES, 1)
    if "landlock" in job["walls"]:
        landlock.restrict(job["folder"])
    if "calls" in job["walls"]:
        calls.restrict()


def _run(parts: list[str], question: int, reply: int) -> NoReturn:
    # Everything needed later is bound before foreign code can replace it, in builtins or elsewhere.
    read, write, leave, describe, run, anything = os.read, os.write, os._exit, _describe, exec, BaseException
    module = type(sys)("program")  # a name other than __main__: examples under `if __name__ == ...` do not run
    sys.modules["program"] = module
    names = vars(module)
    try:
        for code in [compile(part, "<program>", "exec", dont_inherit=True) for part in parts]:
            run(code, names)
    except anything as error:  # SystemExit among them: whoever leaves early has passed nothing
        try:
            write(reply, describe(error))
        finally:
            leave(1)
    write(reply, read(question, TOKEN))
    leave(0)


def _describe(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}".strip(": ").splitlines()[0]
    return text.encode(errors="replace")[:REASON]


def _end_all() -> None:
    """End every descendant: orphans become this process's children, so none is left when it has no child."""
    while children := _children():
        for child in children:
            os.kill(child, KILL)
        os.waitpid(-1, 0)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as stream:
        return [int(pid) for pid in stream.read().split()]


def _reason(said: bytes | None, status: int, job: dict[str, Any]) -> bytes:
    if said is None:
        return b"not finished after %g s" % job["seconds"]
    if said:
        return said
    if not os.WIFSIGNALED(status):
        return b"ended before its tests did"
    from signal import SIGXCPU, Signals

    number = os.WTERMSIG(status)
    if number == SIGXCPU:
        return b"not finished after %d s of CPU time" % job["cpu_seconds"]
    return b"ended by " + Signals(number).name.encode()


def _end_with(parent: int) -> None:
    """Let the kernel end this process when its parent ends; end now if that has happened already."""
    system.prctl(system.SIGNAL_ON_PARENTS_DEATH, KILL)
    if os.getppid() != parent:
        os._exit(1)
