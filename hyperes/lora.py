"""LoRA adapters without a trainer: which weights they adapt, as one flat vector, and as a folder that PEFT reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from hyperes.backbone import Backbone, empty_model
from hyperes.config import LoraSettings
from hyperes.errors import UserError
from hyperes.files import publishing
from hyperes.pool import Factors


@dataclass(frozen=True)
class Layout:
    """The LoRA parameters of a model as one vector: for every adapted weight in the model's order A, then B."""

    weights: tuple[tuple[str, int, int], ...]  # (name, out, in)
    rank: int
    scaling: float  # alpha / rank

    @property
    def dimension(self) -> int:
        return sum(self.rank * (rows + columns) for _, rows, columns in self.weights)

    def factors(self, vector: np.ndarray) -> dict[str, Factors]:
        """float32 (dimension,) as factors by weight name, which share its memory."""
        return {
            name: Factors(torch.from_numpy(a), torch.from_numpy(b), self.scaling) for name, a, b in self.blocks(vector)
        }

    def blocks(self, vector: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """(weight name, A (rank, in), B (out, rank)) for every weight, as views of the vector."""
        place = 0
        for name, rows, columns in self.weights:
            middle, end = place + self.rank * columns, place + self.rank * (columns + rows)
            yield name, vector[place:middle].reshape(self.rank, columns), vector[middle:end].reshape(rows, self.rank)
            place = end


def layout(backbone: Backbone, lora: LoraSettings) -> Layout:
    """The layout of an adapter on a backbone. Raises UserError where a target names no linear layer."""
    targets = set(lora.target_modules)
    weights, found = [], set()
    for name, module in empty_model(backbone).named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and last in targets:
            weights.append((f"{name}.weight", module.out_features, module.in_features))
            found.add(last)
    if missing := targets - found:
        raise UserError(
            f"directions.lora.target_modules: this backbone has no linear layer {', '.join(sorted(missing))}"
        )
    return Layout(tuple(weights), lora.rank, lora.alpha / lora.rank)


def norm(adapter: Mapping[str, Factors]) -> float:
    """‖Δθ‖_F of a whole adapter, in float64: the root of Σ ⟨BᵀB, AAᵀ⟩·scaling² over its weights."""
    total = 0.0
    for factors in adapter.values():
        a, b = factors.a.cpu().numpy().astype(np.float64), factors.b.cpu().numpy().astype(np.float64)
        # einsum and not matmul: BLAS sums in an order that depends on the number of threads
        grams = np.einsum("ri,si->rs", a, a), np.einsum("or,os->rs", b, b)
        total += float((grams[0] * grams[1]).sum()) * factors.scaling**2
    return math.sqrt(total)


def write_adapter(folder: Path, adapter: Mapping[str, Factors], lora: LoraSettings, backbone: Backbone) -> None:
    """Write a PEFT adapter folder, its weights last."""
    from peft import LoraConfig

    folder.mkdir(parents=True, exist_ok=True)
    LoraConfig(
        base_model_name_or_path=backbone.folder,
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.target_modules),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(str(folder))
    tensors: dict[str, Any] = {}
    for weight, factors in adapter.items():
        module = f"base_model.model.{weight.removesuffix('.weight')}"
        tensors[f"{module}.lora_A.weight"] = factors.a.contiguous()
        tensors[f"{module}.lora_B.weight"] = factors.b.contiguous()
    with publishing(folder / "adapter_model.safetensors") as stream:
        stream.write(save(tensors, metadata={"format": "pt"}))
