"""From the command line to a typed, validated Config: everything that can be refused is refused here.

Nothing in this module imports torch, so a typing mistake costs a second and not a model load.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hyperes.config import (
    CONF_DIR,
    AdapterDirections,
    CmaDirections,
    Config,
    DirectionsConfig,
    GrpoDirections,
    RandomDirections,
)
from hyperes.directions.validation import validate_directions
from hyperes.errors import UserError
from hyperes.search.validation import validate_merger, validate_optimizer

DIRECTION_SOURCES: dict[str, type[DirectionsConfig]] = {
    "grpo": GrpoDirections,
    "cma": CmaDirections,
    "random": RandomDirections,
    "adapters": AdapterDirections,
    "none": DirectionsConfig,
}
PARTITIONS = ("hops", "category", "random", "all")
CHOICES = {
    "backbone.dtype": ("float32", "bfloat16", "float16"),
    "dataset.partition": ("hops", "category"),
    "directions.partition": PARTITIONS,
    "directions.grpo.partition": PARTITIONS,
    "merger.operator": ("dare_ties", "task_arithmetic", "cabs", "wudi"),
    "merger.magnitude": ("scale_times_count", "scale", "one", "weights"),
    "merger.mask": ("fixed", "resampled"),
    "optimizer.space": ("per_block", "per_layer", "per_module", "global"),
    "optimizer.evolution.answer": ("mean", "best", "best_revalidated"),
    "engine.kind": ("hf",),
    "executor.name": ("local", "inline", "slurm"),
    "tracking.mode": ("offline", "online", "disabled"),
}
POSITIVE: tuple[str, ...] = (
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
    "directions.generations",
    "directions.sigma",
    "directions.problems_per_generation",
    "directions.batch_size",
    "directions.norm",
    "merger.scale",
    "merger.cabs.block",
    "merger.cabs.keep",
    "merger.wudi.steps",
    "merger.wudi.step_size",
    "optimizer.evolution.sigma",
    "optimizer.evolution.population",
    "optimizer.evolution.generations",
    "optimizer.evolution.evaluations",
    "optimizer.evolution.revalidation.candidates",
    "engine.max_new_tokens",
    "engine.batch_size",
    "executor.workers",
    "executor.threads",
    "executor.slurm.minutes",
    "test.limit",
    "test.lm_eval.limit",
    "test.samples",
)
# The pool that directions=random matches has the settings of directions=grpo.
POSITIVE += tuple(key.replace(".", ".grpo.", 1) for key in POSITIVE if key.startswith("directions."))


def register() -> None:
    """Put the schema where conf/config.yaml finds it."""
    store = ConfigStore.instance()
    store.store(name="hyperes_schema", node=Config)
    for name, node in DIRECTION_SOURCES.items():
        store.store(group="directions_schema", name=name, node=node(source=name))


@contextmanager
def composing(overrides: Sequence[str]) -> Iterator[Any]:
    """Hydra over conf/, outside of its own main; what it raises of the overrides is UserError with one clear line."""
    register()
    try:
        with explained(overrides), initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            yield GlobalHydra.instance().hydra
    finally:
        GlobalHydra.instance().clear()


@contextmanager
def explained(overrides: Sequence[str]) -> Iterator[None]:
    """Hydra's and OmegaConf's errors as UserError with one clear line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(_explain(error)) from error
    except AssertionError as error:  # OmegaConf's own, for a key inside a node that is null
        inside = ", ".join(item.partition("=")[0] for item in overrides if item.partition("=")[0].count(".") > 1)
        raise UserError(f"{inside}: goes into a part that is null here, as optimizer.evolution is in optimizer=grid "
                        "or merger.cabs in another merger; choose the group that has it") from error  # fmt: skip


