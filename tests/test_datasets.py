"""Data sets: the publishers' files as they are, the hub's columns, and rows that are wrong."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, needs_data
from test_config import choices, composed

from hyperes import problems
from hyperes.config import SourceConfig
from hyperes.datasets import sources
from hyperes.datasets.competition import last_box
from hyperes.errors import UserError
from hyperes.problems import Problem
from hyperes.sandbox import PLACEHOLDER

CHAIN = "<<4-2=2>> <<2*6=12>> #### 12"
FIELDS: dict[str, dict[str, Any]] = {  # one row of every hub data set
    "gsm8k": {"question": "q?", "answer": "4 - 2 = <<4-2=2>>2\n#### 12"},
    "gsm8k_aug": {"question": "q?", "steps": ["<<4-2=2>>"], "answer": "12"},
    "svamp": {"Body": "q", "Question": "?", "Answer": "12.0"},
    "multiarith": {"question": " q? ", "final_ans": "12"},
    "gsm_hard": {"input": "q?", "code": "def solution(): …", "target": 12.0},
    "math": {"problem": "q?", "level": "Level 5", "type": "Algebra", "solution": r"so $\boxed{12}$."},
    "deepscaler": {"problem": "q?", "answer": "12", "solution": ""},
    "amc23": {"id": 0, "question": "q?", "answer": "12", "url": ""},
}


def written(path: Path, rows: list[Any]) -> str:
    """The rows as a file of the kind that the path's ending says."""
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".gz":
        with gzip.open(path, "wt") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


@needs_data
@pytest.mark.parametrize(
    ("format_", "file", "count"),
    [
        ("gsm8k", "gsm8k/train.jsonl", 7473),
        ("gsm8k", "gsm8k/test.jsonl", 1319),
        ("gsm8k_aug", "gsm8k_aug/valid.txt", 500),
        ("gsm8k_aug", "gsm8k_aug/test.txt", 1319),
        ("svamp", "svamp/SVAMP.json", 1000),
        ("multiarith", "multiarith/MultiArith.json", 600),
        ("gsm_hard", "gsm_hard/gsmhardv2.jsonl", 1319),
        ("math", "math/train.json", 7474),
        ("math", "math/math500.json", 500),
        ("amc23", "amc23/test.jsonl", 40),
        ("humaneval", "humaneval/HumanEval.jsonl.gz", 164),
        ("mbpp", "mbpp/test.jsonl", 500),
    ],
)
def test_published_files_load_whole(format_: str, file: str, count: int) -> None:
    loaded = problems.load(SourceConfig(format_, str(DATA / file)), "train")
    assert len(loaded) == len({problem.id for problem in loaded}) == count
    if file == "math/train.json":  # four rows have no answer; seven subjects
        assert sum(not problem.answer for problem in loaded) == 4
        assert len({problem.category for problem in loaded}) == 7
    else:
        assert all(problem.answer for problem in loaded)


@needs_data
def test_what_published_rows_say() -> None:
    def load(format_: str, file: str) -> list[Problem]:
        return problems.load(SourceConfig(format_, str(DATA / file)), "test")

    hops = Counter(problem.hops for problem in load("gsm8k_aug", "gsm8k_aug/valid.txt"))
    assert hops == {0: 6, 1: 26, 2: 155, 3: 140, 4: 91, 5: 53, 6: 18, 7: 8, 8: 3}
    gsm8k, aug = load("gsm8k", "gsm8k/test.jsonl"), load("gsm8k_aug", "gsm8k_aug/test.txt")
    assert [problem.hops for problem in gsm8k] == [problem.hops for problem in aug]
    hard = [float(problem.answer) for problem in load("gsm_hard", "gsm_hard/gsmhardv2.jsonl")]
    assert (sum(not number.is_integer() for number in hard), sum(number < 0 for number in hard)) == (303, 146)
    assert load("amc23", "amc23/test.jsonl")[0].answer == "27"
    first = load("svamp", "svamp/SVAMP.json")[0]
    assert first.question.endswith("discount of 25 dollars on each pack How much do you have to pay to buy each pack?")
    assert (first.answer, first.kind) == ("51", "numeric")
    math500 = load("math", "math/math500.json")
    assert (math500[0].category, math500[0].kind) == ("Precalculus", "symbolic")
    train = problems.load(SourceConfig("math", str(DATA / "math/train.json")), "train")
    assert {problem.category for problem in math500} == {problem.category for problem in train}
    with pytest.raises(UserError, match=r"math/train\.json: no answer to math/test/887"):
        load("math", "math/train.json")


