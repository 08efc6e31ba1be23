"""Merge operators: pure functions of the deltas of one weight, each in its own module, and which one a candidate uses.

Every operator has two halves. ``prepare`` is what no coefficient changes (trimming, CABS' disjoint choice, the whole of
WUDI): the caller keeps its result. ``combine`` is the rest. The caller applies θ₀ + γ·combine(...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hyperes.genome import Candidate, Operator
from hyperes.mergers.cabs import disjoint
from hyperes.mergers.dare_ties import merge
from hyperes.mergers.task_arithmetic import weighted_sum
from hyperes.mergers.trim import trim
from hyperes.mergers.wudi import wudi

__all__ = ["combine", "disjoint", "merge", "prepare", "trim", "weighted_sum", "wudi"]


def prepare(
    operator: Operator, deltas: Callable[[], Tensor], factors: Callable[[], Sequence[tuple[Tensor, Tensor]]] | None
) -> Tensor:
    """What ``combine`` starts from, (M, *shape): a function of the directions alone.

    ``deltas`` gives Δθᵢ as (N, *shape), ``factors`` those of a matrix as pairs (left, right) of Δθᵢ = left @ right, and
    is None for other shapes; only the one that the operator needs is called. M is N, and 1 for WUDI, which is for
    matrices: of anything else the mean is taken. Raises ValueError for an operator of another name.
    """
    parameters: dict[str, Any] = dict(operator.parameters)
    match operator.name:
        case "dare_ties":
            return trim(deltas(), **parameters) if parameters else deltas()
        case "task_arithmetic":
            return deltas()
        case "cabs":
            return disjoint(deltas(), **parameters)
        case "wudi":
            return wudi(factors(), **parameters)[None] if factors else deltas().mean(0, keepdim=True)
    raise ValueError(f"no merge operator {operator.name}")


def combine(candidate: Candidate, row: int, prepared: Tensor, uniform: Tensor | None) -> Tensor:
    """The merged update of one weight, ``prepared``'s shape without the first dimension, before the factor γ.

    ``row`` is the weight's group in the candidate; ``uniform`` is the field that DARE's masks are cut from.
    """
    if candidate.operator.name == "dare_ties":
        rate, weight = candidate.drop_rate[row], candidate.weight[row]
        return merge(prepared, rate, weight, uniform, dare=candidate.dare, ties=candidate.ties)
    weight = candidate.weight[row] if candidate.operator.name != "wudi" else np.ones(1)
    return weighted_sum(prepared, weight)
