"""A sweep's jobs on SLURM: hydra-submitit-launcher sends them and runs them on their nodes; here they are waited for.

Its own waiting gives up at the first job that SLURM killed, and without accounting (sacct) never notices one. Here what
counts is each job's status file and, for a job that could not write one, SLURM's queue.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperes import status
from hyperes.config import SlurmConfig
from hyperes.errors import UserError, first_line
from hyperes.job import job
from hyperes.status import FAILED, FINISHED, Status

if TYPE_CHECKING:
    from hyperes.sweep import Sweep

POLL_SECONDS = 2.0
QUEUE_SECONDS = 10.0  # between two looks at the queue
FORGOTTEN = "no longer known to SLURM"
KILLED = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
ENDED = {*KILLED, "COMPLETED", "FAILED", FORGOTTEN}


def require() -> None:
    """Raises UserError on a machine without SLURM."""
    if shutil.which("sbatch") is None:
        raise UserError("executor=slurm: no sbatch on this machine; run it on a node of the cluster, or executor=local")


def launch(sweep: Sweep) -> None:
    """Submit every job of the sweep, then wait until each has finished or has left SLURM's queue.

    Raises UserError where SLURM refuses them. Interrupted, it leaves them in the queue.
    """
    try:
        submitted = _submit(sweep)
    except UserError as error:
        for number in range(len(sweep.jobs)):
            folder = sweep.folder_of(number)
            status.write(folder, status.read(folder), FAILED, error=str(error))
        raise
    names = [each.job_id for each in submitted]
    print(f"SLURM jobs {names[0]} to {names[-1]}; logs in {submitted[0].paths.folder.parent}", flush=True)
    try:
        _wait(sweep, names, [each.paths.stderr for each in submitted])
    except KeyboardInterrupt:
        print(f"the jobs stay in SLURM's queue; to stop them: scancel {names[0].partition('_')[0]}", flush=True)
        raise


def _submit(sweep: Sweep) -> list[Any]:
    """submitit's jobs, in the sweep's order."""
    import submitit
    from hydra._internal.callbacks import Callbacks
    from hydra.core.plugins import Plugins
    from hydra.core.singleton import Singleton
    from hydra.core.utils import setup_globals
    from hydra.types import HydraContext
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    setup_globals()
    context = HydraContext(config_loader=sweep.loader, callbacks=Callbacks())
    launcher: Any = Plugins.instance().instantiate_launcher(
        hydra_context=context, task_function=job, config=sweep.master
    )
    settings = {**launcher.params, **_asked(sweep.configs[0].executor.slurm)}
    folder, timeouts = settings.pop("submitit_folder"), settings.pop("max_num_timeout")
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=timeouts)
    general = set(BaseQueueConf.__dataclass_fields__)
    numbers = range(len(sweep.jobs))
    try:
        executor.update_parameters(
            **{name if name in general else f"slurm_{name}": value for name, value in settings.items()}
        )
        return list(
            executor.map_array(
                launcher,
                sweep.jobs,
                ["hydra.sweep.dir"] * len(numbers),
                numbers,
                [str(number) for number in numbers],
                [Singleton.get_state()] * len(numbers),
            )
        )
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, ValueError) as error:
        raise UserError(f"executor.slurm: SLURM does not take the jobs ({_sbatch_line(error)})") from error


def _asked(slurm: SlurmConfig) -> dict[str, Any]:
    """Our keys under the launcher's names; what is null is left to it."""
    named = {
        "name": "hyperes",
        "partition": slurm.partition,
        "gpus_per_node": slurm.gpus,
        "cpus_per_task": slurm.cpus,
        "mem_gb": slurm.memory_gb,
        "timeout_min": slurm.minutes,
        "max_num_timeout": slurm.requeues,
        "array_parallelism": slurm.parallel,
        "additional_parameters": slurm.parameters,
        "setup": slurm.setup,
    }
    return {name: value for name, value in named.items() if value is not None}


def _sbatch_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "sbatch: error" in line]
    return lines[0].strip() if lines else first_line(error)


def _wait(sweep: Sweep, names: Sequence[str], logs: Sequence[Path]) -> None:
    """Until every job has finished, or has left the queue without."""
    waiting = dict(enumerate(names))
    told: dict[int, str] = {}
    ending: dict[int, str] = {}
    ended = dict.fromkeys(waiting, 0)  # looks at the queue in a row that found the job ended
    looked = -math.inf
    while waiting:
        time.sleep(POLL_SECONDS)
        if time.monotonic() - looked >= QUEUE_SECONDS and (queue := _queue()) is not None:
            looked = time.monotonic()
            for number, name in waiting.items():
                ending[number] = queue.get(name, FORGOTTEN)
                ended[number] = ended[number] + 1 if ending[number] in ENDED else 0
        for number, name in list(waiting.items()):
            found = status.read(sweep.folder_of(number))
            # Twice, for a status file may come late over the network. A failed job is waited for as well: SLURM starts
            # a preempted one again, whose workers it killed.
            if found.state == FINISHED or ended[number] > 1:
                found = _settled(sweep.folder_of(number), found, ending.get(number, FORGOTTEN), logs[number])
                del waiting[number]
            if told.get(number) != found.state:
                told[number] = found.state
                print(f"job {number} ({name}): {found.state}", flush=True)


def _settled(folder: Path, found: Status, ending: str, log: Path) -> Status:
    """The last status of a job that is not in the queue any more; one that could not tell its end is marked failed."""
    if found.state == FAILED and ending in KILLED:
        status.write(folder, found, FAILED, error=f"{ending} in SLURM; {found.error}")
    elif found.state not in (FINISHED, FAILED):
        status.write(folder, found, FAILED, error=f"SLURM ended it while it was {found.state}: {ending}", log=str(log))
    return status.read(folder)


def _queue() -> dict[str, str] | None:
    """The states of this user's jobs by their names (12, or 12_0 in an array); None where SLURM does not answer."""
    command = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--format=%i|%T"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return dict(line.split("|", 1) for line in done.stdout.split() if "|" in line)
