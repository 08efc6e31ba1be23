"""A counter-based random field: entry j of key k is a pure function of (k, j).

No generator state exists, so the field does not depend on the order of evaluation, the thread count, the block size or
the device. Integer arithmetic only (torch's int32 and int64, which wrap), until the last exact step to float32.

The 63-bit key is mixed once by MurmurHash3's 64-bit finaliser into two 32-bit words. The first is added to the counter
and the second is added inside a 32-bit hash (``triple32`` of C. Wellons' hash-prospector), so that two keys never read
shifted pieces of one stream, even when the keys are consecutive integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hyperes.files import digest

BITS = 24  # all that float32 holds exactly below 1
MAX_COLUMNS = 2**31  # counters are int32
# Entries hashed at a time. On the CPU the temporaries then stay in cache; on a GPU they bound the extra memory.
CPU_BLOCK = 2**17
GPU_BLOCK = 2**26


def key(*parts: str | int) -> int:
    """A stable key in [0, 2**63): SHA-256 of the canonical JSON of ``parts``. ``1`` and ``"1"`` differ."""
    return int(digest(list(parts))[:16], 16) >> 1


def uniform(key: int, shape: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """The field of one key: float32 of ``shape`` on ``device``, in [0, 1), in steps of 2**-24.

    The entry at flat (row-major) index j depends on (key, j) alone. Raises ValueError for a key outside [0, 2**63) or
    for more than 2**31 entries.
    """
    if not 0 <= key < 2**63:
        raise ValueError(f"key must lie in [0, 2**63), not {key}")
    return uniform_rows(torch.tensor([key], dtype=torch.int64, device=device), math.prod(shape)).reshape(tuple(shape))


def uniform_rows(keys: Tensor, columns: int) -> Tensor:
    """One row of the field per key: ``uniform_rows(keys, n)[i] == uniform(keys[i], (n,))``.

    ``keys``: int64 (rows,), on the device of the result; consecutive keys such as ``key(...) + position`` are fine.
    Returns float32 (rows, columns) in [0, 1). Raises ValueError for other keys or more than 2**31 columns.
    """
    if keys.dtype != torch.int64 or keys.dim() != 1:
        raise ValueError(f"keys must be int64 of shape (rows,), not {keys.dtype} of shape {tuple(keys.shape)}")
    if not 0 <= columns <= MAX_COLUMNS:
        raise ValueError(f"columns must lie in [0, 2**31], not {columns}")
    rows, device = keys.shape[0], keys.device
    first, second = _words(keys)
    field = torch.empty((rows, columns), dtype=torch.float32, device=device)
    block = CPU_BLOCK if device.type == "cpu" else GPU_BLOCK
    width = max(1, min(columns, block))
    height = max(1, block // width)
    for left in range(0, columns, width):
        right = min(left + width, columns)
        counters = torch.arange(left, right, dtype=torch.int64, device=device).to(torch.int32)
        for top in range(0, rows, height):
            band = slice(top, top + height)
            field[band, left:right] = _hash(counters + first[band, None], second[band, None])
    return field.mul_(2.0**-BITS)


def gumbel(u: Tensor) -> Tensor:
    """Standard Gumbel noise -log(-log(u)) of uniforms in [0, 1), finite everywhere (u = 0 reads as 2**-25).

    float32 uniforms give values between -2.86 and 16.64. The logarithm is the device's own, so unlike the uniforms
    the result is the same on two devices only to rounding.
    """
    return u.clamp(min=2.0 ** -(BITS + 1)).log_().neg_().log_().neg_()


def _words(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Both int32 halves of MurmurHash3's ``fmix64`` of the keys."""
    x = keys + _signed(0x9E3779B97F4A7C15, 64)  # fmix64 maps 0 to 0
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x ^= _shift(x, 33, 64)
        x *= _signed(multiplier, 64)
    x ^= _shift(x, 33, 64)
    low = x & 0xFFFFFFFF
    low -= (low >> 31) << 32  # into int32's range: a narrowing cast that overflows is not portable
    return low.to(torch.int32), (x >> 32).to(torch.int32)


def _hash(x: Tensor, second: Tensor) -> Tensor:
    """The top 24 bits (int32, not negative) of ``triple32`` of x with ``second`` added inside; overwrites x."""
    for shift, multiplier in ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)):
        x ^= _shift(x, shift, 32)
        if shift == 11:
            x += second
        x *= _signed(multiplier, 32)
    x ^= _shift(x, 14, 32)
    return _shift(x, 32 - BITS, 32)


def _shift(x: Tensor, by: int, width: int) -> Tensor:
    """A logical right shift: torch's own copies the sign bit."""
    shifted = x >> by
    shifted &= (1 << (width - by)) - 1
    return shifted


def _signed(value: int, width: int) -> int:
    """The two's complement reading of an unsigned constant."""
    return value - (1 << width) if value >> (width - 1) else value
