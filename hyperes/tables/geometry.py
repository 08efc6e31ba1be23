"""How directions lie to each other: cosines and norms of task vectors (Figure 2, Tables 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hyperes.evaluation.live import Bench, Live
from hyperes.genome import Candidate
from hyperes.pool import Factors, read_pool


def inner(first: Any, second: Any) -> float:
    """⟨ΔW₁, ΔW₂⟩ of one weight. Of two LoRA pairs tr(B₁ᵀB₂·A₂A₁ᵀ), without forming a matrix of the weight's size."""
    if isinstance(first, Factors) and isinstance(second, Factors):
        b = first.b.double().T @ second.b.double()
        a = first.a.double() @ second.a.double().T
        return float((a * b).sum()) * first.scaling * second.scaling
    return float((first.delta().double() * second.delta().double()).sum())


def inner_products(directions: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """float64 (N, N) for every weight: the inner products of N directions, 0 where one does not change the weight."""
    weights = sorted({name for direction in directions for name in direction})
    found = {name: np.zeros((len(directions), len(directions))) for name in weights}
    for i, first in enumerate(directions):
        for j, second in enumerate(directions[: i + 1]):
            for name in first.keys() & second.keys():
                found[name][i, j] = found[name][j, i] = inner(first[name], second[name])
    return found


def cosines(products: Mapping[str, np.ndarray]) -> np.ndarray:
    """float64 (N, N): cosines between whole task vectors; NaN for one that is zero."""
    total = np.sum(list(products.values()), axis=0)
    norms = np.sqrt(np.diag(total))
    with np.errstate(divide="ignore", invalid="ignore"):
        return total / np.outer(norms, norms)


def norms(products: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """float64 (N,) twice: ‖ΔW‖ of the whole task vector, and the sum of its weights' Frobenius norms.

    The paper's Table 6 says "summed over all modules", which can be read as either.
    """
    diagonals = np.array([np.diag(product) for product in products.values()])
    return np.sqrt(diagonals.sum(axis=0)), np.sqrt(diagonals).sum(axis=0)


def read_directions(folders: Sequence[tuple[str, Path]]) -> Sequence[Mapping[str, Any]]:
    """Directions on the CPU from (key, folder) pairs."""
    return read_pool(folders, torch.device("cpu")).directions


@torch.no_grad()
def merged_norms(bench: Bench, candidate: Candidate) -> tuple[float, float]:
    """The two norms of what a candidate changes in the model, weight by weight as it stands there."""
    live = Live(bench)
    base = {name: parameter.detach().clone() for name, parameter in live.model.named_parameters()}
    live.set(candidate)
    changes = [
        float((parameter.detach().double() - base[name].double()).norm())
        for name, parameter in live.model.named_parameters()
    ]
    return float(np.sqrt(np.sum(np.square(changes)))), float(np.sum(changes))
