"""transformers' ``generate`` in length-sorted batches, with randomness that no batch can change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
    StopStringCriteria,
)

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
    until: tuple[str, ...] = ()  # texts that end an answer and are cut off with what follows


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
    done: dict[int, Completion] = {}
    for indices, answers in complete_batches(model, tokenizer, requests, decoding):
        done.update(zip(indices, answers, strict=True))
    return [done[index] for index in range(len(requests))]


def complete_batches(
    model: Any,
    tokenizer: Any,
    requests: Sequence[Request],
    decoding: Decoding,
    done: Collection[int] = (),
) -> Iterator[tuple[list[int], list[Completion]]]:
    """(indices of requests, their completions), batch by batch, passing over batches whose indices are all ``done``."""
    encoded = tokenizer([request.prompt for request in requests], add_special_tokens=False)["input_ids"]
    for indices in _batches([len(ids) for ids in encoded], decoding.batch_size):
        if all(index in done for index in indices):
            continue
        batch = tokenizer.pad({"input_ids": [encoded[i] for i in indices]}, return_tensors="pt").to(model.device)
        keys = torch.tensor([requests[i].key for i in indices], dtype=torch.int64, device=model.device)
        yield indices, _generate(model, tokenizer, batch, keys, decoding)


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
    criteria = StoppingCriteriaList()
    if decoding.until:
        criteria.append(StopStringCriteria(tokenizer, list(decoding.until)))
    output = model.generate(**batch, generation_config=config, logits_processor=processors, stopping_criteria=criteria)
    return [_completion(row, tokenizer, stops, decoding) for row in output[:, length:].tolist()]


def _completion(row: list[int], tokenizer: Any, stops: list[int], decoding: Decoding) -> Completion:
    end = next((place for place, token in enumerate(row) if token in stops), None)
    tokens = row if end is None else row[:end]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    cuts = [text.index(stop) for stop in decoding.until if stop in text]
    if end is None and cuts:  # the row was filled up with padding while others went on
        tokens = [token for token in tokens if token != tokenizer.pad_token_id]
    return Completion(text[: min(cuts, default=None)], len(tokens), truncated=end is None and not cuts)


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends an answer: the tokenizer's and those of the model's own generation settings."""
    declared = model.generation_config.eos_token_id
    stops = set(declared) if isinstance(declared, list) else {declared}
    return sorted((stops | {tokenizer.eos_token_id}) - {None})
