"""Task arithmetic (Ilharco et al., arXiv 2212.04089): θ₀ + λ·Σᵢ Δθᵢ."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def weighted_sum(deltas: Tensor, weight: Tensor | np.ndarray) -> Tensor:
    """Σᵢ ωᵢ·Δθᵢ, one direction after another; task arithmetic has every ωᵢ = 1 and is scaled by λ afterwards.

    deltas  (N, *shape), floating.
    weight  (N,), finite, of either sign.

    Returns ``shape``: float32 for half precision deltas, which are summed in float32, else the deltas' dtype. Raises
    ValueError for other shapes, dtypes or values.
    """
    if deltas.dim() == 0 or deltas.shape[0] == 0 or not deltas.is_floating_point():
        raise ValueError(f"deltas must be floating of shape (N, ...), not {deltas.dtype} {tuple(deltas.shape)}")
    coefficients = np.asarray(weight, dtype=np.float64)
    if coefficients.shape != deltas.shape[:1] or not np.isfinite(coefficients).all():
        raise ValueError(f"weight must be finite of shape ({deltas.shape[0]},), not {coefficients.tolist()}")
    dtype = torch.promote_types(deltas.dtype, torch.float32)
    total = torch.zeros(deltas.shape[1:], dtype=dtype, device=deltas.device)
    for delta, coefficient in zip(deltas, coefficients.tolist(), strict=True):
        total.add_(delta, alpha=coefficient)
    return total
