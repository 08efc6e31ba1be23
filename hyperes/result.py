"""A run's result: scores with their uncertainty, what they cost, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperes import problems, versions
from hyperes.backbone import Backbone
from hyperes.compose import as_plain
from hyperes.config import AdapterDirections, Config, GrpoDirections
from hyperes.directions import adapters
from hyperes.files import read_json, read_json_lines
from hyperes.provenance import provenance
from hyperes.recipe import Recipe

if TYPE_CHECKING:
    from hyperes.stages import Choice, Direction
    from hyperes.store import Artifact


def result_recipe(config: Config, backbone: Backbone) -> Recipe:
    """The identity of a whole run: everything that can change a number in its result, and its name."""
    directions = asdict(config.directions)
    if isinstance(config.directions, AdapterDirections):
        directions["paths"] = [adapters.key(Path(path)) for path in config.directions.paths]
    slice_ = {
        "versions": versions.ALL,
        "name": config.name,
        "seed": config.seed,
        "backbone": {"name": config.backbone.name, **backbone.identity},
        "dataset": {"name": config.dataset.name, **problems.recipe_slice(config.dataset, config.seed)},
        "directions": directions,
        "merger": asdict(config.merger),
        "optimizer": asdict(config.optimizer),
        "engine": asdict(config.engine),
        "test": asdict(config.test),
    }
    return Recipe("result", versions.RESULT, slice_, {})


def assemble(
    config: Config,
    recipe: Recipe,
    backbone: Backbone,
    directions: Sequence[Direction],
    choice: Choice | None,
    records: Mapping[str, Mapping[str, Artifact]],
) -> dict[str, Any]:
    """The result as plain JSON."""
    scores = {model: {suite: _score(artifact) for suite, artifact in made.items()} for model, made in records.items()}
    averages = {model: _average(list(made.values())) for model, made in scores.items()}
    answer = "merged" if "merged" in scores else "base"
    seconds = {
        "directions": sum(direction.seconds for direction in directions),
        "longest_direction": max((direction.seconds for direction in directions), default=0.0),
        **(choice.seconds if choice else {}),
        "test": sum(
            read_json(artifact.path / "seconds.json") for made in records.values() for artifact in made.values()
        ),
    }
    summary = {f"test/{suite}": score["accuracy"] for suite, score in scores[answer].items()}
    summary |= {"test/average": averages[answer]["accuracy"], "test/base_average": averages["base"]["accuracy"]}
    return {
        "key": recipe.key,
        "status": "finished",
        "name": config.name,
        "config": as_plain(config),
        "scores": scores[answer],
        "base": scores["base"],
        "average": averages[answer],
        "base_average": averages["base"],
        "gradient_samples": _gradient_samples(config),
        "candidate_evaluations": choice.evaluations if choice else 0,
        "choice": _choice_row(choice),
        "seconds": seconds,
        "artifacts": {
            "directions": [direction.key for direction in directions],
            "search": choice.artifact if choice else None,
            "tests": {
                model: {suite: artifact.key for suite, artifact in made.items()} for model, made in records.items()
            },
        },
        "backbone": {**backbone.identity, "name": config.backbone.name},
        "summary": summary,
        **provenance(),
    }


def show(result: Mapping[str, Any], path: Path) -> None:
    """The summary table; its last line is ``result: PATH``."""
    merged = result["choice"] is not None
    name = result["name"]
    width = max(len("average"), *(len(suite) for suite in result["scores"]))
    column = max(24, len(name))
    print()
    heads = f"{'suite':<{width}}  {'n':>5}  {'base':<24}"
    print(heads + (f"  {name:<{column}}  {'gain':>6}" if merged else ""))
    rows = [(suite, result["base"][suite], score) for suite, score in result["scores"].items()]
    rows.append(("average", result["base_average"], result["average"]))
    for suite, base, score in rows:
        line = f"{suite:<{width}}  {score['n']:>5}  {_cell(base):<24}"
        if merged:
            line += f"  {_cell(score):<{column}}  {100 * (score['accuracy'] - base['accuracy']):+6.1f}"
        print(line)
    print(f"accuracy in % [95 % interval]; {result['gradient_samples']:,} gradient samples, "
          f"{result['candidate_evaluations']} candidate evaluations")  # fmt: skip
    print(f"result: {path}")


def _cell(score: Mapping[str, Any]) -> str:
    low, high = score["interval"]
    return f"{100 * score['accuracy']:5.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _score(artifact: Artifact) -> dict[str, Any]:
    from hyperes.statistics import wilson_interval

    rows = [row for _, row in read_json_lines(artifact.path / "records.jsonl")]
    correct = sum(row["correct"] for row in rows)
    return {
        "accuracy": correct / len(rows),
        "interval": list(wilson_interval(correct, len(rows))),
        "n": len(rows),
        "correct": correct,
        "unanswered": sum(row["extracted"] is None for row in rows),
        "truncated": sum(row["truncated"] for row in rows),
    }


def _average(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from hyperes.statistics import average_interval

    accuracies, sizes = [score["accuracy"] for score in scores], [score["n"] for score in scores]
    return {
        "accuracy": sum(accuracies) / len(accuracies),
        "interval": list(average_interval(accuracies, sizes)),
        "n": sum(sizes),
    }


def _gradient_samples(config: Config) -> int:
    """Prompts that gradients were taken on: N x steps x prompts per step (the paper's count)."""
    directions = config.directions
    if isinstance(directions, GrpoDirections):
        return directions.count * directions.steps * directions.prompts_per_step
    return 0


def _choice_row(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "candidate": choice.candidate.key,
        "gamma": choice.candidate.gamma,
        "scale": choice.scale,
        "drop_rate": choice.drop_rate,
        "dare": choice.candidate.dare,
        "ties": choice.candidate.ties,
        "validation": choice.fitness,
        "z": choice.z,
    }
