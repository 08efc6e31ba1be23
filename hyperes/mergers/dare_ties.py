"""Merging the deltas of one weight: DARE masks, TIES sign election, weighted mean (paper eq. 18-20)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

# Entries merged at a time. On the CPU the temporaries then stay in cache; on a GPU they bound the extra memory,
# about N + 3 blocks.
CPU_BLOCK = 2**17
GPU_BLOCK = 2**24


def merge(
    deltas: Tensor,
    drop_rate: Tensor | np.ndarray,
    weight: Tensor | np.ndarray,
    uniform: Tensor | None,
    *,
    dare: bool = True,
    ties: bool = True,
) -> Tensor:
    """Merge N deltas of one weight into Δθ̄ (eq. 20); the caller applies θ₀ + γ·Δθ̄ (eq. 21).

    deltas     (N, *shape), floating: Δθᵢ.
    drop_rate  (N,): pᵢ in [0, 1]. Idle without ``dare``.
    weight     (N,): ωᵢ >= 0, finite, not all zero. Only ratios matter; one below about 1e-30 of the largest may
               vanish in float32.
    uniform    (N, *shape) in [0, 1) on the deltas' device: entry j of direction i survives where uniformᵢⱼ >= pᵢ
               (eq. 18). Not read, and may be None, without ``dare``. Survivors are not rescaled by 1/(1 - p).

    With ``ties`` each entry elects the sign of Σᵢ ωᵢ·Δθ̃ᵢⱼ and averages, weighted by ω, the survivors of that sign; a
    dropped entry (exact zero) never agrees, an exact zero sum elects no sign, and both 0/0 and no sign give 0. Without
    ``ties`` the result is Σᵢ ωᵢ·Δθ̃ᵢⱼ / Σᵢ ωᵢ, in whose denominator dropped entries count. The plain average of the
    deltas is ``dare=False, ties=False`` with all ω equal.

    Returns Δθ̄ of ``shape``: float32 for half precision deltas, which are summed in float32, else the deltas' dtype.
    Raises ValueError for shapes, dtypes or values other than these.
    """
    if deltas.dim() == 0 or deltas.shape[0] == 0 or not deltas.is_floating_point():
        raise ValueError(f"deltas must be floating of shape (N, ...), not {deltas.dtype} {tuple(deltas.shape)}")
    count, shape = deltas.shape[0], deltas.shape[1:]
    rates = _coefficients("drop_rate", drop_rate, count)
    if not all(0 <= rate <= 1 for rate in rates):  # NaN compares false and is refused too
        raise ValueError(f"drop_rate must lie in [0, 1], not {rates}")
    weights = _coefficients("weight", weight, count)
    if not all(0 <= value < math.inf for value in weights) or max(weights) == 0:
        raise ValueError(f"weight must be finite, not negative and not all zero, not {weights}")
    weights = [value / max(weights) for value in weights]
    if dare and (uniform is None or uniform.shape != deltas.shape):
        found = None if uniform is None else tuple(uniform.shape)
        raise ValueError(f"uniform must have the deltas' shape {tuple(deltas.shape)}, not {found}")

    size = math.prod(shape)
    flat = deltas.reshape(count, size)
    field = uniform.reshape(count, size) if dare and uniform is not None else None
    merged = torch.zeros(size, dtype=torch.promote_types(deltas.dtype, torch.float32), device=deltas.device)
    block = CPU_BLOCK if deltas.device.type == "cpu" else GPU_BLOCK
    for start in range(0, size, block):
        part = slice(start, start + block)
        survivors = [flat[i, part] for i in range(count)]
        if field is not None:
            survivors = [torch.where(field[i, part] >= rates[i], survivors[i], 0) for i in range(count)]
        _weighted_sum(survivors, weights, merged[part])
        if ties:
            _average_elected(survivors, weights, merged[part])
        else:
            merged[part] /= sum(weights)
    return merged.reshape(shape)


def _weighted_sum(survivors: list[Tensor], weights: list[float], total: Tensor) -> None:
    """Add Σᵢ ωᵢ·Δθ̃ᵢ to ``total``."""
    for survivor, weight in zip(survivors, weights, strict=True):
        total.add_(survivor, alpha=weight)


def _average_elected(survivors: list[Tensor], weights: list[float], total: Tensor) -> None:
    """Replace the weighted sum in ``total`` by the weighted mean of the entries that share its sign."""
    elected = total.sign()
    total.zero_()
    share = torch.zeros_like(total)
    for survivor, weight in zip(survivors, weights, strict=True):
        agreeing = (survivor * elected).clamp_(min=0)  # |Δθ̃ᵢⱼ| where the signs agree, else 0
        total.add_(agreeing, alpha=weight)
        share.add_(agreeing.sign_(), alpha=weight)
    # Where nothing agrees the sum is an exact 0 and so must the quotient be.
    total.div_(share.masked_fill_(share == 0, 1)).mul_(elected)


def _coefficients(name: str, values: Tensor | np.ndarray, count: int) -> list[float]:
    """The values as ``count`` Python floats."""
    vector = torch.as_tensor(values.copy() if isinstance(values, np.ndarray) else values)  # read-only arrays warn
    if vector.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), not {tuple(vector.shape)}")
    return vector.to("cpu", torch.float64).tolist()
