"""Composition: everything in conf/ is valid, and mistakes are named before any heavy import."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from conftest import cli
from hydra import compose, initialize_config_dir

from hyperes.compose import precheck, register, to_config
from hyperes.config import CONF_DIR, Config, GrpoDirections
from hyperes.errors import UserError
from hyperes.genome import Genome


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


def composed(*overrides: str) -> Config:
    register()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return to_config(compose("config", overrides=list(overrides)))


@pytest.mark.parametrize(("experiment", "backbone"), list(product(choices("experiment"), choices("backbone"))))
def test_every_experiment_fits_every_backbone(experiment: str, backbone: str) -> None:
    path = ["backbone.path=owner/model"] if backbone == "hub" else []
    config = composed(f"+experiment={experiment}", f"backbone={backbone}", *path)
    assert config.name == experiment


@pytest.mark.parametrize("group", ["dataset", "merger", "engine", "executor", "direction_count"])
def test_every_choice_composes(group: str) -> None:
    for choice in choices(group):
        extra = ["optimizer=none"] if choice == "average" else []
        composed(f"{group}={choice}", *extra)


def test_direction_count_group_sets_the_count() -> None:
    assert composed("direction_count=n3").directions.count == 3
    assert composed().directions.count == 8


def test_the_papers_numbers_come_out_of_the_real_backbones() -> None:
    config = composed("backbone=qwen2_5_0_5b")
    directions = config.directions
    assert isinstance(directions, GrpoDirections)
    assert directions.count * directions.steps * directions.prompts_per_step == 17_920
    assert config.optimizer.grid is not None
    assert config.optimizer.grid.scales == [round(1 + k / 10, 1) for k in range(21)]
    assert config.optimizer.grid.drop_rates == [0.3, 0.5, 0.7, 0.9]
    groups = tuple(f"layers.{layer}.{part}" for layer in range(24) for part in ("attention", "mlp"))
    genome = Genome(groups, directions.count)
    assert (genome.dimension, genome.population) == (960, 24)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["merger=foo"], r"merger/foo.*average dare dare_ties ties"),
        (["+experiment=foo"], r"experiment/foo.*smoke"),
        (["backbone.naem=x"], r"backbone\.naem: no such key; did you mean name\?"),
        (["+backbone.naem=x"], r"naem"),
        (["directions.lora.rnak=4"], r"directions\.lora\.rnak: no such key; did you mean rank\?"),
        (["seed=abc"], r"'abc'.*key seed"),
        (["backbone.dtype=int8"], r"backbone\.dtype=int8: no such choice; choose from float32, bfloat16, float16"),
        (["directions.partition=hop"], r"directions\.partition=hop: .*hops, random, all"),
        (["directions=none"], r"optimizer=grid_cma: nothing to search without directions"),
        (["+experiment=base", "direction_count=n4"], r"directions\.count=4: directions=none has none"),
        (["directions.partition=all"], r"partition=all with directions\.count=8"),
        (["directions.steps=0"], r"directions\.steps=0: must be above 0"),
        (["directions.count=0"], r"directions\.count=0: grpo needs at least 1"),
        (["directions.completions_per_pass=24"], r"completions_per_pass=24: must be a multiple of group_size=8"),
        (["directions.group_size=1"], r"group_size=1"),
        (["merger=average"], r"merger=average"),
        (["optimizer.grid.drop_rates=[1.0]"], r"optimizer\.grid\.drop_rates=\[1\.0\]"),
        (["optimizer.grid.dare=[false]"], r"no point with the flags of merger=dare_ties"),
        (["test.suites=[gsm8k]"], r"test\.suites: gsm8k not in dataset=hops; choose from in_domain"),
        (["directions=adapters"], r"directions\.paths is empty"),
        (["optimizer.evolution.population=2"], r"population=2: must be at least 4"),
        (["backbone=hub"], r"backbone\.path"),
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
