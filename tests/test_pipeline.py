"""The whole flow on the embedded backbone: repeatable, shared, and impossible to lose by killing it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, cli

SMOKE = ("+experiment=smoke", "executor.threads=1")


def result_of(stdout: str, folder: Path) -> dict[str, Any]:
    last = stdout.strip().splitlines()[-1]
    assert last.startswith("result: "), stdout
    return json.loads((folder / last.removeprefix("result: ")).read_text())


def science(result: dict[str, Any]) -> dict[str, Any]:
    """What must be identical between repetitions."""
    return {
        name: result[name]
        for name in ("key", "scores", "base", "average", "choice", "artifacts", "candidate_evaluations")
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("first")
    done = cli(folder, *SMOKE)
    assert done.returncode == 0, done.stderr
    return folder, result_of(done.stdout, folder)


@pytest.mark.slow
def test_a_run_ends_in_a_whole_result(first: tuple[Path, dict[str, Any]]) -> None:
    folder, result = first
    assert result["status"] == "finished"
    assert set(result["scores"]) == {"in_domain", "larger_numbers", "unseen_wording", "distractors"}
    for score in [*result["scores"].values(), *result["base"].values()]:
        low, high = score["interval"]
        assert 0 <= low <= score["accuracy"] <= high <= 1
        assert score["n"] == 40
        assert score["correct"] == round(score["accuracy"] * 40)
    assert result["gradient_samples"] == 2 * 2 * 8
    grid_points = 2 * (2 + 2 * 1)  # TIES off and on; 2 scales without DARE, 2 scales x 1 drop rate with it
    assert result["candidate_evaluations"] == grid_points + 2 * 4 + 1  # 2 generations of 4, and the final mean
    assert len(result["choice"]["z"]) == 8 * 2 * 2
    assert len(result["artifacts"]["directions"]) == 2
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 1


@pytest.mark.slow
def test_a_finished_run_is_only_printed(first: tuple[Path, dict[str, Any]]) -> None:
    folder, result = first
    before = {path: path.stat().st_mtime_ns for path in (folder / "artifacts").rglob("*") if path.is_file()}
    again = cli(folder, *SMOKE)
    assert science(result_of(again.stdout, folder)) == science(result)
    after = {path: path.stat().st_mtime_ns for path in (folder / "artifacts").rglob("*") if path.is_file()}
    assert after == before
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 1


@pytest.mark.slow
def test_same_seed_same_result_whatever_the_workers(first: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    done = cli(tmp_path, *SMOKE, "executor=inline", "executor.threads=2", "tracking.mode=disabled")
    assert science(result_of(done.stdout, tmp_path)) == science(first[1])
    assert not (tmp_path / "wandb").exists()


@pytest.mark.slow
def test_other_methods_share_the_pool_and_the_base(first: tuple[Path, dict[str, Any]]) -> None:
    folder, result = first
    trained = set((folder / "artifacts" / "trajectory").iterdir())
    grid = cli(folder, *SMOKE, "optimizer=grid", "name=grid_only")
    assert grid.returncode == 0, grid.stderr
    fewer = cli(folder, *SMOKE, "directions.steps=1", "name=one_step")
    assert result_of(grid.stdout, folder)["artifacts"]["directions"] == result["artifacts"]["directions"]
    assert result_of(fewer.stdout, folder)["artifacts"]["directions"] != result["artifacts"]["directions"]
    assert set((folder / "artifacts" / "trajectory").iterdir()) == trained
    base = cli(folder, "+experiment=base", "test.limit=40", "dataset.validation_size=40")
    alone = result_of(base.stdout, folder)
    assert alone["scores"] == result["base"]
    assert alone["choice"] is None


# What first appears in the store in the course of a run: a kill -9 follows each by a random fraction of a second.
MOMENTS = (
    ("problems/*/recipe.json", 1),
    ("trajectory/*/train.log", 1),
    ("trajectory/*/checkpoint-1", 1),
    ("trajectory/*/step-2", 1),
    ("direction/*/recipe.json", 2),
    ("fitness/*/*/*.json", 2),
    ("fitness/*/*/*.json", 6),
    ("grid/*/recipe.json", 1),
    ("evolve/*.work/trials.jsonl", 1),
    ("evaluation/*/recipe.json", 1),
)


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_the_same(first: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    rng = random.Random(0)
    command = [sys.executable, "-m", "hyperes", *SMOKE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for pattern, count in MOMENTS:
        with (tmp_path / "output.txt").open("wb") as output:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
        while len(list((tmp_path / "artifacts").glob(pattern))) < count:
            assert process.poll() is None, (pattern, (tmp_path / "output.txt").read_text())
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        assert process.poll() is None, pattern
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = cli(tmp_path, *SMOKE)
    assert done.returncode == 0, done.stderr
    assert science(result_of(done.stdout, tmp_path)) == science(first[1])
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1
