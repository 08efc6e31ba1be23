"""Directions without gradients: random ones of a stated norm, CMA-ES on LoRA parameters."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

from hyperes import lora, memory
from hyperes.backbone import Backbone, load_model
from hyperes.bundled import wordproblems
from hyperes.compose import register, to_config
from hyperes.config import CONF_DIR, CmaDirections, ExecutorConfig, LoraSettings, RandomDirections
from hyperes.directions import cma, random
from hyperes.errors import UserError
from hyperes.executors import Executor
from hyperes.files import read_json_lines, write_json_lines
from hyperes.pool import genome_of, read_adapter
from hyperes.problems import Problem
from hyperes.stages import Session, make_directions
from hyperes.store import Store
from hyperes.tracking import Tracker

LORA = LoraSettings(rank=4, alpha=8)
CMA = CmaDirections(
    count=1,
    generations=2,
    population=4,
    sigma=0.05,
    problems_per_generation=6,
    max_new_tokens=40,
    batch_size=6,
    lora=replace(LORA, target_modules=["q_proj", "down_proj"]),
)


def subset(name: str = "a", split: str = "train") -> list[Problem]:
    stream = wordproblems.problems("train", f"cma-{name}", wordproblems.Style(), (0.5, 0.5))
    return [
        Problem(f"{name}/{n}", p.question, str(p.answer), "numeric", split, p.hops)
        for n, p in enumerate(islice(stream, 8))
    ]


def weights(folder: Path) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def assert_peft_reads(folder: Path, backbone: Backbone) -> None:
    """PEFT's own merge changes exactly the adapted weights, by what the pool reads."""
    from peft import PeftModel

    merged = PeftModel.from_pretrained(load_model(backbone), str(folder / "adapter")).merge_and_unload().state_dict()
    adapter = read_adapter(folder / "adapter")
    for name, tensor in load_model(backbone).state_dict().items():
        delta = adapter[name].delta() if name in adapter else torch.zeros_like(tensor)
        torch.testing.assert_close(merged[name], tensor + delta, rtol=0, atol=1e-6)


def random_tasks(store: Path, backbone: Backbone, **changes: Any) -> list[random.RandomTask]:
    settings = replace(RandomDirections(count=2, norm=0.75, lora=LORA), **changes)
    return random.tasks(Store(store), settings, backbone, (), seed=0)


def test_random_directions_have_the_stated_norm_and_peft_reads_them(tmp_path: Path, backbone: Backbone) -> None:
    first, second = (random.make(task) for task in random_tasks(tmp_path / "a", backbone))
    assert_peft_reads(first, backbone)
    for folder in (first, second):
        deltas = [factors.delta().double() for factors in read_adapter(folder / "adapter").values()]
        assert len(deltas) == 4 * 7
        assert sum(float(delta.square().sum()) for delta in deltas) ** 0.5 == pytest.approx(0.75, rel=1e-5)
    assert weights(first) != weights(second)
    more = random_tasks(tmp_path / "b", backbone, count=3)
    assert more[1].recipe == random_tasks(tmp_path / "a", backbone)[1].recipe
    torch.set_num_threads(2)
    assert weights(random.make(more[1])) == weights(second)
    torch.set_num_threads(1)


def test_random_directions_match_a_pool(
    tmp_path: Path, backbone: Backbone, make_adapter: Callable[[int], Path]
) -> None:
    settings = RandomDirections(count=1, lora=LORA)
    pool = [(str(seed), make_adapter(seed)) for seed in (1, 2)]
    (task,) = random.tasks(Store(tmp_path), settings, backbone, pool, seed=0)
    (other,) = random.tasks(Store(tmp_path), settings, backbone, pool[:1], seed=0)
    assert task.recipe != other.recipe
    norms = [lora.norm(read_adapter(folder)) for _, folder in pool]
    assert norms[0] != norms[1]
    assert lora.norm(read_adapter(random.make(task) / "adapter")) == pytest.approx(sum(norms) / 2, rel=1e-5)


class Heard(Tracker):
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Mapping[str, Any]]] = []

    def log(self, prefix: str, row: Mapping[str, Any]) -> None:
        self.rows.append((prefix, row))


