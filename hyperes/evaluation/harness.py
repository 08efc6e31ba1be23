"""Stock lm-eval tasks on the live model. The only door to lm_eval."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks import TaskManager

from hyperes import counter
from hyperes.config import LmEvalConfig
from hyperes.engines.hf import Decoding, Request, complete
from hyperes.errors import UserError, first_line
from hyperes.evaluation.live import Bench, live
from hyperes.genome import Candidate
from hyperes.output import output_to
from hyperes.sandbox import require_permission

TASKS = Path(__file__).with_name("lm_tasks")  # our suites as lm-eval task files
# What our engine understands of a task's generation arguments; with any other, transformers' own sampling is used.
ENGINE_ARGUMENTS = {"until", "max_gen_toks", "do_sample", "temperature", "top_p"}


class LiveLM(HFLM):
    """The live model, whatever candidate stands in it, behind lm-eval's LM interface.

    Generation is the hf engine's, with its keyed sampling; likelihoods are HFLM's.
    """

    def __init__(self, bench: Bench) -> None:
        model = live(bench)
        super().__init__(pretrained=model.model, tokenizer=model.tokenizer, batch_size=bench.batch_size)
        self._bench = bench

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        groups: dict[str, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            groups[json.dumps(request.args[1], sort_keys=True, default=str)].append(index)
        answers: dict[int, str] = {}
        for indices in groups.values():
            arguments = normalize_gen_kwargs(requests[indices[0]].args[1], self.max_gen_toks)
            made = self._group([requests[index] for index in indices], dict(arguments))
            answers.update(zip(indices, made, strict=True))
        return [answers[index] for index in range(len(requests))]

    def _group(self, requests: list[Any], arguments: dict[str, Any]) -> list[str]:
        if set(arguments) - ENGINE_ARGUMENTS:
            return super().generate_until(requests, disable_tqdm=True)
        until = arguments["until"] if isinstance(arguments["until"], list) else [arguments["until"]]
        decoding = Decoding(
            arguments["max_gen_toks"],
            self._bench.batch_size,
            arguments.get("temperature", 0.0) if arguments.get("do_sample") else 0.0,
            arguments.get("top_p", 1.0),
            tuple(text for text in until if text and text != self.tokenizer.eos_token),
        )
        repeats: dict[tuple[str, int], int] = defaultdict(int)
        prompts = []
        for request in requests:
            place = (request.task_name, request.doc_id)
            key = counter.key("lm-eval", self._bench.seed, f"{place[0]}/{place[1]}", repeats[place])
            prompts.append(Request(request.args[0], key))
            repeats[place] += 1
        return [completion.text for completion in complete(self.model, self.tokenizer, prompts, decoding)]


@dataclass(frozen=True)
class HarnessTask:
    """One lm-eval task (or group) for one candidate; None is the base. Picklable."""

    bench: Bench
    candidate: Candidate | None
    name: str
    settings: LmEvalConfig
    allow_code: bool


def check_tasks(names: Sequence[str], settings: LmEvalConfig, allow_code: bool) -> None:
    """Load every task, with its data, before any work is done.

    Raises UserError for a name that neither lm-eval nor ``lm_tasks`` knows, data that cannot be had, and a task that
    runs model-written code without permission.
    """
    with _quiet():
        manager = _manager(settings)
    for name in names:
        if not manager.match_tasks([name]):
            raise UserError(f"test.tasks: lm-eval has no task {name}; `lm_eval ls tasks` lists them")
        try:
            with _quiet():
                tasks = manager.load([name])["tasks"]
        except Exception as error:  # a task's data and templates fail in a hundred ways
            raise UserError(f"test.tasks: {name} cannot be loaded ({first_line(error)})") from error
        require_permission(allow_code, [task for task, loaded in tasks.items() if loaded.config.unsafe_code])


def _manager(settings: LmEvalConfig) -> TaskManager:
    return TaskManager(include_path=str(TASKS), metadata=dict(settings.metadata))


def run_task(job: HarnessTask) -> dict[str, Any]:
    """lm-eval's results and samples of one task, as plain JSON: {results, groups, samples, versions, n}.

    Raises UserError where the task cannot be had (its data are not there) or does not take the arguments.
    """
    live(job.bench).set(job.candidate)
    arguments = asdict(job.settings)
    del arguments["metadata"]  # the manager's
    arguments["gen_kwargs"] = arguments["gen_kwargs"] or None
    try:
        with _quiet():
            made = simple_evaluate(
                model=LiveLM(job.bench),
                tasks=[job.name],
                task_manager=_manager(job.settings),
                confirm_run_unsafe_code=job.allow_code,
                **arguments,
            )
    except Exception as error:  # a task's data, templates and metrics fail in a hundred ways
        raise UserError(f"test.tasks: {job.name} fails in lm-eval ({first_line(error)})") from error
    assert made is not None
    kept = {
        "results": made["results"],
        "groups": made.get("groups", {}),
        "samples": made["samples"],
        "versions": made["versions"],
        "n": made["n-samples"],
    }
    return json.loads(json.dumps(kept, default=str))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval without its log lines and bars; the terminal belongs to ours."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with output_to(Path(os.devnull)):
            yield
    finally:
        logger.setLevel(level)
