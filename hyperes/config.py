"""The schema: every knob, its type, its default and its meaning. Defaults live here and nowhere else.

conf/*.yaml only choose and override. Nothing in this module imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

# In a wheel conf/ travels inside the package; in a checkout it stands beside it.
_PACKAGED = Path(__file__).with_name("conf")
CONF_DIR = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[1] / "conf"


@dataclass
class BackboneSettings:
    """Numbers that belong to a backbone rather than to a method. Other groups refer to them by interpolation."""

    direction_count: int = 10  # N
    steps: int = 7  # optimiser steps of one direction
    baseline_steps: int = 78  # of the single-run baselines; 78 x 256 = 19,968 samples
    learning_rate: float = 2e-5  # of the short GRPO runs; not published
    prompts_per_step: int = 256  # prompts (not completions) of one optimiser step
    completions_per_pass: int = 16  # completions in one forward and backward pass: bounds activation memory
    completions_per_generation: int = 256  # completions sampled together: bounds cache memory
    max_new_tokens: int = 1024
    batch_size: int = 256  # completions generated together
    generations: int = 20  # of CMA-ES; not published
    population: int | None = None  # null: 4 + floor(3 ln dimension), eq. 27
    scales: list[float] = field(default_factory=lambda: [round(1 + k / 10, 1) for k in range(21)])
    drop_rates: list[float] = field(default_factory=lambda: [0.3, 0.5, 0.7, 0.9])


@dataclass
class BackboneConfig:
    """A causal language model with a chat template, from the hub or from a folder."""

    name: str = MISSING  # how tables and W&B call it
    path: str = MISSING  # hub id, or local folder; "bundled" is the model inside the package
    revision: str | None = None  # hub revision (branch, tag or commit)
    gguf_file: str | None = None  # name of a GGUF file inside `path`
    dtype: str = "float32"  # float32 | bfloat16 | float16
    attention: str = "sdpa"  # transformers' attention implementation
    device: str = "auto"  # auto | cpu | cuda | cuda:1; never part of a result's identity
    settings: BackboneSettings = field(default_factory=BackboneSettings)


@dataclass
class SourceConfig:
    """Problems from one place."""

    format: str = MISSING  # generated | gsm8k
    path: str = MISSING  # local file or hub id; for `generated` the suite's name
    revision: str | None = None  # of a hub data set
    split: str = "train"
    limit: int | None = None  # take the first so many


@dataclass
class DatasetConfig:
    """Where the problems come from."""

    name: str = MISSING
    train: SourceConfig = field(default_factory=SourceConfig)
    suites: dict[str, SourceConfig] = field(default_factory=dict)
    validation_size: int = 600


@dataclass
class LoraSettings:
    """The adapter of a direction (paper, section 4.1)."""

    rank: int = 32
    alpha: int = 64
    target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )


@dataclass
class DirectionsConfig:
    """Where descent directions come from: their source and count N."""

    source: str = MISSING
    count: int = 0


@dataclass
class GrpoDirections(DirectionsConfig):
    """Short GRPO+LoRA runs, one per subset of the training data (eq. 1)."""

    source: str = "grpo"
    count: int = 10
    partition: str = "hops"  # hops | random | all
    steps: int = 7
    prompts_per_step: int = 256
    group_size: int = 8  # completions per prompt; not published
    completions_per_pass: int = 16
    completions_per_generation: int = 256
    learning_rate: float = 2e-5
    temperature: float = 1.0
    clip: float = 0.2  # epsilon of eq. 1
    max_new_tokens: int = 1024
    shared_initialisation: bool = False  # true: every direction starts from the same LoRA A
    lora: LoraSettings = field(default_factory=LoraSettings)


@dataclass
class AdapterDirections(DirectionsConfig):
    """LoRA adapters made elsewhere, as PEFT folders, all for this backbone."""

    source: str = "adapters"
    count: int = 0
    paths: list[str] = field(default_factory=list)


@dataclass
class MergerConfig:
    """The merge operator (eq. 18-21)."""

    name: str = MISSING
    dare: bool = MISSING  # drop entries at random
    ties: bool = MISSING  # elect signs
    magnitude: str = "scale_times_count"  # gamma: scale_times_count (eq. 21) | one
    scale: float = 1.0  # used where no grid chooses it
    drop_rate: float = 0.5  # used where no grid chooses it
    mask: str = "fixed"  # fixed: one uniform field for every candidate | resampled: a new one per candidate


@dataclass
class GridConfig:
    """The warm start (eq. 22)."""

    scales: list[float] = field(default_factory=list)
    drop_rates: list[float] = field(default_factory=list)
    dare: list[bool] = field(default_factory=lambda: [False, True])
    ties: list[bool] = field(default_factory=lambda: [False, True])


@dataclass
class EvolutionConfig:
    """CMA-ES over the merge coefficients (eq. 23-31)."""

    sigma: float = 0.3  # initial step size
    population: int | None = None  # null: 4 + floor(3 ln dimension), eq. 27
    generations: int = 20
    diagonal: bool = False  # separable CMA-ES


@dataclass
class OptimizerConfig:
    """How the merge coefficients are chosen: nothing, a grid, or a grid and then CMA-ES."""

    name: str = MISSING
    grid: GridConfig | None = None
    evolution: EvolutionConfig | None = None


@dataclass
class EngineConfig:
    """What turns prompts into completions during search and test."""

    kind: str = "hf"
    max_new_tokens: int = 1024
    batch_size: int = 256


@dataclass
class ExecutorConfig:
    """Who does the work. Never part of a result's identity."""

    name: str = "local"
    workers: int = 1  # processes at a time
    threads: int | None = None  # CPU threads per worker; null: cores divided by workers


@dataclass
class TestConfig:
    """The final evaluation."""

    suites: list[str] | None = None  # null: all suites of the data set
    limit: int | None = None  # first so many problems of each suite
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass
class TrackingConfig:
    """Weights & Biases."""

    mode: str = "offline"  # offline | online | disabled
    project: str = "hyperes"
    entity: str | None = None
    folder: str = "."  # W&B writes into FOLDER/wandb


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
