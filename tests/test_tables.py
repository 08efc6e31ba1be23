"""Tables from small run folders: every number where it belongs, nothing compared that does not compare, gaps named."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, composed
from test_config import choices

from hyperes import status
from hyperes.compose import as_plain
from hyperes.evaluation import RECORDS, Record, write_records
from hyperes.files import digest, read_json, write_json
from hyperes.scores import suite_score
from hyperes.status import FAILED, QUEUED, Status
from hyperes.store import SHORT
from hyperes.tables import __main__ as command
from hyperes.tables.paper import TABLES, published

QWEN = "qwen2.5-0.5b-instruct"
GSM = ("gsm8k", "svamp", "multiarith", "gsm_hard")
Make = Callable[..., Path]


def rows_of(bits: str, suite: str) -> list[Record]:
    return [
        Record(f"p{n}", 0, f"{suite} {n}", "7", "numeric", "7", "7", "hash", bit == "1", 1, False, None)
        for n, bit in enumerate(bits)
    ]


@cache
def plain_config(name: str, *changed: str) -> dict[str, Any]:
    experiment = [f"+experiment={name}"] if name in choices("experiment") else []
    return as_plain(composed(*experiment, "backbone=qwen2_5_0_5b", "dataset=gsm8k_aug", *changed))


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A finished run in a sweep's folder, from right (1) and wrong (0) answers by suite."""
    store = tmp_path / "store"

    def make_run(name: str, seed: int = 0, base: str = "0000", sweep: str | None = "table3", **given: Any) -> Path:
        answers: dict[str, str] = given.pop("answers")
        change: dict[str, Any] = given.pop("made_from", {})
        made_from: dict[str, Any] = {
            "backbone": {"name": given.get("backbone", QWEN), "fingerprint": "f"},
            "dataset": {"name": "gsm8k_aug", "validation_size": 600, "seed": seed},
            "engine": {"kind": "hf", "batch_size": 8},
            "test": {"limit": None, "samples": 1, "temperature": 0.0, "top_p": 1.0},
            "versions": {"search": 1},
            "seed": seed,
        } | change
        key = digest([name, made_from, given.get("count", 10)])
        models = {
            "merged": answers,
            "base": {suite: (base * len(bits))[: len(bits)] for suite, bits in answers.items()},
        }
        tests = {}
        for model, suites in models.items():
            tests[model] = {suite: digest([key, model, suite]) for suite in suites}
            for suite, bits in suites.items():
                path = store / "evaluation" / tests[model][suite][:SHORT] / RECORDS
                write_records(path, rows_of(bits, suite + given.get("questions", "")))
        scores = {m: {s: suite_score(rows_of(bits, s)) for s, bits in suites.items()} for m, suites in models.items()}
        config = deepcopy(plain_config(name, *given.get("changed", ())))
        config |= {"name": name, "seed": seed, "store": str(store)}
        config["backbone"]["name"] = made_from["backbone"]["name"]
        config["directions"]["count"] = given.get("count", config["directions"]["count"])
        result = {
            "key": key,
            "status": "finished",
            "name": name,
            "config": config,
            "scores": scores["merged"],
            "base": scores["base"],
            "gradient_samples": 17_920,
            "candidate_evaluations": 691,
            "choice": {"validation": 0.5},
            "seconds": {"directions": 100.0, "longest_direction": 1800.0, "grid": 20.0, "evolve": 30.0, "test": 4.0},
            "artifacts": {"tests": tests, "directions": ["a" * 64, "b" * 64], "search": None},
            "backbone": made_from["backbone"],
            "versions": given.get("versions", {"torch": "2.13.0"}),
            "commit": given.get("commit", "c" * 40),
        }
        folder = tmp_path / "runs" / f"{name}-{seed}-{digest([given, change])[:6]}"
        write_json(folder / "result.json", result)
        write_json(store / "result" / key[:SHORT] / "recipe.json", {"recipe": {"slice": made_from}})
        overrides = [f"+experiment={name}", "backbone=qwen2_5_0_5b", "dataset=gsm8k_aug", "test.suites=[a b]"]
        write_json(folder / ".hydra" / "overrides.yaml", overrides)  # JSON is YAML
        if sweep:
            write_json(folder / "status.json", _status(name, sweep, seed, overrides, "finished"))
        return folder

    return make_run


