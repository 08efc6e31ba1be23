"""Problems: splits that cannot touch, files that are wrong, subsets by a stated rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations, islice, pairwise
from pathlib import Path

import pytest
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
    assert report["removed_from_train"] == [
        {"id": "gsm8k/train/6", "in": "t", "like": "gsm8k/test/1", "similarity": 1.0},
        {"id": "gsm8k/train/21", "in": "t", "like": "gsm8k/test/1", "similarity": 1.0},
        {"id": "gsm8k/train/22", "in": "train", "like": "gsm8k/train/4", "similarity": 1.0},
    ]


def test_training_repeats_no_validation_question(tmp_path: Path) -> None:
    """Pairs that differ in a name: whichever of the two is drawn for validation, the other leaves the training data."""
    asked = "{} has {} apples, buys two more at the market and eats one of them. How many apples are left?"
    rows = [{"question": asked.format(name, n), "answer": "#### 1"} for n in range(20) for name in ("Ann", "Bob")]
    config = DatasetConfig("d", gsm8k_file(tmp_path / "train.jsonl", rows), {}, validation_size=8)
    problems.prepare(config, 0, tmp_path)
    ready = problems.read(tmp_path)
    numbers = [{p.question.split()[2] for p in part} for part in (ready.train, ready.validation)]
    assert not numbers[0] & numbers[1]
    removed = json.loads((tmp_path / "report.json").read_text())["removed_from_train"]
    assert len(removed) == 40 - len(ready.train) - len(ready.validation) > 0
    assert {row["in"] for row in removed} == {"validation"}


def test_training_problems_without_an_answer_are_left_out_and_reported(tmp_path: Path) -> None:
    rows = [{"problem": f"What is ${n}$?", "answer": answer} for n, answer in enumerate(["1", None, "", "2", "3"])]
    path = tmp_path / "train.json"
    path.write_text(json.dumps(rows))
    problems.prepare(DatasetConfig("d", SourceConfig("math", str(path)), {}, validation_size=1), 0, tmp_path)
    assert len(problems.read(tmp_path).train) == 2
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["without_answer"] == ["math/train/2", "math/train/3"]


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


hop_lists = st.lists(st.integers(0, 9), min_size=12, max_size=80)


def pool(hops: list[int]) -> list[Problem]:
    return [Problem(str(n), f"q{n}", "1", "numeric", "train", hop, f"subject {hop}") for n, hop in enumerate(hops)]


@given(hop_lists, st.integers(1, 12), st.integers(0, 3), st.sampled_from(["hops", "category", "random"]))
@settings(max_examples=60, deadline=None)
def test_subsets_are_a_partition(hops: list[int], count: int, seed: int, rule: str) -> None:
    subsets = partition(pool(hops), rule, count, seed)
    assert len(subsets) == count
    assert all(subsets)
    assert sorted(p.id for subset in subsets for p in subset) == sorted(str(n) for n in range(len(hops)))
    if rule == "random":
        sizes = [len(subset) for subset in subsets]
        assert max(sizes) - min(sizes) <= 1
    elif rule == "hops":  # ranges of hop counts in order; two may share one only where it was split
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


def test_categories_follow_the_stated_rule() -> None:
    sizes = {"Geometry": 9, "Algebra": 3, "Calculus": 2, "Logic": 2, "Sets": 5}
    everyone = [Problem(f"{c}{n}", "q", "1", "symbolic", "train", None, c) for c in sizes for n in range(sizes[c])]

    def cut(count: int) -> list[tuple[list[str], int]]:
        subsets = partition(everyone, "category", count, 0)
        return [(sorted({p.category or "" for p in subset}), len(subset)) for subset in subsets]

    assert cut(5) == [([name], sizes[name]) for name in sorted(sizes)]
    assert cut(4) == [(["Algebra"], 3), (["Calculus", "Logic"], 4), (["Geometry"], 9), (["Sets"], 5)]
    assert cut(3) == [(["Algebra", "Calculus", "Logic"], 7), (["Geometry"], 9), (["Sets"], 5)]
    assert cut(6)[2:4] == [(["Geometry"], 5), (["Geometry"], 4)]
    everyone[3] = Problem("x", "q", "1", "symbolic", "train")
    message = r"partition=category: deepscaler\.json tells no category for 1 of 21 problems; give a file .*=random"
    with pytest.raises(UserError, match=message):
        partition(everyone, "category", 5, 0, "deepscaler.json")


def test_too_many_subsets_are_refused() -> None:
    with pytest.raises(UserError, match=r"directions\.count=5: the training pool has only 4"):
        partition(pool([1, 2, 3, 4]), "hops", 5, 0)
    nohops = [Problem("1", "q", "1", "numeric", "train")]
    with pytest.raises(UserError, match=r"tells no hops for 1 of 1 problems; use directions\.partition=random"):
        partition(nohops, "hops", 1, 0)


@given(st.integers(1, 20), st.integers(1, 60), st.integers(1, 60))
def test_a_longer_list_of_prompts_begins_with_the_shorter(size: int, short: int, more: int) -> None:
    subset = pool([1] * size)
    longer = prompts(subset, short + more, seed=1)
    assert prompts(subset, short, seed=1) == longer[:short]
    assert len(longer) == short + more
    for start in range(0, len(longer) - size + 1, size):  # whole passes: every problem once
        assert len({p.id for p in longer[start : start + size]}) == size
