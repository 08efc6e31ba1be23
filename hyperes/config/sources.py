"""Where the model and the problems come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class BackboneSettings:
    """Numbers that belong to a backbone rather than to a method. Other groups refer to them by interpolation."""

    direction_count: int = 10  # N
    steps: int = 7  # optimiser steps of one direction
    baseline_steps: int = 78  # of the single-run baselines; 78 x 256 = 19,968 samples
    learning_rate: float = 2e-5  # of the short GRPO runs; not published
    full_learning_rate: float = 5e-6  # of full-parameter GRPO: tiny-grpo's own value
    # Initial step of CMA-ES on LoRA parameters; not published. 0.004 moves the weights of a model of 0.5-1.5 billion by
    # about 0.001 each, the step of evolution strategies on all parameters (arXiv 2509.24372).
    lora_sigma: float = 0.004
    prompts_per_step: int = 256  # prompts (not completions) of one optimiser step
    completions_per_pass: int = 16  # completions in one forward and backward pass: bounds activation memory
    completions_per_generation: int = 256  # completions sampled together: bounds cache memory
    max_new_tokens: int = 1024
    batch_size: int = 256  # completions generated together
    generations: int = 20  # of CMA-ES; not published
    evaluations: int = 480  # of a search that counts single candidates: as many as 20 generations of 24
    population: int | None = None  # null: 4 + floor(3 ln dimension), eq. 27
    scales: list[float] = field(default_factory=lambda: [round(1 + k / 10, 1) for k in range(21)])
    drop_rates: list[float] = field(default_factory=lambda: [0.3, 0.5, 0.7, 0.9])
    test_samples: int = 1  # completions per test problem: Mean@k
    test_temperature: float = 0.0
    test_top_p: float = 1.0


@dataclass
class BackboneConfig:
    """A causal language model with a chat template, from the hub or from a folder."""

    name: str = MISSING  # how tables and W&B call it
    path: str = MISSING  # hub id, or local folder; "bundled" is the model inside the package
    revision: str | None = None  # hub revision (branch, tag or commit)
    gguf_file: str | None = None  # name of a GGUF file inside `path`
    # float32 | bfloat16 | float16. In bfloat16 a merge with a small gamma is mostly rounded away, which would bias
    # comparisons of mergers.
    dtype: str = "float32"
    attention: str = "sdpa"  # transformers' attention implementation
    device: str = "auto"  # auto | cpu | cuda | cuda:1; the kind is in a result's identity, the index is not
    settings: BackboneSettings = field(default_factory=BackboneSettings)


@dataclass
class SourceConfig:
    """Problems from one place."""

    format: str = MISSING  # generated, or a name in hyperes/datasets/formats.py
    path: str = MISSING  # local file or hub id; for `generated` the suite's name
    name: str | None = None  # of the hub data set's configuration
    revision: str | None = None  # of a hub data set
    split: str = "train"
    file: str | None = None  # what is read from dataset.folder, where that is set, in place of a hub id
    limit: int | None = None  # take the first so many


@dataclass
class DatasetConfig:
    """Where the problems come from."""

    name: str = MISSING
    train: SourceConfig = field(default_factory=SourceConfig)
    suites: dict[str, SourceConfig] = field(default_factory=dict)
    validation_size: int = 600
    partition: str = "hops"  # how directions share its training problems out: what it tells of each, hops | category
    folder: str | None = None  # of local files: every hub source becomes FOLDER/FILE (hyperes/datasets/sources.py)
