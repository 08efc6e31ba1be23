"""Finished runs and unfinished jobs under some folders, and which of them may stand in one table together."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from hyperes import status
from hyperes.errors import UserError
from hyperes.files import digest, read_json
from hyperes.runs import Run, open_run
from hyperes.status import FINISHED, STATUS, Status
from hyperes.store import SHORT
from hyperes.tables.methods import COSTS, at, changes, differences
from hyperes.tables.paper import Table


@dataclass(frozen=True)
class Entry:
    """A finished run, with what made it."""

    run: Run
    made_from: dict[str, Any]  # the slice of its recipe: configuration, contents of the data, versions of the stages
    sweeps: frozenset[str | None]  # that it is a job of; None: a run alone
    overrides: tuple[str, ...]  # of the command line that made it

    @property
    def config(self) -> dict[str, Any]:
        return self.run.result["config"]


@dataclass(frozen=True)
class Job:
    """A job of a sweep that did not finish."""

    status: Status
    folder: Path


@dataclass
class Group:
    """Runs that differ in the method alone (and in the seed, where a table is over seeds)."""

    setting: dict[str, Any]  # what they share
    rows: dict[str, dict[int, Entry]]  # by the table's row, by seed
    jobs: dict[str, dict[int, Job]]  # unfinished, likewise

    @property
    def entries(self) -> list[Entry]:
        return [entry for seeds in self.rows.values() for entry in seeds.values()]


def find(folders: Sequence[Path], store: Path | None) -> tuple[list[Entry], list[Job]]:
    """Everything under the folders. Of two results with one key the newer counts.

    Raises UserError for a folder that is missing, holds nothing, or has a damaged file.
    """
    newest: dict[str, tuple[float, Entry]] = {}
    jobs = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
        for path in sorted(folder.rglob("result.json")):
            if (path.parent / "recipe.json").exists():  # the store's own, of which runs have copies
                continue
            entry = _entry(path, store)
            key, age = entry.run.result["key"], path.stat().st_mtime
            known = newest.get(key, (age, entry))
            age, kept = max(known, (age, entry), key=lambda pair: pair[0])
            newest[key] = (age, replace(kept, sweeps=known[1].sweeps | entry.sweeps))
        for path in sorted(folder.rglob(STATUS)):
            if (found := status.read(path.parent)).state != FINISHED:
                jobs.append(Job(found, path.parent))
    if not newest and not jobs:
        raise UserError(f"{', '.join(map(str, folders))}: no result.json and no {STATUS} in there")
    return [entry for _, entry in newest.values()], sorted(jobs, key=lambda job: job.status.since)


def _entry(path: Path, store: Path | None) -> Entry:
    run = open_run(path, store)
    recipe = run.store / "result" / run.result["key"][:SHORT] / "recipe.json"
    if not recipe.exists():
        raise UserError(
            f"{recipe}: no such file, which tells what made {path}; is the store elsewhere? Name it by --store"
        )
    sweep = status.read(path.parent).sweep if (path.parent / STATUS).exists() else None
    hydra = path.parent / ".hydra" / "overrides.yaml"
    overrides = tuple(map(str, OmegaConf.load(hydra))) if hydra.exists() else ()
    return Entry(run, read_json(recipe)["recipe"]["slice"], frozenset({sweep}), overrides)


def groups(table: Table, entries: Iterable[Entry], jobs: Iterable[Job]) -> list[Group]:
    """The table once for every setting: nothing that was made otherwise is set side by side, let alone averaged.

    Raises UserError where two different runs claim one row and seed.
    """
    found: dict[str, Group] = {}
    for entry in entries:
        row = row_of(table, entry)
        if row is None or not entry.sweeps & {None, *table.sweeps}:
            continue
        shared = setting(table, entry)
        group = found.setdefault(digest(shared), Group(shared, {}, {}))
        seeds = group.rows.setdefault(row, {})
        if entry.run.seed in seeds:
            raise UserError(_claim(row, seeds[entry.run.seed], entry))
        seeds[entry.run.seed] = entry
    for job in jobs:
        _place(table, job, found)
    return sorted(found.values(), key=lambda group: (*_name(group.setting), str(group.setting["seed"])))


def row_of(table: Table, entry: Entry) -> str | None:
    """The row of a table that a run belongs to; None: it is none of its methods."""
    name = entry.run.name
    if not table.rows:
        return f"n{entry.config['directions']['count']}" if name == "hyper_es" else None
    if table.single_directions and name.startswith("direction_"):
        return name
    return name if name in table.rows else None


def setting(table: Table, entry: Entry) -> dict[str, Any]:
    """What must be equal within a table, named as its readers know it."""
    part, config = entry.made_from, entry.config
    seeded = {} if table.seeds else {"seed": part["seed"]}
    data = {key: value for key, value in part["dataset"].items() if key != "seed"}
    tested = part["test"]
    return {
        "backbone": part["backbone"],
        "settings of the backbone": {k: v for k, v in config["backbone"]["settings"].items() if k not in COSTS},
        "dataset": data | seeded,
        "seed": None if table.seeds else part["seed"],
        "changes": {key: value for key, value in changes(config).items() if table.rows or key != "directions.count"},
        "engine": {key: value for key, value in part["engine"].items() if key != "batch_size"},
        "test": {key: tested[key] for key in ("limit", "samples", "temperature", "top_p")},
        "suites": columns(table, list(entry.run.suites())),
        "versions of the stages": part["versions"],
        "versions of the libraries": entry.run.result["versions"],
    }


def columns(table: Table, tested: Sequence[str]) -> list[str]:
    """The suites a table shows: of the paper's those that were tested, or all where it has none of them."""
    return [suite for suite in table.suites if suite in tested] or list(tested)


