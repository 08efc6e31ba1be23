"""Where descent directions come from. What is MISSING is the backbone's or the data set's, and conf/ fills it in."""

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
    count: int = MISSING
    partition: str = MISSING  # hops | category | random | all
    steps: int = MISSING
    prompts_per_step: int = MISSING
    group_size: int = 8  # completions per prompt; not published
    completions_per_pass: int = MISSING
    completions_per_generation: int = MISSING
    learning_rate: float = MISSING
    temperature: float = 1.0
    clip: float = 0.2  # epsilon of eq. 1
    max_new_tokens: int = MISSING
    shared_initialisation: bool = False  # true: every direction starts from the same LoRA A
    lora: LoraSettings | None = field(default_factory=LoraSettings)  # null: all parameters are trained


@dataclass
class CmaDirections(DirectionsConfig):
    """CMA-ES on the LoRA parameters themselves, one run per subset: no gradients, fitness is accuracy on the subset.

    Separable: of the covariance of millions of variables only the diagonal is learned, all else fits nowhere.
    """

    source: str = "cma"
    count: int = MISSING
    partition: str = MISSING  # hops | category | random | all
    generations: int = MISSING
    population: int | None = MISSING  # null: 4 + floor(3 ln dimension), eq. 27
    sigma: float = MISSING
    problems_per_generation: int = MISSING  # of the subset; every candidate of a generation answers the same, greedily
    max_new_tokens: int = MISSING
    batch_size: int = MISSING
    lora: LoraSettings = field(default_factory=LoraSettings)


@dataclass
class RandomDirections(DirectionsConfig):
    """Gaussian LoRA deltas, all of one norm: directions without any task in them."""

    source: str = "random"
    count: int = MISSING
    # of each whole delta (Frobenius) | match_grpo: the mean norm of the pool `grpo`
    norm: int | float | str = "match_grpo"
    lora: LoraSettings = field(default_factory=LoraSettings)
    grpo: GrpoDirections | None = None  # trained, or reused, for its norm alone


@dataclass
class AdapterDirections(DirectionsConfig):
    """LoRA adapters made elsewhere, as PEFT folders, all for this backbone."""

    source: str = "adapters"
    count: int = 0
    paths: list[str] = field(default_factory=list)
