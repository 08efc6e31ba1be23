"""Nevergrad's algorithms by name: replayed bit for bit from any cut of their record, or refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyperes.errors import UserError
from hyperes.search.evolve import Outcome, generation_sizes, search
from hyperes.search.named import Named, Search, configure, require_repeatable

START = np.linspace(-1.0, 2.0, 6)
RANDOM = Search("RandomSearch", {}, sigma=0.3, population=7, evaluations=24, seed=5)


def accuracy(vectors: Sequence[np.ndarray]) -> list[float]:
    """A sphere in steps, as accuracy on few problems: many ties."""
    return [round(-4 * float(np.sum((vector - 0.5) ** 2))) / 16 for vector in vectors]


def run(trials: Path, settings: Search, evaluated: list[int], start: np.ndarray = START) -> Outcome:
    def evaluate(vectors: Sequence[np.ndarray]) -> list[float]:
        evaluated.append(len(vectors))
        return accuracy(vectors)

    sizes = generation_sizes(settings.population, None, settings.evaluations, whole=False)
    named = Named(start, settings)
    return search(trials, named, sizes, evaluate=evaluate, on_generation=lambda *_: None, keep=3)


@pytest.mark.parametrize("algorithm", ["OnePlusOne", "RandomSearch", "NGOpt", "DE", "PSO", "TBPSA", "Powell"])
def test_resume_is_bit_for_bit_after_a_cut_anywhere(tmp_path: Path, algorithm: str) -> None:
    population = 1 if algorithm in ("OnePlusOne", "Powell") else 7
    settings = replace(RANDOM, algorithm=algorithm, population=population)
    whole = run(tmp_path / "whole.jsonl", settings, [])
    content = (tmp_path / "whole.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    assert len(lines) == 24
    ends = np.cumsum([len(line) for line in lines]).tolist()
    trials = tmp_path / "trials.jsonl"
    for cut in (0, ends[0] // 2, ends[6] - 1, ends[6], ends[7] + 9, ends[20], ends[-1] - 5, ends[-1]):
        trials.write_bytes(content[:cut])
        evaluated: list[int] = []
        again = run(trials, settings, evaluated)
        kept = content[:cut].count(b"\n")
        kept -= kept % population if kept < 24 else 0
        assert sum(evaluated) == 24 - kept
        assert trials.read_bytes() == content, f"cut at byte {cut}"
        assert [(f, v.tobytes()) for f, v in again.seen] == [(f, v.tobytes()) for f, v in whole.seen]
    with pytest.raises(UserError, match="recorded vector differs"):
        run(trials, replace(settings, seed=6), [], START + 0.01)


@pytest.mark.parametrize("algorithm", ["OnePlusOne", "NGOpt", "DE"])
def test_it_climbs(tmp_path: Path, algorithm: str) -> None:
    settings = replace(RANDOM, algorithm=algorithm, population=1, evaluations=200)
    assert run(tmp_path / "trials.jsonl", settings, []).seen[0][0] > accuracy([START])[0] + 1


def test_random_search_scatters_about_the_start_with_the_given_sigma() -> None:
    vectors = np.array(Named(np.full(300, 5.0), replace(RANDOM, population=40, evaluations=40)).ask())
    assert abs(vectors.mean() - 5) < 5 * 0.3 / np.sqrt(vectors.size)
    assert abs(vectors.std() / 0.3 - 1) < 0.03


def test_one_plus_one_begins_at_the_start_and_asks_one_after_another(tmp_path: Path) -> None:
    run(tmp_path / "trials.jsonl", replace(RANDOM, algorithm="OnePlusOne", population=1), [])
    rows = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert rows[0]["vector"] == START.tolist()
    assert [(row["generation"], row["index"]) for row in rows] == [(number, 0) for number in range(24)]


@pytest.mark.parametrize(
    ("algorithm", "population"), [("RandomSearch", 7), ("OnePlusOne", 1), ("NGOpt", 7), ("DE", 7), ("PSO", 7)]
)
def test_algorithms_that_repeat_themselves_are_let_through(algorithm: str, population: int) -> None:
    require_repeatable(replace(RANDOM, algorithm=algorithm, population=population), 16)


def test_an_algorithm_that_draws_from_a_global_generator_is_refused() -> None:
    smoothed = {"smoother": True, "super_radii": True, "antismooth": 3}
    settings = replace(RANDOM, algorithm="OnePlusOne", arguments=smoothed, population=1)
    with pytest.raises(UserError, match="OnePlusOne: does not repeat itself under the same seed"):
        require_repeatable(settings, 256)


def test_what_nevergrad_cannot_do_is_named() -> None:
    with pytest.raises(UserError, match="population=7: Powell asks one candidate at a time"):
        Named(START, replace(RANDOM, algorithm="Powell"))
    with pytest.raises(UserError, match=r"algorithm=NLOPT_LN_SBPLX: fails in this search \(.*nlopt"):
        require_repeatable(replace(RANDOM, algorithm="NLOPT_LN_SBPLX", population=1), 6)
    with pytest.raises(UserError, match="did you mean"):
        configure("RandomSerch", {})
    with pytest.raises(UserError, match="NGOpt takes no arguments"):
        configure("NGOpt", {"budget": 3})


def test_arguments_reach_the_algorithm() -> None:
    narrow = replace(RANDOM, arguments={"scale": 1e-3})
    assert np.abs(np.array(Named(START, narrow).ask()) - START).max() < 0.3e-3 * 5


def test_tell_takes_the_asked_vectors_alone() -> None:
    named = Named(START, RANDOM)
    vectors = named.ask()
    with pytest.raises(RuntimeError, match="not been told"):
        named.ask()
    with pytest.raises(ValueError, match="takes the 7 vectors"):
        named.tell(vectors[1:], accuracy(vectors[1:]))
    with pytest.raises(ValueError, match="fitness nan of vector 1"):
        named.tell(vectors, [0.0, float("nan"), *accuracy(vectors[2:])])
    named.tell(vectors, accuracy(vectors))