def search_path(config_dir: str | None) -> list[str]:
    """The override that adds a user's own folder of configurations (``--config-dir``)."""
    return [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []


def precheck(overrides: Sequence[str], config_dir: str | None) -> None:
    """Compose once before Hydra takes over, to turn its errors into one clear line.

    Raises UserError that names the key and, for an unknown one, the keys or choices there are.
    """
    with composing(overrides) as hydra:
        overrides = [*overrides, *search_path(config_dir)]
        composed = hydra.compose_config("config", overrides, RunMode.RUN, from_shell=False)
    check(composed)


def check(composed: DictConfig) -> Config:
    """Type and validate a configuration that still has its hydra node; raises UserError."""
    chosen = composed.hydra.runtime.choices.get("direction_count")
    plain = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    config = to_config(plain)
    count = config.directions.count
    if chosen and re.fullmatch(r"n\d+", chosen) and int(chosen[1:]) != count:  # a user's own choice may bear any name
        raise UserError(f"direction_count={chosen}: this experiment has directions.count={count}; drop one of the two")
    return config


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
    _require_finite("", as_plain(config))
    for key in POSITIVE:
        value = _lookup(config, key)
        if isinstance(value, (int, float)) and not value > 0:
            raise UserError(f"{key}={value}: must be above 0")
    if not re.fullmatch(r"[\w.+-]+", config.name):
        raise UserError(f"name={config.name!r}: letters, digits and . + - _ only: it is part of a path")
    if not config.store.strip():
        raise UserError("store is empty: name a folder")
    if config.seed < 0:
        raise UserError(f"seed={config.seed}: must be at least 0")
    if not config.dataset.suites:
        raise UserError("dataset.suites is empty: a run ends in a test, give at least one suite")
    validate_directions(config)
    validate_merger(config)
    validate_optimizer(config)
    if config.test.temperature < 0 or not 0 < config.test.top_p <= 1:
        raise UserError("test.temperature must be at least 0 and test.top_p in (0, 1]")
    if config.test.samples > 1 and config.test.temperature == 0:
        raise UserError(
            f"test.samples={config.test.samples}: greedy samples are all equal; set test.temperature or test.samples=1"
        )
    if config.test.suites is not None and len(set(config.test.suites)) < max(1, len(config.test.suites)):
        raise UserError(f"test.suites={config.test.suites}: name at least one suite, and each once (null: all)")
    if (config.test.lm_eval.num_fewshot or 0) < 0:
        raise UserError(f"test.lm_eval.num_fewshot={config.test.lm_eval.num_fewshot}: must be at least 0")
    unknown = set(config.test.suites or ()) - set(config.dataset.suites)
    if unknown:
        raise UserError(
            f"test.suites: {', '.join(sorted(unknown))} not in dataset={config.dataset.name}; "
            f"choose from {', '.join(config.dataset.suites)}"
        )


def _require_finite(key: str, value: object) -> None:
    """Raises UserError for the first number anywhere in the configuration that is NaN or infinite."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _require_finite(f"{key}.{name}" if key else str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            _require_finite(key, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}={value}: must be a finite number")


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
    if "hydra/launcher/submitit_slurm" in text:
        return "executor=slurm needs hydra-submitit-launcher: pip install 'hyperes[slurm]'"
    if "override_grammar" in text:
        return f"{text} (a value with a comma, quote or bracket needs quotes of its own: 'key=\"a, b\"')"
    if match := re.search(r"Key '[^']+' is not in struct key (\S+)", text):
        return f"{match.group(1)}: not there yet; a new entry takes a plus, +{match.group(1)}=..."
    match = re.search(r"Key '([^']+)' (?:is )?not in '([^']+)'", text)
    if match:
        key, owner = match.groups()
        known = _known_keys(owner)
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        where = re.search(r"key ([\w.]+)", text)
        text = f"{where.group(1) if where else key}: no such key{hint}; known here: {', '.join(known)}"
    return text


def _known_keys(owner: str) -> list[str]:
    import hyperes.config as schema

    node = getattr(schema, owner, None)
    return [item.name for item in fields(node)] if node else []


def as_plain(config: Config) -> dict:
    """The configuration as plain JSON values."""
    return asdict(config)
