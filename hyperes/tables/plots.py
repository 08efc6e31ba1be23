"""The figures' plots, from the rows of their CSV files; one panel per backbone, data set and seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure  # no pyplot: it keeps figures and wants a display

from hyperes.tables.paper import METHODS

Rows = Sequence[Mapping[str, Any]]


def draw(plot: str, data: Mapping[str, Rows], path: Path) -> None:
    """One of PLOTS as a PNG file."""
    name, panel = PLOTS[plot]
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in data[name]:
        together[row["backbone"], row["dataset"], row["seed"]].append(row)
    figure = Figure(figsize=(6.5 * len(together), 5), layout="constrained")
    axes = figure.subplots(1, len(together), squeeze=False)[0]
    for axis, ((backbone, dataset, seed), part) in zip(axes, together.items(), strict=True):
        axis.set_title(f"{backbone}, {dataset}, seed {seed}", fontsize="medium")
        panel(axis, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _label(method: str) -> str:
    return METHODS.get(method, method)


def _accuracy(axis: Any, rows: Rows, cost: str, title: str) -> None:
    gap = max((row[cost] or 0 for row in rows), default=0) / 60  # methods of the same cost stand side by side
    beside: dict[int, int] = defaultdict(int)
    for index, row in enumerate(rows):
        colour, label = f"C{index % 10}", _label(row["method"])
        if row["accuracy"] is not None and row[cost] is not None:
            low, high = (row[end] if row[end] is not None else row["accuracy"] for end in ("low", "high"))
            error = [[row["accuracy"] - low], [high - row["accuracy"]]]
            place, marker = row[cost] + gap * beside[row[cost]], "osD^"[index // 10 % 4]  # there are ten colours
            beside[row[cost]] += 1
            axis.errorbar(place, row["accuracy"], yerr=error, fmt=marker, color=colour, capsize=2, label=label)
        cited = row.get(f"published_{cost}"), row["published_accuracy"]
        if None not in cited:
            axis.plot(*cited, "x", color=colour, label=f"{label}, published")
    axis.set_xlabel(f"{title} (those of one cost are drawn side by side)")
    axis.set_ylabel("average accuracy (%)")
    axis.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _search(axis: Any, rows: Rows) -> None:
    by_method: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_method[row["method"]].append(row)
    for index, (method, part) in enumerate(by_method.items()):
        generations = [row["generation"] for row in part]
        axis.plot(generations, [100 * row["mean"] for row in part], color=f"C{index % 10}", label=_label(method))
        axis.plot(generations, [100 * row["best"] for row in part], ":", color=f"C{index % 10}")
    axis.set_xlabel("generation")
    axis.set_ylabel("validation accuracy (%): mean, and dotted the best")
    axis.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _cosines(axis: Any, rows: Rows) -> None:
    names = list(dict.fromkeys(row["first"] for row in rows))
    matrix = np.array([row["cosine"] for row in rows]).reshape(len(names), len(names))
    image = axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize="xx-small")
    axis.set_yticks(range(len(names)), names, fontsize="xx-small")
    axis.figure.colorbar(image, ax=axis, label="cosine")


def _norms(axis: Any, rows: Rows) -> None:
    names = [f"{row['name']} ({row['what']})" for row in rows]
    axis.barh(names, [row["norm"] for row in rows])
    axis.tick_params(axis="y", labelsize="xx-small")
    axis.invert_yaxis()
    axis.set_xscale("log")  # those of CMA-ES on LoRA parameters are a hundred times those of GRPO
    axis.set_xlabel("norm of the task vector")


# {plot: (data, how it is drawn)}
PLOTS: dict[str, tuple[str, Callable[[Any, Rows], None]]] = {
    "figure4": ("figure4", partial(_accuracy, cost="gradient_samples", title="samples with gradients")),
    "figure4_candidates": ("figure4", partial(_accuracy, cost="candidate_evaluations", title="candidates evaluated")),
    "search": ("search", _search),
    "cosines": ("cosines", _cosines),
    "norms": ("norms", _norms),
}
