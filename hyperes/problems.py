"""Problems: loading every data set, and drawing validation apart from training and test."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hyperes.bundled import wordproblems
from hyperes.config import DatasetConfig, SourceConfig
from hyperes.errors import UserError, first_line
from hyperes.files import digest, file_digest, read_json_lines, write_json, write_json_lines
from hyperes.grading import Kind
from hyperes.grading.numeric import plain_number

TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Problem:
    """One question with its answer.

    ``hops`` counts reasoning steps where the data set tells them; ``split`` is what the problem may be used for.
    """

    id: str
    question: str
    answer: str
    kind: Kind  # how grading compares
    split: str  # train | validation | test
    hops: int | None = None


@dataclass(frozen=True)
class Problems:
    """Everything a run reads: the training pool, the validation set, the test suites by name."""

    train: tuple[Problem, ...]
    validation: tuple[Problem, ...]
    suites: dict[str, tuple[Problem, ...]]


def recipe_slice(config: DatasetConfig, seed: int) -> dict[str, Any]:
    """What the prepared problems depend on: sources by content (never by path), sizes and the seed."""
    return {
        "train": _identity(config.train),
        "suites": {name: _identity(source) for name, source in config.suites.items()},
        "validation_size": config.validation_size,
        "seed": seed,
    }


def prepare(config: DatasetConfig, seed: int, out: Path) -> None:
    """Load all sources, keep test questions out of training data, draw the validation set; write JSON lines.

    Training problems are ordered by a hash of (seed, id), so that a larger pool keeps the order of a smaller one.
    Training questions that stand in a test suite (same words and numbers) are removed and counted in report.json.
    """
    suites = {name: load(source, TEST) for name, source in config.suites.items()}
    tested = {normalised(problem.question) for suite in suites.values() for problem in suite}
    pool, removed = [], []
    for problem in load(config.train, TRAIN):
        text = normalised(problem.question)
        if text in tested:
            removed.append(problem.id)
        else:
            # A question asked twice must not stand in two subsets, or in training and validation.
            tested.add(text)
            pool.append(problem)
    pool = shuffled(pool, seed, "pool")
    if len(pool) <= config.validation_size:
        raise UserError(
            f"dataset.validation_size={config.validation_size}: only {len(pool)} training problems are left "
            f"in {config.train.path}; lower it"
        )
    validation, train = pool[: config.validation_size], pool[config.validation_size :]
    write_json_lines(out / "train.jsonl", [asdict(problem) for problem in train])
    write_json_lines(out / "validation.jsonl", [{**asdict(problem), "split": VALIDATION} for problem in validation])
    for name, suite in suites.items():
        write_json_lines(out / "suites" / f"{name}.jsonl", [asdict(problem) for problem in suite])
    hops = sorted({problem.hops for problem in pool if problem.hops is not None})
    report = {
        "train": len(train),
        "validation": len(validation),
        "suites": {name: len(suite) for name, suite in suites.items()},
        "hops": {str(hop): sum(problem.hops == hop for problem in train) for hop in hops},
        "removed_from_train": removed,
    }
    write_json(out / "report.json", report)


def read(folder: Path) -> Problems:
    """The problems that ``prepare`` wrote."""
    return Problems(
        train=read_problems(folder / "train.jsonl"),
        validation=read_problems(folder / "validation.jsonl"),
        suites={path.stem: read_problems(path) for path in sorted((folder / "suites").glob("*.jsonl"))},
    )


def read_problems(path: Path) -> tuple[Problem, ...]:
    return tuple(Problem(**row) for _, row in read_json_lines(path))


def content_key(problems: Sequence[Problem]) -> str:
    """SHA-256 of problems in their order: the identity of a subset or a suite."""
    return digest([asdict(problem) for problem in problems])


def shuffled(problems: Sequence[Problem], seed: int, purpose: str) -> list[Problem]:
    """The problems ordered by SHA-256 of (seed, purpose, id)."""
    return sorted(problems, key=lambda p: hashlib.sha256(f"{seed}/{purpose}/{p.id}".encode()).digest())


def normalised(question: str) -> str:
    """Lower-case words, numbers and operators: two questions with the same text differ in nothing that matters."""
    return " ".join(re.findall(r"[^\W_]+|[-+*/^=<>.](?=\s*[\d(\\])", question.lower()))


def load(source: SourceConfig, split: str) -> list[Problem]:
    """All problems of a source; raises UserError naming the file and line at fault."""
    rows = LOADERS[source.format](source, split)
    problems = list(islice(rows, source.limit))
    if not problems:
        raise UserError(f"{source.path}: holds no problems")
    return problems


def _identity(source: SourceConfig) -> dict[str, Any]:
    if source.format not in LOADERS:
        raise UserError(f"format={source.format} of {source.path}: no such format; choose from {', '.join(LOADERS)}")
    if source.format == "generated":
        content = f"wordproblems-{wordproblems.VERSION}/{source.path}"
    elif _is_local(source.path):
        path = Path(source.path).expanduser()
        if not path.is_file():
            raise UserError(f"{source.path}: no such data file (give a file, or a hub id such as openai/gsm8k)")
        content = file_digest(path)
    else:
        content = f"hub:{source.path}@{source.revision or 'main'}"
    return {"format": source.format, "content": content, "split": source.split, "limit": source.limit}


def _is_local(path: str) -> bool:
    return Path(path).suffix != "" or path.startswith((".", "/", "~")) or path.count("/") != 1


def _generated(source: SourceConfig, split: str) -> Iterator[Problem]:
    style = wordproblems.SUITES.get(source.path)
    if style is None:
        raise UserError(f"generated path={source.path}: choose from {', '.join(wordproblems.SUITES)}")
    if source.limit is None:
        raise UserError(f"generated path={source.path}: the generator never ends; set limit")
    stream = wordproblems.problems(source.split, source.path, style, wordproblems.EQUAL_HOPS)
    for number, problem in enumerate(stream):
        name = f"{source.path}/{source.split}/{number}"
        yield Problem(name, problem.question, str(problem.answer), "numeric", split, problem.hops)


def _gsm8k(source: SourceConfig, split: str) -> Iterator[Problem]:
    if _is_local(source.path):
        rows = read_json_lines(Path(source.path).expanduser())
    else:
        rows = enumerate(_from_hub(source, "main"), start=1)
    for number, row in rows:
        where = f"{source.path}, line {number}"
        if not (isinstance(row, dict) and isinstance(row.get("question"), str) and isinstance(row.get("answer"), str)):
            raise UserError(f"{where}: expected an object with the texts 'question' and 'answer'")
        chain, mark, answer = row["answer"].rpartition("####")
        if not mark or not answer.strip():
            raise UserError(f"{where}: 'answer' does not end in '#### <number>'")
        if plain_number(answer) is None:
            raise UserError(f"{where}: the answer {answer.strip()!r} after '####' is not a number")
        hops = chain.count("<<")
        yield Problem(f"gsm8k/{split}/{number}", row["question"], answer.strip(), "numeric", split, hops)


def _from_hub(source: SourceConfig, name: str) -> Iterable[Any]:
    import datasets

    try:
        return datasets.load_dataset(source.path, name, split=source.split, revision=source.revision)
    except Exception as error:  # the hub client's errors are many; each means the same to the user
        raise UserError(f"{source.path}: cannot be had from the hub ({first_line(error)})") from error


LOADERS: dict[str, Callable[[SourceConfig, str], Iterator[Problem]]] = {"generated": _generated, "gsm8k": _gsm8k}
