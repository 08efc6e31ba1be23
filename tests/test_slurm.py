"""A sweep on a real SLURM: one node on this machine, started by tests/slurm/start.sh (.ci/run does)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

if not os.environ.get("SLURM_CONF"):
    reason = "no SLURM: as root on Debian run tests/slurm/start.sh DIR and set SLURM_CONF=DIR/slurm.conf"
    pytest.skip(reason, allow_module_level=True)

COMMAND = [
    *(sys.executable, "-m", "hyperes", "executor=slurm", "+experiment=[smoke]", "seed=0,1", "tracking.mode=disabled"),
    *("executor.slurm.cpus=1", "executor.slurm.memory_gb=4", "executor.slurm.minutes=30"),
]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def statuses(folder: Path) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("multirun/*/*/status.json"))]


@pytest.mark.slow
def test_a_cancelled_job_is_told_and_the_next_sweep_goes_on(tmp_path: Path) -> None:
    sweep = start(tmp_path)
    while not list(tmp_path.glob("artifacts/trajectory/*/checkpoint-1")):  # in the middle of training
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.5)
    first = statuses(tmp_path)[0]
    assert first["state"] == "running"
    name = re.search(r"SLURM job (\d+_0)$", first["where"])
    assert name
    subprocess.run(["scancel", name.group(1)], check=True)
    out, error = sweep.communicate(timeout=600)
    assert (sweep.returncode, error) == (1, "")
    cancelled, other = statuses(tmp_path)
    assert (cancelled["state"], other["state"]) == ("failed", "finished")
    assert "CANCELLED" in cancelled["error"]
    assert "1 of 2 jobs finished" in out
    assert f"{cancelled['error']}; log: {cancelled['log']}" in out
    assert Path(cancelled["log"]).exists()

    kept = [path.read_text() for path in tmp_path.glob("artifacts/result/*/result.json")]
    assert len(kept) == 1
    again = start(tmp_path)
    out, error = again.communicate(timeout=600)
    assert (again.returncode, error) == (0, ""), out
    assert "2 of 2 jobs finished" in out
    resumed, printed = statuses(tmp_path)[2:]
    assert (resumed["state"], printed["state"]) == ("finished", "finished")
    newest = max(tmp_path.glob("multirun/*"))
    assert (newest / "1" / "result.json").read_text() == kept[0]
    logs = "".join(path.read_text() for path in newest.glob(".submitit/*/*_log.out"))
    assert "2 made" in logs or "1 made, 1 reused" in logs


def test_what_slurm_refuses_is_told(tmp_path: Path) -> None:
    sweep = start(tmp_path, "executor.slurm.partition=nowhere")
    _, error = sweep.communicate(timeout=60)
    assert sweep.returncode == 2
    told = error.splitlines()[-1]  # after sbatch's own words
    assert told.startswith("hyperes: executor.slurm: SLURM does not take the jobs (sbatch: error: invalid partition")
    assert {each["state"] for each in statuses(tmp_path)} == {"failed"}
