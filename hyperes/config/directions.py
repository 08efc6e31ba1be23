"""Where descent directions come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING


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
    partition: str = "hops"  # hops | category | random | all
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
    lora: LoraSettings | None = field(default_factory=LoraSettings)  # null: all parameters are trained


@dataclass
class CmaDirections(DirectionsConfig):
    """CMA-ES on the LoRA parameters themselves, one run per subset: no gradients, fitness is accuracy on the subset.

    Separable: of the covariance of millions of variables only the diagonal is learned, all else fits nowhere.
    """

    source: str = "cma"
    count: int = 10
    partition: str = "hops"  # hops | category | random | all
    generations: int = 7
    population: int | None = None  # null: 4 + floor(3 ln dimension), eq. 27
    sigma: float = 0.004
    problems_per_generation: int = 256  # of the subset; every candidate of a generation answers the same, greedily
    max_new_tokens: int = 1024
    batch_size: int = 256
    lora: LoraSettings = field(default_factory=LoraSettings)


@dataclass
class RandomDirections(DirectionsConfig):
    """Gaussian LoRA deltas, all of one norm: directions without any task in them."""

    source: str = "random"
    count: int = 10
    norm: int | float | str = (
        "match_grpo"  # of each whole delta (Frobenius) | match_grpo: the mean norm of the pool `grpo`
    )
    lora: LoraSettings = field(default_factory=LoraSettings)
    grpo: GrpoDirections | None = None  # trained, or reused, for its norm alone


@dataclass
class AdapterDirections(DirectionsConfig):
    """LoRA adapters made elsewhere, as PEFT folders, all for this backbone."""

    source: str = "adapters"
    count: int = 0
    paths: list[str] = field(default_factory=list)