@needs_data
@pytest.mark.slow
def test_programs_pass_with_the_publishers_solutions_and_fail_without(tmp_path: Path) -> None:
    """Every program: the published solution passes, as a body and as a whole function; nothing, and None, do not."""
    jobs = []
    humaneval = DATA / "humaneval" / "HumanEval.jsonl.gz"
    mbpp = DATA / "mbpp" / "test.jsonl"
    rows = [json.loads(line) for line in gzip.decompress(humaneval.read_bytes()).splitlines()]
    for row, problem in zip(rows, problems.load(SourceConfig("humaneval", str(humaneval)), "test"), strict=True):
        body, stub = row["canonical_solution"], f"def {row['entry_point']}(*_): pass"
        jobs.append((problem.answer, [body, row["prompt"] + body], ["", stub]))
    rows = [json.loads(line) for line in mbpp.read_bytes().splitlines()]
    for row, problem in zip(rows, problems.load(SourceConfig("mbpp", str(mbpp)), "test"), strict=True):
        jobs.append((problem.answer, [row["code"].replace("\r\n", "\n")], [""]))
    assert all(answer.splitlines().count(PLACEHOLDER) == 1 for answer, *_ in jobs)
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    judge = f"""
import json

def passes(program, completion):
    try:
        exec(program.replace({PLACEHOLDER!r}, completion), {{"__name__": "program"}})
    except Exception:
        return False
    return True

for number, (program, right, wrong) in enumerate(json.load(open("jobs.json"))):
    for completion, expected in [(c, True) for c in right] + [(c, False) for c in wrong]:
        if passes(program, completion) != expected:
            print(number, expected, completion[:200])
"""
    done = subprocess.run(
        [sys.executable, "-c", judge], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == ""


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "jsonl.gz"])
@pytest.mark.parametrize("format_", FIELDS)
def test_the_hubs_columns_from_any_kind_of_file(tmp_path: Path, format_: str, ending: str) -> None:
    path = written(tmp_path / f"rows.{ending}", [FIELDS[format_], FIELDS[format_]])
    first, second = problems.load(SourceConfig(format_, path), "train")
    assert (first.id, second.id) == (f"{format_}/train/1", f"{format_}/train/2")
    assert (first.question.replace(" ", ""), first.answer) == ("q?", "12")
    assert first.hops == (1 if format_.startswith("gsm8k") else None)
    assert first.category == ("Algebra" if format_ == "math" else None)


def test_a_hub_data_set_is_read_by_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads a folder of the hub's layout as it reads the hub; a run refuses to mistake one for the other."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "whynlp" / "gsm8k-aug" / "data"
    folder.mkdir(parents=True)
    written(folder / "validation-00000-of-00001.parquet", [FIELDS["gsm8k_aug"]])
    monkeypatch.chdir(tmp_path)
    source = SourceConfig("gsm8k_aug", "whynlp/gsm8k-aug", split="validation")
    (problem,) = problems.load(source, "train")
    assert (problem.id, problem.answer, problem.hops) == ("gsm8k_aug/train/1", "12", 1)
    with pytest.raises(UserError, match="whynlp/gsm8k-aug: the hub client would read the folder"):
        sources.identity(source)
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(UserError, match=r"openai/gsm8k: cannot be had from the hub .*dataset\.folder"):
        problems.load(SourceConfig("gsm8k", "openai/gsm8k"), "train")


def test_both_text_forms_of_steps(tmp_path: Path) -> None:
    line = written(tmp_path / "rows.txt", [f"Is a || b?||{CHAIN}", "", "q?|| #### 1,000"])
    columns = written(tmp_path / "rows.jsonl", [{"question": "q?", "cot": "<<4-2=2>> <<2*6=12>>", "answer": 12}])
    loaded = problems.load(SourceConfig("gsm8k_aug", line), "train")
    assert [(p.id, p.question, p.answer, p.hops) for p in loaded] == [
        ("gsm8k_aug/train/1", "Is a || b?", "12", 2),
        ("gsm8k_aug/train/3", "q?", "1,000", 0),
    ]
    assert problems.load(SourceConfig("gsm8k_aug", columns), "train")[0].hops == 2


