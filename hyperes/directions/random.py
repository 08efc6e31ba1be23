"""Directions without any task in them: Gaussian LoRA deltas of a stated norm (the control of Table 4)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hyperes import counter, versions
from hyperes.backbone import Backbone
from hyperes.config import RandomDirections
from hyperes.directions import STEPS_FILE, on_wait
from hyperes.files import write_json_lines
from hyperes.recipe import Recipe
from hyperes.store import Store


@dataclass(frozen=True)
class RandomTask:
    """One random direction, picklable. ``matched``: PEFT folders whose mean norm it gets, where none is stated."""

    store: str
    recipe: Recipe
    backbone: Backbone
    settings: RandomDirections
    matched: tuple[str, ...]
    seed: int
    index: int


def tasks(
    store: Store, settings: RandomDirections, backbone: Backbone, matched: Sequence[tuple[str, Path]], seed: int
) -> list[RandomTask]:
    """The tasks of N directions, keyed by seed, index and norm.

    matched  (key, PEFT folder) of the pool whose mean norm counts. Its keys stand for the norm: the number itself is a
             sum that another machine may round otherwise.
    """
    upstream = {"backbone": Recipe("backbone", 1, backbone.identity, {}).key}
    upstream |= {f"matched-{index}": key for index, (key, _) in enumerate(matched)}
    slice_ = {"source": "random", "norm": settings.norm, "lora": asdict(settings.lora), "seed": seed}
    folders = tuple(str(folder) for _, folder in matched)
    made = []
    for index in range(settings.count):
        recipe = Recipe("direction", versions.RANDOM, {**slice_, "index": index}, upstream)
        made.append(RandomTask(str(store.root), recipe, backbone, settings, folders, seed, index))
    return made


def make(task: RandomTask) -> Path:
    """The published direction, made or found. Returns its folder (adapter/, steps.jsonl)."""

    def build(out: Path) -> None:
        from hyperes import lora
        from hyperes.pool import read_adapter

        started = time.monotonic()
        norm = task.settings.norm
        if not isinstance(norm, float):
            norm = float(np.mean([lora.norm(read_adapter(Path(folder))) for folder in task.matched]))
        shape = lora.layout(task.backbone, task.settings.lora)
        seed = counter.key("random", task.seed, task.index)
        vector = np.random.Generator(np.random.Philox(seed)).standard_normal(shape.dimension, dtype=np.float32)
        factor = norm / lora.norm(shape.factors(vector))
        for _, _, b in shape.blocks(vector):
            b *= np.float32(factor)
        adapter = shape.factors(vector)
        lora.write_adapter(out / "adapter", adapter, task.settings.lora, task.backbone)
        row = {"step": 0, "norm": lora.norm(adapter), "seconds": round(time.monotonic() - started, 3)}
        write_json_lines(out / STEPS_FILE, [row])

    return Store(Path(task.store)).build(task.recipe, build, on_wait).path
