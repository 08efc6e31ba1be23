"""Our test stage, lm-eval on the live model, and stock lm-eval on the exported model: the same verdict per problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, cli

from hyperes.evaluation import read_records

PROBLEMS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_adapter: Callable[[int], Path]) -> tuple[Path, dict[str, Any]]:
    """A merge of two adapters, tested on one suite by both ways of our test stage."""
    folder = tmp_path_factory.mktemp("harness")
    done = cli(
        folder,
        "directions=adapters",
        f"directions.paths=[{make_adapter(1)},{make_adapter(2)}]",
        "optimizer=none",
        "merger.scale=0.1",
        "test.suites=[in_domain]",
        f"test.limit={PROBLEMS}",
        "test.tasks=[hyperes_in_domain]",
        f"test.lm_eval.limit={PROBLEMS}",
        "+test.lm_eval.gen_kwargs.max_gen_toks=112",
        "tracking.mode=disabled",
    )
    assert done.returncode == 0, done.stderr
    assert "hyperes_in_domain  accuracy,none" in done.stdout
    return folder, json.loads((folder / done.stdout.strip().splitlines()[-1].removeprefix("result: ")).read_text())


@pytest.mark.slow
def test_three_ways_to_test_agree_problem_by_problem(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, result = run
    store = folder / "artifacts"
    for model in ("base", "merged"):
        key = result["artifacts"]["tests"][model]["in_domain"]
        ours = read_records(store / "evaluation" / key[:24] / "records.parquet")
        live = store / "lm-eval" / result["artifacts"]["tasks"][model]["hyperes_in_domain"][:24]
        samples = _samples(live / "samples" / "hyperes_in_domain.jsonl")
        assert [s["resps"][0][0] for s in samples] == [record.completion for record in ours]
        assert [s["accuracy"] for s in samples] == [float(record.correct) for record in ours]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    path = next(folder.rglob("result.json"))
    export = [sys.executable, "-m", "hyperes.export", str(path), str(tmp_path / "model"), "--store", str(store)]
    subprocess.run(export, cwd=folder, env=environment, check=True)
    tasks = ROOT / "hyperes" / "evaluation" / "lm_tasks"
    stock = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args"]
    stock += [f"pretrained={tmp_path / 'model'},dtype=float32", "--apply_chat_template", "--include_path", str(tasks)]
    stock += ["--tasks", "hyperes_in_domain", "--limit", str(PROBLEMS), "--gen_kwargs", "max_gen_toks=112"]
    stock += ["--device", "cpu", "--batch_size", "16", "--log_samples", "--output_path", str(tmp_path / "out")]
    done = subprocess.run(stock, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = _samples(next((tmp_path / "out").rglob("samples_hyperes_in_domain_*.jsonl")))
    assert [s["resps"][0][0] for s in samples] == [record.completion for record in ours]
    assert [s["accuracy"] for s in samples] == [float(record.correct) for record in ours]
    assert 0 < sum(record.correct for record in ours) < PROBLEMS


@pytest.mark.slow
def test_the_audit_says_how_answers_were_found(run: tuple[Path, dict[str, Any]]) -> None:
    folder, result = run
    path = next(folder.rglob("result.json"))
    command = [sys.executable, "-m", "hyperes.audit", str(path.parent.relative_to(folder)), "--model", "base"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    score = result["base"]["in_domain"]
    assert f"in_domain, base on bundled: {PROBLEMS} problems" in done.stdout
    assert f"hash {score['rules']['hash']}" in done.stdout
    assert f"nothing found {score['unanswered']}" in done.stdout
    wrong = subprocess.run(
        [*command, "--suite", "gsm8k"], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2
    assert wrong.stderr == f"hyperes: {path.relative_to(folder)}: this run tested no suite gsm8k; it has in_domain\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["test.tasks=[gsm9k]"], "test.tasks: lm-eval has no task gsm9k; `lm_eval ls tasks` lists them"),
        (
            ["test.tasks=[hyperes_gsm8k]", "+test.lm_eval.metadata.folder=nowhere"],
            "test.tasks: hyperes_gsm8k cannot be loaded (nowhere/gsm8k/test.jsonl: no such file)",
        ),
    ],
)
def test_a_task_that_cannot_run_is_refused_before_any_work(tmp_path: Path, overrides: list[str], message: str) -> None:
    done = cli(tmp_path, "+experiment=base", "tracking.mode=disabled", *overrides)
    assert done.returncode == 2
    assert done.stderr.strip() == f"hyperes: {message}"
    assert not list((tmp_path / "artifacts").glob("problems/*"))


def _samples(path: Path) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda sample: sample["doc_id"])


def test_likelihoods_are_those_of_the_live_candidate(backbone: Any, make_adapter: Callable[[int], Path]) -> None:
    """Multiple-choice tasks score continuations: with a candidate written, its likelihoods and not the base's."""
    import torch
    from lm_eval.api.instance import Instance

    from hyperes.evaluation.harness import LiveLM
    from hyperes.evaluation.live import Bench, live
    from hyperes.pool import genome_of

    folders = [make_adapter(1), make_adapter(2)]
    pairs = tuple((f"key{number}", str(folder)) for number, folder in enumerate(folders))
    bench = Bench(backbone, pairs, "fixed", 0, max_new_tokens=8, batch_size=4)
    candidate = genome_of(folders).shared(0.5, gamma=4.0, dare=True, ties=True)
    context, continuation = "Anna has 5 apples. Anna buys 3 more apples.", " How many apples does Anna have now?"
    request = Instance("loglikelihood", {}, (context, continuation), 0, metadata=("task", 0, 1))
    found = []
    for model in (None, candidate):
        live(bench).set(model)
        ((score, _),) = LiveLM(bench).loglikelihood([request], disable_tqdm=True)
        ids = live(bench).tokenizer(context + continuation, return_tensors="pt", add_special_tokens=False)["input_ids"]
        start = len(live(bench).tokenizer(context, add_special_tokens=False)["input_ids"])
        with torch.no_grad():
            logits = live(bench).model(ids).logits.log_softmax(-1)
        expected = logits[0, start - 1 : -1].gather(1, ids[0, start:, None]).sum().item()
        assert score == pytest.approx(expected, abs=1e-3)
        found.append(score)
    assert abs(found[0] - found[1]) > 0.01
