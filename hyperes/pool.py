"""The direction pool: N LoRA adapters (or dense deltas) read as deltas, weight by weight (eq. 17)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from hyperes import counter
from hyperes.errors import UserError
from hyperes.files import read_json
from hyperes.genome import Genome, Operator
from hyperes.mergers import prepare

OTHER = "other"
DENSE = "dense.safetensors"  # of a direction folder that is no adapter: a delta per changed parameter, by its name
ATTENTION = re.compile(r"layers\.(\d+)\.self_attn\.([qkvo]_proj)\.weight$")
MLP = re.compile(r"layers\.(\d+)\.mlp\.((?:gate|up|down)_proj)\.weight$")
# What shares its coefficients: attention and MLP of every layer (the paper's), whole layers, single weights, the model.
SPACES = ("per_block", "per_layer", "per_module", "global")


def group_of(weight: str, space: str = "per_block") -> str:
    """The layer group of a weight in a search space; ``other`` for what is no projection of a decoder layer."""
    match, block = ATTENTION.search(weight), "attention"
    if match is None:
        match, block = MLP.search(weight), "mlp"
    if match is None:
        return OTHER
    layer = f"layers.{match.group(1)}"
    return {
        "per_block": f"{layer}.{block}",
        "per_layer": layer,
        "per_module": f"{layer}.{match.group(2)}",
        "global": "all",
    }[space]


def layer_groups(weights: Iterable[str], space: str = "per_block") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(searched, unsearched) groups of some weights: by layer, then by name; ``other`` is never searched."""
    groups = {group_of(name, space) for name in weights}
    searched = sorted(groups - {OTHER}, key=lambda group: ([int(part) for part in group.split(".")[1:2]], group))
    return tuple(searched), tuple(groups & {OTHER})


def row_of(weight: str, groups: Sequence[str]) -> int:
    """Where a candidate of any search space keeps a weight's coefficients: no two spaces name a group alike."""
    return next(groups.index(group) for space in SPACES if (group := group_of(weight, space)) in groups)


@dataclass(frozen=True)
class Factors:
    """One LoRA pair: delta = scaling * B @ A, with A of shape (r, in) and B of shape (out, r)."""

    a: Tensor
    b: Tensor
    scaling: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.b.shape[0], self.a.shape[1]

    def to(self, device: torch.device) -> Factors:
        return Factors(self.a.to(device), self.b.to(device), self.scaling)

    def delta(self) -> Tensor:
        """Float32 tensor of shape (out, in), eq. 17."""
        return (self.b.float() @ self.a.float()) * self.scaling

    def pair(self) -> tuple[Tensor, Tensor]:
        """Float32 (out, r) and (r, in), whose product is the delta."""
        return self.b.float() * self.scaling, self.a.float()


@dataclass(frozen=True)
class Dense:
    """A delta kept entry by entry: full-parameter training leaves no low rank, and touches vectors too."""

    values: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def to(self, device: torch.device) -> Dense:
        return Dense(self.values.to(device))

    def delta(self) -> Tensor:
        """Float32 tensor of the parameter's shape."""
        return self.values.float()

    def pair(self) -> tuple[Tensor, Tensor]:
        """Float32 (out, in) and the identity (in, in)."""
        return self.values.float(), torch.eye(self.shape[-1], device=self.values.device)


Delta = Factors | Dense


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


def read_direction(folder: Path) -> Mapping[str, Delta]:
    """A direction's folder, dense or an adapter, as deltas by weight name; raises UserError as ``read_adapter``."""
    path = folder / DENSE
    if not path.exists():
        return read_adapter(folder)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise UserError(f"{path}: {broken[0]} holds NaN or infinity; this direction is broken, make it anew")
    return {name: Dense(tensor) for name, tensor in tensors.items()}


def _changed(folder: Path) -> list[str]:
    """Names of the weights that a direction changes, without a large file's tensors."""
    if not (folder / DENSE).exists():
        return list(read_adapter(folder))
    with safe_open(folder / DENSE, "pt") as file:
        return list(file.keys())


@dataclass
class Pool:
    """N directions over the same base. ``keys`` are theirs in the store; ``names`` say to a user which one is meant."""

    keys: tuple[str, ...]
    directions: Sequence[Mapping[str, Delta]]
    device: torch.device
    names: tuple[str, ...]
    _cache: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    @property
    def weights(self) -> list[str]:
        """Names of all weights that any direction changes, sorted."""
        return sorted({name for direction in self.directions for name in direction})

    def check_fits(self, shapes: dict[str, tuple[int, ...]], model: str) -> None:
        """Raise UserError unless every delta belongs to a weight of the model and has its shape."""
        for title, direction in zip(self.names, self.directions, strict=True):
            for name, delta in direction.items():
                if name not in shapes:
                    raise UserError(f"{title}: changes {name}, which {model} does not have (another base?)")
                if delta.shape != shapes[name]:
                    raise UserError(
                        f"{title}: {name} has shape {delta.shape}, {model} has {shapes[name]} (another base?)"
                    )

    def prepared(self, weight: str, operator: Operator) -> Tensor:
        """What an operator's merge of one weight starts from, (M, *weight's), formed once (``mergers.prepare``)."""

        def make() -> Tensor:
            changing = [direction[weight] for direction in self.directions if weight in direction]
            factors = (lambda: [delta.pair() for delta in changing]) if len(self._shape(weight)) == 2 else None
            return prepare(operator, lambda: self._stack(weight), factors)

        # WUDI's takes hundreds of optimiser steps and is no larger than the weight: it is kept whatever its size.
        return self._cached(f"prepared-{operator}", weight, make, always=operator.name == "wudi")

    def uniform(self, weight: str, seed: int, salt: str = "") -> Tensor:
        """Float32 tensor of shape (N, *weight's) in [0, 1): the fixed field that masks are cut from (eq. 18).

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

    def _shape(self, weight: str) -> tuple[int, ...]:
        return next(direction[weight].shape for direction in self.directions if weight in direction)

    def _stack(self, weight: str) -> Tensor:
        """Float32 tensor of shape (N, *weight's): every direction's delta of one weight, zero where it has none."""
        shape = self._shape(weight)
        parts = [
            direction[weight].delta() if weight in direction else torch.zeros(shape, device=self.device)
            for direction in self.directions
        ]
        return torch.stack(parts)

    def _cached(self, kind: str, weight: str, make: Callable[[], Tensor], always: bool = False) -> Tensor:
        entries = sum(math.prod(self._shape(name)) for name in self.weights)
        if not always and 2 * 4 * len(self.keys) * entries > _cache_bytes(self.device):
            return make()
        if (kind, weight) not in self._cache:
            self._cache[kind, weight] = make()
        return self._cache[kind, weight]


def read_pool(folders: Sequence[tuple[str, Path]], device: torch.device) -> Pool:
    """The pool of (key, direction folder) pairs, in order."""
    directions = [{name: delta.to(device) for name, delta in read_direction(folder).items()} for _, folder in folders]
    return Pool(tuple(key for key, _ in folders), directions, device, tuple(str(folder) for _, folder in folders))


def genome_of(folders: Sequence[Path], space: str = "per_block") -> Genome:
    """The search space over N direction folders: their layer groups in order, times N. Raises UserError without any."""
    searched, unsearched = layer_groups((name for folder in folders for name in _changed(folder)), space)
    if not searched:
        raise UserError(
            "the directions touch no attention (q, k, v, o) or MLP (gate, up, down) projection of a decoder layer, so "
            "there is nothing to search; Hyper-ES needs a Llama- or Qwen-style model"
        )
    return Genome(searched, len(folders), unsearched)
