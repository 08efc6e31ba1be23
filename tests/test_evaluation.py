"""An evaluation: cut anywhere it goes on to the same records, and its samples are its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hyperes.bundled import wordproblems
from hyperes.errors import UserError
from hyperes.evaluation import Bench, Record, Task, evaluate, read_records, write_records
from hyperes.files import write_json_lines
from hyperes.problems import Problem
from hyperes.scores import correct_counts, suite_score


@pytest.fixture
def task(backbone: Any, tmp_path: Path) -> Task:
    stream = wordproblems.problems("test", "evaluation", wordproblems.Style(), (1.0, 1.0, 1.0))
    problems = [
        Problem(f"p{n}", p.question, str(p.answer), "numeric", "test", p.hops) for n, p in enumerate(islice(stream, 20))
    ]
    write_json_lines(tmp_path / "suite.jsonl", [asdict(problem) for problem in problems])
    bench = Bench(backbone, (), mask="fixed", seed=0, max_new_tokens=40, batch_size=8)
    return Task(bench, None, str(tmp_path / "suite.jsonl"), temperature=1.0, samples=2)


def test_a_cut_evaluation_goes_on_to_the_same_records(task: Task, tmp_path: Path) -> None:
    whole = evaluate(task, tmp_path / "whole.jsonl").records
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 5  # 20 problems x 2 samples in batches of 8
    # Killed inside the third line. The first two are marked, to see that they are kept and not made again.
    marked = [line.replace("####", "=> ####") for line in lines[:2]]
    (tmp_path / "cut.jsonl").write_text("".join(marked) + lines[2][:40])
    again = evaluate(task, tmp_path / "cut.jsonl").records
    assert (tmp_path / "cut.jsonl").read_text().count("\n") == 5
    assert sum("=>" in record.completion for record in again) >= 8
    plain = [replace(record, completion=record.completion.replace("=> ####", "####")) for record in again]
    assert plain == whole


def test_more_samples_leave_the_first_as_they_are(task: Task) -> None:
    two = evaluate(task).records
    one = evaluate(replace(task, samples=1)).records
    assert [record for record in two if record.sample == 0] == one
    assert [record.problem for record in two] == [f"p{n}" for n in range(20) for _ in range(2)]
    assert len({record.seed for record in two}) == 40
    assert any(a.completion != b.completion for a, b in zip(two[::2], two[1::2], strict=True))
    assert all(record.seed is None for record in evaluate(replace(task, temperature=0.0, samples=1)).records)


def test_records_survive_the_file(task: Task, tmp_path: Path) -> None:
    records = evaluate(replace(task, samples=1)).records
    strange = replace(records[0], completion="…\0\n", extracted=None, rule=None, seed=None)
    write_records(tmp_path / "records.parquet", [strange, *records])
    assert read_records(tmp_path / "records.parquet") == [strange, *records]
    (tmp_path / "records.parquet").write_bytes((tmp_path / "records.parquet").read_bytes()[:-9])
    with pytest.raises(UserError, match=r"records.parquet: not a file of evaluation records"):
        read_records(tmp_path / "records.parquet")


@pytest.fixture
def record() -> Callable[..., Record]:
    def make(problem: str, sample: int, correct: bool, rule: str | None = "hash") -> Record:
        found = None if rule is None else "7"
        return Record(problem, sample, "q", "7", "numeric", "text", found, rule, correct, 3, False, None)

    return make


def test_the_unit_of_a_score_is_the_problem(record: Callable[..., Record]) -> None:
    rows = [record("a", 0, True), record("a", 1, False, "last"), record("b", 0, False, None), record("b", 1, False)]
    assert correct_counts(rows).tolist() == [1, 0]
    score = suite_score(rows)
    assert (score["accuracy"], score["pass_at_k"], score["n"], score["samples"]) == (0.25, 0.5, 2, 2)
    assert score["rules"] == {"hash": 2, "last": 1}
    assert (score["unanswered"], score["strict"]) == (1, 0.25)
    single = suite_score([record("a", 0, True, "last"), record("b", 0, True)])
    assert (single["accuracy"], single["strict"], single["correct"]) == (1.0, 0.5, 2)
    assert "pass_at_k" not in single
