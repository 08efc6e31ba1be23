"""What stands under a table: how to read it, what the paper tells in words, and what is missing and how to make it."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from hyperes.config import CONF_DIR
from hyperes.store import SHORT
from hyperes.tables import gather
from hyperes.tables.gather import Group, Job
from hyperes.tables.paper import AVERAGE, HYPER_ES, POINTS, Column, Table, published, title_of

if TYPE_CHECKING:
    from hyperes.tables.build import Row

MISSING, NOT_AVAILABLE = "missing", "not available"


def explanation(
    table: Table, group: Group, rows: Sequence[Row], reference: str, columns: Sequence[Column]
) -> list[str]:
    """How the numbers were made and what the test is."""
    notes = []
    tested = group.setting.get("test", {})
    if any(column.unit == POINTS for column in columns):
        what = "mean ± standard deviation over seeds" if table.seeds else "[95 % interval]"
        apart = "; difference: ours less published"
        if not any(row.published for row in rows):
            apart = f"; published cells: {NOT_AVAILABLE} for this backbone"
        how = f", mean of {tested['samples']} samples a problem" if tested.get("samples", 1) > 1 else ""
        how += f", the first {tested['limit']} problems of each suite" if tested.get("limit") else ""
        notes.append(f"Accuracies in % {what}{how}{apart}.")
    name = title_of(reference)
    if any(row.test for row in rows):
        binary = tested.get("samples", 1) == 1 and all(column.key != AVERAGE for column in columns)
        how = "McNemar's exact test" if binary else "sign flips"
        how += " on the same problems, p corrected by Holm over this table"
        if table.seeds:
            how = "seeds and problems resampled, the interval decides"
        notes.append(f"Test: the average less that of {name} [95 % interval]; {how}.")
    elif table.accuracies and not group.rows.get(reference):
        notes.append(f"No test: the reference row, {name}, is {MISSING}.")
    if not table.accuracies:
        notes.append("Ours: work summed over workers; end to end is not measured. Published: clock time on 8 RTX 3090.")
    return notes


def gains(table: Table, backbone: str, rows: Sequence[Row], whole: bool) -> list[str]:
    """What the paper tells only as a difference of averages; ``whole``: ours are over the paper's suites."""
    averages = {row.method: row.cells[AVERAGE].value for row in rows if AVERAGE in row.cells}
    notes = []
    for label, others, metric in table.gains:
        cell = published().get((table.name, backbone, HYPER_ES, metric)) if whole else None
        theirs = f"{cell.value:+.2f}" if cell else NOT_AVAILABLE
        ours = MISSING
        if averages.keys() >= {HYPER_ES, *others}:
            gain = round(averages[HYPER_ES] - max(averages[other] for other in others), 9)
            ours = f"{gain:+.2f}"
            theirs += f", difference {gain - cell.value:+.2f}" if cell else ""
        notes.append(f"{label}: {ours}; published {theirs}.")
    return notes


def absent(table: Table, group: Group, labels: Mapping[str, str], there: Container[str]) -> list[str]:
    """A line for every run that is not there: what became of it, and the command that makes it."""
    claimed = {seed for rows in (group.rows, group.jobs) for seeds in rows.values() for seed in seeds}
    wanted = sorted(claimed) if table.seeds else [group.setting["seed"]]
    notes = []
    for method, label in labels.items():
        for seed in wanted:
            if (not table.seeds and method in there) or seed in group.rows.get(method, {}):
                continue
            name = f"{label}, seed {seed}" if table.seeds else label
            job = group.jobs.get(method, {}).get(seed)
            notes.append(f"{name}: {_became(job)}" if job else f"{name}: {MISSING}. {_how(method, seed, group)}")
    return notes


def _became(job: Job) -> str:
    known = job.status
    if known.state == "failed":
        return f"failed: {known.reason}. `{known.command}`"
    if known.state == "running":
        return f"running since {known.since} on {known.where}, or killed there. `{known.command}`"
    return f"{known.state} since {known.since}. `{known.command}`"


def _how(method: str, seed: int, group: Group) -> str:
    if method.startswith("direction_"):
        return f"`{_alone(int(method.removeprefix('direction_')), group)}`"
    if not method[1:].isdigit() and not (CONF_DIR / "experiment" / f"{method}.yaml").exists():
        return f"This version has no experiment {method}."
    return f"`{gather.command(method, seed, group)}`"


def _alone(index: int, group: Group) -> str:
    """One direction as a run of its own: the grid's only point is the adapter itself, scale 1 and nothing dropped."""
    entry = next(iter(group.rows[HYPER_ES].values()))
    folder = entry.run.store / "direction" / entry.run.result["artifacts"]["directions"][index][:SHORT] / "adapter"
    kept = [override for override in entry.overrides if not override.startswith(("+sweep=", "direction_count="))]
    own = [
        "directions=adapters",
        f"directions.paths=[{folder}]",
        "merger=ties",
        "optimizer=grid",
        "optimizer.grid.scales=[1.0]",
        "optimizer.grid.dare=[false]",
        "optimizer.grid.ties=[true]",
        f"name=direction_{index}",
    ]
    return shlex.join(["python", "-m", "hyperes", *kept, *own])
