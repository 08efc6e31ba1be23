"""From the command line to a typed, validated Config: everything that can be refused is refused here.

Nothing in this module imports torch, so a typing mistake costs a second and not a model load.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hyperes.config import (
    CONF_DIR,
    AdapterDirections,
    Config,
    DirectionsConfig,
    GrpoDirections,
)
from hyperes.errors import UserError

DIRECTION_SOURCES: dict[str, type[DirectionsConfig]] = {
    "grpo": GrpoDirections,
    "adapters": AdapterDirections,
    "none": DirectionsConfig,
}
CHOICES = {
    "backbone.dtype": ("float32", "bfloat16", "float16"),
    "directions.partition": ("hops", "random", "all"),
    "merger.magnitude": ("scale_times_count", "one"),
    "merger.mask": ("fixed", "resampled"),
    "engine.kind": ("hf",),
    "executor.name": ("local", "inline"),
    "tracking.mode": ("offline", "online", "disabled"),
}
POSITIVE = (
    "dataset.train.limit",
    "dataset.validation_size",
    "directions.steps",
    "directions.prompts_per_step",
    "directions.completions_per_pass",
    "directions.completions_per_generation",
    "directions.learning_rate",
    "directions.temperature",
    "directions.max_new_tokens",
    "directions.lora.rank",
    "directions.lora.alpha",
    "optimizer.evolution.sigma",
    "optimizer.evolution.generations",
    "engine.max_new_tokens",
    "engine.batch_size",
    "executor.workers",
    "executor.threads",
    "test.limit",
)


def register() -> None:
    """Put the schema where conf/config.yaml finds it."""
    store = ConfigStore.instance()
    store.store(name="hyperes_schema", node=Config)
    for name, node in DIRECTION_SOURCES.items():
        store.store(group="directions_schema", name=name, node=node(source=name))


def precheck(overrides: Sequence[str], config_dir: str | None) -> None:
    """Compose once before Hydra takes over, to turn its errors into one clear line.

    Raises UserError that names the key and, for an unknown one, the keys or choices there are.
    """
    register()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            search_path = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
            composed = compose("config", overrides=[*overrides, *search_path], return_hydra_config=True)
            chosen = composed.hydra.runtime.choices.get("direction_count")
            OmegaConf.set_struct(composed, False)
            del composed["hydra"]
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(_explain(error)) from error
    finally:
        GlobalHydra.instance().clear()
    count = to_config(composed).directions.count
    if chosen and int(chosen.removeprefix("n")) != count:
        raise UserError(f"direction_count={chosen}: this experiment has directions.count={count}; drop one of the two")


def to_config(composed: DictConfig) -> Config:
    """Type a composed configuration by the schema, then validate it; raises UserError."""
    for group in ("backbone", "dataset", "directions", "merger", "optimizer", "engine", "executor", "test", "tracking"):
        if composed.get(group) is None:
            raise UserError(f"{group}=null: this group cannot be empty; see --help for its choices")
    source = composed.directions.get("source")
    if source not in DIRECTION_SOURCES:
        raise UserError(f"directions.source={source}: no such choice; choose from {', '.join(DIRECTION_SOURCES)}")
    try:
        schema = OmegaConf.structured(Config(directions=DIRECTION_SOURCES[source](source=source)))
        # A second merge into the schema: a key forced in with a plus sign is refused here.
        plain = OmegaConf.to_container(composed, resolve=True)
        config = OmegaConf.to_object(OmegaConf.merge(schema, plain))
    except OmegaConfBaseException as error:
        raise UserError(_explain(error)) from error
    assert isinstance(config, Config)
    validate(config)
    return config


def validate(config: Config) -> None:
    """Refuse impossible values and combinations; raises UserError naming the key and what to do."""
    for key, choices in CHOICES.items():
        value = _lookup(config, key)
        if value is not None and value not in choices:
            raise UserError(f"{key}={value}: no such choice; choose from {', '.join(choices)}")
    for key in POSITIVE:
        value = _lookup(config, key)
        if isinstance(value, (int, float)) and not value > 0:  # NaN too
            raise UserError(f"{key}={value}: must be above 0")
    if config.seed < 0:
        raise UserError(f"seed={config.seed}: must be at least 0")
    if not config.dataset.suites:
        raise UserError("dataset.suites is empty: a run ends in a test, give at least one suite")
    directions, optimizer, merger = config.directions, config.optimizer, config.merger
    if directions.source == "none":
        if directions.count:
            raise UserError(f"directions.count={directions.count}: directions=none has none; drop one of the two")
        if optimizer.grid or optimizer.evolution:
            raise UserError(f"optimizer={optimizer.name}: nothing to search without directions; use optimizer=none")
    elif isinstance(directions, AdapterDirections):
        if not directions.paths:
            raise UserError("directions.paths is empty: give the adapter folders, directions.paths=[DIR1,DIR2]")
        if directions.count not in (0, len(directions.paths)):
            raise UserError(
                f"directions.count={directions.count}: directions.paths lists {len(directions.paths)} folders"
            )
        directions.count = len(directions.paths)
    elif directions.count < 1:
        raise UserError(
            f"directions.count={directions.count}: {directions.source} needs at least 1 (or directions=none)"
        )
    if isinstance(directions, GrpoDirections):
        _validate_grpo(directions)
    if optimizer.evolution and not (merger.dare or merger.ties):
        raise UserError(f"merger={merger.name} has no coefficients for CMA-ES; use optimizer=none or another merger")
    if merger.magnitude == "one" and optimizer.grid:
        raise UserError(f"merger={merger.name} has no scale for a grid to choose; use optimizer=none")
    if optimizer.evolution and not optimizer.grid and optimizer.name == "grid_cma":
        raise UserError("optimizer.grid is null: grid_cma starts CMA-ES from the grid's best point")
    if optimizer.grid:
        _validate_grid(config)
    if optimizer.evolution and optimizer.evolution.population is not None and optimizer.evolution.population < 4:
        raise UserError(f"optimizer.evolution.population={optimizer.evolution.population}: must be at least 4")
    if not 0 < merger.drop_rate < 1:
        raise UserError(f"merger.drop_rate={merger.drop_rate}: must lie strictly between 0 and 1")
    if config.test.temperature < 0 or not 0 < config.test.top_p <= 1:
        raise UserError("test.temperature must be at least 0 and test.top_p in (0, 1]")
    unknown = set(config.test.suites or ()) - set(config.dataset.suites)
    if unknown:
        raise UserError(
            f"test.suites: {', '.join(sorted(unknown))} not in dataset={config.dataset.name}; "
            f"choose from {', '.join(config.dataset.suites)}"
        )


def _validate_grpo(directions: GrpoDirections) -> None:
    if directions.group_size < 2:
        raise UserError(f"directions.group_size={directions.group_size}: group-standardised rewards need at least 2")
    if directions.partition == "all" and directions.count != 1:
        raise UserError(
            f"directions.partition=all with directions.count={directions.count}: "
            "one direction on all the data; set directions.count=1 or another partition"
        )
    completions = directions.prompts_per_step * directions.group_size
    if completions % directions.completions_per_pass or directions.completions_per_pass % directions.group_size:
        raise UserError(
            f"directions.completions_per_pass={directions.completions_per_pass}: must be a multiple of "
            f"group_size={directions.group_size} and divide prompts_per_step x group_size = {completions}"
        )
    chunk = directions.completions_per_generation
    if completions % chunk or chunk % directions.completions_per_pass:
        raise UserError(
            f"directions.completions_per_generation={chunk}: must be a multiple of completions_per_pass="
            f"{directions.completions_per_pass} and divide prompts_per_step x group_size = {completions}"
        )


def _validate_grid(config: Config) -> None:
    grid, merger = config.optimizer.grid, config.merger
    assert grid is not None
    if not grid.scales or not all(scale > 0 for scale in grid.scales):
        raise UserError(f"optimizer.grid.scales={grid.scales}: give at least one, each above 0")
    if not grid.drop_rates or not all(0 < p < 1 for p in grid.drop_rates):
        raise UserError(
            f"optimizer.grid.drop_rates={grid.drop_rates}: give at least one, each strictly between 0 and 1"
        )
    if merger.dare not in grid.dare or merger.ties not in grid.ties:
        raise UserError(
            f"optimizer.grid has no point with the flags of merger={merger.name} "
            f"(dare={merger.dare}, ties={merger.ties}); add them to optimizer.grid.dare and .ties"
        )


def _lookup(config: Config, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part, None)
    return value


def _explain(error: Exception) -> str:
    """One line from Hydra's or OmegaConf's error, with the known keys where one is unknown."""
    while error.__cause__ is not None and isinstance(error.__cause__, (HydraException, OmegaConfBaseException)):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(line for line in lines if not re.match(r"(object_type|reference_type)=|provider=", line))
    text = text.removeprefix("In 'config': ").removesuffix(" Config search path:")
    text = text.replace("full_key: ", "key ")
    match = re.search(r"Key '([^']+)' (?:is )?not in '([^']+)'", text)
    if match:
        key, owner = match.groups()
        known = _known_keys(owner)
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        where = re.search(r"key ([\w.]+)", text)
        text = f"{where.group(1) if where else key}: no such key{hint} Known here: {', '.join(known)}"
    return text


def _known_keys(owner: str) -> list[str]:
    import hyperes.config as schema

    node = getattr(schema, owner, None)
    return [item.name for item in fields(node)] if node else []


def as_plain(config: Config) -> dict:
    """The configuration as plain JSON values."""
    return asdict(config)
