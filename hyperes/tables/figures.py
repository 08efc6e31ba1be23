"""The figures' data as CSV, and their plots: accuracy against cost (Figure 4), the search, the directions' geometry."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperes.errors import UserError
from hyperes.evaluation.live import Bench
from hyperes.export import bench_of
from hyperes.files import read_json, write_text
from hyperes.genome import Candidate
from hyperes.store import SHORT
from hyperes.tables import build, gather, geometry
from hyperes.tables.gather import Entry
from hyperes.tables.paper import AVERAGE, COUNT, GSM, METHODS, ONE_SEED, Column, Table

Rows = list[dict[str, Any]]
_COST = (
    Column("gradient_samples", "gradient samples", COUNT),
    Column("candidate_evaluations", "candidate evaluations", COUNT),
)
_FIGURE4 = Table("4", "Accuracy against cost", tuple(METHODS), GSM, "table4", ONE_SEED, before=_COST)


def write(entries: Sequence[Entry], folder: Path) -> None:
    """figure4, search, cosines and norms, each as CSV and PNG. Raises UserError where a backbone is not there."""
    from hyperes.tables import plots

    data = {"figure4": accuracy_by_cost(entries), "search": search_history(entries)}
    data["cosines"], data["norms"] = directions(entries)
    for name, rows in data.items():
        if rows:
            stream = io.StringIO()
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            write_text(folder / f"{name}.csv", stream.getvalue())
    for plot, (name, _) in plots.PLOTS.items():
        if data[name]:
            plots.draw(plot, data, folder / f"{plot}.png")


def accuracy_by_cost(entries: Sequence[Entry]) -> Rows:
    """Figure 4: one row per finished method, with the published point where there is one."""
    rows = []
    for group in gather.groups(_FIGURE4, entries, []):
        sheet = build.sheet(_FIGURE4, group, "")
        for row in sheet.rows:
            cell = row.cells.get(AVERAGE) or row.cells.get(sheet.tested_on or "")
            cost = [row.cells[column.key].value if column.key in row.cells else None for column in _COST]
            known = {key: row.published.get(key) for key in (_COST[0].key, AVERAGE)}
            if cell or all(known.values()):
                low, high = (cell.interval if cell else None) or (None, None)
                rows.append(
                    {
                        **_origin(group.setting),
                        "method": row.method,
                        "gradient_samples": cost[0],
                        "candidate_evaluations": cost[1],
                        "accuracy": cell.value if cell else None,
                        "low": low,
                        "high": high,
                        "published_gradient_samples": value.value if (value := known[_COST[0].key]) else None,
                        "published_accuracy": value.value if (value := known[AVERAGE]) else None,
                    }
                )
    return rows


def search_history(entries: Sequence[Entry]) -> Rows:
    """Validation accuracy by generation of every run that was evolved."""
    rows = []
    for entry in entries:
        key = entry.run.result["artifacts"]["search"]
        path = entry.run.store / "evolve" / str(key)[:SHORT] / "evolution.json"
        for generation in read_json(path)["generations"] if path.exists() else []:
            origin = {"backbone": entry.config["backbone"]["name"], "dataset": entry.config["dataset"]["name"]}
            rows.append({**origin, "seed": entry.run.seed, "method": entry.run.name, **generation})
    return rows


def directions(entries: Sequence[Entry]) -> tuple[Rows, Rows]:
    """Cosines between all directions of one backbone and seed, and norms of them and of the merged updates."""
    together: dict[tuple[str, str, str, int], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry.run.name != "hyper_es"):  # whose pool the others share
        if entry.run.result["choice"] is not None:
            backbone = entry.run.result["backbone"]
            place = (backbone["name"], backbone["fingerprint"], entry.config["dataset"]["name"], entry.run.seed)
            together[place].append(entry)
    angles: Rows = []
    lengths: Rows = []
    for (backbone, _, dataset, seed), group in together.items():
        origin = {"backbone": backbone, "dataset": dataset, "seed": seed}
        folders: dict[str, tuple[str, Path]] = {}
        for entry in group:
            bench, candidate = _bench_of(entry)
            for index, (key, folder) in enumerate(bench.directions):
                folders.setdefault(key, (f"{entry.run.name}/{index}", Path(folder)))
            whole, summed = geometry.merged_norms(bench, candidate)
            lengths.append({**origin, "what": "merged", "name": entry.run.name, "norm": whole, "sum_of_norms": summed})
        names = [name for name, _ in folders.values()]
        products = geometry.inner_products(
            geometry.read_directions([(key, path) for key, (_, path) in folders.items()])
        )
        cosines, (whole_norms, sums) = geometry.cosines(products), geometry.norms(products)
        for i, first in enumerate(names):
            angles += [
                {**origin, "first": first, "second": second, "cosine": float(cosines[i, j])}
                for j, second in enumerate(names)
            ]
            length = {"norm": float(whole_norms[i]), "sum_of_norms": float(sums[i])}
            lengths.append({**origin, "what": "direction", "name": first, **length})
    return angles, lengths


def _bench_of(entry: Entry) -> tuple[Bench, Candidate]:
    try:
        bench, candidate = bench_of(entry.run)
    except UserError as error:
        raise UserError(f"{entry.run.path}: {error}") from error
    assert candidate is not None  # only runs that chose one come here
    return bench, candidate


def _origin(setting: Mapping[str, Any]) -> dict[str, Any]:
    return {"backbone": setting["backbone"]["name"], "dataset": setting["dataset"]["name"], "seed": setting["seed"]}
