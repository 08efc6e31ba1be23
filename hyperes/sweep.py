"""A sweep: every job of a table by one command, ``python -m hyperes +sweep=table3`` (or any multirun, ``-m seed=0,1``).

All jobs are composed and validated before the first one starts. Hydra's own sweeper would stop at a failed job's
error; here every job has its status file, none stops the others, and the end says which failed and where its log is.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

from hyperes import slurm, status
from hyperes.compose import check, composing, explained, search_path
from hyperes.config import Config
from hyperes.errors import UserError
from hyperes.executors import die_with_parent
from hyperes.status import FAILED, FINISHED, QUEUED, RUNNING, Status

SECONDS_TO_STOP = 10  # that an interrupted job has to end by itself


@dataclass(frozen=True)
class Sweep:
    """Validated jobs, each a list of overrides, with what Hydra needs to start them."""

    name: str | None
    folder: Path
    jobs: list[list[str]]
    configs: list[Config]
    master: DictConfig  # composed without what is swept
    loader: Any  # Hydra's ConfigLoader

    def folder_of(self, number: int) -> Path:
        return self.folder / str(number)


def plan(overrides: Sequence[str], config_dir: str | None, multirun: bool) -> Sweep | None:
    """The sweep that a command line asks for, or None for a single run.

    ``multirun`` is Hydra's ``-m``; a sweep's file and executor=slurm say so themselves (hydra.mode). Raises UserError
    for the first job that could not run, naming it.
    """
    with composing(overrides) as hydra:
        master = hydra.compose_config(
            "config",
            [*overrides, *search_path(config_dir)],
            RunMode.MULTIRUN,
            from_shell=False,
            validate_sweep_overrides=False,
        )
        if not multirun and master.hydra.mode != RunMode.MULTIRUN:
            return None
        asked = [f"{key}={value}" for key, value in (master.hydra.sweeper.params or {}).items()]
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        jobs = BasicSweeper.split_arguments(parser.parse_overrides([*asked, *master.hydra.overrides.task]), None)[0]
        jobs = [[override for override in job if not override.startswith("+sweep=")] for job in jobs]
        configs = _checked(hydra.config_loader, master, jobs)
    HydraConfig.instance().set_config(master)
    folder = Path(master.hydra.sweep.dir).absolute()
    return Sweep(master.hydra.runtime.choices.get("sweep"), folder, jobs, configs, master, hydra.config_loader)


def _checked(loader: Any, master: DictConfig, jobs: Sequence[list[str]]) -> list[Config]:
    """The configuration of every job. Raises UserError for the first that has none, with how many others there are."""
    configs: list[Config] = []
    wrong: list[tuple[int, UserError]] = []
    for number, job in enumerate(jobs):
        try:
            with explained(job):
                configs.append(check(loader.load_sweep_config(master, job)))
        except UserError as error:
            wrong.append((number, error))
    if wrong:
        number, mistake = wrong[0]
        others = f" ({len(wrong)} of the sweep's {len(jobs)} jobs cannot run)" if len(wrong) > 1 else ""
        raise UserError(f"job {number} ({shlex.join(jobs[number])}): {mistake}{others}")
    return configs


def run(sweep: Sweep) -> int:
    """Run every job and say what became of them; the exit status is 1 if one failed."""
    total = len(sweep.jobs)
    on_slurm = sweep.configs[0].executor.name == "slurm"
    if on_slurm:
        slurm.require()
    for number, (job, config) in enumerate(zip(sweep.jobs, sweep.configs, strict=True)):
        folder = sweep.folder_of(number)
        identity = (config.name, config.backbone.name, config.dataset.name, config.seed)
        command = shlex.join(["python", "-m", "hyperes", *job])
        status.write(folder, Status(QUEUED, sweep.name, number, job, command, *identity), QUEUED)
    print(f"sweep: {total} job{'s' * (total > 1)} in {sweep.folder}", flush=True)
    if on_slurm:
        slurm.launch(sweep)
        return report(sweep, [status.read(sweep.folder_of(number)) for number in range(total)])
    return report(sweep, [_run_here(sweep, number) for number in range(total)])


def _run_here(sweep: Sweep, number: int) -> Status:
    """One job in a process of its own, so that none can take the others down with it (out of memory, say)."""
    folder, job = sweep.folder_of(number), sweep.jobs[number]
    print(f"\njob {number + 1} of {len(sweep.jobs)}: {shlex.join(job)}", flush=True)
    quoted = str(folder).replace("'", "\\'")
    hydra = [*sweep.master.hydra.overrides.hydra, "hydra.mode=RUN", f"hydra.run.dir='{quoted}'"]
    command = [sys.executable, "-m", "hyperes", *job, *hydra]
    process = subprocess.Popen(command, preexec_fn=partial(die_with_parent, os.getpid()))
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the job has it too, where it comes from the terminal
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _queue_again(folder)
        raise
    if code == 130:
        _queue_again(folder)
        raise KeyboardInterrupt
    found = status.read(folder)
    if found.state in (QUEUED, RUNNING):  # it died before it could say so
        how = f"killed by signal {-code} (out of memory?)" if code < 0 else f"ended with exit status {code}"
        log = folder / status.LOG
        found = replace(found, state=FAILED, error=how, log=str(log) if log.exists() else None)
        with suppress(OSError):  # a full disk, say, must not stop the other jobs
            status.write(folder, found, FAILED)
    return found


def _queue_again(folder: Path) -> None:
    """An interrupted job that did not come to say so itself (stopped while it started, or killed)."""
    found = status.read(folder)
    if found.state == RUNNING:
        status.write(folder, found, QUEUED, where=None)


def report(sweep: Sweep, found: Sequence[Status]) -> int:
    """Print how the sweep's jobs ended: the failed ones with their logs, and how to see the tables."""
    failed = [each for each in found if each.state != FINISHED]
    print(f"\nsweep: {len(found) - len(failed)} of {len(found)} jobs finished in {sweep.folder}")
    for each in failed:
        print(f"{each.state}: job {each.number} ({shlex.join(each.overrides)}): {each.reason}")
    if failed:
        print("run the same command again when that is mended: finished work is kept")
    print(f"tables: python -m hyperes.tables {shlex.quote(_short(sweep.folder))}", flush=True)
    return 1 if failed else 0


def _short(path: Path) -> str:
    """Relative to the working folder where it lies inside."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
