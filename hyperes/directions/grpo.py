"""One descent direction by a short GRPO+LoRA run (eq. 1), or by full-parameter GRPO. The only door to trl."""

from __future__ import annotations

import gc
import math
import os
import re
import shutil
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hyperes import counter, versions
from hyperes.backbone import Backbone, load_model, load_tokenizer
from hyperes.config import GrpoDirections
from hyperes.directions import STEPS_FILE, on_wait
from hyperes.errors import UserError
from hyperes.files import (
    append_json_line,
    line_count,
    read_json_lines,
    sync_directory,
    sync_folder,
    write_json_lines,
    write_text,
)
from hyperes.output import output_to
from hyperes.partition import prompts
from hyperes.problems import Problem, content_key
from hyperes.prompts import messages
from hyperes.recipe import Recipe
from hyperes.store import Store

DONE = "checkpoint.done"  # written last: a checkpoint without it was torn by a kill
FLAT_WARNING = 0.8


@dataclass(frozen=True)
class GrpoTask:
    """One run, picklable: a subset, a seed, the settings. ``recipe`` is the direction's, ``trajectory`` the run's."""

    store: str
    recipe: Recipe
    trajectory: Recipe
    backbone: Backbone
    settings: GrpoDirections
    subset: tuple[Problem, ...]
    seed: int


def recipes(settings: GrpoDirections, subset: list[Problem], backbone: Backbone, seed: int) -> tuple[Recipe, Recipe]:
    """(direction, trajectory) recipes.

    A direction is keyed by its own subset, never by how many others there are. The trajectory leaves out the number
    of steps: a 4-step direction is the step-4 state of the 7-step run. Full-parameter runs keep their last state alone.
    """
    part = asdict(settings)
    for other in ("count", "partition", "steps"):  # they only choose the subset, or where on the way to stop
        part.pop(other)
    if settings.lora is None:
        part["steps"] = settings.steps
    part["seed"] = seed
    upstream = {"subset": content_key(subset), "backbone": Recipe("backbone", 1, backbone.identity, {}).key}
    trajectory = Recipe("trajectory", versions.GRPO, part, upstream)
    return Recipe("direction", versions.GRPO, {"steps": settings.steps}, {"trajectory": trajectory.key}), trajectory


def train(task: GrpoTask) -> Path:
    """The published direction: trained, continued, or found. Returns its folder (adapter/, steps.jsonl)."""

    def build(out: Path) -> None:
        with store.workspace(task.trajectory, on_wait) as run:
            if len(_rows(run, task.settings.steps)) < task.settings.steps or not _adapter(run, task).is_dir():
                with output_to(run / "train.log"):
                    _continue_run(task, run)
            shutil.rmtree(out / "adapter", ignore_errors=True)
            shutil.copytree(_adapter(run, task), out / "adapter")
            rows = _rows(run, task.settings.steps)
            if task.settings.lora is None:  # three times the model, and no longer run goes on from it
                for checkpoint in run.glob("checkpoint-*"):
                    shutil.rmtree(checkpoint)
        if all(row["zero_variance"] >= 1 for row in rows):
            raise UserError(
                f"direction on {len(task.subset)} problems: every group of {task.settings.group_size} completions got "
                "equal rewards at every step, so there is no signal to learn from; the subset is too hard or too easy "
                "for this backbone (raise directions.group_size or use another partition)"
            )
        write_json_lines(out / STEPS_FILE, rows)

    store = Store(Path(task.store))
    return store.build(task.recipe, build, on_wait).path


def _rows(run: Path, steps: int) -> list[dict[str, Any]]:
    """Metrics of the first ``steps`` steps, as far as they are there."""
    if not (run / STEPS_FILE).exists():
        return []
    return [row for _, row in read_json_lines(run / STEPS_FILE, torn_tail=True) if row["step"] <= steps]


def _adapter(run: Path, task: GrpoTask) -> Path:
    return run / f"step-{task.settings.steps}"


def steps_so_far(store: Store, trajectory: Recipe) -> int:
    """Optimiser steps a run has logged, for progress bars; read without its lock."""
    return line_count(store.folder(trajectory) / STEPS_FILE)


