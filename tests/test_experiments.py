"""Every experiment on every backbone composes and is valid, the paper's numbers come out, and no typo slips through."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from omegaconf import OmegaConf
from test_config import choices, composed

from hyperes import compose as composition
from hyperes.compose import precheck
from hyperes.config import CONF_DIR, CmaDirections, GrpoDirections, RandomDirections
from hyperes.errors import UserError
from hyperes.genome import Genome
from hyperes.result import _gradient_samples
from hyperes.sweep import plan

ADDITIONS = {"mean_at_32"}  # goes with a method and leaves it its name


@pytest.mark.parametrize(("experiment", "backbone"), list(product(choices("experiment"), choices("backbone"))))
def test_every_experiment_fits_every_backbone(experiment: str, backbone: str) -> None:
    path = ["backbone.path=owner/model"] if backbone == "hub" else []
    config = composed(f"+experiment={experiment}", f"backbone={backbone}", *path)
    assert config.name == ("hyper_es" if experiment in ADDITIONS else experiment)


GROUPS = ("dataset", "directions", "suites", "merger", "optimizer", "engine", "executor", "direction_count")


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_composes(group: str) -> None:
    extra = {
        **{merger: ["optimizer=none"] for merger in ("average", "cabs", "task_arithmetic", "wudi")},
        "none": ["optimizer=none"] if group == "directions" else [],
        "adapters": ["directions.paths=[a,b]"],
    }
    for choice in choices(group):
        composed(f"{group}={choice}", *extra.get(choice, []))


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_an_experiment_opens_with_what_a_reader_needs(experiment: str) -> None:
    text = (CONF_DIR / "experiment" / f"{experiment}.yaml").read_text()
    head = text[: re.search(r"^[^#]", text, re.M).start()]  # type: ignore[union-attr]
    assert re.search(rf"python -m hyperes \+experiment={experiment}\b", head)
    if experiment not in ("smoke", "smollm2_gsm8k"):
        assert re.search(r"\(.*(Table|Fig\.|eq\.)", head)
        assert "# Cost" in head
        assert "# Published" in head


PAPER = {
    "qwen2_5_0_5b": (24, 960, 24),
    "qwen2_5_1_5b": (28, 1120, 25),
    "deepseek_r1_distill_qwen_1_5b": (28, 784, 23),
}


@pytest.mark.parametrize("backbone", PAPER)
def test_the_papers_search_comes_out_of_its_backbones(backbone: str) -> None:
    layers, dimension, population = PAPER[backbone]
    config = composed(f"backbone={backbone}")
    assert isinstance(config.directions, GrpoDirections)
    assert config.directions.lora is not None
    assert (config.directions.lora.rank, config.directions.lora.alpha) == (32, 64)
    assert config.dataset.validation_size == 300  # of hops; the real data sets follow
    assert composed(f"backbone={backbone}", "dataset=gsm8k_aug").dataset.validation_size == 600
    grid, evolution = config.optimizer.grid, config.optimizer.evolution
    assert grid is not None
    assert evolution is not None
    assert grid.scales == [round(1 + k / 10, 1) for k in range(21)]
    assert (grid.drop_rates, grid.dare, grid.ties) == ([0.3, 0.5, 0.7, 0.9], [False, True], [False, True])
    assert (evolution.sigma, evolution.population) == (0.3, None)
    groups = tuple(f"layers.{layer}.{part}" for layer in range(layers) for part in ("attention", "mlp"))
    genome = Genome(groups, config.directions.count)
    assert (genome.dimension, genome.population) == (dimension, population)


@pytest.mark.parametrize(
    ("experiment", "backbone", "samples"),
    [
        ("hyper_es", "qwen2_5_0_5b", 17_920),
        ("hyper_es", "qwen2_5_1_5b", 17_920),
        ("hyper_es", "deepseek_r1_distill_qwen_1_5b", 12_544),
        ("four_steps", "qwen2_5_0_5b", 10_240),
        ("grpo_lora", "qwen2_5_0_5b", 19_968),
        ("grpo_lora", "deepseek_r1_distill_qwen_1_5b", 14_080),
        ("tiny_grpo", "qwen2_5_0_5b", 19_968),
        ("random_directions", "qwen2_5_0_5b", 0),
        ("cma_directions", "qwen2_5_0_5b", 0),
        ("base", "qwen2_5_0_5b", 0),
    ],
)
def test_gradient_samples_are_the_published_ones(experiment: str, backbone: str, samples: int) -> None:
    assert _gradient_samples(composed(f"+experiment={experiment}", f"backbone={backbone}")) == samples


def test_decoding_comes_from_the_backbone() -> None:
    for backbone, expected in {
        "qwen2_5_0_5b": (1024, 1, 0.0, 1.0),
        "qwen2_5_1_5b": (1024, 1, 0.0, 1.0),
        "deepseek_r1_distill_qwen_1_5b": (6144, 32, 0.6, 0.95),
    }.items():
        config = composed(f"backbone={backbone}")
        assert isinstance(config.directions, GrpoDirections)
        assert config.directions.max_new_tokens == config.engine.max_new_tokens
        test = config.test
        assert (config.engine.max_new_tokens, test.samples, test.temperature, test.top_p) == expected
    mixed = composed("+experiment=[grpo_lora,mean_at_32]").test
    assert (mixed.samples, mixed.temperature, mixed.top_p) == (32, 0.6, 0.95)
    assert composed("backbone=deepseek_r1_distill_qwen_1_5b", "test.samples=4").test.samples == 4


def test_subsets_are_cut_by_what_the_data_set_tells() -> None:
    for dataset, expected in {"gsm8k_aug": "hops", "math": "category", "deepscaler": "category"}.items():
        for experiment in ("hyper_es", "cma_directions"):
            directions = composed(f"+experiment={experiment}", f"dataset={dataset}").directions
            assert isinstance(directions, (GrpoDirections, CmaDirections))
            assert directions.partition == expected
    matched = composed("directions=random", "dataset=math", "direction_count=n3").directions
    assert isinstance(matched, RandomDirections)
    assert matched.grpo is not None
    assert (matched.grpo.partition, matched.grpo.count) == ("category", 3)


def test_a_stated_norm_needs_no_pool() -> None:
    for norm in ("1", "0.5"):
        directions = composed("directions=random", f"directions.norm={norm}").directions
        assert isinstance(directions, RandomDirections)
        assert (type(directions.norm), directions.norm, directions.grpo) == (float, float(norm), None)


DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "experiments").glob("*/README.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_the_documents_composes(document: Path) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", document.read_text(), re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True)[3:] for line in lines if line.startswith("python -m hyperes ")]
    for command in commands:
        overrides = [word for word in command if "=" in word]
        if len(overrides) == 1 and overrides[0].startswith("+sweep="):
            continue  # test_sweep plans each
        if plan(overrides, None, multirun="-m" in command) is None:
            precheck(overrides, None)
    assert commands


FILES = sorted(path.relative_to(CONF_DIR) for path in CONF_DIR.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_typo_in_any_file_is_caught(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CONF_DIR, tmp_path / "conf")
    monkeypatch.setattr(composition, "CONF_DIR", tmp_path / "conf")
    copy = tmp_path / "conf" / file
    header = "".join(line for line in copy.read_text().splitlines(keepends=True) if line.startswith("# @package"))
    body = OmegaConf.to_container(OmegaConf.load(copy))
    assert isinstance(body, dict)
    copy.write_text(header + OmegaConf.to_yaml(misspelt(body)))
    group = file.parent.name
    plus = "+" if group in ("experiment", "sweep") else ""
    overrides = [f"{plus}{group}={file.stem}"] if group else []
    with pytest.raises(UserError, match="_typo") as caught:
        refuse_mistakes(overrides)
    assert "\n" not in str(caught.value)


def refuse_mistakes(overrides: list[str]) -> None:
    """What a command line passes before any work."""
    if plan(overrides, None, multirun=False) is None:
        precheck(overrides, None)


def misspelt(body: dict[Any, Any]) -> dict[Any, Any]:
    """The body with a letter too many in its last key, the innermost one."""
    last = list(body)[-1]
    if last == "defaults":
        return {**body, "one_typo": 1}
    value = body.pop(last)
    return {**body, last: misspelt(value)} if isinstance(value, dict) and value else {**body, f"{last}_typo": value}
