"""Make the embedded backbone: ``python -m hyperes.bundled.pretrain [FOLDER]``.

Trains a byte-level BPE tokenizer and a small Qwen2 from scratch on generated word problems, and
stops early on purpose: GRPO must find something left to learn. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

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
STEPS = 300
BATCH = 64
LEARNING_RATE = 3e-3
SEED = 0
# Two ways to write a solution share the pretraining text: one operation per equation, which the model
# computes well, and two per equation, which it computes badly. Preferring the first is what GRPO can teach.
TERSE_SHARE = 0.5
# A curriculum: arithmetic is learnt on short problems first, which costs a third of the time per step.
SHORT_SHARES = (2.0, 2.0, 1.0)
ALL_SHARES = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
SHORT_STEPS = 200


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


def examples(rng: torch.Generator, terse_share: float, hop_shares: tuple[float, ...]) -> Iterator[tuple[str, str]]:
    """(question, solution) pairs of the pretraining split."""
    stream = wordproblems.problems("pretrain", str(SEED), wordproblems.Style(), hop_shares)
    for problem in stream:
        terse = torch.rand((), generator=rng).item() < terse_share
        yield problem.question, problem.solution(2 if terse else 1)


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
        prompt = tokenizer.apply_chat_template(
            [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}],
            add_generation_prompt=True,
            tokenize=False,
        )
        head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        tail = tokenizer(solution + "<|im_end|>", add_special_tokens=False)["input_ids"]
        rows.append((head + tail, [-100] * constant + head[constant:] + tail))
    length = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), length), tokenizer.pad_token_id)
    labels = torch.full((len(rows), length), -100)
    for index, (row, target) in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        labels[index, : len(target)] = torch.tensor(target)
    mask = (torch.arange(length)[None] < torch.tensor([len(ids) for ids, _ in rows])[:, None]).long()
    return ids, labels, mask


def pretrain(folder: Path, steps: int, terse_share: float) -> None:
    torch.manual_seed(SEED)
    rng = torch.Generator().manual_seed(SEED)
    stream = examples(rng, terse_share, ALL_SHARES)
    short = examples(rng, 0.0, SHORT_SHARES)
    tokenizer = train_tokenizer([text for pair in islice(stream, 4000) for text in pair])
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
    started = time.time()
    for step in range(steps):
        warm = min(1.0, (step + 1) / 30)
        decay = 0.5 * (1 + math.cos(math.pi * step / steps)) * 0.9 + 0.1 if steps < 400 else 1.0
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * warm * decay
        # Length-sorted halves keep padding small without changing what a step sees.
        batch = sorted(islice(short if step < SHORT_STEPS else stream, BATCH), key=lambda pair: len(pair[0]))
        for half in (batch[: BATCH // 2], batch[BATCH // 2 :]):
            ids, labels, mask = encode(tokenizer, half)
            loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print(f"step {step + 1}/{steps}  loss {2 * loss.item():.3f}  {time.time() - started:.0f} s", flush=True)
        if step % 25 == 24 and step > 250:
            model.save_pretrained(folder / f"ck{step + 1}")
            tokenizer.save_pretrained(folder / f"ck{step + 1}")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).with_name("model"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--terse-share", type=float, default=TERSE_SHARE)
    arguments = parser.parse_args()
    pretrain(arguments.folder, arguments.steps, arguments.terse_share)


if __name__ == "__main__":
    main()
