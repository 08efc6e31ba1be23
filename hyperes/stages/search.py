"""From the pool to one candidate without gradients or evolution: the merger's own, or a grid's best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hyperes import candidates, versions
from hyperes.config import Config
from hyperes.errors import UserError
from hyperes.evaluation import Bench
from hyperes.files import read_json, read_json_lines, write_json, write_json_lines
from hyperes.fitness import Fitness
from hyperes.genome import Candidate, Genome
from hyperes.problems import Problem, content_key
from hyperes.progress import stage
from hyperes.recipe import Recipe
from hyperes.search import grid
from hyperes.stages.session import Choice, Session, on_wait

SECONDS = "seconds.json"  # of a stage's evaluations, summed over workers; a kill does not change what they cost


def make_fitness(
    session: Session, config: Config, bench: Bench, folder: Path, validation: Sequence[Problem]
) -> tuple[Fitness, Fitness | None]:
    """The fitness of every search, and that of the problems kept from them where the answer is revalidated.

    With answer=best_revalidated the last ``revalidation.share`` of the validation set, which is in no order, is seen
    neither by the grid nor by the evolution. Raises UserError where a part would be empty.
    """
    evolution = config.optimizer.evolution
    path, total = str(folder / "validation.jsonl"), len(validation)
    seen = total
    if evolution and evolution.answer == "best_revalidated":
        seen -= round(evolution.revalidation.share * total)
        if not 0 < seen < total:
            raise UserError(
                f"optimizer.evolution.revalidation.share={evolution.revalidation.share}: leaves {seen} of {total} "
                "validation problems to the search"
            )

    def part(first: int, end: int) -> Fitness:
        key = content_key(validation[first:end])
        return Fitness(session.store, session.executor, bench, path, key, skip=first, limit=end)

    return part(0, seen), part(seen, total) if seen < total else None


def fixed_choice(config: Config, genome: Genome) -> Choice:
    """No search: the merger's own scale and drop rate for every group."""
    merger = config.merger
    rate = merger.drop_rate if merger.dare else 0.0
    candidate = candidates.shared(merger, genome, merger.scale, rate, merger.dare, merger.ties)
    return Choice(candidate, rate, merger.scale, None, 0, {}, None)


def search_grid(session: Session, config: Config, genome: Genome, score: Fitness) -> Choice:
    """Warm start (eq. 22): the best shared scale and drop rate with the merger's own flags."""
    settings, merger = config.optimizer.grid, config.merger
    assert settings is not None
    flagged = merger.operator == "dare_ties"  # the others have a scale alone
    dare, ties = (settings.dare, settings.ties) if flagged else ([False], [False])
    points = grid.points(settings.scales, settings.drop_rates if flagged else [0.0], dare, ties)

    def candidate(point: grid.GridPoint) -> Candidate:
        return candidates.shared(merger, genome, point.scale, point.drop_rate, point.dare, point.ties)

    logged: list[int] = []

    def log(index: int, accuracy: float) -> None:
        session.tracker.log("grid", {"point": index, **asdict(points[index]), "fitness": accuracy})
        logged.append(index)
        bar.advance()

    def build(out: Path) -> None:
        scores = score([candidate(point) for point in points], log)
        rows = [{**asdict(point), "fitness": accuracy} for point, accuracy in zip(points, scores, strict=True)]
        write_json_lines(out / "grid.jsonl", rows)
        write_json(out / SECONDS, score.seconds([candidate(point) for point in points]))

    slice_ = {"candidates": [candidate(point).key for point in points], "points": [asdict(point) for point in points]}
    with stage("grid", len(points)) as bar:
        artifact = session.store.build(
            Recipe("grid", versions.SEARCH, slice_, {"fitness": score.context}), build, on_wait
        )
        rows = [row for _, row in read_json_lines(artifact.path / "grid.jsonl")]
        scores = [row["fitness"] for row in rows]
        for index in range(len(logged), len(points)):
            log(index, scores[index])
        best, start = grid.choose(points, scores), grid.choose_start(points, scores, merger.dare, merger.ties)
        chosen = points[start]
        bar.summary = (
            f"{len(points)} points; start scale {chosen.scale:g}, drop rate {chosen.drop_rate:g}: validation "
            f"{100 * scores[start]:.1f} % (best of all flags {100 * scores[best]:.1f} %)"
        )
    for warning in grid.edge_warnings(points, start):
        print(f"warning: {warning}")
    return Choice(
        candidate(chosen),
        chosen.drop_rate,
        chosen.scale,
        scores[start],
        len(points),
        {"grid": read_json(artifact.path / SECONDS)},
        artifact.key,
    )
