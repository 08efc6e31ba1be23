"""Figures from a real run: what is merged is as long as its parts and their angles say."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, cli


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_figures_of_an_average_of_two_adapters(tmp_path: Path, make_adapter: Callable[[int], Path]) -> None:
    done = cli(
        tmp_path,
        *("directions=adapters", f"directions.paths=[{make_adapter(0)},{make_adapter(1)}]", "merger=average"),
        *(
            "optimizer=none",
            "name=average_merge",
            "dataset.validation_size=40",
            "test.limit=4",
            "test.suites=[in_domain,distractors]",
        ),
        *("tracking.mode=disabled", "executor=inline"),
    )
    assert done.returncode == 0, done.stderr
    made = subprocess.run(
        [sys.executable, "-m", "hyperes.tables", "runs", "--table", "1", "--out", "out", "--figures"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    out = tmp_path / "out"
    assert (out / "table1.md").read_text() in made.stdout

    cosine = {(row["first"], row["second"]): float(row["cosine"]) for row in table(out / "cosines.csv")}
    norm = {(row["what"], row["name"]): float(row["norm"]) for row in table(out / "norms.csv")}
    a, b = norm["direction", "average_merge/0"], norm["direction", "average_merge/1"]
    between = cosine["average_merge/0", "average_merge/1"]
    assert cosine["average_merge/0", "average_merge/0"] == pytest.approx(1)
    assert norm["merged", "average_merge"] == pytest.approx((a * a + b * b + 2 * a * b * between) ** 0.5 / 2, rel=1e-4)

    points = {row["method"]: row for row in table(out / "figure4.csv")}
    assert set(points) == {"base", "average_merge"}
    assert points["average_merge"]["gradient_samples"] == "0"
    assert not (out / "search.csv").exists()  # nothing was searched
    for plot in ("figure4", "figure4_candidates", "cosines", "norms"):
        assert (out / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