def _status(name: str, sweep: str, seed: int, overrides: list[str], state: str) -> dict[str, Any]:
    identity = {"name": name, "backbone": QWEN, "dataset": "gsm8k_aug", "seed": seed}
    return {"state": state, "sweep": sweep, "number": 0, "overrides": overrides, "command": f"make {name}"} | identity


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["tables", *map(str, arguments)])
    code = command.main()
    printed = capsys.readouterr()
    return code, printed.out + printed.err


ALL = dict.fromkeys(GSM, "1111100000")
FEWER = {**ALL, "gsm8k": "1000000000"}

GOLDEN = """\
### Table 3. Ablations: qwen2.5-0.5b-instruct, gsm8k_aug, seed 0

| method |  | GSM8K (n=10) | SVAMP (n=10) | MultiArith (n=10) | GSM-Hard (n=10) | average (n=40) | Δ | \
test against Hyper-ES |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| Hyper-ES | ours | 50.00 [23.7, 76.3] | 50.00 [23.7, 76.3] | 50.00 [23.7, 76.3] | 50.00 [23.7, 76.3] | \
50.00 [35.0, 65.0] | – | reference |
|  | published | not available | not available | not available | not available | 57.13 | not available |  |
|  | difference |  |  |  |  | -7.13 |  |  |
| w/o CMA-ES | ours | 10.00 [1.8, 40.4] | 50.00 [23.7, 76.3] | 50.00 [23.7, 76.3] | 50.00 [23.7, 76.3] | \
40.00 [27.5, 55.0] | -10.00 | -10.00 [-17.5, -2.5], p = 0.12: not distinguishable |
|  | published | not available | not available | not available | not available | 55.92 | -1.21 |  |
|  | difference |  |  |  |  | -15.92 | -8.79 |  |
| w/o grouping | ours | missing | missing | missing | missing | missing | missing |  |
|  | published | not available | not available | not available | not available | 53.62 | -3.51 |  |

- Accuracies in % [95 % interval]; difference: ours less published.
- Test: the average less that of Hyper-ES [95 % interval]; sign flips on the same problems, p corrected by Holm over \
this table.
- Made by commit cccccccccccc. Keys: Hyper-ES, seed 0: `b01aa9f449deac6600eeaaad`; w/o CMA-ES, seed 0: \
`8702fc54edc3c9fa1dda799d`.
- w/o grouping: missing. `python -m hyperes +experiment=ablation_no_grouping backbone=qwen2_5_0_5b dataset=gsm8k_aug \
'test.suites=[a b]'`

"""


def test_the_whole_of_a_table(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL)
    finished = make("ablation_no_cmaes", answers=FEWER)
    code, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3", "--out", tmp_path / "out")
    assert code == 0
    assert text.splitlines() == [*GOLDEN.splitlines(), f"files: {tmp_path / 'out'}"]
    assert (tmp_path / "out" / "table3.md").read_text() == GOLDEN[:-1]
    tex = (tmp_path / "out" / "table3.tex").read_text()
    assert r"w/o CMA-ES & ours & 10.00 [1.8, 40.4] & " in tex
    assert r"$\Delta$" in tex
    assert tex.count(r"\begin{tabular}{llrrrrrrr}") == tex.count(r"\end{tabular}") == 1
    assert r"\caption{Table 3. Ablations: qwen2.5-0.5b-instruct, gsm8k\_aug, seed 0}" in tex
    records = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table3.csv").read_text())))
    assert len(records) == 3 * 6
    average = next(r for r in records if (r["method"], r["column"]) == ("ablation_no_cmaes", "average"))
    assert {name: average[name] for name in ("ours", "n", "published", "difference", "p", "verdict", "state")} == {
        "ours": "40.0",
        "n": "40",
        "published": "55.92",
        "difference": "-15.92",
        "p": "0.125",  # four problems lost, none won: 2 / 2^4
        "verdict": "not distinguishable",
        "state": "finished",
    }
    assert (average["keys"], average["commits"]) == (read_json(finished / "result.json")["key"], "c" * 12)
    missing = [r for r in records if r["method"] == "ablation_no_grouping"]
    assert {(r["state"], r["ours"]) for r in missing} == {("missing", "")}


