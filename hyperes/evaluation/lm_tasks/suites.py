"""Functions of the task files: the problems as our loaders read them, and our judge."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import datasets
from omegaconf import OmegaConf

from hyperes.config import CONF_DIR, SourceConfig
from hyperes.datasets import sources
from hyperes.evaluation.judge import judge as judge_many
from hyperes.problems import TEST, Problem, load


def documents(group: str, suite: str, folder: str | None = None, **_: Any) -> dict[str, Any]:
    """A suite of conf/suites/GROUP.yaml, from the hub or from local files: --metadata '{"folder": DIR}'."""
    path = CONF_DIR / "suites" / f"{group}.yaml"
    source = OmegaConf.to_object(OmegaConf.merge(SourceConfig, OmegaConf.select(OmegaConf.load(path), suite)))
    assert isinstance(source, SourceConfig)
    problems = load(sources.placed(source, folder), TEST)
    return {"test": datasets.Dataset.from_list([asdict(problem) for problem in problems])}


def judge(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    """1 where our judge calls the completion correct."""
    return {"accuracy": float(judge_many(results, [Problem(**document)])[0].correct)}
