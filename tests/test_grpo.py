"""GRPO directions: resuming changes nothing, steps are states of one run, PEFT reads what is written."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hyperes.backbone import load_model
from hyperes.bundled import wordproblems
from hyperes.config import GrpoDirections, LoraSettings
from hyperes.directions import grpo
from hyperes.errors import UserError
from hyperes.files import read_json_lines
from hyperes.pool import DENSE, genome_of, read_adapter
from hyperes.problems import Problem
from hyperes.store import Store

SETTINGS = GrpoDirections(
    count=1,
    steps=3,
    prompts_per_step=4,
    group_size=8,
    completions_per_pass=16,
    completions_per_generation=16,
    learning_rate=1e-3,
    max_new_tokens=48,
    lora=LoraSettings(rank=4, alpha=8),
)


def subset(hops: int, name: str = "a") -> list[Problem]:
    shares = tuple(float(h == hops) for h in range(1, 9))
    stream = wordproblems.problems("train", f"grpo-{name}", wordproblems.Style(), shares)
    return [
        Problem(f"{name}/{n}", p.question, str(p.answer), "numeric", "train", p.hops)
        for n, p in enumerate(islice(stream, 30))
    ]


@pytest.fixture(scope="module")
def task_in(backbone: Any) -> Callable[..., grpo.GrpoTask]:
    def make(store: Path, problems: list[Problem], **changes: Any) -> grpo.GrpoTask:
        torch.set_num_threads(1)
        settings = replace(SETTINGS, **changes)
        recipe, trajectory = grpo.recipes(settings, problems, backbone, seed=0)
        return grpo.GrpoTask(str(store), recipe, trajectory, backbone, settings, tuple(problems), 0)

    return make


def adapter_bytes(folder: Path) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Rows of the training history, without the clock."""
    rows = [row for _, row in read_json_lines(folder / "steps.jsonl")]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def train_in_child(task: grpo.GrpoTask) -> None:
    torch.set_num_threads(1)
    grpo.train(task)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, task_in: Callable[..., grpo.GrpoTask]) -> Path:
    """Three steps without interruption."""
    return grpo.train(task_in(tmp_path_factory.mktemp("straight"), subset(3)))


@pytest.mark.slow
def test_fewer_steps_are_a_state_of_the_longer_run(
    tmp_path: Path, straight: Path, task_in: Callable[..., grpo.GrpoTask]
) -> None:
    one = grpo.train(task_in(tmp_path, subset(3), steps=1))
    three = grpo.train(task_in(tmp_path, subset(3), steps=3))
    assert adapter_bytes(three) == adapter_bytes(straight)
    assert metrics(three) == metrics(straight)
    assert adapter_bytes(one) != adapter_bytes(three)
    assert len((one / "steps.jsonl").read_text().splitlines()) == 1
    assert len(list((tmp_path / "trajectory").iterdir())) == 1


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_bits(
    tmp_path: Path, straight: Path, task_in: Callable[..., grpo.GrpoTask]
) -> None:
    task = task_in(tmp_path, subset(3))
    context = multiprocessing.get_context("spawn")
    for kill_at in (1, 2):
        process = context.Process(target=train_in_child, args=(task,))
        process.start()
        while process.is_alive() and grpo.steps_so_far(Store(tmp_path), task.trajectory) < kill_at:
            time.sleep(0.02)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert Store(tmp_path).find(task.recipe) is None
    run = next((tmp_path / "trajectory").iterdir())
    checkpoint = grpo._last_whole_checkpoint(run)
    assert checkpoint is not None  # so what follows continues, and is not trained from scratch
    trained_before = (run / "train.log").read_text().count("'reward'")
    assert adapter_bytes(grpo.train(task)) == adapter_bytes(straight)
    assert (run / "train.log").read_text().count("'reward'") - trained_before < 3


@pytest.mark.slow
def test_directions_are_stock_adapters_with_their_own_start(
    tmp_path: Path, straight: Path, backbone: Any, task_in: Callable[..., grpo.GrpoTask]
) -> None:
    from peft import PeftModel

    model = PeftModel.from_pretrained(load_model(backbone), str(straight / "adapter")).merge_and_unload()
    base, live = load_model(backbone).state_dict(), model.state_dict()
    for name, factors in read_adapter(straight / "adapter").items():
        torch.testing.assert_close(live[name] - base[name], factors.delta(), rtol=0, atol=1e-6)

    def first_a(folder: Path) -> torch.Tensor:
        tensors = load_file(folder / "adapter" / "adapter_model.safetensors")
        return next(tensors[name] for name in sorted(tensors) if "lora_A" in name).flatten()

    def cosine(left: Path, right: Path) -> float:
        return float(torch.cosine_similarity(first_a(left), first_a(right), dim=0))

    other = grpo.train(task_in(tmp_path, subset(2, "b"), steps=1))
    assert abs(cosine(straight, other)) < 0.3
    shared = [
        grpo.train(task_in(tmp_path, subset(h, n), steps=1, shared_initialisation=True))
        for h, n in ((3, "a"), (2, "b"))
    ]
    assert cosine(*shared) > 0.9


@pytest.mark.slow
def test_a_full_parameter_run_resumes_to_the_same_dense_delta(
    tmp_path: Path, task_in: Callable[..., grpo.GrpoTask]
) -> None:
    full: dict[str, Any] = {"lora": None, "steps": 2, "learning_rate": 1e-4}
    straight = grpo.train(task_in(tmp_path / "straight", subset(3), **full))
    deltas = load_file(straight / "adapter" / DENSE)
    assert {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"} <= set(deltas)
    genome = genome_of([straight / "adapter"])
    assert (len(genome.groups), genome.unsearched) == (8, ("other",))

    task = task_in(tmp_path / "killed", subset(3), **full)
    assert task.trajectory != task_in(tmp_path, subset(3), **{**full, "steps": 1}).trajectory
    process = multiprocessing.get_context("spawn").Process(target=train_in_child, args=(task,))
    process.start()
    run = Store(tmp_path / "killed").folder(task.trajectory)
    while process.is_alive() and not (run / "checkpoint-1" / grpo.DONE).exists():
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert Store(tmp_path / "killed").find(task.recipe) is None
    assert (grpo.train(task) / "adapter" / DENSE).read_bytes() == (straight / "adapter" / DENSE).read_bytes()
    assert not list(run.glob("checkpoint-*"))


@pytest.mark.slow
def test_no_signal_at_all_is_an_error(tmp_path: Path, task_in: Callable[..., grpo.GrpoTask]) -> None:
    impossible = [replace(problem, answer="123456789") for problem in subset(3)]
    with pytest.raises(UserError, match="no signal to learn from"):
        grpo.train(task_in(tmp_path, impossible, steps=1))
