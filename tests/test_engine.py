"""The hf engine: batches change nothing, greedy is greedy, sampling follows the softmax."""

from __future__ import annotations

import dataclasses
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hyperes import counter
from hyperes.backbone import load_model, load_tokenizer, render
from hyperes.bundled import wordproblems
from hyperes.engines.hf import Completion, Decoding, KeyedSampling, Request, complete
from hyperes.errors import UserError


@pytest.fixture(scope="module")
def live(backbone: Any) -> tuple[Any, Any]:
    return load_model(backbone), load_tokenizer(backbone)


@pytest.fixture(scope="module")
def requests(live: tuple[Any, Any]) -> list[Request]:
    stream = wordproblems.problems("test", "engine", wordproblems.Style(), wordproblems.EQUAL_HOPS)
    return [
        Request(render(live[1], problem.question), counter.key("sample", 0, number, 0))
        for number, problem in enumerate(islice(stream, 24))
    ]


def test_greedy_answers_are_those_of_one_prompt_at_a_time(live: tuple[Any, Any], requests: list[Request]) -> None:
    model, tokenizer = live
    together = complete(model, tokenizer, requests, Decoding(max_new_tokens=40, batch_size=7))
    for request, completion in zip(requests[:8], together, strict=False):
        ids = tokenizer(request.prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        alone = model.generate(ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :]
        assert completion.text == tokenizer.decode(alone, skip_special_tokens=True)


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_a_sampled_completion_does_not_depend_on_its_batch(
    live: tuple[Any, Any], requests: list[Request], top_p: float
) -> None:
    def sample(wanted: list[Request], batch_size: int) -> list[Completion]:
        return complete(*live, wanted, Decoding(40, batch_size, temperature=1.0, top_p=top_p))

    together = sample(requests, 24)
    assert together == sample(requests, 5)
    assert list(reversed(together)) == sample(list(reversed(requests)), 11)
    assert together[3:4] == sample(requests[3:4], 1)
    other = [Request(request.prompt, request.key + 1_000_000) for request in requests]
    assert together != sample(other, 24)


def test_sampling_follows_the_tempered_softmax_inside_the_nucleus() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    draws = 20_000
    keys = torch.arange(draws, dtype=torch.int64) * 1000
    sampler = KeyedSampling(keys, prompt_length=3, temperature=0.7, top_p=0.9)
    chosen = sampler(torch.zeros(draws, 3, dtype=torch.int64), logits.expand(draws, -1)).argmax(-1)
    probabilities = (logits / 0.7).softmax(-1)
    # The nucleus is the smallest set of likeliest tokens that reaches 0.9.
    keep = int((probabilities.cumsum(-1) < 0.9).sum()) + 1
    expected = torch.where(torch.arange(5) < keep, probabilities, 0)
    expected /= expected.sum()
    found = torch.bincount(chosen, minlength=5) / draws
    torch.testing.assert_close(found, expected, rtol=0, atol=4 * (0.25 / draws) ** 0.5)


def test_an_answer_that_meets_the_limit_is_marked_truncated(live: tuple[Any, Any], requests: list[Request]) -> None:
    short = complete(*live, requests, Decoding(max_new_tokens=2, batch_size=24))
    assert all(completion.truncated and completion.tokens == 2 for completion in short)


def test_any_text_survives_the_embedded_tokenizer(live: tuple[Any, Any]) -> None:
    tokenizer = live[1]
    for text in ("Ωmega — ünïcode 漢字 🙂\t\n", "1234 + 99 = 1333\n#### 1333", "  two  spaces "):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    pieces = tokenizer.tokenize("1234")
    assert pieces == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [("missing", "the weights lack {name}; get"), ("nan", "the weight {name} holds NaN or infinity")],
)
def test_a_model_whose_weights_are_damaged_is_refused(backbone: Any, tmp_path: Path, damage: str, message: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(backbone.folder, folder)
    name = "model.layers.0.mlp.down_proj.weight"
    weights = load_file(folder / "model.safetensors")
    removed = weights.pop(name)
    if damage == "nan":
        removed[3, 5] = torch.nan
        weights[name] = removed
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"{folder}: " + message.format(name=name)):
        load_model(dataclasses.replace(backbone, folder=str(folder)))
