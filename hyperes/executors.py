"""Who does the work: a plain loop, or worker processes that live as long as the run."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from hyperes.config import ExecutorConfig
from hyperes.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
POLL_SECONDS = 0.5


class Executor:
    """``map`` over worker processes; with one worker, tasks that need no child run in this process.

    Tasks are module-level functions of picklable items. What a task keeps between calls (a loaded model) it keeps
    in its own process, so every worker loads a thing once.
    """

    def __init__(self, config: ExecutorConfig) -> None:
        self._workers = config.workers
        self._threads = config.threads or max(1, _cores() // config.workers)
        self._pool: ProcessPoolExecutor | None = None
        # Libraries read these when they are first imported, here and in every child.
        os.environ["OMP_NUM_THREADS"] = str(self._threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kill=kind is not None)

    def map(
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        on_result: Callable[[int, Result], None] = lambda index, result: None,
        on_poll: Callable[[], None] = lambda: None,
        in_child: bool = False,
    ) -> list[Result]:
        """``[task(item) for item in items]``, calling ``on_result(index, result)`` as each one is done.

        in_child  never run in this process, even with one worker.
        on_poll   called about twice a second while waiting for children.

        The first exception of a task is raised here; leaving the executor then stops the tasks still running.
        Raises UserError when a worker died (out of memory, killed).
        """
        results: dict[int, Result] = {}
        if self._workers == 1 and not in_child:
            _limit_threads(self._threads)
            for index, item in enumerate(items):
                results[index] = task(item)
                on_result(index, results[index])
            return [results[index] for index in range(len(items))]
        futures: dict[Future[Result], int] = {}
        pending: set[Future[Result]] = set()
        try:
            pool = self._started()  # whose idle workers may have died since
            futures.update((pool.submit(task, item), index) for index, item in enumerate(items))
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=futures.__getitem__):
                    index = futures[future]
                    results[index] = future.result()
                    on_result(index, results[index])
                on_poll()
        except BrokenProcessPool as error:
            self._pool = None
            raise UserError(
                "a worker process died (out of memory, or killed); finished work is kept: run the same command again, "
                "perhaps with fewer executor.workers"
            ) from error
        except BaseException:
            for future in pending:
                future.cancel()
            raise
        if self._workers == 1:
            self.close()  # this process takes over; an idle child would keep its memory
        return [results[index] for index in range(len(items))]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            counter = context.Value("i", 0)
            self._pool = ProcessPoolExecutor(
                self._workers,
                mp_context=context,
                initializer=_start_worker,
                initargs=(counter, self._threads, os.getpid()),
            )
        return self._pool

    def close(self, kill: bool = False) -> None:
        """Let the workers go; with ``kill`` stop them in the middle of what they do."""
        if self._pool is None:
            return
        if kill:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._pool.shutdown(wait=not kill, cancel_futures=True)
        self._pool = None


def _start_worker(counter: Any, threads: int, parent: int) -> None:
    """A worker dies with its parent, leaves Ctrl-C to it, and takes its share of cores and GPUs."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # SLURM's warning before a time limit: the parent answers it
    with counter.get_lock():
        rank = counter.value
        counter.value += 1
    # Before torch is imported: a worker sees one GPU, so that no library spreads its work over all of them.
    if gpus := _gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[rank % len(gpus)]
    _limit_threads(threads)


def die_with_parent(parent: int) -> None:
    """Linux: a child whose parent is killed would go on working and hold the store's locks."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _gpus() -> list[str]:
    """Devices this process may use, told without starting CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def _cores() -> int:
    """CPUs this process may use; SLURM does not always bind a job to those that it gave it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, int(os.environ.get("SLURM_CPUS_PER_TASK", cores)))
