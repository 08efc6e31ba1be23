"""Sweeps: every job is checked before the first starts, none stops the others, and a second start only prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, cli
from omegaconf import OmegaConf

from hyperes.config import CONF_DIR
from hyperes.errors import UserError
from hyperes.sweep import plan
from hyperes.tables.paper import TABLES

SWEEPS = sorted(path.stem for path in (CONF_DIR / "sweep").glob("*.yaml"))
BASE = ("+experiment=[smoke,base]", "tracking.mode=disabled", "executor=inline", "executor.threads=1")


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_plans_valid_jobs_with_the_rows_of_its_table(name: str) -> None:
    sweep = plan([f"+sweep={name}"], None, multirun=False)
    assert sweep is not None
    assert sweep.name == name
    assert sweep.folder.parent == Path.cwd() / "multirun" / name
    (table,) = [table for table in TABLES if table.home == name and table.accuracies and not table.single_directions]
    assert {config.name for config in sweep.configs} == {*(table.rows or ["hyper_es"])}
    assert all(set(table.suites) <= set(config.dataset.suites) for config in sweep.configs)
    if table.seeds:
        assert {config.seed for config in sweep.configs} == {0, 1, 2}


@pytest.mark.parametrize("name", [name for name in SWEEPS if name != "table13"])  # it needs problems of programming
def test_every_sweep_plans_on_the_embedded_problems_alone(name: str) -> None:
    sweep = plan([f"+sweep={name}", "backbone=bundled", "dataset=hops"], None, multirun=False)
    assert sweep is not None
    assert {source.format for config in sweep.configs for source in config.dataset.suites.values()} == {"generated"}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweeps_file_only_speaks_to_hydra(name: str) -> None:
    """Its body would override every experiment's."""
    assert set(OmegaConf.load(CONF_DIR / "sweep" / f"{name}.yaml")) == {"hydra"}


def test_the_command_line_replaces_and_adds_axes() -> None:
    sweep = plan(
        ["+sweep=table3", "backbone=bundled", "dataset=hops", "seed=0,1", "test.limit=9"], None, multirun=False
    )
    assert sweep is not None
    assert len(sweep.jobs) == 6
    assert sweep.jobs[1] == ["+experiment=hyper_es", "backbone=bundled", "dataset=hops", "seed=1", "test.limit=9"]
    assert {config.test.limit for config in sweep.configs} == {9}
    assert plan(["seed=1"], None, multirun=False) is None
    multirun = plan(["seed=1"], None, multirun=True)
    assert multirun is not None
    assert multirun.jobs == [["seed=1"]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+sweep=tabel3"], r"sweep/tabel3.*table3"),
        (["+sweep=table3", "mergr=x"], r"mergr: no such key; did you mean merger\?"),
        (["+sweep=table3", "seed=0,a"], r"job 1 \(.*seed=a\): Value 'a'.* \(3 of the sweep's 6 jobs cannot run\)"),
        (["+sweep=table3", "+experiment=hyper_es,foo"], r"job 1 \(\+experiment=foo .*\): .*experiment/foo.*smoke"),
        (
            ["+sweep=table3", "directions.steps=7,0"],
            r"job 1 \(.*directions\.steps=0\): directions\.steps=0: must be above",
        ),
        (["+sweep=table3", "direction_count=n0"], r"direction_count/n0"),
        (["executor=slurm", "executor.slurm.partion=x"], r"partion: no such key; did you mean partition\?"),
    ],
)
def test_a_mistake_in_any_job_is_one_line_before_any_work(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        plan(overrides, None, multirun=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", [("seed=0,1", "-m", "test.limit=8"), ("-m", "seed=0,1", "--foo", "test.limit=8")])
def test_no_word_of_the_command_is_dropped(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = cli(tmp_path, *words)
    assert done.returncode == 2
    assert "test.limit=8; flags such as -m come before every key=value" in done.stderr
    assert not (tmp_path / "multirun").exists()


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    done = cli(tmp_path, "-m", "seed=0,-1")
    assert done.returncode == 2
    assert done.stderr == "hyperes: job 1 (seed=-1): seed=-1: must be at least 0\n"
    assert not list(tmp_path.iterdir())


def statuses(folder: Path) -> list[dict[str, str]]:
    """Of the newest sweep in ``folder``."""
    newest = max((folder / "multirun").iterdir())
    return [json.loads(path.read_text()) for path in sorted(newest.glob("*/status.json"))]


@pytest.mark.slow
def test_a_failed_job_does_not_stop_the_rest_and_a_second_start_only_prints(tmp_path: Path) -> None:
    command = ("-m", *BASE, "backbone.path=./nowhere,bundled", "test.limit=8")
    done = cli(tmp_path, *command)
    assert done.returncode == 1, done.stderr
    error = "backbone.path=./nowhere: no such folder (and not a hub id of the form owner/name)"
    assert done.stderr == f"hyperes: {error}\n"
    assert "1 of 2 jobs finished" in done.stdout
    failed, finished = statuses(tmp_path)
    assert (failed["state"], failed["error"], finished["state"]) == ("failed", error, "finished")
    assert f"{error}; log: {failed['log']}" in done.stdout
    assert error in Path(failed["log"]).read_text()
    result = re.findall(r"^result: (.*)$", done.stdout, re.MULTILINE)
    assert len(result) == 1

    store = {path: path.stat().st_mtime_ns for path in (tmp_path / "artifacts").rglob("*") if path.is_file()}
    (tmp_path / "nowhere").symlink_to(ROOT / "hyperes" / "bundled" / "model")  # mended; the same model, so the same key
    time.sleep(1)  # a sweep's folder is named by the second
    again = cli(tmp_path, *command)
    assert again.returncode == 0, again.stderr
    assert [each["state"] for each in statuses(tmp_path)] == ["finished"] * 2
    assert "evaluations made" not in again.stdout
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "artifacts").rglob("*") if path.is_file()}
    assert after == store

    tables = subprocess.run(
        [sys.executable, "-m", "hyperes.tables", str(tmp_path / "multirun")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tables.returncode == 2
    assert "no rows of a table in there (finished runs: base)" in tables.stderr


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGTERM], ids=lambda chosen: chosen.name)
def test_a_killed_job_is_told_and_an_interrupted_sweep_stops(tmp_path: Path, interrupt: signal.Signals) -> None:
    command = [sys.executable, "-m", "hyperes", "-m", *BASE, "test.limit=8,9"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "output.txt").open("w") as output:
        sweep = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
        )
    os.kill(_running(tmp_path, 0), signal.SIGKILL)
    _running(tmp_path, 1)
    os.killpg(sweep.pid, interrupt)
    assert sweep.wait(60) == 130
    killed, interrupted = statuses(tmp_path)
    assert (killed["state"], killed["error"]) == ("failed", "killed by signal 9 (out of memory?)")
    assert interrupted["state"] == "queued"
    assert "run the same command again to continue" in (tmp_path / "output.txt").read_text()


def _running(folder: Path, number: int) -> int:
    """Wait until a job of the newest sweep runs; its process."""
    for _ in range(600):
        time.sleep(0.1)
        found = statuses(folder) if (folder / "multirun").exists() else []
        if len(found) > number and (match := re.search(r"process (\d+)$", found[number]["where"] or "")):
            return int(match.group(1))
    raise AssertionError((folder / "output.txt").read_text())
