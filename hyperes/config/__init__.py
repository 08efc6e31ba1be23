"""The schema: every knob, its type, its default and its meaning. Defaults live here and nowhere else.

conf/*.yaml only choose and override. Nothing in this package imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from hyperes.config.directions import (
    AdapterDirections,
    CmaDirections,
    DirectionsConfig,
    GrpoDirections,
    LoraSettings,
    RandomDirections,
)
from hyperes.config.merging import (
    CabsConfig,
    EvolutionConfig,
    GridConfig,
    MergerConfig,
    OptimizerConfig,
    RevalidationConfig,
    WudiConfig,
)
from hyperes.config.running import EngineConfig, ExecutorConfig, LmEvalConfig, SlurmConfig, TestConfig, TrackingConfig
from hyperes.config.sources import BackboneConfig, BackboneSettings, DatasetConfig, SourceConfig

__all__ = [
    "CONF_DIR",
    "AdapterDirections",
    "BackboneConfig",
    "BackboneSettings",
    "CabsConfig",
    "CmaDirections",
    "Config",
    "DatasetConfig",
    "DirectionsConfig",
    "EngineConfig",
    "EvolutionConfig",
    "ExecutorConfig",
    "GridConfig",
    "GrpoDirections",
    "LmEvalConfig",
    "LoraSettings",
    "MergerConfig",
    "OptimizerConfig",
    "RandomDirections",
    "RevalidationConfig",
    "SlurmConfig",
    "SourceConfig",
    "TestConfig",
    "TrackingConfig",
    "WudiConfig",
]

# In a wheel conf/ travels inside the package; in a checkout it stands beside it.
_PACKAGE = Path(__file__).resolve().parents[1]
CONF_DIR = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


@dataclass
class Config:
    """One run: directions x merger x optimizer on a backbone and a data set."""

    name: str = "hyper_es"  # the method's name in tables and W&B
    seed: int = 0
    store: str = "artifacts"
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    directions: DirectionsConfig = MISSING  # its class is chosen by the group
    merger: MergerConfig = field(default_factory=MergerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    test: TestConfig = field(default_factory=TestConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
