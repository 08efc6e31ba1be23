"""Finished runs are compared problem by problem, and only on the same problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hyperes import compare
from hyperes.evaluation import RECORDS, Record, write_records
from hyperes.files import write_json

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A finished run from right (1) and wrong (0) answers: make(name, seed, base="0101", merged="1101")."""

    def make_run(name: str, seed: int, numbers: int = 0, **models: str) -> Path:
        folder = tmp_path / f"{name}-{seed}-{numbers}"
        tests: dict[str, dict[str, str]] = {}
        for model, answers in models.items():
            key = f"{name}{seed}{numbers}{model}".ljust(24, "x")
            rows = [
                Record(
                    f"p{n}", 0, f"question {numbers + n}", "7", "numeric", "7", "7", "last", bit == "1", 1, False, None
                )
                for n, bit in enumerate(answers)
            ]
            write_records(tmp_path / "store" / "evaluation" / key / RECORDS, rows)
            tests[model] = {"suite": key}
        config = {"seed": seed, "store": str(tmp_path / "store")}
        made = {"config": config, "artifacts": {"tests": tests}, "scores": {}, "choice": None, "backbone": {}}
        result = {"status": "finished", "name": name, **made}
        write_json(folder / "result.json", result)
        return folder

    return make_run


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["compare", *map(str, arguments)])
    return compare.main()


def test_a_run_against_its_base(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("hyper_es", 0, base="0" * 10 + "1" * 10, merged="1" * 20)
    assert run(monkeypatch, folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hyper_es against base: points of accuracy [95 % interval]"
    assert lines[1].startswith("suite       20   +50.0 [")
    assert lines[1].endswith("p = 0.002  better")  # ten problems won, none lost: 2 / 2^10
    assert lines[2].startswith("average")


def test_equal_scores_of_different_problems_are_not_distinguishable(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make("a", 0, merged="110101" * 3), make("b", 0, merged="011101" * 3)
    assert run(monkeypatch, first, "--against", second) == 0
    assert "  +0.0 [" in (out := capsys.readouterr().out)
    assert out.count("p = 1  not distinguishable") == 2


def test_seeds_of_two_methods(make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [make("a", seed, merged="1111111101" * 4) for seed in range(3)]
    theirs = [make("b", seed, merged="0001000100" * 4) for seed in range(3)]
    assert run(monkeypatch, *ours, "--against", *theirs) == 0
    out = capsys.readouterr().out
    assert out.startswith("a (3 seeds) against b (3 seeds)")
    assert "+70.0" in out
    assert "90.0 ± 0.0 over seeds" in out
    assert "better" in out


def test_what_does_not_compare_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, other = make("a", 0, merged="1101"), make("b", 0, numbers=1, merged="1101")
    assert run(monkeypatch, first, "--against", other) == 2
    assert "b-0-1/result.json: suite has other problems than in" in capsys.readouterr().err
    half = tmp_path / "half.json"
    half.write_text('{"status": "finished"}')
    assert run(monkeypatch, first, "--against", half) == 2
    assert "half.json: not the result.json of a finished run" in capsys.readouterr().err
    assert run(monkeypatch, first, other) == 2
    assert "must be one method's with different seeds" in capsys.readouterr().err
    assert run(monkeypatch, first, "--store", tmp_path / "elsewhere") == 2
    assert "tested no base model" in capsys.readouterr().err
    assert run(monkeypatch, first, "--against", first, "--store", tmp_path / "elsewhere") == 2
    assert "is the run's store elsewhere?" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "nothing") == 2
    assert capsys.readouterr().err.endswith("nothing: no such file\n")