@pytest.mark.parametrize(
    ("format_", "file", "rows", "message"),
    [
        ("gsm8k_aug", "f.txt", [f"q?||{CHAIN}", "q? #### 3"], r"f\.txt, line 2: expected QUESTION\|\|STEPS"),
        ("gsm8k_aug", "f.txt", [f"q?||{CHAIN}", "q?||<<1=1>>"], r"f\.txt, line 2: 'answer' does not end in '####"),
        ("gsm8k_aug", "f.jsonl", [{"question": "q", "answer": "1"}], r"f\.jsonl, line 1: .*'steps' or 'cot'"),
        ("gsm8k_aug", "f.parquet", [{"question": "q", "steps": ["s"], "answer": "x"}], r"f\.parquet, row 1: .*'x' is"),
        ("gsm8k", "f.json", [FIELDS["gsm8k"], 3], r"f\.json, row 2: expected an object with a text in 'question'"),
        ("gsm8k", "f.jsonl", ["[" * 100_000], r"f\.jsonl, line 1: not JSON that can be read"),
        ("gsm8k", "f.jsonl", ["1" * 5000], r"f\.jsonl, line 1: not JSON that can be read"),
        ("gsm8k", "f.jsonl", ['{"question": "\\ud800", "answer": "#### 1"}'], r"f\.jsonl, line 1: .* valid Unicode"),
        ("gsm8k", "f.parquet", ["not parquet"], r"f\.parquet: not a Parquet file"),
        ("gsm8k", "f.jsonl.gz", ["not gzip"], r"f\.jsonl\.gz: not a whole gzip file"),
        ("svamp", "f.json", [{"Body": "b", "Question": "q", "Answer": "six"}], r"row 1: the answer 'six' is not a num"),
        ("svamp", "f.json", [{"Body": "b", "Answer": 6}], r"row 1: .*text in 'Question'"),
        ("multiarith", "f.json", [{"sQuestion": "q", "lSolutions": [1, 2]}], r"row 1: .*\[1, 2\]"),
        ("gsm_hard", "f.jsonl", [{"input": "q", "target": float("nan")}], r"line 1: the answer 'nan' is not a number"),
        ("math", "f.json", [{"problem": "q", "type": "Algebra"}], r"row 1: .*'answer' or 'solution'"),
        ("amc23", "f.jsonl", [{"answer": 1.0}], r"line 1: .*text in 'problem' or 'question'"),
        ("humaneval", "f.jsonl", [{"prompt": "def f():", "test": "x"}], r"line 1: .*text in 'entry_point'"),
        ("mbpp", "f.jsonl", [{"text": "t", "test_list": []}], r"line 1: .*'test_list'"),
        ("csv", "f.jsonl", [{}], r"format=csv of .*: no such format; choose from generated, gsm8k, gsm8k_aug"),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, format_: str, file: str, rows: list[Any], message: str) -> None:
    path = tmp_path / file
    if rows[0] in ("not parquet", "not gzip"):
        path.write_text(rows[0])
    else:
        written(path, rows)
    with pytest.raises(UserError, match=message) as caught:
        problems.load(SourceConfig(format_, str(path)), "train")
    assert "\n" not in str(caught.value)


def test_the_last_box_with_its_inner_braces() -> None:
    assert last_box(r"\boxed{1} then \boxed{\frac{1}{2}} or \{so\}") == r"\frac{1}{2}"
    assert last_box(r"$\boxed{\left\{1, 2\right\}}$") == r"\left\{1, 2\right\}"
    assert last_box(r"\fbox{3}") == "3"
    assert last_box(r"is $\boxed 5$.") == "5"
    assert last_box(r"never closed \boxed{7") == ""
    assert last_box("no box") == ""


def in_folder(folder: Path, *overrides: str) -> Any:
    config = composed("dataset=gsm8k", f"dataset.folder={folder}", *overrides)
    return sources.locate(config.dataset, config.test.suites)


def test_one_folder_holds_every_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gsm8k/train.jsonl", "gsm8k/test.jsonl", "mine.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, [FIELDS["gsm8k"]])
    with pytest.raises(UserError, match=r"svamp/SVAMP\.json: no such data file .*dataset\.suites\.svamp\.file"):
        in_folder(tmp_path)
    config = in_folder(tmp_path, "test.suites=[gsm8k]")
    assert config.train.path == str(tmp_path / "gsm8k" / "train.jsonl")
    assert list(config.suites) == ["gsm8k"]
    assert "questions of svamp are not kept out of training" in capsys.readouterr().out
    # a file that is there belongs to the run whether it is tested or not: validation does not depend on the choice
    (tmp_path / "svamp").mkdir()
    written(tmp_path / "svamp" / "SVAMP.json", [FIELDS["svamp"]])
    slices = [
        problems.recipe_slice(in_folder(tmp_path, f"test.suites={chosen}"), 0)
        for chosen in ("[gsm8k]", "[gsm8k,svamp]", "[svamp]")
    ]
    assert slices[0] == slices[1] == slices[2]
    assert set(slices[0]["suites"]) == {"gsm8k", "svamp"}
    # a file that was named outright wins over the folder
    mine = f"dataset.train.path={tmp_path / 'mine.jsonl'}"
    assert in_folder(tmp_path, mine, "test.suites=[gsm8k]").train.path == str(tmp_path / "mine.jsonl")
    with pytest.raises(UserError, match=r"dataset\.folder=.*nowhere: no such folder"):
        in_folder(tmp_path / "nowhere")


@needs_data
@pytest.mark.parametrize("dataset", choices("dataset"))
def test_every_data_set_finds_the_published_files(dataset: str) -> None:
    """With the code suites on top; two training files are too large to be kept beside the others."""
    kept_elsewhere = {"gsm8k_aug": "gsm8k_aug/valid.txt", "deepscaler": "math/train.json"}
    file = [f"dataset.train.file={kept_elsewhere[dataset]}"] if dataset in kept_elsewhere else []
    config = composed(f"dataset={dataset}", "suites=code", f"dataset.folder={DATA}", *file)
    located = sources.locate(config.dataset, None)
    assert {"mbpp", "humaneval"} < set(located.suites)
    assert located.suites.keys() == problems.recipe_slice(located, 0)["suites"].keys()
    for source in located.suites.values():
        assert problems.load(source, "test")
