"""Finished runs, read back: their result and the records of their evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperes.errors import UserError
from hyperes.evaluation.records import RECORDS, Record, read_records
from hyperes.files import read_json
from hyperes.store import SHORT


@dataclass(frozen=True)
class Run:
    """A finished run and the store that holds its work."""

    path: Path  # of result.json
    result: dict[str, Any]
    store: Path

    @property
    def name(self) -> str:
        return str(self.result["name"])

    @property
    def seed(self) -> int:
        return int(self.result["config"]["seed"])

    @property
    def model(self) -> str:
        """Whose scores are the run's own: "merged", or "base" where nothing was merged."""
        return "merged" if "merged" in self.tests else "base"

    @property
    def tests(self) -> dict[str, dict[str, str]]:
        """Keys of the evaluations: {model: {suite: key}}."""
        return self.result["artifacts"]["tests"]

    def suites(self, model: str | None = None) -> dict[str, str]:
        """{suite: key of its evaluation} of a model (None: the run's own). Raises UserError for one it did not test."""
        model = model or self.model
        if model not in self.tests:
            raise UserError(f"{self.path}: this run tested no {model} model; it has {', '.join(self.tests)}")
        return self.tests[model]

    def records(self, suite: str, model: str | None = None) -> list[Record]:
        """What happened on every problem of a suite. Raises UserError where the run or the store does not have it."""
        suites = self.suites(model)
        if suite not in suites:
            raise UserError(f"{self.path}: this run tested no suite {suite}; it has {', '.join(suites)}")
        path = self.store / "evaluation" / suites[suite][:SHORT] / RECORDS
        if not path.exists():
            raise UserError(f"{path}: no such file; is the run's store elsewhere? Name it by --store")
        return read_records(path)


def open_run(path: Path, store: Path | None = None) -> Run:
    """A run by its folder or its result.json; ``store`` where it is not the one its configuration names.

    Raises UserError for anything but a finished run.
    """
    path = path / "result.json" if path.is_dir() else path
    result = read_json(path)
    needed = {"config", "artifacts", "scores", "choice", "backbone"}  # what a torn or hand-made file may lack
    if not isinstance(result, dict) or result.get("status") != "finished" or not needed <= result.keys():
        raise UserError(f"{path}: not the result.json of a finished run")
    return Run(path, result, store or Path(result["config"]["store"]).expanduser())
