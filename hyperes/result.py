"""A run's result: scores with their uncertainty, what they cost, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperes import problems, versions
from hyperes.backbone import Backbone
from hyperes.compose import as_plain
from hyperes.config import AdapterDirections, Config, GrpoDirections
from hyperes.directions import adapters
from hyperes.files import read_json
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
        "test": {key: value for key, value in asdict(config.test).items() if key != "allow_code_execution"},
    }
    if config.test.tasks:  # they are part of that package
        slice_["lm_eval"] = installed_version("lm_eval")
    return Recipe("result", versions.RESULT, slice_, {})


def assemble(
    config: Config,
    recipe: Recipe,
    backbone: Backbone,
    directions: Sequence[Direction],
    choice: Choice | None,
    records: Mapping[str, Mapping[str, Artifact]],
    tasks: Mapping[str, Mapping[str, Artifact]],
) -> dict[str, Any]:
    """The result as plain JSON."""
    # Not needed to print a finished run:
    from hyperes.evaluation import RECORDS, read_records
    from hyperes.scores import average, gains, suite_score, task_scores

    read = {
        model: {suite: read_records(artifact.path / RECORDS) for suite, artifact in made.items()}
        for model, made in records.items()
    }
    scores = {model: {suite: suite_score(rows) for suite, rows in made.items()} for model, made in read.items()}
    averages = {model: average(list(made.values())) for model, made in read.items()}
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
        "gains": gains(read["merged"], read["base"]) if "merged" in read else None,
        "tasks": {model: {task: task_scores(made) for task, made in of.items()} for model, of in tasks.items()},
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
            "tasks": {model: {task: made.key for task, made in of.items()} for model, of in tasks.items()},
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
    print(heads + (f"  {name:<{column}}  {'gain':>6} [paired]" if merged else ""))
    rows = [(suite, result["base"][suite], score) for suite, score in result["scores"].items()]
    rows.append(("average", result["base_average"], result["average"]))
    for suite, base, score in rows:
        line = f"{suite:<{width}}  {score['n']:>5}  {_cell(base):<24}"
        if merged:
            line += f"  {_cell(score):<{column}}  {_gain(result['gains'][suite])}"
        print(line)
    for task, metrics in result["tasks"].get("merged" if merged else "base", {}).items():
        _show_task(task, metrics, result["tasks"]["base"][task])
    print(f"accuracy in % [95 % interval]; {result['gradient_samples']:,} gradient samples, "
          f"{result['candidate_evaluations']} candidate evaluations")  # fmt: skip
    print(f"result: {path}")


def _gain(gain: Mapping[str, Any]) -> str:
    text = f"{100 * gain['difference']:+6.1f}"
    if gain["interval"] is not None:
        low, high = gain["interval"]
        text += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{text} {gain['verdict']}"


def _show_task(task: str, metrics: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """lm-eval's metrics of one task, the base's before the arrow."""
    for member, values in metrics.items():
        for metric, value in values.items():
            if isinstance(value, float) and "stderr" not in metric:
                error = values.get(metric.replace(",", "_stderr,"))
                spread = f" ± {error:.4f}" if isinstance(error, float) else ""
                print(f"{member}  {metric}  {base[member][metric]:.4f} -> {value:.4f}{spread} (standard error)")


def _cell(score: Mapping[str, Any]) -> str:
    text = f"{100 * score['accuracy']:5.1f}"
    if score["interval"] is not None:  # of an average whose suites are all 0 or 100 %
        low, high = score["interval"]
        text += f" [{100 * low:.1f}, {100 * high:.1f}]"
    return text


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
        "held_out": choice.held_out,
        "z": choice.z,
    }
