"""The far side of the pool: a process that answers (gold, candidate) pairs with Math-Verify until told to stop.

It imports Math-Verify and nothing of the caller's: torch never loads here, and the caller's ``__main__`` is not run
again (as ``multiprocessing``'s spawn would).
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import traceback
from multiprocessing.connection import Connection

MEMORY = 4 << 30  # bytes of address space: 10^{10^{10}} fails here before it troubles the machine
GRACE = 2.0  # seconds past the caller's own limit
PARENT_CHECK = 2.0  # seconds


def serve(descriptor: int, parent: int, time_limit: float) -> None:
    """Answer pairs from the socket ``descriptor`` until it closes or process ``parent`` is gone.

    Sends ``None`` once ready or a traceback (str) if Math-Verify does not import; then one bool per pair.

    An orphan ends by itself: idle, by the closed socket or the changed parent id; inside a case, by an alarm whose
    default action is the kernel's, which also ends a long C loop that never returns to Python. (PR_SET_PDEATHSIG would
    not do: it fires when the *thread* that started this process ends, and threads of the caller come and go.)
    """
    connection = Connection(descriptor)
    try:
        from math_verify import parse, verify

        logging.disable(logging.WARNING)  # Math-Verify warns that its own time limits are off: ours stand in for them
        warm = r"$\frac{1}{2}k+2$"  # the first parse builds the grammar's tables: not on the first case's time
        verify(parse(warm, parsing_timeout=None), parse(warm, parsing_timeout=None), timeout_seconds=None)
    except BaseException:
        connection.send(traceback.format_exc())
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    connection.send(None)
    while True:
        try:
            while not connection.poll(PARENT_CHECK):
                if os.getppid() != parent:
                    return
            gold, candidate = connection.recv()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_REAL, time_limit + GRACE)
        try:
            # Their SIGALRM limits are off: the caller kills this process instead, which stops C code as well.
            verdict = bool(
                verify(
                    parse(gold, parsing_timeout=None),
                    parse(candidate, parsing_timeout=None),
                    timeout_seconds=None,
                )
            )
        except Exception:  # RecursionError and MemoryError among them
            verdict = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(verdict)
