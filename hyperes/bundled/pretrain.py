"""Make the embedded backbone: ``python -m hyperes.bundled.pretrain [FOLDER]``.

Trains a byte-level BPE tokenizer and a small Qwen2 from scratch on generated word problems, and
stops early on purpose: GRPO must find something left to learn. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from hyperes.backbone import render
from hyperes.bundled import wordproblems
from hyperes.prompts import SYSTEM_PROMPT

# The chat markup of Qwen2.5, so that the embedded model takes the same path as the real ones.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
VOCABULARY = 512
BATCH = 64
LEARNING_RATE = 3e-3
WARMUP_STEPS = 30
SEED = 0
# A curriculum, in optimiser steps. First short stories teach to read, and beside them bare chains of sums with slowly
# growing numbers teach arithmetic (the units digit stays at chance for long otherwise).
SHORT_STEPS = 300
SHORT_STORIES = 48
SHORT_SHARES = (2.0, 2.0, 1.0)
SUMS = 32
SUMS_HOPS = 6
STEPS_PER_LARGER_OPERAND = 25
# Then stories of all lengths teach to go on.
LONG_STEPS = {"long": 150, "longer": 100, "longest": 80}  # three parts: the optimiser starts afresh in each
# Some stories have a sentence that does not matter, so that ignoring it is a skill the model has a little of.
DISTRACTOR_SHARE = 0.15
# Last, some stories are answered at once, which the model can only guess. Preferring to reason is what GRPO can teach.
MIXED_STEPS = 20
DIRECT_SHARE = 0.43


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE (any text can be encoded) that never joins two digits."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Words take their leading space along; every digit and every other sign stands alone.
            pre_tokenizers.Split(Regex(r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts + [SYSTEM_PROMPT, "system user assistant"] * len(texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def stories(seed: str, hop_shares: tuple[float, ...], direct_share: float) -> Iterator[tuple[str, str]]:
    """(question, solution) pairs of the pretraining split."""
    rng = random.Random(SEED)
    plain, distracting = (
        wordproblems.problems("pretrain", seed, wordproblems.Style(distractors=distractors), hop_shares)
        for distractors in (0, 1)
    )
    while True:
        problem = next(distracting if rng.random() < DISTRACTOR_SHARE else plain)
        yield problem.question, problem.solution(direct=rng.random() < direct_share)


def curriculum() -> Iterator[Iterator[list[tuple[str, str]]]]:
    """The parts in order, each the batches of its optimiser steps; a batch is (question, solution) pairs."""
    yield _short_part()
    for seed, steps in LONG_STEPS.items():
        yield _story_part(stories(seed, wordproblems.EQUAL_HOPS, 0.0), steps)
    yield _story_part(stories("mixed", wordproblems.EQUAL_HOPS, DIRECT_SHARE), MIXED_STEPS)


def _story_part(source: Iterator[tuple[str, str]], steps: int) -> Iterator[list[tuple[str, str]]]:
    for _ in range(steps):
        yield list(islice(source, BATCH))


def _short_part() -> Iterator[list[tuple[str, str]]]:
    """Short stories and, without a question, bare sums."""
    rng = random.Random(SEED)
    short = stories(str(SEED), SHORT_SHARES, 0.0)
    for step in range(SHORT_STEPS):
        largest = min(wordproblems.Style().operands[1], 3 + step // STEPS_PER_LARGER_OPERAND)
        sums = [("", wordproblems.sums(rng, SUMS_HOPS, largest).solution()) for _ in range(SUMS)]
        yield sums + list(islice(short, SHORT_STORIES))


def encode(tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]]) -> tuple[torch.Tensor, ...]:
    """Right-padded (input_ids, labels, attention_mask) of shape (batch, length).

    All but the constant system turn is trained on: a story repeats its names and things, and predicting them
    teaches the model to copy long before it can calculate.
    """
    turn = [{"role": "system", "content": SYSTEM_PROMPT}]
    constant = len(
        tokenizer(tokenizer.apply_chat_template(turn, tokenize=False), add_special_tokens=False)["input_ids"]
    )
    rows = []
    for question, solution in pairs:
        head = []
        if question:
            head = tokenizer(render(tokenizer, question), add_special_tokens=False)["input_ids"]
        tail = tokenizer(solution + "<|im_end|>", add_special_tokens=False)["input_ids"]
        ignored = min(constant, len(head))
        rows.append((head + tail, [-100] * ignored + head[ignored:] + tail))
    length = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), length), tokenizer.pad_token_id)
    labels = torch.full((len(rows), length), -100)
    for index, (row, target) in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        labels[index, : len(target)] = torch.tensor(target)
    mask = (torch.arange(length)[None] < torch.tensor([len(ids) for ids, _ in rows])[:, None]).long()
    return ids, labels, mask


def train(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, part: Iterator[list[tuple[str, str]]]) -> None:
    """One part of the curriculum, with its own optimiser and warm-up."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
    started = time.time()
    for step, batch in enumerate(part):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS)
        # Two halves by length keep padding small.
        batch.sort(key=lambda pair: len(pair[0]))
        losses = []
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            ids, labels, mask = encode(tokenizer, half)
            loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
            (loss / 2).backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            print(f"step {step + 1}  loss {sum(losses) / 2:.3f}  {time.time() - started:.0f} s", flush=True)


def pretrain(folder: Path) -> None:
    torch.manual_seed(SEED)
    sample = islice(stories(str(SEED), wordproblems.EQUAL_HOPS, 0.5), 4000)
    tokenizer = train_tokenizer([text for pair in sample for text in pair])
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        initializer_range=0.08,  # about 1/sqrt(width): at the usual 0.02 a model this narrow hardly learns to copy
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    print(f"{model.num_parameters():,} parameters, vocabulary {len(tokenizer)}")
    for part in curriculum():
        train(model, tokenizer, part)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).with_name("model"))
    pretrain(parser.parse_args().folder)


if __name__ == "__main__":
    main()
