"""The paper's tables: which methods are their rows, which suites their columns, and the cells that are published."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BASE, GRPO, HYPER_ES = "base", "grpo_lora", "hyper_es"
POINTS, COUNT, SECONDS, HOURS = "points", "count", "seconds", "hours"  # accuracies are in points: % of the problems
AVERAGE, DELTA, VALIDATION = "average", "delta", "validation"
GSM = ("gsm8k", "svamp", "multiarith", "gsm_hard")
SUITE_TITLES = {
    "gsm8k": "GSM8K",
    "svamp": "SVAMP",
    "multiarith": "MultiArith",
    "gsm_hard": "GSM-Hard",
    "math500": "MATH-500",
    "amc23": "AMC23",
    "mbpp": "MBPP",
    "humaneval": "HumanEval",
}
METHODS = {
    BASE: "Base",
    GRPO: "GRPO+LoRA",
    "cma_lora": "CMA-ES+LoRA",
    "average_merge": "Average Merge",
    "dare_ties_grid": "DARE+TIES",
    "dare_cma": "DARE+CMA-ES",
    HYPER_ES: "Hyper-ES",
    "ablation_no_cmaes": "w/o CMA-ES",
    "ablation_no_grouping": "w/o grouping",
    "four_steps": "Hyper-ES, 4 gradient steps",
    "random_directions": "Hyper-ES, pure-random directions",
    "cma_directions": "Hyper-ES, CMA-ES directions",
    "tiny_grpo": "tinyGRPO",
    "cabs": "CABS",
    "wudi": "WUDI-Merging",
    "task_arithmetic": "Task arithmetic",
}
_MAIN = (BASE, GRPO, "cma_lora", "average_merge", "dare_ties_grid", "dare_cma", HYPER_ES)
ONE_SEED = ("table1", "table3", "table4", "table12")


def title_of(method: str) -> str:
    """The paper's name of a method; of n4, a number of directions."""
    return METHODS.get(method) or f"N = {method[1:]}"


@dataclass(frozen=True)
class Column:
    """A quantity that is no suite's accuracy."""

    key: str
    title: str
    unit: str


@dataclass(frozen=True)
class Table:
    """One table. Its accuracies stand between ``before`` and ``after``, but for ``accuracies`` false."""

    name: str
    title: str
    rows: tuple[str, ...]  # names of experiments; empty: the numbers of directions that were run
    suites: tuple[str, ...]
    home: str  # the sweep that makes it
    sweeps: tuple[str, ...]  # sweeps whose runs may serve; runs of no sweep always may
    before: tuple[Column, ...] = ()
    after: tuple[Column, ...] = ()
    accuracies: bool = True
    samples: int = 1  # of a problem, in the paper
    seeds: bool = False  # mean and standard deviation over seeds
    single_directions: bool = False  # a row for every direction alone
    gains: tuple[tuple[str, tuple[str, ...], str], ...] = ()  # of Hyper-ES: (label, over the best of, published metric)


_TIMES = (
    Column("longest_direction_seconds", "longest direction (s)", SECONDS),
    Column("directions", "directions (s)", SECONDS),
    Column("grid", "grid (s)", SECONDS),
    Column("evolve", "CMA-ES (s)", SECONDS),
    Column("all", "directions, grid and CMA-ES (s)", SECONDS),
    Column("end_to_end_hours", "end to end (h)", HOURS),
    Column("test", "test (s)", SECONDS),
)


def mean_at(samples: int) -> str:
    """What a title says of the number of samples of a problem."""
    return f", Mean@{samples}" if samples > 1 else ""


TABLES = (
    Table("1", "Arithmetic reasoning", _MAIN, GSM, "table1", ONE_SEED),
    Table("2", "Mathematical reasoning", _MAIN, ("gsm8k", "math500", "amc23"), "table2", ("table2",), samples=32),
    Table(
        "3",
        "Ablations",
        (HYPER_ES, "ablation_no_cmaes", "ablation_no_grouping"),
        GSM,
        "table3",
        ONE_SEED,
        after=(Column(DELTA, "Δ", POINTS),),
    ),
    Table(
        "4",
        "Efficiency",
        (GRPO, HYPER_ES, "four_steps", "random_directions", "cma_directions"),
        GSM,
        "table4",
        ONE_SEED,
        before=(Column("gradient_samples", "gradient samples", COUNT),),
    ),
    Table("9", "Time by stage", (GRPO, HYPER_ES), GSM, "table1", ONE_SEED, before=_TIMES, accuracies=False),
    Table(
        "10",
        "Validation and test accuracy by stage",
        (GRPO, "ablation_no_cmaes", HYPER_ES),
        ("gsm8k",),
        "table3",
        ONE_SEED,
        before=(Column(VALIDATION, "validation", POINTS),),
        single_directions=True,
    ),
    Table("11", "Several seeds", (GRPO, HYPER_ES), GSM, "multiseed", ("multiseed",), seeds=True),
    Table(
        "12",
        "Additional baselines",
        ("tiny_grpo", "cabs", "wudi", "task_arithmetic", HYPER_ES),
        GSM,
        "table12",
        ONE_SEED,
        gains=(
            ("Hyper-ES over tinyGRPO", ("tiny_grpo",), "average_gain_over_tinygrpo"),
            ("Hyper-ES over the better of CABS and WUDI", ("cabs", "wudi"), "average_gain_over_best_merging_baseline"),
        ),
    ),
    Table("13", "Programming", (BASE, GRPO, HYPER_ES), ("mbpp", "humaneval"), "table13", ("table13",)),
    Table("N", "Number of directions", (), GSM, "direction_count", ("direction_count",)),
)


@dataclass(frozen=True)
class Published:
    """A published cell, in the column's unit."""

    value: float
    std: float | None
    note: str


@cache
def published() -> dict[tuple[str, str, str, str], Published]:
    """{(table, backbone, method, metric): cell}; what is not in here is not available."""
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as stream:
        return {
            (row["table"], row["backbone"], row["method"], row["metric"]): Published(
                float(row["value"]), float(row["std"]) if row["std"] else None, row["note"]
            )
            for row in csv.DictReader(stream)
        }
