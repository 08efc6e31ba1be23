"""Weights & Biases. The only door to wandb.

The store is the history: whoever restarts a run logs its finished stages again from their artifacts. Offline that
writes one new folder and removes the superseded one; online the run resumes by its id and W&B drops the steps it has.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from hyperes.config import Config, TrackingConfig
from hyperes.errors import UserError

# Each stage counts in its own unit; W&B plots its metrics against it.
AXES = {"grid": "grid/point", "evolve": "evolve/generation"}


class Tracker:
    """One W&B run for one job, finished in every path. With mode ``disabled`` it does nothing."""

    def __init__(self, config: Config, key: str, plain: Mapping[str, Any]) -> None:
        self._settings: TrackingConfig = config.tracking
        self._config = config
        self._plain = plain
        self._id = key[:16]
        self._step = 0
        self._run: Any = None

    def __enter__(self) -> Tracker:
        if self._settings.mode == "disabled":
            return self
        import wandb

        folder = Path(self._settings.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._superseded = list((folder / "wandb").glob(f"offline-run-*-{self._id}"))
        try:
            self._run = self._start(wandb, folder)
        except wandb.errors.Error as error:
            raise UserError(f"tracking.mode={self._settings.mode}: W&B does not start ({error})") from error
        pools = ("directions", "matched") if self._config.directions.source == "random" else ("directions",)
        for prefix in (f"{pool}/{index:02d}" for pool in pools for index in range(self._config.directions.count)):
            self._run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
        for stage, axis in AXES.items():
            self._run.define_metric(f"{stage}/*", step_metric=axis)
        return self

    def _start(self, wandb: Any, folder: Path) -> Any:
        config = self._config
        return wandb.init(
            mode=self._settings.mode,
            project=self._settings.project,
            entity=self._settings.entity,
            dir=str(folder),
            id=self._id,
            resume="allow",
            name=f"{config.name}/{config.backbone.name}/seed{config.seed}",
            group=f"{config.backbone.name}/{config.dataset.name}",
            job_type=config.name,
            tags=[
                config.backbone.name,
                config.dataset.name,
                f"directions:{config.directions.source}",
                f"n{config.directions.count}",
                f"merger:{config.merger.name}",
                f"optimizer:{config.optimizer.name}",
            ],
            config=dict(self._plain),
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def log(self, prefix: str, row: Mapping[str, Any]) -> None:
        """One row of history, its names put under ``prefix``. Rows must come in the same order in every restart."""
        if self._run is not None:
            numbers = {f"{prefix}/{name}": value for name, value in row.items() if isinstance(value, (int, float))}
            self._run.log(numbers, step=self._step)
        self._step += 1

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final scores."""
        if self._run is not None:
            self._run.summary.update(dict(values))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is None:
            return
        self._run.finish(exit_code=0 if kind is None else 1)
        if kind is None:
            for folder in self._superseded:
                shutil.rmtree(folder, ignore_errors=True)
