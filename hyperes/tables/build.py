"""One table of one group of runs: our cells with their intervals, the published ones, differences, paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperes.compare import means
from hyperes.comparison import Comparison, compare_seeds_suites, compare_suites, correct_family
from hyperes.runs import Run
from hyperes.statistics import across_seeds, macro_mean
from hyperes.tables import gather, notes, origins
from hyperes.tables.gather import Group
from hyperes.tables.paper import (
    AVERAGE,
    BASE,
    DELTA,
    HYPER_ES,
    POINTS,
    SUITE_TITLES,
    VALIDATION,
    Column,
    Published,
    Table,
    mean_at,
    published,
    title_of,
)

Side = tuple[Run, str | None]  # a run, and the model that counts (None: its own)


@dataclass(frozen=True)
class Cell:
    """One value in the unit of its column, with its 95 % interval or its standard deviation over seeds."""

    value: float
    interval: tuple[float, float] | None = None
    std: float | None = None
    n: int | None = None  # problems, or seeds


@dataclass(frozen=True)
class Row:
    """A method: its cells by column (none where the run is missing), and its test against the reference row."""

    method: str
    label: str
    state: str  # "finished", or why there is none
    cells: dict[str, Cell]
    published: dict[str, Published]
    runs: tuple[Run, ...]  # by seed; of the base, one that tested it beside its own model
    test: Comparison | None = None


@dataclass(frozen=True)
class Sheet:
    """A table ready to be written."""

    table: Table
    setting: Mapping[str, Any]
    title: str
    columns: list[Column]
    rows: list[Row]
    reference: str
    tested_on: str | None  # the column that the tests are about
    notes: list[str]


def sheet(table: Table, group: Group, told_apart: str, reference: str = HYPER_ES) -> Sheet:
    """Raises UserError where runs of the group were tested on different problems, or their records are not there."""
    suites = gather.columns(table, group.setting.get("suites", table.suites))
    columns = table_columns(table, suites)
    sides = _sides(table, group)
    scores = _scores(sides, suites) if table.accuracies else {}
    whole = set(suites) == set(table.suites)  # else an average is over other suites than the paper's
    backbone = group.setting["backbone"]["name"]
    methods = _methods(table, group)
    if not table.rows:  # numbers of directions: the largest
        reference = methods[-1]
    rows = []
    for method in methods:
        state = _state(method, group, sides)
        cells = _cells(table, columns, method, sides.get(method, []), scores, reference)
        known = _published(table, columns, backbone, method, reference, whole)
        seeds = f" ({len(sides[method])} seeds)" if table.seeds and method in sides else ""
        runs = tuple(run for run, _ in sides.get(method, []))
        rows.append(Row(method, _label(method) + seeds, state, cells, known, runs))
    rows = _tested(rows, scores, reference) if scores else rows
    under = notes.explanation(table, group, rows, reference, columns)
    under += notes.gains(table, backbone, rows, whole)
    under += origins.lines(rows)
    under += notes.absent(table, group, {row.method: row.label for row in rows}, sides)
    seed = "" if table.seeds else f", seed {group.setting['seed']}"
    sampled = mean_at(group.setting.get("test", {}).get("samples", 1)) if table.accuracies else ""
    title = f"{table.title}{sampled}: {backbone}, {group.setting['dataset']['name']}{seed}"
    title = f"Table {table.name}. {title}" if table.name != "N" else title
    changed = [f"{key}={value}" for key, value in group.setting.get("changes", {}).items()]
    title += f", with {', '.join(changed)}" if changed else ""
    title += f" ({told_apart})" if told_apart else ""
    tested_on = None if not table.accuracies else AVERAGE if len(suites) > 1 else suites[0]
    return Sheet(table, group.setting, title, columns, rows, reference, tested_on, under)


def table_columns(table: Table, suites: Sequence[str]) -> list[Column]:
    """The columns in order, with those of the accuracies on the suites."""
    shown = suites if table.accuracies else ()
    accuracies = [Column(suite, SUITE_TITLES.get(suite, suite), POINTS) for suite in shown]
    average = [Column(AVERAGE, "average", POINTS)] if len(shown) > 1 else []
    return [*table.before, *accuracies, *average, *table.after]


def _methods(table: Table, group: Group) -> list[str]:
    if not table.rows:
        return sorted({*group.rows, *group.jobs}, key=lambda row: int(row[1:]) if row[1:].isdigit() else 0)
    alone = []
    if table.single_directions:
        counts = [len(entry.run.result["artifacts"]["directions"]) for entry in group.rows.get(HYPER_ES, {}).values()]
        alone = [f"direction_{index}" for index in range(max(counts, default=0))]
        alone += sorted(set(group.rows) - set(alone) - set(table.rows))
    return [*alone, *table.rows]


def _label(method: str) -> str:
    if method.startswith("direction_"):
        return f"direction {method.removeprefix('direction_')} alone"
    return title_of(method)


def _sides(table: Table, group: Group) -> dict[str, list[Side]]:
    """Whose scores are a row's, by seed. The base was tested beside every run, so it needs none of its own."""
    sides: dict[str, list[Side]] = {
        row: [(seeds[seed].run, None) for seed in sorted(seeds)] for row, seeds in group.rows.items()
    }
    if BASE in table.rows and BASE not in sides and group.entries:
        sides[BASE] = [(group.entries[0].run, BASE)]
    return sides


