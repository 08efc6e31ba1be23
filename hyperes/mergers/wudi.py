"""WUDI-Merging (Cheng et al., arXiv 2503.08099): the update with the least interference between directions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Of Adam, in units of τ's root mean square, where the terms of a gradient are of the order of 1/rank. A smaller one
# would turn a sum that is zero but for rounding, as that of opposite directions, into whole steps.
EPSILON = 1e-4


def wudi(factors: Sequence[tuple[Tensor, Tensor]], *, steps: int, step_size: float) -> Tensor:
    """Minimise Σᵢ ‖(T − τᵢ)·τᵢᵀ‖²_F / ‖τᵢ‖²_F over T by Adam from T₀ = Σᵢ τᵢ.

    factors    N pairs (left, right) of shapes (out, kᵢ) and (kᵢ, in): τᵢ = left @ right is direction i of one 2-D
               weight. kᵢ is a LoRA rank; a dense τᵢ is (τᵢ, identity). A direction of zeros counts for nothing.
    steps      of Adam, at its default moments.
    step_size  Adam's learning rate in units of the root mean square of τ's entries: a scaled τ gives a scaled T.

    Works in float32 on products of the factors: no τᵢᵀτᵢ is formed for a single direction and the largest temporary
    beside a few of T's size is (Σkᵢ, in), or (in, in) where that is the smaller. Returns T, float32 (out, in): the only
    direction itself for N = 1, zeros where all are. Raises ValueError for no factors or shapes that do not fit.
    """
    found = [(tuple(left.shape), tuple(right.shape)) for left, right in factors]
    rows, columns = (found[0][0][0], found[0][1][-1]) if found else (0, 0)
    if not found or any(left != (rows, right[0]) or right != (left[-1], columns) for left, right in found):
        raise ValueError(f"factors must be pairs (out, k), (k, in) of one weight, not {found}")
    pairs = [(left.float(), right.float()) for left, right in factors]
    # ‖τ‖² = tr(τᵀτ) = ⟨leftᵀ·left, right·rightᵀ⟩
    squares = [float(((left.T @ left).double() * (right @ right.T).double()).sum()) for left, right in pairs]
    pairs = [pair for pair, square in zip(pairs, squares, strict=True) if square > 0]
    squares = [square for square in squares if square > 0]
    if not pairs:
        return torch.zeros(rows, columns, device=factors[0][0].device)
    rms = math.sqrt(sum(squares) / (len(pairs) * rows * columns))

    # In units of rms from here on. The gradient in D = T − T₀ is 2·(D·G + C): G = Σᵢ τᵢᵀτᵢ/‖τᵢ‖² = rightᵀ·pull, and
    # C = Σᵢ Σⱼ≠ᵢ τⱼ·τᵢᵀτᵢ/‖τᵢ‖² is the interference at T₀: an exact zero where nothing interferes, as j = i is left
    # out and not subtracted.
    left = torch.cat([a for a, _ in pairs], dim=1) / rms
    right = torch.cat([b for _, b in pairs])
    ranks = [b.shape[0] for _, b in pairs]
    norms = [square / rms**2 for square in squares]
    grams = [a.T @ a / norm for a, norm in zip(left.split(ranks, dim=1), norms, strict=True)]
    pull = torch.cat([gram @ b for gram, b in zip(grams, right.split(ranks), strict=True)])
    cross = right @ right.T
    for block in _diagonal_blocks(cross, ranks):
        block.zero_()
    interference = (left @ cross) @ pull
    gram = right.T @ pull if 2 * sum(ranks) >= columns else None

    moved = torch.zeros(rows, columns, device=left.device)
    adam = torch.optim.Adam([moved], lr=step_size, eps=EPSILON)
    for _ in range(steps):
        pulled = moved @ gram if gram is not None else (moved @ right.T) @ pull
        moved.grad = pulled.add_(interference).mul_(2)
        adam.step()
    return torch.addmm(moved, left, right).mul_(rms)


def _diagonal_blocks(matrix: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Views of the square blocks on the diagonal."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [matrix[end - size : end, end - size : end] for end, size in zip(ends, sizes, strict=True)]
