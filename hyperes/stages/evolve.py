"""The evolution of every group's coefficients, and which of the vectors it saw is its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hyperes import candidates, versions
from hyperes.backbone import Backbone
from hyperes.config import Config, EvolutionConfig
from hyperes.files import line_count, read_json, write_json
from hyperes.fitness import Fitness
from hyperes.genome import Candidate, Genome, default_population
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.search import named
from hyperes.search.cma import Evolution
from hyperes.search.evolve import Algorithm, Generation, Outcome, generation_sizes, search
from hyperes.stages.search import SECONDS
from hyperes.stages.session import Choice, Session, on_wait

TRIALS = "trials.jsonl"


def check_search(config: Config, backbone: Backbone) -> None:
    """Refuse an algorithm that could not be replayed before anything is trained for it; raises UserError.

    What it will have to search is told from the backbone's number of layers; ``evolve_coefficients`` checks again.
    """
    settings, file = config.optimizer.evolution, Path(backbone.folder) / "config.json"
    if not settings or settings.algorithm == "cma" or not file.is_file():
        return
    if layers := read_json(file).get("num_hidden_layers"):
        groups = {"per_block": 2 * layers, "per_layer": layers, "per_module": 7 * layers, "global": 1}
        dimension = groups[config.optimizer.space] * 2 * config.directions.count
        named.require_repeatable(_named_search(settings, dimension, config.seed), dimension)


def evolve_coefficients(
    session: Session, config: Config, genome: Genome, score: Fitness, held_out: Fitness | None, start: Choice
) -> Choice:
    """Search every group's coefficients about ``start`` (eq. 23-31); the answer is what ``answer`` says.

    ``mean`` is the final distribution mean. ``best`` is the best candidate seen, the start included; its fitness
    flatters it, being the largest of many. ``best_revalidated`` evaluates the best few on ``held_out`` and takes the
    best there (of equals the fitter one): validation problems that neither they nor the start were chosen by.
    """
    settings, merger = config.optimizer.evolution, config.merger
    assert settings is not None
    z0 = genome.start(start.drop_rate)
    sizes = _sizes(settings, genome.population)

    def decode(z: np.ndarray) -> Candidate:
        return candidates.decoded(merger, genome, z, start.scale, start.drop_rate)

    def build(out: Path) -> None:
        seconds = 0.0

        def on_generation(generation: Generation, vectors: Sequence[np.ndarray]) -> None:
            nonlocal seconds
            seconds += score.seconds([decode(z) for z in vectors])
            if generation.replayed:
                bar.advance(len(vectors))
            session.tracker.log("evolve", _generation_row(generation))
            logged.append(generation.number)
            sigma = "" if generation.sigma is None else f" sigma {generation.sigma:.3f}"
            bar.note(f"best {generation.best:.3f} mean {generation.mean:.3f}{sigma}")

        if settings.algorithm != "cma" and not line_count(out / TRIALS):
            named.require_repeatable(_named_search(settings, genome.dimension, config.seed), genome.dimension)
        outcome = search(
            out / TRIALS,
            _algorithm(settings, z0, genome.population, config.seed),
            sizes,
            evaluate=lambda vectors: score([decode(z) for z in vectors], lambda index, fitness: bar.advance()),
            on_generation=on_generation,
            keep=settings.revalidation.candidates,
        )
        answer, evaluated = _answer(settings, outcome, start, decode, score, held_out)
        write_json(out / SECONDS, seconds + sum(fitness.seconds(tried) for fitness, tried in evaluated))
        trials = sum(sizes) + sum(len(tried) for _, tried in evaluated)
        history = [_generation_row(generation) for generation in outcome.generations]
        write_json(out / "evolution.json", {**answer, "evaluations": trials, "generations": history})

    slice_ = {**asdict(settings), "population": sizes[0], "space": config.optimizer.space, "start": z0.tolist()}
    slice_ |= {"origin": start.candidate.key, "origin_evaluated": start.fitness is not None}
    upstream = {"fitness": score.context}
    if held_out is None:
        slice_.pop("revalidation")
    else:
        upstream["held_out"] = held_out.context
    logged: list[int] = []
    with stage("evolve", sum(sizes)) as bar:
        artifact = session.store.build(Recipe("evolve", versions.SEARCH, slice_, upstream), build, on_wait)
        answer = read_json(artifact.path / "evolution.json")
        bar.summary = (
            f"{settings.algorithm}, {len(sizes)} generations x {sizes[0]} over {genome.dimension} variables: "
            + _report(settings.answer, answer)
        )
    for row in [] if logged else answer["generations"]:
        session.tracker.log("evolve", row)
    return Choice(
        start.candidate if answer["z"] is None else decode(np.array(answer["z"])),
        start.drop_rate,
        start.scale,
        answer["fitness"],
        start.evaluations + answer["evaluations"],
        {**start.seconds, "evolve": read_json(artifact.path / SECONDS)},
        artifact.key,
        answer["z"],
        answer["held_out"],
    )


def _answer(
    settings: EvolutionConfig,
    outcome: Outcome,
    start: Choice,
    decode: Callable[[np.ndarray], Candidate],
    score: Fitness,
    held_out: Fitness | None,
) -> tuple[dict[str, Any], list[tuple[Fitness, list[Candidate]]]]:
    """The answer with what it is judged by (z is None for the start itself), and the candidates evaluated for it."""
    origin = score([start.candidate])[0]
    evaluated = [] if start.fitness is not None else [(score, [start.candidate])]
    common: dict[str, Any] = {"start": origin, "best_seen": outcome.best_fitness, "held_out": None, "finalists": None}
    if settings.answer == "mean":
        assert outcome.mean_vector is not None
        mean = decode(outcome.mean_vector)
        fitness = score([mean])[0]
        return {**common, "z": outcome.mean_vector.tolist(), "fitness": fitness}, [*evaluated, (score, [mean])]

    # Seen first, the start stays ahead of its equals.
    seen: list[tuple[float, np.ndarray | None]] = [(origin, None), *outcome.seen]
    finalists = sorted(seen, key=lambda pair: -pair[0])[: settings.revalidation.candidates]
    fitness, z = finalists[0]
    if held_out is not None:
        tried = [start.candidate if vector is None else decode(vector) for _, vector in finalists]
        second = held_out(tried)
        chosen = int(np.argmax(second))
        fitness, z = finalists[chosen]
        rows = [{"fitness": value, "held_out": again} for (value, _), again in zip(finalists, second, strict=True)]
        common |= {"held_out": second[chosen], "finalists": rows}
        evaluated.append((held_out, tried))
    return {**common, "z": None if z is None else z.tolist(), "fitness": fitness}, evaluated


def _report(rule: str, answer: dict[str, Any]) -> str:
    best, start = max(answer["best_seen"], answer["start"]), f"start {100 * answer['start']:.1f} %"
    if rule == "mean":
        return f"validation of the final mean {100 * answer['fitness']:.1f} % ({start}, best seen {100 * best:.1f} %)"
    again = f", on problems not seen by the search {100 * answer['held_out']:.1f} %" if answer["finalists"] else ""
    return f"validation of the {rule} {100 * answer['fitness']:.1f} %{again} ({start}, best seen {100 * best:.1f} %)"


def _algorithm(settings: EvolutionConfig, z0: np.ndarray, population: int, seed: int) -> Algorithm:
    if settings.algorithm != "cma":
        return named.Named(z0, _named_search(settings, z0.size, seed))
    population = settings.population or population
    return Evolution(z0, sigma=settings.sigma, population=population, seed=seed, diagonal=settings.diagonal)


def _named_search(settings: EvolutionConfig, dimension: int, seed: int) -> named.Search:
    population = settings.population or default_population(dimension)
    evaluations = sum(_sizes(settings, population))
    return named.Search(settings.algorithm, settings.arguments, settings.sigma, population, evaluations, seed)


def _sizes(settings: EvolutionConfig, population: int) -> list[int]:
    population = settings.population or population
    return generation_sizes(population, settings.generations, settings.evaluations, whole=settings.algorithm == "cma")


def _generation_row(generation: Generation) -> dict[str, Any]:
    names = ("best", "mean", "std", "sigma")
    return {"generation": generation.number, **{name: getattr(generation, name) for name in names}}
