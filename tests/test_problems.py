"""Problems: splits that cannot touch, files that are wrong, subsets by a stated rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations, islice, pairwise
from pathlib import Path

import pytest
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperes import problems
from hyperes.bundled import wordproblems
from hyperes.config import DatasetConfig, SourceConfig
from hyperes.errors import UserError
from hyperes.partition import partition, prompts
from hyperes.problems import Problem


def generated(limit: int, suite: str = "in_domain", split: str = "train") -> SourceConfig:
    return SourceConfig("generated", suite, split=split, limit=limit)


def gsm8k_file(path: Path, rows: Sequence[object]) -> SourceConfig:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return SourceConfig("gsm8k", str(path))


def row(number: int) -> dict[str, str]:
    return {"question": f"What is {number} + 1?", "answer": f"<<{number}+1={number + 1}>>\n#### {number + 1}"}


def test_generated_splits_are_disjoint_and_answers_are_right() -> None:
    for style in wordproblems.SUITES.values():
        drawn = {
            split: list(islice(wordproblems.problems(split, "x", style, wordproblems.EQUAL_HOPS), 300))
            for split in wordproblems.SPLITS
        }
        questions = [problem.question for part in drawn.values() for problem in part]
        assert len(set(questions)) == len(questions)
        for problem in drawn["train"]:
            assert all(1 <= value <= wordproblems.LARGEST for value in problem.values)
            solution = problem.solution()
            assert solution.endswith("\n" + problem.solution(direct=True))
            for line in solution.splitlines()[:-1]:
                left, _, right = line.partition(" = ")
                assert eval(left) == int(right)
            assert solution.count("\n") == problem.hops


def test_validation_is_apart_from_training_and_tests(tmp_path: Path) -> None:
    config = DatasetConfig("d", generated(300), {"t": generated(100, split="test")}, validation_size=100)
    problems.prepare(config, 3, tmp_path)
    ready = problems.read(tmp_path)
    texts = [{p.question for p in part} for part in (ready.train, ready.validation, ready.suites["t"])]
    assert [len(part) for part in texts] == [200, 100, 100]
    for left, right in combinations(texts, 2):
        assert not left & right
    assert {p.split for p in ready.validation} == {"validation"}
    other = tmp_path / "other"
    problems.prepare(config, 4, other)
    assert {p.question for p in problems.read(other).validation} != texts[1]


def test_test_questions_in_training_data_are_removed(tmp_path: Path) -> None:
    leaked = {"question": "what is  5 + 1 ?", "answer": "#### 6"}
    train = gsm8k_file(tmp_path / "train.jsonl", [row(n) for n in range(20)] + [leaked, row(3)])
    suite = gsm8k_file(tmp_path / "test.jsonl", [row(5)])
    problems.prepare(DatasetConfig("d", train, {"t": suite}, validation_size=4), 0, tmp_path)
    ready = problems.read(tmp_path)
    assert len(ready.train) + len(ready.validation) == 19
    assert "What is 5 + 1?" not in {p.question for p in ready.train + ready.validation}
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted(report["removed_from_train"]) == ["gsm8k/train/21", "gsm8k/train/22", "gsm8k/train/6"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(1), "{broken"], r"train\.jsonl, line 2: not valid JSON"),
        ([row(1), {"question": "q"}], r"train\.jsonl, line 2: expected an object"),
        ([{"question": "q", "answer": "no mark"}], r"train\.jsonl, line 1: 'answer' does not end in '####"),
        ([{"question": "q", "answer": "#### "}], r"train\.jsonl, line 1: 'answer' does not end"),
        ([], "holds no problems"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path: Path, rows: list[object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        problems.load(gsm8k_file(tmp_path / "train.jsonl", rows), "train")


def test_a_missing_file_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    config = DatasetConfig("d", SourceConfig("gsm8k", str(tmp_path / "no.jsonl")), {}, 1)
    with pytest.raises(UserError, match=r"no\.jsonl: no such data file"):
        problems.recipe_slice(config, 0)


def test_identity_is_content_not_path(tmp_path: Path) -> None:
    first = gsm8k_file(tmp_path / "a.jsonl", [row(1)])
    second = gsm8k_file(tmp_path / "b.jsonl", [row(1)])
    slices = [problems.recipe_slice(DatasetConfig("d", source, {}, 1), 0) for source in (first, second)]
    assert slices[0] == slices[1]
    gsm8k_file(tmp_path / "b.jsonl", [row(2)])
    assert problems.recipe_slice(DatasetConfig("d", second, {}, 1), 0) != slices[0]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"benchmark files are not at {DATA}")
def test_gsm8k_as_published() -> None:
    train = problems.load(SourceConfig("gsm8k", str(DATA / "gsm8k/train.jsonl")), "train")
    tests = problems.load(SourceConfig("gsm8k", str(DATA / "gsm8k/test.jsonl")), "test")
    assert (len(train), len(tests)) == (7473, 1319)
    assert tests[0].answer == "18"
    assert tests[0].hops == 2


hop_lists = st.lists(st.integers(0, 9), min_size=12, max_size=80)


def pool(hops: list[int]) -> list[Problem]:
    return [Problem(str(n), f"q{n}", "1", "numeric", "train", hop) for n, hop in enumerate(hops)]


@given(hop_lists, st.integers(1, 12), st.integers(0, 3), st.sampled_from(["hops", "random"]))
@settings(max_examples=60, deadline=None)
def test_subsets_are_a_partition(hops: list[int], count: int, seed: int, rule: str) -> None:
    subsets = partition(pool(hops), rule, count, seed)
    assert len(subsets) == count
    assert all(subsets)
    assert sorted(p.id for subset in subsets for p in subset) == sorted(str(n) for n in range(len(hops)))
    if rule == "random":
        sizes = [len(subset) for subset in subsets]
        assert max(sizes) - min(sizes) <= 1
    else:  # ranges of hop counts in order; two may share one only where it was split
        ranges = [(min(levels), max(levels)) for levels in ([p.hops or 0 for p in subset] for subset in subsets)]
        for (_, high), (low, _) in pairwise(ranges):
            assert high <= low


def test_each_hop_count_is_a_bucket_where_the_numbers_match() -> None:
    subsets = partition(pool([hop for hop in range(1, 9) for _ in range(10)]), "hops", 8, 0)
    assert [{p.hops for p in subset} for subset in subsets] == [{hop} for hop in range(1, 9)]


def test_uneven_buckets_follow_the_stated_rule() -> None:
    """The histogram of GSM8K-Aug's validation file: small neighbours join, the largest splits."""
    histogram = {0: 6, 1: 26, 2: 155, 3: 140, 4: 91, 5: 53, 6: 18, 7: 8, 8: 3}
    everyone = pool([hop for hop, number in histogram.items() for _ in range(number)])
    joined = [sorted({p.hops or 0 for p in subset}) for subset in partition(everyone, "hops", 5, 0)]
    assert joined == [[0, 1], [2], [3], [4], [5, 6, 7, 8]]
    split = [({p.hops for p in subset}, len(subset)) for subset in partition(everyone, "hops", 10, 0)]
    assert ({2}, 78) in split
    assert ({2}, 77) in split


def test_too_many_subsets_are_refused() -> None:
    with pytest.raises(UserError, match=r"directions\.count=5: the training pool has only 4"):
        partition(pool([1, 2, 3, 4]), "hops", 5, 0)
    nohops = [Problem("1", "q", "1", "numeric", "train")]
    with pytest.raises(UserError, match="tells no hops"):
        partition(nohops, "hops", 1, 0)


@given(st.integers(1, 20), st.integers(1, 60), st.integers(1, 60))
def test_a_longer_list_of_prompts_begins_with_the_shorter(size: int, short: int, more: int) -> None:
    subset = pool([1] * size)
    longer = prompts(subset, short + more, seed=1)
    assert prompts(subset, short, seed=1) == longer[:short]
    assert len(longer) == short + more
    for start in range(0, len(longer) - size + 1, size):  # whole passes: every problem once
        assert len({p.id for p in longer[start : start + size]}) == size