def _claim(row: str, first: Entry, second: Entry) -> str:
    differ = ", ".join(differences(first.made_from, second.made_from)[:6])
    return (
        f"{first.run.path} and {second.run.path}: both are {row} with seed {first.run.seed}, but differ in {differ}; "
        "name the folders of one of them, or give one another name (name=...)"
    )


def _name(setting: Mapping[str, Any]) -> tuple[str, str]:
    return setting["backbone"]["name"], setting["dataset"]["name"]


def _place(table: Table, job: Job, found: dict[str, Group]) -> None:
    """Put an unfinished job into the groups whose setting may be its own and whose row it would fill."""
    known = job.status
    counts = [override for override in known.overrides if override.startswith("direction_count=")]
    row = known.name if table.rows else (counts or ["direction_count=n?"])[-1].partition("=")[2]
    if (table.rows and row not in table.rows) or (known.sweep is not None and known.sweep not in table.sweeps):
        return
    seed = None if table.seeds else known.seed
    fitting = [
        group
        for group in found.values()
        if (*_name(group.setting), group.setting["seed"]) == (known.backbone, known.dataset, seed)
    ]
    if not fitting:
        shared = {"backbone": {"name": known.backbone}, "dataset": {"name": known.dataset}, "seed": seed}
        fitting = [found.setdefault(digest(shared), Group(shared, {}, {}))]
    for group in fitting:
        if known.seed not in group.rows.get(row, {}):
            group.jobs.setdefault(row, {})[known.seed] = job  # jobs come oldest first: the newest stays


def command(row: str, seed: int | None, group: Group) -> str:
    """The command that makes a missing run: that of a run beside it, with another method and, perhaps, seed."""
    beside = next(
        iter(
            [list(entry.overrides) for entry in group.entries if entry.overrides]
            + [job.status.overrides for seeds in group.jobs.values() for job in seeds.values()]
        ),
        [],
    )
    kept = [override for override in beside if not override.startswith(("+sweep=", "direction_count="))]
    if row[1:].isdigit():  # a number of directions
        kept.append(f"direction_count={row}")
    else:
        kept = [_with_method(override, row) for override in kept]
        if not any(override.startswith("+experiment=") for override in kept):
            kept.insert(0, f"+experiment={row}")
    if seed is not None:
        kept = [override for override in kept if not override.startswith("seed=")] + ([f"seed={seed}"] if seed else [])
    return shlex.join(["python", "-m", "hyperes", *kept])


def _with_method(override: str, row: str) -> str:
    """``+experiment=`` of another method; what only shrinks or retests stays: [smoke,hyper_es] -> [smoke,base]."""
    if not override.startswith("+experiment="):
        return override
    value = override.removeprefix("+experiment=")
    if not value.startswith("["):
        return f"+experiment={row}"
    kept = [name for name in value.strip("[]").split(",") if name in ("smoke", "mean_at_32")]
    return f"+experiment=[{','.join([*kept, row])}]"


def separate(found: Sequence[Group]) -> list[str]:
    """For each group, what tells it from another of the same backbone, data set and seed; "" where nothing must."""
    notes = []
    for group in found:
        twins = [
            other
            for other in found
            if other is not group
            and (*_name(other.setting), other.setting["seed"]) == (*_name(group.setting), group.setting["seed"])
        ]
        keys = dict.fromkeys(
            key
            for other in twins
            for key in differences(group.setting, other.setting)
            if not key.startswith("changes.")  # every table tells its own
        )
        notes.append("; ".join(f"{key} {at(group.setting, key)}" for key in list(keys)[:6]))
    return notes
