"""CABS (Yang et al., arXiv 2503.01874): directions sparsified so that no entry is kept by two of them."""

from __future__ import annotations

import torch
from torch import Tensor


def disjoint(deltas: Tensor, *, keep: int, block: int) -> Tensor:
    """The entries that each direction keeps of one weight, 0 elsewhere; the merge is θ₀ + Σᵢ λᵢ·keptᵢ.

    In order, each direction keeps, in every block of ``block`` consecutive entries (row-major; the last block may be
    shorter), the ``keep`` entries of largest magnitude among those no earlier direction has taken. Zeros are never
    taken, of equal magnitudes the earlier entry is, and nothing is rescaled.

    deltas  (N, *shape), floating. Returns a new tensor of that shape and dtype. Raises ValueError unless
    1 <= keep <= block.
    """
    if not 1 <= keep <= block:
        raise ValueError(f"want 1 <= keep <= block, not keep={keep}, block={block}")
    size = deltas[0].numel()
    rows = -(-size // block)
    kept = torch.zeros_like(deltas)
    free = torch.ones(rows, block, dtype=torch.bool, device=deltas.device)
    for delta, target in zip(deltas.reshape(len(deltas), size), kept.view(len(deltas), size), strict=True):
        blocks = torch.nn.functional.pad(delta, (0, rows * block - size)).view(rows, block)
        magnitude = blocks.abs().masked_fill_(~free, 0)
        largest, place = magnitude.sort(dim=1, descending=True, stable=True)
        taken = torch.zeros_like(free).scatter_(1, place[:, :keep], largest[:, :keep] > 0)
        free &= ~taken
        target.copy_(torch.where(taken, blocks, 0).view(-1)[:size])
    return kept