SMALL = ("+experiment=smoke", "direction_count=n2", "backbone.settings.steps=1", "backbone.settings.max_new_tokens=40")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["cma", "random"])
def test_the_stage_makes_a_pool_once_and_tells_its_history(
    tmp_path: Path, backbone: Backbone, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    register()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        config = to_config(compose("config", overrides=[*SMALL, f"directions={source}", "directions.lora.rank=4"]))
    histories = []
    for _ in range(2):
        tracker = Heard()
        with Executor(ExecutorConfig(workers=1, threads=1)) as executor:
            session = Session(Store(tmp_path), executor, tracker)
            made = make_directions(session, config, backbone, [*subset(), *subset("b")])
        histories.append([prefix for prefix, _ in tracker.rows])
        assert [direction.folder.name for direction in made] == ["adapter", "adapter"]
        assert genome_of([direction.folder for direction in made]).dimension == 8 * 2 * 2
    assert histories[0] == histories[1]
    own = ["directions/00", "directions/01"]
    assert histories[0] == (own if source == "cma" else ["matched/00", "matched/01", *own])
    first, second = capsys.readouterr().out.split("0 made, 2 reused", 1)
    assert "2 made, 0 reused" in first
    assert ("Gaussian, norm" if source == "random" else "1 generations x 4 over 38,912 variables") in second


def cma_task(store: Path, backbone: Backbone, problems: list[Problem], **changes: Any) -> cma.CmaTask:
    settings = replace(CMA, **changes)
    dimension = lora.layout(backbone, settings.lora).dimension
    return cma.tasks(Store(store), settings, dimension, backbone, [problems], seed=0)[0]


def search_in_child(task: cma.CmaTask) -> None:
    torch.set_num_threads(1)
    cma.search(task)


def trials(folder: Path) -> list[dict[str, Any]]:
    """Every evaluation, without the clock."""
    rows = [row for _, row in read_json_lines(folder / "trials.jsonl")]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.slow
def test_a_killed_search_ends_the_same_and_evaluates_nothing_twice(tmp_path: Path, backbone: Backbone) -> None:
    torch.set_num_threads(1)
    straight = cma.search(cma_task(tmp_path / "straight", backbone, subset()))
    assert_peft_reads(straight, backbone)
    assert {path.name for path in straight.iterdir()} == {"adapter", "recipe.json", "steps.jsonl", "trials.jsonl"}
    assert [(row["generation"], row["index"]) for row in trials(straight)] == [(g, i) for g in (0, 1) for i in range(4)]
    assert len({row["vector_sha256"] for row in trials(straight)}) == 8
    assert "vector" not in trials(straight)[0]

    task = cma_task(tmp_path / "killed", backbone, subset())
    store = Store(tmp_path / "killed")
    context = multiprocessing.get_context("spawn")
    for kill_at in (1, 4, 6):
        process = context.Process(target=search_in_child, args=(task,))
        process.start()
        while process.is_alive() and cma.trials_so_far(store, task.recipe) < kill_at:
            time.sleep(0.002)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert store.find(task.recipe) is None
    assert 6 <= cma.trials_so_far(store, task.recipe) < 8
    found = cma.search(task)
    assert trials(found) == trials(straight)
    assert weights(found) == weights(straight)


def test_a_trial_of_another_vector_is_refused(tmp_path: Path, backbone: Backbone) -> None:
    task = cma_task(tmp_path, backbone, subset())
    work = Store(tmp_path).work(task.recipe)
    write_json_lines(work / "trials.jsonl", [{"generation": 0, "index": 0, "vector_sha256": "0" * 64, "loss": 0.5}])
    with pytest.raises(UserError, match=r"trials\.jsonl: trial 0 of generation 0 was another vector"):
        cma.search(task)


def test_a_candidate_is_scored_by_its_own_weights(tmp_path: Path, backbone: Backbone) -> None:
    task = cma_task(tmp_path, backbone, subset())
    shape = lora.layout(backbone, task.settings.lora)
    start = cma.start(shape, seed=1)
    live = cma._Live(task, shape)
    untrained = live.accuracy(start.astype(np.float32), subset())
    assert 0 < untrained < 1  # B is zero: the base's own accuracy
    ruined = live.accuracy((start + 30 * np.random.Generator(np.random.Philox(0)).standard_normal(start.size)).astype(
        np.float32), subset())  # fmt: skip
    assert ruined == 0
    assert live.accuracy(start.astype(np.float32), subset()) == untrained


def test_a_search_takes_training_problems_only(tmp_path: Path, backbone: Backbone) -> None:
    for split in ("validation", "test"):
        task = cma_task(tmp_path, backbone, [*subset(), *subset("leak", split)[:1]])
        with pytest.raises(ValueError, match=r"1 problems outside the training pool: \['leak/0'\]"):
            cma.search(task)


def test_a_direction_is_keyed_by_its_own_subset(tmp_path: Path, backbone: Backbone) -> None:
    one = cma_task(tmp_path, backbone, subset())
    assert cma_task(tmp_path, backbone, subset(), count=5, partition="random").recipe == one.recipe
    assert cma_task(tmp_path, backbone, subset("b")).recipe != one.recipe
    assert cma_task(tmp_path, backbone, subset(), sigma=0.06).recipe != one.recipe
    layers = lora.layout(backbone, LoraSettings()).dimension
    assert layers == 311_296
    assert cma_task(tmp_path, backbone, subset(), population=None, lora=LoraSettings()).population == 41


def test_what_does_not_fit_is_refused_first(tmp_path: Path, backbone: Backbone) -> None:
    cma.check_memory(311_296, 2)
    with pytest.raises(UserError, match=r"2 searches over 10,000,000,000,000 LoRA parameters need 1440000\.0 GB"):
        cma.check_memory(10**13, 2)
    with pytest.raises(UserError, match="no linear layer c_attn"):
        lora.layout(backbone, LoraSettings(target_modules=["q_proj", "c_attn"]))


def test_free_memory_is_the_machines_or_the_containers(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9 kB\nMemAvailable:  4 kB\n")
    assert memory.available(meminfo, tmp_path) == 4096
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available(meminfo, tmp_path) == 4096
    (tmp_path / "memory.max").write_text("3000\n")
    assert memory.available(meminfo, tmp_path) == 2000
    assert memory.available(tmp_path / "none", tmp_path / "none") is None
