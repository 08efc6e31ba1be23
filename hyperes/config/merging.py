"""How directions are merged, and how the coefficients are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class CabsConfig:
    """What of a direction CABS keeps: in every `block` consecutive entries of a weight, the `keep` largest."""

    block: int = 256  # m
    keep: int | None = None  # n; null: block // N, an equal share for every direction


@dataclass
class WudiConfig:
    """Adam's steps towards the update with the least interference."""

    steps: int = 300
    # in units of the root mean square of a weight's task vectors: WUDI's 1e-5 where that is 3e-4 (full fine-tuning)
    step_size: float = 0.03


@dataclass
class MergerConfig:
    """The merge operator (eq. 18-21) and the magnitude of the merged update."""

    name: str = MISSING
    operator: str = "dare_ties"  # dare_ties (and what is left of it without a flag) | task_arithmetic | cabs | wudi
    dare: bool = False  # of dare_ties: drop entries at random
    ties: bool = False  # of dare_ties: elect signs
    density: float = 1.0  # of TIES: share of each direction's entries, the largest, that is kept before the election
    cabs: CabsConfig | None = None  # of cabs
    wudi: WudiConfig | None = None  # of wudi
    # scale_times_count: gamma = scale x N (eq. 21) | scale: gamma = scale (lambda) | one: gamma = 1
    # | weights: gamma = 1 and every direction's weight = scale (lambda_i)
    magnitude: str = "scale_times_count"
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
class RevalidationConfig:
    """Of answer=best_revalidated: a part of the validation set is kept from the search, to choose among its best."""

    candidates: int = 8  # so many of the best seen are evaluated again
    share: float = 0.25  # of the validation problems


@dataclass
class EvolutionConfig:
    """The search over the merge coefficients: CMA-ES (eq. 23-31), or any algorithm that nevergrad has."""

    algorithm: str = "cma"  # cma | a name in nevergrad's registry: OnePlusOne, RandomSearch, NGOpt, DE, PSO, ...
    arguments: dict[str, Any] = field(default_factory=dict)  # nevergrad's own, of an algorithm other than cma
    sigma: float = 0.3  # initial step size, about the start
    population: int | None = MISSING  # candidates asked together; null: 4 + floor(3 ln dimension), eq. 27
    generations: int | None = MISSING  # the budget: this, or
    evaluations: int | None = None  # so many candidates at most; one of the two is null
    diagonal: bool = False  # separable CMA-ES
    # mean: of the final distribution, the paper's (cma alone has one) | best: seen on validation, the start included
    # | best_revalidated: of the best seen, the one that is best on validation problems that the search did not see
    answer: str = "mean"
    revalidation: RevalidationConfig = field(default_factory=RevalidationConfig)


@dataclass
class OptimizerConfig:
    """How the merge coefficients are chosen: nothing, a grid, an evolution from the merger's own point, or both."""

    name: str = MISSING
    # what shares its coefficients in the evolution: per_block (attention and MLP of every layer, the paper's)
    # | per_layer | per_module (single weights) | global
    space: str = "per_block"
    grid: GridConfig | None = None
    evolution: EvolutionConfig | None = None