def _continue_run(task: GrpoTask, run: Path) -> None:
    """Train from the last whole checkpoint in ``run`` (or from the start) to the asked step, bit for bit the same."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from safetensors.torch import save_file
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from hyperes.grading import grade_many
    from hyperes.pool import DENSE

    settings = task.settings
    checkpoint = _last_whole_checkpoint(run)
    done = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    write_json_lines(run / STEPS_FILE, _rows(run, done))

    chosen = prompts(task.subset, settings.steps * settings.prompts_per_step, task.seed)
    data = Dataset.from_list([{"prompt": messages(p.question), "answer": p.answer, "kind": p.kind} for p in chosen])

    def reward(completions: list[list[dict[str, str]]], answer: list[str], kind: list[Any], **_: Any) -> list[float]:
        """Binary: 1 where the judge calls the completion correct."""
        verdicts = grade_many([completion[0]["content"] for completion in completions], answer, kind)
        return [float(verdict.correct) for verdict in verdicts]

    class Keeper(TrainerCallback):
        """Per step: one line of metrics, the adapter of that step, and the mark of a whole checkpoint."""

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if "reward" in logs:
                append_json_line(run / STEPS_FILE, _metrics(state.global_step, logs))

        def on_save(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            folder = run / f"checkpoint-{state.global_step}"
            if settings.lora or state.global_step == settings.steps:
                partial, kept = run / f".step-{state.global_step}", run / f"step-{state.global_step}"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                if settings.lora:
                    for name in ("adapter_config.json", "adapter_model.safetensors"):
                        shutil.copy2(folder / name, partial / name)
                else:
                    save_file(_difference(model, task.backbone), partial / DENSE)
                sync_folder(partial)
                if not kept.is_dir():
                    os.replace(partial, kept)
                sync_directory(run)
            sync_folder(folder)
            write_text(folder / DONE, "")
            for old in run.glob("checkpoint-*"):
                if old != folder:
                    shutil.rmtree(old)

    # TRL seeds itself and PEFT with this: without a seed of its own every direction would share its first LoRA A.
    seed_parts = () if settings.shared_initialisation else (task.trajectory.upstream["subset"],)
    seed = counter.key("grpo", task.seed, *seed_parts) % 2**31
    on_cuda = task.backbone.device.startswith("cuda")
    arguments = GRPOConfig(
        output_dir=str(run),
        max_steps=settings.steps,
        seed=seed,
        data_seed=seed,
        shuffle_dataset=False,  # the order is ours: a longer run begins with the shorter one
        per_device_train_batch_size=settings.completions_per_pass,
        gradient_accumulation_steps=settings.prompts_per_step * settings.group_size // settings.completions_per_pass,
        steps_per_generation=settings.completions_per_generation // settings.completions_per_pass,
        num_generations=settings.group_size,
        num_iterations=1,
        loss_type="grpo",
        scale_rewards="group",
        beta=0.0,
        epsilon=settings.clip,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        temperature=settings.temperature,
        max_completion_length=settings.max_new_tokens,
        gradient_checkpointing=on_cuda,  # memory is what a GPU lacks and time what a CPU lacks
        bf16=task.backbone.dtype == "bfloat16",
        use_cpu=not on_cuda,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_steps=1,
        save_strategy="steps",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model=load_model(task.backbone).requires_grad_(settings.lora is None),
        processing_class=load_tokenizer(task.backbone),
        args=arguments,
        train_dataset=data,
        reward_funcs=reward,
        peft_config=settings.lora
        and LoraConfig(
            r=settings.lora.rank,
            lora_alpha=settings.lora.alpha,
            target_modules=list(settings.lora.target_modules),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        ),
        callbacks=[Keeper()],
    )
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"out of memory while training a direction ({error}); lower directions.completions_per_generation or "
            "directions.completions_per_pass, or executor.workers"
        ) from error
    finally:
        # The worker lives on and will hold another model; trainers refer to themselves in circles.
        del trainer
        gc.collect()
        if on_cuda:
            torch.cuda.empty_cache()


def _difference(model: Any, backbone: Backbone) -> dict[str, Any]:
    """What training changed, float32 on the CPU: by name, every parameter that is no longer the base's."""
    base = dict(load_model(backbone).named_parameters())
    deltas = {}
    for name, parameter in model.named_parameters():
        delta = parameter.detach().float() - base[name].float()
        if delta.any():
            deltas[name] = delta.cpu()
    return deltas


def _metrics(step: int, logs: dict[str, Any]) -> dict[str, Any]:
    broken = [name for name in ("loss", "grad_norm") if not math.isfinite(logs[name])]
    if broken:
        raise UserError(
            f"step {step} of a direction: {' and '.join(broken)} not finite; lower directions.learning_rate"
        )
    return {
        "step": step,
        "reward": logs["reward"],
        "reward_std": logs["reward_std"],
        "zero_variance": logs["frac_reward_zero_std"],
        "loss": logs["loss"],
        "gradient_norm": logs["grad_norm"],
        "tokens": logs["completions/mean_length"],
        "truncated": logs["completions/clipped_ratio"],
        "entropy": logs["entropy"],
        "seconds": logs["step_time"],
    }


def _last_whole_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint that was finished; torn ones, and those with a damaged optimizer, are removed."""
    whole = []
    for folder in run.glob("checkpoint-*"):
        finished = (folder / DONE).exists() and re.fullmatch(r"checkpoint-\d+", folder.name)
        if finished and zipfile.is_zipfile(folder / "optimizer.pt"):  # torch's format; a file cut short is none
            whole.append(folder)
        else:
            shutil.rmtree(folder)
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
