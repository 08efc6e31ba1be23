"""What evaluating a candidate costs, against what one would otherwise do: ``python benchmarks/candidates.py``.

Prints ratios measured in one run on the embedded backbone: writing a merged model in place against saving and loading
it, and length-sorted batches against one batch and against batches in data set order.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from hyperes.backbone import load_model, load_tokenizer, locate, render
from hyperes.bundled import wordproblems
from hyperes.config import BackboneConfig
from hyperes.engines import hf
from hyperes.genome import Genome
from hyperes.pool import Factors, Pool, layer_groups
from hyperes.resident import Resident

DIRECTIONS = 8
RANK = 32
PROBLEMS = 400


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of one call, after one that is not counted."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


def random_pool(model: torch.nn.Module) -> Pool:
    generator = torch.Generator().manual_seed(0)
    names = [name for name, weight in model.named_parameters() if "_proj.weight" in name]
    shapes = {name: model.get_parameter(name).shape for name in names}

    def factors(name: str) -> Factors:
        rows, columns = shapes[name]
        a, b = torch.randn(RANK, columns, generator=generator), torch.randn(rows, RANK, generator=generator)
        return Factors(a * 1e-3, b * 1e-3, scaling=2.0)

    directions = [{name: factors(name) for name in names} for _ in range(DIRECTIONS)]
    keys = tuple(str(index) for index in range(DIRECTIONS))
    return Pool(keys, directions, torch.device("cpu"), names=keys)


def writing() -> None:
    backbone = locate(BackboneConfig(name="bundled", path="bundled", device="cpu"))
    model = load_model(backbone)
    pool = random_pool(model)
    resident = Resident(model, pool, seed=0)
    genome = Genome(layer_groups(pool.weights)[0], DIRECTIONS)
    candidate = genome.shared(0.5, gamma=1.0, dare=True, ties=True)

    def save_and_load() -> None:
        with tempfile.TemporaryDirectory() as folder:
            resident.write(candidate)
            model.save_pretrained(folder)
            AutoModelForCausalLM.from_pretrained(Path(folder))

    in_place = seconds(lambda: resident.write(candidate), 10)
    on_disk = seconds(save_and_load, 5)
    print(f"candidate written in place {1e3 * in_place:.0f} ms; also saved and loaded {1e3 * on_disk:.0f} ms: "
          f"{on_disk / in_place:.1f}x")  # fmt: skip


def batching() -> None:
    backbone = locate(BackboneConfig(name="bundled", path="bundled", device="cpu"))
    model, tokenizer = load_model(backbone), load_tokenizer(backbone)
    stream = wordproblems.problems("test", "benchmark", wordproblems.Style(), wordproblems.EQUAL_HOPS)
    requests = [hf.Request(render(tokenizer, problem.question)) for problem in islice(stream, PROBLEMS)]

    def sorted_batches(size: int) -> Callable[[], object]:
        return lambda: hf.complete(model, tokenizer, requests, hf.Decoding(112, size))

    def in_order() -> None:
        for start in range(0, len(requests), 128):
            hf.complete(model, tokenizer, requests[start : start + 128], hf.Decoding(112, 128))

    ours = seconds(sorted_batches(128), 2)
    print(f"{PROBLEMS} greedy answers in length-sorted batches of 128: {ours:.1f} s")
    for name, work in (
        ("batches of 128 in data set order", in_order),
        ("one batch", sorted_batches(PROBLEMS)),
        ("sorted batches of 64", sorted_batches(64)),
        ("sorted batches of 32", sorted_batches(32)),
    ):
        print(f"  {name}: {seconds(work, 2) / ours:.2f}x the time")


if __name__ == "__main__":
    torch.set_num_threads(1)
    writing()
    batching()
