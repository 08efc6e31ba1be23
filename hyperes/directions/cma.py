"""One descent direction by CMA-ES on the LoRA parameters: no gradients, only accuracy on training problems."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hyperes import counter, memory, versions
from hyperes.backbone import Backbone, load_model, load_tokenizer, render
from hyperes.config import CmaDirections
from hyperes.directions import STEPS_FILE, on_wait
from hyperes.errors import UserError
from hyperes.files import append_json_line, line_count, read_json_lines, write_json_lines
from hyperes.genome import default_population
from hyperes.partition import prompts
from hyperes.problems import TRAIN, Problem, content_key
from hyperes.recipe import Recipe
from hyperes.search.separable import VECTORS, Separable
from hyperes.store import Store

if TYPE_CHECKING:
    from hyperes.lora import Layout

TRIALS, STATE = "trials.jsonl", "state.npz"


@dataclass(frozen=True)
class CmaTask:
    """One search, picklable: a subset, a seed, the settings, the population."""

    store: str
    recipe: Recipe
    backbone: Backbone
    settings: CmaDirections
    population: int
    subset: tuple[Problem, ...]
    seed: int

    @property
    def trials(self) -> int:
        return self.settings.generations * self.population


def tasks(
    store: Store,
    settings: CmaDirections,
    dimension: int,
    backbone: Backbone,
    subsets: Sequence[list[Problem]],
    seed: int,
) -> list[CmaTask]:
    """One task per subset, each keyed by its own subset. ``dimension``: LoRA parameters of this backbone."""
    population = settings.population or default_population(dimension)
    part = {"source": "cma", **asdict(settings), "population": population, "seed": seed}
    for other in ("count", "partition"):  # they only choose the subset
        part.pop(other)
    base = Recipe("backbone", 1, backbone.identity, {}).key
    made = []
    for subset in subsets:
        upstream = {"subset": content_key(subset), "backbone": base}
        recipe = Recipe("direction", versions.CMA, part, upstream)
        made.append(CmaTask(str(store.root), recipe, backbone, settings, population, tuple(subset), seed))
    return made


def check_memory(dimension: int, at_once: int) -> None:
    """Raises UserError where as many searches do not fit into main memory beside each other."""
    needed, there = at_once * dimension * VECTORS * 8, memory.available()
    if there is not None and needed > there:
        raise UserError(
            f"directions=cma: {at_once} searches over {dimension:,} LoRA parameters need {needed / 1e9:.1f} GB of main "
            f"memory at once and {there / 1e9:.1f} GB are free; lower executor.workers or directions.lora.rank"
        )


def trials_so_far(store: Store, recipe: Recipe) -> int:
    """Candidates a search has evaluated, for progress bars; read without its lock."""
    return line_count(store.work(recipe) / TRIALS)


def search(task: CmaTask) -> Path:
    """The published direction: searched, continued, or found. Returns its folder (adapter/, steps.jsonl, trials.jsonl).

    The direction is the final distribution mean. Raises ValueError for a problem that is not a training problem.
    """
    from hyperes import lora

    strangers = [problem.id for problem in task.subset if problem.split != TRAIN]
    if strangers:
        raise ValueError(f"a direction was handed {len(strangers)} problems outside the training pool: {strangers[:3]}")

    def build(out: Path) -> None:
        shape = lora.layout(task.backbone, task.settings.lora)
        mean = _search(task, shape, out).mean.astype(np.float32)
        shutil.rmtree(out / "adapter", ignore_errors=True)
        lora.write_adapter(out / "adapter", shape.factors(mean), task.settings.lora, task.backbone)
        (out / STATE).unlink(missing_ok=True)

    return Store(Path(task.store)).build(task.recipe, build, on_wait).path


def start(shape: Layout, seed: int) -> np.ndarray:
    """An untrained adapter as PEFT draws it, float64 (d,): A uniform in ±1/√in, B zero."""
    vector = np.zeros(shape.dimension)
    generator = np.random.Generator(np.random.Philox(seed))
    for _, a, _ in shape.blocks(vector):
        bound = a.shape[1] ** -0.5
        a[:] = generator.uniform(-bound, bound, a.shape)
    return vector


def _search(task: CmaTask, shape: Layout, out: Path) -> Separable:
    """Run all generations, going on from the state and the trials that ``out`` holds."""
    settings, population = task.settings, task.population
    seed = counter.key("cma", task.seed, task.recipe.upstream["subset"])
    evolution = Separable(start(shape, seed), sigma=settings.sigma, population=population, seed=seed)
    if (out / STATE).exists():
        evolution.load(out / STATE)
    trials = _recorded(out / TRIALS)
    rows = list(_recorded(out / STEPS_FILE))[: evolution.generation]
    write_json_lines(out / TRIALS, trials)  # without the line that a kill tore
    write_json_lines(out / STEPS_FILE, rows)
    known = {(trial["generation"], trial["index"]): trial for trial in trials}
    size = settings.problems_per_generation
    chosen = prompts(task.subset, settings.generations * size, task.seed)
    live = None
    for generation in range(evolution.generation, settings.generations):
        problems = chosen[generation * size : (generation + 1) * size]
        generation_trials = []
        for index in range(population):
            vector = evolution.vector(index).astype(np.float32)
            identity = {
                "generation": generation,
                "index": index,
                "vector_sha256": hashlib.sha256(vector.data).hexdigest(),
            }
            trial = known.get((generation, index))
            if trial is None:
                live = live or _Live(task, shape)
                started = time.monotonic()
                loss = 1 - live.accuracy(vector, problems)
                trial = {**identity, "loss": loss, "seconds": round(time.monotonic() - started, 3)}
                append_json_line(out / TRIALS, trial)
            elif any(trial[name] != value for name, value in identity.items()):
                raise UserError(
                    f"{out / TRIALS}: trial {index} of generation {generation} was another vector (another version of "
                    f"numpy, or an edited file); delete the folder {out} to search anew"
                )
            generation_trials.append(trial)
        evolution.tell([-trial["loss"] for trial in generation_trials])
        append_json_line(out / STEPS_FILE, _row(evolution, generation_trials))
        evolution.save(out / STATE)
    return evolution


def _row(evolution: Separable, trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [1 - trial["loss"] for trial in trials]
    return {
        "step": evolution.generation,
        "reward": float(np.mean(accuracies)),
        "reward_std": float(np.std(accuracies)),
        "best": max(accuracies),
        "sigma": evolution.sigma,
        "seconds": round(sum(trial["seconds"] for trial in trials), 3),
    }


def _recorded(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_json_lines(path, torn_tail=True)] if path.exists() else []


class _Live:
    """The model that answers, with one candidate at a time written into its weights."""

    def __init__(self, task: CmaTask, shape: Layout) -> None:
        from hyperes.engines.hf import Decoding
        from hyperes.resident import ResidentLora

        self._shape = shape
        self._tokenizer = load_tokenizer(task.backbone)
        self._model = load_model(task.backbone)
        self._resident = ResidentLora(self._model, [name for name, _, _ in shape.weights])
        self._decoding = Decoding(task.settings.max_new_tokens, task.settings.batch_size)

    def accuracy(self, vector: np.ndarray, problems: Sequence[Problem]) -> float:
        """Share of the problems that the candidate answers correctly, decoding greedily."""
        from hyperes.engines.hf import Request, complete
        from hyperes.evaluation.judge import judge

        self._resident.write(self._shape.factors(vector))
        requests = [Request(render(self._tokenizer, problem.question)) for problem in problems]
        completions = complete(self._model, self._tokenizer, requests, self._decoding)
        verdicts = judge([completion.text for completion in completions], problems)
        return sum(verdict.correct for verdict in verdicts) / len(verdicts)
