"""The direction pool: N LoRA adapters read as deltas, weight by weight (eq. 17)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hyperes import counter
from hyperes.errors import UserError
from hyperes.files import read_json

OTHER = "other"
ATTENTION = re.compile(r"layers\.(\d+)\.self_attn\.[qkvo]_proj\.weight$")
MLP = re.compile(r"layers\.(\d+)\.mlp\.(gate|up|down)_proj\.weight$")


def group_of(weight: str) -> str:
    """The layer group of a weight: one for attention and one for the MLP of every layer, ``other`` for the rest."""
    if match := ATTENTION.search(weight):
        return f"layers.{match.group(1)}.attention"
    if match := MLP.search(weight):
        return f"layers.{match.group(1)}.mlp"
    return OTHER


def layer_groups(weights: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(searched, unsearched) groups of some weights: by layer, attention before MLP; ``other`` is never searched."""
    groups = {group_of(name) for name in weights}
    searched = sorted(groups - {OTHER}, key=lambda group: (int(group.split(".")[1]), group))
    return tuple(searched), tuple(groups & {OTHER})


@dataclass(frozen=True)
class Factors:
    """One LoRA pair: delta = scaling * B @ A, with A of shape (r, in) and B of shape (out, r)."""

    a: Tensor
    b: Tensor
    scaling: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.b.shape[0], self.a.shape[1]

    def to(self, device: torch.device) -> Factors:
        return Factors(self.a.to(device), self.b.to(device), self.scaling)

    def delta(self) -> Tensor:
        """Float32 tensor of shape (out, in), eq. 17."""
        return (self.b.float() @ self.a.float()) * self.scaling


def _cache_bytes(device: torch.device) -> int:
    """Dense deltas and uniform fields are kept below this many bytes, and formed anew at every use above."""
    return torch.cuda.get_device_properties(device).total_memory // 4 if device.type == "cuda" else 2**30


def read_adapter(folder: Path) -> dict[str, Factors]:
    """A PEFT LoRA folder as factors by weight name; raises UserError for what is missing, foreign or not finite."""
    config = read_json(folder / "adapter_config.json")
    if config.get("peft_type") != "LORA" or config.get("use_dora") or config.get("bias", "none") != "none":
        raise UserError(f"{folder / 'adapter_config.json'}: only plain LoRA adapters without biases can be merged")
    if config.get("rank_pattern") or config.get("alpha_pattern"):
        raise UserError(f"{folder / 'adapter_config.json'}: rank_pattern and alpha_pattern are not supported")
    rank = config["r"]
    scaling = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    path = folder / "adapter_model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    factors = {}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{path}: {name} holds NaN or infinity; this direction is broken, make it anew")
        if name.endswith(".lora_B.weight"):
            continue
        partner = name.replace(".lora_A.", ".lora_B.")
        if not name.endswith(".lora_A.weight") or partner not in tensors:
            raise UserError(f"{path}: {name} is no part of a plain LoRA pair")
        weight = name.removeprefix("base_model.model.").replace(".lora_A.weight", ".weight")
        factors[weight] = Factors(tensor, tensors[partner], scaling)
    if not factors:
        raise UserError(f"{path}: holds no LoRA weights")
    return factors


@dataclass
class Pool:
    """N directions over the same base. ``keys`` names each direction (its artifact key)."""

    keys: tuple[str, ...]
    directions: list[dict[str, Factors]]
    device: torch.device
    _cache: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    @property
    def weights(self) -> list[str]:
        """Names of all weights that any direction changes, sorted."""
        return sorted({name for direction in self.directions for name in direction})

    def check_fits(self, shapes: dict[str, tuple[int, ...]], model: str) -> None:
        """Raise UserError unless every delta belongs to a weight of the model and has its shape."""
        for key, direction in zip(self.keys, self.directions, strict=True):
            for name, factors in direction.items():
                if name not in shapes:
                    raise UserError(f"direction {key}: changes {name}, which {model} does not have (another base?)")
                if factors.shape != shapes[name]:
                    raise UserError(
                        f"direction {key}: {name} has shape {factors.shape}, {model} has {shapes[name]} (another base?)"
                    )

    def deltas(self, weight: str) -> Tensor:
        """Float32 tensor of shape (N, out, in): every direction's delta of one weight, zero where it has none."""
        return self._cached("deltas", weight, lambda: self._stack(weight))

    def uniform(self, weight: str, seed: int, salt: str = "") -> Tensor:
        """Float32 tensor of shape (N, out, in) in [0, 1): the fixed field that masks are cut from (eq. 18).

        Depends on (seed, direction key, weight) alone, so every candidate sees the same field: common random
        numbers make fitness a function of z. ``salt`` (a candidate's key) draws another field for that candidate.
        """

        def draw() -> Tensor:
            shape = self._shape(weight)
            fields = [
                counter.uniform(counter.key("mask", seed, key, weight, salt), shape, self.device) for key in self.keys
            ]
            return torch.stack(fields)

        return draw() if salt else self._cached(f"uniform-{seed}", weight, draw)

    def _shape(self, weight: str) -> tuple[int, int]:
        return next(direction[weight].shape for direction in self.directions if weight in direction)

    def _stack(self, weight: str) -> Tensor:
        shape = self._shape(weight)
        parts = [
            direction[weight].delta() if weight in direction else torch.zeros(shape, device=self.device)
            for direction in self.directions
        ]
        return torch.stack(parts)

    def _cached(self, kind: str, weight: str, make) -> Tensor:  # type: ignore[no-untyped-def]
        entries = sum(self._shape(name)[0] * self._shape(name)[1] for name in self.weights)
        if 2 * 4 * len(self.keys) * entries > _cache_bytes(self.device):
            return make()
        if (kind, weight) not in self._cache:
            self._cache[kind, weight] = make()
        return self._cache[kind, weight]


def read_pool(folders: Sequence[tuple[str, Path]], device: torch.device) -> Pool:
    """The pool of (key, PEFT folder) pairs, in order."""
    directions = [{name: factors.to(device) for name, factors in read_adapter(folder).items()} for _, folder in folders]
    return Pool(tuple(key for key, _ in folders), directions, device)