def _scores(sides: Mapping[str, Sequence[Side]], suites: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """{method: {suite: (seeds, problems) shares of right samples}}; the problems of all methods are the same."""
    flat = [side for each in sides.values() for side in each]
    if not flat:
        return {}
    tables = {suite: means(flat, suite) for suite in suites}
    found, start = {}, 0
    for method, each in sides.items():
        found[method] = {suite: table[start : start + len(each)] for suite, table in tables.items()}
        start += len(each)
    return found


def _cells(
    table: Table,
    columns: Sequence[Column],
    method: str,
    sides: Sequence[Side],
    scores: Mapping[str, Mapping[str, np.ndarray]],
    reference: str,
) -> dict[str, Cell]:
    """What this method has of every column; columns it has nothing for are left out."""
    cells: dict[str, Cell] = {}
    if not sides:
        return cells
    for column in columns:
        if cell := _cell(table, column.key, method, sides, scores, reference):
            cells[column.key] = cell
    return cells


def _cell(
    table: Table,
    key: str,
    method: str,
    sides: Sequence[Side],
    scores: Mapping[str, Mapping[str, np.ndarray]],
    reference: str,
) -> Cell | None:
    run, model = sides[0]
    if method in scores and (key in scores[method] or key == AVERAGE):
        suites = scores[method] if key == AVERAGE else {key: scores[method][key]}
        return _over_seeds(suites) if table.seeds else _over_problems(run, model, key, suites)
    if key == DELTA:
        return _delta(scores, method, reference)
    if model is not None:  # the base, tested beside another method: what the run took is not its own
        return None
    result = run.result
    if key == VALIDATION:
        choice = result["choice"]
        return Cell(100 * choice["validation"]) if choice and choice["validation"] is not None else None
    if key in ("gradient_samples", "candidate_evaluations"):
        return Cell(result[key])
    seconds = result["seconds"]
    if key == "all":
        return Cell(sum(seconds.get(stage, 0.0) for stage in ("directions", "grid", "evolve")))
    stage = key.removesuffix("_seconds")
    return Cell(seconds[stage]) if stage in seconds else None


def _over_problems(run: Run, model: str | None, key: str, suites: Mapping[str, np.ndarray]) -> Cell:
    if key == AVERAGE:
        estimate = macro_mean([scores[0] for scores in suites.values()])
        interval = estimate.interval and (100 * estimate.interval[0], 100 * estimate.interval[1])
        return Cell(100 * estimate.value, interval, None, estimate.n)
    own = run.result["base" if (model or run.model) == BASE else "scores"][key]
    low, high = own["interval"]
    return Cell(100 * own["accuracy"], (100 * low, 100 * high), None, own["n"])


def _over_seeds(suites: Mapping[str, np.ndarray]) -> Cell:
    spread = across_seeds(np.mean([scores.mean(axis=1) for scores in suites.values()], axis=0))
    return Cell(100 * spread.mean, None, None if spread.std is None else 100 * spread.std, spread.n)


def _delta(scores: Mapping[str, Mapping[str, np.ndarray]], method: str, reference: str) -> Cell | None:
    if method not in scores or reference not in scores or method == reference:
        return None
    return Cell(100 * (_average(scores[method]) - _average(scores[reference])))


def _average(suites: Mapping[str, np.ndarray]) -> float:
    return float(np.mean([scores.mean() for scores in suites.values()]))


def _published(
    table: Table, columns: Sequence[Column], backbone: str, method: str, reference: str, whole: bool
) -> dict[str, Published]:
    known = published()
    found = {}
    for column in columns:
        cell = known.get((table.name, backbone, method, column.key))
        if column.key == DELTA and method != reference:
            ours, theirs = (known.get((table.name, backbone, each, AVERAGE)) for each in (method, reference))
            cell = Published(ours.value - theirs.value, None, "") if ours and theirs else None
        if cell and (whole or column.key not in (AVERAGE, DELTA)):
            found[column.key] = cell
    return found


def _tested(rows: Sequence[Row], scores: Mapping[str, Mapping[str, np.ndarray]], reference: str) -> list[Row]:
    """The rows with their paired tests on the average against the reference row, a family corrected by Holm."""
    if reference not in scores:
        return list(rows)
    compared = [row for row in rows if row.method in scores and row.method != reference]
    found = []
    for row in compared:
        ours, theirs = list(scores[row.method].values()), list(scores[reference].values())
        if max(len(ours[0]), len(theirs[0])) > 1:
            found.append(compare_seeds_suites(ours, theirs))
        else:
            found.append(compare_suites([each[0] for each in ours], [each[0] for each in theirs]))
    tests = dict(zip((row.method for row in compared), correct_family(found), strict=True))
    return [replace(row, test=tests.get(row.method)) for row in rows]


def _state(method: str, group: Group, sides: Mapping[str, Sequence[Side]]) -> str:
    if method in sides:
        return "finished"
    jobs = group.jobs.get(method)
    return next(iter(jobs.values())).status.state if jobs else notes.MISSING
