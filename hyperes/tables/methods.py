"""Whether a run is what its name says: its method beside the experiment of that name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hydra.types import RunMode
from omegaconf import OmegaConf

from hyperes.compose import as_plain, composing, to_config
from hyperes.config import CONF_DIR
from hyperes.files import canonical_json

# Settings that bound memory and change no number that a table shows.
COSTS = ("batch_size", "completions_per_pass", "completions_per_generation")
_METHOD = ("directions", "merger", "optimizer")


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """{key: value} of what a run's method has otherwise than the experiment it is named after; {} where there is none.

    The experiment is composed on the run's own backbone and data, so what a backbone sets for all methods is no change.
    """
    if not (CONF_DIR / "experiment" / f"{config['name']}.yaml").exists():
        return {}
    expected = _composed(config["name"], canonical_json([config["backbone"], config["dataset"]]))
    ours, its = ({group: each[group] for group in _METHOD} for each in (config, expected))
    keys = differences(ours, its)
    return {key: at(config, key) for key in keys if key.rpartition(".")[2] not in COSTS}


@lru_cache
def _composed(experiment: str, given: str) -> dict[str, Any]:
    with composing([]) as hydra:
        composed = hydra.compose_config("config", [f"+experiment={experiment}"], RunMode.RUN, from_shell=False)
    untyped: Any = OmegaConf.to_container(composed)  # interpolations stand: they are to find what is given
    del untyped["hydra"]
    untyped["backbone"], untyped["dataset"] = json.loads(given)
    return as_plain(to_config(OmegaConf.create(untyped)))


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys in which two nested settings differ."""
    found = []
    for key in dict.fromkeys([*first, *second]):
        a, b = first.get(key), second.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}")
    return found


def at(setting: Any, key: str) -> Any:
    """The value under a dotted key; None where there is none."""
    for part in key.split("."):
        setting = setting.get(part) if isinstance(setting, dict) else None
    return setting
