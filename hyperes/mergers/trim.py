"""The first step of TIES-Merging (Yadav et al., arXiv 2306.01708): keep the entries of largest magnitude."""

from __future__ import annotations

import torch
from torch import Tensor


def trim(deltas: Tensor, *, density: float) -> Tensor:
    """Each direction's round(density·size) largest-|·| entries of one weight, at least one; the others become 0.

    deltas   (N, *shape), floating. Of equal magnitudes the earlier entry stays.
    density  in (0, 1]; TIES-Merging uses 0.2.

    Trimming is per weight (the TIES paper trims a whole model's task vector at once). Returns a new tensor of the
    deltas' shape and dtype. Raises ValueError for a density outside (0, 1].
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must lie in (0, 1], not {density}")
    trimmed = torch.zeros_like(deltas)
    size = deltas[0].numel()
    kept = max(1, round(density * size))
    for delta, target in zip(deltas.reshape(len(deltas), -1), trimmed.view(len(deltas), -1), strict=True):
        magnitude = delta.abs()
        threshold = magnitude.kthvalue(size - kept + 1).values
        above, level = magnitude > threshold, magnitude == threshold
        level &= level.cumsum(0) <= kept - above.sum()
        target.copy_(torch.where(above | level, delta, 0))
    return trimmed