def test_a_backbone_that_the_paper_does_not_have(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    backbone = {"name": "bundled", "fingerprint": "f"}
    make("hyper_es", answers=ALL, made_from={"backbone": backbone})
    make("ablation_no_cmaes", answers=FEWER, made_from={"backbone": backbone}, commit="d" * 40 + "-dirty")
    text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")[1]
    assert "| published |" not in text
    assert "published cells: not available for this backbone" in text
    assert re.search(
        r"Made by different commits. Keys: Hyper-ES, seed 0: `\w{24}` by c{12}; w/o.* by d{12}-dirty\.", text
    )


def test_another_method_under_a_known_name(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("ablation_no_cmaes", answers=ALL)
    make("hyper_es", answers=FEWER, changed=["directions.learning_rate=1e-3", "engine.batch_size=7"])
    text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")[1]
    assert text.count("### Table 3. ") == 2
    assert (
        "### Table 3. Ablations: qwen2.5-0.5b-instruct, gsm8k_aug, seed 0, with directions.learning_rate=0.001\n"
        in text
    )


def test_work_found_in_the_store_is_told_with_what_made_it(
    make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    made = {"versions": {"torch": "2.12.0"}, "commit": "d" * 40}
    write_json(tmp_path / "store" / "direction" / ("a" * SHORT) / "recipe.json", made)
    make("hyper_es", answers=ALL)
    text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")[1]
    assert "Made by commit cccccccccccc, dddddddddddd. Keys:" in text
    assert "Parts were made with different versions: torch 2.12.0, 2.13.0." in text


def test_the_stores_own_results_are_no_runs(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    result = read_json(make("hyper_es", answers=ALL, sweep="direction_count") / "result.json")
    write_json(tmp_path / "store" / "result" / result["key"][:SHORT] / "result.json", result)
    code, text = run(capsys, monkeypatch, tmp_path, "--table", "3")
    assert code == 2
    assert "no rows of a table in there (finished runs: hyper_es)" in text


def test_the_papers_own_cells(capsys: Any, monkeypatch: Any) -> None:
    code, text = run(capsys, monkeypatch, "--published", "--table", "11", "12", "N")
    assert code == 0
    assert "| Hyper-ES | not available | not available | not available | not available | 56.62 ± 0.44 |" in text
    assert text.endswith("- Hyper-ES over the better of CABS and WUDI: +1.56 on average.\n")
    assert run(capsys, monkeypatch)[0] == 2


def test_holm_corrects_over_the_table(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers={"gsm8k": "1" * 20})
    make("ablation_no_cmaes", answers={"gsm8k": "0" * 6 + "1" * 14})  # 2 / 2^6 = 0.031 alone, not among two
    make("ablation_no_grouping", answers={"gsm8k": "0" + "1" * 19})
    _, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")
    assert "-30.00 [-50.0, -10.0], p = 0.062: not distinguishable" in text
    assert "| average" not in text  # of one suite, as of other suites than the paper's, there is no average to compare
    assert "57.13" not in text


def test_a_failed_job_is_named_with_its_log(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL)
    for name, state in (("ablation_no_cmaes", FAILED), ("ablation_no_grouping", QUEUED), ("hyper_es", FAILED)):
        job = Status(**_status(name, "table3", 0, [f"+experiment={name}"], QUEUED))
        status.write(tmp_path / "runs" / f"job-{name}", job, state, error="it broke", log="/logs/x.log")
    code, text = run(capsys, monkeypatch, tmp_path / "runs")
    assert code == 0
    assert "| w/o CMA-ES | ours | failed | failed |" in text
    assert "- w/o CMA-ES: failed: it broke; log: /logs/x.log. `make ablation_no_cmaes`" in text
    assert "- w/o grouping: queued since 20" in text
    assert "- Hyper-ES:" not in text  # it was run again and finished


def test_only_jobs_that_failed(capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    job = Status(**_status("hyper_es", "table3", 0, ["+experiment=hyper_es"], QUEUED))
    status.write(tmp_path / "job", job, FAILED, error="it broke", log="x.log")
    code, text = run(capsys, monkeypatch, tmp_path)
    assert code == 0
    assert "Hyper-ES: failed: it broke; log: x.log." in text
    assert "- w/o CMA-ES: missing. `python -m hyperes +experiment=ablation_no_cmaes`" in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"made_from": {"dataset": {"name": "gsm8k_aug", "validation_size": 300, "seed": 0}}}, "validation_size 300"),
        ({"made_from": {"backbone": {"name": QWEN, "fingerprint": "other"}}}, "backbone.fingerprint other"),
        ({"made_from": {"versions": {"search": 2}}}, "versions of the stages.search 2"),
        ({"versions": {"torch": "2.14.0"}}, "versions of the libraries.torch 2.14.0"),
        ({"seed": 1}, "seed 1"),
        ({"backbone": "qwen2.5-1.5b-instruct"}, "qwen2.5-1.5b-instruct, gsm8k_aug"),
    ],
)
def test_what_was_made_otherwise_is_another_table(
    make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    make("hyper_es", answers=ALL)
    make("ablation_no_cmaes", answers=FEWER, **change)
    _, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")
    first, second = text.split("\n### ")
    assert told in first + second
    assert text.count("| Hyper-ES | ours | missing |") == text.count("| w/o CMA-ES | ours | missing |") == 1
    assert text.count("No test: the reference row, Hyper-ES, is missing.") == 1


def test_other_settings_that_change_no_number_do_not_split(
    make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    make("hyper_es", answers=ALL)
    make("ablation_no_cmaes", answers=FEWER, made_from={"engine": {"kind": "hf", "batch_size": 64}})
    assert run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")[1].count("### ") == 1


def test_other_problems_under_one_name_are_refused(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL)
    make("ablation_no_cmaes", answers=ALL, questions="other")
    code, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")
    assert code == 2
    assert "gsm8k has other problems than in" in text
    assert text.count("\n") == 1


def test_two_results_of_one_row(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    """The same run twice (a sweep that was run again) is one; two different runs of one name are refused."""
    folder = make("hyper_es", answers=ALL)
    again = tmp_path / "runs" / "again"
    again.mkdir()
    (again / "result.json").write_text((folder / "result.json").read_text())
    assert run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")[0] == 0
    make("hyper_es", answers=FEWER, made_from={"optimizer": {"evolution": {"generations": 3}}})
    code, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "3")
    assert code == 2
    assert "both are hyper_es with seed 0, but differ in optimizer" in text


def test_several_seeds(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    for seed, right in enumerate((5, 6, 7)):
        bits = "1" * right + "0" * (10 - right)
        data = {"name": "gsm8k_aug", "validation_size": 600, "seed": seed, "drawn": seed}
        make("hyper_es", seed=seed, sweep="multiseed", answers=dict.fromkeys(GSM, bits))
        if seed != 1:
            make("grpo_lora", seed=seed, sweep="multiseed", answers=dict.fromkeys(GSM, "1000000000"))
        assert data
    _, text = run(capsys, monkeypatch, tmp_path / "runs")
    assert text.startswith("### Table 11. Several seeds: qwen2.5-0.5b-instruct, gsm8k_aug\n")
    assert "| Hyper-ES (3 seeds) | ours | 60.00 ± 10.00 |" in text
    assert "| 56.62 ± 0.44 |" in text
    assert "| GRPO+LoRA (2 seeds) | ours | 10.00 ± 0.00 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| GRPO+LoRA"))
    assert row.endswith(": worse |")
    assert "-50.00 [" in row
    assert "- GRPO+LoRA (2 seeds), seed 1: missing. `python -m hyperes +experiment=grpo_lora" in text
    assert "seed=1`" in text


def test_the_base_needs_no_run_of_its_own(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL, base="1000000000", sweep="table1")
    _, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "1")
    assert "| Base | ours | 10.00 [1.8, 40.4] |" in text


def test_times_validation_and_gradient_samples(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL)
    _, text = run(capsys, monkeypatch, tmp_path / "runs", "--table", "4", "9", "10")
    assert "| Hyper-ES | ours | 17,920 | 50.00" in text
    assert "| Hyper-ES | ours | 1,800 | 100 | 20.00 | 30.00 | 150 | – | 4.00 |" in text
    assert "|  | published | 1,769 | not available | not available | not available | not available | 3.23 |" in text
    assert "|  | difference | +31.00 |" in text
    assert "| Hyper-ES | ours | 50.00 | 50.00 [23.7, 76.3] |" in text
    assert "| direction 1 alone | ours | missing | missing |" in text
    assert f"directions.paths=[{tmp_path}/store/direction/{'b' * SHORT}/adapter]" in text


def test_gains_that_the_paper_tells_without_cells(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL, sweep="table12")
    make("cabs", answers=FEWER, sweep="table12")
    make("wudi", answers={**ALL, "svamp": "1110000000"}, sweep="table12")
    _, text = run(capsys, monkeypatch, tmp_path / "runs")
    assert "- Hyper-ES over the better of CABS and WUDI: +5.00; published +1.56, difference +3.44.\n" in text
    assert "- Hyper-ES over tinyGRPO: missing; published +6.92.\n" in text


def test_numbers_of_directions(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    for count in (4, 10):
        make("hyper_es", answers=ALL if count == 10 else FEWER, count=count, sweep="direction_count")
    make("hyper_es", answers=ALL)  # of another sweep: it is no second N = 10 here, and those are none in Table 3
    _, text = run(capsys, monkeypatch, tmp_path / "runs")
    assert "### Number of directions: qwen2.5-0.5b-instruct" in text
    assert "| N = 4 | ours | 10.00 [1.8, 40.4]" in text
    assert "test against N = 10" in text
    assert "### Table 3" in text


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_nothing_to_tabulate(capsys: Any, monkeypatch: Any, tmp_path: Path, place: str) -> None:
    code, text = run(capsys, monkeypatch, tmp_path / place)
    assert code == 2
    assert text.count("\n") == 1


def test_a_store_that_is_elsewhere(make: Make, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make("hyper_es", answers=ALL)
    code, text = run(capsys, monkeypatch, tmp_path / "runs", "--store", tmp_path / "moved")
    assert code == 2
    assert "is the store elsewhere? Name it by --store" in text
    (tmp_path / "store").rename(tmp_path / "moved")
    assert run(capsys, monkeypatch, tmp_path / "runs", "--store", tmp_path / "moved")[0] == 0


def test_published_cells_are_the_papers() -> None:
    """Against the list of what survives of the paper's tables, where it is at hand."""
    source = DATA.parent
    if not (source / "paper").is_dir():
        pytest.skip(f"no paper/published.csv in {source}: set HYPERES_DATA to its data/")
    ours = {"no_cmaes": "ablation_no_cmaes", "no_grouping": "ablation_no_grouping", "hyper_es_4_steps": "four_steps"}
    with (source / "paper" / "published.csv").open() as stream:
        theirs = {
            (r["table"], r["backbone"], ours.get(r["method"], r["method"]), r["metric"].removeprefix("code_")): float(
                r["value"]
            )
            for r in csv.DictReader(stream)
        }
    assert {key: cell.value for key, cell in published().items()} == theirs
    assert published()["11", QWEN, "hyper_es", "average"].std == 0.44
    # every published cell has a row that shows it
    rows = {table.name: {*table.rows} for table in TABLES}
    assert all(method in rows[table] for table, _, method, _ in theirs)


def test_inner_products_without_the_matrices() -> None:
    import torch

    from hyperes.pool import Factors
    from hyperes.tables.geometry import cosines, inner_products, norms

    torch.manual_seed(0)
    shapes = {"x": (5, 7), "y": (6, 3)}
    directions = [
        {w: Factors(torch.randn(r, i), torch.randn(o, r), s) for w, (o, i) in shapes.items() if (n, w) != (2, "y")}
        for n, (r, s) in enumerate([(2, 2.0), (3, 0.5), (1, 1.0)])
    ]
    flat = [
        np.concatenate(
            [d[w].delta().double().numpy().ravel() if w in d else np.zeros(o * i) for w, (o, i) in shapes.items()]
        )
        for d in directions
    ]
    products = inner_products(directions)
    expected = np.array([[a @ b for b in flat] for a in flat])
    assert np.allclose(sum(products.values()), expected, rtol=1e-5)
    lengths = np.sqrt(np.diag(expected))
    assert np.allclose(cosines(products), expected / np.outer(lengths, lengths), rtol=1e-5)
    whole, summed = norms(products)
    assert np.allclose(whole, lengths, rtol=1e-5)
    each = [[float(d[w].delta().double().norm()) if w in d else 0.0 for w in shapes] for d in directions]
    assert np.allclose(summed, np.sum(each, axis=1), rtol=1e-5)
