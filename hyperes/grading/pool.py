"""Math-Verify in a pool of worker processes that are killed when a case takes too long.

Math-Verify's own time limits use SIGALRM, which works only in a main thread and cannot interrupt C code. Here a case
that hangs or crashes counts as wrong, is logged, and costs one worker process, which is replaced.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe

TIME_LIMIT = 5.0  # seconds per case
START_LIMIT = 120.0  # seconds for a worker to import Math-Verify, on a cold and busy disk

log = logging.getLogger(__name__)

# Everything a worker needs stands on its command line; the caller's import path, so that an uninstalled checkout works.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hyperes.grading.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))"
)


class Worker:
    """One Math-Verify process and the socket to it. Raises RuntimeError if it cannot start."""

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self.connection, theirs = Pipe()
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        command = [sys.executable, "-c", _BOOT, path, str(theirs.fileno()), str(os.getpid()), str(time_limit)]
        with theirs:
            self.process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "PYTHONHASHSEED": "0",
                },  # sympy's term order follows the hashes: same verdict each run
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            fault = self.connection.recv() if self.connection.poll(START_LIMIT) else f"silent for {START_LIMIT} s"
        except (EOFError, OSError):
            fault = f"exit status {self.process.wait()}"
        if fault:
            self.stop()
            raise RuntimeError(f"the Math-Verify worker did not start: {fault}")

    def verify(self, gold: str, candidate: str) -> bool:
        """Math-Verify's verdict. Raises TimeoutError past the time limit, EOFError or OSError if the process died."""
        self.connection.send((gold, candidate))
        if not self.connection.poll(self.time_limit):
            raise TimeoutError(f"no verdict after {self.time_limit} s")
        return bool(self.connection.recv())

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class Pool:
    """At most ``size`` workers, started when first needed and reused; safe to call from any thread."""

    def __init__(self, size: int | None = None, time_limit: float = TIME_LIMIT) -> None:
        self.size = size or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self.time_limit = time_limit
        self._idle: list[Worker] = []
        self._places = threading.Semaphore(self.size)

    def verify(self, gold: str, candidate: str) -> bool:
        """Whether Math-Verify finds ``candidate`` equal to ``gold`` in time; a hang or a crash is logged and False."""
        with self._places:
            worker = self._idle_worker() or Worker(self.time_limit)
            try:
                verdict = worker.verify(gold, candidate)
            except (TimeoutError, EOFError, OSError) as error:
                worker.stop()
                log.warning(
                    "counted as wrong: %.200r against %.200r: %s", candidate, gold, error or "the worker process died"
                )
                return False
            except BaseException:  # KeyboardInterrupt between question and answer: the next answer would be stale
                worker.stop()
                raise
            self._idle.append(worker)
            return verdict

    def verify_many(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """``verify`` for every (gold, candidate), in order, spread over the workers; equal pairs are asked once."""
        unique = list(dict.fromkeys(pairs))
        with ThreadPoolExecutor(self.size) as threads:
            verdicts = dict(zip(unique, threads.map(lambda pair: self.verify(*pair), unique), strict=True))
        return [verdicts[pair] for pair in pairs]

    def _idle_worker(self) -> Worker | None:
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                return None
            if worker.process.poll() is None:
                return worker
            worker.stop()  # killed while idle, as the kernel does when memory runs out: no fault of the next case

    def close(self) -> None:
        """Stop every idle worker; the pool can be used again."""
        while self._idle:
            self._idle.pop().stop()


_pool = Pool()


def default_pool() -> Pool:
    """The process's own pool."""
    return _pool


def _forget_pool() -> None:
    # A forked child shares its parent's sockets: two askers on one socket would read each other's verdicts.
    global _pool
    _pool = Pool(_pool.size, _pool.time_limit)


os.register_at_fork(after_in_child=_forget_pool)
atexit.register(lambda: _pool.close())
