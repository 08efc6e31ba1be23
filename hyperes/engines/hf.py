"""transformers' ``generate`` in length-sorted batches, with randomness that no batch can change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from hyperes import counter


@dataclass(frozen=True)
class Request:
    """One completion to make. ``key`` seeds its randomness: (seed, problem, sample)."""

    prompt: str
    key: int = 0


@dataclass(frozen=True)
class Completion:
    """The text of an answer without special tokens, its length in tokens, and whether the limit cut it off."""

    text: str
    tokens: int
    truncated: bool


@dataclass(frozen=True)
class Decoding:
    """How completions are made; temperature 0 is greedy."""

    max_new_tokens: int
    batch_size: int
    temperature: float = 0.0
    top_p: float = 1.0


class KeyedSampling(LogitsProcessor):
    """Sampling as an argmax: scaled logits plus Gumbel noise keyed by (seed, problem, sample, position).

    The Gumbel-max trick draws exactly from the softmax, and a row's noise depends on nothing but its key, so a
    completion is the same in every batch, order and process.
    """

    def __init__(self, keys: Tensor, prompt_length: int, temperature: float, top_p: float) -> None:
        self._keys = keys
        self._prompt_length = prompt_length
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.float() / self._temperature
        if self._top_p < 1:
            ordered, order = scores.sort(dim=-1, descending=True)
            mass_before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
            outside = torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, mass_before >= self._top_p)
            scores = scores.masked_fill(outside, -torch.inf)
        position = input_ids.shape[1] - self._prompt_length
        noise = counter.gumbel(counter.uniform_rows(self._keys + position, scores.shape[1]))
        return scores + noise


def complete(
    model: Any,
    tokenizer: Any,
    requests: Sequence[Request],
    decoding: Decoding,
) -> list[Completion]:
    """Completions in the order of the requests."""
    encoded = tokenizer([request.prompt for request in requests], add_special_tokens=False)["input_ids"]
    completions: list[Completion | None] = [None] * len(requests)
    for indices in _batches([len(ids) for ids in encoded], decoding.batch_size):
        batch = tokenizer.pad({"input_ids": [encoded[i] for i in indices]}, return_tensors="pt").to(model.device)
        keys = torch.tensor([requests[i].key for i in indices], dtype=torch.int64, device=model.device)
        answers = _generate(model, tokenizer, batch, keys, decoding)
        for index, answer in zip(indices, answers, strict=True):
            completions[index] = answer
    return [completion for completion in completions if completion is not None]


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, the longest first: memory trouble shows at once, not at the end."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    for start in range(0, len(order), size):
        yield order[start : start + size]


@torch.inference_mode()
def _generate(model: Any, tokenizer: Any, batch: Any, keys: Tensor, decoding: Decoding) -> list[Completion]:
    length = batch["input_ids"].shape[1]
    processors = LogitsProcessorList()
    if decoding.temperature > 0:
        processors.append(KeyedSampling(keys, length, decoding.temperature, decoding.top_p))
    stops = _stop_tokens(model, tokenizer)
    config = GenerationConfig(
        max_new_tokens=decoding.max_new_tokens, do_sample=False, eos_token_id=stops, pad_token_id=tokenizer.pad_token_id
    )
    output = model.generate(**batch, generation_config=config, logits_processor=processors)[:, length:].tolist()
    answers = []
    for row in output:
        end = next((place for place, token in enumerate(row) if token in stops), None)
        tokens = row if end is None else row[:end]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        answers.append(Completion(text, len(tokens), truncated=end is None))
    return answers


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends an answer: the tokenizer's and those of the model's own generation settings."""
    declared = model.generation_config.eos_token_id
    stops = set(declared) if isinstance(declared, list) else {declared}
    return sorted((stops | {tokenizer.eos_token_id}) - {None})
