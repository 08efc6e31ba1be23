"""Composition: everything in conf/ is valid, and mistakes are named before any heavy import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import cli, composed

from hyperes.compose import precheck
from hyperes.config import CONF_DIR
from hyperes.errors import UserError


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


def test_direction_count_group_sets_the_count() -> None:
    assert composed("direction_count=n3").directions.count == 3
    assert composed().directions.count == 8


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["merger=foo"], r"merger/foo.*average cabs dare dare_ties"),
        (["+experiment=foo"], r"experiment/foo.*smoke"),
        (["backbone.naem=x"], r"backbone\.naem: no such key; did you mean name\?"),
        (["+backbone.naem=x"], r"naem"),
        (["directions.lora.rnak=4"], r"directions\.lora\.rnak: no such key; did you mean rank\?"),
        (["seed=abc"], r"'abc'.*key seed"),
        (["backbone.dtype=int8"], r"backbone\.dtype=int8: no such choice; choose from float32, bfloat16, float16"),
        (["directions.partition=hop"], r"directions\.partition=hop: .*hops, category, random, all"),
        (["directions=none"], r"optimizer=grid_cma: nothing to search without directions"),
        (["+experiment=base", "direction_count=n4"], r"directions\.count=4: directions=none has none"),
        (["directions.partition=all"], r"partition=all with directions\.count=8"),
        (["directions.steps=0"], r"directions\.steps=0: must be above 0"),
        (["name=a/b"], r"name='a/b': letters, digits"),
        (["store="], r"store is empty: name a folder"),
        (["merger.scale=nan"], r"merger\.scale=nan: must be a finite number"),
        (["optimizer.grid.scales=[1,inf]"], r"optimizer\.grid\.scales=inf: must be a finite number"),
        (["test.suites=[in_domain,in_domain]"], r"name at least one suite, and each once"),
        (["test.suites=[]"], r"name at least one suite, and each once"),
        (["test.lm_eval.limit=0"], r"test\.lm_eval\.limit=0: must be above 0"),
        (["directions.count=0"], r"directions\.count=0: grpo needs at least 1"),
        (
            ["directions.completions_per_pass=24"],
            r"completions_per_pass=24: must divide prompts_per_step x group_size = 256",
        ),
        (
            [
                "directions.group_size=4",
                "directions.completions_per_generation=32",
                "directions.completions_per_pass=64",
            ],
            r"completions_per_generation=32: must be a multiple of completions_per_pass=64 and of group_size=4",
        ),
        (
            ["directions.completions_per_pass=4", "directions.completions_per_generation=4"],
            r"completions_per_generation=4: must be a multiple of completions_per_pass=4 and of group_size=8",
        ),
        (["directions.group_size=1"], r"group_size=1"),
        (["merger=average"], r"merger=average"),
        (["optimizer.grid.drop_rates=[1.0]"], r"optimizer\.grid\.drop_rates=\[1\.0\]"),
        (["optimizer.grid.dare=[false]"], r"no point with the flags of merger=dare_ties"),
        (["test.suites=[gsm8k]"], r"test\.suites: gsm8k not in dataset=hops; choose from in_domain"),
        (["directions=adapters"], r"directions\.paths is empty"),
        (["optimizer.evolution.population=2"], r"population=2: must be at least 4"),
        (["backbone=hub"], r"backbone\.path"),
        (["merger=average", "optimizer=cma"], r"merger=average has no coefficients to evolve"),
        (["merger=cabs"], r"merger=cabs has no coefficients to evolve; use optimizer=none, or grid"),
        (["merger=wudi", "optimizer=grid"], r"merger=wudi has no scale for a grid"),
        (["merger.operator=wudi"], r"merger\.operator=wudi neither drops nor elects"),
        (["merger.operator=average"], r"merger\.operator=average: no such choice"),
        (["merger.density=0.2", "merger.ties=false"], r"merger\.density=0\.2: trimming belongs to TIES"),
        (["merger=cabs", "optimizer=grid", "merger.cabs.block=4"], r"block=4: 8 directions share it and each keeps 0"),
        (["merger=cabs", "optimizer=grid", "merger.magnitude=one"], r"merger\.magnitude=one does not go with"),
        (["merger.cabs.keep=2"], r"merger\.cabs\.keep: goes into a part that is null here"),
        (["optimizer=grid", "optimizer.evolution.sigma=1"], r"optimizer\.evolution\.sigma: goes into a part that is"),
        (["optimizer=none", "optimizer.space=global"], r"optimizer\.space=global: optimizer=none searches no"),
        (["optimizer.space=layers"], r"optimizer\.space=layers: .*per_block, per_layer, per_module, global"),
        (["optimizer.evolution.evaluations=50"], r"generations=6 and evaluations=50: the budget is one of them"),
        (["optimizer.evolution.generations=null"], r"generations=None and evaluations=None: the budget is one"),
        (
            ["optimizer.evolution.generations=null", "optimizer.evolution.evaluations=3"],
            r"evaluations=3: not one generation",
        ),
        (["optimizer=random", "optimizer.evolution.answer=mean"], r"answer=mean: RandomSearch has no distribution"),
        (["optimizer.evolution.answer=median"], r"answer=median: .*mean, best, best_revalidated"),
        (["optimizer=random", "optimizer.evolution.diagonal=true"], r"diagonal is for cma"),
        (["optimizer=nevergrad", "optimizer.evolution.algorithm=OnePlusTwo"], r"OnePlusTwo: .*did you mean OnePlusOne"),
        (["+optimizer.evolution.arguments.popsize=9"], r"arguments are for nevergrad's algorithms"),
        (
            ["optimizer=random", "+optimizer.evolution.arguments.scael=2"],
            r"arguments\.scael: RandomSearch takes .*scale",
        ),
        (["optimizer=random", "optimizer.evolution.arguments.scale=2"], r"takes a plus, \+optimizer\.evolution\.arg"),
        (["optimizer=random", "+optimizer.evolution.arguments.scale=wide"], r"RandomSearch refuses them"),
        (["optimizer.evolution.revalidation.share=1"], r"share=1\.0: must lie strictly between 0 and 1"),
        (["directions=cma", "directions.population=3"], r"directions\.population=3: must be at least 4"),
        (["directions=cma", "directions.partition=all"], r"partition=all with directions\.count=8"),
        (["directions=cma", "directions.sigma=0"], r"directions\.sigma=0\.0: must be above 0"),
        (["directions=random", "directions.norm=grpo"], r"directions\.norm=grpo: give a number above 0, or match_grpo"),
        (["directions=random", "directions.norm=-1"], r"directions\.norm=-1: must be above 0"),
        (["directions=random", "directions.grpo=null"], r"norm=match_grpo: directions\.grpo"),
        (["directions=random", "directions.grpo.steps=0"], r"directions\.grpo\.steps=0: must be above 0"),
        (["dataset.partition=all"], r"dataset\.partition=all: .*hops, category"),
        (
            ["backbone=deepseek_r1_distill_qwen_1_5b", "test.temperature=0"],
            r"test\.samples=32: .*equal.*or test\.samples=1",
        ),
    ],
)
def test_mistakes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        precheck(overrides, None)
    assert "\n" not in str(caught.value)


def test_mistakes_cost_no_heavy_import() -> None:
    code = (
        "import sys; from hyperes.compose import precheck; precheck(['seed=1'], None); import hyperes.pipeline;"
        "assert not {'torch', 'transformers', 'trl', 'wandb', 'nevergrad', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["merger=foo"], "hyperes: Could not find 'merger/foo'"),
        (["backbone.path=./nowhere"], "hyperes: backbone.path=./nowhere: no such folder"),
        (["dataset=gsm8k", "dataset.train.path=./no.jsonl"], "hyperes: ./no.jsonl: no such data file"),
        (["store=/dev/null"], "hyperes: "),
    ],
)
def test_the_command_line_ends_in_one_clear_line(tmp_path: Path, overrides: list[str], message: str) -> None:
    done = cli(tmp_path, *overrides)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(message)


def test_help_and_cfg_say_what_there_is(tmp_path: Path) -> None:
    text = cli(tmp_path, "--help").stdout
    for word in ("problems -> directions -> grid", "dare_ties", "qwen2_5_0_5b", "+experiment=smoke"):
        assert word in text
    shown = cli(tmp_path, "--cfg", "job").stdout
    assert "learning_rate" in shown
    assert not list(tmp_path.iterdir())
